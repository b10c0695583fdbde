//! Reading: tasks, sessions, tools. Another owner's things are not there (404), another owner's session is forbidden (403).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vance_brain_core::registry::{self, ClientView, ServerSide};
use vance_brain_core::spec::Mode;
use vance_brain_core::task::Wait;
use vance_shared::call::Fault;
use vance_shared::ids::{SessionId, TaskId};
use vance_shared::json::Raw;
use vance_shared::summary::summary;

use super::ApiError;
use crate::actors::scheduler::{Count, Queue};
use crate::directory::{Missing, SessionHandle};
use crate::hub::Brain;
use crate::recovery;
use crate::rows::{SESSION, TASK, TREE, TaskRow, time};
use crate::store::{Filter, MAX_PAGE, Row, SLIM_PAGE_BYTES};

/// Tasks of one answer, unless it says otherwise.
const DEFAULT_TASKS: usize = 1_000;

/// Which tasks.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    /// Only in this state.
    pub state: Option<String>,
    /// Only of this session.
    pub session: Option<String>,
    /// Only of this tree.
    pub tree: Option<String>,
    /// Beyond this task id: the `next` of the answer before.
    pub after: Option<String>,
    /// At most this many (1,000 by default, 10,000 at most).
    pub limit: Option<usize>,
}

const STATES: [&str; 8] = ["pending", "running", "blocked", "queued", "completed", "failed", "cancelled", "skipped"];

/// `{"tasks": […], "next": ID | null}`, in the order of submission, as text: ten thousand tasks as a tree of values are forty MiB. The
/// output of a large one is left out (`"output": null, "output_bytes": N`): it is at the task itself.
pub async fn tasks(brain: &Brain, owner: &str, filter: TaskFilter) -> Result<Raw, ApiError> {
    if let Some(state) = &filter.state
        && !STATES.contains(&state.as_str())
    {
        let message = format!("`state` is one of {}", STATES.join(", "));
        return Err(ApiError::new(400, "bad_query", message));
    }
    let limit = filter.limit.unwrap_or(DEFAULT_TASKS).clamp(1, MAX_PAGE);
    let after = filter.after.is_some();
    let base = Filter {
        owner: Some(owner.to_owned()),
        states: filter.state.into_iter().collect(),
        parent: filter.tree,
        after_key: filter.after,
        limit: Some(limit),
        slim: true,
        ..Filter::default()
    };
    let mut rows = match filter.session {
        None => brain.store.rows(TASK, base.clone()).await?,
        Some(session) => {
            open(brain, owner, &session).await?;
            of_session(brain, &session, base.clone()).await?
        }
    };
    rows.truncate(limit);
    let full = rows.len() == limit || rows.iter().map(|row| row.data.get().len()).sum::<usize>() >= SLIM_PAGE_BYTES;
    let next = rows.last().filter(|_| full).map(|row| row.key.clone());
    let summary = if base.parent.is_some() && (after || next.is_some()) {
        let whole = Filter { after_key: None, limit: None, ..base };
        stand(&recovery::all_rows(brain, whole).await?)
    } else {
        stand(&rows)
    };
    let tasks = rows.iter().filter_map(|row| Some(row.data.to::<Viewed>().ok()?.view)).collect();
    let list = Raw::of(&List { tasks, next, summary });
    list.map_err(|e| ApiError::new(500, "internal", format!("the list cannot be written: {e}")))
}

#[derive(Serialize)]
struct List {
    tasks: Vec<Raw>,
    next: Option<String>,
    /// How the tasks of the tree stand, else those of this answer: `3 completed, 1 waiting for client`.
    summary: String,
}

/// Of a task's row, what says how it stands.
#[derive(Deserialize)]
struct Standing {
    wait: Option<Wait>,
}

/// How tasks stand, in one line.
fn stand(rows: &[Row]) -> String {
    let reason = |row: &Row| row.data.to::<Standing>().ok()?.wait.as_ref().map(Wait::reason);
    let reasons: Vec<Option<String>> = rows.iter().map(reason).collect();
    let states = rows.iter().map(|row| row.state.as_deref().unwrap_or_default());
    summary(states.zip(reasons.iter().map(Option::as_deref)))
}

/// Of a task's row, what is shown.
#[derive(Deserialize)]
struct Viewed {
    view: Raw,
}

async fn of_session(brain: &Brain, session: &str, base: Filter) -> Result<Vec<Row>, ApiError> {
    let trees = Filter { parent: Some(session.to_owned()), limit: Some(MAX_PAGE), ..Filter::default() };
    let (mut out, limit) = (Vec::new(), base.limit.unwrap_or(DEFAULT_TASKS));
    for tree in brain.store.rows(TREE, trees).await? {
        out.extend(recovery::all_rows(brain, Filter { parent: Some(tree.key), limit: None, ..base.clone() }).await?);
        out.sort_by(|a: &Row, b| a.key.cmp(&b.key));
        out.truncate(limit);
    }
    let mut bytes = 0;
    let fit = out.iter().take_while(|row| {
        let room = bytes < SLIM_PAGE_BYTES;
        bytes += row.data.get().len();
        room
    });
    out.truncate(fit.count());
    Ok(out)
}

/// One task.
pub async fn task(brain: &Brain, owner: &str, id: &str) -> Result<Value, ApiError> {
    let (_, row) = task_row(brain, owner, id).await?;
    Ok(row.view.value())
}

/// One task's row, if it is the caller's.
pub async fn task_row(brain: &Brain, owner: &str, id: &str) -> Result<(TaskId, TaskRow), ApiError> {
    let missing =
        || ApiError::new(404, "task_not_found", format!("there is no task {}", vance_shared::show::quoted(id, 80)));
    let task_id = TaskId::parse(id).map_err(|_| missing())?;
    let row = brain.store.row(TASK, id).await?.filter(|r| r.owner.as_deref() == Some(owner)).ok_or_else(missing)?;
    let row = row.data.to::<TaskRow>().map_err(|e| ApiError::new(500, "store_corrupt", format!("task {id}: {e}")))?;
    Ok((task_id, row))
}

/// `{"sessions": […]}`, oldest first.
pub async fn sessions(brain: &Brain, owner: &str) -> Result<Value, ApiError> {
    let filter = Filter { owner: Some(owner.to_owned()), limit: Some(MAX_PAGE), ..Filter::default() };
    let mut out = Vec::new();
    for row in brain.store.rows(SESSION, filter).await? {
        let Ok(id) = SessionId::parse(&row.key) else { continue };
        let session = brain.directory.get(brain, &id).await?;
        out.push(session_view(&session));
    }
    Ok(json!({ "sessions": out }))
}

/// One session.
pub async fn session(brain: &Brain, owner: &str, id: &str) -> Result<Value, ApiError> {
    let session = open(brain, owner, id).await?;
    let queue = brain.scheduler.send(Queue(session.session_id.clone())).await;
    let queue = queue.map_err(|refusal| Fault::new("restarting", format!("the scheduler is {refusal}; try again")))?;
    let queue: Vec<Value> = queue.iter().map(|w| json!({"task_id": w.task_id, "id": w.id, "tool": w.tool})).collect();
    let mut view = session_view(&session);
    if let Some(view) = view.as_object_mut() {
        view.insert("queue".to_owned(), queue.into());
    }
    Ok(view)
}

async fn open(brain: &Brain, owner: &str, id: &str) -> Result<std::sync::Arc<SessionHandle>, ApiError> {
    let session_id = SessionId::parse(id).map_err(|e| ApiError::new(404, "session_not_found", e.to_string()))?;
    Ok(brain.directory.open(brain, owner, &session_id, Missing::Fault).await?)
}

fn session_view(session: &SessionHandle) -> Value {
    let published = session.published();
    let refused = session.refused();
    let clients: Vec<Value> = published
        .view
        .clients
        .iter()
        .enumerate()
        .map(|(at, client)| {
            let mut view = client_view(client);
            let refused = refused.as_ref().and_then(|all| all.get(&client.client_id)).filter(|_| at < published.own);
            let lender = at.checked_sub(published.own).and_then(|at| published.lenders.get(at));
            if let Some(view) = view.as_object_mut() {
                view.insert("session_id".to_owned(), json!(lender.unwrap_or(&session.session_id)));
                view.insert("refused".to_owned(), json!(refused.map(Vec::as_slice).unwrap_or_default()));
            }
            view
        })
        .collect();
    let mode = match session.mode {
        Mode::Interactive => "interactive",
        Mode::Autonomous => "autonomous",
    };
    json!({
        "session_id": session.session_id, "owner": session.owner, "mode": mode,
        "created_at": time(session.created_at), "clients": clients,
    })
}

fn client_view(client: &ClientView) -> Value {
    json!({
        "client_id": client.client_id, "name": client.name, "machine": client.machine,
        "presence": if client.online { "online" } else { "grace" },
        "tools": client.tools.len(), "loading": *client.loading,
    })
}

/// `{"revision", "tools": […]}`: the active registry, each tool with whether it can run now and why not.
/// With an engine only those of its tool sets: to it the others are unknown.
pub async fn session_tools(brain: &Brain, owner: &str, id: &str, engine: Option<&str>) -> Result<Value, ApiError> {
    let session = open(brain, owner, id).await?;
    let published = session.published();
    let registry = brain.registry.load();
    let engine = engine.map(|id| registry.engines.get(id).ok_or_else(|| unknown_engine(id))).transpose()?;
    let tools: Vec<Value> = registry::list(&registry, &published.view, engine)
        .into_iter()
        .map(|tool| {
            let spec = tool.known.spec.as_ref();
            let labels: Vec<&str> = tool.known.labels().collect();
            json!({
                "name": tool.name, "description": tool.known.description(),
                "location": tool.known.location.word(), "available": tool.unavailable.is_none(),
                "unavailable_reason": tool.unavailable, "labels": labels, "replay": tool.known.replay(),
                "clients": tool.clients, "input_schema": spec.map(|s| s.input_schema.value()),
                "output_schema": spec.and_then(|s| s.output_schema.as_ref()).map(Raw::value),
            })
        })
        .collect();
    Ok(json!({ "revision": published.revision, "tools": tools }))
}

fn unknown_engine(id: &str) -> ApiError {
    let id = vance_shared::show::quoted(id, 80);
    ApiError::new(404, "unknown_engine", format!("there is no engine {id} in the Brain's engines folder"))
}

/// Which Brain this is, and how it is, in numbers. `ready`: it takes and stores work.
pub async fn health(brain: &Brain) -> Value {
    let counts = brain.scheduler.send(Count).await;
    let store = brain.store.is_available();
    let ready = store && counts.is_ok();
    let counts = counts.unwrap_or_default();
    let files = brain.files.load();
    let problems: Vec<String> = files.problems.iter().map(ToString::to_string).collect();
    let registry = brain.registry.load();
    let packs: BTreeMap<&String, Value> = registry.packs.iter().map(|(name, side)| (name, pack_view(side))).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"), "protocol": [vance_shared::wire::PROTOCOL],
        "ready": ready, "store": if store { "ok" } else { "unavailable" },
        "tasks": { "running": counts.running, "waiting": counts.waiting, "trees": counts.trees },
        "sessions": brain.directory.loaded().len(), "server_calls": brain.executor.running(),
        "files": { "read_at": time(files.read_at), "problems": problems, "needs_restart": files.needs_restart },
        "packs": packs,
    })
}

fn pack_view(side: &ServerSide) -> Value {
    match side {
        ServerSide::Up => json!({ "state": "up" }),
        ServerSide::Starting => json!({ "state": "starting" }),
        ServerSide::Down { reason } => json!({ "state": "failed", "reason": reason }),
    }
}
