#![allow(clippy::unwrap_used)]
use super::*;

fn taken(entry: Value) -> Result<Taken, String> {
    let inputs = [("key".to_owned(), "The key".to_owned())];
    let scene = Scene { home: Some("/h"), inputs: &inputs, is_set: &|_| false };
    take(&Server { name: "a".to_owned(), entry }, &PackName::parse("a").unwrap(), &scene)
}

#[test]
fn each_programs_entry_becomes_the_pack_that_means_the_same() {
    for (entry, parameters) in [
        // Claude Desktop, Claude Code, Cursor
        (
            json!({"command": "npx", "args": ["-y", "x", 8080], "env": {"A": "1", "B": null}}),
            json!({"transport": "stdio", "command": ["npx", "-y", "x", "8080"], "env": {"A": "1"}}),
        ),
        (
            json!({"type": "http", "url": "https://x/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}),
            json!({"transport": "http", "url": "https://x/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}}),
        ),
        (json!({"url": "https://x/mcp"}), json!({"transport": "http", "url": "https://x/mcp"})),
        (json!({"command": "npx -y \"a b\""}), json!({"transport": "stdio", "command": ["npx", "-y", "a b"]})),
        (json!({"command": "cmd", "args": ["/c", "npx", "x"]}), json!({"transport": "stdio", "command": ["npx", "x"]})),
        (
            json!({"command": "/opt/my server/run", "env": {"PATH": "/x"}}),
            json!({"transport": "stdio", "command": ["/opt/my server/run"]}),
        ),
        // VS Code
        (
            json!({"type": "stdio", "command": "node", "args": ["${workspaceFolder}/s.js"], "env": {"K": "${input:key}"}}),
            json!({"transport": "stdio", "command": ["node", "./s.js"], "cwd": ".", "env": {"K": "${env:KEY}"}}),
        ),
        (
            json!({"command": "x", "cwd": "${workspaceFolder}"}),
            json!({"transport": "stdio", "command": ["x"], "cwd": "."}),
        ),
        // Codex
        (
            json!({"command": "x", "env_vars": ["A", {"name": "B", "source": "local"}], "startup_timeout_sec": 20, "tool_timeout_sec": 1.5}),
            json!({"transport": "stdio", "command": ["x"], "env": {"A": "${env:A}", "B": "${env:B}"}, "initTimeoutSeconds": 20, "timeoutSeconds": 2}),
        ),
        (
            json!({"url": "https://x/mcp", "bearer_token_env_var": "T", "env_http_headers": {"X-A": "A"}}),
            json!({"transport": "http", "url": "https://x/mcp", "headers": {"X-A": "${env:A}"}, "auth": {"type": "bearer", "token": "${env:T}"}}),
        ),
        // Others of the kind
        (
            json!({"httpUrl": "https://x/mcp", "timeout": 30000, "trust": true}),
            json!({"transport": "http", "url": "https://x/mcp", "timeoutSeconds": 30}),
        ),
        (
            json!({"command": ["uvx", "x"], "timeout": 60, "alwaysAllow": ["a"]}),
            json!({"transport": "stdio", "command": ["uvx", "x"], "timeoutSeconds": 60}),
        ),
    ] {
        let taken = taken(entry.clone()).unwrap_or_else(|why| panic!("{entry}: {why}"));
        assert_eq!(taken.pack["parameters"], parameters, "{entry}");
        assert_eq!((&taken.pack["name"], &taken.pack["type"]), (&json!("a"), &json!("mcp_server")));
    }
}

#[test]
fn what_cannot_be_taken_has_its_reason() {
    for (entry, why) in [
        (json!("npx"), "no mapping"),
        (json!({}), "neither `command` nor `url`"),
        (json!({"command": "x", "url": "https://x"}), "both"),
        (json!({"type": "sse", "url": "https://x/sse"}), "often /mcp"),
        (json!({"type": "ws", "url": "wss://x"}), "the type 'ws'"),
        (json!({"type": "http", "command": "x"}), "the type 'http'"),
        (json!({"command": 1}), "`command` is no text"),
        (json!({"command": "x", "args": "-y"}), "no list"),
        (json!({"command": "x", "args": [{}]}), "something else than text"),
        (json!({"command": "x", "args": ["${KEY}"]}), "argument 1 holds ${KEY}"),
        (json!({"command": "x", "args": ["--key=${input:key}"]}), "asks at each start (The key)"),
        (json!({"command": "x", "env": {"A": "${config:b}"}}), "only the other program"),
        (json!({"command": "x", "env": {"A": {}}}), "`A` in its `env`"),
        (json!({"command": "x", "env": {"A B": "1"}}), "no variable name"),
        (json!({"command": "x", "args": ["${workspaceFolder}"], "cwd": "/y"}), "starts in another one"),
        (json!({"url": "https://u:p@x/mcp"}), "user name or password"),
        (json!({"url": "https://x/mcp", "headers": {"Host": "y"}}), "set by the protocol"),
    ] {
        let got = taken(entry.clone()).unwrap_err();
        assert!(got.contains(why), "{entry}: {got}");
    }
}

#[test]
fn a_person_is_told_what_is_not_the_same() {
    for (entry, remark) in [
        (json!({"command": "x", "disabled": true}), "turned off"),
        (json!({"command": "x", "enabled": false}), "turned off"),
        (json!({"command": "x", "enabled_tools": ["read"]}), "only these of its tools are allowed: read"),
        (json!({"command": "x", "envFile": "${workspaceFolder}/.env"}), "are not read"),
        (json!({"command": "x", "env": {"PATH": "/x"}}), "`PATH` is left out"),
        (json!({"command": "x", "envfile": 1}), "not taken over: envfile"),
        (json!({"command": "node", "args": ["./s.js"]}), "relative path"),
        (json!({"command": "x", "env": {"K": "${input:key}"}}), "export it"),
        (json!({"url": "https://x/sse"}), "old transport"),
        (json!({"url": "https://x/mcp", "oauth": {"clientId": "x"}}), "vancetope login a"),
        (json!({"url": "http://x/mcp"}), "unencrypted"),
    ] {
        let taken = taken(entry.clone()).unwrap_or_else(|why| panic!("{entry}: {why}"));
        assert!(taken.remarks.iter().any(|r| r.contains(remark)), "{entry}: {:?}", taken.remarks);
    }
    assert_eq!(taken(json!({"command": "x", "disabled": true})).unwrap().pack["enabled"], false);
    assert_eq!(
        taken(json!({"command": "x", "disabled_tools": ["rm"]})).unwrap().pack["disabledSubTools"],
        json!(["rm"])
    );
    assert!(taken(json!({"command": "x", "autoApprove": [], "gallery": true})).unwrap().remarks.is_empty());
}

#[test]
fn names_are_mapped_to_our_rules() {
    for (name, want) in [
        ("chrome", Some("chrome")),
        ("My Server", Some("My-Server")),
        ("a__b", Some("a_b")),
        ("_a_", Some("a")),
        ("@scope/pkg", Some("scope-pkg")),
        ("io.github.x/y", Some("io-github-x-y")),
        ("é", None),
        ("", None),
    ] {
        assert_eq!(mapped(name).as_ref().map(PackName::as_str), want, "{name}");
    }
    assert_eq!(mapped(&"x".repeat(100)).unwrap().as_str().len(), 64);
}
