//! A Brain from its home to its end.
//!
//! ```text
//! root (rest_for_one)
//! ├── store_gate          the store's writer
//! ├── registry            the tool table
//! ├── sessions            one actor a session
//! ├── work (one_for_all)
//! │   ├── tasks           one actor a live task
//! │   └── scheduler       the board
//! └── packs (all or none)
//!     ├── servers         one supervisor a server pack
//!     └── pack_loader     reads the files, starts and ends servers
//! ```
//!
//! Past the root's restart budget the process ends with an error: whoever started it starts it anew, from the store.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vance_blobs::Blobs;
use vance_brain_core::config::BrainConfig;
use vance_brain_core::registry::{Registry, ServerSide};
use vance_observability::spans;
use vance_shared::doc::Problem;
use vance_shared::limits::BLOBS_BYTES;
use vance_supervise::{ActorRef, Backoff, ChildSpec, ExitReason, Intensity, Strategy, SupervisorRef, SupervisorSpec};

use crate::actors::pack_loader::{Desk, PackLoader, ToPackLoader};
use crate::actors::registry::RegistryActor;
use crate::actors::scheduler::{self, Scheduler};
use crate::actors::session::DrainAll;
use crate::actors::store_gate::{Close, StoreGate};
use crate::builtin::{BuiltinConfig, Builtins};
use crate::directory::Directory;
use crate::executor::Executor;
use crate::home::{self, Address, Home, Loaded};
use crate::http::{self, HttpSetup};
use crate::hub::{Brain, Files, Hub, now_ms};
use crate::kept::Kept;
use crate::metrics::Metrics;
use crate::progress::Progresses;
use crate::questions::open::OpenQuestions;
use crate::secrets::Vault;
use crate::store::{OpenError, Store, WriterSeat};
use crate::tls::{Tls, TlsError};
use crate::tokens::book::TokenBook;
use crate::tokens::{Principals, TokenError, local_token};

/// Where a Brain listens unless it is told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:9990";

/// Sessions and tasks that are live at once; one more is refused.
const MAX_CHILDREN: usize = 100_000;

/// How long running calls may go on after SIGTERM.
const DRAIN: Duration = Duration::from_secs(10);

/// How the store's first writer may take to come up.
const STORE_WAIT: Duration = Duration::from_secs(30);

/// What `serve` was told.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where the files are.
    pub home: Home,
    /// `HOST:PORT`; before `brain.yaml`.
    pub listen: Option<String>,
    /// `sqlite:DIR`; before `brain.yaml`.
    pub store: Option<String>,
}

/// Why a Brain does not serve, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Files with mistakes.
    #[error("{} problem(s) in the Brain's files", .0.len())]
    Problems(Vec<Problem>),
    /// The home cannot be used.
    #[error(transparent)]
    Home(#[from] home::HomeError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The store's writer does not come up.
    #[error("the store did not become ready within {} s; see the log", STORE_WAIT.as_secs())]
    StoreNotReady,
    /// The certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The local token cannot be made or read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// An address or setting that is not one.
    #[error("{0}")]
    Setting(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; stop what uses it, or choose another with --listen")]
    Listen {
        /// Which.
        addr: String,
        /// Why.
        source: std::io::Error,
    },
    /// Something inside failed for good.
    #[error("the Brain gave up: {0}")]
    GaveUp(ExitReason),
    /// The process cannot do what it must.
    #[error("{what}: {source}")]
    Process {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

/// Serves until SIGTERM or SIGINT, then drains.
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    options.home.prepare()?;
    let loaded = home::load(&options.home);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let fatal = loaded.config.is_none() || loaded.registry.is_none();
    if fatal {
        return Err(ServeError::Problems(loaded.problems));
    }
    // A bad pack or engine does not keep the others from loading, and nobody overlooks it.
    let kept = Kept::default();
    for problem in &loaded.problems {
        tracing::error!("{problem}; {}", kept.standing(&options.home, &problem.file).at_start());
    }
    let config = loaded.config.clone().unwrap_or_default();
    let addr = listen_addr(options.listen.as_deref(), &config).map_err(ServeError::Setting)?;
    if !addr.ip().is_loopback() && config.tls.is_none() {
        tracing::warn!("tokens travel in clear to {addr} (`allow_insecure`): whoever sees the traffic can use them");
    }
    let tls = config.tls.as_ref().map(|files| Tls::load(files, &options.home.brain())).transpose()?.map(Arc::new);
    check_store(options.store.as_deref(), &config).map_err(ServeError::Setting)?;
    let (store, seat) = Store::open(&options.home.data())?;
    let local = local_token(&options.home.token())?;
    let principals = Arc::new(Principals::local(&local).following(TokenBook::new(&options.home.data())));
    // Without a collector everything works all the same.
    match spans::start("vance-brain", config.otlp.as_deref()) {
        Ok(true) => tracing::info!("spans are sent to a collector"),
        Ok(false) => {}
        Err(error) => tracing::warn!("{error}"),
    }
    let metrics = Metrics::install().map_err(|e| ServeError::Setting(e.to_string()))?;
    let listener = http::bind(addr).await.map_err(|source| ServeError::Listen { addr: addr.to_string(), source })?;
    let bound =
        listener.local_addr().map_err(|source| ServeError::Process { what: "cannot read the address", source })?;

    let vault = Vault::new(&options.home.data());
    let secret = move |name: &str| vault.get(name).map(|value| value.to_string()).map_err(|error| error.to_string());
    let builtins = BuiltinConfig::of(&config, |name| std::env::var(name).ok(), secret);
    let (brain, supervisors) = hub(store, config.clone(), Builtins::new(builtins), &loaded);
    match Blobs::open(&options.home.data().join("blobs"), BLOBS_BYTES, None) {
        Ok(blobs) => drop(brain.blobs.set(Arc::new(blobs))),
        Err(error) => tracing::error!(%error, "results of server tools that are too large to travel are not kept"),
    }
    let packs = packs(&brain, &options.home);
    let root = SupervisorRef::start(tree(&brain, supervisors, Some(seat)));
    tokio::time::timeout(STORE_WAIT, brain.store.ready()).await.map_err(|_| ServeError::StoreNotReady)?;
    if let Err(error) = root.start_child(ChildSpec::supervisor(packs, SupervisorRef::new())).await {
        tracing::error!(%error, "cannot start the server packs");
    }

    let shutdown = CancellationToken::new();
    let keep = tokio::spawn(metrics.clone().keep());
    let mut hangups = listen_for(SignalKind::hangup())?;
    let following = vance_supervise::beside(principals.clone().follow());
    let setup = HttpSetup {
        brain: brain.clone(),
        principals,
        listen: bound,
        allowed_hosts: config.allowed_hosts.clone(),
        metrics,
        tls: tls.clone(),
    };
    let renewing = tls.clone().map(|tls| vance_supervise::beside(tls.follow()));
    let web = vance_supervise::near(http::run(setup, listener, shutdown.clone()));
    // Before anybody hears that it is ready. Without it a Foot of this home has to be told the address.
    let path = options.home.address();
    let certificate = config.tls.as_ref().map(|files| options.home.brain().join(&files.cert));
    let url = home::address_url(bound, certificate.as_deref(), &config.allowed_hosts);
    let address = Address::write(&path, &url)
        .inspect_err(|error| tracing::warn!("{}: {error}; a Foot needs --brain to find this Brain", path.display()));
    println_ready(bound, tls.is_some())?;
    tracing::info!(address = %bound, home = %options.home.root().display(), "brain ready");

    let ended = tokio::select! {
        signal = stop_signal() => {
            tracing::info!(signal = signal?, "draining");
            None
        }
        () = reload_at(&mut hangups, &brain) => {
            tracing::info!(signal = "SIGHUP", "the terminal is gone: draining");
            None
        }
        reason = root.ended() => Some(reason),
    };
    drop(address);
    shutdown.cancel();
    drain(&brain).await;
    root.shutdown().await;
    if web.await.is_err() {
        tracing::error!("the HTTP server panicked");
    }
    keep.abort();
    following.abort();
    if let Some(renewing) = renewing {
        renewing.abort();
    }
    match ended {
        None => Ok(()),
        Some(reason) => Err(ServeError::GaveUp(reason)),
    }
}

fn println_ready(bound: SocketAddr, encrypted: bool) -> Result<(), ServeError> {
    let scheme = if encrypted { "https" } else { "http" };
    let mut out = std::io::stdout().lock();
    writeln!(out, "brain ready {scheme}://{bound}")
        .and_then(|()| out.flush())
        .map_err(|source| ServeError::Process { what: "cannot write to stdout", source })
}

fn listen_for(kind: SignalKind) -> Result<Signal, ServeError> {
    signal(kind).map_err(|source| ServeError::Process { what: "cannot listen for signals", source })
}

async fn stop_signal() -> Result<&'static str, ServeError> {
    let (mut term, mut int) = (listen_for(SignalKind::terminate())?, listen_for(SignalKind::interrupt())?);
    Ok(tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    })
}

/// Reads the files again at each SIGHUP. Ends when the terminal is gone in which this Brain was started: that is the same signal.
async fn reload_at(hangups: &mut Signal, brain: &Brain) {
    let had_terminal = std::io::stdin().is_terminal();
    while hangups.recv().await.is_some() {
        if had_terminal && !std::io::stdin().is_terminal() {
            return;
        }
        tracing::info!(signal = "SIGHUP", "the files are read again");
        if let Err(refusal) = brain.pack_loader.post(ToPackLoader::Reload).await {
            // It restarts, and reads them then.
            tracing::warn!(%refusal, "the loader did not take a reload");
        }
    }
    std::future::pending::<()>().await;
}

/// Clients are told to come back later; server calls may end within a time, then they are cancelled. Tasks go on after the next
/// start, from the store.
async fn drain(brain: &Brain) {
    for session in brain.directory.loaded() {
        session.actor.tell(DrainAll).ok();
    }
    let deadline = Instant::now() + DRAIN;
    while brain.executor.running() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    brain.executor.cancel_all();
}

/// Where to listen: as it was told, else as `brain.yaml` says. The error says what to write.
pub(crate) fn listen_addr(told: Option<&str>, config: &BrainConfig) -> Result<SocketAddr, String> {
    let text = told.or(config.listen.as_deref()).unwrap_or(DEFAULT_LISTEN);
    let text = text.replace("localhost:", "127.0.0.1:");
    let addr: SocketAddr = text.parse().map_err(|_| {
        format!(
            "listen: {} is not HOST:PORT with an IP address, such as {DEFAULT_LISTEN}",
            vance_shared::show::quoted(&text, 80)
        )
    })?;
    if !addr.ip().is_loopback() && config.tls.is_none() && !config.allow_insecure {
        return Err(format!(
            "listen: {addr} is reachable from other machines, and tokens would travel in clear: set `tls: {{cert: FILE, key: FILE}}` in brain.yaml, listen on 127.0.0.1 behind a TLS proxy, or set `allow_insecure: true`"
        ));
    }
    Ok(addr)
}

/// Whether events can be kept where it was told, or `brain.yaml` says.
fn check_store(told: Option<&str>, config: &BrainConfig) -> Result<(), String> {
    match told.or(config.store.as_deref()) {
        None | Some("sqlite" | "sqlite:") => Ok(()),
        // Not repeated: an address may carry a password.
        Some(_) => Err(
            "store: this release keeps events in SQLite only: leave `store` out or write sqlite: (they are in <home>/brain/data)".to_owned(),
        ),
    }
}

/// Supervisors whose children come and go.
#[derive(Debug, Clone, Default)]
pub struct Supervisors {
    /// Of task actors.
    pub tasks: SupervisorRef,
    /// Of session actors.
    pub sessions: SupervisorRef,
    /// Of tasks and the scheduler, which fall together.
    pub work: SupervisorRef,
}

/// A Brain's handles; nothing runs before its [`tree`] does.
pub fn hub(store: Store, config: BrainConfig, builtins: Builtins, loaded: &Loaded) -> (Brain, Supervisors) {
    let server_tools: BTreeMap<_, _> =
        builtins.specs().into_iter().map(|spec| (spec.name.clone(), Arc::new(spec))).collect();
    let packs = loaded.packs.iter().filter(|p| p.enabled).map(|p| (p.name.to_string(), ServerSide::Starting)).collect();
    let registry = Registry {
        file: loaded.registry.clone().unwrap_or_default(),
        server_tools,
        packs,
        engines: loaded.engines.clone(),
        revision: 1,
    };
    let supervisors = Supervisors::default();
    let executor = Executor::new(builtins);
    // Tasks that go on at once must find the packs that they need, though none of them is up.
    for name in registry.packs.keys() {
        drop(executor.expect_pack(name));
    }
    let files = Files { read_at: now_ms(), problems: loaded.problems.clone(), needs_restart: false };
    let brain = Arc::new(Hub {
        store,
        registry: ArcSwap::from_pointee(registry),
        registry_actor: ActorRef::new("registry"),
        pack_loader: ActorRef::new("pack_loader"),
        files: ArcSwap::from_pointee(files),
        scheduler: ActorRef::new("scheduler"),
        tasks: supervisors.tasks.clone(),
        directory: Directory::new(supervisors.sessions.clone()),
        questions: OpenQuestions::default(),
        progress: Progresses::default(),
        executor,
        blobs: OnceLock::new(),
        config,
        started: Instant::now(),
    });
    (brain, supervisors)
}

/// The tree, but for the packs. `seat`: where the store's writer sits, if the store has one.
pub fn tree(brain: &Brain, supervisors: Supervisors, seat: Option<WriterSeat>) -> SupervisorSpec {
    let hub = brain.clone();
    let registry =
        ChildSpec::actor(brain.registry_actor.clone(), move |_| RegistryActor::new(hub.clone())).mailbox(4_096);
    let hub = brain.clone();
    let scheduler = ChildSpec::actor(brain.scheduler.clone(), move |exit| Scheduler::new(hub.clone(), exit))
        .mailbox(scheduler::MAILBOX);
    let tasks = SupervisorSpec::new("tasks").max_children(MAX_CHILDREN).intensity(patient());
    let work = SupervisorSpec::new("work")
        .strategy(Strategy::OneForAll)
        .child(ChildSpec::supervisor(tasks, supervisors.tasks))
        .child(scheduler);
    let sessions = SupervisorSpec::new("sessions").max_children(MAX_CHILDREN).intensity(patient());
    let mut root = SupervisorSpec::new("root").strategy(Strategy::OneForOne);
    if let Some(seat) = seat {
        let gate = ActorRef::new("store_gate");
        let store = ChildSpec::actor(gate.clone(), move |exit| StoreGate::new(seat.clone(), exit));
        root = root.child(store.on_stop(&gate, || Close));
    }
    root.child(registry)
        .child(ChildSpec::supervisor(sessions, supervisors.sessions))
        .child(ChildSpec::supervisor(work, supervisors.work))
}

/// One session or task that cannot stay up must not cost the others their supervisor: it is tried for long, ever more slowly.
fn patient() -> Intensity {
    Intensity { max_restarts: 1_000, within: Duration::from_secs(60) }
}

/// All server packs, and who keeps them as the files say.
fn packs(brain: &Brain, home: &Home) -> SupervisorSpec {
    let servers = SupervisorRef::new();
    let desk = Desk::new(brain.clone(), home.clone(), servers.clone());
    let below = SupervisorSpec::new("servers")
        .intensity(Intensity { max_restarts: 1_000_000, within: Duration::from_secs(60) })
        .backoff(Backoff { first: Duration::from_secs(30), max: Duration::from_secs(30) });
    let loader = ChildSpec::actor(brain.pack_loader.clone(), move |_| PackLoader::new(desk.clone()));
    SupervisorSpec::new("packs")
        .strategy(Strategy::OneForAll)
        .child(ChildSpec::supervisor(below, servers))
        .child(loader)
}
