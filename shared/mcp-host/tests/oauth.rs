//! Servers that want a login, with a real authorization server on this machine and a browser that says yes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/host.rs"]
mod host;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use host::{Host, code_of, run};
use serde_json::json;
use vance_mcp_host::auth::{self, AuthFault, OnAuthorize, OnDeviceCode};
use vance_mcp_host::guard::{self, GuardedChild, Spawn};
use vance_mcp_host::{HostEnv, HostState, People};
use vance_shared::gate::TrustedLaunch;
use vance_shared::launch::{Auth, Grant, LaunchPlan, OAuth, Transport};

struct Server {
    dir: tempfile::TempDir,
    port: u16,
    _child: GuardedChild,
}

impl Server {
    async fn start(words: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake_oauth.py");
        let mut argv = vec!["python3".to_owned(), script.to_str().unwrap().to_owned()];
        argv.extend([dir.path().join("server").to_str().unwrap().to_owned(), port.to_string()]);
        argv.extend(words.iter().map(|word| (*word).to_owned()));
        let env = vance_mcp_host::env::ambient();
        let guard_program = env!("CARGO_BIN_EXE_mcp-host-probe").into();
        let spawn = Spawn { argv, cwd: dir.path().to_owned(), env, stdin: false, guard_program, sandbox: None };
        let child = guard::spawn(spawn).await.unwrap();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Self { dir, port, _child: child }
    }

    fn count(&self, line: &str) -> usize {
        let ledger = std::fs::read_to_string(self.dir.path().join("server")).unwrap();
        ledger.lines().filter(|l| *l == line).count()
    }

    fn plan(&self, auth: Auth) -> LaunchPlan {
        let mut plan = host::plan(Transport::http(format!("http://127.0.0.1:{}/mcp", self.port)));
        let Transport::Http { auth: slot, .. } = &mut plan.transport else { panic!() };
        *slot = auth;
        plan
    }

    async fn get(&self, path: &str) {
        reqwest::get(format!("http://127.0.0.1:{}{path}", self.port)).await.unwrap();
    }
}

/// Somebody who goes where the address leads, and says what the page says.
fn browser() -> OnAuthorize {
    Arc::new(|_, address| {
        let address = address.to_owned();
        tokio::spawn(async move { reqwest::get(address).await.unwrap().text().await.unwrap() });
    })
}

fn env_of(host: &Host) -> HostEnv {
    HostEnv {
        state_dir: host.dir.path().join("state"),
        logins_dir: host.dir.path().join("state"),
        packs_dir: Default::default(),
        read_file: None,
        vault: None,
        project_dir: None,
        guard_program: "none".into(),
        client_name: "vancetope".into(),
        sandbox: None,
    }
}

async fn login(host: &Host, plan: LaunchPlan) -> Result<auth::LoggedIn, AuthFault> {
    auth::login(&TrustedLaunch::own_home(plan).unwrap(), &env_of(host), browser()).await
}

async fn failed(host: &Host) -> String {
    host.until("failed", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
    host.handle.state().to_string()
}

#[test]
fn a_login_on_the_command_line_brings_the_server_up_and_stays_private() {
    run(async {
        let server = Server::start(&["secret"]).await;
        let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        assert_eq!(failed(&host).await, "failed: needs a login: run `vancetope login fake`");
        assert_eq!(server.count("register"), 0, "nobody is registered before somebody wants to log in");
        let login = login(&host, server.plan(Auth::IfAsked)).await.unwrap();
        assert_eq!((login.scopes, login.renewable), (vec!["mcp:use".to_owned()], true));
        host.up().await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        assert_eq!(server.count("authorize resource=True scope=mcp:use"), 1);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let folder = host.dir.path().join("state/oauth");
        assert_eq!(mode(&folder), 0o700);
        for entry in std::fs::read_dir(&folder).unwrap() {
            assert_eq!(mode(&entry.unwrap().path()), 0o600);
        }
        host.supervisor.shutdown().await;
    });
}

#[test]
fn where_there_are_people_the_browser_opens_by_itself() {
    run(async {
        let server = Server::start(&[]).await;
        let people = People { authorize: Some(browser()), ..People::default() };
        let plan = server.plan(Auth::OAuth(OAuth::default()));
        let host = Host::start_with(plan, tempfile::tempdir().unwrap(), people);
        host.up().await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        assert_eq!((server.count("register"), server.count("token authorization_code")), (1, 1));
        host.supervisor.shutdown().await;
    });
}

#[test]
fn a_refused_token_is_renewed_once_however_many_calls_and_hosts_have_it() {
    run(async {
        let server = Server::start(&["secret"]).await;
        let first = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        failed(&first).await;
        login(&first, server.plan(Auth::IfAsked)).await.unwrap();
        first.up().await;
        // Another process has the same home.
        let home = first.dir.path().join("state");
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(home, dir.path().join("state")).unwrap();
        let second = Host::start(server.plan(Auth::IfAsked), dir);
        second.up().await;
        server.get("/revoke").await;
        let calls = (0..16).map(|n| if n % 2 == 0 { &first } else { &second }.call("echo", json!({"n": n})));
        let outcomes = futures_util::future::join_all(calls).await;
        assert!(outcomes.iter().all(|outcome| outcome.word() == "done"), "{outcomes:?}");
        assert_eq!(server.count("token refresh_token"), 1);
        // And when nothing renews it any more, a call says so, and nothing ran.
        server.get("/forget").await;
        let outcome = first.call("echo", json!({})).await;
        assert_eq!(code_of(&outcome), "unauthorized");
        assert!(format!("{outcome:?}").contains("vancetope login fake"), "{outcome:?}");
        first.supervisor.shutdown().await;
        second.supervisor.shutdown().await;
    });
}

#[test]
fn a_token_is_renewed_before_it_ends() {
    run(async {
        let server = Server::start(&["life=2"]).await;
        let people = People { authorize: Some(browser()), ..People::default() };
        let host = Host::start_with(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap(), people);
        host.up().await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        assert!(server.count("token refresh_token") >= 1);
        assert_eq!(server.count("token authorization_code"), 1, "nobody is asked again");
        host.supervisor.shutdown().await;
    });
}

#[test]
fn a_client_of_its_own_right_needs_nobody() {
    run(async {
        let server = Server::start(&["closed"]).await;
        let oauth = |secret: &str| {
            Auth::OAuth(OAuth {
                grant: Grant::ClientCredentials,
                client_id: Some("given".into()),
                client_secret: Some(secret.into()),
                ..OAuth::default()
            })
        };
        let host = Host::start(server.plan(oauth("given-secret")), tempfile::tempdir().unwrap());
        host.up().await;
        server.get("/revoke").await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        assert_eq!(server.count("token client_credentials"), 2);
        host.supervisor.shutdown().await;

        let wrong = Host::start(server.plan(oauth("wrong")), tempfile::tempdir().unwrap());
        let why = failed(&wrong).await;
        assert!(why.contains("invalid_client") && !why.contains("wrong"), "{why}");
        wrong.supervisor.shutdown().await;
    });
}

#[test]
fn a_login_that_is_refused_or_cannot_be_says_why() {
    run(async {
        for (words, want) in [
            (&["deny"][..], "the login was refused: access_denied"),
            (
                &["closed"][..],
                "authorization failed: its authorization server registers no clients; set `clientId` in the pack's `auth`",
            ),
        ] {
            let server = Server::start(words).await;
            let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
            let fault = login(&host, server.plan(Auth::IfAsked)).await.unwrap_err();
            assert_eq!(fault.to_string(), want);
            let fault = login(&host, server.plan(Auth::Constant)).await.unwrap_err();
            assert!(matches!(fault, AuthFault::TakesNone { .. }), "{fault}");
            host.supervisor.shutdown().await;
        }
    });
}

#[test]
fn a_code_that_is_typed_elsewhere_logs_in_and_is_renewed_like_any_other() {
    run(async {
        // Its first answer is an error page, which costs nobody their code.
        let server = Server::start(&["secret", "device", "ill"]).await;
        let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        failed(&host).await;
        let env = env_of(&host);
        let somebody: OnDeviceCode = Arc::new(|_, shown| {
            let direct = shown.direct.clone().unwrap();
            assert!(direct.ends_with(&shown.code) && direct.starts_with(&shown.address), "{shown:?}");
            tokio::spawn(async move { reqwest::get(direct).await.unwrap() });
        });
        let launch = TrustedLaunch::own_home(server.plan(Auth::IfAsked)).unwrap();
        let login = auth::login_by_device(&launch, &env, somebody).await.unwrap();
        assert_eq!((login.scopes, login.renewable), (vec!["mcp:use".to_owned()], true));
        host.up().await;
        server.get("/revoke").await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        assert_eq!((server.count("device resource=True scope=mcp:use"), server.count("token refresh_token")), (1, 1));
        host.supervisor.shutdown().await;
    });
}

#[test]
fn a_code_that_is_refused_or_not_offered_says_so() {
    run(async {
        for (words, want) in [
            (&["device", "deny"][..], "the login was refused: access_denied"),
            (&[][..], "authorization failed: its authorization server offers no device code; log in without --device"),
        ] {
            let server = Server::start(words).await;
            let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
            let launch = TrustedLaunch::own_home(server.plan(Auth::IfAsked)).unwrap();
            let nobody: OnDeviceCode = Arc::new(|_, _| {});
            let fault = auth::login_by_device(&launch, &env_of(&host), nobody).await.unwrap_err().to_string();
            assert!(fault.starts_with(want), "{fault}");
            host.supervisor.shutdown().await;
        }
    });
}

#[test]
fn a_login_that_is_forgotten_counts_no_more_in_a_host_that_runs() {
    run(async {
        let server = Server::start(&["text"]).await;
        let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        failed(&host).await;
        let done = login(&host, server.plan(Auth::IfAsked)).await.unwrap();
        assert_eq!(done.expires_in, Some(std::time::Duration::from_secs(3600)), "a life that is a text is read");
        host.up().await;
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        let launch = TrustedLaunch::own_home(server.plan(Auth::IfAsked)).unwrap();
        assert!(auth::logout(&launch, &env_of(&host)).await.unwrap());
        tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
        let outcome = host.call("echo", json!({})).await;
        assert_eq!(code_of(&outcome), "unauthorized", "{outcome:?}");
        assert_eq!(server.count("call echo"), 1);
        host.supervisor.shutdown().await;
    });
}

#[test]
fn while_a_person_stands_at_the_login_page_a_running_host_renews_its_token() {
    run(async {
        let server = Server::start(&[]).await;
        let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        failed(&host).await;
        login(&host, server.plan(Auth::IfAsked)).await.unwrap();
        host.up().await;
        let (opened, is_open) = tokio::sync::oneshot::channel();
        let opened = std::sync::Mutex::new(Some(opened));
        let nobody: OnAuthorize = Arc::new(move |_, _| opened.lock().unwrap().take().unwrap().send(()).unwrap());
        let launch = TrustedLaunch::own_home(server.plan(Auth::IfAsked)).unwrap();
        let env = env_of(&host);
        let standing = tokio::spawn(async move { auth::login(&launch, &env, nobody).await });
        is_open.await.unwrap();
        server.get("/revoke").await;
        let begun = std::time::Instant::now();
        assert_eq!(host.call("echo", json!({})).await.word(), "done");
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        assert!(!standing.is_finished());
        standing.abort();
        host.supervisor.shutdown().await;
    });
}

#[test]
fn an_authorization_server_that_does_badly_is_named_with_its_cause() {
    run(async {
        let given = |server: &Server| {
            let base = format!("http://127.0.0.1:{}", server.port);
            Auth::OAuth(OAuth { issuer: Some(base), ..OAuth::default() })
        };
        let server = Server::start(&["page"]).await;
        let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        let pages = Arc::new(std::sync::Mutex::new(String::new()));
        let seen = pages.clone();
        let browser: OnAuthorize = Arc::new(move |_, address| {
            let (address, seen) = (address.to_owned(), seen.clone());
            tokio::spawn(
                async move { *seen.lock().unwrap() = reqwest::get(address).await.unwrap().text().await.unwrap() },
            );
        });
        let launch = TrustedLaunch::own_home(server.plan(Auth::IfAsked)).unwrap();
        let fault = auth::login(&launch, &env_of(&host), browser).await.unwrap_err().to_string();
        assert!(fault.contains("HTTP 500"), "{fault}");
        host.until("the page", |_| !pages.lock().unwrap().is_empty()).await;
        assert!(pages.lock().unwrap().contains("did not work"), "{}", pages.lock().unwrap());
        host.supervisor.shutdown().await;

        let server = Server::start(&["nopkce"]).await;
        let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        let fault = login(&host, server.plan(Auth::IfAsked)).await.unwrap_err().to_string();
        assert!(fault.contains("does not say that it takes PKCE") && fault.contains("`issuer`"), "{fault}");
        assert_eq!(server.count("register"), 0);
        login(&host, server.plan(given(&server))).await.unwrap();
        host.supervisor.shutdown().await;
    });
}

#[test]
fn what_a_server_repeats_of_a_token_is_masked_and_a_scope_that_it_wants_is_named() {
    run(async {
        let server = Server::start(&["echo"]).await;
        let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        failed(&host).await;
        login(&host, server.plan(Auth::IfAsked)).await.unwrap();
        host.up().await;
        server.get("/revoke").await;
        let outcome = format!("{:?}", host.call("echo", json!({})).await);
        assert!(outcome.contains("not {{login}}"), "{outcome}");
        host.supervisor.shutdown().await;

        let server = Server::start(&["scope"]).await;
        let host = Host::start(server.plan(Auth::IfAsked), tempfile::tempdir().unwrap());
        failed(&host).await;
        login(&host, server.plan(Auth::IfAsked)).await.unwrap();
        host.up().await;
        let outcome = format!("{:?}", host.call("echo", json!({})).await);
        assert!(outcome.contains("wants the scope more besides: add it to `scopes`"), "{outcome}");
        host.supervisor.shutdown().await;
    });
}
