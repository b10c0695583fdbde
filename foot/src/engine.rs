//! The Foot without its command line: takes an identity, loads the tools, keeps the line to the Brain, ends cleanly.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Url;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use vance_foot_core::permissions::Rules;
use vance_mcp_host::rest::ReadFile;
use vance_mcp_host::{HostEnv, Person};
use vance_shared::call::Outcome;
use vance_shared::gate::Nobody;
use vance_shared::ids::{CallId, ClientId, SessionId};
use vance_shared::json::Raw;
use vance_shared::limits::{CALL_TIMEOUT, PROGRESS_CAP};
use vance_shared::tool::ToolSpec;
use vance_shared::wire::ClientConnected;
use vance_supervise::{ActorRef, ChildSpec, ExitReason, Strategy, SupervisorRef, SupervisorSpec};

use crate::actors::catalogue::Catalogue;
use crate::actors::dial;
use crate::actors::dispatcher::{self, Dispatcher, ToDispatcher};
use crate::actors::gate::{self, Gate, TrustGate};
use crate::actors::hosts::{ByRules, Native, NoPacks, Permit};
use crate::actors::kept;
use crate::actors::link::{self, Link, ToLink};
use crate::actors::loader::{self, Loader, PackDesk};
use crate::actors::questions::Questions;
use crate::actors::run;
use crate::actors::runs::Runs;
use crate::control::{Control, Serving};
use crate::identity::{NoSlot, Slot, Use};
use crate::journal::{CallJournal, Journal, JournalFault};
use crate::native::{Asker, NativeEnv, NativeTools};
use crate::paths::Paths;
use crate::trust::Trust;

use hello::{hello, socket_url};

pub use crate::actors::catalogue::{Progress, Tool, ToolCall, ToolHost};
pub use crate::actors::connection::Connection;
pub use crate::actors::dial::{ByteStream, Dial};
pub use crate::actors::link::{Bearer, TokenSource};
pub use crate::actors::loader::{LoadSummary, PackState, PackStatus};

/// How long a stopping Foot waits for its running calls.
const FINISH_WITHIN: Duration = Duration::from_secs(5);
/// How long it waits for the Brain to take the results of these.
const DELIVER_WITHIN: Duration = Duration::from_secs(2);
/// How long the end of its line may take: the close waits behind what is being sent.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// Messages that wait for the table of calls: a full set of calls with their cancels, acks and progress.
const DISPATCHER_MAILBOX: usize = 4096;

/// Everything that a Foot is started with.
pub struct FootConfig {
    /// `$VANCE_HOME`, else `~/.vancetope`.
    pub home: PathBuf,
    /// The working directory.
    pub project_dir: PathBuf,
    /// Replaces the folder of global packs (`VANCE_FOOT_TOOLS_DIR`).
    pub packs_dir: Option<PathBuf>,
    /// The Brain; without one this run is local.
    pub brain_url: Option<Url>,
    /// Read at each attempt to connect.
    pub token: TokenSource,
    /// Attach to this session instead of the default one.
    pub session: Option<SessionId>,
    /// Serve these sessions, too.
    pub also_sessions: Vec<SessionId>,
    /// Make a new session and attach to it.
    pub new_session: bool,
    /// A name for people; without one the machine's.
    pub name: Option<String>,
    /// `cli`, `daemon`, …: for people.
    pub client_type: String,
    /// Do not look at the working directory's packs at all.
    pub no_local: bool,
    /// Offer nothing.
    pub no_tools: bool,
    /// Which packs are loaded.
    pub load: Load,
    /// A program whose `main` begins with [`crate::native::enter_if_asked`].
    pub guard_program: PathBuf,
    /// `permissions.yaml`.
    pub rules: Rules,
    /// Who answers questions, also of packs that come with the working directory; without one every question is answered with no.
    pub asker: Option<Arc<dyn Asker>>,
    /// Why there is nobody, for the words on what is refused.
    pub nobody: Nobody,
}

/// Which packs a Foot loads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Load {
    /// All that are wanted.
    #[default]
    All,
    /// The one of this name, for a call of one of its tools: nothing else is asked about or started.
    Only(String),
    /// None: native tools alone.
    Nothing,
}

/// Why a Foot does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No identity.
    #[error(transparent)]
    Slot(#[from] NoSlot),
    /// No journal.
    #[error(transparent)]
    Journal(#[from] JournalFault),
    /// The address is not one of a Brain.
    #[error("{url}: the Brain's address must be http://HOST:PORT or https://HOST:PORT")]
    Address {
        /// What was given.
        url: String,
    },
}

/// In place of what a Foot's program takes from its machine: for a Foot in a simulation.
pub struct Parts {
    /// Its identity.
    pub client_id: ClientId,
    /// Which life of that identity it is.
    pub life: u64,
    /// Its journal.
    pub journal: Arc<dyn CallJournal>,
    /// How it reaches the Brain.
    pub dial: Dial,
    /// All its tools.
    pub tools: Vec<Arc<Tool>>,
    /// The folder of what is too large to travel.
    pub blobs: Option<PathBuf>,
}

/// Who a Foot is, and what it stands on.
struct Base {
    client_id: ClientId,
    life: u64,
    state_dir: PathBuf,
    journal: Option<Arc<dyn CallJournal>>,
    dial: Dial,
    blobs: Option<PathBuf>,
    /// Held while the Foot lives.
    slot: Option<Slot>,
}

/// A call from this machine itself, without the Brain.
pub struct LocalCall {
    /// Its id.
    pub call_id: CallId,
    /// The tool's full name.
    pub tool: String,
    /// A JSON object.
    pub arguments: Raw,
    /// Without progress for this long it has failed; `None` is the default.
    pub timeout: Option<Duration>,
    /// Ends it before that.
    pub cancel: CancellationToken,
    /// Hears its progress.
    pub progress: Option<Progress>,
}

/// A running Foot. Ends with [`Foot::shutdown`]; dropped, its threads and children end with the process.
pub struct Foot {
    root: SupervisorRef,
    line: SupervisorRef,
    packs: SupervisorRef,
    dispatcher: ActorRef<Dispatcher>,
    link: ActorRef<Link>,
    native: Option<Arc<NativeTools>>,
    journal: Option<Arc<dyn CallJournal>>,
    runs: Arc<Runs>,
    catalogue: watch::Receiver<Arc<Catalogue>>,
    connection: watch::Receiver<Connection>,
    first_load: watch::Receiver<Option<Arc<LoadSummary>>>,
    client_id: ClientId,
    pack_desk: PackDesk,
    /// Before the slot, which its file lies in.
    _control: Option<Serving>,
    _slot: Option<Slot>,
}

/// Starts a Foot on the current thread, which must be an actor thread ([`vance_supervise::run`]). Returns at once: packs and
/// the Brain come when they come.
pub fn start(config: FootConfig) -> Result<Foot, StartError> {
    let paths = Paths::new(&config.home, &config.project_dir, config.packs_dir.as_deref());
    let slot = Slot::take(&paths.state, if config.brain_url.is_some() { Use::Client } else { Use::Local })?;
    let native = Arc::new(NativeTools::new(NativeEnv {
        home: config.home.clone(),
        project_dir: config.project_dir.clone(),
        state_dir: slot.dir().to_owned(),
        guard_program: config.guard_program.clone(),
        rules: config.rules.clone(),
        asker: config.asker.clone(),
    }));
    let own = if config.no_tools { Vec::new() } else { own_tools(&native) };
    let permit = Arc::new(ByRules(Arc::clone(&native)));
    assemble(config, &paths, slot, own, permit, Some(native))
}

fn own_tools(native: &Arc<NativeTools>) -> Vec<Arc<Tool>> {
    let host = Arc::new(Native(Arc::clone(native)));
    native.specs().into_iter().map(|spec| Arc::new(Tool { spec, host: host.clone() })).collect()
}

/// Files for requests of packs are read under the same rules as by the native tools.
pub(crate) fn reader(native: Arc<NativeTools>) -> ReadFile {
    ReadFile(Arc::new(move |path| {
        let native = Arc::clone(&native);
        Box::pin(async move { native.read_whole(path).await })
    }))
}

/// The same actors on parts of one's own, without packs and native tools.
pub fn start_with(config: FootConfig, parts: Parts) -> Result<Foot, StartError> {
    let paths = Paths::new(&config.home, &config.project_dir, config.packs_dir.as_deref());
    let Parts { client_id, life, journal, dial, tools, blobs } = parts;
    let state_dir = paths.state.clone();
    let base = Base { client_id, life, state_dir, journal: Some(journal), dial, blobs, slot: None };
    let config = FootConfig { no_tools: true, ..config };
    build(config, &paths, base, tools, Arc::new(NoPacks), None)
}

/// The Foot of a slot, with any tools in place of its own.
fn assemble(
    config: FootConfig,
    paths: &Paths,
    slot: Slot,
    own: Vec<Arc<Tool>>,
    permit: Arc<dyn Permit>,
    native: Option<Arc<NativeTools>>,
) -> Result<Foot, StartError> {
    let journal = match &config.brain_url {
        Some(_) => {
            Some(Arc::new(Journal::open(&slot.dir().join("journal.db"), !slot.is_new())?) as Arc<dyn CallJournal>)
        }
        None => None,
    };
    let (client_id, state_dir) = (slot.client_id().clone(), slot.dir().to_owned());
    let (life, blobs) = (slot.life(), Some(state_dir.join("blobs")));
    let base = Base { client_id, life, state_dir, journal, dial: dial::tcp(), blobs, slot: Some(slot) };
    build(config, paths, base, own, permit, native)
}

/// The tree of `actors`.
fn build(
    config: FootConfig,
    paths: &Paths,
    base: Base,
    own: Vec<Arc<Tool>>,
    permit: Arc<dyn Permit>,
    native: Option<Arc<NativeTools>>,
) -> Result<Foot, StartError> {
    let Base { client_id, life, state_dir, journal, dial, blobs, slot } = base;
    let runs = Arc::new(Runs::default());
    let (catalogue_tx, catalogue) = watch::channel(Arc::new(Catalogue::new(own.clone(), Vec::new())));
    let (connection_tx, connection) = watch::channel(match config.brain_url {
        Some(_) => Connection::Connecting,
        None => Connection::Local,
    });
    let (first_load_tx, first_load) = watch::channel(None);
    let (dispatcher, link) = (ActorRef::new("dispatcher"), ActorRef::new("link"));
    let terminal = config.asker.as_ref().and_then(|asker| asker.elicit());
    let brain = (config.brain_url.is_some() && journal.is_some()).then(|| dispatcher.clone());
    let elsewhere = config.asker.as_ref().and_then(|asker| asker.elsewhere());
    let questions = Arc::new(Questions::new(terminal, elsewhere, brain));

    let mut root = SupervisorSpec::new("foot");
    let line_ref = SupervisorRef::new();
    if let (Some(url), Some(open)) = (&config.brain_url, &journal) {
        let blobs = blobs.and_then(|dir| kept::open(&dir, &client_id));
        let calls = dispatcher::Shared {
            me: dispatcher.clone(),
            link: link.clone(),
            journal: Arc::clone(open),
            runs: Arc::clone(&runs),
            questions: Arc::clone(&questions),
            blobs: blobs.clone(),
            catalogue: catalogue.clone(),
        };
        let line = link::Shared {
            me: link.clone(),
            dispatcher: dispatcher.clone(),
            journal: Arc::clone(open),
            runs: Arc::clone(&runs),
            blobs,
            catalogue: catalogue.clone(),
            connection: connection_tx,
            url: socket_url(url)?,
            brain: vance_shared::show::plain(url.as_str().trim_end_matches('/')),
            token: Arc::clone(&config.token),
            dial,
            hello: ClientConnected { life: Some(life), ..hello(&config, &client_id) },
            made_session: Arc::new(OnceLock::new()),
            lines: Arc::default(),
        };
        let line = SupervisorSpec::new("line")
            .strategy(Strategy::RestForOne)
            .child(
                ChildSpec::actor(dispatcher.clone(), move |exit| Dispatcher::new(exit, calls.clone()))
                    .mailbox(DISPATCHER_MAILBOX),
            )
            .child(ChildSpec::actor(link.clone(), move |_| Link::new(line.clone())));
        root = root.child(ChildSpec::supervisor(line, line_ref.clone()));
    }

    let (servers, me) = (SupervisorRef::new(), ActorRef::new("loader"));
    let trust = Arc::new(Trust::new(&config.home, &config.project_dir));
    let trust_gate = gate::Shared {
        me: ActorRef::new("trust_gate"),
        trust: Arc::clone(&trust),
        person: config.asker.as_ref().and_then(|asker| Arc::clone(asker).consent()),
        nobody: config.nobody,
        own_packs: crate::packs::own_place(paths),
    };
    let gate = Gate(trust_gate.me.clone());
    // By itself: if it falls, what it was asked is answered with no, and no running pack falls with it.
    let root = root.child(ChildSpec::actor(trust_gate.me.clone(), move |_| TrustGate::new(trust_gate.clone())));
    let control = slot.as_ref().filter(|_| journal.is_some()).map(|slot| Control::open(slot.dir()));
    let pack_desk = PackDesk { loader: me.clone(), gate: gate.clone() };
    let packs = loader::Shared {
        me: me.clone(),
        gate,
        trust,
        servers: servers.clone(),
        own,
        permit,
        catalogue: catalogue_tx,
        first_load: first_load_tx,
        paths: paths.clone(),
        env: HostEnv {
            state_dir,
            logins_dir: paths.state.clone(),
            packs_dir: paths.global_packs.clone(),
            read_file: native.clone().map(reader),
            vault: None,
            project_dir: Some(config.project_dir.clone()),
            guard_program: config.guard_program.clone(),
            client_name: "vancetope".to_owned(),
            sandbox: native.as_ref().and_then(|native| native.sandbox()),
        },
        elicit: questions.people(),
        local: !config.no_local,
        load: if config.no_tools { Load::Nothing } else { config.load.clone() },
    };
    let packs = SupervisorSpec::new("packs")
        .strategy(Strategy::RestForOne)
        .child(ChildSpec::actor(me, move |_| Loader::new(packs.clone())))
        .child(ChildSpec::supervisor(SupervisorSpec::new("servers"), servers));
    let packs_ref = SupervisorRef::new();
    let root = SupervisorRef::start(root.child(ChildSpec::supervisor(packs, packs_ref.clone())));
    Ok(Foot {
        root,
        line: line_ref,
        packs: packs_ref,
        dispatcher,
        link,
        native,
        journal,
        runs,
        catalogue,
        connection,
        first_load,
        client_id,
        _control: control.map(|control| control.serve(pack_desk.clone())),
        pack_desk,
        _slot: slot,
    })
}

impl Foot {
    /// This process's identity.
    pub fn client_id(&self) -> &ClientId {
        &self.client_id
    }

    /// The tools as of now: the Foot's own first, then by name.
    pub fn tools(&self) -> Vec<ToolSpec> {
        self.catalogue.borrow().specs()
    }

    /// The tools, now and from here on.
    pub(crate) fn catalogue(&self) -> watch::Receiver<Arc<Catalogue>> {
        self.catalogue.clone()
    }

    /// Waits until each pack is up, has failed, or has had its time. Packs that come up later register by themselves.
    pub async fn first_load(&self) -> Arc<LoadSummary> {
        let mut first_load = self.first_load.clone();
        match first_load.wait_for(Option::is_some).await {
            Ok(summary) => summary.clone().unwrap_or_default(),
            // The loader is gone for good: there is nothing to wait for.
            Err(_) => Arc::default(),
        }
    }

    /// Reads the packs again: what has changed is replaced, what went away ends, all else goes on with its calls. Comes back when all is
    /// decided and up, failed, or has had its time.
    pub async fn reload(&self) -> Arc<LoadSummary> {
        self.pack_desk.reload().await
    }

    /// Every pack, with how it is.
    pub async fn packs(&self) -> Vec<PackStatus> {
        self.pack_desk.list().await
    }

    /// How the line to the Brain is, now and from here on.
    pub fn connection(&self) -> watch::Receiver<Connection> {
        self.connection.clone()
    }

    /// Waits until the Brain has answered: attached, or refused.
    pub async fn connected(&self) -> Connection {
        let mut connection = self.connection.clone();
        match connection.wait_for(|state| !matches!(state, Connection::Connecting)).await {
            Ok(state) => state.clone(),
            Err(_) => Connection::Refused { why: "this client stops".to_owned(), is_final: true },
        }
    }

    /// Runs a tool from here, without the Brain and without the journal.
    pub async fn call_local(&self, call: LocalCall) -> Outcome {
        let LocalCall { call_id, tool, arguments, timeout, cancel, progress } = call;
        let found = self.catalogue.borrow().find(&tool).cloned();
        let tool = match found {
            Ok(tool) => tool,
            Err(error) => return Outcome::Failed { error, result: None },
        };
        let timeout = timeout.unwrap_or(CALL_TIMEOUT);
        let cap = timeout.saturating_mul(PROGRESS_CAP);
        // The terminal, if there is one: the servers' own people.
        let person = Person::default();
        let (trace, keep) = (None, None);
        let job = run::Job { call_id, tool, arguments, timeout, cap, trace, cancel, person, keep };
        run::run(job, |(fraction, message)| {
            if let Some(progress) = &progress {
                progress(fraction, message);
            }
        })
        .await
    }

    /// Resolves when the Foot has given up on itself: a part of it fell too often. The program then ends with an error.
    pub async fn ended(&self) -> ExitReason {
        self.root.ended().await
    }

    /// Makes the `dispatcher`, the `link`, the `loader` or the `trust_gate` panic, for tests of what becomes of calls and tools.
    pub async fn strike(&self, part: &str) -> bool {
        self.line.strike(part).await || self.packs.strike(part).await || self.root.strike(part).await
    }

    /// Takes no new calls, lets the running ones finish for a moment, brings their results to the Brain, and ends everything that
    /// was started. A call that is still running then is reported as interrupted at the next start.
    pub async fn shutdown(self) {
        if self.journal.is_some() {
            if let Err(refusal) = self.dispatcher.tell(ToDispatcher::Drain) {
                tracing::debug!("the Brain is not told of the end: {refusal}");
            }
            if tokio::time::timeout(FINISH_WITHIN, self.runs.idle()).await.is_err() {
                tracing::warn!("calls are still running; they count as interrupted");
            }
            if self.is_online() && tokio::time::timeout(DELIVER_WITHIN, self.delivered()).await.is_err() {
                tracing::info!("the Brain has not taken every result; they are sent at the next start");
            }
            self.leave().await;
            // First the line: what ends from here on ends because we stop, and that is not the call's own outcome.
            self.root.stop_child("line").await;
        }
        if let Some(native) = &self.native {
            tokio::join!(native.shutdown(), self.root.shutdown());
        } else {
            self.root.shutdown().await;
        }
        if let Some(journal) = &self.journal
            && let Err(fault) = journal.flush().await
        {
            tracing::warn!("the journal is not complete: {fault}");
        }
    }

    /// The Brain hears that this Foot goes, and does not take it for a line that was cut.
    async fn leave(&self) {
        let (gone, closed) = oneshot::channel();
        if self.link.tell(ToLink::Leave { gone }).is_ok() && tokio::time::timeout(LEAVE_WITHIN, closed).await.is_err() {
            tracing::debug!("the Brain did not answer the close");
        }
    }

    fn is_online(&self) -> bool {
        matches!(*self.connection.borrow(), Connection::Online { .. })
    }

    /// Waits until no result waits for its ack.
    async fn delivered(&self) {
        while self.is_online() {
            match self.dispatcher.send(dispatcher::Unacked).await {
                Ok(0) | Err(_) => return,
                Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

mod hello;
#[cfg(test)]
mod tests;
