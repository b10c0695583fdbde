//! Who has shown no token yet: how many of them there may be, and how often they may try. Whoever bears a good token is never counted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Connections without a token at once: so many that all others find a place, see `MAX_CONNECTIONS`.
const MAX_STRANGERS: usize = 4_096;
/// Of these from one address: an office whose machines come back at the same moment.
const MAX_OF_ADDRESS: usize = 256;
/// Wrong tokens of one address within [`WINDOW`]; a program with an old token knocks a few times.
const MAX_WRONG: u32 = 60;
/// Until wrong tokens are forgotten.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered; one more, and those who have calmed down are forgotten.
const MAX_ADDRESSES: usize = 4_096;

/// Shared by all connections: a lock, held for a look into a table.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    strangers: usize,
    addresses: HashMap<IpAddr, Known>,
}

/// What is known of an address.
#[derive(Debug)]
struct Known {
    open: usize,
    wrong: u32,
    since: Instant,
}

/// One connection, from its beginning.
#[derive(Debug)]
pub(super) struct Visitor {
    strangers: Arc<Strangers>,
    address: IpAddr,
    is_stranger: AtomicBool,
}

impl Strangers {
    /// A new connection; none if there are too many.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Visitor> {
        let address = network(address);
        let mut table = self.table();
        if table.strangers >= MAX_STRANGERS {
            return None;
        }
        if counts(address) {
            let known = table.known(address)?;
            if known.open >= MAX_OF_ADDRESS {
                return None;
            }
            known.open += 1;
        }
        table.strangers += 1;
        drop(table);
        Some(Visitor { strangers: self.clone(), address, is_stranger: AtomicBool::new(true) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// None: too many addresses at once.
    fn known(&mut self, address: IpAddr) -> Option<&mut Known> {
        let now = Instant::now();
        if self.addresses.len() >= MAX_ADDRESSES && !self.addresses.contains_key(&address) {
            self.addresses.retain(|_, known| known.open > 0 || now.duration_since(known.since) < WINDOW);
            if self.addresses.len() >= MAX_ADDRESSES {
                return None;
            }
        }
        let known = self.addresses.entry(address).or_insert(Known { open: 0, wrong: 0, since: now });
        if now.duration_since(known.since) >= WINDOW {
            (known.wrong, known.since) = (0, now);
        }
        Some(known)
    }

    fn left(&mut self, address: IpAddr) {
        self.strangers = self.strangers.saturating_sub(1);
        if let Some(known) = self.addresses.get_mut(&address) {
            known.open = known.open.saturating_sub(1);
            if known.open == 0 && known.wrong == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

impl Visitor {
    /// It bears a good token: it is no stranger from here on.
    pub(super) fn welcome(&self) {
        if self.is_stranger.swap(false, Ordering::Relaxed) {
            self.strangers.table().left(self.address);
        }
    }

    /// It bears none, or a wrong one. False: that was once too often for its address.
    pub(super) fn refuse(&self) -> bool {
        if !counts(self.address) {
            return true;
        }
        let mut table = self.strangers.table();
        let Some(known) = table.known(self.address) else { return false };
        known.wrong = known.wrong.saturating_add(1);
        known.wrong <= MAX_WRONG
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.welcome();
    }
}

/// On this machine everybody has the same address, also those whom a proxy brings: these count together only.
fn counts(address: IpAddr) -> bool {
    !address.is_loopback()
}

/// What one subscriber has: an IPv4 address, or the first half of an IPv6 one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_its_share_and_the_others_theirs() {
        let strangers = Arc::new(Strangers::default());
        let one: Vec<Visitor> = (0..MAX_OF_ADDRESS).map(|_| strangers.enter(address("192.0.2.1")).unwrap()).collect();
        assert!(strangers.enter(address("192.0.2.1")).is_none());
        assert!(strangers.enter(address("::ffff:192.0.2.1")).is_none(), "the same address");
        let other = strangers.enter(address("192.0.2.2")).unwrap();
        one[0].welcome();
        let again = strangers.enter(address("192.0.2.1")).unwrap();
        one[0].welcome();
        assert!(strangers.enter(address("192.0.2.1")).is_none(), "a welcome counts once");
        drop((one, other, again));
        let left = |strangers: &Strangers| {
            let table = strangers.table();
            (table.strangers, table.addresses.len())
        };
        assert_eq!(left(&strangers), (0, 0), "nothing is left");
        let prefix: Vec<Visitor> =
            (0..MAX_OF_ADDRESS).map(|n| strangers.enter(address(&format!("2001:db8::{n:x}"))).unwrap()).collect();
        assert!(strangers.enter(address("2001:db8::ffff")).is_none(), "one subscriber");
        assert!(strangers.enter(address("2001:db8:0:1::1")).is_some());
        drop(prefix);
    }

    #[tokio::test(start_paused = true)]
    async fn all_strangers_together_leave_room_for_those_who_are_known() {
        let strangers = Arc::new(Strangers::default());
        let here: Vec<Visitor> = (0..MAX_STRANGERS).map(|_| strangers.enter(address("127.0.0.1")).unwrap()).collect();
        assert!(strangers.enter(address("127.0.0.1")).is_none() && strangers.enter(address("192.0.2.1")).is_none());
        here.iter().for_each(Visitor::welcome);
        assert!(strangers.enter(address("192.0.2.1")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_are_counted_by_address_and_forgotten_after_a_while() {
        let strangers = Arc::new(Strangers::default());
        let visitor = strangers.enter(address("192.0.2.1")).unwrap();
        assert!((0..MAX_WRONG).all(|_| visitor.refuse()) && !visitor.refuse());
        assert!(!strangers.enter(address("192.0.2.1")).unwrap().refuse(), "a new connection does not help");
        assert!(strangers.enter(address("192.0.2.2")).unwrap().refuse());
        let here = strangers.enter(address("127.0.0.1")).unwrap();
        assert!((0..1_000).all(|_| here.refuse()));
        tokio::time::advance(WINDOW).await;
        assert!(visitor.refuse());
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded() {
        let strangers = Arc::new(Strangers::default());
        let of = |n: usize| address(&format!("10.0.{}.{}", n / 256, n % 256));
        for n in 0..MAX_ADDRESSES {
            assert!(strangers.enter(of(n)).unwrap().refuse());
        }
        assert!(strangers.enter(address("192.0.2.1")).is_none(), "each of them tried something");
        tokio::time::advance(WINDOW).await;
        assert!(strangers.enter(address("192.0.2.1")).is_some());
        assert!(strangers.table().addresses.len() < 2);
    }
}
