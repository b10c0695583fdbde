//! The writer's thread: takes what is due, writes, answers.

use std::sync::Arc;

use super::desk::{Desk, Work};
use super::file::Store;
use super::group::Group;
use super::{Kept, Op};

/// Tombstones are pruned after this many changes.
const PRUNE_EVERY: usize = 10_000;

/// Writes until the desk is closed and empty.
pub(super) fn run(store: Store, desk: Arc<Desk>) {
    let mut writer = Writer { store, desk: Ended(desk), failing: false, since_prune: 0 };
    let mut linger = false;
    loop {
        let Work { group, asked, last } = writer.desk.0.next(linger);
        // Who waited for the disk has results soon.
        linger = group.is_durable();
        writer.write(group);
        asked.into_iter().for_each(|op| writer.answer(op));
        if last {
            return;
        }
    }
}

/// Says so, also if the thread falls.
struct Ended(Arc<Desk>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Writer {
    store: Store,
    desk: Ended,
    failing: bool,
    since_prune: usize,
}

impl Writer {
    /// Everything that was asked for before is written, or lies on the desk again because the disk does not take it.
    fn answer(&self, op: Op) {
        match op {
            Op::Begin { .. } | Op::Store(_) | Op::Forget(_) => {}
            Op::Load(call_id, answer) => {
                let kept = self.desk.0.with_group(|group| group.kept(&call_id));
                let kept = kept.or_else(|| self.read(|store| store.load(&call_id))).unwrap_or(Kept::Lost);
                if answer.send(kept).is_err() {
                    tracing::debug!("nobody waits for a kept result");
                }
            }
            Op::Rows(answer) => {
                // Who asked is the actor's start, which blocks until this comes.
                if let Some(rows) = self.read(Store::rows)
                    && answer.send(rows).is_err()
                {
                    tracing::debug!("nobody waits for the rows");
                }
            }
            Op::Flush(answer) => {
                if answer.send(()).is_err() {
                    tracing::debug!("nobody waits for the flush");
                }
            }
        }
    }

    fn write(&mut self, group: Group) {
        if group.is_empty() {
            return group.written();
        }
        let changes = group.len();
        match self.store.commit(group.changes(), group.is_durable()) {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!("{}: written again", self.store.path());
                    self.desk.0.writes();
                }
                group.written();
                self.since_prune += changes;
                if self.since_prune >= PRUNE_EVERY {
                    self.since_prune = 0;
                    self.read(Store::prune);
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        "{}: {error}; calls of unsafe tools are refused until it can be written",
                        self.store.path()
                    );
                }
                self.desk.0.give_back(group, &format!("{}: {error}", self.store.path()));
            }
        }
    }

    fn read<T>(&self, with: impl FnOnce(&Store) -> Result<T, rusqlite::Error>) -> Option<T> {
        match with(&self.store) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::error!("{}: {error}", self.store.path());
                None
            }
        }
    }
}
