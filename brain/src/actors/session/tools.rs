//! The tools of a session's clients: what is taken, what is refused and why, and what becomes of both when the registry changes.

use vance_brain_core::registry::Registry;
use vance_brain_core::session::{Input, Tools, take_tools};
use vance_shared::ids::ClientId;
use vance_shared::names::ToolName;
use vance_shared::wire::{self, ErrorFrame, Refused, ToFoot, WireTool};
use vance_supervise::{Context, Handler, Message};

use super::SessionActor;

/// Tools of one client that wait for the registry to let them in. More are refused for good.
const MAX_WITHHELD: usize = 1_000;

/// What was not taken of one client.
#[derive(Debug, Default)]
pub(super) struct NotTaken {
    /// All, with reasons.
    refused: Vec<Refused>,
    /// Those that the registry keeps out: it may change.
    withheld: Vec<WireTool>,
}

/// Message: the registry says something else of names now.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Rejudge;

/// Why the registry keeps a tool out.
fn against(registry: &Registry, name: &str) -> Option<String> {
    registry.refuses(&ToolName::parse(name).ok()?)
}

impl SessionActor {
    /// Takes what it can of what a client reports; gives what is refused of it.
    pub(super) fn take(
        &mut self,
        client_id: &ClientId,
        before: &Tools,
        mut removed: Vec<String>,
        added: Vec<WireTool>,
    ) -> (Tools, Vec<Refused>) {
        let registry = self.brain.registry.load();
        let (out, added): (Vec<WireTool>, Vec<WireTool>) =
            added.into_iter().partition(|tool| against(&registry, &tool.name).is_some());
        removed.extend(out.iter().map(|tool| tool.name.clone()));
        let named: Vec<String> = removed.iter().cloned().chain(added.iter().map(|t| t.name.clone())).collect();
        let (tools, mut refused) = take_tools(&registry, before, &removed, added);
        let reason =
            |tool: &WireTool| Some(Refused { name: tool.name.clone(), reason: against(&registry, &tool.name)? });
        refused.extend(out.iter().filter_map(reason));
        let kept = self.not_taken.entry(client_id.clone()).or_default();
        kept.refused.retain(|r| !named.contains(&r.name));
        kept.withheld.retain(|t| !named.contains(&t.name));
        kept.refused.extend(refused.iter().cloned());
        kept.withheld.extend(out);
        kept.withheld.truncate(MAX_WITHHELD);
        self.show_refused();
        (tools, refused)
    }

    /// A client that says hello begins anew.
    pub(super) fn forget_refused(&mut self, client_id: &ClientId) {
        self.not_taken.remove(client_id);
    }

    /// Clients that are here no more are not spoken of.
    pub(super) fn forget_those_who_left(&mut self) {
        let before = self.not_taken.len();
        self.not_taken.retain(|client_id, _| self.machine.tools_of(client_id).is_some());
        if self.not_taken.len() != before {
            self.show_refused();
        }
    }

    fn show_refused(&mut self) {
        self.not_taken.retain(|_, kept| !kept.refused.is_empty());
        let shown = self.not_taken.iter().map(|(id, kept)| (id.clone(), kept.refused.clone())).collect();
        self.handle.show_refused(shown);
    }

    pub(super) fn tools_changed(
        &mut self,
        client_id: ClientId,
        epoch: u64,
        change: wire::ToolsChanged,
        ctx: &mut Context<Self>,
    ) {
        if !self.machine.holds(&client_id, epoch) {
            return;
        }
        let added = change.added.into_iter().chain(change.changed).collect();
        let loading = change.loading.map(|l| l.into_iter().collect());
        self.change_tools(client_id, epoch, change.removed, added, loading, ctx);
    }

    fn change_tools(
        &mut self,
        client_id: ClientId,
        epoch: u64,
        removed: Vec<String>,
        added: Vec<WireTool>,
        loading: Option<std::collections::BTreeSet<String>>,
        ctx: &mut Context<Self>,
    ) {
        let Some((before, still_loading)) = self.machine.tools_of(&client_id) else { return };
        let (tools, refused) = self.take(&client_id, &before, removed, added);
        for Refused { name, reason } in refused {
            let error = ErrorFrame { code: "tool_refused".to_owned(), message: reason, id: Some(name) };
            self.send(&client_id, ToFoot::Error(error));
        }
        self.brain.directory.learn(&self.brain, &self.handle, &tools);
        let loading = loading.unwrap_or(still_loading);
        self.turn(Input::Tools { client_id, epoch, tools, loading }, ctx);
    }
}

impl Handler<Rejudge> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: Rejudge, ctx: &mut Self::Context) {
        let clients: Vec<(ClientId, u64)> = self.links.iter().map(|(id, link)| (id.clone(), link.epoch)).collect();
        for (client_id, epoch) in clients {
            if !self.machine.holds(&client_id, epoch) {
                continue;
            }
            let Some((tools, _)) = self.machine.tools_of(&client_id) else { continue };
            let registry = self.brain.registry.load();
            // Said anew by us in the client's place: those that may not stay, and those that may come now.
            let mut again: Vec<WireTool> = tools
                .iter()
                .filter(|(name, _)| registry.refuses(name).is_some())
                .map(|(_, spec)| WireTool::from(&**spec))
                .collect();
            let withheld = self.not_taken.get(&client_id).map(|kept| kept.withheld.as_slice()).unwrap_or_default();
            again.extend(withheld.iter().filter(|tool| against(&registry, &tool.name).is_none()).cloned());
            drop(registry);
            if !again.is_empty() {
                self.change_tools(client_id, epoch, Vec::new(), again, None, ctx);
            }
        }
    }
}
