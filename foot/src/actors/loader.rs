//! Loads the packs: all at once, each for itself; keeps the tool table.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use vance_foot_core::merge::LeftOut;
use vance_mcp_host::{HostEnv, HostEvent, server};
use vance_shared::launch::{LaunchPlan, TrustedLaunch};
use vance_shared::show::plain;
use vance_shared::tool::ToolSpec;
use vance_shared::wire::{WireTool, encode};
use vance_supervise::{
    Actor, ActorRef, AsyncContext as _, ChildSpec, Context, Handler, Message, Refusal, SupervisorRef,
};

use super::announce::TOOL_BYTES;
use super::catalogue::{Catalogue, Tool, ToolHost};
use super::hosts::{Mcp, Permit};
use crate::packs::{self, Packs};
use crate::paths::Paths;

/// Changes of the table are collected this long: a server that announces a thousand changes a second costs fifty tables.
const COLLECT: Duration = Duration::from_millis(20);
/// Beyond a pack's own limit for its start, before the first load stops waiting for it.
const START_SLACK: Duration = Duration::from_secs(2);

/// What the first load came to. Packs that come up later register by themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// Packs that are up.
    pub loaded: Vec<String>,
    /// How many tools these offer.
    pub tools: usize,
    /// Not wanted, each with its reason.
    pub skipped: Vec<LeftOut>,
    /// Wanted but not up, each with its reason.
    pub failed: Vec<LeftOut>,
}

impl fmt::Display for LoadSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loaded, tools, skipped, failed } = self;
        write!(
            f,
            "loaded {} pack(s) → {tools} tool(s); {} skipped, {} failed",
            loaded.len(),
            skipped.len(),
            failed.len()
        )
    }
}

/// What a loader needs, and what outlives it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) me: ActorRef<Loader>,
    pub(crate) servers: SupervisorRef,
    pub(crate) own: Vec<Arc<Tool>>,
    pub(crate) permit: Arc<dyn Permit>,
    pub(crate) catalogue: watch::Sender<Arc<Catalogue>>,
    pub(crate) first_load: watch::Sender<Option<Arc<LoadSummary>>>,
    pub(crate) paths: Paths,
    pub(crate) env: HostEnv,
    /// Whether the working directory's packs are looked at.
    pub(crate) local: bool,
    /// No packs at all.
    pub(crate) no_packs: bool,
}

#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum ToLoader {
    /// The pack folders are read.
    Read(Box<Packs>),
    /// Something happened to a pack's server.
    Host { pack: String, event: HostEvent },
    /// A pack's server could not even be put under supervision.
    NotStarted { pack: String, why: String },
    /// A pack has had its time for the first load.
    Overdue { pack: String },
}

pub(crate) struct Loader {
    shared: Shared,
    packs: BTreeMap<String, Pack>,
    skipped: Vec<LeftOut>,
    failed: Vec<LeftOut>,
    is_read: bool,
    collecting: bool,
}

struct Pack {
    file: String,
    host: Arc<dyn ToolHost>,
    tools: Vec<Arc<Tool>>,
    state: State,
    /// The first load does not wait for it any more.
    settled: bool,
}

enum State {
    /// Starting, or starting again.
    Loading(Option<String>),
    Up,
    Failed(String),
}

impl Loader {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            packs: BTreeMap::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
            is_read: false,
            collecting: false,
        }
    }

    fn read(&mut self, packs: Packs, ctx: &mut Context<Self>) {
        for problem in &packs.problems {
            tracing::warn!("{problem}");
        }
        for warning in &packs.warnings {
            tracing::warn!("{warning}");
        }
        for left_out in &packs.skipped {
            tracing::warn!("pack '{}' from {} is skipped: {}", left_out.pack, left_out.file, left_out.reason);
        }
        let told = |l: &LeftOut| packs.problems.iter().any(|p| p.file == l.file);
        for left_out in packs.failed.iter().filter(|l| !told(l)) {
            tracing::warn!("pack '{}' from {} is not loaded: {}", left_out.pack, left_out.file, left_out.reason);
        }
        self.skipped = packs.skipped;
        self.failed = packs.failed;
        for (file, plan) in packs.plans {
            self.start(file, plan, ctx);
        }
        self.is_read = true;
        self.publish();
    }

    fn start(&mut self, file: String, plan: LaunchPlan, ctx: &mut Context<Self>) {
        let pack = plan.pack.to_string();
        let overdue = plan.init_timeout + START_SLACK;
        let launch = match TrustedLaunch::own_home(plan) {
            Ok(launch) => launch,
            Err(untrusted) => {
                tracing::warn!("{untrusted}");
                self.skipped.push(LeftOut { pack, file, reason: untrusted.to_string() });
                return;
            }
        };
        let (latest, news) = watch::channel(None);
        let name = pack.clone();
        let events = Arc::new(move |event| {
            if let HostEvent::Up { warnings, .. } = &event {
                for warning in warnings {
                    tracing::warn!("pack '{name}': {}", plain(warning));
                }
            }
            latest.send_replace(Some(event));
        });
        tokio::task::spawn_local(pass_on(news, pack.clone(), self.shared.me.clone()));
        let (handle, spec) = server(launch, self.shared.env.clone(), events);
        let host = Arc::new(Mcp { handle, permit: Arc::clone(&self.shared.permit) });
        let state = State::Loading(None);
        self.packs.insert(pack.clone(), Pack { file, host, tools: Vec::new(), state, settled: false });

        let child = ChildSpec::supervisor(spec, SupervisorRef::new());
        let (servers, loader, name) = (self.shared.servers.clone(), self.shared.me.clone(), pack.clone());
        tokio::task::spawn_local(async move {
            if let Err(error) = servers.start_child(child).await
                && let Err(refusal) = loader.post(ToLoader::NotStarted { pack: name, why: error.to_string() }).await
            {
                tracing::warn!("a pack was not started ({error}), and the loader is {refusal}");
            }
        });
        ctx.notify_later(ToLoader::Overdue { pack }, overdue);
    }

    fn host(&mut self, name: &str, event: HostEvent) {
        let Some(pack) = self.packs.get_mut(name) else { return };
        match event {
            HostEvent::Up { tools, warnings: _ } => {
                pack.offer(tools);
                pack.settled = true;
                tracing::info!("pack '{name}' is up with {} tool(s)", pack.tools.len());
            }
            HostEvent::ToolsChanged { tools } => {
                pack.offer(tools);
                pack.settled = true;
                tracing::info!("pack '{name}' has {} tool(s) now", pack.tools.len());
            }
            HostEvent::Down { reason } => {
                tracing::info!("pack '{name}' is down and will be started again: {}", plain(&reason));
                pack.tools.clear();
                pack.state = State::Loading(Some(plain(&reason)));
            }
            HostEvent::Failed { reason } => pack.fail(name, &reason),
        }
    }

    /// One table for all that happens within a moment.
    fn changed(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.collecting, true) {
            ctx.run_later(COLLECT, |loader, _| {
                loader.collecting = false;
                loader.publish();
            });
        }
    }

    fn publish(&self) {
        let tools = self.shared.own.iter().chain(self.packs.values().flat_map(|pack| &pack.tools)).map(Arc::clone);
        let loading = self.packs.iter().filter(|(_, pack)| matches!(pack.state, State::Loading(_)));
        let catalogue = Catalogue::new(tools, loading.map(|(name, _)| name.clone()).collect());
        self.shared.catalogue.send_replace(Arc::new(catalogue));
        if self.is_read && self.shared.first_load.borrow().is_none() && self.packs.values().all(|pack| pack.settled) {
            self.shared.first_load.send_replace(Some(Arc::new(self.summary())));
        }
    }

    fn summary(&self) -> LoadSummary {
        let mut summary =
            LoadSummary { skipped: self.skipped.clone(), failed: self.failed.clone(), ..LoadSummary::default() };
        for (name, pack) in &self.packs {
            let reason = match &pack.state {
                State::Up => {
                    summary.loaded.push(name.clone());
                    summary.tools += pack.tools.len();
                    continue;
                }
                State::Failed(reason) => reason.clone(),
                State::Loading(Some(reason)) => format!("{reason}; it is started again"),
                State::Loading(None) => "it has not answered yet; it registers when it does".to_owned(),
            };
            summary.failed.push(LeftOut { pack: name.clone(), file: pack.file.clone(), reason });
        }
        summary
    }
}

/// Brings a server's latest state to the loader. Only the latest counts: each event says all that is so from then on, and so
/// a flood of them costs nothing and none that matters is lost.
async fn pass_on(mut news: watch::Receiver<Option<HostEvent>>, pack: String, loader: ActorRef<Loader>) {
    while news.changed().await.is_ok() {
        let Some(event) = news.borrow_and_update().clone() else { continue };
        while let Err(refusal) = loader.send(ToLoader::Host { pack: pack.clone(), event: event.clone() }).await {
            if refusal == Refusal::Stopped {
                return;
            }
            tokio::time::sleep(COLLECT).await;
        }
    }
}

impl Pack {
    fn offer(&mut self, tools: Vec<ToolSpec>) {
        self.state = State::Up;
        self.tools = tools
            .into_iter()
            .filter(|spec| {
                let bytes = encode(&WireTool::from(spec)).len();
                if bytes > TOOL_BYTES {
                    tracing::warn!(
                        "tool {} is not offered: its description has {bytes} bytes, at most {TOOL_BYTES} travel",
                        spec.name
                    );
                }
                bytes <= TOOL_BYTES
            })
            .map(|spec| Arc::new(Tool { spec, host: Arc::clone(&self.host) }))
            .collect();
    }

    fn fail(&mut self, name: &str, reason: &str) {
        let reason = plain(reason);
        tracing::warn!("pack '{name}' has failed: {reason}");
        self.tools.clear();
        self.state = State::Failed(reason);
        self.settled = true;
    }
}

impl Actor for Loader {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.shared.no_packs {
            self.is_read = true;
            return self.publish();
        }
        self.publish();
        let (paths, local, loader) = (self.shared.paths.clone(), self.shared.local, self.shared.me.clone());
        let reading = tokio::task::spawn_blocking(move || packs::read(&paths, local));
        ctx.spawn(actix::fut::wrap_future(async move {
            let packs = match reading.await {
                Ok(packs) => packs,
                Err(error) => {
                    tracing::error!("the pack folders could not be read: {error}");
                    Packs::default()
                }
            };
            if let Err(refusal) = loader.post(ToLoader::Read(Box::new(packs))).await {
                tracing::error!("the packs are not loaded: the loader is {refusal}");
            }
        }));
    }
}

impl Handler<ToLoader> for Loader {
    type Result = ();

    fn handle(&mut self, message: ToLoader, ctx: &mut Self::Context) {
        match message {
            ToLoader::Read(packs) => return self.read(*packs, ctx),
            ToLoader::Host { pack, event } => self.host(&pack, event),
            ToLoader::NotStarted { pack: name, why } => {
                if let Some(pack) = self.packs.get_mut(&name) {
                    pack.fail(&name, &why);
                }
            }
            ToLoader::Overdue { pack } => {
                if let Some(pack) = self.packs.get_mut(&pack) {
                    pack.settled = true;
                }
            }
        }
        self.changed(ctx);
    }
}
