//! What the actor and the handles share: the plan, and which connection is the current one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_util::sync::CancellationToken;
use vance_shared::launch::{Auth, LaunchPlan, Transport, TrustedLaunch};

use crate::auth::Store;
use crate::budget::Budget;
use crate::conn::Conn;
use crate::flights::Flights;
use crate::handle::{EventSink, HostEnv, HostEvent, HostState};
use crate::mask::Mask;
use crate::people::People;
use crate::reading::Readings;
use crate::rest::RestPack;
use crate::tools::Table;
use crate::{env, http};

/// What takes calls.
pub(crate) struct Live {
    pub(crate) back: Back,
    pub(crate) table: ArcSwap<Table>,
}

/// What stands behind the tools.
pub(crate) enum Back {
    /// An MCP server.
    Mcp(Arc<Mcp>),
    /// An HTTP API.
    Rest(Box<RestPack>),
}

/// A connection to an MCP server.
pub(crate) struct Mcp {
    pub(crate) conn: Conn,
    pub(crate) protocol: Option<String>,
    /// What it may have beside its tools.
    pub(crate) readings: Vec<Readings>,
}

/// How to greet a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Era {
    /// Unknown yet: ask with `server/discover`, fall back to `initialize`.
    #[default]
    Ask,
    /// `initialize`.
    Initialize,
    /// `server/discover`.
    Discover,
}

/// What is remembered over restarts.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) budget: Budget,
    pub(crate) era: Era,
    /// Start slowly: it failed.
    pub(crate) failed: bool,
}

pub(crate) struct Shared {
    launch: TrustedLaunch,
    env: HostEnv,
    events: EventSink,
    people: People,
    flights: Arc<Flights>,
    mask: ArcSwap<Mask>,
    state: ArcSwap<HostState>,
    live: ArcSwapOption<Live>,
    /// A lock for form's sake: only the one actor's life at a time touches it.
    memory: Mutex<Memory>,
    /// Cancelled when the server is to be gone for good, with what still runs in connections that it left behind.
    closing: CancellationToken,
}

impl Shared {
    pub(crate) fn new(launch: TrustedLaunch, env: HostEnv, events: EventSink, people: People) -> Self {
        let state = ArcSwap::from_pointee(HostState::Starting);
        Self {
            launch,
            env,
            events,
            people,
            flights: Arc::default(),
            mask: ArcSwap::default(),
            state,
            live: ArcSwapOption::empty(),
            memory: Mutex::default(),
            closing: CancellationToken::new(),
        }
    }

    pub(crate) fn launch(&self) -> &TrustedLaunch {
        &self.launch
    }

    pub(crate) fn plan(&self) -> &LaunchPlan {
        self.launch.plan()
    }

    pub(crate) fn env(&self) -> &HostEnv {
        &self.env
    }

    /// What its words must not show; of the values as they were when its life began.
    pub(crate) fn mask(&self) -> Arc<Mask> {
        self.mask.load_full()
    }

    /// A life begins: with the values as they are now.
    pub(crate) fn look_up_values(&self) {
        self.mask.store(Arc::new(Mask::of(self.plan(), &self.env)));
    }

    /// Its calls that are under way.
    pub(crate) fn flights(&self) -> &Arc<Flights> {
        &self.flights
    }

    /// Cancelled when the server is to be gone for good.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    pub(crate) fn people(&self) -> &People {
        &self.people
    }

    /// Where a login to this server would be kept; none where it takes no login.
    pub(crate) fn login_store(&self) -> Option<Store> {
        let Transport::Http { url, headers, auth, .. } = &self.plan().transport else { return None };
        if !matches!(auth, Auth::IfAsked | Auth::OAuth(_)) {
            return None;
        }
        let endpoint = http::endpoint(url, headers, auth, self.env.words(&env::ambient())).ok()?;
        Some(Store::new(&self.env, &self.plan().pack, &endpoint.url))
    }

    pub(crate) fn state(&self) -> HostState {
        HostState::clone(&self.state.load())
    }

    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.live.load_full()
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, event: HostEvent) {
        (self.events)(event);
    }

    /// From here on calls are taken.
    pub(crate) fn up(&self, live: Arc<Live>) {
        self.live.store(Some(live));
        self.state.store(Arc::new(HostState::Up));
    }

    /// From here on no call is taken.
    pub(crate) fn down(&self, state: HostState) {
        self.state.store(Arc::new(state));
        self.live.store(None);
    }
}
