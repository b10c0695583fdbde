//! Where a fetched document leads.

use super::*;
use crate::launch::Transport;

/// A pack whose document is fetched, and the same once it is known where that leads.
fn led(more: &str, base: Option<&str>, hosts: &[&str]) -> LaunchPlan {
    let text = format!(
        r#"{{"name": "api", "type": "rest_api", "parameters": {{"specUrl": "https://docs.example/api.json"{more}}}}}"#
    );
    let mut plan = plan(&text);
    if let Transport::Rest(rest) = &mut plan.transport {
        rest.document_base = base.map(str::to_owned);
        rest.document_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    }
    plan
}

#[test]
fn where_a_fetched_document_leads_is_a_question_of_its_own() {
    let mut gate = Gate::new();
    let asked = |gate: &Gate, plan: LaunchPlan| match gate.judge(plan, &[]) {
        Verdict::Ask(question) => question,
        other => panic!("expected a question, got {other:?}"),
    };
    let trusts = |gate: &Gate, plan: LaunchPlan| matches!(gate.judge(plan, &[]), Verdict::Trusted(_));
    let (alone, further) = (led("", None, &[]), led("", Some("https://api.example/v1"), &["https://up.example"]));
    let (_, entry) = asked(&gate, alone.clone()).answered(Answer::Always, "2026-03-01").unwrap();
    gate.book.allow(&project(), &entry.unwrap());
    assert!(
        trusts(&gate, alone.clone()) && !trusts(&gate, further.clone()),
        "a yes to the pack is none to its document"
    );
    let question = asked(&gate, further.clone());
    assert!(question.is_about_document());
    assert_eq!(
        question.text(),
        "Project tool pack 'api' from /Users/me/src/repo/.vancetope/foot-tools/chrome.json
  wants to reach: https://api.example/v1 (spec: https://docs.example/api.json)
  leads to:     https://api.example/v1 (says its document, not the pack)
  leads to:     https://up.example (says its document, not the pack)
Load it? [1] once  [2] always for this project  [3] no, only what the pack names ›"
    );
    let reason = question.reason(Unasked::Nobody(Nobody::NO_TERMINAL), "/h");
    assert!(reason.contains("https://up.example") && reason.contains("`allowedHosts` or `baseUrl`"), "{reason}");
    assert!(!reason.contains("trust allow"), "{reason}");
    let (launch, entry) = question.answered(Answer::Always, "2026-03-02").unwrap();
    gate.book.allow(&project(), &entry.unwrap());
    assert_eq!(Book::parse("f", gate.book.to_yaml()).unwrap(), gate.book);
    for (what, plan, trusted) in [
        ("the pack by itself", alone.clone(), true),
        ("the same document", further.clone(), true),
        ("another base", led("", Some("https://evil.example/v1"), &["https://up.example"]), false),
        (
            "one host more",
            led("", Some("https://api.example/v1"), &["https://evil.example", "https://up.example"]),
            false,
        ),
        (
            "another pack",
            led(r#", "timeoutSeconds": 5"#, Some("https://api.example/v1"), &["https://up.example"]),
            false,
        ),
    ] {
        assert_eq!(trusts(&gate, plan), trusted, "{what}");
    }
    let question = asked(&gate, led("", Some("https://evil.example/v1"), &["https://up.example"]));
    let changed: Vec<&str> = question.text().lines().skip(4).take(3).collect();
    assert_eq!(
        changed,
        [
            "  changed since you allowed it on 2026-03-02:",
            "    - document leads to https://api.example/v1",
            "    + document leads to https://evil.example/v1",
        ]
    );
    // What was said once holds for the run, and for exactly that.
    let mut other = Gate::new();
    other.once.add(&launch);
    assert!(trusts(&other, further) && !trusts(&other, alone));
    assert!(!trusts(&other, led("", Some("https://evil.example/v1"), &[])));
    // An entry of earlier, without a document, is one to the pack alone.
    let reach = "https://docs.example/ (spec: https://docs.example/api.json)";
    let old = Gate::with(&format!(
        "trustedPacks:
  /Users/me/src/repo:
    - {{name: api, reach: '{reach}'}}
"
    ));
    assert!(trusts(&old, led("", None, &[])));
    assert!(!trusts(&old, led("", Some("https://api.example/v1"), &[])));
}
