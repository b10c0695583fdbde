#![allow(clippy::unwrap_used)]
use std::os::unix::fs::symlink;

use vance_shared::launch::Origin;
use vance_shared::pack::{PackBody, parse_pack};

use super::*;

struct Desk {
    dir: tempfile::TempDir,
    trust: Trust,
}

fn desk() -> Desk {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("repo")).unwrap();
    let trust = Trust::new(&dir.path().join("home"), &dir.path().join("repo"));
    Desk { dir, trust }
}

fn plan(parameters: &str) -> LaunchPlan {
    let text = format!(r#"{{"name":"a","type":"mcp_server","parameters":{parameters}}}"#);
    let parsed = parse_pack("/r/.vancetope/foot-tools/a.json", &text, Origin::Project);
    match parsed.pack.map(|pack| pack.body) {
        Some(PackBody::Launch(plan)) => plan,
        other => panic!("{other:?}: {:?}", parsed.problems),
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Trusted(_) => "trusted",
        Verdict::Ask(_) => "ask",
        Verdict::Denied(_) => "denied",
    }
}

/// Judges, says "always", and writes it down.
fn allow(trust: &Trust, plan: &LaunchPlan) {
    let (Verdict::Ask(question), _) = trust.judge(plan.clone(), &Once::default(), None) else { panic!("does not ask") };
    let (_, entry) = question.answered(gate::Answer::Always, &today()).unwrap();
    assert_eq!(remember(trust, plan, &entry.unwrap()).unwrap(), Counts::Yes);
}

fn remember(trust: &Trust, plan: &LaunchPlan, entry: &Entry) -> Result<Counts, Distrust> {
    let digest = entry.digest.unwrap();
    trust.remember(&Yes { event: Event::AllowedAlways, plan, digest, entry: Some(entry) }, Event::NotAsked)
}

fn judged(trust: &Trust, plan: &LaunchPlan) -> &'static str {
    word(&trust.judge(plan.clone(), &Once::default(), None).0)
}

#[test]
fn every_change_asks_again() {
    let Desk { dir, trust } = desk();
    let repo = dir.path().join("repo");
    std::fs::write(repo.join("x.js"), "1").unwrap();
    let stdio = |rest: &str| plan(&format!(r#"{{"transport":"stdio","command":{rest}}}"#));
    let http = |rest: &str| plan(&format!(r#"{{"transport":"http",{rest}}}"#));
    let script = format!(r#"["node","{}"]"#, repo.join("x.js").display());
    let pairs = [
        ("an argument", stdio(r#"["npx","-y","a@1"]"#), stdio(r#"["npx","-y","a@2"]"#)),
        ("where words end", stdio(r#"["sh","-c","a b"]"#), stdio(r#"["sh","-c","a","b"]"#)),
        ("a variable", stdio(r#"["npx","a"],"env":{"A":"1"}"#), stdio(r#"["npx","a"],"env":{"A":"2"}"#)),
        ("one more variable", stdio(r#"["npx","a"]"#), stdio(r#"["npx","a"],"env":{"NODE_OPTIONS":"-r x"}"#)),
        ("a secret", stdio(r#"["npx","a"],"env":{"A":"${env:A}"}"#), stdio(r#"["npx","a"],"env":{"A":"${env:B}"}"#)),
        ("the folder", stdio(r#"["npx","a"]"#), stdio(r#"["npx","a"],"cwd":".""#)),
        ("the address", http(r#""url":"https://a.example/mcp""#), http(r#""url":"https://a.example.evil/mcp""#)),
        (
            "a header",
            http(r#""url":"https://a.example","headers":{"X":"1"}"#),
            http(r#""url":"https://a.example","headers":{"X":"${env:A}"}"#),
        ),
        (
            "what is added to calls",
            stdio(r#"["npx","a"],"defaultArgs":{"a":1}"#),
            stdio(r#"["npx","a"],"defaultArgs":{"a":2}"#),
        ),
    ];
    for (what, before, after) in pairs {
        allow(&trust, &before);
        assert_eq!((judged(&trust, &before), judged(&trust, &after)), ("trusted", "ask"), "{what}");
    }
    let script = stdio(&script);
    allow(&trust, &script);
    assert_eq!(judged(&trust, &script), "trusted");
    std::fs::write(repo.join("x.js"), "2").unwrap();
    assert_eq!(judged(&trust, &script), "ask", "the script");
    // A name that no file had becomes one.
    let named = stdio(r#"["node","y.js"],"cwd":".""#);
    allow(&trust, &named);
    std::fs::write(repo.join("y.js"), "").unwrap();
    assert_eq!(judged(&trust, &named), "ask", "a script that was not there");
}

#[test]
fn two_spellings_of_a_project_are_one_and_another_project_is_another() {
    let Desk { dir, trust } = desk();
    let pack = plan(r#"{"transport":"stdio","command":["npx","a"]}"#);
    allow(&trust, &pack);
    symlink(dir.path().join("repo"), dir.path().join("link")).unwrap();
    std::fs::create_dir(dir.path().join("other")).unwrap();
    for (spelling, want) in [("repo", "trusted"), ("repo/../repo/.", "trusted"), ("link", "trusted"), ("other", "ask")]
    {
        let trust = Trust::new(&dir.path().join("home"), &dir.path().join(spelling));
        assert_eq!(judged(&trust, &pack), want, "{spelling}");
    }
}

#[test]
fn a_link_or_a_pipe_of_the_project_that_the_command_names_is_refused() {
    let Desk { dir, trust } = desk();
    let repo = dir.path().join("repo");
    std::fs::write(dir.path().join("elsewhere.js"), "").unwrap();
    symlink(dir.path().join("elsewhere.js"), repo.join("x.js")).unwrap();
    nix::unistd::mkfifo(&repo.join("pipe.js"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for file in ["x.js", "pipe.js"] {
        let pack = plan(&format!(r#"{{"transport":"stdio","command":["node","./{file}"],"cwd":"."}}"#));
        assert_eq!(judged(&trust, &pack), "denied", "{file}");
    }
}

#[test]
fn a_home_or_a_store_that_came_with_the_project_vouches_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let repo = dir.path().join("repo");
    let home = repo.join(".vancetope");
    std::fs::create_dir_all(&home).unwrap();
    let key = repo.canonicalize().unwrap();
    let text = format!("trustedPacks:\n  {}:\n    - name: a\n      reach: npx a\n", key.display());
    std::fs::write(home.join(STORE), &text).unwrap();
    let pack = plan(r#"{"transport":"stdio","command":["npx","a"]}"#);
    let other = dir.path().join("home");
    for (home, why) in [(&home, true), (&other, false)] {
        let trust = Trust::new(home, &repo);
        let (verdict, reading) = trust.judge(pack.clone(), &Once::default(), None);
        assert_eq!((word(&verdict), reading.distrust.is_some()), ("ask", why), "{}", home.display());
        let Verdict::Ask(question) = verdict else { panic!("asked") };
        let (_, entry) = question.answered(gate::Answer::Always, &today()).unwrap();
        assert_eq!(remember(&trust, &pack, &entry.unwrap()).is_err(), why);
        trust.record(Event::Refused, Some(&pack), None, None);
        assert_eq!(trust.log().file().exists(), !why, "nothing is written into the project");
    }
    assert_eq!(std::fs::read_to_string(home.join(STORE)).unwrap(), text);
    let pretenders = Trust::new(&other, &repo).pretenders();
    assert!(pretenders.len() == 1 && pretenders[0].ends_with("repo/.vancetope/trusted-packs.yaml"), "{pretenders:?}");
}

#[test]
fn whose_a_home_is() {
    let dir = tempfile::tempdir().unwrap();
    let repo = dir.path().join("repo");
    std::fs::create_dir_all(repo.join("inside")).unwrap();
    symlink(repo.join("inside"), dir.path().join("link")).unwrap();
    for (home, want) in [("home", true), ("repository", true), ("repo", false), ("repo/inside", false), ("link", false)]
    {
        assert_eq!(is_own_home(&dir.path().join(home), &repo), want, "{home}");
    }
    // The `.vancetope` of a clone came with it, also for a folder further down and for one elsewhere.
    for folder in ["tree/.git", "tree/sub", "tree/a/.vancetope/x", "plain/.vancetope", "plain/sub"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    symlink(dir.path().join("tree/a/.vancetope"), dir.path().join("linked")).unwrap();
    for (home, here, want, odd) in [
        ("tree/.vancetope", "tree/sub", false, true),
        ("tree/a/.vancetope", "tree/sub", false, true),
        ("tree/a/.vancetope/x", "plain", false, false),
        ("linked", "plain", false, false),
        ("tree/home", "plain", true, false),
        ("tree/home", "tree/sub", true, true),
        ("plain/.vancetope", "plain", false, false),
        // Unpacked, or made for a service.
        ("plain/.vancetope", "plain/sub", true, true),
        ("plain/.vancetope", "repo", true, false),
    ] {
        std::fs::create_dir_all(dir.path().join(home)).unwrap();
        let (home, here) = (dir.path().join(home), dir.path().join(here));
        let got = (is_own_home(&home, &here), may_be_a_projects(&home, &here));
        assert_eq!(got, (want, odd), "{} in {}", home.display(), here.display());
    }
    let user = std::env::home_dir().unwrap();
    assert!(is_own_home(&user.join(".vancetope"), &user.join("code")));
    assert!(is_own_home(&user.join(".vancetope"), &user), "one's own home directory is no repository");
}
