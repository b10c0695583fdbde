#![allow(clippy::unwrap_used, clippy::expect_used)]
//! The server over real sockets, before a whole Brain in this process.

mod blobs;
mod client;
mod door;
mod principals;
mod stream;
mod work;
mod ws;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vance_supervise::SupervisorRef;

use super::{HttpSetup, bind, run};
use crate::builtin::{BuiltinConfig, Builtins};
use crate::home::Loaded;
use crate::hub::Brain;
use crate::metrics::Metrics;
use crate::store::Store;
use crate::tokens::{Principals, Scope, Token};

use client::Request;

/// A served Brain, with a token for every wish.
struct World {
    brain: Brain,
    addr: SocketAddr,
    /// May do everything, as the principal `local`.
    local: Token,
    /// Another principal's, for the API only.
    other: Token,
    foot: Token,
    admin: Token,
    principals: Arc<Principals>,
    shutdown: CancellationToken,
    web: JoinHandle<()>,
    root: SupervisorRef,
    dir: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, seat) = Store::open(dir.path()).unwrap();
        let config = vance_brain_core::config::BrainConfig::default();
        let builtins = Builtins::new(BuiltinConfig::of(&config, |_| None, |_| Err(String::new())));
        let (brain, supervisors) = crate::serve::hub(store, config, builtins, &Loaded::default());
        let root = SupervisorRef::start(crate::serve::tree(&brain, supervisors, Some(seat)));
        brain.store.ready().await;
        let [local, other, foot, admin] = std::array::from_fn(|_| Token::generate().unwrap());
        let principals = Principals::local(&local)
            .and(&other, "other", &[Scope::Api])
            .and(&foot, "foot", &[Scope::Foot])
            .and(&admin, "admin", &[Scope::Admin]);
        let principals = Arc::new(principals);
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let setup = HttpSetup {
            brain: brain.clone(),
            principals: principals.clone(),
            listen: addr,
            allowed_hosts: vec!["brain.example.com".to_owned()],
            metrics: Metrics::install().unwrap(),
            tls: None,
        };
        let shutdown = CancellationToken::new();
        let web = vance_supervise::near(run(setup, listener, shutdown.clone()));
        Self { brain, addr, local, other, foot, admin, principals, shutdown, web, root, dir }
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.web.await.unwrap();
        self.root.shutdown().await;
    }

    /// A request by the principal that may do everything.
    fn ask(&self, method: &str, path: &str) -> Request {
        self.anyone(method, path).token(&self.local)
    }

    /// A request without a token.
    fn anyone(&self, method: &str, path: &str) -> Request {
        Request::new(self.addr, method, path)
    }
}

/// Runs a test in a served Brain.
fn in_world(test: impl AsyncFnOnce(&World)) {
    vance_supervise::run(2, async {
        let world = World::start().await;
        test(&world).await;
        world.end().await;
    })
    .unwrap();
}
