#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

const DOCUMENT_3: &str = r#"tools:
  - name: jira_create_issue
    location: server               # server | client | both | prefer_server | prefer_client
    mcp_server: jira-mcp
    description: "Creates a Jira issue"

  - name: read_local_file
    location: client
    type: native                    # native (no MCP, directly in Client SDK)
    description: "Reads a local file"

  - name: obsidian_read_note
    location: client
    mcp_server: obsidian-mcp
    description: "Reads a note from the local Obsidian Vault"

  - name: google_drive_search
    location: both                  # Server and Client can do this
    mcp_server: google-drive-mcp
    prefer: server                  # For 'both': which side is preferred?
    description: "Searches Google Drive"

  - name: shell_execute
    location: client
    type: native
    description: "Executes a shell command locally"

  - name: web_search
    location: server
    type: built_in
    description: "Web search"
"#;

const DOCUMENT_4: &str = "- name: read_local_file
  location: client
  offline_strategy: block          # block | skip | queue

- name: google_drive_search
  location: both
  prefer: client
  offline_strategy: fallback       # falls back to Server version
";

fn tool(name: &str) -> ToolName {
    ToolName::parse(name).unwrap()
}

fn shown(text: &str) -> Vec<String> {
    parse_registry("f", text).expect_err(text).iter().map(|p| format!("{}: {}", p.line, p.message)).collect()
}

#[test]
fn the_documents_registry_parses() {
    let registry = parse_registry("tools.yaml", DOCUMENT_3).unwrap();
    assert_eq!(registry.len(), 6);
    let jira = &registry[&tool("jira_create_issue")];
    assert_eq!(jira.location, Location::Server);
    assert_eq!(jira.backing, Some(Backing::McpServer { pack: "jira-mcp".into(), tool: None }));
    assert_eq!(jira.description.as_deref(), Some("Creates a Jira issue"));
    assert_eq!(registry[&tool("google_drive_search")].location, Location::Both { prefer: Side::Server });
    assert_eq!(registry[&tool("shell_execute")].backing, Some(Backing::Native));
    assert_eq!(registry[&tool("web_search")].backing, Some(Backing::BuiltIn));

    let registry = parse_registry("tools.yaml", DOCUMENT_4).unwrap();
    assert_eq!(registry[&tool("google_drive_search")].location, Location::Both { prefer: Side::Client });
    assert_eq!(registry[&tool("google_drive_search")].offline_strategy, Some(OfflineStrategy::Fallback));
    assert_eq!(registry[&tool("read_local_file")].backing, None);
}

#[test]
fn location_words_mean_what_they_say() {
    for (words, want) in [
        ("server", Location::Server),
        ("client", Location::Client),
        ("both", Location::Both { prefer: Side::Server }),
        ("both, prefer: server", Location::Both { prefer: Side::Server }),
        ("both, prefer: client", Location::Both { prefer: Side::Client }),
        ("prefer_server", Location::Both { prefer: Side::Server }),
        ("prefer_client", Location::Both { prefer: Side::Client }),
    ] {
        let registry = parse_registry("f", &format!("[{{name: a, location: {words}}}]")).unwrap();
        assert_eq!(registry[&tool("a")].location, want, "{words}");
    }
    for empty in ["", "# nothing yet\n", "tools: []", "[]"] {
        assert!(parse_registry("f", empty).unwrap().is_empty());
    }
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, want) in [
        (
            "tool: []",
            vec![
                "1: the registry has no `tools`, expected a list of tools",
                "1: unknown field `tool` in the registry, did you mean `tools`?",
            ],
        ),
        ("tools: {a: 1}", vec!["1: `tools` is a mapping, expected a list of tools (- name: ...)"]),
        ("- a", vec!["1: a tool is 'a', expected a mapping (name: value)"]),
        (
            "- location: server\n- name: b c\n  location: clientt\n",
            vec![
                "1: a tool has no `name`, expected the tool's name",
                "2: `name`: a tool name is 1 to 64 of [A-Za-z0-9_-], got 'b c'",
                "3: `location` is 'clientt', did you mean `client`?",
            ],
        ),
        (
            "- name: a",
            vec!["1: a tool has no `location`, expected server, client, both, prefer_server or prefer_client"],
        ),
        (
            "- name: a\n  location: prefer_client\n  prefer: client",
            vec!["3: `prefer` has a meaning only with `location: both`, remove it"],
        ),
        ("- name: a\n  location: both\n  prefer: serv", vec!["3: `prefer` is 'serv', did you mean `server`?"]),
        ("- name: a\n  location: both\n  type: mcp", vec!["3: `type: mcp` needs `mcp_server`, the name of its pack"]),
        (
            "- name: a\n  location: both\n  type: rest",
            vec!["3: `type` is 'rest', expected one of: mcp, native, built_in"],
        ),
        (
            "- name: a\n  location: client\n  type: native\n  mcp_server: x",
            vec!["4: `mcp_server` contradicts `type`, remove one"],
        ),
        (
            "- name: a\n  location: server\n  type: native",
            vec![
                "3: `type: native` is a tool of the client itself, but `location` is server; expected built_in or another location",
            ],
        ),
        (
            "- name: a\n  location: client\n  type: built_in",
            vec![
                "3: `type: built_in` is a tool of the server itself, but `location` is client; expected native or another location",
            ],
        ),
        (
            "- name: a\n  location: client\n  tool: x",
            vec!["3: `tool` has a meaning only with `mcp_server`: the server's own name of the tool"],
        ),
        (
            "- name: a\n  location: client\n  mcp_server: x__y",
            vec!["3: `mcp_server`: a pack name has no `__` and no `_` at its ends, got 'x__y'"],
        ),
        (
            "- name: a\n  location: client\n  offline_strategy: fallback",
            vec!["3: `offline_strategy: fallback` of a client tool needs `fallback_tool`, the tool to use instead"],
        ),
        (
            "- {name: a, location: server}\n- name: a\n  location: client",
            vec!["2: the tool `a` is there twice, first on line 1; remove one"],
        ),
        // Both at once: whoever mends the first mistake does not meet the second one then.
        (
            "- {name: a, location: serverr}\n- {name: a, location: client}",
            vec![
                "1: `location` is 'serverr', did you mean `server`?",
                "2: the tool `a` is there twice, first on line 1; remove one",
            ],
        ),
        (
            "- {name: a, location: client, labels: ['', a b, '@z', fine]}",
            vec![
                "1: `labels`: a label is a name without blanks and without `@`, got ''",
                "1: `labels`: a label is a name without blanks and without `@`, got 'a b'",
                "1: `labels`: a label is a name without blanks and without `@`, got '@z'",
            ],
        ),
        (
            "- {name: a, location: server, descripton: x}",
            vec!["1: unknown field `descripton` in a tool, did you mean `description`?"],
        ),
    ] {
        assert_eq!(shown(text), want, "{text}");
    }
}

#[test]
fn fallbacks_in_a_circle_or_too_far_name_their_path() {
    let chain = |pairs: &[(&str, &str)]| -> String {
        pairs.iter().map(|(a, b)| format!("- {{name: {a}, location: client, fallback_tool: {b}}}\n")).collect()
    };
    for (pairs, want) in [
        (vec![("a", "a")], vec!["1: `fallback_tool` runs in a circle: a -> a"]),
        (vec![("b", "a"), ("a", "b"), ("x", "a")], vec!["2: `fallback_tool` runs in a circle: a -> b -> a"]),
        (
            vec![("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f")],
            vec!["1: 5 fallbacks one after the other, expected at most 4: a -> b -> c -> d -> e -> f"],
        ),
    ] {
        assert_eq!(shown(&chain(&pairs)), want);
    }
    assert!(parse_registry("f", &chain(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "not_here")])).is_ok());
}

fn nearly_a_registry() -> impl Strategy<Value = String> {
    let line = prop::sample::select(vec![
        "tools:\n",
        "- name: a\n",
        "- name: b\n",
        "  location: client\n",
        "  location: both\n",
        "  prefer: client\n",
        "  type: native\n",
        "  type: mcp\n",
        "  mcp_server: m\n",
        "  tool: t\n",
        "  fallback_tool: b\n",
        "  fallback_tool: a\n",
        "  offline_strategy: fallback\n",
        "  labels: [x]\n",
        "  x: {\n",
        "-\n",
        "  - q\n",
        "  name:\n",
        "\u{e9}: 1\n",
    ]);
    prop::collection::vec(line, 0..14).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_registry_reader_never_panics_and_its_lines_lie_within_the_file(text in nearly_a_registry()) {
        let lines = u32::try_from(text.lines().count().max(1)).unwrap();
        for problem in parse_registry("f", &text).err().unwrap_or_default() {
            prop_assert!(problem.line >= 1 && problem.line <= lines, "{problem}\n{text}");
        }
    }
}
