//! Connections take turns: one read may bring thousands of frames, and their reader gives way to all others now and then.

/// Frames of one connection that are handled in a row.
const FRAMES: u32 = 32;

/// Bytes of the same: a few parts of a large result.
const BYTES: usize = 512 * 1024;

/// What one connection has had of its turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    frames: u32,
    bytes: usize,
}

impl Turns {
    /// A frame was read. Waits for the others if the turn is over.
    pub(super) async fn took(&mut self, bytes: usize) {
        (self.frames, self.bytes) = (self.frames + 1, self.bytes.saturating_add(bytes));
        if self.frames >= FRAMES || self.bytes >= BYTES {
            *self = Self::default();
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use super::*;

    /// How many frames of a noisy connection are handled before a calm one's `frames` are.
    async fn before(noisy_bytes: usize, frames: usize) -> usize {
        let handled = Arc::new(Mutex::new((0, 0)));
        let (noisy, calm) = (handled.clone(), handled.clone());
        let flood = tokio::spawn(async move {
            let mut turns = Turns::default();
            for _ in 0..10_000 {
                noisy.lock().unwrap().0 += 1;
                turns.took(noisy_bytes).await;
            }
        });
        let few = tokio::spawn(async move {
            for _ in 0..frames {
                calm.lock().unwrap().1 += 1;
                // Each comes alone: its reader waits for the next.
                tokio::task::yield_now().await;
            }
            calm.lock().unwrap().0
        });
        let seen = few.await.unwrap();
        flood.abort();
        seen
    }

    #[tokio::test]
    async fn a_flood_costs_a_calm_connection_a_turn_a_frame() {
        let small = before(20, 10).await;
        assert!(small <= 11 * FRAMES as usize, "{small}");
        let large = before(128 * 1024, 10).await;
        assert!(large <= 11 * BYTES.div_ceil(128 * 1024), "{large}");
    }
}
