//! Stdio servers that do what servers do on bad days. Their ledger tells what happened.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/host.rs"]
mod host;

use std::time::{Duration, Instant};

use host::{Host, code_of, json_of, lives, run, text_of};
use serde_json::json;
use vance_mcp_host::{HostEvent, HostState, MAX_LINE_BYTES};
use vance_shared::call::Outcome;

#[test]
fn garbage_duplicates_and_forged_answers_on_stdout_are_skipped() {
    run(async {
        for words in [&["garbage"][..], &["floats"], &["garbage", "floats"]] {
            let host = Host::of_fake(words);
            host.up().await;
            for n in 0..5 {
                assert_eq!(
                    json_of(&host.call("echo", json!({"text": n.to_string()})).await)["args"]["text"],
                    n.to_string()
                );
            }
            assert_eq!(host.count("call echo"), 5);
            host.end().await;
        }
    });
}

#[test]
fn a_crash_in_a_call_leaves_it_unknown_and_the_server_comes_back() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        let outcome = host.call("die", json!({})).await;
        assert!(
            matches!(&outcome, Outcome::Unknown { reason } if reason.contains("lost during the call")),
            "{outcome:?}"
        );
        host.until("a second start", |host| host.pids().len() == 2).await;
        host.up().await;
        text_of(&host.call("echo", json!({})).await);
        let down = host.events().into_iter().find_map(|event| match event {
            HostEvent::Down { reason } => Some(reason),
            _ => None,
        });
        assert_eq!(down.unwrap(), "it ended with exit code 7");
        host.end().await;
    });
}

#[test]
fn a_host_that_panics_ends_its_server_and_starts_it_anew() {
    run(async {
        let host = Host::of_fake(&[]);
        for life in 1..=3 {
            host.until("another start", |host| host.pids().len() == life).await;
            host.up().await;
            text_of(&host.call("echo", json!({})).await);
            let pids = host.pids();
            // A call runs that will not end by itself: nobody can know what became of it.
            let strikes = async {
                host.until("it runs", |host| host.count("call wait") == life).await;
                assert!(host.supervisor.strike("mcp:fake").await);
            };
            let (outcome, ()) = tokio::join!(host.call("wait", json!({})), strikes);
            assert!(matches!(&outcome, Outcome::Unknown { .. }), "{outcome:?}");
            host.until("its processes are gone", |_| !pids.iter().any(|pid| lives(*pid))).await;
        }
        host.end().await;
    });
}

#[test]
fn an_answer_that_was_written_before_the_end_counts() {
    run(async {
        let host = Host::of_fake(&[]);
        for _ in 0..2 {
            host.up().await;
            assert_eq!(text_of(&host.call("last", json!({})).await), "last words");
            host.until("its end", |host| host.handle.state() != HostState::Up || host.pids().len() > 1).await;
        }
        host.end().await;
    });
}

#[test]
fn a_crash_loop_fails_with_the_last_words_and_starts_no_more() {
    run(async {
        let host = Host::of_fake(&["crash"]);
        host.until("failed", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
        assert_eq!(
            host.handle.state().to_string(),
            "failed: it ended with exit code 3; its last words: cannot find my config"
        );
        assert_eq!(host.pids().len(), 3, "the first start and two restarts");
        let outcome = host.call("echo", json!({})).await;
        assert_eq!(code_of(&outcome), "unavailable");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(host.pids().len(), 3);
        host.end().await;
    });
}

#[test]
fn a_server_that_ignores_everything_is_gone_after_a_stop_with_its_grandchildren() {
    run(async {
        let host = Host::of_fake(&["stubborn"]);
        host.up().await;
        let pids = host.pids();
        assert_eq!(pids.len(), 2);
        let begin = Instant::now();
        host.end().await;
        assert!(begin.elapsed() < Duration::from_secs(7), "{:?}", begin.elapsed());
        assert!(!pids.iter().any(|pid| lives(*pid)));
    });
}

#[test]
fn a_list_of_fifty_pages_is_read_and_one_that_loops_is_stopped() {
    run(async {
        let host = Host::of_fake(&["pages=50"]);
        host.up().await;
        assert_eq!(host.handle.tools().len(), 50);
        host.end().await;

        let host = Host::of_fake(&["loop"]);
        host.up().await;
        assert_eq!(host.tool_names(), ["fake__t0", "fake__t1", "fake__t2"]);
        let [HostEvent::Up { warnings, .. }] = &host.events()[..] else { panic!("{:?}", host.events()) };
        assert_eq!(warnings, &["its tools/list loops: cursor '1' came twice; reading stopped"]);
        host.end().await;
    });
}

#[test]
fn half_a_character_costs_a_character() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        assert_eq!(text_of(&host.call("half", json!({})).await), "caf\u{fffd}");
        host.end().await;
    });
}

#[test]
fn sloppy_json_costs_what_is_wrong_with_it_and_no_result() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        let structured = |outcome: &Outcome| match outcome {
            Outcome::Done(result) => result.structured.as_ref().map(|raw| raw.value()),
            other => panic!("{other:?}"),
        };
        let lone = host.call("lone", json!({})).await;
        assert_eq!((text_of(&lone), structured(&lone)), ("a \u{fffd} b".to_owned(), Some(json!({"t": "\u{fffd}"}))));
        let nan = host.call("nan", json!({})).await;
        assert_eq!(structured(&nan), Some(json!({"n": null, "s": "NaN"})));
        // Its deadline is a minute away.
        let begin = Instant::now();
        let Outcome::Failed { error, .. } = host.call("torn", json!({})).await else { panic!() };
        assert!(error.message.starts_with("the server's answer is no JSON: "), "{}", error.message);
        assert!(begin.elapsed() < Duration::from_secs(30), "it waited for {:?}", begin.elapsed());
        host.end().await;
    });
}

#[test]
fn a_line_of_20_mib_fails_its_call_and_no_other() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        let outcome = host.call("long", json!({})).await;
        let Outcome::Failed { error, .. } = &outcome else { panic!("{outcome:?}") };
        assert_eq!(error.code, "result_too_large");
        assert!(error.message.contains(&MAX_LINE_BYTES.to_string()), "{}", error.message);
        text_of(&host.call("echo", json!({})).await);
        assert_eq!(host.pids().len(), 1, "it was not started again");
        host.end().await;
    });
}

#[test]
fn a_slow_starter_comes_up_late_and_one_that_never_starts_is_given_up() {
    run(async {
        let host = Host::of_fake(&["slow=3"]);
        assert_eq!(host.handle.state(), HostState::Starting);
        host.up().await;
        host.end().await;

        let host = Host::with(&["slow=600"], |mut plan| {
            plan.init_timeout = Duration::from_millis(300);
            plan
        });
        host.until("failed", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
        assert_eq!(host.handle.state().to_string(), "failed: no answer to the handshake within 0.3 s");
        host.end().await;
    });
}

#[test]
fn a_stop_does_not_wait_for_a_server_that_never_starts() {
    run(async {
        let host = Host::of_fake(&["slow=600"]);
        host.until("a start", |host| host.pids().len() == 1).await;
        let begin = Instant::now();
        host.end().await;
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    });
}

#[test]
fn a_server_that_chokes_on_discover_is_greeted_the_old_way() {
    run(async {
        let host = Host::of_fake(&["no-discover"]);
        host.up().await;
        assert_eq!(host.count("initialize 2025-11-25"), 1);
        host.end().await;
        // It answers nothing to the question: with little time, the next start does not ask it.
        let host = Host::with(&["deaf-discover"], |mut plan| {
            plan.init_timeout = Duration::from_secs(2);
            plan
        });
        host.up().await;
        assert_eq!(host.pids().len(), 2);
        host.end().await;
    });
}

#[test]
fn a_server_that_is_slower_than_the_probe_is_greeted_both_ways() {
    run(async {
        // It answers the probe when the old handshake is already under way.
        let host = Host::of_fake(&["slow=11"]);
        host.up().await;
        assert_eq!(host.pids().len(), 1, "one start is enough");
        host.end().await;
    });
}
