//! What happens beside tasks and is not stored: clients that come and go, runs that come to rest. Told live, to whoever listens.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::broadcast;
use vance_brain_core::registry::ClientView;
use vance_shared::ids::{ClientId, SessionId, TreeId};

use crate::http::Shared;

/// News that a listener may be behind; beyond that it misses some, and sees the state itself when it asks.
const BEHIND: usize = 1_024;

/// One piece of news.
#[derive(Debug, Clone, Serialize)]
pub struct News {
    /// `client_online`, `client_away` (its line was cut), `client_gone`, `client_tools` (it offers others), `tree_rests`.
    pub kind: &'static str,
    /// Milliseconds since 1970.
    #[serde(skip)]
    pub at: i64,
    /// Whose session it is.
    #[serde(skip)]
    pub owner: String,
    /// The session.
    pub session_id: SessionId,
    /// The client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<ClientId>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree_id: Option<TreeId>,
    /// How it stands: `3 completed, 1 waiting for client`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}

/// Where news are told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Desk(broadcast::Sender<Arc<Shared<News>>>);

impl Default for Desk {
    fn default() -> Self {
        Self(broadcast::channel(BEHIND).0)
    }
}

impl Desk {
    /// Listens from now on.
    pub(crate) fn listen(&self) -> broadcast::Receiver<Arc<Shared<News>>> {
        self.0.subscribe()
    }

    /// Tells everybody who listens.
    pub fn tell(&self, news: News) {
        // An error says that nobody listens.
        drop(self.0.send(Arc::new(Shared::new(news))));
    }

    /// Tells what is different between two views of a session's own clients.
    pub fn of_views(&self, session: (&SessionId, &str), at: i64, before: &[ClientView], now: &[ClientView]) {
        if self.0.receiver_count() == 0 {
            return;
        }
        let by_id = |views: &'_ [ClientView]| -> BTreeMap<ClientId, ClientView> {
            views.iter().map(|c| (c.client_id.clone(), c.clone())).collect()
        };
        let (before, now) = (by_id(before), by_id(now));
        let tell = |kind: &'static str, client: &ClientView| {
            self.tell(News {
                kind,
                at,
                owner: session.1.to_owned(),
                session_id: session.0.clone(),
                client_id: Some(client.client_id.clone()),
                name: Some(client.name.clone()),
                machine: Some(client.machine.clone()),
                tree_id: None,
                summary: None,
            });
        };
        for (id, client) in &now {
            match (before.get(id).map(|b| b.online), client.online) {
                (Some(false) | None, true) => tell("client_online", client),
                (Some(true), false) => tell("client_away", client),
                (Some(true), true) if !before.get(id).is_some_and(|b| Arc::ptr_eq(&b.tools, &client.tools)) => {
                    tell("client_tools", client);
                }
                (Some(_) | None, _) => {}
            }
        }
        for client in before.iter().filter(|(id, _)| !now.contains_key(*id)).map(|(_, client)| client) {
            tell("client_gone", client);
        }
    }
}
