#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;

mod rest;

use super::*;
use crate::launch::{Auth, Grant, OAuth, Transport};
use crate::tool::Replay;

const CHROME: &str = r#"{
  "name": "chrome",
  "type": "mcp_server",
  "labels": ["browser"],
  "parameters": {
    "transport": "stdio",
    "command": ["npx", "-y", "chrome-devtools-mcp@latest"]
  }
}"#;

fn plan(parsed: Parsed) -> LaunchPlan {
    assert_eq!(parsed.problems, []);
    match parsed.pack.unwrap().body {
        PackBody::Launch(plan) => plan,
        other => panic!("{other:?}"),
    }
}

fn shown(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(|p| format!("{}: {}", p.line, p.message)).collect()
}

/// A pack with more fields under `parameters`, from line 4 on.
fn with(first: &str, fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    format!("{{\"name\": \"a\", \"type\": \"mcp_server\",\n\"parameters\": {{\n{first}{comma}\n{fields}}}}}")
}

fn stdio(fields: &str) -> String {
    with("\"transport\": \"stdio\", \"command\": [\"x\"]", fields)
}

fn http(fields: &str) -> String {
    with("\"transport\": \"http\"", fields)
}

#[test]
fn the_documents_example_loads_at_every_level() {
    for origin in [Origin::Global, Origin::Server, Origin::Project] {
        let parsed = parse_pack("chrome.json", CHROME, origin);
        assert_eq!(parsed.warnings, []);
        let plan = plan(parsed);
        assert_eq!((plan.pack.as_str(), plan.origin), ("chrome", origin));
        assert_eq!(plan.labels, ["browser"]);
        assert_eq!((plan.call_timeout, plan.init_timeout), (Duration::from_secs(60), Duration::from_secs(120)));
        let Transport::Stdio { argv, cwd: None, env } = plan.transport else { panic!() };
        assert_eq!(argv, ["npx", "-y", "chrome-devtools-mcp@latest"]);
        assert!(env.is_empty());
    }
}

#[test]
fn every_field_of_a_stdio_pack_reaches_its_plan() {
    let text = r#"{"name": "jira", "type": "mcp_server", "description": "d", "enabled": true, "disabledSubTools": ["delete"], "projectOverride": "forbid",
        "parameters": {"transport": "stdio", "command": ["node", "/x.js"], "cwd": ".", "env": {"A": "b ${env:JIRA}"},
        "timeoutSeconds": 5, "initTimeoutSeconds": 7, "defaultArgs": {"k": 1}, "replay": {"get": "safe", "put": "unsafe"},
        "restart": {"maxRestarts": 2, "windowSeconds": 9}}}"#;
    let parsed = parse_pack("f", text, Origin::Global);
    assert_eq!(parsed.warnings, []);
    let pack = parsed.pack.clone().unwrap();
    assert!(pack.project_override_forbidden && pack.enabled);
    assert_eq!((pack.description.as_deref(), pack.disabled_sub_tools), (Some("d"), vec!["delete".to_owned()]));
    let plan = plan(parsed);
    assert_eq!((plan.call_timeout.as_secs(), plan.init_timeout.as_secs()), (5, 7));
    assert_eq!(plan.default_args["k"], 1);
    assert_eq!((plan.replay["get"], plan.replay["put"]), (Replay::Safe, Replay::Unsafe));
    assert_eq!((plan.restart.max_restarts, plan.restart.within.as_secs()), (2, 9));
    let Transport::Stdio { cwd, env, .. } = plan.transport else { panic!() };
    assert_eq!((cwd.as_deref(), env["A"].as_str()), (Some("."), "b ${env:JIRA}"));
}

#[test]
fn credentials_become_headers_or_a_query() {
    for (auth, url, header) in [
        (r#""none""#, "https://h/mcp", None),
        (r#"{"type": "bearer", "token": "${env:T}"}"#, "https://h/mcp", Some(("Authorization", "Bearer ${env:T}"))),
        (r#"{"bearer": {"token": "t"}}"#, "https://h/mcp", Some(("Authorization", "Bearer t"))),
        (r#"{"type": "apiKey", "value": "v", "headerName": "X-Key"}"#, "https://h/mcp", Some(("X-Key", "v"))),
        (r#"{"type": "apiKey", "value": "a&${env:K}", "queryParamName": "k"}"#, "https://h/mcp?k=a%26${env:K}", None),
    ] {
        let text = http(&format!("\"url\": \"https://h/mcp\", \"auth\": {auth}"));
        let parsed = parse_pack("f", &text, Origin::Project);
        assert_eq!(parsed.warnings, []);
        let Transport::Http { url: got, headers, auth: Auth::Constant, .. } = plan(parsed).transport else { panic!() };
        assert_eq!(got, url, "{auth}");
        assert_eq!(headers.iter().next().map(|(k, v)| (k.as_str(), v.as_str())), header, "{auth}");
    }
    let text = http(r#""url": "https://h/mcp?a=1", "auth": {"apiKey": {"value": "v", "queryParamName": "k"}}"#);
    let Transport::Http { url, .. } = plan(parse_pack("f", &text, Origin::Global)).transport else { panic!() };
    assert_eq!(url, "https://h/mcp?a=1&k=v");
    let text = text.replace("\"http\"", "\"streamable-http\"");
    assert!(parse_pack("f", &text, Origin::Global).pack.is_some());
}

#[test]
fn credentials_that_are_no_constant_are_kept_for_later() {
    let oauth = |change: fn(&mut OAuth)| {
        let mut oauth = OAuth::default();
        change(&mut oauth);
        Auth::OAuth(oauth)
    };
    for (fields, want) in [
        ("", Auth::IfAsked),
        (r#","headers": {"authorization": "x"}"#, Auth::Constant),
        (r#","auth": "oauth2""#, oauth(|_| {})),
        (
            r#","auth": {"basic": {"user": "${env:U}", "password": "${env:P}:"}}"#,
            Auth::Basic { user: "${env:U}".into(), password: "${env:P}:".into() },
        ),
        (
            r#","auth": {"type": "oauth2", "clientId": "c", "clientSecret": "${env:S}", "tokenUrl": "https://t/x"}"#,
            oauth(|oauth| {
                oauth.grant = Grant::ClientCredentials;
                oauth.client_id = Some("c".into());
                oauth.client_secret = Some("${env:S}".into());
                oauth.token_url = Some("https://t/x".into());
            }),
        ),
        (
            r#","auth": {"oauth2": {"clientId": "c", "scopes": ["a", "b"], "callbackPort": 4711, "issuer": "https://sso"}}"#,
            oauth(|oauth| {
                oauth.client_id = Some("c".into());
                oauth.scopes = vec!["a".into(), "b".into()];
                oauth.callback_port = Some(4711);
                oauth.issuer = Some("https://sso".into());
            }),
        ),
    ] {
        let parsed = parse_pack("f", &http(&format!("\"url\": \"https://h/mcp\"{fields}")), Origin::Project);
        assert_eq!((shown(&parsed.problems), shown(&parsed.warnings)), (vec![], vec![]), "{fields}");
        let Transport::Http { auth, .. } = plan(parsed).transport else { panic!() };
        assert_eq!(auth, want, "{fields}");
    }
}

#[test]
fn verification_is_never_switched_off_for_a_pack_of_the_working_directory() {
    let text = http("\"url\": \"https://h/mcp\",\n\"tls\": {\"insecure\": true}");
    let parsed = parse_pack("f", &text, Origin::Project);
    let want = "5: `insecure` is not for a pack of the working directory; use `caFile` with the server's certificate";
    assert_eq!(shown(&parsed.problems), [want]);
    let parsed = parse_pack("f", &text, Origin::Global);
    assert_eq!(parsed.warnings.len(), 1, "loud: {:?}", parsed.warnings);
    let Transport::Http { tls, .. } = plan(parsed).transport else { panic!() };
    assert!(tls.insecure);
    let files = http(r#""url": "https://h/mcp", "tls": {"caFile": "certs/ca.pem", "clientCertFile": "~/c.pem"}"#);
    let Transport::Http { tls, .. } = plan(parse_pack("f", &files, Origin::Project)).transport else { panic!() };
    assert_eq!(tls.files().collect::<Vec<_>>(), ["certs/ca.pem", "~/c.pem"]);
}

#[test]
fn mistakes_in_the_envelope_are_named_with_their_line() {
    for (text, want) in [
        ("[]", vec!["1: the pack is a list, expected a mapping (name: value)"]),
        (
            "{}",
            vec![
                "1: the pack has no `name`, expected a name such as chrome",
                "1: the pack has no `type`, expected mcp_server",
            ],
        ),
        (
            "{\"name\": \"a__b\",\n\"type\": \"mcp_serv\"}",
            vec![
                "1: `name`: a pack name has no `__` and no `_` at its ends, got 'a__b'",
                "2: `type` is 'mcp_serv', did you mean `mcp_server`?",
            ],
        ),
        (
            "{\"name\": \"a\",\n\"type\": \"mcp_server\"}",
            vec!["1: the pack has no `parameters`, expected a mapping with `transport` and `command` or `url`"],
        ),
        (
            "{\"name\": \"a\",\n\"type\": \"rest_api\", \"parameters\": {\"specUrl\": \"x\"}}",
            vec!["2: `specUrl` has no scheme, expected an address such as https://example.com/mcp"],
        ),
        (
            "{\"name\": \"a\", \"type\": \"rest_api\"}",
            vec!["1: the pack has no `parameters`, expected a mapping with `specUrl`, `specFile` or `specInline`"],
        ),
        (
            "{\"name\": \"a\",\n\"enabled\": \"no\",\n\"labels\": [\"x y\", 1],\n\"disabledSubTools\": \"z\",\n\"parameters\": {}, \"type\": \"mcp_server\"}",
            vec![
                "2: `enabled` is 'no', expected true or false",
                "3: `labels` holds the number 1, expected text",
                "3: a label is 1 to 64 of [A-Za-z0-9_.:/-], got 'x y'",
                "4: `disabledSubTools` is 'z', expected a list such as [\"delete_page\"]",
                "5: `parameters` has no `transport`, expected stdio or http",
            ],
        ),
        (
            "{\"name\": \"a\",\n\"name\": \"b\"}",
            vec![
                "1: the pack has no `type`, expected mcp_server",
                "2: the key `name` is there twice, first on line 1; remove one",
            ],
        ),
    ] {
        let parsed = parse_pack("f", text, Origin::Global);
        assert_eq!(shown(&parsed.problems), want, "{text}");
        assert_eq!(parsed.pack, None);
    }
}

#[test]
fn mistakes_in_parameters_are_named_with_their_line() {
    let command = |command: &str| stdio("").replace("[\"x\"]", command);
    for (text, want) in [
        (
            command("\"npx -y 'a b'\""),
            "3: `command` is one text, expected a list: \"command\": [\"npx\", \"-y\", \"a b\"]",
        ),
        (
            command("\"npx\", \"args\": [\"-y\", \"srv\"]"),
            "3: `command` is one text, expected a list: \"command\": [\"npx\", \"-y\", \"srv\"]",
        ),
        (
            command("[\"npx -y srv\"]"),
            "3: `command` holds a whole command line in one text, expected [\"npx\", \"-y\", \"srv\"]",
        ),
        (command("[]"), "3: `command` is an empty list, expected the program and its arguments"),
        (command("[\"\"]"), "3: `command` has an empty program name"),
        (command("[\"x\", 5]"), "3: `command` holds the number 5, expected text (in quotes)"),
        (
            command("[\"x\", \"${env:A}\"]"),
            "3: `command` takes no ${env:NAME}; it works in `env`, `headers`, `auth` and `defaultArgs`",
        ),
        (command("{}"), "3: `command` is a mapping, expected a list such as [\"npx\", \"-y\", \"some-server\"]"),
        (
            stdio("\"env\": {\n\"PATH\": \"/x\"}"),
            "5: a pack may not set `PATH`; name the program by its full path in `command`",
        ),
        (
            stdio("\"env\": {\n\"VANCE_TOKEN\": \"x\"}"),
            "5: `VANCE_TOKEN` in `env`: VANCE_* belongs to Vancetope, a pack may not set it",
        ),
        (
            stdio("\"env\": {\n\"A-B\": \"/x\"}"),
            "5: `A-B` in `env` is no variable name, expected [A-Za-z_][A-Za-z0-9_]*",
        ),
        (stdio("\"env\": {\n\"A\": 5}"), "5: `A` in `env` is the number 5, expected text"),
        (
            stdio("\"env\": {\"A\": \"${env:VANCE_TOKEN}\"}"),
            "4: `A` in `env` names VANCE_TOKEN, but VANCE_* is not available to packs",
        ),
        (
            stdio("\"env\": {\"A\": \"${env:X\"}"),
            "4: `A` in `env` has a `${env:` without its end, expected ${env:NAME}",
        ),
        (
            stdio("\"env\": {\"A\": \"${env:a b}\"}"),
            "4: `A` in `env` names 'a b', expected ${env:NAME} with a name of [A-Za-z0-9_]",
        ),
        (
            stdio("\"env\": {\"A\": \"{{secret:T}}\"}"),
            "4: `A` in `env`: {{secret:NAME}} is for the server packs of a Brain; use ${env:NAME} here",
        ),
        (
            stdio("\"defaultArgs\": {\"a\": [\n\"${env:}\"]}"),
            "5: `defaultArgs` names '', expected ${env:NAME} with a name of [A-Za-z0-9_]",
        ),
        (stdio("\"cwd\": \"\""), "4: `cwd` is no path, expected \".\" for the project directory or another path"),
        (
            stdio("\"timeoutSeconds\": 0"),
            "4: `timeoutSeconds` is the number 0, expected a whole number from 1 to 86400",
        ),
        (stdio("\"timeoutSeconds\": \"60\""), "4: `timeoutSeconds` is '60', expected a whole number from 1 to 86400"),
        (stdio("\"replay\": {\"t\": \"save\"}"), "4: `t` in `replay` is 'save', did you mean `safe`?"),
        (stdio("").replace("stdio", "studio"), "3: `transport` is 'studio', did you mean `stdio`?"),
        (
            stdio("").replace("stdio", "sse"),
            "3: the old HTTP+SSE transport is not supported; use `http` (streamable HTTP) with the server's endpoint for it, often /mcp",
        ),
        (http(""), "2: `parameters` has no `url`, expected the server's address such as https://example.com/mcp"),
        (
            http("\"url\": \"example.com/mcp\""),
            "4: `url` has no scheme, expected an address such as https://example.com/mcp",
        ),
        (
            http("\"url\": \"ftp://e/m\""),
            "4: `url` has the scheme 'ftp', expected an address such as https://example.com/mcp",
        ),
        (http("\"url\": \"https://u:p@e/m\""), "4: `url` holds a user name or password; use `auth` or `headers`"),
        (http("\"url\": \"https:///m\""), "4: `url` has no host, expected an address such as https://example.com/mcp"),
        (http("\"url\": \"https://e:99999/m\""), "4: `url` has a port that is no number from 1 to 65535"),
        (http("\"url\": \"https://[::1]x/m\""), "4: `url` has a port that is no number from 1 to 65535"),
        (
            http("\"url\": \"https://[::g]/m\""),
            "4: `url` has the host '::g', expected an address such as https://example.com/mcp",
        ),
        (
            http("\"url\": \"https://e%20/m\""),
            "4: `url` has the host 'e%20', expected an address such as https://example.com/mcp",
        ),
        (
            http("\"url\": \"http://127.1/m\""),
            "4: `url` has the host '127.1', which programs read in different ways; write the address in full",
        ),
        (
            http("\"url\": \"http://0x7f000001/m\""),
            "4: `url` has the host '0x7f000001', which programs read in different ways; write the address in full",
        ),
        (
            http("\"url\": \"http://010.0.0.1./m\""),
            "4: `url` has the host '010.0.0.1.', which programs read in different ways; write the address in full",
        ),
        (http("\"url\": \"https://e/m#x\""), "4: `url` has a fragment (#...), remove it"),
        (
            http("\"url\": \"https://e/\u{202e}m\""),
            "4: `url` holds blanks, backslashes or characters outside ASCII; write a foreign host in its xn-- form and encode the rest with %",
        ),
        (http("\"url\": \"https://e/m\", \"headers\": {\n\"A B\": \"x\"}"), "5: `A B` in `headers` is no header name"),
        (
            http("\"url\": \"https://e/m\", \"headers\": {\n\"Host\": \"x\"}"),
            "5: `Host` in `headers` is set by the protocol itself, remove it",
        ),
        (
            http("\"url\": \"https://e/m\", \"headers\": {\"A\": \"x\\r\\nB: y\"}"),
            "4: `A` in `headers` holds control characters or characters outside ASCII",
        ),
        (
            http("\"url\": \"https://e/m\", \"headers\": {\"A\": \"x\",\n\"a\": \"y\"}"),
            "5: `a` in `headers` is there twice, remove one",
        ),
        (
            http(
                "\"url\": \"https://e/m\", \"headers\": {\"authorization\": \"x\"},\n\"auth\": {\"bearer\": {\"token\": \"t\"}}",
            ),
            "5: `auth` and `headers` both set `Authorization`, remove one",
        ),
        (
            http(
                "\"url\": \"https://e/m\",\n\"auth\": {\"type\": \"oauth2\", \"clientSecret\": \"x\", \"grant\": \"authorization_code\"}",
            ),
            "5: `auth` has no `clientId`, expected the client that the secret belongs to",
        ),
        (
            http("\"url\": \"https://e/m\",\n\"auth\": {\"oauth2\": {\"issuer\": \"http://sso.example\"}}"),
            "5: `issuer` is http, and credentials would travel unencrypted; use https",
        ),
        (
            http("\"url\": \"https://e/m\",\n\"auth\": {\"oauth2\": {\"scopes\": [\"a b\"]}}"),
            "5: a scope is one word of printable ASCII, got 'a b'",
        ),
        (
            http("\"url\": \"https://e/m\",\n\"auth\": \"bearer\""),
            "5: `auth` is 'bearer', expected none or one such as {\"type\": \"bearer\", \"token\": \"${env:TOKEN}\"}",
        ),
        (
            http("\"url\": \"https://e/m\",\n\"auth\": {\"token\": \"x\"}"),
            "5: `auth` has no `type`, expected none or one such as {\"type\": \"bearer\", \"token\": \"${env:TOKEN}\"}",
        ),
        (
            http("\"url\": \"https://e/m\",\n\"auth\": {\"bearer\": {}}"),
            "5: `bearer` has no `token`, expected text such as ${env:TOKEN}",
        ),
        (
            http("\"url\": \"https://e/m\",\n\"auth\": {\"basic\": {\"user\": \"u:${env:A}\", \"password\": \"p\"}}"),
            "5: `user` holds a colon, which basic authentication cannot carry",
        ),
        (
            http("\"url\": \"https://e/m\",\n\"auth\": {\"apiKey\": {\"value\": \"v\"}}"),
            "5: apiKey has no `headerName` or `queryParamName`, expected one of them",
        ),
        (
            http("\"url\": \"https://e/m\",\n\"tls\": {\"caFile\": \"ca.pem\"}"),
            "5: `caFile` is no whole path, expected one such as /etc/ssl/acme.pem or ~/acme.pem",
        ),
    ] {
        let parsed = parse_pack("f", &text, Origin::Global);
        assert_eq!(shown(&parsed.problems), [want], "{text}");
        assert_eq!((parsed.pack, parsed.warnings), (None, vec![]), "{text}");
        assert_eq!(parsed.name.unwrap().as_str(), "a");
    }
}

#[test]
fn an_odd_field_is_a_warning_at_home_and_an_error_in_a_project() {
    for (text, want) in [
        (
            stdio("\"timeoutsSeconds\": 1"),
            "4: unknown field `timeoutsSeconds` in `parameters`, did you mean `timeoutSeconds`?",
        ),
        (stdio("\"url\": \"x\""), "4: `url` has no meaning for stdio, remove it"),
        (http("\"url\": \"https://e/m\",\n\"cwd\": \"x\""), "5: `cwd` has no meaning for http, remove it"),
        (stdio("\"args\": [\"a\"]"), "4: `args` is not read, `command` holds the program and its arguments"),
        (
            stdio("\"restart\": {\"max_restarts\": 1}"),
            "4: unknown field `max_restarts` in `restart`, did you mean `maxRestarts`?",
        ),
        (
            stdio("").replace("\"name\"", "\n\"label\": 1, \"name\""),
            "2: unknown field `label` in the pack, did you mean `labels`?",
        ),
        (stdio("").replace("\"name\"", "\"url\": 1, \"name\""), "1: `url` belongs under `parameters`"),
    ] {
        let at_home = parse_pack("f", &text, Origin::Global);
        assert_eq!(
            (shown(&at_home.warnings), at_home.pack.is_some()),
            (vec![want.to_owned()], true),
            "{:?}",
            at_home.problems
        );
        let in_project = parse_pack("f", &text, Origin::Project);
        assert_eq!((shown(&in_project.problems), in_project.pack.is_some()), (vec![want.to_owned()], false));
    }
}

#[test]
fn a_projects_pack_may_do_less() {
    let many = format!("[\"x\"{}]", ", \"a\"".repeat(64));
    for (text, problems, warnings) in [
        (
            stdio("\"env\": {\"LD_PRELOAD\": \"x\"}"),
            vec!["4: `LD_PRELOAD` in `env`: a pack of the working directory may not set LD_* or DYLD_*"],
            vec![],
        ),
        (
            stdio("\"replay\": {\"t\": \"safe\"}"),
            vec![],
            vec!["4: `t` stays unsafe: a pack of the working directory cannot call its own tools safe"],
        ),
        (
            stdio("").replace("\"name\"", "\"labels\": [\"web\", \"read-only\", \"mcp:jira\", \"mcp:a\"], \"name\""),
            vec![],
            vec![
                "1: the label 'read-only' is left out: a pack of the working directory cannot give it to itself",
                "1: the label 'mcp:jira' is left out: a pack of the working directory cannot give it to itself",
            ],
        ),
        (
            stdio("\"cwd\": \".\"").replace("[\"x\"]", &many),
            vec![
                "3: `command` has 65 elements and 65 bytes, expected at most 64 and 4096: nobody can judge more in a prompt",
            ],
            vec![],
        ),
        (
            stdio("\"cwd\": \".\"").replace("\"name\"", "\"projectOverride\": \"forbid\", \"name\""),
            vec!["1: `projectOverride` has no meaning outside of the global packs, remove it"],
            vec![],
        ),
    ] {
        let parsed = parse_pack("f", &text, Origin::Project);
        assert_eq!(
            (shown(&parsed.problems), shown(&parsed.warnings)),
            (problems.into_iter().map(str::to_owned).collect(), warnings.into_iter().map(str::to_owned).collect())
        );
        if let Some(Pack { body: PackBody::Launch(plan), .. }) = parsed.pack {
            assert!(plan.replay.is_empty());
        }
    }
}

#[test]
fn what_works_but_surprises_is_a_warning() {
    for (text, want) in [
        (
            stdio("").replace("[\"x\"]", "[\"node\", \"./x.js\"]"),
            "3: './x.js' is a relative path, but the server starts in a private empty directory; write the full path, or \"cwd\": \".\" for the project directory",
        ),
        (
            stdio("\"env\": {\"A\": \"${HOME}\"}"),
            "4: `A` in `env` holds ${HOME} as it stands; write ${env:HOME} if the variable is meant",
        ),
        (http("\"url\": \"http://127.evil.com/mcp\""), "4: `url` is http: everything travels unencrypted; use https"),
    ] {
        let parsed = parse_pack("f", &text, Origin::Global);
        assert_eq!(
            (shown(&parsed.warnings), parsed.pack.is_some()),
            (vec![want.to_owned()], true),
            "{:?}",
            parsed.problems
        );
    }
    for url in ["http://localhost:1/mcp", "http://127.0.0.1/mcp", "http://[::1]:8080/mcp", "https://x.example/mcp"] {
        assert_eq!(parse_pack("f", &http(&format!("\"url\": \"{url}\"")), Origin::Project).warnings, [], "{url}");
    }
    for plain in [
        "@scope/server",
        "@modelcontextprotocol/server-filesystem",
        "-y",
        "chrome-devtools-mcp@latest",
        "/srv/x.js",
        "https://e/x.js",
        "echo banner $KEY; exec python3 /full/path/mcp.py",
    ] {
        let text = stdio("").replace("[\"x\"]", &format!("[\"npx\", \"{plain}\"]"));
        assert_eq!(parse_pack("f", &text, Origin::Global).warnings, [], "{plain}");
    }
}

#[test]
fn a_pack_can_be_turned_off_whatever_is_in_it() {
    for (text, body, warnings) in [
        ("{\"name\": \"a\", \"enabled\": false}".to_owned(), PackBody::Nothing, 0),
        ("{\"name\": \"a\", \"enabled\": false, \"type\": \"mcp_server\"}".to_owned(), PackBody::Nothing, 0),
        (
            "{\"name\": \"a\", \"enabled\": false, \"type\": \"rest_api\", \"parameters\": {}}".to_owned(),
            PackBody::Nothing,
            1,
        ),
        (
            "{\"name\": \"a\", \"enabled\": false, \"type\": \"mcp_server\", \"parameters\": {\"transport\": \"x\"}}"
                .to_owned(),
            PackBody::Nothing,
            1,
        ),
    ] {
        let parsed = parse_pack("f", &text, Origin::Project);
        let pack = parsed.pack.unwrap_or_else(|| panic!("{text}: {:?}", parsed.problems));
        assert_eq!((pack.enabled, pack.body, parsed.warnings.len()), (false, body, warnings), "{text}");
    }
    let parsed = parse_pack("f", &CHROME.replacen('{', "{\"enabled\": false,", 1), Origin::Project);
    assert!(matches!(parsed.pack.unwrap().body, PackBody::Launch(_)));
}

#[test]
fn a_file_beyond_the_limit_is_refused_unread() {
    let text = format!("{}{}", CHROME, " ".repeat(MAX_FILE_BYTES));
    let parsed = parse_pack("f", &text, Origin::Global);
    assert_eq!(shown(&parsed.problems), [format!("1: the file has {} bytes, expected at most 262144", text.len())]);
}

fn nearly_a_pack() -> impl Strategy<Value = String> {
    let values = prop::sample::select(vec![
        "\"a\"",
        "\"mcp_server\"",
        "\"stdio\"",
        "\"http\"",
        "\"https://e/m\"",
        "\"http://[::1\"",
        "[]",
        "[\"x\"]",
        "[\"a b\"]",
        "{}",
        "{\"A\": \"${env:X}\"}",
        "{\"A\": \"${env:\"}",
        "{\"bearer\": {\"token\": \"é\"}}",
        "{\"type\": \"apiKey\", \"value\": \"${env:é\", \"queryParamName\": \"é\"}",
        "null",
        "true",
        "false",
        "5",
        "-1",
        "1.5",
        "\"\\u0000\"",
        "\"é\\u202e\"",
    ]);
    let keys = prop::sample::select(vec![
        "name",
        "type",
        "enabled",
        "labels",
        "transport",
        "command",
        "args",
        "cwd",
        "env",
        "url",
        "headers",
        "auth",
        "tls",
        "timeoutSeconds",
        "defaultArgs",
        "replay",
        "restart",
        "projectOverride",
        "\u{1b}",
        "x",
    ]);
    let fields = |keys, values| {
        prop::collection::vec((keys, values), 0..8).prop_map(|fields: Vec<(&str, &str)>| {
            fields.iter().map(|(k, v)| format!("{}: {v}", serde_json::Value::from(*k))).collect::<Vec<_>>().join(",\n")
        })
    };
    (fields(keys.clone(), values.clone()), fields(keys, values), any::<bool>()).prop_map(|(outer, inner, whole)| {
        let envelope = if whole { "\"name\": \"a\", \"type\": \"mcp_server\"" } else { "\"q\": 1" };
        let outer = if outer.is_empty() { outer } else { format!(", {outer}") };
        format!("{{{envelope}{outer},\n\"parameters\": {{{inner}}}}}")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pack_is_there_exactly_if_nothing_is_wrong_and_lines_lie_within_the_file(text in nearly_a_pack(), project in any::<bool>()) {
        let parsed = parse_pack("f", &text, if project { Origin::Project } else { Origin::Global });
        prop_assert_eq!(parsed.pack.is_some(), parsed.problems.is_empty(), "{:?}", parsed);
        let lines = u32::try_from(text.lines().count()).unwrap();
        for problem in parsed.problems.iter().chain(&parsed.warnings) {
            prop_assert!(problem.line >= 1 && problem.line <= lines, "{problem}");
            prop_assert!(problem.message.chars().all(crate::show::is_visible), "{problem:?}");
        }
    }
}

#[test]
fn secrets_are_for_what_a_server_pack_sends_and_for_nothing_else() {
    let secrets_of = |text: &str| {
        let parsed = parse_pack("f", text, Origin::Server);
        assert_eq!(parsed.problems, [], "{text}");
        crate::secrets::of_plan(&plan(parsed)).into_iter().collect::<Vec<_>>()
    };
    let url = "\"url\": \"https://h/mcp\"";
    for (text, want) in [
        (stdio("\"env\": {\"A\": \"x {{secret:T-1}}\"}"), &["T-1"][..]),
        (http(&format!("{url}, \"headers\": {{\"X-Key\": \"{{{{secret:K}}}}{{{{secret:L}}}}\"}}")), &["K", "L"]),
        (http(&format!("{url}, \"auth\": {{\"bearer\": {{\"token\": \"{{{{secret:T}}}}\"}}}}")), &["T"]),
        (
            http(&format!(
                "{url}, \"auth\": {{\"basic\": {{\"user\": \"{{{{secret:U}}}}\", \"password\": \"{{{{secret:P}}}}\"}}}}"
            )),
            &["P", "U"],
        ),
        (
            http(&format!(
                "{url}, \"auth\": {{\"type\": \"apiKey\", \"queryParamName\": \"k\", \"value\": \"{{{{secret:Q}}}}\"}}"
            )),
            &["Q"],
        ),
        (
            http(&format!(
                "{url}, \"auth\": {{\"type\": \"oauth2\", \"clientId\": \"i\", \"clientSecret\": \"{{{{secret:C}}}}\"}}"
            )),
            &["C"],
        ),
    ] {
        assert_eq!(secrets_of(&text), want, "{text}");
        let on_a_foot = parse_pack("f", &text, Origin::Global).problems;
        assert!(on_a_foot.iter().any(|p| p.message.contains("for the server packs of a Brain")), "{on_a_foot:?}");
    }
    for (text, want) in [
        (stdio("\"env\": {\"A\": \"{{secret:a b}}\"}"), "names the secret 'a b'"),
        (stdio("\"env\": {\"A\": \"{{secret:A\"}"), "needs a `}}` behind its name"),
        (stdio("\"env\": {\"A\": \"{{ secret:A }}\"}"), "`A` in `env` has blanks in {{secret:A}}; write {{secret:A}}"),
        (stdio("\"defaultArgs\": {\"a\": [\"{{secret:A}}\"]}"), "`defaultArgs` takes no {{secret:NAME}}"),
        (stdio("\"cwd\": \"/{{secret:A}}\""), "takes no {{secret:NAME}}"),
        (http("\"url\": \"https://h/{{secret:A}}\""), "takes no {{secret:NAME}}"),
    ] {
        let problems = parse_pack("f", &text, Origin::Server).problems;
        assert!(problems.iter().any(|p| p.message.contains(want)), "{text}: {problems:?}");
    }
}

#[test]
fn a_wrong_type_hides_no_mistake_in_the_parameters() {
    for (parameters, also) in [
        (r#"{"transport": "stdio", "command": "npx x"}"#, Some("command")),
        (r#"{"specUrl": 7}"#, Some("specUrl")),
        (r#"{"something": 1}"#, None),
    ] {
        let text = format!("{{\"name\": \"a\", \"type\": \"mcp-server\",\n\"parameters\": {parameters}}}");
        let parsed = parse_pack("a.json", &text, Origin::Global);
        let said = |word: &str| parsed.problems.iter().any(|problem| problem.message.contains(word));
        assert!(parsed.pack.is_none() && said("`type`"), "{parsed:?}");
        assert!(also.is_none_or(said), "{parsed:?}");
    }
}
