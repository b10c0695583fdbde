//! Streamable HTTP servers, good and bad.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/host.rs"]
mod host;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use host::{Host, code_of, json_of, run};
use serde_json::json;
use vance_mcp_host::guard::{self, GuardedChild, Spawn};
use vance_mcp_host::{CALL_ID_META, HostEvent, HostState, TRACEPARENT_META};
use vance_shared::call::Outcome;
use vance_shared::launch::{Auth, LaunchPlan, Tls, Transport};

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn serve(dir: &Path, port: u16, words: &[&str]) -> GuardedChild {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake_http.py");
    let mut argv: Vec<String> =
        vec!["python3".into(), script.to_str().unwrap().into(), dir.join("ledger").to_str().unwrap().into()];
    argv.push(port.to_string());
    argv.extend(words.iter().map(|word| (*word).to_owned()));
    let env = vance_mcp_host::env::ambient();
    let server = guard::spawn(Spawn {
        argv,
        cwd: dir.to_owned(),
        env,
        stdin: false,
        guard_program: env!("CARGO_BIN_EXE_mcp-host-probe").into(),
        sandbox: None,
    })
    .await
    .unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server
}

fn plan(port: u16, headers: &[(&str, &str)]) -> LaunchPlan {
    let headers: BTreeMap<String, String> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    host::plan(Transport::Http {
        url: format!("http://127.0.0.1:{port}/mcp"),
        headers,
        auth: Auth::Constant,
        tls: Tls::default(),
    })
}

async fn host_of(words: &[&str], headers: &[(&str, &str)]) -> (Host, GuardedChild) {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let server = serve(dir.path(), port, words).await;
    let host = Host::start(plan(port, headers), dir);
    (host, server)
}

async fn finish(host: Host, mut server: GuardedChild) {
    host.supervisor.shutdown().await;
    assert_eq!(host.handle.state(), HostState::Stopped);
    server.kill(Duration::ZERO).await.unwrap();
}

#[test]
fn a_server_behind_http_takes_calls_with_their_metadata_and_its_session_is_closed() {
    run(async {
        let home = std::env::var("HOME").unwrap();
        let (host, server) = host_of(&[&format!("need={home}")], &[("X-Key", "${env:HOME}")]).await;
        host.up().await;
        let request = host.request("echo", json!({"a": 1}));
        let (id, trace) = (request.call_id.to_string(), request.trace.to_string());
        let said = json_of(&host.handle.call(request).await);
        assert_eq!(
            (&said["args"], &said["meta"][CALL_ID_META], &said["meta"][TRACEPARENT_META]),
            (&json!({"a": 1}), &json!(id), &json!(trace))
        );
        host.supervisor.shutdown().await;
        assert_eq!(host.count("delete"), 1);
        finish(host, server).await;
    });
}

#[test]
fn a_server_that_wants_a_login_says_which_command_gives_one() {
    run(async {
        for (word, want) in [
            ("401", "failed: needs a login: run `vancetope login fake`"),
            ("quiet401", "failed: the server wants authorization (HTTP 401)"),
            ("need=key", "failed: the server refuses these credentials (HTTP 403)"),
        ] {
            let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
            let server = serve(dir.path(), port, &[word]).await;
            let host = Host::start(host::plan(Transport::http(format!("http://127.0.0.1:{port}/mcp"))), dir);
            host.until("failed", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
            assert_eq!(host.handle.state().to_string(), want);
            finish(host, server).await;
        }
    });
}

#[test]
fn user_and_password_are_encoded_after_their_variables_are_known() {
    run(async {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let home = std::env::var("HOME").unwrap();
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("me:{home}"));
        let server = serve(dir.path(), port, &[&format!("basic=Basic {pair}")]).await;
        let mut plan = plan(port, &[]);
        let Transport::Http { auth, .. } = &mut plan.transport else { panic!() };
        *auth = Auth::Basic { user: "me".into(), password: "${env:HOME}".into() };
        let host = Host::start(plan, dir);
        host.up().await;
        finish(host, server).await;
    });
}

/// A certificate for 127.0.0.1 and its key; it signs itself.
fn certificate(dir: &Path, name: &str) -> (String, String) {
    let file = |end: &str| dir.join(format!("{name}.{end}")).to_str().unwrap().to_owned();
    let (cert, key) = (file("pem"), file("key"));
    let words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    #[allow(clippy::disallowed_methods)] // a tool of the test, not of the product
    let made = std::process::Command::new("openssl")
        .args(words)
        .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &cert])
        .output()
        .unwrap();
    assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    (cert, key)
}

#[test]
fn certificates_are_verified_against_the_packs_own_and_ours_is_shown() {
    run(async {
        let files = tempfile::tempdir().unwrap();
        let (cert, key) = certificate(files.path(), "server");
        let (own, own_key) = certificate(files.path(), "client");
        let words = [format!("tls={cert},{key}"), format!("client={own}")];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let trust = || Tls { ca_file: Some(cert.clone()), ..Tls::default() };
        let both = || Tls { client_cert_file: Some(own.clone()), client_key_file: Some(own_key.clone()), ..trust() };
        for (tls, want) in [
            (Tls::default(), Err("invalid peer certificate")),
            (trust(), Err("CertificateRequired")),
            (both(), Ok(())),
            (Tls { ca_file: None, insecure: true, ..both() }, Ok(())),
            (Tls { ca_file: Some(key.clone()), ..Tls::default() }, Err("has no certificates in PEM")),
        ] {
            let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
            let server = serve(dir.path(), port, &words).await;
            let url = format!("https://127.0.0.1:{port}/mcp");
            let plan = host::plan(Transport::Http { url, headers: BTreeMap::new(), auth: Auth::Constant, tls });
            let host = Host::start(plan, dir);
            match want {
                Ok(()) => host.up().await,
                Err(why) => {
                    host.until("failed", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
                    let state = host.handle.state().to_string();
                    assert!(state.contains(why), "{state}");
                }
            }
            finish(host, server).await;
        }
    });
}

#[test]
fn a_forgotten_session_is_made_anew_and_the_tools_are_read_again() {
    run(async {
        let (host, server) = host_of(&[], &[]).await;
        host.up().await;
        assert!(!host.tool_names().contains(&"fake__new".to_owned()));
        let forgot = host.call("forget", json!({})).await;
        assert_eq!(forgot.word(), "done");
        let refused = host.call("echo", json!({})).await;
        assert_eq!(code_of(&refused), "unavailable", "a 404 has run nothing: {refused:?}");
        host.until("the new tool", |host| host.tool_names().contains(&"fake__new".to_owned())).await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        finish(host, server).await;
    });
}

#[test]
fn a_server_that_dies_in_a_call_leaves_it_unknown_and_is_found_again() {
    run(async {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let server = serve(dir.path(), port, &[]).await;
        let mut plan = plan(port, &[]);
        plan.restart.max_restarts = 1_000;
        let host = Host::start(plan, dir);
        host.up().await;
        let outcome = host.call("die", json!({})).await;
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
        host.until("down", |host| host.handle.state() != HostState::Up).await;
        drop(server);
        let server = serve(host.dir.path(), port, &[]).await;
        host.up().await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        finish(host, server).await;
    });
}

#[test]
fn an_outage_of_a_remote_server_is_waited_out_however_many_tries_it_takes() {
    run(async {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut server = serve(dir.path(), port, &[]).await;
        let host = Host::start(plan(port, &[]), dir);
        host.up().await;
        server.kill(Duration::ZERO).await.unwrap();
        let refused = host.call("echo", json!({})).await;
        assert_eq!(code_of(&refused), "unavailable", "{refused:?}");
        // Two restarts are all that a server has which crashes.
        host.until("five tries", |host| host.events().len() > 5).await;
        let failed = host.events().into_iter().find(|event| matches!(event, HostEvent::Failed { .. }));
        assert_eq!(failed, None, "it is only away");
        assert!(matches!(host.handle.state(), HostState::Restarting { .. }), "{}", host.handle.state());
        let server = serve(host.dir.path(), port, &[]).await;
        host.up().await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        finish(host, server).await;
    });
}

#[test]
fn a_call_that_ends_badly_ends_alone() {
    run(async {
        let (host, server) = host_of(&[], &[]).await;
        host.up().await;
        let others = async {
            host.until("the neighbour", |host| host.count("call hold") == 1).await;
            for (tool, word) in [("plain", "unknown"), ("cut", "unknown"), ("lost", "failed"), ("broken", "unknown")] {
                let outcome = host.call(tool, json!({})).await;
                assert_eq!(outcome.word(), word, "{tool}: {outcome:?}");
            }
            let lost = host.call("lost", json!({})).await;
            assert_eq!(code_of(&lost), "mcp_error", "not one to be sent again: {lost:?}");
            assert_eq!(host.call("echo", json!({})).await.word(), "done");
            std::fs::write(host.dir.path().join("go"), "").unwrap();
        };
        let (neighbour, ()) = tokio::join!(host.call("hold", json!({})), others);
        assert_eq!(neighbour.word(), "done", "{neighbour:?}");
        assert_eq!((host.count("initialize"), host.handle.state()), (1, HostState::Up), "one session all the time");
        finish(host, server).await;
    });
}

#[test]
fn sloppy_json_in_an_event_costs_what_is_wrong_with_it() {
    run(async {
        let (host, server) = host_of(&[], &[]).await;
        host.up().await;
        let Outcome::Done(result) = host.call("lone", json!({})).await else { panic!() };
        assert_eq!(result.joined_text(), "a \u{fffd} b");
        assert_eq!(result.structured.map(|raw| raw.value()), Some(json!({"n": null})));
        finish(host, server).await;
    });
}

#[test]
fn a_call_goes_on_while_its_server_gets_a_new_session() {
    run(async {
        let (host, server) = host_of(&[], &[]).await;
        host.up().await;
        let others = async {
            host.until("the neighbour", |host| host.count("call hold") == 1).await;
            assert_eq!(host.call("forget", json!({})).await.word(), "done");
            assert_eq!(code_of(&host.call("echo", json!({})).await), "unavailable");
            host.until("a new session", |host| host.count("initialize") == 2).await;
            host.up().await;
            assert_eq!(host.call("echo", json!({})).await.word(), "done");
            std::fs::write(host.dir.path().join("go"), "").unwrap();
        };
        let (neighbour, ()) = tokio::join!(host.call("hold", json!({})), others);
        assert_eq!(neighbour.word(), "done", "{neighbour:?}");
        finish(host, server).await;
    });
}

#[test]
fn an_event_stream_without_an_end_expires_and_the_cancel_goes_upstream() {
    run(async {
        let (host, server) = host_of(&[], &[]).await;
        host.up().await;
        let mut request = host.request("wait", json!({}));
        request.timeout = Duration::from_millis(500);
        assert_eq!(code_of(&host.handle.call(request).await), "timeout");
        host.until("the cancel", |host| host.count("cancelled") == 1).await;
        let request = host.request("wait", json!({}));
        let cancel = request.cancel.clone();
        let (outcome, ()) = tokio::join!(host.handle.call(request), async {
            host.until("the call", |host| host.count("call wait") == 2).await;
            cancel.cancel();
        });
        assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
        host.until("the second cancel", |host| host.count("cancelled") == 2).await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        finish(host, server).await;
    });
}

#[test]
fn a_result_that_is_too_large_and_an_http_500_cost_only_their_call() {
    run(async {
        let (host, server) = host_of(&[], &[]).await;
        host.up().await;
        for tool in ["big", "broken"] {
            let outcome = host.call(tool, json!({})).await;
            assert!(matches!(outcome, Outcome::Unknown { .. }), "{tool}: {outcome:?}");
        }
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        finish(host, server).await;
    });
}

#[test]
fn a_refusal_a_foreign_redirect_and_a_dead_port_fail_with_their_reason() {
    run(async {
        let elsewhere = free_port();
        let (home, other) = (tempfile::tempdir().unwrap(), format!("redirect=http://127.0.0.1:{elsewhere}/mcp"));
        let innocent = serve(home.path(), elsewhere, &[]).await;
        for (word, reason) in [("401", "http 401"), ("quiet401", "http 401"), (&other, "307")] {
            let (host, server) = host_of(&[word], &[("Authorization", "Bearer secret")]).await;
            host.until("failed", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
            let state = host.handle.state().to_string();
            assert!(state.to_lowercase().contains(reason), "{word}: {state}");
            assert!(!state.contains("secret"));
            finish(host, server).await;
        }
        assert_eq!(
            std::fs::read_to_string(home.path().join("ledger")).unwrap().lines().count(),
            1,
            "nobody went there"
        );
        drop(innocent);

        let host = Host::start(plan(free_port(), &[]), tempfile::tempdir().unwrap());
        host.until("restarting", |host| host.handle.state().to_string().contains("cannot connect to 127.0.0.1:")).await;
        host.supervisor.shutdown().await;
    });
}
