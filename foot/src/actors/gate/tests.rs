#![allow(clippy::unwrap_used)]
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use vance_shared::launch::Origin;
use vance_shared::pack::{PackBody, parse_pack};
use vance_supervise::{ChildSpec, SupervisorRef, SupervisorSpec};

use super::*;

/// Answers from a list, and remembers what it was asked.
#[derive(Default)]
struct Script {
    replies: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<String>>,
    now: Mutex<u32>,
    remarks: Mutex<Vec<String>>,
    /// Done while the question stands there.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

struct Person(Arc<Script>);

impl Consent for Person {
    fn consent(&self, prompt: Prompt) -> BoxFuture<'static, Reply> {
        let script = Arc::clone(&self.0);
        Box::pin(async move {
            let at_once = {
                let mut now = script.now.lock().unwrap();
                *now += 1;
                *now
            };
            assert_eq!(at_once, 1, "one question at a time");
            script.asked.lock().unwrap().push(prompt.about);
            tokio::time::sleep(Duration::from_millis(5)).await;
            *script.now.lock().unwrap() -= 1;
            if let Some(meanwhile) = script.meanwhile.lock().unwrap().take() {
                meanwhile();
            }
            let reply = script.replies.lock().unwrap().pop_front();
            match reply {
                Some(reply) => reply,
                None => std::future::pending().await,
            }
        })
    }

    fn remark(&self, text: &str) {
        self.0.remarks.lock().unwrap().push(text.to_owned());
    }
}

struct Desk {
    dir: tempfile::TempDir,
    gate: Gate,
    root: SupervisorRef,
    script: Arc<Script>,
}

fn desk(replies: Option<&[&str]>) -> Desk {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("repo")).unwrap();
    let script = Arc::new(Script::default());
    let reply = |word: &&str| match *word {
        "silence" => Reply::Silence,
        "broken" => Reply::Broken,
        line => Reply::Line(line.to_owned()),
    };
    script.replies.lock().unwrap().extend(replies.unwrap_or_default().iter().map(reply));
    let me = ActorRef::new("gate");
    let shared = Shared {
        me: me.clone(),
        trust: Arc::new(Trust::new(&dir.path().join("home"), &dir.path().join("repo"))),
        person: replies.map(|_| Arc::new(Person(Arc::clone(&script))) as Arc<dyn Consent>),
        nobody: Nobody::NO_TERMINAL,
        own_packs: "/home/me/.vancetope/foot-tools".to_owned(),
    };
    let root = SupervisorSpec::new("root").child(ChildSpec::actor(me.clone(), move |_| TrustGate::new(shared.clone())));
    let root = SupervisorRef::start(root);
    Desk { dir, gate: Gate(me), root, script }
}

fn plan(name: &str, origin: Origin) -> LaunchPlan {
    let text = format!(
        r#"{{"name":"{name}","type":"mcp_server","parameters":{{"transport":"stdio","command":["npx","{name}"]}}}}"#
    );
    match parse_pack("/r/x.json", &text, origin).pack.map(|pack| pack.body) {
        Some(PackBody::Launch(plan)) => plan,
        other => panic!("{other:?}"),
    }
}

fn story(tell: impl AsyncFnOnce()) {
    vance_supervise::run(1, async {
        tokio::time::timeout(Duration::from_secs(60), tell()).await.expect("the story hangs");
    })
    .unwrap();
}

impl Desk {
    async fn up(&self) {
        while !self.gate.0.is_up() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// `yes`, or the reason.
    async fn decides(&self, name: &str) -> String {
        match self.gate.decide(plan(name, Origin::Project), None).await {
            Ok(launch) => {
                assert_eq!(launch.plan().pack.as_str(), name);
                "yes".to_owned()
            }
            Err(reason) => reason,
        }
    }

    fn asked(&self) -> usize {
        self.script.asked.lock().unwrap().len()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("home/audit/trust.jsonl")).unwrap_or_default()
    }
}

#[test]
fn once_holds_for_this_run_always_for_the_next_and_no_is_not_remembered() {
    story(async || {
        let desk = desk(Some(&["1", "2", "3", "y", "broken"]));
        desk.up().await;
        for (name, want, asked) in [
            ("a", true, 1),
            ("a", true, 1),
            ("b", true, 2),
            ("b", true, 2),
            ("c", false, 3),
            ("c", false, 4),
            ("c", false, 5),
        ] {
            assert_eq!((desk.decides(name).await == "yes", desk.asked()), (want, asked), "{name}");
        }
        let store = std::fs::read_to_string(desk.dir.path().join("home/trusted-packs.yaml")).unwrap();
        assert!(store.contains("name: b") && !store.contains("name: a") && !store.contains("name: c"), "{store}");
        desk.gate.forget(PackName::parse("a").unwrap()).await;
        desk.script.replies.lock().unwrap().push_back(Reply::Line("3".to_owned()));
        assert_eq!(desk.decides("a").await, "you said no; /tools reload asks again");
        while desk.log().lines().count() < 6 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        vance_shared::gate::audit::read(&desk.log()).unwrap();
        desk.root.shutdown().await;
    });
}

#[test]
fn a_denial_that_is_given_while_the_question_stands_there_counts() {
    story(async || {
        for answer in ["1", "2"] {
            let desk = desk(Some(&[answer, "1"]));
            desk.up().await;
            let trust = Trust::new(&desk.dir.path().join("home"), &desk.dir.path().join("repo"));
            let deny = move || {
                let (pack, project) = (PackName::parse("a").unwrap(), trust.project().unwrap());
                trust.store().edit(|book| book.deny(project, &pack, "2026-03-01")).unwrap();
            };
            *desk.script.meanwhile.lock().unwrap() = Some(Box::new(deny));
            let said = desk.decides("a").await;
            assert!(said.starts_with("it was denied for this project while the question stood there"), "{said}");
            assert!(desk.decides("a").await.starts_with("you denied it for this project"));
            assert!(desk.script.remarks.lock().unwrap()[0].contains("was denied"), "the person is told");
            let store = std::fs::read_to_string(desk.dir.path().join("home/trusted-packs.yaml")).unwrap();
            assert!(store.contains("deniedPacks") && !store.contains("trustedPacks"), "{store}");
            assert!(desk.log().contains("refused") && !desk.log().contains("allowed"), "{}", desk.log());
            assert_eq!(desk.decides("b").await, "yes");
            desk.root.shutdown().await;
        }
    });
}

#[test]
fn packs_that_load_together_are_asked_about_one_after_the_other_and_ones_own_never() {
    story(async || {
        let desk = desk(Some(&["1", "3", "1"]));
        desk.up().await;
        let own = desk.gate.decide(plan("own", Origin::Global), None);
        let (own, a, b, c) = tokio::join!(own, desk.decides("a"), desk.decides("b"), desk.decides("c"));
        assert!(own.is_ok());
        let yes = [a, b, c].iter().filter(|said| *said == "yes").count();
        assert_eq!((yes, desk.asked()), (2, 3));
        desk.root.shutdown().await;
    });
}

#[test]
fn after_two_silences_in_a_row_the_rest_of_a_load_is_not_asked() {
    story(async || {
        let desk = desk(Some(&["silence", "1", "silence", "silence", "1"]));
        desk.up().await;
        for (name, want) in [
            ("a", "nobody answered in time"),
            ("b", "yes"),
            ("c", "nobody answered in time"),
            ("d", "nobody answered in time"),
            ("e", "not asked, as nobody answered the ones before"),
        ] {
            let said = desk.decides(name).await;
            assert!(said.starts_with(want), "{name}: {said}");
        }
        assert_eq!(desk.asked(), 4);
        desk.gate.begin_load().await;
        assert_eq!(desk.decides("e").await, "yes", "the next load asks again");
        desk.root.shutdown().await;
    });
}

#[test]
fn without_a_terminal_nobody_is_asked_and_the_way_out_is_said() {
    story(async || {
        let desk = desk(None);
        desk.up().await;
        let said = desk.decides("a").await;
        for part in [
            "no terminal to ask on",
            "vancetope trust allow --pack a --digest sha256:",
            "/home/me/.vancetope/foot-tools",
        ] {
            assert!(said.contains(part), "{said}");
        }
        desk.root.shutdown().await;
    });
}

#[test]
fn a_gate_that_falls_says_no_and_a_consent_that_cannot_be_written_holds_for_this_run() {
    story(async || {
        let desk = desk(Some(&[]));
        desk.up().await;
        let waits = async {
            while desk.asked() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(desk.root.strike("gate").await);
        };
        let (said, ()) = tokio::join!(desk.decides("a"), waits);
        assert!(said.starts_with("the trust gate ") && said.contains("counts as no"), "{said}");
        *desk.script.now.lock().unwrap() = 0;
        desk.up().await;
        let home = desk.dir.path().join("home");
        std::fs::create_dir_all(home.join("trusted-packs.yaml")).unwrap();
        desk.script.replies.lock().unwrap().push_back(Reply::Line("2".to_owned()));
        assert_eq!(desk.decides("a").await, "yes");
        let remarks = desk.script.remarks.lock().unwrap().clone();
        assert!(
            remarks.len() == 1 && remarks[0].contains("pack 'a' is allowed once; it was not remembered"),
            "{remarks:?}"
        );
        assert_eq!(desk.decides("a").await, "yes", "this run remembers");
        desk.root.shutdown().await;
    });
}
