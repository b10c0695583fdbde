//! Sessions by id: who owns each, its actor, and the view that everybody reads. Shared maps, because every request and every
//! task looks here; what a session decides stays with its actor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use vance_brain_core::registry::{ClientView, SessionView};
use vance_brain_core::session::Tools;
use vance_brain_core::spec::Mode;
use vance_shared::call::Fault;
use vance_shared::ids::{CallId, ClientId, SessionId};
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::tool::ToolSpec;
use vance_shared::wire::{self, Refused, WireTool};
use vance_supervise::{ActorRef, ChildSpec, SupervisorRef};

use crate::actors::session::{MAILBOX, SessionActor, ToSession};
use crate::hub::{Brain, now_ms};
use crate::news::Desk;
use crate::rows::{KNOWN_TOOLS, SESSION};
use crate::store::{Batch, Row, StoreError};

mod asking;
mod idle;
mod lending;

pub use idle::Planned;
use idle::row_of;

/// Revisions of a view that there may be in a millisecond, as a power of two.
const REVISION_BITS: u32 = 10;

/// Definitions that are kept of one owner's clients.
const MAX_KNOWN: usize = 10_000;

/// Pause before a commit is tried again while the store is away: it doubles up to the second value.
const STORE_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Tools that a session's owner ever had: for tasks that need one while nobody offers it.
type Known = Arc<BTreeMap<ToolName, Arc<ToolSpec>>>;

/// A session for those who talk to it.
#[derive(Debug)]
pub struct SessionHandle {
    /// Identity.
    pub session_id: SessionId,
    /// The principal that made it.
    pub owner: String,
    /// Is a client expected?
    pub mode: Mode,
    /// Milliseconds since 1970.
    pub created_at: i64,
    /// Its actor.
    pub actor: ActorRef<SessionActor>,
    view: ArcSwap<Published>,
    refused: ArcSwapOption<RefusedTools>,
    news: Desk,
    revision: AtomicU64,
    starts: AtomicU32,
    /// Its actor is told to look at the open questions, and has not yet.
    looks: AtomicBool,
}

/// A session's clients at one moment.
#[derive(Debug, Default)]
pub struct Published {
    /// Rises with each change.
    pub revision: u64,
    /// The view.
    pub view: SessionView,
    /// How many of its clients are the session's own; those behind them are lent by other sessions.
    pub own: usize,
    /// Which session each of those belongs to.
    pub lenders: Vec<SessionId>,
}

/// What was not taken of the tools of a session's clients, with reasons.
pub type RefusedTools = BTreeMap<ClientId, Vec<Refused>>;

impl SessionHandle {
    /// The view now.
    pub fn published(&self) -> Arc<Published> {
        self.view.load_full()
    }

    /// Puts a new view in place; only the session's actor does. Gives its revision.
    pub fn publish(&self, clients: Vec<ClientView>) -> u64 {
        let before = self.published();
        let own = before.view.clients.get(..before.own).unwrap_or_default();
        self.news.of_views((&self.session_id, &self.owner), now_ms(), own, &clients);
        self.change(|old| {
            let lent = old.view.clients.iter().skip(old.own).cloned();
            (clients.iter().cloned().chain(lent).collect(), clients.len(), old.lenders.clone())
        })
    }

    /// What was not taken of its clients' tools.
    pub fn refused(&self) -> Option<Arc<RefusedTools>> {
        self.refused.load_full()
    }

    /// Puts a new list in place; only the session's actor does.
    pub fn show_refused(&self, refused: RefusedTools) {
        self.refused.store((!refused.is_empty()).then(|| Arc::new(refused)));
    }

    /// How often the actor was started before this start.
    pub fn starts(&self) -> u32 {
        self.starts.fetch_add(1, Ordering::Relaxed)
    }

    fn set_known(&self, known: Known) {
        self.view.rcu(|old| {
            let view = SessionView { clients: old.view.clients.clone(), known: known.clone() };
            Arc::new(Published { revision: old.revision, view, own: old.own, lenders: old.lenders.clone() })
        });
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct SessionRow {
    mode: Mode,
    created_at: i64,
    #[serde(default)]
    default: bool,
}

/// All sessions of this Brain.
pub struct Directory {
    sessions: DashMap<SessionId, Arc<SessionHandle>>,
    clients: DashMap<ClientId, SessionId>,
    /// The latest life of each client that has said one.
    lives: DashMap<ClientId, u64>,
    known: DashMap<String, Known>,
    /// Autonomous sessions by owner: they see the clients of the owner's other sessions.
    borrowers: DashMap<String, Vec<Arc<SessionHandle>>>,
    /// The sessions that a session's clients name, by that session.
    lends: DashMap<SessionId, BTreeSet<SessionId>>,
    news: Desk,
    supervisor: SupervisorRef,
    /// One at a time makes or loads a session: two must not start two actors for one id.
    opening: tokio::sync::Mutex<()>,
}

/// What to do with an id that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Make the session, for the caller.
    Create(Mode),
    /// Say so.
    Fault,
}

/// Ids of default sessions begin so.
const DEFAULT: &str = "default.";

fn not_found(session_id: &SessionId) -> Fault {
    Fault::new("session_not_found", format!("there is no session {session_id}"))
}

fn forbidden(session_id: &SessionId) -> Fault {
    Fault::new("forbidden", format!("session {session_id} belongs to somebody else"))
}

/// Default sessions carry their owner's name: nobody else makes one before the owner comes.
fn belongs_to_another(owner: &str, session_id: &SessionId) -> bool {
    session_id.as_str().strip_prefix(DEFAULT).is_some_and(|name| name != owner)
}

fn store_fault(error: &StoreError) -> Fault {
    Fault::new("store_unavailable", format!("the store did not answer: {error}; try again"))
}

impl Directory {
    /// An empty directory whose sessions live below `supervisor`.
    pub fn new(supervisor: SupervisorRef) -> Self {
        Self {
            sessions: DashMap::new(),
            clients: DashMap::new(),
            lives: DashMap::new(),
            known: DashMap::new(),
            borrowers: DashMap::new(),
            lends: DashMap::new(),
            news: Desk::default(),
            supervisor,
            opening: tokio::sync::Mutex::new(()),
        }
    }

    /// The id of a principal's default session.
    pub fn default_id(owner: &str) -> Result<SessionId, Fault> {
        SessionId::parse(&format!("{DEFAULT}{owner}")).map_err(|e| Fault::new("bad_session", e.to_string()))
    }

    /// A session by id, whoever owns it.
    pub async fn get(&self, brain: &Brain, session_id: &SessionId) -> Result<Arc<SessionHandle>, Fault> {
        if let Some(found) = self.sessions.get(session_id) {
            return Ok(found.clone());
        }
        let _one = self.opening.lock().await;
        self.load(brain, session_id).await?.ok_or_else(|| not_found(session_id))
    }

    /// A session for a caller: another owner's is refused (code `forbidden`).
    pub async fn open(
        &self,
        brain: &Brain,
        owner: &str,
        session_id: &SessionId,
        missing: Missing,
    ) -> Result<Arc<SessionHandle>, Fault> {
        let found = match self.sessions.get(session_id).map(|s| s.clone()) {
            Some(found) => Some(found),
            None => {
                let _one = self.opening.lock().await;
                match (self.load(brain, session_id).await?, missing) {
                    (Some(found), _) => Some(found),
                    (None, Missing::Create(_)) if belongs_to_another(owner, session_id) => {
                        return Err(forbidden(session_id));
                    }
                    (None, Missing::Create(mode)) => Some(self.create(brain, owner, session_id, mode).await?),
                    (None, Missing::Fault) => None,
                }
            }
        };
        match found {
            Some(session) if session.owner == owner => Ok(session),
            Some(_) => Err(forbidden(session_id)),
            None => Err(not_found(session_id)),
        }
    }

    /// Where news of clients and runs are told.
    pub fn news(&self) -> &Desk {
        &self.news
    }

    /// Sessions that are loaded.
    pub fn loaded(&self) -> Vec<Arc<SessionHandle>> {
        self.sessions.iter().map(|s| s.clone()).collect()
    }

    /// Who made a session that is loaded.
    pub fn owner_of(&self, session_id: &SessionId) -> Option<String> {
        self.sessions.get(session_id).map(|session| session.owner.clone())
    }

    /// The session to which a client is attached.
    pub fn session_of(&self, client_id: &ClientId) -> Option<SessionId> {
        self.clients.get(client_id).map(|s| s.clone())
    }

    /// The session to which a client is attached, if it is loaded.
    pub fn place_of(&self, client_id: &ClientId) -> Option<Arc<SessionHandle>> {
        self.session_of(client_id).and_then(|id| self.sessions.get(&id).map(|s| s.clone()))
    }

    /// Notes which life of a client says hello; false: a later one was here. Kept in memory: a hello that was sent to an
    /// earlier process of this Brain died with its connection.
    pub fn lives(&self, client_id: &ClientId, life: u64) -> bool {
        let mut latest = self.lives.entry(client_id.clone()).or_insert(life);
        *latest = life.max(*latest);
        *latest == life
    }

    /// Notes where a client is now, and takes it out of the session in which it was.
    pub fn attach(&self, client_id: &ClientId, session_id: &SessionId) {
        let before = self.clients.insert(client_id.clone(), session_id.clone());
        let elsewhere = before.filter(|b| b != session_id).and_then(|b| self.sessions.get(&b).map(|s| s.clone()));
        if let Some(session) = elsewhere
            && session.actor.tell(ToSession::Evict { client_id: client_id.clone() }).is_err()
        {
            tracing::warn!(%client_id, "its former session did not take the eviction");
        }
    }

    /// A result is stored: the client, wherever it is, may forget it. If it is away, its next hello brings the call again.
    pub fn acknowledge(&self, client_id: &ClientId, call_id: CallId) {
        if let Some(session) = self.place_of(client_id) {
            session.actor.tell(ToSession::Ack { client_id: client_id.clone(), call_id }).ok();
        }
    }

    /// Sends a client the answer to a question. One that is away asks again when it is back.
    pub fn reply(&self, client_id: ClientId, reply: wire::ElicitReply) {
        let session = self.session_of(&client_id).and_then(|id| self.sessions.get(&id).map(|s| s.clone()));
        if let Some(session) = session
            && let Err(refusal) = session.actor.tell(ToSession::Reply { client_id, reply })
        {
            tracing::warn!(session = session.actor.name(), %refusal, "the session did not take an answer");
        }
    }

    /// Remembers definitions that a client of the session's owner reports. The store follows when it can.
    pub fn learn(&self, brain: &Brain, session: &SessionHandle, tools: &Tools) {
        let owner = session.owner.clone();
        let mut known: BTreeMap<ToolName, Arc<ToolSpec>> =
            self.known.get(&owner).map(|k| (**k).clone()).unwrap_or_default();
        let before = known.len();
        let mut changed = false;
        for (name, spec) in tools.iter() {
            if known.get(name) != Some(spec) && (known.contains_key(name) || before < MAX_KNOWN) {
                known.insert(name.clone(), spec.clone());
                changed = true;
            }
        }
        if !changed {
            return;
        }
        let wire: Vec<WireTool> = known.values().map(|spec| WireTool::from(&**spec)).collect();
        let known: Known = Arc::new(known);
        self.known.insert(owner.clone(), known.clone());
        for other in self.sessions.iter().filter(|s| s.owner == owner) {
            other.set_known(known.clone());
        }
        let Ok(data) = Raw::of(&wire) else { return };
        tokio::spawn(remember(brain.clone(), owner, known, data));
    }

    async fn load(&self, brain: &Brain, session_id: &SessionId) -> Result<Option<Arc<SessionHandle>>, Fault> {
        if let Some(found) = self.sessions.get(session_id) {
            return Ok(Some(found.clone()));
        }
        let row = brain.store.row(SESSION, session_id.as_str()).await.map_err(|e| store_fault(&e))?;
        let Some(row) = row else { return Ok(None) };
        let owner = row.owner.unwrap_or_default();
        let row: SessionRow = row
            .data
            .to()
            .map_err(|e| Fault::new("store_corrupt", format!("session {session_id} cannot be read: {e}")))?;
        self.start(brain, session_id, owner, row).await.map(Some)
    }

    async fn create(
        &self,
        brain: &Brain,
        owner: &str,
        session_id: &SessionId,
        mode: Mode,
    ) -> Result<Arc<SessionHandle>, Fault> {
        let row = SessionRow { mode, created_at: now_ms(), default: false };
        let stored = row_of(owner, session_id, &row);
        brain.store.create_row(stored).await.map_err(|e| store_fault(&e))?;
        self.start(brain, session_id, owner.to_owned(), row).await
    }

    async fn start(
        &self,
        brain: &Brain,
        session_id: &SessionId,
        owner: String,
        row: SessionRow,
    ) -> Result<Arc<SessionHandle>, Fault> {
        let known = self.known_of(brain, &owner).await;
        let handle = Arc::new(SessionHandle {
            session_id: session_id.clone(),
            owner,
            mode: row.mode,
            created_at: row.created_at,
            actor: ActorRef::new(format!("session:{session_id}")),
            view: ArcSwap::from_pointee(Published {
                view: SessionView { clients: Vec::new(), known },
                ..Published::default()
            }),
            refused: ArcSwapOption::empty(),
            news: self.news.clone(),
            // Above those of the same session when it was loaded before.
            revision: AtomicU64::new(u64::try_from(now_ms()).unwrap_or_default() << REVISION_BITS),
            starts: AtomicU32::new(0),
            looks: AtomicBool::new(false),
        });
        let (hub, own) = (brain.clone(), handle.clone());
        let child = ChildSpec::actor(handle.actor.clone(), move |_| SessionActor::new(hub.clone(), own.clone()));
        let child = child.mailbox(MAILBOX);
        self.supervisor
            .start_child(child)
            .await
            .map_err(|e| Fault::new("unavailable", format!("cannot start session {session_id}: {e}")))?;
        self.sessions.insert(session_id.clone(), handle.clone());
        self.settle(brain, &handle);
        Ok(handle)
    }

    async fn known_of(&self, brain: &Brain, owner: &str) -> Known {
        if let Some(known) = self.known.get(owner) {
            return known.clone();
        }
        let row = brain.store.row(KNOWN_TOOLS, owner).await.ok().flatten();
        let tools: Vec<WireTool> = row.and_then(|r| r.data.to().ok()).unwrap_or_default();
        let registry = brain.registry.load();
        let known: BTreeMap<ToolName, Arc<ToolSpec>> = tools
            .into_iter()
            .filter_map(|tool| vance_brain_core::session::take_tool(&registry, tool).ok())
            .map(|spec| (spec.name.clone(), Arc::new(spec)))
            .collect();
        let known: Known = Arc::new(known);
        self.known.insert(owner.to_owned(), known.clone());
        known
    }
}

/// Stores what an owner's clients reported. While the store is away it is tried again, unless more is known by then: whoever
/// knows more stores that.
async fn remember(brain: Brain, owner: String, known: Known, data: Raw) {
    let mut pause = STORE_RETRY.0;
    loop {
        let row = Row {
            kind: KNOWN_TOOLS.into(),
            key: owner.clone(),
            parent: None,
            owner: Some(owner.clone()),
            state: None,
            data: data.clone(),
        };
        match brain.store.commit(Batch { rows: vec![row], at_ms: now_ms(), ..Batch::default() }).await {
            Ok(_) => return,
            Err(error @ (StoreError::Full { .. } | StoreError::Unavailable { .. })) => {
                tracing::warn!(%error, retry_in_ms = pause.as_millis(), "cannot remember a client's tools yet");
            }
            Err(error) => return tracing::warn!(%error, "cannot remember a client's tools"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(STORE_RETRY.1);
        if brain.directory.known.get(&owner).is_none_or(|now| !Arc::ptr_eq(&now, &known)) {
            return;
        }
    }
}
