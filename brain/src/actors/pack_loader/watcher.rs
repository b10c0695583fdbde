//! Sees that files have changed, and has them read.

use std::time::Duration;

use vance_mcp_host::stamps::{Stamps, named};
use vance_supervise::ActorRef;

use super::{PackLoader, ToPackLoader};
use crate::home::{self, Home};

/// How often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Until a change counts as finished: somebody may still be writing.
const SETTLE: Duration = Duration::from_millis(250);
/// Looks at files that go on changing; then they are read as they are.
const SETTLE_LOOKS: u32 = 20;

/// Watches for ever.
pub(super) async fn watch(home: Home, loader: ActorRef<PackLoader>) {
    let look = || {
        let home = home.clone();
        tokio::task::spawn_blocking(move || home::watched(&home).map(Stamps::of))
    };
    let mut before = loop {
        match look().await {
            Ok(Some(stamps)) => break stamps,
            Ok(None) => tokio::time::sleep(LOOK_EVERY).await,
            Err(_) => return,
        }
    };
    // What changed between the first reading and the first look.
    loader.post(ToPackLoader::Reload).await.ok();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(now) = look().await else { return };
        let Some(mut now) = now else { continue };
        let changed = now.changed_since(&before);
        if changed.is_empty() {
            continue;
        }
        for _ in 0..SETTLE_LOOKS {
            tokio::time::sleep(SETTLE).await;
            let Ok(later) = look().await else { return };
            if later.as_ref() == Some(&now) {
                break;
            }
            now = later.unwrap_or(now);
        }
        tracing::info!("files changed: {}", named(&changed));
        match loader.post(ToPackLoader::Reload).await {
            Ok(()) => before = now,
            // Seen again with the next look.
            Err(refusal) => tracing::debug!("files changed, and the loader is {refusal}"),
        }
    }
}
