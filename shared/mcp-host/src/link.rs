//! Reaching a server: start or connect, greet, and know when it is over.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ProtocolVersion, RequestMetaObject};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use vance_shared::launch::{LaunchPlan, Transport, TrustedLaunch};
use vance_supervise::near;

use crate::auth::{HttpClient, LOGIN_WAIT, Session};
use crate::budget::Cause;
use crate::client::{Client, Listeners};
use crate::conn::{Conn, Http};
use crate::env;
use crate::fault;
use crate::files::{self, Moment};
use crate::flights::Flights;
use crate::guard::{self, GuardedChild, Spawn, SpawnError};
use crate::handle::HostEnv;
use crate::http::{self, Endpoint};
use crate::mask::Mask;
use crate::people::People;
use crate::reading::Readings;
use crate::shared::Era;
use crate::stderr::LastWords;
use crate::stdio::{self, Pipes};

/// A server gets this long to end by itself after its input ended, before SIGTERM: most do, some never.
const FAREWELL: Duration = Duration::from_millis(200);
/// Between SIGTERM and SIGKILL of a server that was asked to stop.
const GRACE: Duration = Duration::from_secs(2);
/// The same for one that failed: nobody waits for what it still has to say.
const SHORT_GRACE: Duration = Duration::from_millis(300);
/// After its output ended, how long a server's exit status is waited for.
const EXIT_WAIT: Duration = Duration::from_millis(500);
/// The SDK waits this long for an answer to `server/discover` before it tries `initialize`.
const SDK_DISCOVER_WAIT: Duration = Duration::from_secs(10);
/// What a login takes beside the person: discovery, registration and exchange.
const EXCHANGE_WAIT: Duration = Duration::from_secs(60);
/// Ordinary requests at a time to one HTTP server: what one client may have in flight.
const HTTP_REQUESTS: usize = vance_shared::limits::INFLIGHT_CALLS;

/// Why a server is not reached.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) why: String,
    /// What another try would be worth.
    pub(crate) cause: Cause,
    /// How to greet it next time.
    pub(crate) next: Era,
}

/// A server that was greeted.
pub(crate) struct Link {
    pub(crate) running: RunningService<RoleClient, Client>,
    body: Body,
}

enum Body {
    Child { child: Box<GuardedChild>, pipes: Arc<Pipes>, last_words: LastWords },
    Http { trouble: mpsc::Receiver<String>, http: Http },
}

/// Whom to reach, and how.
pub(crate) struct Reach<'a> {
    pub(crate) launch: &'a TrustedLaunch,
    pub(crate) plan: &'a LaunchPlan,
    pub(crate) env: &'a HostEnv,
    pub(crate) era: Era,
    /// Rung when the tools may have changed.
    pub(crate) changed: Arc<Notify>,
    /// Gives the attempt up.
    pub(crate) stop: &'a CancellationToken,
    /// Whom to ask.
    pub(crate) people: &'a People,
    pub(crate) flights: Arc<Flights>,
    /// What its words must not show.
    pub(crate) mask: Arc<Mask>,
}

/// Starts or connects, and greets, within the plan's `init_timeout`. If that fails, nothing is left of it.
pub(crate) async fn reach(to: Reach<'_>) -> Result<(Link, Conn), Refused> {
    let Reach { plan, env, era, .. } = to;
    let hopeless = |why: String| Refused { why, cause: Cause::Hopeless, next: era };
    match &plan.transport {
        Transport::Stdio { argv, cwd, env: vars } => {
            let ambient = env::ambient();
            let vars = env::child_env(env.words(&ambient), plan.origin, vars, env.project_dir.as_deref())
                .map_err(|e| hopeless(e.to_string()))?;
            let cwd = working_dir(plan, env, cwd.as_deref()).map_err(hopeless)?;
            let guard_program = env.guard_program.clone();
            let sandbox = env.sandbox.clone().map(|sandbox| sandbox.for_pack(plan, argv, &cwd, &vars));
            let spawn = Spawn { argv: argv.clone(), cwd, env: vars, stdin: true, guard_program, sandbox };
            as_allowed(to.launch, env, Moment::Before).await.map_err(hopeless)?;
            let mut child = guard::spawn(spawn).await.map_err(|error| Refused {
                // A guard that does not start is this machine's trouble, and may pass.
                cause: if matches!(error, SpawnError::Guard { .. }) { Cause::Broken } else { Cause::Hopeless },
                why: error.to_string(),
                next: era,
            })?;
            // What was put in a file's place meanwhile may be what runs now.
            if let Err(why) = as_allowed(to.launch, env, Moment::After).await {
                if let Err(error) = child.kill(Duration::ZERO).await {
                    tracing::warn!(pack = %plan.pack, %error, "its end could not be confirmed");
                }
                return Err(hopeless(format!("{why}; it was killed")));
            }
            let is_fenced = env.sandbox.is_some();
            reach_child(to, child).await.map_err(|mut refused| {
                if is_fenced {
                    refused.why.push_str("; the sandbox is on: what it may not open can be added under `sandbox: {read: [FOLDER]}` in permissions.yaml");
                }
                refused
            })
        }
        Transport::Rest(_) => Err(hopeless("an HTTP API is no MCP server".to_owned())),
        Transport::Http { url, headers, auth, tls } => {
            let endpoint = http::endpoint(url, headers, auth, env.words(&env::ambient())).map_err(hopeless)?;
            let client = http::client(tls, env.project_dir.as_deref()).map_err(hopeless)?;
            let open = to.people.authorize.clone();
            let session = Session::of(plan, env, &endpoint.url, open).map_err(|fault| hopeless(fault.to_string()))?;
            reach_http(to, endpoint, client, session.map(Arc::new)).await
        }
    }
}

/// Whether what consent was given to is still what would run.
pub(crate) async fn as_allowed(launch: &TrustedLaunch, env: &HostEnv, moment: Moment) -> Result<(), String> {
    if launch.digest().is_none() {
        return Ok(());
    }
    let (launch, project) = (launch.clone(), env.project_dir.clone());
    let looking = tokio::task::spawn_blocking(move || files::unchanged(&launch, project.as_deref(), moment));
    looking.await.unwrap_or_else(|error| Err(format!("its files could not be looked at: {error}")))
}

/// The pack's own folder, empty when it is made, unless the plan names another.
fn working_dir(plan: &LaunchPlan, env: &HostEnv, cwd: Option<&str>) -> Result<PathBuf, String> {
    let Some(cwd) = cwd else {
        let dir = env.state_dir.join("work").join(plan.pack.as_str());
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder
            .create(&dir)
            .map_err(|error| format!("cannot make its working directory {}: {error}", dir.display()))?;
        return Ok(dir);
    };
    let cwd = PathBuf::from(cwd);
    match &env.project_dir {
        _ if cwd.is_absolute() => Ok(cwd),
        Some(project) => Ok(project.join(cwd)),
        None => Err(format!("its cwd '{}' is relative, and there is no project here", cwd.display())),
    }
}

async fn reach_child(to: Reach<'_>, mut child: GuardedChild) -> Result<(Link, Conn), Refused> {
    let Reach { launch: _, plan, env, era, changed, stop, people, flights, mask } = to;
    let refused = |why: String, next| Refused { why, cause: Cause::Broken, next };
    let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(refused("its pipes are missing".to_owned(), era));
    };
    let last_words = LastWords::follow(plan.pack.clone(), Arc::clone(&mask), errors);
    let (pipes, sdk) = stdio::open(plan.pack.clone(), Arc::clone(&mask), output, input);
    let client = Client::new(plan.pack.clone(), Arc::clone(&mask), env, people, flights, changed, Listeners::default());
    let greeted = in_time(plan.init_timeout, stop, greet(client, sdk, era)).await;
    let mut body = Body::Child { child: Box::new(child), pipes: Arc::clone(&pipes), last_words };
    let fault = match greeted {
        Ok(Ok(running)) => {
            if let Some(meta) = modern_meta(&running) {
                pipes.lane.set_meta(meta);
            }
            return Ok((Link { running, body }, Conn::Pipes(pipes)));
        }
        Ok(Err(error)) => Some(error),
        Err(Late) => None,
    };
    let next = match era {
        _ if pipes.late_discover.load(Ordering::Acquire) => Era::Discover,
        // Within its time the SDK had no chance to fall back, or the server choked on the question.
        Era::Ask if fault.is_some() || plan.init_timeout <= SDK_DISCOVER_WAIT => Era::Initialize,
        Era::Ask | Era::Initialize | Era::Discover => Era::Ask,
    };
    let why = match fault {
        None => format!("no answer to the handshake within {} s", plan.init_timeout.as_secs_f64()),
        Some(_) if pipes.ended.is_cancelled() => body.ended().await,
        Some(error) => format!("the handshake failed: {}", fault::handshake(&error, &mask)),
    };
    body.close(SHORT_GRACE).await;
    Err(refused(why, next))
}

async fn reach_http(
    to: Reach<'_>,
    endpoint: Endpoint,
    client: reqwest::Client,
    session: Option<Arc<Session>>,
) -> Result<(Link, Conn), Refused> {
    let Reach { launch: _, plan, env, era, changed, stop, people, flights, mask } = to;
    let listeners = Listeners::default();
    let attempt = async || {
        let mut config = StreamableHttpClientTransportConfig::with_uri(endpoint.url.as_str())
            .custom_headers(endpoint.headers.clone())
            .max_concurrent_requests(HTTP_REQUESTS);
        // A server that forgot its session may offer other tools now: we connect anew and look.
        config.reinit_on_expired_session = false;
        let client = HttpClient::new(client.clone(), session.clone());
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let service = Client::new(
            plan.pack.clone(),
            Arc::clone(&mask),
            env,
            people,
            Arc::clone(&flights),
            Arc::clone(&changed),
            listeners.clone(),
        );
        in_time(plan.init_timeout, stop, greet(service, transport, era)).await
    };
    let mut greeted = attempt().await;
    let refusal = session.as_ref().filter(|_| matches!(greeted, Ok(Err(_)))).and_then(|session| session.refusal());
    if let (Some(session), Some(challenge)) = (&session, refusal) {
        // A person takes longer than a handshake may.
        match in_time(LOGIN_WAIT + EXCHANGE_WAIT, stop, session.login(&challenge)).await {
            Ok(Ok(login)) => {
                tracing::info!(pack = %plan.pack, issuer = login.issuer.as_deref().unwrap_or("-"), "logged in");
                greeted = attempt().await;
            }
            Ok(Err(fault)) => return Err(Refused { why: fault.to_string(), cause: Cause::Hopeless, next: era }),
            Err(Late) => greeted = Err(Late),
        }
    }
    let (why, fault, cause) = match greeted {
        Ok(Ok(running)) => {
            if let Some(session) = &session {
                session.serve();
            }
            let (trouble, heard) = mpsc::channel(1);
            let http = Http::new(running.peer().clone(), listeners, mask, trouble, session.clone());
            let body = Body::Http { trouble: heard, http: http.clone() };
            return Ok((Link { running, body }, Conn::Http(http)));
        }
        Ok(Err(error)) if fault::is_refusal(&error) => {
            // Who is let in does not change by flights again.
            return Err(Refused { why: fault::handshake(&error, &mask), cause: Cause::Hopeless, next: era });
        }
        Ok(Err(error)) => {
            let cause = if fault::is_away(&error) { Cause::Away } else { Cause::Broken };
            (format!("the handshake failed: {}", fault::handshake(&error, &mask)), true, cause)
        }
        Err(Late) => {
            let why = format!("no answer to the handshake within {} s", plan.init_timeout.as_secs_f64());
            (why, false, Cause::Away)
        }
    };
    let next = match era {
        _ if cause == Cause::Away && fault => era,
        Era::Ask if fault || plan.init_timeout <= SDK_DISCOVER_WAIT => Era::Initialize,
        Era::Ask | Era::Initialize | Era::Discover => Era::Ask,
    };
    Err(Refused { why, cause, next })
}

/// The time is over, or the attempt was given up.
struct Late;

async fn in_time<T>(limit: Duration, stop: &CancellationToken, greeting: impl Future<Output = T>) -> Result<T, Late> {
    tokio::select! {
        () = stop.cancelled() => Err(Late),
        greeted = tokio::time::timeout(limit, greeting) => greeted.map_err(|_| Late),
    }
}

async fn greet<T, E, A>(
    client: Client,
    transport: T,
    era: Era,
) -> Result<RunningService<RoleClient, Client>, ClientInitializeError>
where
    T: rmcp::transport::IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let mode = match era {
        Era::Ask => {
            ClientLifecycleMode::Auto { preferred_versions, legacy_version: Some(ProtocolVersion::V_2025_11_25) }
        }
        Era::Discover => ClientLifecycleMode::Discover { preferred_versions },
        Era::Initialize => ClientLifecycleMode::Initialize,
    };
    client.serve_with_lifecycle(transport, mode).await
}

/// What every request carries in a protocol version without a handshake.
fn modern_meta(running: &RunningService<RoleClient, Client>) -> Option<serde_json::Map<String, serde_json::Value>> {
    let version = running
        .peer()
        .peer_info()
        .map(|info| info.protocol_version.clone())
        .filter(|version| !version.has_initialize())?;
    let config = running.service().config();
    let meta = RequestMetaObject::with_client_context(version, config.client_info.clone(), config.capabilities.clone());
    Some(meta.0.0)
}

impl Link {
    /// How it was greeted.
    pub(crate) fn era(&self) -> Era {
        match self.running.peer().peer_info() {
            Some(info) if !info.protocol_version.has_initialize() => Era::Discover,
            Some(_) | None => Era::Initialize,
        }
    }

    /// The version that was agreed on.
    pub(crate) fn protocol(&self) -> Option<String> {
        self.running.peer().peer_info().map(|info| info.protocol_version.to_string())
    }

    /// What it may have beside its tools.
    pub(crate) fn readings(&self) -> Vec<Readings> {
        let info = self.running.peer().peer_info();
        info.map(|info| Readings::of(&info.capabilities)).unwrap_or_default()
    }

    /// Waits for the end, and says why.
    pub(crate) async fn ended(&mut self) -> String {
        self.body.ended().await
    }

    /// What it means that it ended by itself.
    pub(crate) fn loss(&self) -> Cause {
        match &self.body {
            Body::Child { .. } => Cause::Broken,
            Body::Http { .. } => Cause::Away,
        }
    }

    /// It ended by itself. Requests that are still under way over HTTP have connections of their own, and are left to end: until
    /// then, or until `closing`, something of it stays.
    pub(crate) async fn leave(self, closing: CancellationToken) {
        let Body::Http { http, .. } = &self.body else { return self.close(false).await };
        let http = http.clone();
        near(async move {
            tokio::select! {
                () = http.drained() => {}
                () = closing.cancelled() => {}
            }
            self.close(false).await;
        });
    }

    /// Ends it at once: nothing that it still has to say or do is wanted. Returns when nothing of it is left.
    pub(crate) async fn kill(mut self) {
        self.body.close_after(Duration::ZERO, Duration::ZERO).await;
    }

    /// Ends it: politely if it was asked to stop, quickly if it failed. Returns when nothing of it is left.
    pub(crate) async fn close(mut self, politely: bool) {
        let grace = if politely { GRACE } else { SHORT_GRACE };
        match self.running.close_with_timeout(GRACE).await {
            Ok(Some(_)) => {}
            Ok(None) => tracing::debug!("the session is closed in the background"),
            Err(error) => tracing::warn!(%error, "the session ended badly"),
        }
        self.body.close(grace).await;
    }
}

impl Body {
    async fn ended(&mut self) -> String {
        match self {
            Self::Http { trouble, .. } => trouble.recv().await.unwrap_or_else(|| "the connection ended".to_owned()),
            Self::Child { child, pipes, last_words } => {
                let exit = tokio::select! {
                    () = pipes.ended.cancelled() => tokio::time::timeout(EXIT_WAIT, child.wait()).await.ok(),
                    exit = child.wait() => {
                        // What it wrote last may still be in the pipe.
                        if tokio::time::timeout(EXIT_WAIT, pipes.ended.cancelled()).await.is_err() {
                            pipes.end("it ended".to_owned());
                        }
                        Some(exit)
                    }
                };
                let ended = match exit {
                    Some(Ok(exit)) => format!("it ended with {exit}"),
                    Some(Err(error)) => format!("it ended: {error}"),
                    None => pipes.why(),
                };
                last_words.add_to(ended)
            }
        }
    }

    async fn close(&mut self, grace: Duration) {
        self.close_after(FAREWELL, grace).await;
    }

    async fn close_after(&mut self, farewell: Duration, grace: Duration) {
        let Self::Child { child, pipes, .. } = self else { return };
        pipes.close_input.cancel();
        let ended = match tokio::time::timeout(farewell, child.wait()).await {
            Ok(exit) => exit,
            Err(_) => child.kill(grace).await,
        };
        if let Err(error) = ended {
            tracing::warn!(pack = %pipes.pack, %error, "its end could not be confirmed");
        }
        pipes.end("it was stopped".to_owned());
    }
}
