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
    /// The folder in which this task's calls worked so far.
    pub works_in: Option<&'a str>,
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
    let mut without = None;
    loop {
        let current = path[path.len() - 1].clone();
        match hop(registry, view, wish, &current, path.len() == 1) {
            // An alternative that cannot run, or that engine or target rule out, is none: a client that left delays, it makes
            // nothing fail.
            Hop::Is(Decision::Fail(fault)) | Hop::RuledOut(fault) => return without.unwrap_or(Decision::Fail(fault)),
            Hop::Is(decision) => return decision,
            Hop::Alternative { next, otherwise } => {
                if without.is_none() || !matches!(otherwise, Decision::Fail(_)) {
                    without = Some(otherwise);
                }
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
    /// The engine's sets or the target do not allow this tool.
    RuledOut(Fault),
    /// The tool's alternative, and what to do if that is none.
    Alternative {
        next: ToolName,
        otherwise: Decision,
    },
}

/// `asked`: the task itself named the tool (an alternative need not stand in the task's list).
fn hop(registry: &Registry, view: &SessionView, wish: &Wish<'_>, name: &ToolName, asked: bool) -> Hop {
    let Some(known) = registry.lookup(view, name) else {
        let in_sets = |near: &ToolName| {
            let sides = |known| engine_sides(wish.engine, near, &known);
            wish.engine.is_none() || registry.lookup(view, near).and_then(sides).is_some()
        };
        let near = registry.nearest(view, name.as_str(), in_sets).join(", ");
        let message = match near.as_str() {
            "" => format!("unknown tool: {name}"),
            near => format!("unknown tool: {name} (nearest: {near})"),
        };
        return Hop::Is(Decision::Fail(Fault::new("unknown_tool", message)));
    };
    let strategy = strategy(wish, &known);
    let auto_fallback = wish.engine.is_some_and(|e| e.auto_fallback);
    let may_switch = auto_fallback || strategy == OfflineStrategy::Fallback || wish.target == ExecutionTarget::Any;
    let sides = match allowed(wish.engine, wish.target, name, &known, may_switch) {
        Ok(sides) => sides,
        Err(fault) => return Hop::RuledOut(fault),
    };
    if asked && wish.tools.is_some_and(|list| !selects(list, name, &known)) {
        let message = format!("tool {name} is not in the task's `tools`; add it there");
        return Hop::RuledOut(Fault::new("tool_not_listed", message));
    }
    if let Some(decision) = sides.iter().find_map(|side| run_on(*side, view, wish, &known)) {
        return Hop::Is(decision);
    }
    let client_may = sides.contains(&Side::Client);
    let otherwise = if client_may { wait(wish, strategy) } else { unavailable(name, &known) };
    let alternative = strategy == OfflineStrategy::Fallback || (auto_fallback && client_may && wish.strategy.is_none());
    match known.fallback_tool {
        Some(next) if alternative => Hop::Alternative { next, otherwise },
        Some(_) | None => Hop::Is(otherwise),
    }
}

/// The sides where it may run, the preferred one first.
fn sides(
    target: ExecutionTarget,
    name: &ToolName,
    location: Location,
    listed: &[Side],
    auto_fallback: bool,
    may_switch: bool,
) -> Result<Vec<Side>, Fault> {
    let (by_location, both): (&[Side], bool) = match location {
        Location::Server => (&[Side::Server], false),
        Location::Client => (&[Side::Client], false),
        Location::Both { prefer: Side::Server } => (&[Side::Server, Side::Client], true),
        Location::Both { prefer: Side::Client } => (&[Side::Client, Side::Server], true),
    };
    let mut sides: Vec<Side> = by_location.iter().copied().filter(|side| listed.contains(side)).collect();
    if auto_fallback && both && !sides.contains(&Side::Server) {
        // Behind the side that the engine lists, whatever the tool prefers.
        sides.push(Side::Server);
    }
    if sides.is_empty() {
        let message =
            format!("tool {name} has location {}, which the engine's tool sets do not allow", location.word());
        return Err(Fault::new("engine_contradiction", message));
    }
    if let Some(only) = required(target) {
        sides.retain(|side| *side == only);
        if sides.is_empty() {
            return Err(target_contradiction(target, name, location, by_location.contains(&only)));
        }
    }
    // From client to server always; from server to client only if somebody allowed that.
    if sides.first() == Some(&Side::Server) && !may_switch {
        sides.truncate(1);
    }
    Ok(sides)
}

fn run_on(side: Side, view: &SessionView, wish: &Wish<'_>, known: &KnownTool) -> Option<Decision> {
    match (side, &known.server) {
        (Side::Client, _) => {
            let (client, tool) = pick(view, wish, known)?;
            Some(Decision::Client { client_id: client.client_id.clone(), tool: tool.clone() })
        }
        (Side::Server, Some((tool, ServerSide::Up | ServerSide::Starting))) => {
            Some(Decision::Server { tool: tool.clone() })
        }
        (Side::Server, Some((_, ServerSide::Down { .. })) | None) => None,
    }
}

/// No side can run it now, and a client could.
fn wait(wish: &Wish<'_>, strategy: OfflineStrategy) -> Decision {
    match strategy {
        OfflineStrategy::Block => Decision::Block,
        OfflineStrategy::Queue => Decision::Queue,
        OfflineStrategy::Skip => Decision::Skip,
        // Without an alternative it waits like the default.
        OfflineStrategy::Fallback => wait(wish, default_strategy(wish)),
    }
}

/// Only the server could run it, and cannot: waiting for a client would be for ever.
fn unavailable(name: &ToolName, known: &KnownTool) -> Decision {
    let message = format!("tool {name} cannot run on the server: {}", down(known));
    Decision::Fail(Fault::new("server_unavailable", message))
}

/// Why the server's side is down.
fn down(known: &KnownTool) -> &str {
    match &known.server {
        Some((_, ServerSide::Down { reason })) => reason,
        Some((_, ServerSide::Up | ServerSide::Starting)) | None => "the server's side is not there",
    }
}

/// Task, engine, tool entry, default.
fn strategy(wish: &Wish<'_>, known: &KnownTool) -> OfflineStrategy {
    let engine = wish.engine.and_then(|e| e.offline_strategy);
    wish.strategy.or(engine).or(known.offline_strategy).unwrap_or_else(|| default_strategy(wish))
}

fn default_strategy(wish: &Wish<'_>) -> OfflineStrategy {
    if wish.autonomous { OfflineStrategy::Queue } else { OfflineStrategy::Block }
}

fn required(target: ExecutionTarget) -> Option<Side> {
    match target {
        ExecutionTarget::Server => Some(Side::Server),
        ExecutionTarget::Client => Some(Side::Client),
        ExecutionTarget::Auto | ExecutionTarget::Any => None,
    }
}

/// Both facts. `possible`: the location would do, the engine's sets do not.
fn target_contradiction(target: ExecutionTarget, name: &ToolName, location: Location, possible: bool) -> Fault {
    let word = if target == ExecutionTarget::Server { "server" } else { "client" };
    let but = if possible {
        format!("the engine's tool sets do not allow tool {name} there")
    } else {
        format!("tool {name} has location {}", location.word())
    };
    Fault::new("target_contradiction", format!("execution_target is {word}, but {but}"))
}

/// The facts that contradict each other whatever the presence, at submission: engine, location and target.
pub fn contradicts(
    known: &KnownTool,
    target: ExecutionTarget,
    engine: Option<&EngineSpec>,
    name: &ToolName,
) -> Option<Fault> {
    allowed(engine, target, name, known, true).err()
}

/// The sides where an engine and a target let a tool run, the preferred one first.
fn allowed(
    engine: Option<&EngineSpec>,
    target: ExecutionTarget,
    name: &ToolName,
    known: &KnownTool,
    may_switch: bool,
) -> Result<Vec<Side>, Fault> {
    let listed = engine_sides(engine, name, known).ok_or_else(|| {
        let engine = engine.map_or("", |e| e.id.as_str());
        Fault::new("unknown_tool", format!("unknown tool: {name} is not in the tool sets of engine {engine}"))
    })?;
    sides(target, name, known.location, &listed, engine.is_some_and(|e| e.auto_fallback), may_switch)
}

/// Why a tool of a session's list cannot run now for a task with that engine and no wishes of its own; `None`: it can. `Err`: never, for
/// that engine.
pub fn unavailable_now(
    view: &SessionView,
    engine: Option<&EngineSpec>,
    name: &ToolName,
    known: &KnownTool,
) -> Result<Option<String>, Fault> {
    let auto_fallback = engine.is_some_and(|e| e.auto_fallback);
    let wish = Wish { engine, ..Wish::default() };
    let may_switch = auto_fallback || strategy(&wish, known) == OfflineStrategy::Fallback;
    let sides = allowed(engine, ExecutionTarget::Auto, name, known, may_switch)?;
    if sides.iter().any(|side| run_on(*side, view, &wish, known).is_some()) {
        return Ok(None);
    }
    if !sides.contains(&Side::Client) {
        return Ok(Some(down(known).to_owned()));
    }
    let leaving = view.clients.iter().find(|c| !c.online && known.client_names.iter().any(|n| c.tools.contains_key(n)));
    Ok(Some(match leaving {
        Some(client) => format!("client '{}' is disconnected", client.name),
        None => "no connected client offers it".to_owned(),
    }))
}

/// True if the tool works in its client's folder: the client's own tools do, those of packs have a folder of their own.
pub fn works_in_folder(client: &ClientView, tool: &ToolName) -> bool {
    client.tools.get(tool).is_some_and(|spec| spec.pack.is_none())
}

/// The client that gets the call, with the tool's name there: the client that the task names > the one that submitted it >
/// the one that served it last > the most recently active. Unless `any_client`, a name is a must, and no other client goes on: the same file name on
/// another machine, or in another folder, is another file.
fn pick<'v>(view: &'v SessionView, wish: &Wish<'_>, known: &'v KnownTool) -> Option<(&'v ClientView, &'v ToolName)> {
    let named = |c: &ClientView| wish.client.is_some_and(|wanted| c.is_called(wanted));
    let in_folder =
        |c: &ClientView, tool: &ToolName| !works_in_folder(c, tool) || c.working_dir.as_deref() == wish.works_in;
    let served = |c: &ClientView| wish.served_by == Some(&c.client_id);
    view.clients
        .iter()
        .filter(|c| c.online)
        .filter_map(|c| Some((c, known.client_names.iter().find(|n| c.tools.contains_key(*n))?)))
        .filter(|(c, _)| wish.any_client || wish.client.is_none() || named(c))
        .filter(|(c, _)| wish.any_client || wish.served_by.is_none() || served(c))
        .filter(|(c, tool)| wish.any_client || wish.works_in.is_none() || in_folder(c, tool))
        .max_by_key(|(c, _)| {
            let submitted = wish.submitted_by == Some(&c.client_id);
            (named(c), submitted, served(c), c.last_active_ms, std::cmp::Reverse(&c.client_id))
        })
}

#[cfg(test)]
mod tests;
