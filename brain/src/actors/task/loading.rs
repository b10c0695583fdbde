//! A task from the store, with what it needs to go on.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use vance_brain_core::expression::{TaskReferences, task_references};
use vance_brain_core::task::Task;
use vance_shared::ids::TaskId;

use crate::directory::SessionHandle;
use crate::hub::Brain;
use crate::rows;
use crate::store::StoreError;

/// A task, its session, and the outputs of the tasks that its steps refer to.
pub(super) struct Loaded {
    pub(super) task: Task,
    pub(super) session: Arc<SessionHandle>,
    pub(super) others: Value,
}

/// Why it cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Stream(#[from] rows::BadStream),
    #[error("its session cannot be opened: {0}")]
    Session(String),
}

/// Folds its stream.
pub(super) async fn load(brain: Brain, task_id: TaskId) -> Result<Loaded, LoadError> {
    let events = brain.store.stream(&rows::stream(&task_id)).await?;
    let task = rows::fold(&task_id, &events)?;
    let session = brain.directory.get(&brain, &task.head.session_id).await;
    let session = session.map_err(|e| LoadError::Session(e.message))?;
    let others = outputs(&brain, &task).await?;
    Ok(Loaded { task, session, others })
}

/// Outputs of the tasks of the same tree that the steps refer to.
async fn outputs(brain: &Brain, task: &Task) -> Result<Value, StoreError> {
    let mut wanted = TaskReferences::default();
    for step in &task.head.spec.steps {
        collect_references(&Value::Object(step.with.clone()), &mut wanted);
    }
    if wanted.any {
        wanted.ids.extend(task.head.spec.depends_on.iter().cloned());
    }
    if wanted.ids.is_empty() {
        return Ok(json!({}));
    }
    let tree = brain.store.row(rows::TREE, task.head.tree_id.as_str()).await?;
    let ids: Map<String, Value> =
        tree.and_then(|row| row.data.value().get("tasks").and_then(|t| t.as_object().cloned())).unwrap_or_default();
    let mut out = Map::new();
    for id in wanted.ids {
        let Some(task_id) = ids.get(&id).and_then(Value::as_str) else { continue };
        let row = brain.store.row(rows::TASK, task_id).await?;
        let output = row.and_then(|r| r.data.to::<rows::TaskRow>().ok()).map(|r| r.view.value()["output"].take());
        out.insert(id, output.filter(|o| !o.is_null()).unwrap_or_else(|| json!({})));
    }
    Ok(Value::Object(out))
}

fn collect_references(value: &Value, out: &mut TaskReferences) {
    match value {
        Value::String(text) => {
            let TaskReferences { ids, any } = task_references(text);
            out.ids.extend(ids);
            out.any |= any;
        }
        Value::Array(items) => items.iter().for_each(|v| collect_references(v, out)),
        Value::Object(map) => map.values().for_each(|v| collect_references(v, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
