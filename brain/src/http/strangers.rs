//! Who has shown no token yet: how many of them there may be, and how often they may try. Whoever bears a good token is never counted.
//!
//! One who comes when all places are taken gets the place of the one who has been there longest: a client sends its token at once, so it is through
//! before a flood has gone round.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connections::Hangup;

/// Connections without a token at once: so many that all others find a place, see `MAX_CONNECTIONS`; a quarter of what files the process may
/// open, if that is less.
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
#[derive(Debug)]
pub(super) struct Strangers {
    max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// By their order of coming.
    strangers: BTreeMap<u64, (IpAddr, Hangup)>,
    came: u64,
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
    number: u64,
    is_stranger: AtomicBool,
}

impl Strangers {
    /// In a process that may open so many files.
    pub(super) fn within(open_files: usize) -> Self {
        Self { max: MAX_STRANGERS.min(open_files / 4).max(1), table: Mutex::default() }
    }

    /// A new connection, which `hangup` ends. None: too many addresses at once.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr, hangup: Hangup) -> Option<Visitor> {
        let address = network(address);
        let mut table = self.table();
        if counts(address) && table.known(address)?.open >= MAX_OF_ADDRESS {
            table.make_room(|of| of == address);
        }
        if table.strangers.len() >= self.max {
            table.make_room(|_| true);
        }
        if counts(address) {
            // Anew: who made room may have been the last of this address.
            table.known(address)?.open += 1;
        }
        table.came += 1;
        let number = table.came;
        table.strangers.insert(number, (address, hangup));
        drop(table);
        Some(Visitor { strangers: self.clone(), address, number, is_stranger: AtomicBool::new(true) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Ends the oldest one from such an address.
    fn make_room(&mut self, of: impl Fn(IpAddr) -> bool) {
        let oldest = self.strangers.iter().find(|(_, (address, _))| of(*address)).map(|(number, _)| *number);
        if let Some(hangup) = oldest.and_then(|number| self.left(number)) {
            hangup.cancel();
        }
    }

    /// It is no stranger any more. None: it made room before.
    fn left(&mut self, number: u64) -> Option<Hangup> {
        let (address, hangup) = self.strangers.remove(&number)?;
        if let Some(known) = self.addresses.get_mut(&address) {
            known.open = known.open.saturating_sub(1);
            if known.open == 0 && known.wrong == 0 {
                self.addresses.remove(&address);
            }
        }
        Some(hangup)
    }
}

impl Visitor {
    /// It bears a good token: it is no stranger from here on.
    pub(super) fn welcome(&self) {
        if self.is_stranger.swap(false, Ordering::Relaxed) {
            self.strangers.table().left(self.number);
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

    fn world() -> Arc<Strangers> {
        Arc::new(Strangers::within(usize::MAX))
    }

    fn come(strangers: &Arc<Strangers>, from: &str) -> (Visitor, Hangup) {
        let hangup = Hangup::default();
        (strangers.enter(address(from), hangup.clone()).unwrap(), hangup)
    }

    /// Which of them made room.
    fn ended(visitors: &[(Visitor, Hangup)]) -> Vec<usize> {
        visitors.iter().enumerate().filter(|(_, (_, hangup))| hangup.is_cancelled()).map(|(n, _)| n).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_its_share_and_the_others_theirs() {
        let strangers = world();
        let other = come(&strangers, "192.0.2.2");
        let mut one: Vec<_> = (0..MAX_OF_ADDRESS).map(|_| come(&strangers, "192.0.2.1")).collect();
        one[0].0.welcome();
        one.push(come(&strangers, "192.0.2.1"));
        one[0].0.welcome();
        assert!(ended(&one).is_empty(), "a welcome makes room, once");
        one.push(come(&strangers, "192.0.2.1"));
        one.push(come(&strangers, "::ffff:192.0.2.1"));
        assert_eq!(ended(&one), [1, 2], "the oldest of the same address that have shown no token");
        assert!(!other.1.is_cancelled());
        drop((one, other));
        let left = |strangers: &Strangers| {
            let table = strangers.table();
            (table.strangers.len(), table.addresses.len())
        };
        assert_eq!(left(&strangers), (0, 0), "nothing is left");
        let prefix: Vec<_> = (0..=MAX_OF_ADDRESS).map(|n| come(&strangers, &format!("2001:db8::{n:x}"))).collect();
        assert_eq!(ended(&prefix), [0], "one subscriber");
        come(&strangers, "2001:db8:0:1::1");
        assert_eq!(ended(&prefix), [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_without_tokens_keeps_nobody_out_and_ends_nobody_who_has_shown_one() {
        let strangers = world();
        let known = come(&strangers, "192.0.2.1");
        known.0.welcome();
        let flood: Vec<_> = (0..MAX_STRANGERS).map(|_| come(&strangers, "127.0.0.1")).collect();
        assert!(ended(&flood).is_empty());
        let late = come(&strangers, "192.0.2.1");
        assert_eq!(ended(&flood), [0]);
        late.0.welcome();
        let more: Vec<_> = (0..2 * MAX_STRANGERS).map(|_| come(&strangers, "127.0.0.1")).collect();
        assert!(!known.1.is_cancelled() && !late.1.is_cancelled());
        assert_eq!((strangers.table().strangers.len(), ended(&more).len()), (MAX_STRANGERS, MAX_STRANGERS));
        assert_eq!(Strangers::within(1_024).max, 256, "files are left for everything else");
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_are_counted_by_address_and_forgotten_after_a_while() {
        let strangers = world();
        let visitor = come(&strangers, "192.0.2.1").0;
        assert!((0..MAX_WRONG).all(|_| visitor.refuse()) && !visitor.refuse());
        assert!(!come(&strangers, "192.0.2.1").0.refuse(), "a new connection does not help");
        assert!(come(&strangers, "192.0.2.2").0.refuse());
        let here = come(&strangers, "127.0.0.1").0;
        assert!((0..1_000).all(|_| here.refuse()));
        tokio::time::advance(WINDOW).await;
        assert!(visitor.refuse());
    }

    #[tokio::test(start_paused = true)]
    async fn the_table_is_bounded() {
        let strangers = world();
        for n in 0..MAX_ADDRESSES {
            assert!(come(&strangers, &format!("10.0.{}.{}", n / 256, n % 256)).0.refuse());
        }
        let late = || strangers.enter(address("192.0.2.1"), Hangup::default());
        assert!(late().is_none(), "each of them tried something");
        tokio::time::advance(WINDOW).await;
        assert!(late().is_some());
        assert!(strangers.table().addresses.len() < 2);
    }
}
