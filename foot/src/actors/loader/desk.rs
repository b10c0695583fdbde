//! What others may ask of the loader.

use std::sync::Arc;

use tokio::sync::oneshot;
use vance_shared::names::PackName;
use vance_supervise::ActorRef;

use super::{LoadSummary, Loader, PackStatus, ToLoader};
use crate::actors::gate::Gate;

/// The packs of a running Foot.
#[derive(Clone)]
pub(crate) struct PackDesk {
    pub(crate) loader: ActorRef<Loader>,
    pub(crate) gate: Gate,
}

impl PackDesk {
    /// Reads the packs again. An empty summary if the loader fell meanwhile: it then loads by itself.
    pub(crate) async fn reload(&self) -> Arc<LoadSummary> {
        self.ask(ToLoader::Load).await.unwrap_or_default()
    }

    /// Every pack, with how it is.
    pub(crate) async fn list(&self) -> Vec<PackStatus> {
        self.ask(ToLoader::List).await.unwrap_or_default()
    }

    /// Ends a pack until the next load, and forgets that it was allowed once. False if it did not run.
    pub(crate) async fn stop(&self, pack: PackName) -> bool {
        self.gate.forget(pack.clone()).await;
        self.ask(|tell| ToLoader::Stop { pack, tell }).await.unwrap_or_default()
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> ToLoader) -> Option<T> {
        let (tell, told) = oneshot::channel();
        if let Err(refusal) = self.loader.post(message(tell)).await {
            tracing::warn!("the pack loader is {refusal}");
            return None;
        }
        told.await.ok()
    }
}
