#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

#[test]
fn an_empty_file_is_all_defaults() {
    for text in ["", "# nothing\n", "{}"] {
        let config = parse_config("f", text).unwrap();
        assert_eq!(config, BrainConfig::default());
        assert_eq!((config.defaults.max_parallel_tasks, config.http_fetch.allow_private), (16, false));
    }
}

#[test]
fn every_field_is_read() {
    let text = "listen: 0.0.0.0:1\nstore: 'sqlite:'\nallowed_hosts: [a.example, 'b:8080']\nallow_insecure: true\notlp: http://c:4318\n\
        defaults:\n  grace: 5s\n  call_timeout: 2m\n  max_parallel_tasks: 3\nproviders:\n  main: {kind: openai, base_url: 'https://x/v1', api_key: '${env:K}'}\n\
        web_search: {kind: searxng, base_url: 'http://localhost:8888'}\nhttp_fetch: {allow_private: true}\n";
    let config = parse_config("f", text).unwrap();
    assert_eq!(config.listen.as_deref(), Some("0.0.0.0:1"));
    assert_eq!(config.store.as_deref(), Some("sqlite:"));
    assert_eq!(config.allowed_hosts, ["a.example", "b:8080"]);
    assert!(config.allow_insecure && config.http_fetch.allow_private);
    assert_eq!(config.otlp.as_deref(), Some("http://c:4318"));
    assert_eq!((config.defaults.grace.as_secs(), config.defaults.call_timeout.as_secs()), (5, 120));
    assert_eq!(config.providers["main"].kind, "openai");
    assert_eq!(config.web_search.unwrap().kind, WebSearchKind::Searxng);
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, want) in [
        ("[]", vec!["1: the configuration is a list, expected a mapping (name: value)"]),
        ("listn: x", vec!["1: unknown field `listn` in the configuration, did you mean `listen`?"]),
        (
            "listen: 9990\nstore: postgres://x\nallowed_hosts: [a b]\nallow_insecure: 1\notlp: localhost\n",
            vec![
                "1: `listen` is the number 9990, expected text (in quotes)",
                "2: `store`: this release keeps events in SQLite, in the Brain's data folder; expected sqlite:",
                "3: `allowed_hosts` holds 'a b', expected a host name, with its port if it has one",
                "4: `allow_insecure` is the number 1, expected true or false",
                "5: `otlp`: 'localhost' is no address, expected one such as https://example.com",
            ],
        ),
        ("listen: localhost", vec!["1: `listen`: 'localhost' is no address, expected one such as 127.0.0.1:9990"]),
        (
            "listen: brain.lan:80",
            vec!["1: `listen`: 'brain.lan:80' is no address, expected one such as 127.0.0.1:9990"],
        ),
        (
            "listen: 9990\nlisten: '127.0.0.1:1'\nlistn: x\n",
            vec![
                "1: `listen` is the number 9990, expected text (in quotes)",
                "2: the key `listen` is there twice, first on line 1; remove one",
                "3: unknown field `listn` in the configuration, did you mean `listen`?",
            ],
        ),
        ("listen: '::1:80'", vec!["1: `listen`: '::1:80' is no address, expected one such as 127.0.0.1:9990"]),
        (
            "defaults:\n  grace: x\n  call_timeout: 0s\n  max_parallel_tasks: 0\n  y: 1\n",
            vec![
                "2: `grace`: 'x' is not a duration, expected one such as 10m, 1s or 500ms",
                "3: `call_timeout` is zero, expected a duration such as 10m",
                "4: `max_parallel_tasks` is the number 0, expected a whole number from 1 to 10000",
                "5: unknown field `y` in `defaults`, expected one of: grace, call_timeout, answer_within, max_parallel_tasks",
            ],
        ),
        (
            "web_search: {kind: searxng}",
            vec!["1: `web_search` has no `base_url`, expected the instance's address such as http://localhost:8080"],
        ),
        (
            "web_search: {kind: brave}",
            vec!["1: `web_search` has no `api_key`, expected a key such as ${env:BRAVE_API_KEY}"],
        ),
        ("web_search: {kind: google}", vec!["1: `kind` is 'google', expected one of: searxng, brave"]),
        (
            "web_search: {kind: brave, api_key: 'x${env:A}'}",
            vec!["1: `api_key`: expected the key itself or ${env:NAME} alone"],
        ),
        (
            "web_search: {kind: searxng, base_url: 'http://u:p@h'}",
            vec!["1: `base_url`: user names and passwords have no place in an address"],
        ),
        (
            "providers: {a: {base_url: 'http://x'}}",
            vec!["1: the provider `a` has no `kind`, expected a kind such as openai"],
        ),
    ] {
        let got: Vec<String> =
            parse_config("f", text).unwrap_err().iter().map(|p| format!("{}: {}", p.line, p.message)).collect();
        assert_eq!(got, want, "{text}");
    }
}

#[test]
fn a_credential_is_resolved_late_and_never_shown() {
    let config = parse_config("f", "web_search: {kind: brave, api_key: hunter2}").unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    let key = config.web_search.unwrap().api_key.unwrap();
    let unset = |name: &str| Err(format!("the secret {name} is not set"));
    assert_eq!(key.resolve(|_| None, unset).as_deref(), Ok("hunter2"));
    let key = Secret::parse("${env:BRAVE}").unwrap();
    assert_eq!(key.resolve(|name| (name == "BRAVE").then(|| "v".to_owned()), unset).as_deref(), Ok("v"));
    for empty in [None, Some(String::new())] {
        assert_eq!(key.resolve(|_| empty.clone(), unset), Err("environment variable BRAVE is not set".to_owned()));
    }
    let key = Secret::parse("{{secret:BRAVE}}").unwrap();
    assert_eq!(
        (key.secret(), key.resolve(|_| None, unset)),
        (Some("BRAVE"), Err("the secret BRAVE is not set".to_owned()))
    );
    assert_eq!(key.resolve(|_| None, |name| Ok(format!("of {name}"))).as_deref(), Ok("of BRAVE"));
    for (bad, why) in [
        ("x{{secret:A}}", "{{secret:NAME}} alone"),
        ("{{secret:A}}{{secret:B}}", "{{secret:NAME}} alone"),
        ("{{secret:a b}}", "names the secret 'a b'"),
        ("{{secret:A", "without its end"),
        ("{{ secret:A }}", "write {{secret:A}} without any"),
    ] {
        let said = Secret::parse(bad).unwrap_err();
        assert!(said.contains(why), "{bad}: {said}");
    }
}
