//! Sees that pack files have changed, and says so; they are loaded when somebody asks for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use vance_mcp_host::stamps::{Stamps, named};

use crate::packs;
use crate::paths::Paths;

/// How often.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// How the files looked when they were last read for a load: what it has taken in is no news.
pub(super) type Taken = Rc<RefCell<Option<Stamps>>>;

/// Watches for ever.
pub(super) async fn watch(paths: Paths, local: bool, taken: Taken) {
    let look = || {
        let paths = paths.clone();
        tokio::task::spawn_blocking(move || Stamps::of(packs::watched(&paths, local)))
    };
    let Ok(mut before) = look().await else { return };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(now) = look().await else { return };
        if let Some(taken) = taken.take() {
            before = taken;
        }
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
