//! Owns the tool table: folds what server packs say into a new snapshot and publishes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use vance_brain_core::registry::{Registry, ServerSide};
use vance_brain_core::spec::{EngineSpec, RegistryFile};
use vance_mcp_host::{HostEvent, HostState};
use vance_shared::tool::ToolSpec;
use vance_supervise::{Actor, Context, Handler, Message};

use super::scheduler::ServerToolsChanged;
use super::session::Rejudge;
use crate::hub::Brain;

/// Message: something happened to a server pack.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct PackEvent {
    /// Which pack.
    pub pack: String,
    /// Which start of its server.
    pub start: u64,
    /// What happened.
    pub event: HostEvent,
}

/// Message: files changed.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "()")]
pub struct Reshape {
    /// `tools.yaml`.
    pub file: RegistryFile,
    /// Engines by id.
    pub engines: BTreeMap<String, EngineSpec>,
    /// Packs that will come, new or in place of what they were.
    pub coming: Vec<String>,
    /// Packs that are there no more.
    pub gone: Vec<String>,
}

/// The actor.
pub struct RegistryActor {
    brain: Brain,
}

impl RegistryActor {
    /// An actor that writes the hub's snapshot.
    pub fn new(brain: Brain) -> Self {
        Self { brain }
    }

    /// Of one pack, or of the whole table.
    fn publish(&self, pack: Option<&str>, change: impl FnOnce(&mut Registry)) {
        let mut next = Registry::clone(&self.brain.registry.load());
        change(&mut next);
        next.revision += 1;
        let before = self.brain.registry.swap(Arc::new(next));
        let now = self.brain.registry.load();
        if before.file != now.file || !before.server_tools.keys().eq(now.server_tools.keys()) {
            // Whose name a client's tool may have is another question now. One that restarts asks it when its clients are back.
            for session in self.brain.directory.loaded() {
                session.actor.tell(Rejudge).ok();
            }
        }
        // Not taken while the scheduler restarts: it then reads this snapshot.
        self.brain.scheduler.tell(ServerToolsChanged(pack.map(str::to_owned))).ok();
    }
}

fn replace_tools(registry: &mut Registry, pack: &str, tools: Vec<ToolSpec>) {
    registry.server_tools.retain(|_, spec| spec.pack.as_deref() != Some(pack));
    for tool in tools {
        registry.server_tools.insert(tool.name.clone(), Arc::new(tool));
    }
}

fn set(registry: &mut Registry, pack: &str, side: ServerSide) {
    registry.packs.insert(pack.to_owned(), side);
}

impl Actor for RegistryActor {
    type Context = Context<Self>;

    /// Also after a restart: packs go on meanwhile, so their handles are asked.
    fn started(&mut self, _: &mut Self::Context) {
        let packs: Vec<String> = self.brain.registry.load().packs.keys().cloned().collect();
        for pack in packs {
            let Some(handle) = self.brain.executor.pack(&pack) else { continue };
            if handle.state() == HostState::Up {
                let tools = handle.tools().to_vec();
                self.publish(Some(&pack), |registry| {
                    replace_tools(registry, &pack, tools);
                    set(registry, &pack, ServerSide::Up);
                });
            }
        }
    }
}

impl Handler<PackEvent> for RegistryActor {
    type Result = ();

    fn handle(&mut self, PackEvent { pack, start, event }: PackEvent, _: &mut Self::Context) {
        if !self.brain.executor.is_current(&pack, start) {
            return;
        }
        match event {
            HostEvent::Up { tools, warnings } => {
                for warning in warnings {
                    tracing::warn!(pack, "{warning}");
                }
                tracing::info!(pack, tools = tools.len(), "server pack is up");
                self.publish(Some(&pack), |registry| {
                    replace_tools(registry, &pack, tools);
                    set(registry, &pack, ServerSide::Up);
                });
            }
            // The latest event says all: what it was up with is not told besides.
            HostEvent::ToolsChanged { tools } => self.publish(Some(&pack), |registry| {
                replace_tools(registry, &pack, tools);
                set(registry, &pack, ServerSide::Up);
            }),
            HostEvent::Down { reason } => {
                tracing::warn!(pack, reason, "server pack is down and will be started again");
                self.publish(Some(&pack), |registry| set(registry, &pack, ServerSide::Starting));
            }
            HostEvent::Failed { reason } => {
                tracing::error!(pack, reason, "server pack failed; it is tried again now and then");
                let reason = format!("server pack '{pack}' failed: {reason}");
                self.publish(Some(&pack), |registry| set(registry, &pack, ServerSide::Down { reason }));
            }
        }
    }
}

impl Handler<Reshape> for RegistryActor {
    type Result = ();

    fn handle(&mut self, change: Reshape, _: &mut Self::Context) {
        let Reshape { file, engines, coming, gone } = change;
        let now = self.brain.registry.load();
        if now.file == file && now.engines == engines && coming.is_empty() && gone.is_empty() {
            return;
        }
        self.publish(None, |registry| {
            (registry.file, registry.engines) = (file, engines);
            for pack in gone {
                registry.packs.remove(&pack);
                replace_tools(registry, &pack, Vec::new());
            }
            for pack in coming {
                // What the former server offered may be others' tools now; nothing runs before the new one has said what it has.
                replace_tools(registry, &pack, Vec::new());
                set(registry, &pack, ServerSide::Starting);
            }
        });
    }
}
