//! The threads of a program: one for actors and sockets, and a pool for what would hold these up.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// How long work on blocking threads may hold up the end of the program. A read of a terminal
/// never returns by itself, so the wait must end.
const END_WAIT: Duration = Duration::from_secs(1);

thread_local! {
    /// The pool of the program whose main thread this is.
    static POOL: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// Runs a program's `main` on the calling thread, as an actix system on a runtime of that thread alone, and gives back what
/// `main` gave. Beside it stands a pool with `workers` threads (at least one).
///
/// Actors, supervisors, sockets, and everything that is spawned by them live on the calling thread: a message that wakes
/// another thread costs tens of microseconds, one on the same thread half of one. What computes for long, or blocks, goes
/// [`beside`] it. The error is the system's, when it gives no threads.
pub fn run<F: Future>(workers: usize, main: F) -> io::Result<F::Output> {
    let pool =
        Builder::new_multi_thread().worker_threads(workers.max(1)).thread_name("vance-pool").enable_all().build()?;
    let own = Arc::new(Builder::new_current_thread().enable_all().build()?);
    let system = actix::System::with_tokio_rt(|| Arc::clone(&own));
    POOL.set(Some(pool.handle().clone()));
    let output = system.block_on(main);
    POOL.set(None);
    // Local tasks end here, and what they own may need the runtime to end.
    let inside = own.enter();
    drop(system);
    drop(inside);
    let until = Instant::now() + END_WAIT;
    let end = |runtime: Runtime| runtime.shutdown_timeout(until.saturating_duration_since(Instant::now()));
    end(pool);
    if let Some(own) = Arc::into_inner(own) {
        end(own);
    }
    Ok(output)
}

/// Spawns work on the pool's threads: what computes for milliseconds, or must go on while the main thread does not. Outside of
/// [`run`]'s thread it is `tokio::spawn`.
pub fn beside<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match POOL.with_borrow(Clone::clone) {
        Some(pool) => pool.spawn(work),
        None => tokio::spawn(work),
    }
}

/// Spawns among the actors, where the program has a main thread of its own: what tells an actor something, or is told by one, then
/// costs no look at the sockets in between. Outside of [`run`]'s thread it is `tokio::spawn`.
///
/// # Panics
///
/// On the main thread, within what was spawned there with `tokio::spawn`: who spawns near must be near.
pub fn near<F>(work: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    if POOL.with_borrow(Option::is_some) { tokio::task::spawn_local(work) } else { tokio::spawn(work) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn what_is_spawned_stays_on_the_main_thread_and_only_work_beside_it_does_not() {
        let here = std::thread::current().id();
        let (local, spawned, beside) = super::run(2, async {
            let local = tokio::task::spawn_local(async { std::thread::current().id() });
            let spawned = tokio::spawn(async { std::thread::current().id() });
            let near = super::near(async { std::thread::current().id() }).await.unwrap();
            let beside = super::beside(async { std::thread::current().id() });
            assert_eq!(near, spawned.await.unwrap());
            (local.await.unwrap(), near, beside.await.unwrap())
        })
        .unwrap();
        assert_eq!((local, spawned), (here, here));
        assert_ne!(beside, here);
    }
}
