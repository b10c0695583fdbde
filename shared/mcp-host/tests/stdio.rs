//! A stdio server as it should be: called, cancelled, timed, restarted, stopped.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/host.rs"]
mod host;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::{Host, code_of, json_of, run, text_of};
use serde_json::json;
use vance_mcp_host::{CALL_ID_META, HostEvent, HostState, Progress, TRACEPARENT_META};
use vance_shared::call::Outcome;
use vance_shared::tool::Replay;

#[test]
fn a_server_starts_lists_its_tools_takes_calls_and_ends_without_a_trace() {
    run(async {
        let host = Host::of_fake(&[]);
        assert_eq!(host.handle.state(), HostState::Starting);
        assert_eq!(code_of(&host.call("echo", json!({})).await), "unavailable");
        host.up().await;
        let tools = host.handle.tools();
        let echo = tools.iter().find(|tool| tool.name.as_str() == "fake__echo").unwrap();
        assert_eq!(echo.labels, ["test", "mcp", "mcp:fake", "side-effect", "read-only"]);
        assert_eq!(echo.replay, Replay::Safe);
        assert!(matches!(&host.events()[..], [HostEvent::Up { tools, .. }] if tools.len() == 17));

        let request = host.request("echo", json!({"text": "a\nb"}));
        let (id, trace) = (request.call_id.to_string(), request.trace.to_string());
        let said = json_of(&host.handle.call(request).await);
        assert_eq!(said["args"], json!({"text": "a\nb"}));
        assert_eq!((&said["meta"][CALL_ID_META], &said["meta"][TRACEPARENT_META]), (&json!(id), &json!(trace)));

        assert_eq!(code_of(&host.call("nope", json!({})).await), "unknown_tool");
        assert_eq!(code_of(&host.call("echo", json!([])).await), "invalid_arguments");
        assert_eq!(code_of(&host.call("refuse", json!({})).await), "mcp_error");
        let failed = host.call("fail", json!({})).await;
        assert!(
            matches!(&failed, Outcome::Failed { error, result: Some(_) } if error.message == "no such thing"),
            "{failed:?}"
        );
        host.end().await;
    });
}

#[test]
fn a_child_sees_its_private_folder_the_project_and_the_allow_list() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        let said = json_of(&host.call("env", json!({})).await);
        let work = host.dir.path().canonicalize().unwrap().join("state/work/fake");
        assert_eq!((said["cwd"].as_str(), &said["files"]), (work.to_str(), &json!([])));
        let env = said["env"].as_object().unwrap();
        assert_eq!(env["VANCE_PROJECT_DIR"], json!(host.dir.path().join("the project")));
        assert!(!env.keys().any(|name| name.starts_with("CARGO") || name.starts_with("NEXTEST")), "{env:?}");
        let roots = json_of(&host.call("roots", json!({})).await);
        let uri = roots["roots"][0]["uri"].as_str().unwrap();
        assert!(uri.starts_with("file:///") && uri.ends_with("/the%20project"), "{uri}");
        host.end().await;
    });
}

#[test]
fn default_arguments_fill_declared_keys_and_bad_references_fail_at_once() {
    run(async {
        let host = Host::with(&[], |mut plan| {
            plan.default_args = json!({"text": "in ${env:HOME}", "undeclared": 1}).as_object().unwrap().clone();
            plan
        });
        host.up().await;
        let home = std::env::var("HOME").unwrap();
        assert_eq!(json_of(&host.call("echo", json!({})).await)["args"], json!({"text": format!("in {home}")}));
        assert_eq!(json_of(&host.call("echo", json!({"text": "own"})).await)["args"], json!({"text": "own"}));
        host.end().await;

        let host = Host::with(&[], |mut plan| {
            plan.default_args = json!({"text": "${env:NO_SUCH_NAME}"}).as_object().unwrap().clone();
            plan
        });
        host.until("failed", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
        let want = "environment variable NO_SUCH_NAME is not set (named by 'defaultArgs')";
        assert_eq!(host.events(), [HostEvent::Failed { reason: want.to_owned() }]);
        host.end().await;
    });
}

#[test]
fn a_program_that_is_not_there_fails_at_once_and_says_so() {
    run(async {
        let host = Host::with(&[], |mut plan| {
            plan.transport = host::stdio(&["no-such-server-here"]);
            plan
        });
        host.until("failed", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
        assert_eq!(host.handle.state().to_string(), "failed: program 'no-such-server-here' not found in PATH");
        host.end().await;
    });
}

#[test]
fn progress_is_forwarded_and_extends_the_deadline_up_to_its_cap() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        let heard: Arc<Mutex<Vec<Progress>>> = Arc::default();
        let with = |steps: &str, timeout, cap| {
            let ear = Arc::clone(&heard);
            let mut request = host.request("steps", json!({"text": steps}));
            request.timeout = Duration::from_millis(timeout);
            request.cap = Duration::from_millis(cap);
            request.progress = Some(Arc::new(move |progress| ear.lock().unwrap().push(progress)));
            request
        };
        // 1.2 s of work in steps of 0.3 s.
        assert_eq!(text_of(&host.handle.call(with("4", 1_000, 60_000)).await), "done");
        let last = Progress { fraction: Some(1.0), message: Some("step 4".into()) };
        let reports = heard.lock().unwrap().clone();
        assert_eq!((reports.len(), reports.last()), (4, Some(&last)));
        assert_eq!(code_of(&host.handle.call(with("40", 1_000, 1_500)).await), "timeout");
        assert_eq!(code_of(&host.handle.call(with("1", 100, 60_000)).await), "timeout");
        host.until("both cancels", |host| host.ledger().matches("cancelled ").count() == 2).await;
        host.end().await;
    });
}

#[test]
fn a_cancel_reaches_the_server_and_a_dropped_call_is_one() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        let request = host.request("wait", json!({}));
        let cancel = request.cancel.clone();
        let call = tokio::spawn({
            let handle = host.handle.clone();
            async move { handle.call(request).await }
        });
        host.until("the call to begin", |host| host.count("call wait") == 1).await;
        cancel.cancel();
        assert!(matches!(call.await.unwrap(), Outcome::Cancelled { .. }));
        host.until("the cancel", |host| host.ledger().matches("cancelled ").count() == 1).await;

        let request = host.request("wait", json!({}));
        let call = tokio::spawn({
            let handle = host.handle.clone();
            async move { handle.call(request).await }
        });
        host.until("the second call to begin", |host| host.count("call wait") == 2).await;
        call.abort();
        host.until("the second cancel", |host| host.ledger().matches("cancelled ").count() == 2).await;

        let request = host.request("wait", json!({}));
        request.cancel.cancel();
        assert!(matches!(host.handle.call(request).await, Outcome::Cancelled { .. }));
        assert_eq!(host.count("call wait"), 2, "a cancel before the start starts nothing");
        host.end().await;
    });
}

#[test]
fn many_calls_at_once_get_their_own_answers() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        let calls: Vec<_> = (0..200)
            .map(|n| {
                let (handle, request) = (host.handle.clone(), host.request("echo", json!({"text": n.to_string()})));
                tokio::spawn(async move { handle.call(request).await })
            })
            .collect();
        for (n, call) in calls.into_iter().enumerate() {
            assert_eq!(json_of(&call.await.unwrap())["args"]["text"], n.to_string());
        }
        host.end().await;
    });
}

#[test]
fn a_changed_tool_list_is_read_again_once_however_often_it_is_announced() {
    run(async {
        let host = Host::of_fake(&[]);
        host.up().await;
        let flooded = host.call("flood", json!({"text": "5000"})).await;
        assert_eq!(text_of(&flooded), "flooded");
        host.until("the new tool", |host| host.tool_names().contains(&"fake__late".to_owned())).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(host.count("list") <= 6, "{} lists", host.count("list"));
        let changes = host.events().iter().filter(|event| matches!(event, HostEvent::ToolsChanged { .. })).count();
        assert_eq!(changes, 1);
        assert_eq!(code_of(&host.call("late", json!({})).await), "mcp_error", "it is routed");
        host.end().await;
    });
}

#[test]
fn the_newer_protocol_has_subscriptions_and_questions_in_the_middle_of_a_call() {
    run(async {
        let host = Host::of_fake(&["modern"]);
        host.up().await;
        assert_eq!(host.handle.protocol().as_deref(), Some("2026-07-28"));
        let meta = json_of(&host.call("echo", json!({})).await)["meta"].clone();
        assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "vancetope");
        let roots = json_of(&host.call("roots", json!({})).await);
        assert_eq!(roots["roots"][0]["name"], "the project");
        assert_eq!(host.count("state s1"), 1);
        assert_eq!(json_of(&host.call("ask", json!({})).await), json!({"action": "decline"}), "there is nobody to ask");
        let sampling = host.call("ask", json!({"text": "model"})).await;
        assert_eq!(code_of(&sampling), "input_required");
        assert!(format!("{sampling:?}").contains("sampling is off"), "{sampling:?}");
        host.until("a subscription", |host| host.count("listen") == 1).await;
        text_of(&host.call("flood", json!({"text": "2000"})).await);
        host.until("the new tool", |host| host.tool_names().contains(&"fake__late".to_owned())).await;
        host.end().await;
    });
}

#[test]
fn a_slow_server_of_the_newer_kind_is_known_by_its_late_answer() {
    run(async {
        let host = Host::of_fake(&["modern", "slow=11"]);
        host.until("a refusal", |host| !host.events().is_empty()).await;
        host.up().await;
        assert_eq!((host.handle.protocol().as_deref(), host.pids().len()), (Some("2026-07-28"), 2));
        host.end().await;
    });
}
