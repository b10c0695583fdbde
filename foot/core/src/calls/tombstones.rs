//! Ids of calls that are over. Kept small: sixteen bytes a call, not the id's text.

use std::collections::{HashSet, VecDeque};

use vance_shared::ids::CallId;

/// Tombstones kept: a duplicate comes within seconds, this is hours of heavy use and some 6 MiB.
pub const MAX_TOMBSTONES: usize = 100_000;

/// The ids that were forgotten last.
#[derive(Debug, Default)]
pub struct Tombstones {
    known: HashSet<u128>,
    order: VecDeque<u128>,
}

impl Tombstones {
    /// Adds an id; the oldest goes when there are too many.
    pub fn insert(&mut self, call_id: &CallId) {
        let mark = mark(call_id);
        if !self.known.insert(mark) {
            return;
        }
        self.order.push_back(mark);
        if self.order.len() > MAX_TOMBSTONES
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether the id is over.
    pub fn contains(&self, call_id: &CallId) -> bool {
        self.known.contains(&mark(call_id))
    }
}

/// FNV-1a over 128 bits: two of a hundred thousand ids meet by chance once in 10^28 times.
fn mark(call_id: &CallId) -> u128 {
    call_id.as_str().bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_the_number_stays_bounded() {
        let id = |n: usize| CallId::parse(&format!("call_{n}")).unwrap();
        let mut tombstones = Tombstones::default();
        for n in 0..=MAX_TOMBSTONES {
            tombstones.insert(&id(n));
            tombstones.insert(&id(n));
        }
        assert!(
            !tombstones.contains(&id(0)) && tombstones.contains(&id(1)) && tombstones.contains(&id(MAX_TOMBSTONES))
        );
        assert_eq!(tombstones.known.len(), MAX_TOMBSTONES);
    }
}
