//! Places that everybody wants: so many in all, and of these so many for one principal, who therefore cannot take them all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Shared by all requests: a lock, held for a look into a table that has an entry for each principal with a place.
#[derive(Debug)]
pub(super) struct Shares {
    all: usize,
    each: usize,
    taken: Mutex<HashMap<Arc<str>, usize>>,
}

/// A place, for as long as it lives.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    whose: Arc<str>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoShare {
    /// This principal has all that one may have.
    Theirs,
    /// All places are taken.
    All,
}

impl Shares {
    /// `each` of `all` for one principal.
    pub(super) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all, each, taken: Mutex::default() })
    }

    /// A place for this principal.
    pub(super) fn take(self: &Arc<Self>, whose: &Arc<str>) -> Result<Share, NoShare> {
        let mut taken = self.table();
        if taken.get(whose).is_some_and(|n| *n >= self.each) {
            return Err(NoShare::Theirs);
        }
        if taken.values().sum::<usize>() >= self.all {
            return Err(NoShare::All);
        }
        *taken.entry(whose.clone()).or_default() += 1;
        Ok(Share { shares: self.clone(), whose: whose.clone() })
    }

    /// Places that are taken.
    pub(super) fn taken(&self) -> usize {
        self.table().values().sum()
    }

    /// How many one principal may have.
    pub(super) fn each(&self) -> usize {
        self.each
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.table();
        if let Some(n) = taken.get_mut(&self.whose) {
            *n = n.saturating_sub(1);
            if *n == 0 {
                taken.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nobody_has_more_than_their_share_and_places_come_back() {
        let shares = Shares::new(5, 3);
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        let mut hers: Vec<Share> = (0..3).map(|_| shares.take(&a).unwrap()).collect();
        assert_eq!(shares.take(&a).unwrap_err(), NoShare::Theirs);
        let his: Vec<Share> = (0..2).map(|_| shares.take(&b).unwrap()).collect();
        assert_eq!(shares.take(&b).unwrap_err(), NoShare::All);
        assert_eq!(shares.take(&c).unwrap_err(), NoShare::All);
        hers.pop();
        let third = shares.take(&c).unwrap();
        drop((hers, his, third));
        assert_eq!((shares.taken(), shares.table().len()), (0, 0), "nothing is left");
    }
}
