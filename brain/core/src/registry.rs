//! The tool table: `tools.yaml`, the server's own tools, and what a session's clients report, seen as one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use vance_shared::ids::{ClientId, SessionId};
use vance_shared::json::Raw;
use vance_shared::names::{PackName, ToolName};
use vance_shared::tool::{NATIVE_TOOLS, Replay, ToolSpec};

use crate::route::{MAX_FALLBACK_HOPS, unavailable_now};
use crate::spec::{Backing, EngineSpec, Location, OfflineStrategy, RegistryEntry, RegistryFile, Side};

/// Whether the server's side of a tool can run now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerSide {
    /// Now.
    Up,
    /// Soon: its MCP server starts or restarts; a call waits within its deadline.
    Starting,
    /// Not: its MCP server failed, or nothing offers it.
    Down {
        /// Why, and what to do.
        reason: String,
    },
}

/// The state of one server pack.
pub type PackStates = BTreeMap<String, ServerSide>;

/// The Brain's table. A snapshot: a change makes a new one with a higher revision.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// `tools.yaml`.
    pub file: RegistryFile,
    /// Built-in tools and tools of server packs, by full name.
    pub server_tools: BTreeMap<ToolName, Arc<ToolSpec>>,
    /// Server packs by name.
    pub packs: PackStates,
    /// Engines by id.
    pub engines: BTreeMap<String, EngineSpec>,
    /// Rises with each change.
    pub revision: u64,
}

/// One client as a session sees it.
#[derive(Debug, Clone)]
pub struct ClientView {
    /// Identity.
    pub client_id: ClientId,
    /// Name for people.
    pub name: String,
    /// Machine name.
    pub machine: String,
    /// The folder in which it works.
    pub working_dir: Option<String>,
    /// Further sessions that it serves.
    pub also: Arc<[SessionId]>,
    /// Connected now (otherwise within its grace time).
    pub online: bool,
    /// Milliseconds since the epoch of the last frame that was not a heartbeat.
    pub last_active_ms: i64,
    /// Tools by name.
    pub tools: Arc<HashMap<ToolName, Arc<ToolSpec>>>,
    /// Packs that still start.
    pub loading: Arc<BTreeSet<String>>,
}

impl ClientView {
    /// True if a task may mean this client by that word.
    pub fn is_called(&self, wanted: &str) -> bool {
        self.client_id.as_str() == wanted || self.name == wanted
    }
}

/// A session's clients and what its owner's clients ever reported.
#[derive(Debug, Clone, Default)]
pub struct SessionView {
    /// Clients that are online or in grace.
    pub clients: Vec<ClientView>,
    /// Last definitions of tools that clients of this owner reported.
    pub known: Arc<BTreeMap<ToolName, Arc<ToolSpec>>>,
}

/// One tool as one session knows it.
#[derive(Debug, Clone)]
pub struct KnownTool {
    /// Where it can run.
    pub location: Location,
    /// The server's side, if the location has one.
    pub server: Option<(ToolName, ServerSide)>,
    /// The name under which clients report it now, or would first.
    pub client_name: ToolName,
    /// All names under which a client may report it, the likelier one first.
    pub client_names: Vec<ToolName>,
    /// The entry's strategy.
    pub offline_strategy: Option<OfflineStrategy>,
    /// The entry's alternative.
    pub fallback_tool: Option<ToolName>,
    /// Definition, as far as it is known.
    pub spec: Option<Arc<ToolSpec>>,
    /// Labels of the entry besides the definition's.
    pub extra_labels: Vec<String>,
    /// The entry's own description.
    pub own_description: Option<String>,
    class: Replay,
}

impl KnownTool {
    /// What people and models are told: the entry's word before the tool's own.
    pub fn description(&self) -> Option<&str> {
        self.own_description.as_deref().or_else(|| self.spec.as_ref().map(|spec| spec.description.as_str()))
    }

    /// True if it has the label, or nobody knows yet: what runs it has not said so far what it is, and before that nothing runs.
    pub fn may_have_label(&self, label: &str) -> bool {
        self.spec.is_none() || self.labels().any(|l| l == label)
    }

    /// Labels of definition and entry.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.spec.iter().flat_map(|s| s.labels.iter()).chain(&self.extra_labels).map(String::as_str)
    }

    /// Replay class, wherever it runs: safe only if every side that has it says so.
    pub fn replay(&self) -> Replay {
        self.class
    }
}

impl Registry {
    /// Finds a tool for a session. `None`: unknown.
    pub fn lookup(&self, view: &SessionView, name: &ToolName) -> Option<KnownTool> {
        let mut known = match self.file.get(name) {
            Some(entry) => self.registered(view, entry),
            None => self.unregistered(view, name)?,
        };
        known.class = self.class(view, &known);
        Some(known)
    }

    fn registered(&self, view: &SessionView, entry: &RegistryEntry) -> KnownTool {
        let has_server = entry.location != Location::Client;
        let names = names_behind(entry);
        let first = |offered: &dyn Fn(&ToolName) -> bool| names.iter().find(|n| offered(n)).cloned();
        let server_name = first(&|n| self.server_tools.contains_key(n)).unwrap_or_else(|| names[0].clone());
        let client_name = first(&|n| view.clients.iter().any(|c| c.online && c.tools.contains_key(n)))
            .or_else(|| first(&|n| client_definition(view, n).is_some()))
            .unwrap_or_else(|| names[0].clone());
        let server = has_server.then(|| (server_name.clone(), self.server_side(entry, &server_name)));
        let of_server = if has_server { self.server_tools.get(&server_name).cloned() } else { None };
        KnownTool {
            location: entry.location,
            server,
            spec: of_server.or_else(|| client_definition(view, &client_name)),
            client_name,
            client_names: names,
            offline_strategy: entry.offline_strategy,
            fallback_tool: entry.fallback_tool.clone(),
            extra_labels: entry.labels.clone(),
            own_description: entry.description.clone(),
            class: Replay::Unsafe,
        }
    }

    fn class(&self, view: &SessionView, known: &KnownTool) -> Replay {
        let of_server = known.server.iter().filter_map(|(name, _)| self.server_tools.get(name));
        let clients = if known.location == Location::Server { &[][..] } else { &view.clients[..] };
        let of_clients = clients.iter().flat_map(|c| known.client_names.iter().filter_map(|n| c.tools.get(n)));
        let mut all = of_server.chain(of_clients).chain(&known.spec).peekable();
        let safe = all.peek().is_some() && all.all(|spec| spec.replay == Replay::Safe);
        if safe { Replay::Safe } else { Replay::Unsafe }
    }

    fn server_side(&self, entry: &RegistryEntry, name: &ToolName) -> ServerSide {
        if let Some(Backing::McpServer { pack, .. }) = &entry.backing {
            return match self.packs.get(pack) {
                Some(ServerSide::Up) if !self.server_tools.contains_key(name) => {
                    ServerSide::Down { reason: format!("server pack '{pack}' offers no tool '{}'", name.as_str()) }
                }
                Some(state) => state.clone(),
                None => ServerSide::Down {
                    reason: format!("there is no server pack '{pack}'; put {pack}.json into the Brain's packs folder"),
                },
            };
        }
        self.side_of(name)
    }

    fn side_of(&self, name: &ToolName) -> ServerSide {
        match self.server_tools.get(name) {
            None => ServerSide::Down { reason: format!("the server offers no tool '{name}'") },
            Some(spec) => spec.pack.as_ref().and_then(|p| self.packs.get(p)).cloned().unwrap_or(ServerSide::Up),
        }
    }

    fn unregistered(&self, view: &SessionView, name: &ToolName) -> Option<KnownTool> {
        let plain = |location, server, spec| KnownTool {
            location,
            server,
            client_name: name.clone(),
            client_names: vec![name.clone()],
            offline_strategy: None,
            fallback_tool: None,
            spec,
            extra_labels: Vec::new(),
            own_description: None,
            class: Replay::Unsafe,
        };
        if let Some(spec) = self.server_tools.get(name) {
            let side = self.side_of(name);
            return Some(plain(Location::Server, Some((name.clone(), side)), Some(spec.clone())));
        }
        let starting = self.packs.iter().find(|(pack, side)| name.is_of_pack(pack) && **side != ServerSide::Up);
        if let Some((_, side)) = starting {
            return Some(plain(Location::Server, Some((name.clone(), side.clone())), None));
        }
        if let Some(spec) = client_definition(view, name) {
            return Some(plain(Location::Client, None, Some(spec)));
        }
        let loading = view.clients.iter().flat_map(|c| c.loading.iter()).any(|pack| name.is_of_pack(pack));
        (loading || NATIVE_TOOLS.contains(&name.as_str())).then(|| plain(Location::Client, None, None))
    }

    /// The pack behind a server tool, also while that pack starts and has not said yet what it offers. `None`: built in.
    pub fn server_pack(&self, name: &ToolName) -> Option<String> {
        match self.server_tools.get(name) {
            Some(spec) => spec.pack.clone(),
            None => self.packs.keys().filter(|pack| name.is_of_pack(pack)).max_by_key(|pack| pack.len()).cloned(),
        }
    }

    /// Names under which a client may come to offer what a waiting task needs: the tool's and those of its alternatives.
    pub fn client_names(&self, name: &ToolName) -> Vec<ToolName> {
        let (mut path, mut out) = (vec![name], Vec::new());
        while let Some(entry) = path.last().and_then(|current| self.file.get(*current)) {
            if entry.location != Location::Server {
                out.extend(names_behind(entry));
            }
            match &entry.fallback_tool {
                Some(next) if !path.contains(&next) && path.len() <= MAX_FALLBACK_HOPS => path.push(next),
                Some(_) | None => return out,
            }
        }
        out.extend(path.last().map(|last| (*last).clone()));
        out
    }

    /// True if a task that waits for this tool may run it, or one of its alternatives, by that server pack.
    pub fn may_use(&self, name: &ToolName, pack: &str) -> bool {
        let mut path = vec![name];
        while let Some(current) = path.last().copied() {
            let entry = self.file.get(current);
            let behind = entry.and_then(|entry| entry.backing.as_ref());
            if matches!(behind, Some(Backing::McpServer { pack: of, .. }) if of == pack)
                || current.is_of_pack(pack)
                || self.server_tools.get(current).is_some_and(|spec| spec.pack.as_deref() == Some(pack))
            {
                return true;
            }
            match entry.and_then(|entry| entry.fallback_tool.as_ref()) {
                Some(next) if !path.contains(&next) && path.len() <= MAX_FALLBACK_HOPS => path.push(next),
                Some(_) | None => return false,
            }
        }
        false
    }

    /// Why a client may not offer a tool of this name, if so: it never replaces a server tool. The names of a server pack are the server's
    /// also while that pack starts or has failed: what a name means does not change with a server's health.
    pub fn refuses(&self, name: &ToolName) -> Option<String> {
        let pack = || self.packs.keys().find(|pack| name.is_of_pack(pack));
        match self.file.get(name) {
            Some(entry) if entry.location != Location::Server => None,
            None if !self.server_tools.contains_key(name) => {
                let pack = pack().filter(|_| !self.is_shared(name))?;
                Some(format!(
                    "'{name}' has the name of the server's pack '{pack}'; give the client's pack another name, or write the tool \
                     into the Brain's tools.yaml with `location: both` or `client`"
                ))
            }
            None if self.is_shared(name) => None,
            Some(_) | None => Some(format!("'{name}' is a tool of the server; a client's tool cannot replace it")),
        }
    }

    /// True if an entry says that clients have the tool behind it, too.
    fn is_shared(&self, name: &ToolName) -> bool {
        let clients = |entry: &&RegistryEntry| entry.location != Location::Server;
        self.file.values().filter(clients).any(|entry| names_behind(entry).contains(name))
    }

    /// All names that a session can mean, for suggestions and lists.
    pub fn names(&self, view: &SessionView) -> BTreeSet<ToolName> {
        let clients = view.clients.iter().flat_map(|c| c.tools.keys());
        self.file.keys().chain(self.server_tools.keys()).chain(clients).cloned().collect()
    }

    /// The three names nearest to a misspelt one, of those that may be used.
    pub fn nearest(&self, view: &SessionView, name: &str, may: impl Fn(&ToolName) -> bool) -> Vec<String> {
        let natives = NATIVE_TOOLS.iter().filter_map(|n| ToolName::parse(n).ok());
        let all: BTreeSet<ToolName> =
            self.names(view).into_iter().chain(view.known.keys().cloned()).chain(natives).collect();
        let usable = all.into_iter().filter(may).map(|n| n.to_string());
        let mut scored: Vec<(f64, String)> = usable.map(|n| (strsim::jaro_winkler(name, &n), n)).collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        scored.into_iter().take(3).map(|(_, n)| n).collect()
    }
}

/// Names under which the tool behind an entry may be offered: `<pack>__<tool>`, or the entry's own. Never empty.
fn names_behind(entry: &RegistryEntry) -> Vec<ToolName> {
    let own = entry.name.clone();
    let Some(Backing::McpServer { pack, tool }) = &entry.backing else { return vec![own] };
    let Ok(pack) = PackName::parse(pack) else { return vec![own] };
    match tool {
        Some(tool) => vec![ToolName::of_subtool(&pack, tool)],
        None => vec![ToolName::of_subtool(&pack, own.as_str()), own],
    }
}

/// A tool's definition as some client of the session reports it, or as one reported it last.
fn client_definition(view: &SessionView, name: &ToolName) -> Option<Arc<ToolSpec>> {
    let online_first = |c: &&ClientView| !c.online;
    let mut clients: Vec<&ClientView> = view.clients.iter().collect();
    clients.sort_by_key(online_first);
    clients.into_iter().find_map(|c| c.tools.get(name)).or_else(|| view.known.get(name)).cloned()
}

/// A tool as the session's list shows it.
#[derive(Debug, Clone)]
pub struct ListedTool {
    /// Name.
    pub name: ToolName,
    /// Everything known.
    pub known: KnownTool,
    /// Clients that offer it and are online.
    pub clients: Vec<ClientId>,
    /// Why it cannot run now; `None`: it can.
    pub unavailable: Option<String>,
}

/// The active registry of a session: every tool with whether it can run now, and why not. With an engine only what that engine can ever run.
pub fn list(registry: &Registry, view: &SessionView, engine: Option<&EngineSpec>) -> Vec<ListedTool> {
    registry
        .names(view)
        .into_iter()
        .filter_map(|name| {
            let known = registry.lookup(view, &name)?;
            let offers = |c: &&ClientView| known.client_names.iter().any(|n| c.tools.contains_key(n));
            let clients: Vec<ClientId> =
                view.clients.iter().filter(|c| c.online).filter(offers).map(|c| c.client_id.clone()).collect();
            let unavailable = unavailable_now(view, engine, &name, &known).ok()?;
            Some(ListedTool {
                name,
                clients: if known.location == Location::Server { Vec::new() } else { clients },
                known,
                unavailable,
            })
        })
        .collect()
}

/// True if a list of names and `@labels` holds the tool.
pub fn selects(list: &[String], name: &ToolName, known: &KnownTool) -> bool {
    list.iter().any(|item| match item.strip_prefix('@') {
        Some(label) => known.may_have_label(label),
        None => item == name.as_str(),
    })
}

/// Sides on which an engine lets a tool run. `None`: the engine has no such tool.
pub fn engine_sides(engine: Option<&EngineSpec>, name: &ToolName, known: &KnownTool) -> Option<Vec<Side>> {
    let all = vec![Side::Server, Side::Client];
    let Some(engine) = engine else { return Some(all) };
    if engine.server.is_none() && engine.client.is_none() {
        return Some(all);
    }
    let holds = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|l| selects(l, name, known));
    let mut sides = Vec::new();
    if holds(&engine.server) {
        sides.push(Side::Server);
    }
    if holds(&engine.client) {
        sides.push(Side::Client);
    }
    (!sides.is_empty()).then_some(sides)
}

/// A tool of a client that reported no schema takes any object.
pub fn any_object() -> Raw {
    Raw::from(serde_json::json!({"type": "object"}))
}
