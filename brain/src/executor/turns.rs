//! Turns at a pack: so many of its calls are with the server at once, and of these so many of one principal. The others wait here, where nothing
//! of them has run and each principal's next one comes as soon as anybody else's, however many one of them sends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Calls of one principal that a server has at once: those of a session's tasks.
pub(super) const EACH: usize = 16;
/// Calls that a server has at once: four principals that are greedy, or many that are not.
const ALL: usize = 64;

/// Who has a turn and who waits. A lock, because calls come and go on any thread, each for a look into a small table.
#[derive(Debug, Default, Clone)]
pub(super) struct Turns(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    running: usize,
    by_owner: BTreeMap<String, Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    running: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// One call's turn, for as long as it lives.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    owner: String,
}

impl Turns {
    /// Waits for a turn. Dropped, it waits no more.
    pub(super) async fn take(&self, owner: &str) -> Option<Turn> {
        let turn = {
            let mut table = self.table();
            let queue = table.by_owner.entry(owner.to_owned()).or_default();
            let (give, turn) = oneshot::channel();
            queue.waiting.push_back(give);
            self.give(table);
            turn
        };
        turn.await.ok()
    }

    /// Gives turns while there are some: to whoever has the fewest of those who wait.
    fn give(&self, mut table: MutexGuard<'_, Table>) {
        let mut untaken = Vec::new();
        while table.running < ALL {
            for queue in table.by_owner.values_mut() {
                queue.waiting.retain(|wait| !wait.is_closed());
            }
            let next = table.by_owner.iter_mut().filter(|(_, queue)| !queue.waiting.is_empty() && queue.running < EACH);
            let Some((owner, queue)) = next.min_by_key(|(_, queue)| queue.running) else { break };
            let Some(wait) = queue.waiting.pop_front() else { break };
            queue.running += 1;
            let turn = Turn { turns: self.clone(), owner: owner.clone() };
            table.running += 1;
            // One that is not wanted any more gives itself back when the table is free.
            untaken.extend(wait.send(turn).err());
        }
        table.by_owner.retain(|_, queue| queue.running > 0 || !queue.waiting.is_empty());
        drop(table);
        drop(untaken);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut table = self.turns.table();
        table.running = table.running.saturating_sub(1);
        if let Some(queue) = table.by_owner.get_mut(&self.owner) {
            queue.running = queue.running.saturating_sub(1);
        }
        self.turns.give(table);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures_util::FutureExt as _;

    use super::*;

    fn now(turns: &Turns, owner: &str) -> Option<Turn> {
        turns.take(owner).now_or_never().flatten()
    }

    #[tokio::test]
    async fn one_principal_cannot_take_all_turns_and_whoever_has_fewest_is_next() {
        let turns = Turns::default();
        let mut greedy: Vec<Turn> = (0..EACH).map(|_| now(&turns, "a").unwrap()).collect();
        assert!(now(&turns, "a").is_none(), "its share");
        let other = now(&turns, "c").unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                tokio::spawn({
                    let turns = turns.clone();
                    async move { turns.take("a").await }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        greedy.pop();
        assert_eq!(greedy.len(), EACH - 1);
        let mut waiting = waiting.into_iter();
        let next = waiting.next().unwrap().await.unwrap().unwrap();
        drop((next, greedy, other));
        for wait in waiting {
            wait.await.unwrap().unwrap();
        }
        assert!(turns.table().by_owner.is_empty() && turns.table().running == 0, "nothing is left");
        // All places: who has none comes before who has some.
        let full: Vec<Turn> = (0..ALL).map(|n| now(&turns, &format!("p{}", n / EACH)).unwrap()).collect();
        let mut some = Box::pin(turns.take("p9"));
        assert!(some.as_mut().now_or_never().is_none());
        drop(full);
        assert!(some.await.is_some());
    }
}
