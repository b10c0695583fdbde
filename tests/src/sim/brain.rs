//! The Brain on its simulated machine: the real tree of actors on a store in memory, and real WebSockets on the simulated network.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::sleep;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use turmoil::net::{TcpListener, TcpStream};
use vance_brain::builtin::{BuiltinConfig, Builtins};
use vance_brain::home::Loaded;
use vance_brain::hub::Brain;
use vance_brain::serve::{self, Supervisors};
use vance_brain::store::Store;
use vance_brain::tokens::{Principal, Scope};
use vance_brain_core::config::BrainConfig;
use vance_brain_core::registry_file::parse_registry;
use vance_supervise::SupervisorRef;

use super::disk::MemoryStore;
use super::line::{End, Line};
use super::{OWNER, PORT, Shared, clock, direct, large, person};

/// How often the machine looks whether it is to make an actor fall.
const LOOK: Duration = Duration::from_millis(50);

/// Not an actor here: what writes the simulated disk.
pub(super) const STORE: &str = "store_gate";

/// What `fallback` falls back to.
const REGISTRY: &str = "- {name: safe_tool, location: client, fallback_tool: task_note}";

/// Largest head of an upgrade.
const HEAD_BYTES: usize = 4 * 1024;

/// The machine's program: a Brain, until the machine falls.
pub(super) async fn run(shared: Shared) -> turmoil::Result {
    shared.begin_brain();
    clock::here(0);
    let store = Store::over(Arc::new(MemoryStore::open(&shared.disk)));
    let builtins = Builtins::new(BuiltinConfig::default());
    let registry = parse_registry("tools.yaml", REGISTRY).map_err(|problems| format!("{problems:?}"))?;
    let loaded = Loaded { registry: Some(registry), ..Loaded::default() };
    let (brain, supervisors) = serve::hub(store, BrainConfig::default(), builtins, &loaded);
    let root = SupervisorRef::start(serve::tree(&brain, supervisors.clone(), None));
    tokio::task::spawn_local(person::live(brain.clone(), shared.clone()));
    tokio::task::spawn_local(direct::live(brain.clone(), shared.clone()));
    if shared.one_large_in > 0 {
        tokio::task::spawn_local(large::live(brain.clone(), shared.clone()));
    }
    tokio::task::spawn_local(strikes(brain.clone(), supervisors, root.clone(), shared.clone()));
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        tokio::select! {
            biased;
            reason = root.ended() => {
                shared.story.note(format!("the brain gave up: {reason}"));
                return Ok(());
            }
            accepted = listener.accept() => {
                let (stream, peer) = accepted?;
                let foot = shared.foot_at(peer.ip());
                let control = super::lock(&shared.lines).open(foot, End::Brain);
                tokio::spawn(serve_line(brain.clone(), Line::new(stream, control)));
            }
        }
    }
}

/// The upgrade that the HTTP server does elsewhere, then the socket's own code. One that breaks before is as if it never came.
async fn serve_line(brain: Brain, mut line: Line<TcpStream>) {
    if upgrade(&mut line).await.is_some() {
        let principal = Principal::new(OWNER, &Scope::ALL);
        vance_brain::link::serve_socket(brain, principal, line, ()).await;
    }
}

async fn upgrade(line: &mut Line<TcpStream>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(line.read_u8().await.ok()?);
        if head.len() > HEAD_BYTES {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let key = head.lines().find_map(|header| {
        let (name, value) = header.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.trim().to_owned())
    })?;
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
        derive_accept_key(key.as_bytes())
    );
    line.write_all(answer.as_bytes()).await.ok()
}

/// Makes actors fall when the simulation wants it.
async fn strikes(brain: Brain, supervisors: Supervisors, root: SupervisorRef, shared: Shared) {
    loop {
        sleep(LOOK).await;
        let Some(kind) = shared.take_strike(None) else { continue };
        if kind == STORE {
            super::disk::look(&shared.disk).writer_falls = true;
            shared.story.note("brain: the store's writer struck: true");
            continue;
        }
        let (supervisor, name) = match kind.as_str() {
            "session" => {
                let sessions = brain.directory.loaded();
                (&supervisors.sessions, sessions.first().map(|session| session.actor.name().to_owned()))
            }
            "task" => {
                let tasks = supervisors.tasks.children().await;
                let at = fastrand::usize(..tasks.len().max(1));
                (&supervisors.tasks, tasks.get(at).map(|task| task.name.clone()))
            }
            "scheduler" => (&supervisors.work, Some(kind.clone())),
            _ => (&root, Some("registry".to_owned())),
        };
        let fell = match &name {
            Some(name) => supervisor.strike(name).await,
            None => false,
        };
        shared.story.note(format!("brain: {} struck: {fell}", name.unwrap_or(kind)));
    }
}
