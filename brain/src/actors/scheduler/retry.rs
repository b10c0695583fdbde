//! A person's retry. It is as if it came after all that was on its way: what a tree's ends bring about has happened first, and retries of
//! one tree come one after the other. All that it revives is one transaction: whatever falls in its middle, no task comes back to life
//! below a parent that did not.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;
use vance_brain_core::board::{Board, Entry};
use vance_brain_core::task::Input;
use vance_shared::call::Fault;
use vance_shared::ids::{TaskId, TreeId};
use vance_supervise::{ActorFutureExt, AsyncContext, Context, WrapFuture};

use super::Scheduler;
use crate::actors::task::Reply;
use crate::hub::{Brain, now_ms};
use crate::recovery;
use crate::rows;
use crate::store::{Append, Batch, Store, StoreError};

/// Pause before a commit is tried again while the store is away: it doubles up to the second value.
const STORE_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a retry waits for what is on its way in its tree; it comes about within a commit or two. Below the time that a caller waits.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

/// Retries of one tree that wait: people's, who look at what came of one before the next.
const MAX_WAITING: usize = 64;

/// A retry that was asked for.
pub(super) struct Asked {
    pub(super) task_id: TaskId,
    /// Other clients may go on with it and with what is revived with it.
    pub(super) any_client: bool,
    /// Its tree's tasks as they were stored.
    pub(super) tree: Vec<Entry>,
    pub(super) reply: Reply,
    pub(super) since: Instant,
}

/// Those of one tree.
#[derive(Default)]
pub(super) struct Retries {
    is_under_way: bool,
    waiting: VecDeque<Asked>,
}

impl Scheduler {
    pub(super) fn retry_asked(&mut self, asked: Asked, ctx: &mut Context<Self>) {
        let Some(tree_id) = asked.tree.first().map(|entry| entry.tree_id.clone()) else { return };
        let retries = self.retries.entry(tree_id.clone()).or_default();
        if retries.waiting.len() >= MAX_WAITING {
            let text = format!("{MAX_WAITING} retries of this tree wait already; try again in a moment");
            // Whoever asked may be gone.
            asked.reply.send(Err(Fault::new("busy", text))).ok();
            return;
        }
        retries.waiting.push_back(asked);
        let late = tree_id.clone();
        ctx.run_later(SETTLES_WITHIN, move |actor, ctx| actor.next_retry(&late, ctx));
        self.next_retry(&tree_id, ctx);
    }

    /// The tree of a task, if retries wait there.
    pub(super) fn tree_of_retries(&self, task_id: &TaskId) -> Option<TreeId> {
        if self.retries.is_empty() {
            return None;
        }
        let tree_id = &self.board.entry(task_id)?.tree_id;
        self.retries.contains_key(tree_id).then(|| tree_id.clone())
    }

    /// Begins the retry whose turn it is, if it is time.
    pub(super) fn next_retry(&mut self, tree_id: &TreeId, ctx: &mut Context<Self>) {
        let Some(retries) = self.retries.get_mut(tree_id).filter(|retries| !retries.is_under_way) else { return };
        let Some(Asked { task_id, any_client, tree, reply, .. }) = retries
            .waiting
            .pop_front_if(|asked| self.board.is_settled(&asked.tree) || asked.since.elapsed() >= SETTLES_WITHIN)
        else {
            if retries.waiting.is_empty() {
                self.retries.remove(tree_id);
            }
            return;
        };
        // One that ended since it was asked for has not had the consequences of its end.
        if let Some(fault) = tree.iter().find(|entry| entry.task_id == task_id).and_then(|e| e.state.not_retryable()) {
            reply.send(Err(fault)).ok();
            return self.next_retry(tree_id, ctx);
        }
        retries.is_under_way = true;
        let on_board = self.board.has(&task_id).then(|| self.board.begin_retry(&task_id));
        let (brain, tree_id) = (self.brain.clone(), tree_id.clone());
        let work = async move {
            let closure = match on_board {
                Some(closure) => closure,
                // A tree that ended; which tasks belong together is then read off a board of its own, without slots.
                None => {
                    let mut aside = Board::new(0);
                    aside.add(tree_as_it_is(&brain, &tree_id).await);
                    aside.begin_retry(&task_id)
                }
            };
            let revived = match revive(&brain.store, &task_id, &closure, any_client).await {
                Ok(ids) => Ok((ids, tree_as_it_is(&brain, &tree_id).await)),
                Err(fault) => Err(fault),
            };
            (tree_id, closure, revived)
        };
        ctx.spawn(work.into_actor(self).map(move |(tree_id, closure, revived), actor, ctx| {
            let verdict = match revived {
                Ok((ids, tree)) => {
                    actor.retried(&tree_id, &closure, ids, tree);
                    Ok(())
                }
                Err(fault) => {
                    let orders = actor.board.retried(&closure, &HashSet::new());
                    actor.follow(orders);
                    Err(fault)
                }
            };
            // Whoever asked may be gone.
            reply.send(verdict).ok();
            if let Some(retries) = actor.retries.get_mut(&tree_id) {
                retries.is_under_way = false;
            }
            actor.next_retry(&tree_id, ctx);
        }));
    }

    /// `ids` are pending again; `tree`: all as they are stored now.
    fn retried(&mut self, tree_id: &TreeId, closure: &[TaskId], ids: Vec<TaskId>, tree: Vec<Entry>) {
        // What has ended again since stays so.
        let live: HashSet<&TaskId> = tree.iter().filter(|e| !e.state.is_terminal()).map(|e| &e.task_id).collect();
        let lives: HashSet<TaskId> = ids.into_iter().filter(|id| live.contains(id)).collect();
        for id in &lives {
            // An actor that knows the task as ended has nothing more to say of it.
            self.release(id);
            self.revived.insert(id.clone(), self.names);
        }
        if let Some(retries) = self.retries.get_mut(tree_id) {
            retries.waiting.iter_mut().for_each(|next| next.tree.clone_from(&tree));
        }
        // The tree may have ended before it was asked for: the board then takes it anew, as it is now.
        let is_there = closure.first().is_some_and(|id| self.board.has(id));
        let orders = if is_there { self.board.retried(closure, &lives) } else { self.board.add(tree) };
        self.follow(orders);
    }
}

/// Makes these tasks pending again, all or none; gives those that are. The first of all decides: if `task_id` is not one that can be
/// retried, nothing is. Others that cannot be any more stay as they are.
async fn revive(store: &Store, task_id: &TaskId, closure: &[TaskId], any_client: bool) -> Result<Vec<TaskId>, Fault> {
    let mut pause = STORE_RETRY.0;
    let mut may_be_written = false;
    loop {
        let tried = match read(store, task_id, closure, any_client).await {
            Ok(Read::Refused(_)) if may_be_written => return Ok(closure.to_vec()),
            Ok(Read::Refused(fault)) => return Err(fault),
            Ok(Read::Ready(batch, ids)) => store.commit(batch).await.map(|_| ids),
            Err(error) => Err(error),
        };
        match tried {
            Ok(ids) => return Ok(ids),
            // One of them moved on meanwhile: decided again, on what is there now.
            Err(StoreError::Conflict { .. }) => {}
            Err(error @ (StoreError::Full { .. } | StoreError::Unavailable { .. })) => {
                may_be_written |= matches!(error, StoreError::Unavailable { .. });
                tracing::error!(%task_id, %error, retry_in_ms = pause.as_millis(), "cannot store a retry yet");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(STORE_RETRY.1);
            }
            Err(error @ StoreError::TooLarge { .. }) => {
                let message = format!("{error}; retry the tasks within it one by one, those without parents first");
                return Err(Fault::new("too_large", message));
            }
            Err(error @ (StoreError::Exists { .. } | StoreError::Corrupt { .. })) => {
                return Err(Fault::new("store_corrupt", error.to_string()));
            }
        }
    }
}

enum Read {
    Ready(Batch, Vec<TaskId>),
    Refused(Fault),
}

async fn read(store: &Store, task_id: &TaskId, closure: &[TaskId], any_client: bool) -> Result<Read, StoreError> {
    let mut batch = Batch { at_ms: now_ms(), ..Batch::default() };
    let mut ids = Vec::with_capacity(closure.len());
    for id in closure {
        let events = store.stream(&rows::stream(id)).await?;
        let mut task = match rows::fold(id, &events) {
            Ok(task) => task,
            Err(error) => return Ok(Read::Refused(Fault::new("store_corrupt", error.to_string()))),
        };
        let (before, version) = (task.state, task.version);
        let step = task.handle(Input::Retry { any_client }, batch.at_ms);
        match step.refused {
            Some(fault) if id == task_id => return Ok(Read::Refused(fault)),
            // Whether the others are to be revived rests on how it stands, too.
            Some(_) => {
                batch.appends.push(Append { stream: rows::stream(id), expected_version: version, events: Vec::new() });
            }
            None => {
                batch.appends.push(rows::append(before, &task, &step.events));
                batch.rows.push(rows::task_row(&task));
                ids.push(id.clone());
            }
        }
    }
    Ok(Read::Ready(batch, ids))
}

/// All tasks of a tree. However long the store is away: what is revived there must become known here.
async fn tree_as_it_is(brain: &Brain, tree_id: &TreeId) -> Vec<Entry> {
    let mut pause = STORE_RETRY.0;
    loop {
        match recovery::tree_entries(brain, tree_id.as_str()).await {
            Ok(tree) => return tree,
            Err(error) => tracing::error!(%tree_id, %error, "cannot read a tree that was retried yet"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(STORE_RETRY.1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use vance_brain_core::task::{Event, Head, State, Task};

    use super::*;

    fn task(parent: Option<&TaskId>, then: Event) -> (TaskId, Batch) {
        let task_id = TaskId::generate();
        let trace = vance_shared::trace::TraceContext::root();
        let spec = json!({"id": "t", "goal": "", "depends_on": [], "steps": []});
        let head: Head = serde_json::from_value(json!({
            "task_id": task_id, "tree_id": "tree_1", "session_id": "sess_1", "owner": "local", "parent": parent,
            "spec": spec, "trace": trace,
        }))
        .unwrap();
        let mut task = Task::new(head.clone(), 1);
        task.fold(&then, 1);
        let appends = vec![rows::append(State::Pending, &task, &[Event::Submitted(head), then])];
        (task_id, Batch { appends, rows: vec![rows::task_row(&task)], ..Batch::default() })
    }

    async fn state(store: &Store, id: &TaskId) -> State {
        rows::fold(id, &store.stream(&rows::stream(id)).await.unwrap()).unwrap().state
    }

    #[tokio::test]
    async fn a_retry_is_one_transaction_and_one_that_is_refused_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (store, seat) = Store::open(&dir.path().join("data")).unwrap();
        let _writer = seat.start().unwrap();
        let cancelled = || Event::Cancelled { reason: "a test".to_owned() };
        let (parent, batch) = task(None, cancelled());
        store.commit(batch).await.unwrap();
        let (child, batch) = task(Some(&parent), cancelled());
        store.commit(batch).await.unwrap();
        let (done, batch) = task(Some(&parent), Event::Completed {});
        store.commit(batch).await.unwrap();
        let all = [parent.clone(), child.clone(), done.clone()];

        let before = store.stats().commits;
        let refused = revive(&store, &done, &all, false).await.unwrap_err();
        assert_eq!(refused.code, "not_retryable");
        assert_eq!((store.stats().commits, state(&store, &parent).await), (before, State::Cancelled));

        assert_eq!(revive(&store, &child, &all, false).await.unwrap(), [parent.clone(), child.clone()]);
        assert_eq!(store.stats().commits, before + 1);
        for (id, want) in [(&parent, State::Pending), (&child, State::Pending), (&done, State::Completed)] {
            assert_eq!(state(&store, id).await, want);
        }
        assert_eq!(revive(&store, &child, &all, false).await.unwrap_err().code, "not_retryable");
    }
}
