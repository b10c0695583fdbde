//! A person's retry. All that it revives is one transaction: whatever falls in its middle, no task comes back to life below a
//! parent that did not.

use std::time::Duration;

use vance_brain_core::board::Entry;
use vance_brain_core::task::Input;
use vance_shared::call::Fault;
use vance_shared::ids::{TaskId, TreeId};

use crate::hub::{Brain, now_ms};
use crate::recovery;
use crate::rows;
use crate::store::{Append, Batch, Store, StoreError};

/// Pause before a commit is tried again while the store is away: it doubles up to the second value.
const STORE_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Makes these tasks pending again, all or none; gives those that are. The first of all decides: if `task_id` is not one that can be
/// retried, nothing is. Others that cannot be any more stay as they are.
pub(super) async fn revive(store: &Store, task_id: &TaskId, closure: &[TaskId]) -> Result<Vec<TaskId>, Fault> {
    let mut pause = STORE_RETRY.0;
    let mut may_be_written = false;
    loop {
        let tried = match read(store, task_id, closure).await {
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

async fn read(store: &Store, task_id: &TaskId, closure: &[TaskId]) -> Result<Read, StoreError> {
    let mut batch = Batch { at_ms: now_ms(), ..Batch::default() };
    let mut ids = Vec::with_capacity(closure.len());
    for id in closure {
        let events = store.stream(&rows::stream(id)).await?;
        let mut task = match rows::fold(id, &events) {
            Ok(task) => task,
            Err(error) => return Ok(Read::Refused(Fault::new("store_corrupt", error.to_string()))),
        };
        let (before, version) = (task.state, task.version);
        let step = task.handle(Input::Retry, batch.at_ms);
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
pub(super) async fn tree_as_it_is(brain: &Brain, tree_id: &TreeId) -> Vec<Entry> {
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
        let refused = revive(&store, &done, &all).await.unwrap_err();
        assert_eq!(refused.code, "not_retryable");
        assert_eq!((store.stats().commits, state(&store, &parent).await), (before, State::Cancelled));

        assert_eq!(revive(&store, &child, &all).await.unwrap(), [parent.clone(), child.clone()]);
        assert_eq!(store.stats().commits, before + 1);
        for (id, want) in [(&parent, State::Pending), (&child, State::Pending), (&done, State::Completed)] {
            assert_eq!(state(&store, id).await, want);
        }
        assert_eq!(revive(&store, &child, &all).await.unwrap_err().code, "not_retryable");
    }
}
