//! Waiting for an event with a generous limit: a test never depends on how fast this machine is.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Longer than anything in these tests takes, so that only a hang fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Looks until there is something, or fails with `what`.
pub async fn until<T, F, Fut>(what: &str, mut look: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<Option<T>>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < deadline, "waited {} s in vain for: {what}", PATIENCE.as_secs());
        sleep(LOOK).await;
    }
}
