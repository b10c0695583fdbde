//! The threads of a program: one pool for I/O, and one thread for actors.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long work on blocking threads may hold up the end of the program. A read of a terminal
/// never returns by itself, so the wait must end.
const END_WAIT: Duration = Duration::from_secs(1);

/// Runs a program's `main`: builds one multi-thread tokio runtime with `workers` threads (at least
/// one) and an actix system on it, and gives back what `main` gave.
///
/// `tokio::spawn` goes to the pool. Actors, supervisors and everything spawned locally live on the
/// calling thread, together with `main` itself. The error is the system's, when it gives no threads.
pub fn run<F: Future>(workers: usize, main: F) -> io::Result<F::Output> {
    let pool = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers.max(1))
        .thread_name("vance-io")
        .enable_all()
        .build()?;
    let pool = Arc::new(pool);
    let system = actix::System::with_tokio_rt(|| Arc::clone(&pool));
    let output = system.block_on(main);
    // Local tasks end here, and what they own may need the pool to end.
    let inside = pool.enter();
    drop(system);
    drop(inside);
    if let Some(pool) = Arc::into_inner(pool) {
        pool.shutdown_timeout(END_WAIT);
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    #[test]
    fn main_and_local_tasks_share_a_thread_and_spawned_work_goes_to_the_pool() {
        let here = std::thread::current().id();
        let (local, pooled) = super::run(2, async {
            let local = tokio::task::spawn_local(async { std::thread::current().id() });
            let pooled = tokio::spawn(async { std::thread::current().id() });
            (local.await.unwrap(), pooled.await.unwrap())
        })
        .unwrap();
        assert_eq!(local, here);
        assert_ne!(pooled, here);
    }
}
