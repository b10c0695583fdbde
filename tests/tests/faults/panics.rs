//! Actors of a Brain fall on purpose, in this process and on a real store: whoever fell comes back, its neighbours stay, and what
//! waited is not lost. The simulation makes them fall under load.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use vance_brain::api::queries::{TaskFilter, tasks};
use vance_brain::api::submit::{Submission, submit};
use vance_brain::builtin::{BuiltinConfig, Builtins};
use vance_brain::home::Loaded;
use vance_brain::hub::Brain;
use vance_brain::recovery::live_trees;
use vance_brain::serve::{Supervisors, hub, tree};
use vance_brain::store::Store;
use vance_brain_core::config::BrainConfig;
use vance_shared::trace::TraceContext;
use vance_supervise::SupervisorRef;
use vance_tests::wait::{PATIENCE, until};

pub(super) const OWNER: &str = "local";

pub(super) struct Inside {
    pub(super) brain: Brain,
    supervisors: Supervisors,
    pub(super) root: SupervisorRef,
}

impl Inside {
    pub(super) async fn start(dir: &std::path::Path) -> anyhow::Result<Self> {
        // The store of the Brain before it is free when the last of its threads is gone.
        let (store, seat) = until("the store", || async { Ok(Store::open(dir).ok()) }).await?;
        let builtins = Builtins::new(BuiltinConfig::default());
        let (brain, supervisors) = hub(store, BrainConfig::default(), builtins, &Loaded::default());
        let root = SupervisorRef::start(tree(&brain, supervisors.clone(), Some(seat)));
        timeout(PATIENCE, brain.store.ready()).await?;
        Ok(Self { brain, supervisors, root })
    }

    /// Submits until it is taken: whoever fell may be on the way back.
    async fn submit(&self, id: &str, steps: &Value) -> anyhow::Result<()> {
        self.submit_tree(id, &json!({"tasks": [{"id": id, "steps": steps}]})).await
    }

    pub(super) async fn submit_tree(&self, key: &str, tree: &Value) -> anyhow::Result<()> {
        until("it is taken", || async {
            let submission = Submission {
                owner: OWNER.to_owned(),
                file: "tree.json".to_owned(),
                text: tree.to_string(),
                idempotency_key: Some(key.to_owned()),
                client: None,
                session: None,
                trace: TraceContext::root(),
            };
            Ok(submit(&self.brain, submission).await.ok())
        })
        .await?;
        Ok(())
    }

    pub(super) async fn until_state(&self, id: &str, state: &str) -> anyhow::Result<Value> {
        until(&format!("{id} {state}"), || async {
            let Ok(body) = tasks(&self.brain, OWNER, TaskFilter::default()).await else { return Ok(None) };
            let body = body.value();
            let found = body["tasks"].as_array().into_iter().flatten().find(|t| t["id"] == id && t["state"] == state);
            Ok(found.cloned())
        })
        .await
    }

    /// Makes one of a kind of actor fall, and waits until it is back; a task comes back as another actor, and it shows in the task itself.
    pub(super) async fn strike(&self, kind: &str) -> anyhow::Result<()> {
        let struck = until("somebody to strike", || async {
            let Some((supervisor, name)) = self.find(kind).await else { return Ok(None) };
            Ok(supervisor.strike(&name).await.then_some((supervisor, name)))
        });
        let (supervisor, name) = struck.await?;
        if kind == "task" {
            return Ok(());
        }
        until(&format!("{kind} is back"), || async {
            let children = supervisor.children().await;
            let back = children.iter().find(|c| c.name == name && c.restarts > 0);
            Ok(back.filter(|c| c.last_exit.as_deref().is_some_and(|why| why.contains("panicked"))).map(drop))
        })
        .await
    }

    /// The supervisor of a kind of actor, and the name of one of them.
    async fn find(&self, kind: &str) -> Option<(SupervisorRef, String)> {
        match kind {
            "session" => {
                let name = self.brain.directory.loaded().first()?.actor.name().to_owned();
                Some((self.supervisors.sessions.clone(), name))
            }
            // That of the one that runs: those of tasks that wait are gone.
            "task" => {
                let tasks = self.supervisors.tasks.children().await;
                Some((self.supervisors.tasks.clone(), tasks.first()?.name.clone()))
            }
            "scheduler" => Some((self.supervisors.work.clone(), kind.to_owned())),
            _ => Some((self.root.clone(), kind.to_owned())),
        }
    }
}

pub(super) fn here(story: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    vance_supervise::run(2, story)?
}

#[test]
fn each_kind_of_the_brains_actors_may_panic_and_what_waits_is_not_lost() -> anyhow::Result<()> {
    here(async {
        let dir = tempfile::tempdir()?;
        let inside = Inside::start(dir.path()).await?;
        inside.submit("waits", &json!([{"call": "now"}, {"call": "git_status"}])).await?;
        let before = inside.until_state("waits", "blocked").await?;
        for kind in ["store_gate", "registry", "session", "scheduler"] {
            inside.strike(kind).await?;
            // Neighbours of the same supervisor did not even notice.
            if kind == "store_gate" {
                let others = inside.root.children().await;
                assert!(others.iter().all(|c| c.name == "store_gate" || c.restarts == 0), "{others:?}");
            }
            let id = format!("after_{kind}");
            inside.submit(&id, &json!([{"call": "now"}])).await?;
            inside.until_state(&id, "completed").await?;
            let waits = inside.until_state("waits", "blocked").await?;
            assert_eq!(waits, before, "after a panic of {kind}");
        }
        inside.root.shutdown().await;
        Ok(())
    })
}

#[test]
fn a_brain_whose_part_cannot_stay_up_ends_and_its_next_start_goes_on_from_the_store() -> anyhow::Result<()> {
    here(async {
        let dir = tempfile::tempdir()?;
        let inside = Inside::start(dir.path()).await?;
        inside.submit("waits", &json!([{"call": "now"}, {"call": "git_status"}])).await?;
        let before = inside.until_state("waits", "blocked").await?;
        let root = inside.root.clone();
        let ended = root.ended();
        tokio::pin!(ended);
        let reason = loop {
            tokio::select! {
                reason = &mut ended => break reason,
                () = sleep(Duration::from_millis(1)) => inside.root.strike("registry").await,
            };
        };
        assert!(reason.to_string().contains("registry"), "{reason}");
        drop(inside);
        let next = Inside::start(dir.path()).await?;
        assert_eq!(next.until_state("waits", "blocked").await?, before);
        next.submit("after", &json!([{"call": "now"}])).await?;
        next.until_state("after", "completed").await?;
        next.root.shutdown().await;
        Ok(())
    })
}

#[test]
fn recovery_that_runs_twice_is_the_same_as_once() -> anyhow::Result<()> {
    here(async {
        let dir = tempfile::tempdir()?;
        let inside = Inside::start(dir.path()).await?;
        for n in 0..5 {
            inside.submit(&format!("waits{n}"), &json!([{"call": "now"}, {"call": "git_status"}])).await?;
            inside.until_state(&format!("waits{n}"), "blocked").await?;
        }
        let read = async || -> anyhow::Result<String> { Ok(format!("{:?}", live_trees(inside.brain.clone()).await?)) };
        let (seq, once) = (inside.brain.store.last_seq(), read().await?);
        assert_eq!(once, read().await?);
        // The board is made anew from the store, again and again: nothing runs, nothing is written.
        for _ in 0..3 {
            until("the scheduler falls", || async {
                Ok(inside.supervisors.work.strike("scheduler").await.then_some(()))
            })
            .await?;
            inside.until_state("waits4", "blocked").await?;
        }
        inside.submit("after", &json!([{"call": "now"}])).await?;
        inside.until_state("after", "completed").await?;
        let later = inside.brain.store.after(seq, 100).await?;
        assert!(later.iter().all(|event| !once.contains(event.stream.trim_start_matches("task:"))), "{later:?}");
        inside.root.shutdown().await;
        Ok(())
    })
}
