//! Sees that pack files have changed, and says so; they are loaded when somebody asks for it.

use std::time::Duration;

use vance_mcp_host::stamps::{Stamps, named};

use crate::packs;
use crate::paths::Paths;

/// How often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Watches for ever.
pub(super) async fn watch(paths: Paths, local: bool) {
    let look = || {
        let paths = paths.clone();
        tokio::task::spawn_blocking(move || Stamps::of(packs::watched(&paths, local)))
    };
    let Ok(mut before) = look().await else { return };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(now) = look().await else { return };
        let changed = now.changed_since(&before);
        if !changed.is_empty() {
            tracing::info!(
                "packs changed: {}; /tools reload (or `vancetope tools reload`) loads them",
                named(&changed)
            );
        }
        before = now;
    }
}
