//! The wall clocks and the random numbers of a simulation's thread. The test's binary puts them in place of the system's, so that
//! a seed is a run: ids, hash maps and `select!` included. Each machine has a wall clock of its own, which may be set.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::runtime::{Handle, Id};

/// Where simulated time begins: 2030-01-01, so that nobody takes it for now.
const EPOCH: Duration = Duration::from_secs(1_893_456_000);

/// Between the beginnings of two seeds, so that ids of a later seed are later too: their generator never goes back.
const BETWEEN_SEEDS: Duration = Duration::from_secs(7 * 24 * 3_600);

thread_local! {
    // Without destructors, because the system's clock is asked at any time, also while a thread ends.
    static WALL_NANOS: Cell<u64> = const { Cell::new(0) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    static MACHINES: RefCell<Vec<Machine>> = const { RefCell::new(Vec::new()) };
}

/// A machine, which is known by the runtime that is polled.
#[derive(Debug, Clone, Copy, Default)]
struct Machine {
    runtime: Option<Id>,
    ahead_ms: i64,
}

fn machine(number: usize, change: impl FnOnce(&mut Machine)) {
    MACHINES.with_borrow_mut(|machines| {
        if machines.len() <= number {
            machines.resize(number + 1, Machine::default());
        }
        change(&mut machines[number]);
    });
}

/// What runs here and now is this machine.
pub(super) fn here(number: usize) {
    machine(number, |machine| machine.runtime = Some(Handle::current().id()));
}

/// Sets a machine's clock forward or back.
pub(super) fn jump(number: usize, by_ms: i64) {
    machine(number, |machine| machine.ahead_ms += by_ms);
}

fn ahead_ms() -> i64 {
    let Ok(handle) = Handle::try_current() else { return 0 };
    let of = |machines: &Vec<Machine>| machines.iter().find(|m| m.runtime == Some(handle.id())).map(|m| m.ahead_ms);
    // While the thread ends or a clock is set, nobody's time matters.
    MACHINES
        .try_with(|machines| machines.try_borrow().ok().and_then(|machines| of(&machines)))
        .ok()
        .flatten()
        .unwrap_or(0)
}

/// Time since 1970 as the machine that runs sees it; `None`: this thread simulates nothing.
pub fn wall() -> Option<Duration> {
    match WALL_NANOS.try_with(Cell::get) {
        Ok(0) | Err(_) => None,
        Ok(nanos) => Some(shifted(Duration::from_nanos(nanos), ahead_ms())),
    }
}

fn shifted(time: Duration, ms: i64) -> Duration {
    let by = Duration::from_millis(ms.unsigned_abs());
    if ms < 0 { time.saturating_sub(by) } else { time.saturating_add(by) }
}

/// Fills bytes by the seed. `false`: this thread simulates nothing.
pub fn random(bytes: &mut [u8]) -> bool {
    let Ok(mut state) = RANDOM.try_with(Cell::get) else { return false };
    if state == 0 {
        return false;
    }
    for chunk in bytes.chunks_mut(8) {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(word ^ (word >> 31)).to_le_bytes()[..chunk.len()]);
    }
    RANDOM.set(state.max(1));
    true
}

/// From here on this thread lives in the simulation.
pub(super) fn begin(seed: u64) {
    RANDOM.set(seed.wrapping_mul(2).wrapping_add(1));
    fastrand::seed(seed);
    MACHINES.with_borrow_mut(Vec::clear);
    set(start(seed));
}

/// Sets the time that all wall clocks begin with.
pub(super) fn set(wall: Duration) {
    WALL_NANOS.set(u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX));
}

/// When a seed's time begins.
pub(super) fn start(seed: u64) -> Duration {
    EPOCH + BETWEEN_SEEDS * u32::try_from(seed % 10_000).unwrap_or(0)
}
