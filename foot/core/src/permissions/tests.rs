#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

const FILE: &str = "/home/u/.vancetope/permissions.yaml";

fn places() -> Places {
    Places {
        user_home: Some("/home/u".into()),
        home: "/srv/vance".into(),
        working_dir: "/code/repo".into(),
        aliases: vec![("/w".into(), "/code".into())],
        protected: vec!["/data/keys".into()],
    }
}

fn policy(text: &str) -> Policy {
    let rules = parse_permissions(FILE, text).unwrap();
    let roots = rules.root_paths(&places());
    Policy::new(rules, places(), roots)
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask(_) => "ask",
        Verdict::Deny(_) => "deny",
    }
}

fn sentence(verdict: Verdict) -> String {
    match verdict {
        Verdict::Allow => String::new(),
        Verdict::Ask(reason) | Verdict::Deny(reason) => reason.sentence(),
    }
}

fn exec<'a>(what: Program<'a>) -> Action<'a> {
    Action::Exec { what, cwd: Path::new("/code/repo"), env: &[] }
}

fn argv(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

#[test]
fn without_rules_reads_inside_the_roots_go_and_all_else_does_not() {
    let policy = policy("");
    for (action, want) in [
        (Action::Read(Path::new("/code/repo/a.txt")), "allow"),
        (Action::Read(Path::new("/code/repo")), "allow"),
        (Action::Read(Path::new("/code/repository/a.txt")), "deny"),
        (Action::Read(Path::new("/etc/passwd")), "deny"),
        (Action::Write(Path::new("/code/repo/a.txt")), "ask"),
        (Action::Write(Path::new("/etc/passwd")), "deny"),
        (exec(Program::Argv(&argv("git status"))), "ask"),
        (exec(Program::Command("git status")), "ask"),
        (Action::Use, "allow"),
    ] {
        assert_eq!(word(&policy.decide("t", action)), want, "{action:?}");
    }
}

#[test]
fn deny_beats_ask_beats_allow_whatever_the_order() {
    let text = "
allow: [{write: '**'}, {exec: [git]}, {tool: quiet}]
ask: [{write: 'src/**'}, {exec: [git, push]}]
deny: [{write: 'src/gen'}, {read: '**/*.pem'}, {exec: [git, push, --force]}, {tool: loud}]
roots: ['.', '~/papers']
";
    let policy = policy(text);
    for (path, writing, want) in [
        ("/code/repo/a.txt", true, "allow"),
        ("/code/repo/src/a.rs", true, "ask"),
        ("/code/repo/src/gen/a.rs", true, "deny"),
        ("/code/repo/src/gen/a.rs", false, "allow"),
        ("/code/repo/k/x.pem", false, "deny"),
        ("/home/u/papers/x.pem", false, "deny"),
        ("/home/u/papers/x.txt", false, "allow"),
        ("/home/u/other.txt", false, "deny"),
    ] {
        let action = if writing { Action::Write(Path::new(path)) } else { Action::Read(Path::new(path)) };
        assert_eq!(word(&policy.decide("t", action)), want, "{path} writing={writing}");
    }
    for (line, want) in [
        ("git status", "allow"),
        ("git push", "ask"),
        ("git push --force", "deny"),
        ("/usr/bin/git push --force", "deny"),
        ("sudo git push --force", "deny"),
        ("/tmp/evil/git status", "ask"),
        ("gitk", "ask"),
    ] {
        assert_eq!(word(&policy.decide("t", exec(Program::Argv(&argv(line))))), want, "argv {line}");
        assert_eq!(word(&policy.decide("t", exec(Program::Command(line)))), want, "command {line}");
    }
    assert_eq!(word(&policy.decide("loud", Action::Use)), "deny");
    assert_eq!(word(&policy.decide("loud", Action::Read(Path::new("/code/repo/a")))), "deny");
    assert_eq!(word(&policy.decide("quiet", exec(Program::Argv(&argv("make"))))), "allow");
}

#[test]
fn shell_metacharacters_always_ask_unless_denied() {
    let policy = policy("allow: [{exec: [echo]}, {exec: [sh, -c]}, {tool: shell_execute}]\ndeny: [{exec: [rm]}]");
    for (line, want) in [
        ("echo hi", "allow"),
        ("echo hi; touch x", "ask"),
        ("echo $(id)", "ask"),
        ("echo hi > x", "ask"),
        ("echo hi; rm x", "deny"),
        ("echo $(rm x)", "deny"),
    ] {
        assert_eq!(word(&policy.decide("shell_execute", exec(Program::Command(line)))), want, "{line}");
    }
    let script = ["sh", "-c", "echo a; echo b"].map(str::to_owned);
    assert_eq!(word(&policy.decide("t", exec(Program::Argv(&script)))), "allow", "the rule names the shell itself");
    let script = ["sh", "-c", "echo a; rm b"].map(str::to_owned);
    assert_eq!(word(&policy.decide("t", exec(Program::Argv(&script)))), "deny");
}

#[test]
fn a_relative_program_is_that_file_and_no_other() {
    let policy = policy("allow: [{exec: [./build.sh]}]");
    let words = argv("./build.sh x");
    let at = |cwd: &'static str| Action::Exec { what: Program::Argv(&words), cwd: Path::new(cwd), env: &[] };
    assert_eq!(word(&policy.decide("t", at("/code/repo"))), "allow");
    assert_eq!(word(&policy.decide("t", at("/code/repo/vendor"))), "ask");
}

#[test]
fn a_variable_that_changes_what_runs_asks() {
    let policy = policy("allow: [{exec: [git]}]");
    let words = argv("git status");
    for (env, want) in [
        (&[("FOO", "1")][..], "allow"),
        (&[("FOO", "1"), ("LD_PRELOAD", "x")][..], "ask"),
        (&[("PATH", ".")][..], "ask"),
    ] {
        let action = Action::Exec { what: Program::Argv(&words), cwd: Path::new("/code/repo"), env };
        assert_eq!(word(&policy.decide("t", action)), want, "{env:?}");
    }
}

#[test]
fn no_rule_lifts_the_floor() {
    let policy = policy("allow: [{read: '**'}, {write: '**'}, {tool: t}, {exec: [cat]}]\nroots: ['/']");
    for path in [
        "/home/u/.ssh",
        "/home/u/.ssh/id_ed25519",
        "/home/u/.SSH/id_ed25519",
        "/home/u/.aws/credentials",
        "/home/u/.gnupg/x",
        "/home/u/.vancetope/permissions.yaml",
        "/srv/vance/brain/local.token",
        "/code/repo/.vancetope/config.yaml",
        "/w/repo/.vancetope/config.yaml",
        "/other/.vancetope/foot-tools/x.json",
        "/code/repo/.git/hooks/pre-commit",
        "/code/repo/.git/config",
        "/code/repo/a/b/.git/config",
        "/code/repo/.git/modules/x/hooks/post-checkout",
        "/code/repo/.Git/Config",
        "/data/keys/x",
    ] {
        for action in [Action::Read(Path::new(path)), Action::Write(Path::new(path))] {
            let verdict = policy.decide("t", action);
            assert!(sentence(verdict).contains("no rule can allow it"), "{action:?}");
        }
        let words = vec!["cat".to_owned(), path.to_owned()];
        assert_eq!(word(&policy.decide("t", exec(Program::Argv(&words)))), "deny", "cat {path}");
    }
    for line in
        ["cat ~/.ssh/id", "cat $HOME/.ssh/id", "cat \"${HOME}/.aws/credentials\"", "git config --file=.git/config x y"]
    {
        assert_eq!(word(&policy.decide("t", exec(Program::Command(line)))), "deny", "{line}");
    }
    for (path, writing) in [
        ("/code/repo/.git/HEAD", false),
        ("/code/repo/.gitignore", true),
        ("/home/u/.sshx/a", true),
        ("/code/repo/.git", false),
    ] {
        let action = if writing { Action::Write(Path::new(path)) } else { Action::Read(Path::new(path)) };
        assert_eq!(word(&policy.decide("t", action)), "allow", "{path}");
    }
    assert_eq!(
        word(&policy.decide("t", Action::Write(Path::new("/code/repo/sub/.git")))),
        "deny",
        "a .git file redirects git"
    );
}

#[test]
fn a_denied_folder_has_no_second_spelling() {
    let policy = {
        let rules = parse_permissions(FILE, "deny: [{read: '/w/repo/private/**'}]").unwrap();
        Policy::new(rules, places(), vec!["/code/repo".into(), "/w/repo".into()])
    };
    for path in ["/w/repo/private/x", "/code/repo/private/x"] {
        assert_eq!(word(&policy.decide("t", Action::Read(Path::new(path)))), "deny", "{path}");
    }
}

#[test]
fn a_refusal_says_what_to_add_where() {
    let policy = policy("ask: [{exec: [make]}]");
    for (action, wants) in [
        (
            Action::Write(Path::new("/code/repo/out/a.txt")),
            vec!["add `- {write: /code/repo/out/a.txt}` under `allow:` in", FILE],
        ),
        (Action::Write(Path::new("/code/repo/a[1] b.txt")), vec!["- {write: \"/code/repo/a[[]1[]] b.txt\"}"]),
        (exec(Program::Argv(&argv("git status"))), vec!["add `- {exec: [git, status]}` under `allow:` in", FILE]),
        (exec(Program::Argv(&argv("make all"))), vec!["permissions.yaml:1 (`ask`)", "take that rule out"]),
        (exec(Program::Command("a; b")), vec!["metacharacters always ask", "a terminal", "a script file", "`argv`"]),
        (Action::Read(Path::new("/etc/passwd")), vec!["'/code/repo'", "add its folder under `roots:` in", FILE]),
        (exec(Program::Argv(&argv("./a.sh x"))), vec!["add `- {exec: [/code/repo/a.sh, x]}`"]),
        (exec(Program::Argv(&argv("npm run a b c d e"))), vec!["add `- {exec: [npm, run]}`"]),
        (exec(Program::Argv(&argv("sh -c a b c d e f"))), vec!["answer it at a terminal", "far more"]),
    ] {
        let text = sentence(policy.decide("t", action));
        for want in wants {
            assert!(text.contains(want), "{text}");
        }
        assert!(!text.contains("[sh, \"-c\"]") && !text.contains("[sh, -c]"), "every script: {text}");
    }
}

#[test]
fn the_suggested_line_allows_what_was_refused() {
    for path in
        ["/code/repo/out/a.txt", "/code/repo/a[1] b.txt", "/code/repo/{x}*?.txt", "/code/repo/yes", "/elsewhere/x"]
    {
        let text = format!("roots: [/code/repo, /elsewhere]\nallow:\n- {{write: {}}}", paths::exact_glob(path));
        assert_eq!(word(&policy(&text).decide("t", Action::Write(Path::new(path)))), "allow", "{text}");
    }
}

#[test]
fn a_question_shows_everything_and_offers_the_narrowest_rule() {
    let policy = policy("ask: [{exec: [make]}, {write: 'src/**'}]");
    let long = format!("/code/repo/{}", "x".repeat(1000));
    let words = argv("./tool.sh --all");
    let env = [("A", "b c"), ("PATH", ".")];
    let in_sub = Action::Exec { what: Program::Argv(&words), cwd: Path::new("/code/repo/sub"), env: &[] };
    let with_env = Action::Exec { what: Program::Argv(&words), cwd: Path::new("/code/repo"), env: &env };
    for (action, lines, rule) in [
        (
            Action::Write(Path::new("/code/repo/a b.txt")),
            "wants to write: '/code/repo/a b.txt'",
            Some("{write: \"/code/repo/a b.txt\"}"),
        ),
        (
            Action::Write(Path::new("/code/repo/src/a")),
            "wants to write: /code/repo/src/a; asked by: FILE:1 (`ask`)",
            None,
        ),
        (Action::Write(Path::new(&long)), &format!("wants to write: {long}"), Some(&format!("{{write: {long}}}"))),
        (exec(Program::Command("git log")), "wants to run: sh -c 'git log'", Some("{exec: [git, log]}")),
        (exec(Program::Command("a | b")), "wants to run: sh -c 'a | b'", None),
        (exec(Program::Argv(&argv("make x"))), "wants to run: make x; asked by: FILE:1 (`ask`)", None),
        (
            in_sub,
            "wants to run: ./tool.sh --all; in folder: /code/repo/sub",
            Some("{exec: [/code/repo/sub/tool.sh, \"--all\"]}"),
        ),
        (with_env, "wants to run: ./tool.sh --all; with env: A='b c'; with env: PATH=.   (!) changes what runs", None),
    ] {
        let Verdict::Ask(reason) = policy.decide("t", action) else { panic!("{action:?}") };
        let said: Vec<String> = reason.lines.iter().map(|(label, text)| format!("{label}: {text}")).collect();
        assert_eq!(said.join("; ").replace(FILE, "FILE"), lines, "{action:?}");
        assert_eq!(reason.rule.as_deref(), rule, "{action:?}");
        if let Some(rule) = rule {
            let after = self::policy(&format!("allow:\n- {rule}"));
            assert_eq!(word(&after.decide("t", action)), "allow", "{rule}");
        }
    }
}

#[test]
fn a_project_can_only_tighten() {
    let global = parse_permissions(FILE, "allow: [{write: '**'}]").unwrap();
    let project = parse_permissions(
        ".vancetope/permissions.yaml",
        "allow: [{exec: [sh]}]\nask: [{write: 'x'}]\ndeny: [{read: 'y'}]\nroots: [/]",
    )
    .unwrap();
    let (rules, warnings) = global.tightened_by(project);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains(".vancetope/permissions.yaml:1"), "{warnings:?}");
    let policy = Policy::new(rules, places(), vec!["/code/repo".into()]);
    assert_eq!(word(&policy.decide("t", exec(Program::Argv(&argv("sh"))))), "ask");
    assert_eq!(word(&policy.decide("t", Action::Write(Path::new("/code/repo/x")))), "ask");
    assert_eq!(word(&policy.decide("t", Action::Write(Path::new("/code/repo/z")))), "allow");
    assert_eq!(word(&policy.decide("t", Action::Read(Path::new("/code/repo/y")))), "deny");
}

#[test]
fn every_mistake_in_the_file_is_reported_with_its_line() {
    let text = "allows: []\nallow:\n- {exec: git status}\n- {raed: x}\n- {read: '[z'}\n- {tool: 'a b'}\n- just text\n- {read: a, write: b}\n- {exec: []}\nroots: x\n";
    let problems = parse_permissions("p.yaml", text).unwrap_err();
    let lines: Vec<u32> = problems.iter().map(|p| p.line).collect();
    assert_eq!(lines, [1, 3, 4, 5, 6, 7, 8, 9, 10], "{problems:#?}");
    assert!(problems[0].message.contains("did you mean `allow`"), "{}", problems[0]);
    assert!(problems[1].message.contains("[git, status]"), "{}", problems[1]);
    assert!(problems[2].message.contains("did you mean `read`"), "{}", problems[2]);
}

#[test]
fn globs_start_where_they_say() {
    for (glob, path, want) in [
        ("src/*.rs", "/code/repo/src/a.rs", true),
        ("./src/*.rs", "/code/repo/src/a.rs", true),
        ("src/*.rs", "/code/repo/src/a/b.rs", false),
        ("src/**", "/code/repo/src/a/b.rs", true),
        ("src/", "/code/repo/src/a/b.rs", true),
        (".", "/code/repo/a/b", true),
        ("~/x/*", "/home/u/x/a", true),
        ("/code/**/*.md", "/code/repo/a/b.md", true),
        ("**/*.md", "/anywhere/b.md", true),
        ("*", "/code/repo/a/b", false),
    ] {
        let glob_parsed = PathGlob::parse(glob).unwrap();
        assert_eq!(glob_parsed.covers(&[path.into()], &places(), false), want, "{glob} {path}");
    }
    assert!(PathGlob::parse("../x").is_err());
}

#[test]
fn a_path_is_normal_without_touching_the_disk() {
    for (text, want) in [
        ("a/./b/../c", "/code/repo/a/c"),
        ("../../../..", "/"),
        ("~/x", "/home/u/x"),
        ("~", "/home/u"),
        ("~x", "/code/repo/~x"),
        ("/a//b/", "/a/b"),
    ] {
        assert_eq!(places().absolute(text), Path::new(want), "{text}");
    }
}
