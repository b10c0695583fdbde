//! Both cores on a virtual clock: cuts, silent lines, kills of either side, in any order that a seed gives.
#![allow(missing_docs, clippy::expect_used, clippy::panic)]

use serde_json::Map;
use vance_brain_core::spec::{StepSpec, TaskSpec};
use vance_brain_core::task::State;
use vance_shared::names::ToolName;
use vance_tests::summary;
use vance_tests::world::{Troubles, World};

/// Runs of one test; `SEEDS=1000` runs more, `SEED=17` just that one.
fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("SEED") {
        Some(seed) => vec![seed],
        None => (0..number("SEEDS").unwrap_or(300)).collect(),
    }
}

fn task(id: &str, depends_on: &[&str], steps: &[&str]) -> TaskSpec {
    let steps = steps
        .iter()
        .map(|tool| StepSpec {
            call: ToolName::parse(tool).expect("a name"),
            with: Map::new(),
            r#as: None,
            timeout: None,
        })
        .collect();
    let depends_on = depends_on.iter().map(|d| (*d).to_owned()).collect();
    TaskSpec { id: id.to_owned(), depends_on, steps, ..TaskSpec::default() }
}

fn tree() -> Vec<TaskSpec> {
    let mut tasks = vec![
        task("a", &[], &["server_tool", "unsafe_tool", "safe_tool"]),
        task("b", &["a"], &["unsafe_tool", "unsafe_tool"]),
        task("c", &["a", "b"], &["server_tool"]),
    ];
    for n in 0..12 {
        tasks.push(task(&format!("u{n}"), &[], &["unsafe_tool", "safe_tool", "unsafe_tool"]));
    }
    tasks
}

#[test]
fn whatever_is_cut_or_killed_nothing_is_lost_and_nothing_unsafe_runs_twice() {
    for seed in seeds() {
        summary::count("runs of both cores on a virtual clock, each by a seed", 1);
        let feet = 1 + usize::try_from(seed % 3).expect("small");
        let mut world = World::new(seed, feet, Troubles { until_ms: 90_000, every_ms: 2_500 });
        world.submit(tree());
        let done = world.run(900_000);
        let story = || format!("SEED={seed}\n{}", world.story());
        assert!(done, "not all tasks ended\n{}", story());
        for spec in tree() {
            let task = world.task(&spec.id).expect("it was submitted");
            assert_eq!(task.state, State::Completed, "{}: {:?}\n{}", spec.id, task.error, story());
            for (n, step) in spec.steps.iter().enumerate() {
                let name = format!("{}.{n}", spec.id);
                let ran = world.ledger.iter().filter(|l| **l == name).count();
                let asked = world.brain.retried.get(&name).copied().unwrap_or(0);
                assert!(ran >= 1, "{name} never ran\n{}", story());
                if step.call.as_str() != "safe_tool" {
                    assert!(ran <= 1 + asked, "{name} ran {ran} times, a person asked for {asked}\n{}", story());
                }
                let applied = world.brain.applied.get(&(task.head.task_id.clone(), n)).copied();
                assert_eq!(applied, Some(1), "{name}: its result counted {applied:?} times\n{}", story());
            }
        }
    }
}

#[test]
fn without_trouble_everything_runs_exactly_once() {
    let mut world = World::new(1, 2, Troubles { until_ms: 0, every_ms: 1 });
    world.submit(tree());
    assert!(world.run(120_000), "{}", world.story());
    let steps: usize = tree().iter().map(|t| t.steps.len()).sum();
    assert_eq!(world.ledger.len(), steps);
    assert!(world.brain.retried.is_empty());
}

#[test]
fn a_cut_alone_never_makes_an_outcome_unknown() {
    for seed in seeds().into_iter().take(50) {
        let mut world = World::new(seed, 1, Troubles { until_ms: 0, every_ms: 1 });
        world.submit(tree());
        for _ in 0..20 {
            let at = world.now + 700;
            world.run(at);
            world.cut_all();
        }
        assert!(world.run(600_000), "SEED={seed}\n{}", world.story());
        assert!(world.brain.retried.is_empty(), "SEED={seed}\n{}", world.story());
    }
}
