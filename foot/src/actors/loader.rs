//! Loads the packs: all at once, each for itself; keeps the tool table.
//!
//! ```text
//! load ─▶ [read folders, beside] ─▶ each wanted pack ─▶ trust gate ─┬─▶ as it runs already: kept, with its calls
//!                                                                  ├─▶ other than it runs: old one ends, then the new one starts
//!                                                                  └─▶ no: ends; the user's own pack below it counts
//! ```
//!
//! A load that is asked for while another one runs begins when that has ended, once for all who asked.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use vance_foot_core::merge::LeftOut;
use vance_foot_core::select::Wanted;
use vance_mcp_host::stamps::Stamps;
use vance_mcp_host::{Elicit, HostEnv, HostEvent, rest};
use vance_shared::launch::{LaunchPlan, TrustedLaunch};
use vance_shared::names::PackName;
use vance_shared::show::plain;
use vance_supervise::{Actor, ActorRef, AsyncContext as _, Context, Handler, Message, SupervisorRef};

use super::catalogue::{Catalogue, Tool};
use super::gate::{Decision, Gate};
use super::hosts::Permit;
use crate::engine::Load as Which;
use crate::packs::{self, Packs};
use crate::paths::Paths;
use crate::trust::Trust;

mod desk;
mod pack;
mod start;
mod status;
mod watcher;
pub(crate) use desk::PackDesk;
use pack::{Pack, State};
pub use status::{LoadSummary, PackState, PackStatus};

/// The target of log lines that a load's summary repeats: a command that prints the summary leaves them out.
pub(crate) const TOLD: &str = "vance_foot::actors::loader::told";
/// Changes of the table are collected this long: a server that announces a thousand changes a second costs fifty tables.
const COLLECT: Duration = Duration::from_millis(20);
/// Loads that wait for the one that runs.
const MAX_WAITING: usize = 64;

/// What a loader needs, and what outlives it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) me: ActorRef<Loader>,
    pub(crate) servers: SupervisorRef,
    pub(crate) gate: Gate,
    pub(crate) trust: Arc<Trust>,
    pub(crate) own: Vec<Arc<Tool>>,
    pub(crate) permit: Arc<dyn Permit>,
    pub(crate) catalogue: watch::Sender<Arc<Catalogue>>,
    pub(crate) first_load: watch::Sender<Option<Arc<LoadSummary>>>,
    pub(crate) paths: Paths,
    pub(crate) env: HostEnv,
    /// The person, for questions of servers.
    pub(crate) elicit: Option<Elicit>,
    /// Whether the working directory's packs are looked at.
    pub(crate) local: bool,
    /// Which packs.
    pub(crate) load: Which,
}

/// Hears how a load went.
pub(crate) type Told = oneshot::Sender<Arc<LoadSummary>>;

#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum ToLoader {
    /// Read everything again.
    Load(Told),
    /// How the packs are.
    List(oneshot::Sender<Vec<PackStatus>>),
    /// End a pack until the next load, as a revocation does. Says whether there was one.
    Stop { pack: PackName, tell: oneshot::Sender<bool> },
    /// The pack folders are read.
    Read(Box<Packs>),
    /// The gate has decided on a wanted pack: why not, and what is to run under its name.
    Decided { pack: String, refused: Option<LeftOut>, launch: Option<Box<TrustedLaunch>> },
    /// Something happened to a pack's server.
    Host { pack: String, start: u64, event: HostEvent, note: Option<String> },
    /// A pack's server could not even be put under supervision.
    NotStarted { pack: String, start: u64, why: String },
    /// A pack has had its time for the load.
    Overdue { pack: String, start: u64 },
    /// Nothing of a pack's former server is left.
    Gone { pack: String },
}

pub(crate) struct Loader {
    shared: Shared,
    packs: BTreeMap<String, Pack>,
    /// Packs whose former server still ends, and what is to start after it.
    ending: BTreeMap<String, Option<Box<TrustedLaunch>>>,
    skipped: Vec<LeftOut>,
    failed: Vec<LeftOut>,
    notices: Vec<String>,
    load: Option<Load>,
    /// Who asked while a load ran.
    next: Vec<Told>,
    starts: u64,
    collecting: bool,
    taken: watcher::Taken,
}

/// A load that runs.
struct Load {
    told: Vec<Told>,
    is_read: bool,
    undecided: usize,
}

impl Loader {
    pub(crate) fn new(shared: Shared) -> Self {
        Self {
            shared,
            packs: BTreeMap::new(),
            ending: BTreeMap::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
            notices: Vec::new(),
            load: None,
            next: Vec::new(),
            starts: 0,
            collecting: false,
            taken: watcher::Taken::default(),
        }
    }

    fn begin(&mut self, told: Vec<Told>) {
        self.load = Some(Load { told, is_read: false, undecided: 0 });
        let (shared, me, taken) = (self.shared.clone(), self.shared.me.clone(), Rc::clone(&self.taken));
        tokio::task::spawn_local(async move {
            shared.gate.begin_load().await;
            let reading = tokio::task::spawn_blocking(move || {
                // Looked at first: a change while they are read is news.
                let stamps = Stamps::of(packs::watched(&shared.paths, shared.local));
                (stamps, packs::read(&shared.paths, shared.local))
            });
            let packs = match reading.await {
                Ok((stamps, packs)) => {
                    taken.replace(Some(stamps));
                    packs
                }
                Err(error) => {
                    tracing::error!("the pack folders could not be read: {error}");
                    Packs::default()
                }
            };
            if let Err(refusal) = me.post(ToLoader::Read(Box::new(packs))).await {
                tracing::error!("the packs are not loaded: the loader is {refusal}");
            }
        });
    }

    fn read(&mut self, mut packs: Packs) {
        if let Which::Only(name) = &self.shared.load {
            packs.keep_only(name);
        }
        let odd = packs.warnings.iter().chain(&packs.unselected);
        odd.for_each(|problem| tracing::warn!("{problem}"));
        for problem in &packs.problems {
            match packs.failed.iter().any(|left_out| left_out.file == problem.file) {
                true => tracing::warn!(target: TOLD, "{problem}"),
                false => tracing::warn!("{problem}"),
            }
        }
        packs.notices.iter().for_each(|notice| tracing::warn!(target: TOLD, "NOTICE: {notice}"));
        packs.skipped.iter().for_each(skipped);
        let told = |l: &LeftOut| packs.problems.iter().any(|p| p.file == l.file);
        for left_out in packs.failed.iter().filter(|l| !told(l)) {
            let LeftOut { pack, file, reason } = left_out;
            tracing::warn!(target: TOLD, "pack '{pack}' from {file} is not loaded: {reason}");
        }
        let unselected = packs.unselected.iter().map(ToString::to_string);
        (self.skipped, self.failed) = (packs.skipped, packs.failed);
        self.notices = packs.notices.into_iter().chain(unselected).collect();
        let wanted = |name: &String| packs.wanted.iter().any(|wanted| wanted.plan.pack.as_str() == name);
        let unwanted: Vec<String> = self.packs.keys().filter(|name| !wanted(name)).cloned().collect();
        unwanted.iter().for_each(|name| self.end(name, None));
        for (name, after) in &mut self.ending {
            if !wanted(name) {
                *after = None;
            }
        }
        if let Some(load) = &mut self.load {
            (load.is_read, load.undecided) = (true, packs.wanted.len());
        }
        for wanted in packs.wanted {
            tokio::task::spawn_local(decide(self.shared.clone(), wanted));
        }
    }

    fn decided(
        &mut self,
        name: &str,
        refused: Option<LeftOut>,
        launch: Option<Box<TrustedLaunch>>,
        ctx: &mut Context<Self>,
    ) {
        if let Some(load) = &mut self.load {
            load.undecided = load.undecided.saturating_sub(1);
        }
        if let Some(left_out) = refused {
            skipped(&left_out);
            self.skipped.push(left_out);
        }
        match (self.packs.get(name), launch) {
            (Some(pack), Some(launch)) if pack.launch == *launch && !pack.is_failed() => {}
            (Some(_), launch) => self.end(name, launch),
            (None, Some(launch)) => match self.ending.get_mut(name) {
                Some(after) => *after = Some(launch),
                None => self.start(*launch, ctx),
            },
            (None, None) => {}
        }
    }

    /// Takes a pack's tools away now, lets its calls end for a while, then ends its server; `after` starts when nothing of it is left.
    fn end(&mut self, name: &str, after: Option<Box<TrustedLaunch>>) {
        let Some(pack) = self.packs.remove(name) else { return };
        let what = if after.is_some() { "replaced" } else { "ended" };
        tracing::info!("pack '{name}' is {what}");
        self.ending.insert(name.to_owned(), after);
        let (servers, me, pack_name) = (self.shared.servers.clone(), self.shared.me.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            pack.finish(&pack_name).await;
            servers.stop_child(&pack::supervisor(&pack_name)).await;
            if let Err(refusal) = me.post(ToLoader::Gone { pack: pack_name }).await {
                tracing::debug!("a pack has ended, and the loader is {refusal}");
            }
        });
    }

    fn host(&mut self, name: &str, start: u64, event: HostEvent, note: Option<String>) {
        // What an earlier server of this name says late is not about this one.
        let Some(pack) = self.packs.get_mut(name).filter(|pack| pack.start == start) else { return };
        pack.note = note;
        match event {
            HostEvent::Up { tools, warnings: _ } => {
                pack.offer(tools);
                tracing::info!("pack '{name}' is up with {} tool(s)", pack.tools.len());
            }
            HostEvent::ToolsChanged { tools } => {
                pack.offer(tools);
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

    fn publish(&mut self) {
        let tools = self.shared.own.iter().chain(self.packs.values().flat_map(|pack| &pack.tools)).map(Arc::clone);
        let starting =
            self.packs.iter().filter(|(_, pack)| matches!(pack.state, State::Loading(_))).map(|(name, _)| name);
        let restarting = self.ending.iter().filter(|(_, after)| after.is_some()).map(|(name, _)| name);
        let catalogue = Catalogue::new(tools, starting.chain(restarting).cloned().collect());
        self.shared.catalogue.send_replace(Arc::new(catalogue));
        self.finish_load();
    }

    /// The load is over when all is decided and each pack is up, has failed, or has had its time.
    fn finish_load(&mut self) {
        let is_settled = self.ending.values().all(Option::is_none) && self.packs.values().all(|pack| pack.is_settled);
        let Some(load) = self.load.take_if(|load| load.is_read && load.undecided == 0 && is_settled) else { return };
        let summary = Arc::new(self.summary());
        for told in load.told {
            // Who went away does not want to know.
            drop(told.send(Arc::clone(&summary)));
        }
        self.shared.first_load.send_if_modified(|first| first.replace(Arc::clone(&summary)).is_none());
        if !self.next.is_empty() {
            let told = std::mem::take(&mut self.next);
            self.begin(told);
        }
    }
}

fn skipped(left_out: &LeftOut) {
    let LeftOut { pack, file, reason } = left_out;
    tracing::warn!(target: TOLD, "pack '{pack}' from {file} is skipped: {reason}");
}

/// Takes a pack through the gate, and, if it may not pass, the user's own one below it.
async fn decide(Shared { gate, env, me: loader, .. }: Shared, Wanted { plan, fallback }: Wanted) {
    let (pack, file) = (plan.pack.to_string(), plan.source.file.clone());
    let decision = match gate.decide(plan, fallback.clone()).await {
        Ok(launch) => with_document(&gate, &env, launch).await,
        Err(reason) => Err(reason),
    };
    let (refused, launch) = match decision {
        Ok(launch) => (None, Some(launch)),
        Err(reason) => {
            let (below, reason) = match fallback {
                None => (None, reason),
                Some(below) => {
                    (passed(&gate, below).await, format!("{reason}; your global pack '{pack}' stays active"))
                }
            };
            (Some(LeftOut { pack: pack.clone(), file, reason }), below)
        }
    };
    let decided = ToLoader::Decided { pack, refused, launch: launch.map(Box::new) };
    if let Err(refusal) = loader.post(decided).await {
        tracing::debug!("a pack was decided on, and the loader is {refusal}");
    }
}

/// A yes to a pack is one to fetching its document. Where that leads beyond what the pack names is a question of its own; whoever says no to it, or
/// cannot be asked, has the pack without those hosts.
async fn with_document(gate: &Gate, env: &HostEnv, launch: TrustedLaunch) -> Decision {
    let Some(further) = rest::leads(&launch, env).await else { return Ok(launch) };
    match gate.decide(further, None).await {
        Ok(further) => Ok(further),
        Err(why) => {
            // The pack itself says what it cannot call and what to do, on each start.
            tracing::info!("pack '{}': {}", launch.plan().pack, plain(&why));
            // It may have been denied while that question stood there.
            gate.decide(launch.plan().clone(), None).await
        }
    }
}

async fn passed(gate: &Gate, plan: LaunchPlan) -> Option<TrustedLaunch> {
    let pack = plan.pack.clone();
    gate.decide(plan, None).await.inspect_err(|reason| tracing::warn!("pack '{pack}': {reason}")).ok()
}

impl Actor for Loader {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.shared.load == Which::Nothing {
            self.load = Some(Load { told: Vec::new(), is_read: true, undecided: 0 });
            return self.publish();
        }
        self.publish();
        ctx.spawn(actix::fut::wrap_future(watcher::watch(
            self.shared.paths.clone(),
            self.shared.local,
            Rc::clone(&self.taken),
        )));
        self.begin(Vec::new());
    }
}

impl Handler<ToLoader> for Loader {
    type Result = ();

    fn handle(&mut self, message: ToLoader, ctx: &mut Self::Context) {
        match message {
            ToLoader::Load(told) if self.shared.load == Which::Nothing => {
                drop(told.send(Arc::default()));
                return;
            }
            // Dropped, who asks hears that it was not done.
            ToLoader::Load(_) if self.next.len() >= MAX_WAITING => return,
            ToLoader::Load(told) if self.load.is_some() => return self.next.push(told),
            ToLoader::Load(told) => return self.begin(vec![told]),
            ToLoader::List(tell) => {
                drop(tell.send(self.statuses()));
                return;
            }
            ToLoader::Stop { pack, tell } => {
                let replacement = self.ending.get_mut(pack.as_str()).and_then(Option::take);
                let was_there = replacement.is_some() || self.packs.contains_key(pack.as_str());
                if was_there {
                    // Loud enough for a prompt: its tools are gone, and the person there may not be the one who took them away.
                    tracing::warn!(
                        "pack '{pack}' is stopped, for consent to it was taken back (`vancetope trust`); /tools reload asks again"
                    );
                }
                self.end(pack.as_str(), None);
                tell.send(was_there).unwrap_or_else(|_| tracing::debug!("nobody waits for the end of pack '{pack}'"));
            }
            ToLoader::Read(packs) => self.read(*packs),
            ToLoader::Decided { pack, refused, launch } => self.decided(&pack, refused, launch, ctx),
            ToLoader::Host { pack, start, event, note } => self.host(&pack, start, event, note),
            ToLoader::NotStarted { pack: name, start, why } => {
                if let Some(pack) = self.packs.get_mut(&name).filter(|pack| pack.start == start) {
                    pack.fail(&name, &why);
                }
            }
            ToLoader::Overdue { pack, start } => {
                if let Some(pack) = self.packs.get_mut(&pack).filter(|pack| pack.start == start) {
                    pack.is_settled = true;
                }
            }
            ToLoader::Gone { pack } => {
                if let Some(Some(launch)) = self.ending.remove(&pack) {
                    self.start(*launch, ctx);
                }
            }
        }
        self.changed(ctx);
    }
}
