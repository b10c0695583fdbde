//! Where a call runs: one pure function on a registry snapshot.
//!
//! Order of constraints: the engine's tool set, the tool's location, the task's `execution_target`, presence, the offline
//! strategy (task, engine, tool entry, default: `block`, in an autonomous session `queue`).

use vance_shared::call::Fault;
use vance_shared::ids::ClientId;
use vance_shared::names::ToolName;

use crate::registry::{ClientView, KnownTool, Registry, ServerSide, SessionView, engine_sides, selects};
use crate::spec::{EngineSpec, ExecutionTarget, Location, OfflineStrategy, Side};

/// A `fallback_tool` may itself have one; longer chains are a mistake.
pub const MAX_FALLBACK_HOPS: usize = 4;

/// What the task brings to the decision.
#[derive(Debug, Clone, Default)]
pub struct Wish<'a> {
    /// Where the task wants to run.
    pub target: ExecutionTarget,
    /// The task's `tools`, if it has the list.
    pub tools: Option<&'a [String]>,
    /// The engine's sets.
    pub engine: Option<&'a EngineSpec>,
    /// The task's own strategy.
    pub strategy: Option<OfflineStrategy>,
    /// The session expects no client.
    pub autonomous: bool,
    /// A client that the task names.
    pub client: Option<&'a str>,
    /// The client that submitted the task.
    pub submitted_by: Option<&'a ClientId>,
    /// The client that ran this task's calls so far.
    pub served_by: Option<&'a ClientId>,
    /// Another machine may go on.
    pub any_client: bool,
}

/// Where the call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The server runs `tool` (its name there).
    Server {
        /// Name among the server's tools.
        tool: ToolName,
    },
    /// This client runs `tool` (its name there).
    Client {
        /// Who.
        client_id: ClientId,
        /// Name among the client's tools.
        tool: ToolName,
    },
    /// The task waits, blocked.
    Block,
    /// The task waits in the session's queue.
    Queue,
    /// The task is skipped.
    Skip,
    /// It cannot run.
    Fail(Fault),
}

/// Decides for a tool, following `fallback_tool`s.
pub fn decide(registry: &Registry, view: &SessionView, wish: &Wish<'_>, name: &ToolName) -> Decision {
    let mut path = vec![name.clone()];
    loop {
        let current = path[path.len() - 1].clone();
        match hop(registry, view, wish, &current, path.len() == 1) {
            Hop::Is(decision) => return decision,
            Hop::Alternative(next) => {
                let cycle = path.contains(&next);
                path.push(next);
                if cycle || path.len() > MAX_FALLBACK_HOPS + 1 {
                    let shown: Vec<&str> = path.iter().map(ToolName::as_str).collect();
                    let what = if cycle { "goes in a circle" } else { "is too long" };
                    let message = format!("the chain of fallback_tool {what}: {}", shown.join(" -> "));
                    return Decision::Fail(Fault::new("fallback_chain", message));
                }
            }
        }
    }
}

enum Hop {
    Is(Decision),
    Alternative(ToolName),
}

fn fail(code: &str, message: String) -> Hop {
    Hop::Is(Decision::Fail(Fault::new(code, message)))
}

/// `asked`: the task itself named the tool (an alternative need not stand in the task's list).
fn hop(registry: &Registry, view: &SessionView, wish: &Wish<'_>, name: &ToolName, asked: bool) -> Hop {
    let Some(known) = registry.lookup(view, name) else {
        let near = registry.nearest(view, name.as_str()).join(", ");
        return fail("unknown_tool", format!("unknown tool: {name} (nearest: {near})"));
    };
    if asked && wish.tools.is_some_and(|list| !selects(list, name, &known)) {
        return fail("tool_not_listed", format!("tool {name} is not in the task's `tools`; add it there"));
    }
    let Some(mut sides) = engine_sides(wish.engine, name, &known) else {
        let engine = wish.engine.map_or("", |e| e.id.as_str());
        return fail("unknown_tool", format!("unknown tool: {name} is not in the tool sets of engine {engine}"));
    };
    let auto_fallback = wish.engine.is_some_and(|e| e.auto_fallback);
    let strategy = strategy(wish, &known);
    if auto_fallback && matches!(known.location, Location::Both { .. }) && !sides.contains(&Side::Server) {
        sides.push(Side::Server);
    }
    let by_location = sides_of(known.location);
    sides.retain(|side| by_location.contains(side));
    if sides.is_empty() {
        let message =
            format!("tool {name} has location {}, which the engine's tool sets do not allow", known.location.word());
        return fail("engine_contradiction", message);
    }
    if let Some(only) = required(wish.target) {
        sides.retain(|side| *side == only);
        if sides.is_empty() {
            return fail("target_contradiction", contradiction(wish.target, name, known.location));
        }
    }
    let may_switch = auto_fallback || strategy == OfflineStrategy::Fallback || wish.target == ExecutionTarget::Any;
    place(view, wish, name, &known, &sides, strategy, may_switch)
}

fn place(
    view: &SessionView,
    wish: &Wish<'_>,
    name: &ToolName,
    known: &KnownTool,
    sides: &[Side],
    strategy: OfflineStrategy,
    may_switch: bool,
) -> Hop {
    let server = known.server.as_ref().filter(|_| sides.contains(&Side::Server));
    let on_server = server.filter(|(_, side)| !matches!(side, ServerSide::Down { .. }));
    let run_on_server = || on_server.map(|(tool, _)| Hop::Is(Decision::Server { tool: tool.clone() }));
    let run_on_client = || {
        let client = sides.contains(&Side::Client).then(|| pick(view, wish, &known.client_name)).flatten()?;
        Some(Hop::Is(Decision::Client { client_id: client.client_id.clone(), tool: known.client_name.clone() }))
    };
    let prefers_client = matches!(known.location, Location::Client | Location::Both { prefer: Side::Client });
    let first = if prefers_client { run_on_client().or_else(run_on_server) } else { run_on_server() };
    if let Some(hop) = first {
        return hop;
    }
    // The server's side is preferred (or the only one) and down; a client stands in only if somebody allowed that.
    let only_client = !sides.contains(&Side::Server);
    if !prefers_client
        && (may_switch || only_client)
        && let Some(hop) = run_on_client()
    {
        return hop;
    }
    match (strategy, &known.fallback_tool) {
        (OfflineStrategy::Fallback, Some(next)) => Hop::Alternative(next.clone()),
        _ if known.location == Location::Server || (!prefers_client && !may_switch && !only_client) => {
            let reason = match server {
                Some((_, ServerSide::Down { reason })) => reason.clone(),
                _ => "the server's side is not there".to_owned(),
            };
            fail("server_unavailable", format!("tool {name} cannot run on the server: {reason}"))
        }
        (OfflineStrategy::Skip, _) => Hop::Is(Decision::Skip),
        (OfflineStrategy::Queue, _) => Hop::Is(Decision::Queue),
        // Fallback without an alternative waits like the default.
        (OfflineStrategy::Block, _) => Hop::Is(Decision::Block),
        (OfflineStrategy::Fallback, None) => Hop::Is(if wish.autonomous { Decision::Queue } else { Decision::Block }),
    }
}

/// Task, engine, tool entry, default.
fn strategy(wish: &Wish<'_>, known: &KnownTool) -> OfflineStrategy {
    let default = if wish.autonomous { OfflineStrategy::Queue } else { OfflineStrategy::Block };
    wish.strategy.or(wish.engine.and_then(|e| e.offline_strategy)).or(known.offline_strategy).unwrap_or(default)
}

fn sides_of(location: Location) -> &'static [Side] {
    match location {
        Location::Server => &[Side::Server],
        Location::Client => &[Side::Client],
        Location::Both { .. } => &[Side::Server, Side::Client],
    }
}

fn required(target: ExecutionTarget) -> Option<Side> {
    match target {
        ExecutionTarget::Server => Some(Side::Server),
        ExecutionTarget::Client => Some(Side::Client),
        ExecutionTarget::Auto | ExecutionTarget::Any => None,
    }
}

fn contradiction(target: ExecutionTarget, name: &ToolName, location: Location) -> String {
    let word = if target == ExecutionTarget::Server { "server" } else { "client" };
    format!("execution_target is {word}, but tool {name} has location {}", location.word())
}

/// The facts that contradict each other whatever the presence, at submission: target against location.
pub fn contradicts(known: &KnownTool, target: ExecutionTarget, name: &ToolName) -> Option<Fault> {
    let only = required(target)?;
    (!sides_of(known.location).contains(&only))
        .then(|| Fault::new("target_contradiction", contradiction(target, name, known.location)))
}

/// The client that gets the call: the one that the task names > the one that ran its calls so far (no other machine, unless
/// the task allows it) > the one that submitted it > the most recently active.
fn pick<'v>(view: &'v SessionView, wish: &Wish<'_>, tool: &ToolName) -> Option<&'v ClientView> {
    let bound = wish.served_by.filter(|_| !wish.any_client);
    view.clients
        .iter()
        .filter(|c| c.online && c.tools.contains_key(tool))
        .filter(|c| wish.client.is_none_or(|wanted| c.is_called(wanted)))
        .filter(|c| bound.is_none_or(|b| *b == c.client_id))
        .max_by_key(|c| {
            let submitted = wish.submitted_by == Some(&c.client_id);
            let served = wish.served_by == Some(&c.client_id);
            (submitted, served, c.last_active_ms, std::cmp::Reverse(c.client_id.clone()))
        })
}

#[cfg(test)]
mod tests;
