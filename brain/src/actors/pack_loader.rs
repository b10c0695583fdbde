//! Reads the Brain's files again when they changed, and starts and ends the servers of packs.
//!
//! ```text
//! read, beside ─▶ what each good file says, and what each bad one said ─▶ registry, then
//!                 ├─▶ a pack as it runs already: kept, with its calls
//!                 ├─▶ other than it runs: its calls end, the old server is gone, the new one starts
//!                 └─▶ gone or turned off: its calls end, then its server
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use vance_mcp_host::{HostEnv, HostEvent};
use vance_observability::names::{METRIC_FILE_PROBLEMS, METRIC_RELOADS};
use vance_shared::launch::TrustedLaunch;
use vance_shared::names::PackName;
use vance_shared::pack::PackBody;
use vance_shared::secrets;
use vance_supervise::{
    Actor, ActorFutureExt as _, ActorRef, AsyncContext as _, ChildSpec, Context, Handler, Message, Refusal,
    SupervisorRef, WrapFuture as _,
};

use super::registry::{PackEvent, Reshape};
use crate::home::{self, Home, Loaded};
use crate::hub::{Brain, Files, now_ms};
use crate::kept::{Kept, Standing};
use crate::secrets::Vault;

mod watcher;

/// How long the calls of a pack that is replaced or taken away may go on. Longer ones end with their server.
const FINISH_WITHIN: Duration = Duration::from_secs(30);
/// Between two events of one server that are passed on: one that announces a thousand changes a second costs fifty.
const COLLECT: Duration = Duration::from_millis(20);
/// Until a registry that restarts is told again.
const SAY_AGAIN: Duration = Duration::from_millis(100);

/// What is the loader's and outlives it.
#[derive(Clone)]
pub struct Desk {
    brain: Brain,
    home: Home,
    vault: Vault,
    servers: SupervisorRef,
    /// Locked, because the loader after a fall goes on with what the one before it knew of files that are bad now.
    kept: Arc<Mutex<Kept>>,
    /// Starts of servers, over all loaders: what the servers of a loader that fell say late is not about those of the next one.
    starts: Arc<AtomicU64>,
}

impl Desk {
    /// Of a Brain's home; servers live below that supervisor.
    pub fn new(brain: Brain, home: Home, servers: SupervisorRef) -> Self {
        let vault = Vault::new(&home.data());
        Self { brain, home, vault, servers, kept: Arc::default(), starts: Arc::default() }
    }
}

/// What a loader hears.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum ToPackLoader {
    /// Read everything again.
    Reload,
    /// The files are read; `None`: that failed inside, and nothing is known.
    Read(Option<Box<Loaded>>),
    /// Nothing of a pack's former server is left.
    Gone {
        /// Which pack.
        pack: String,
    },
}

/// The actor.
pub struct PackLoader {
    desk: Desk,
    running: BTreeMap<String, Wanted>,
    /// Packs whose former server still ends, and what is to start after it.
    ending: BTreeMap<String, Option<Wanted>>,
    is_reading: bool,
    /// Something changed while the files were being read.
    again: bool,
}

/// What a server is made of. One that is made of the same runs already.
#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    launch: TrustedLaunch,
    /// Of the secrets that it names: other marks, other values.
    secrets: BTreeMap<String, u64>,
}

/// What is to be done about packs.
#[derive(Debug, Default)]
struct Changes {
    start: Vec<(String, Wanted)>,
    end: Vec<String>,
}

impl PackLoader {
    /// One that reads when it starts.
    pub fn new(desk: Desk) -> Self {
        let (running, ending) = (BTreeMap::new(), BTreeMap::new());
        Self { desk, running, ending, is_reading: false, again: false }
    }

    fn begin(&mut self) {
        if self.is_reading {
            self.again = true;
            return;
        }
        self.is_reading = true;
        let (home, me) = (self.desk.home.clone(), self.desk.brain.pack_loader.clone());
        tokio::task::spawn_local(async move {
            let read = tokio::task::spawn_blocking(move || home::load(&home)).await;
            let loaded = read.inspect_err(|error| tracing::error!("the Brain's files could not be read: {error}"));
            if let Err(refusal) = me.post(ToPackLoader::Read(loaded.ok().map(Box::new))).await {
                tracing::error!("the Brain's files are read, and the loader is {refusal}");
            }
        });
    }

    fn read(&mut self, loaded: &Loaded, ctx: &mut Context<Self>) {
        let (file, engines, packs) = {
            let mut kept = self.desk.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.take(&self.desk.home, loaded);
            self.say(loaded, |file| kept.standing(&self.desk.home, file));
            (kept.registry.clone(), kept.engines(), kept.packs().cloned().collect::<Vec<_>>())
        };
        let mut wanted = BTreeMap::new();
        for pack in packs.into_iter().filter(|pack| pack.enabled) {
            let PackBody::Launch(plan) = pack.body else { continue };
            match TrustedLaunch::own_home(plan) {
                Ok(launch) => {
                    let named = secrets::of_plan(launch.plan());
                    // A vault that cannot be read is no reason to end what runs: it has its values.
                    let secrets =
                        self.desk.vault.marks(&named).unwrap_or_else(|_| self.marks_before(&pack.name, &named));
                    wanted.insert(pack.name.to_string(), Wanted { launch, secrets });
                }
                Err(refusal) => tracing::error!(pack = %pack.name, "{refusal}"),
            }
        }
        let listed = self.desk.brain.registry.load().packs.keys().cloned().collect::<BTreeSet<_>>();
        let runs = self.running.keys().chain(self.ending.keys()).cloned();
        let end = listed.into_iter().chain(runs).filter(|name| !wanted.contains_key(name));
        let end = end.collect::<BTreeSet<_>>().into_iter().collect();
        let as_it_runs = |name: &str, launch: &Wanted| {
            let next = self.ending.get(name).and_then(Option::as_ref);
            self.running.get(name).or(next).is_some_and(|runs| runs == launch)
        };
        let start = wanted.into_iter().filter(|(name, launch)| !as_it_runs(name, launch)).collect();
        let changes = Changes { start, end };
        let coming = changes.start.iter().map(|(name, _)| name.clone()).collect();
        let reshape = Reshape { file, engines, coming, gone: changes.end.clone() };
        // First nothing is sent there any more, then it ends.
        let told = tell(self.desk.brain.clone(), reshape);
        ctx.wait(told.into_actor(self).map(|(), loader, _| loader.carry_out(changes)));
    }

    /// The secrets' marks with which a pack runs or is to start.
    fn marks_before(&self, pack: &PackName, named: &BTreeSet<String>) -> BTreeMap<String, u64> {
        let next = self.ending.get(pack.as_str()).and_then(Option::as_ref);
        let before = next.or_else(|| self.running.get(pack.as_str())).map(|wanted| &wanted.secrets);
        let mark = |name: &String| before.and_then(|marks| marks.get(name)).copied().unwrap_or_default();
        named.iter().map(|name| (name.clone(), mark(name))).collect()
    }

    /// Problems that are new, and how many there are.
    fn say(&self, loaded: &Loaded, standing: impl Fn(&str) -> Standing) {
        let brain = &self.desk.brain;
        let before = brain.files.load();
        for problem in loaded.problems.iter().filter(|problem| !before.problems.contains(problem)) {
            tracing::error!("{problem}; {}", standing(&problem.file));
        }
        if before.problems.is_empty() != loaded.problems.is_empty() && loaded.problems.is_empty() {
            tracing::info!("the Brain's files have no problems any more");
        }
        let restart = loaded.config.as_ref().is_some_and(|config| *config != brain.config);
        if restart && !before.needs_restart {
            tracing::warn!("brain.yaml is not what this Brain runs with: a restart takes it over");
        }
        #[allow(clippy::cast_precision_loss)] // a few files have a few problems
        metrics::gauge!(METRIC_FILE_PROBLEMS).set(loaded.problems.len() as f64);
        metrics::counter!(METRIC_RELOADS).increment(1);
        let files = Files { read_at: now_ms(), problems: loaded.problems.clone(), needs_restart: restart };
        brain.files.store(Arc::new(files));
    }

    fn carry_out(&mut self, changes: Changes) {
        for name in changes.end {
            let calls = self.desk.brain.executor.remove_pack(&name);
            if let Some(after) = self.ending.get_mut(&name) {
                *after = None;
            }
            self.end(&name, None, calls);
        }
        for (name, launch) in changes.start {
            let calls = self.desk.brain.executor.expect_pack(&name);
            match self.ending.get_mut(&name) {
                Some(after) => *after = Some(launch),
                None if self.running.contains_key(&name) => self.end(&name, Some(launch), calls),
                None => self.start(&name, launch),
            }
        }
    }

    /// Lets a pack's calls end for a while, then ends its server; `after` starts when nothing of it is left.
    fn end(&mut self, name: &str, after: Option<Wanted>, calls: Option<TaskTracker>) {
        if self.running.remove(name).is_none() {
            return;
        }
        tracing::info!(pack = name, "server pack is {}", if after.is_some() { "replaced" } else { "ended" });
        self.ending.insert(name.to_owned(), after);
        let (servers, me, pack) = (self.desk.servers.clone(), self.desk.brain.pack_loader.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            if let Some(calls) = calls
                && tokio::time::timeout(FINISH_WITHIN, calls.wait()).await.is_err()
            {
                let (calls, seconds) = (calls.len(), FINISH_WITHIN.as_secs());
                tracing::warn!(pack, calls, "calls still run after {seconds} s; they end with their server");
            }
            servers.stop_child(&supervisor(&pack)).await;
            if let Err(refusal) = me.post(ToPackLoader::Gone { pack }).await {
                tracing::debug!("a pack has ended, and the loader is {refusal}");
            }
        });
    }

    fn start(&mut self, name: &str, wanted: Wanted) {
        let start = self.desk.starts.fetch_add(1, Relaxed) + 1;
        let brain = &self.desk.brain;
        let env = HostEnv {
            state_dir: self.desk.home.brain(),
            logins_dir: self.desk.home.brain(),
            vault: Some(Arc::new(self.desk.vault.clone())),
            packs_dir: self.desk.home.brain().join("packs"),
            read_file: None,
            project_dir: None,
            guard_program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("vance-brain")),
            client_name: "vance-brain".to_owned(),
            sandbox: None,
        };
        let (latest, news) = watch::channel(None);
        let events = Arc::new(move |event: HostEvent| drop(latest.send_replace(Some(event))));
        let (handle, spec) =
            vance_mcp_host::server_with_people(wanted.launch.clone(), env, events, crate::questions::people());
        brain.executor.seat_pack(name, start, handle);
        self.running.insert(name.to_owned(), wanted);
        let ear = Ear { pack: name.to_owned(), start, brain: brain.clone() };
        tokio::task::spawn_local(ear.clone().pass_on(news));
        let (servers, child) = (self.desk.servers.clone(), ChildSpec::supervisor(spec, SupervisorRef::new()));
        tokio::task::spawn_local(async move {
            if let Err(error) = servers.start_child(child).await {
                ear.tell(HostEvent::Failed { reason: error.to_string() }).await;
            }
        });
    }
}

/// The name of a pack's supervisor among the servers, as the host gives it.
fn supervisor(pack: &str) -> String {
    format!("pack:{pack}")
}

/// Until it is taken: a registry that restarts keeps its table, but not what it was told meanwhile.
async fn tell(brain: Brain, change: Reshape) {
    while let Err(refusal) = brain.registry_actor.send(change.clone()).await {
        if refusal == Refusal::Stopped {
            return;
        }
        tokio::time::sleep(SAY_AGAIN).await;
    }
}

/// Hears of one server.
#[derive(Clone)]
struct Ear {
    pack: String,
    start: u64,
    brain: Brain,
}

impl Ear {
    /// Brings a server's latest state to the registry. Only the latest counts: each event says all that is so from then on.
    async fn pass_on(self, mut news: watch::Receiver<Option<HostEvent>>) {
        while news.changed().await.is_ok() {
            let event = news.borrow_and_update().clone();
            if let Some(event) = event {
                self.tell(event).await;
            }
            tokio::time::sleep(COLLECT).await;
        }
    }

    async fn tell(&self, event: HostEvent) {
        let message = PackEvent { pack: self.pack.clone(), start: self.start, event };
        // A registry that restarts asks the handles itself; what is new since then is told again.
        while let Err(refusal) = self.brain.registry_actor.post(message.clone()).await {
            if refusal == Refusal::Stopped {
                return;
            }
            tokio::time::sleep(SAY_AGAIN).await;
        }
    }
}

impl Actor for PackLoader {
    type Context = Context<Self>;

    /// Also after a fall: its servers have ended with it, and what is wanted is started again.
    fn started(&mut self, ctx: &mut Self::Context) {
        for name in self.desk.brain.registry.load().packs.keys() {
            drop(self.desk.brain.executor.expect_pack(name));
        }
        let me: ActorRef<Self> = self.desk.brain.pack_loader.clone();
        ctx.spawn(actix::fut::wrap_future(watcher::watch(self.desk.home.clone(), me)));
        self.begin();
    }
}

impl Handler<ToPackLoader> for PackLoader {
    type Result = ();

    fn handle(&mut self, message: ToPackLoader, ctx: &mut Self::Context) {
        match message {
            ToPackLoader::Reload => self.begin(),
            ToPackLoader::Read(loaded) => {
                self.is_reading = false;
                if let Some(loaded) = loaded {
                    self.read(&loaded, ctx);
                }
                if std::mem::take(&mut self.again) {
                    self.begin();
                }
            }
            ToPackLoader::Gone { pack } => {
                if let Some(Some(launch)) = self.ending.remove(&pack) {
                    self.start(&pack, launch);
                }
            }
        }
    }
}
