//! Submission of a task tree: read, checked, stored as a whole, then handed to the scheduler.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use vance_brain_core::route::contradicts;
use vance_brain_core::spec::{EngineRef, EngineSpec, Mode, TreeSpec};
use vance_brain_core::task::{Event, Head, State, Task};
use vance_brain_core::tree_file::parse_tree;
use vance_shared::call::Fault;
use vance_shared::doc::Problem;
use vance_shared::ids::{ClientId, SessionId, TaskId, TreeId};
use vance_shared::json::Raw;
use vance_shared::trace::TraceContext;

use super::ApiError;
use crate::actors::scheduler::AddTree;
use crate::directory::{Directory, Missing, Planned, SessionHandle};
use crate::hub::{Brain, now_ms};
use crate::recovery;
use crate::rows::{self, IDEMPOTENCY, TREE};
use crate::store::{Batch, Row, StoreError};

/// Between two looks at a store that is away.
const STORE_LOOK: Duration = Duration::from_secs(1);

/// Longest `Idempotency-Key`.
const MAX_KEY_BYTES: usize = 256;

/// What comes in.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The principal.
    pub owner: String,
    /// Name for problems.
    pub file: String,
    /// YAML or JSON.
    pub text: String,
    /// The same key with the same text gets the same answer again.
    pub idempotency_key: Option<String>,
    /// The client that submits: its tasks prefer it.
    pub client: Option<ClientId>,
    /// Where, if the tree itself names no session.
    pub session: Option<SessionId>,
    /// The span of the request.
    pub trace: TraceContext,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    /// `{"tree_id", "session_id", "tasks": [{"id", "task_id"}]}`.
    pub body: Value,
    /// It was given before, for the same key.
    pub replayed: bool,
}

/// Takes a tree. Once this answers, it survives everything.
pub async fn submit(brain: &Brain, submission: Submission) -> Result<Submitted, ApiError> {
    let key =
        submission.idempotency_key.as_deref().map(|k| Key::new(&submission.owner, k, &submission.text)).transpose()?;
    if let Some(key) = &key
        && let Some(answer) = key.given(brain).await?
    {
        return Ok(answer);
    }
    let tree = parse_tree(&submission.file, &submission.text).map_err(|p| invalid(&p))?;
    let engine = engine(brain, tree.engine.as_ref())?;
    let place = place(brain, &submission, &tree).await?;
    let (made_with_it, new_session) = match &place {
        Place::There(_) => (None, None),
        Place::New(planned) => (Some(planned.row.clone()), Some(planned.session_id.clone())),
    };
    let new = NewTree::of(brain, &submission, &place, tree, engine.as_ref());
    let mut batch = new.batch();
    batch.insert.extend(made_with_it);
    if let Some(key) = &key {
        batch.insert.push(key.row(&submission.owner, &new.body));
    }
    match brain.store.commit(batch).await {
        Ok(_) => {}
        Err(StoreError::Exists { .. }) => {
            // The same submission was stored a moment ago, by a request beside this one.
            let given = match &key {
                Some(key) => key.given(brain).await?,
                None => None,
            };
            return given.ok_or_else(|| ApiError::new(503, "store_unavailable", "the store answered twice; try again"));
        }
        Err(error) => {
            if matches!(error, StoreError::Unavailable { .. }) {
                tokio::spawn(take_if_stored(brain.clone(), new.tree_id));
            }
            return Err(error.into());
        }
    }
    if let Some(session_id) = new_session
        && let Err(fault) = brain.directory.get(brain, &session_id).await
    {
        // It is stored with its tree, and is loaded when a task looks for it.
        tracing::warn!(%session_id, reason = fault.message, "a new session is not loaded yet");
    }
    let registry = brain.registry.load();
    let entries = new.tasks.iter().map(|task| rows::entry(task, &registry)).collect();
    if let Err(refusal) = brain.scheduler.post(AddTree(entries)).await {
        // It is stored: the scheduler finds it when it is back.
        tracing::warn!(%refusal, "the scheduler did not take a tree");
    }
    Ok(Submitted { body: new.body, replayed: false })
}

/// After a commit without an answer: a tree that is stored all the same must run, not lie until the next start.
async fn take_if_stored(brain: Brain, tree_id: TreeId) {
    let tree = loop {
        tokio::time::sleep(STORE_LOOK).await;
        match recovery::tree_entries(&brain, tree_id.as_str()).await {
            Ok(tree) => break tree,
            Err(error) => tracing::debug!(%tree_id, %error, "it is not known yet whether the tree was stored"),
        }
    };
    if !tree.is_empty()
        && let Err(refusal) = brain.scheduler.post(AddTree(tree)).await
    {
        // It restarts, and finds the tree in the store.
        tracing::warn!(%tree_id, %refusal, "the scheduler did not take a tree");
    }
}

fn invalid(problems: &[Problem]) -> ApiError {
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let more = if problems.len() > 1 { format!(" (and {} more)", problems.len() - 1) } else { String::new() };
    let list: Vec<Value> =
        problems.iter().map(|p| json!({"file": p.file, "line": p.line, "message": p.message})).collect();
    ApiError::new(400, "invalid_tree", format!("{first}{more}")).with("problems", Value::Array(list))
}

fn engine(brain: &Brain, wanted: Option<&EngineRef>) -> Result<Option<EngineSpec>, ApiError> {
    match wanted {
        None => Ok(None),
        Some(EngineRef::Inline(engine)) => Ok(Some(engine.clone())),
        Some(EngineRef::Id(id)) => {
            let registry = brain.registry.load();
            let found = registry.engines.get(id).cloned();
            let known: Vec<&str> = registry.engines.keys().map(String::as_str).collect();
            let text = || {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                format!(
                    "unknown engine {}; engines here: {known}; put it into the Brain's engines folder or write it into the tree",
                    vance_shared::show::quoted(id, 80)
                )
            };
            found.map(Some).ok_or_else(|| ApiError::new(400, "unknown_engine", text()))
        }
    }
}

/// The session of a new tree.
enum Place {
    There(Arc<SessionHandle>),
    /// Stored with the tree: of a submission that is not taken nothing stays.
    New(Planned),
}

impl Place {
    fn session_id(&self) -> &SessionId {
        match self {
            Self::There(session) => &session.session_id,
            Self::New(planned) => &planned.session_id,
        }
    }

    fn is_autonomous(&self) -> bool {
        match self {
            Self::There(session) => session.mode == Mode::Autonomous,
            Self::New(_) => true,
        }
    }
}

async fn place(brain: &Brain, submission: &Submission, tree: &TreeSpec) -> Result<Place, ApiError> {
    let owner = &submission.owner;
    let session_id = match (tree.session.as_deref().or(submission.session.as_ref().map(SessionId::as_str)), tree.mode) {
        (Some(id), _) => SessionId::parse(id).map_err(|e| ApiError::new(400, "bad_session", e.to_string()))?,
        (None, Mode::Interactive) => Directory::default_id(owner)?,
        (None, Mode::Autonomous) => return Ok(Place::New(brain.directory.plan(brain, owner).await)),
    };
    Ok(Place::There(brain.directory.open(brain, owner, &session_id, Missing::Create(tree.mode)).await?))
}

/// A tree with its ids.
struct NewTree {
    tree_id: TreeId,
    session_id: SessionId,
    at: i64,
    tasks: Vec<Task>,
    events: Vec<Vec<Event>>,
    body: Value,
}

impl NewTree {
    fn of(brain: &Brain, submission: &Submission, place: &Place, tree: TreeSpec, engine: Option<&EngineSpec>) -> Self {
        let (tree_id, at, trace) = (TreeId::generate(), now_ms(), submission.trace);
        let ids: HashMap<String, TaskId> = tree.tasks.iter().map(|t| (t.id.clone(), TaskId::generate())).collect();
        // Ids sort in the order of the file, so that lists do too.
        let mut sorted: Vec<TaskId> = ids.values().cloned().collect();
        sorted.sort();
        let ids: HashMap<String, TaskId> = tree.tasks.iter().map(|t| t.id.clone()).zip(sorted).collect();
        let parents: std::collections::HashSet<&String> = tree.tasks.iter().filter_map(|t| t.parent.as_ref()).collect();
        let of = |id: &String| ids.get(id).cloned();
        let body_tasks: Vec<Value> = tree.tasks.iter().map(|t| json!({"id": t.id, "task_id": of(&t.id)})).collect();
        let heads: Vec<Head> = tree
            .tasks
            .iter()
            .filter_map(|spec| {
                Some(Head {
                    task_id: of(&spec.id)?,
                    tree_id: tree_id.clone(),
                    session_id: place.session_id().clone(),
                    owner: submission.owner.clone(),
                    parent: spec.parent.as_ref().and_then(of),
                    has_children: parents.contains(&spec.id),
                    depends_on: spec.depends_on.iter().filter_map(of).collect(),
                    spec: spec.clone(),
                    engine: engine.cloned(),
                    autonomous: place.is_autonomous() || tree.mode == Mode::Autonomous,
                    submitted_by: submission.client.clone(),
                    trace,
                })
            })
            .collect();
        let (mut tasks, mut events) = (Vec::with_capacity(heads.len()), Vec::with_capacity(heads.len()));
        for head in heads {
            let fault = contradiction(brain, place, &head);
            let mut task = Task::new(head.clone(), at);
            let mut of_task = vec![Event::Submitted(head)];
            if let Some(error) = fault {
                let failed = Event::Failed { error };
                task.fold(&failed, at);
                of_task.push(failed);
            }
            tasks.push(task);
            events.push(of_task);
        }
        let body = json!({"tree_id": tree_id, "session_id": place.session_id(), "tasks": body_tasks});
        let session_id = place.session_id().clone();
        Self { tree_id, session_id, at, tasks, events, body }
    }

    fn batch(&self) -> Batch {
        let ids: Map<String, Value> =
            self.tasks.iter().map(|t| (t.head.spec.id.clone(), json!(t.head.task_id))).collect();
        let tree = Row {
            kind: TREE.into(),
            key: self.tree_id.to_string(),
            parent: Some(self.session_id.to_string()),
            // Nobody asks for somebody's trees, only for a session's: an index less to write.
            owner: None,
            state: None,
            data: Raw::from(json!({ "tasks": ids })),
        };
        Batch {
            appends: self
                .tasks
                .iter()
                .zip(&self.events)
                .map(|(task, events)| rows::append(State::Pending, task, events))
                .collect(),
            insert: self.tasks.iter().map(rows::task_row).chain([tree]).collect(),
            at_ms: self.at,
            ..Batch::default()
        }
    }
}

/// Facts of a task that can never go together: it fails at once, with both named.
fn contradiction(brain: &Brain, place: &Place, head: &Head) -> Option<Fault> {
    let registry = brain.registry.load();
    let published;
    let view = match place {
        Place::There(session) => {
            published = session.published();
            &published.view
        }
        Place::New(planned) => &planned.view,
    };
    head.spec.steps.iter().find_map(|step| {
        let known = registry.lookup(view, &step.call)?;
        contradicts(&known, head.spec.execution_target, head.engine.as_ref(), &step.call)
    })
}

/// An `Idempotency-Key` with the text that it came with.
struct Key {
    row: String,
    digest: String,
}

impl Key {
    fn new(owner: &str, key: &str, text: &str) -> Result<Self, ApiError> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            let message = format!("Idempotency-Key is 1 to {MAX_KEY_BYTES} bytes long");
            return Err(ApiError::new(400, "bad_idempotency_key", message));
        }
        let digest: String = Sha256::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
        Ok(Self { row: format!("{owner}:{key}"), digest })
    }

    async fn given(&self, brain: &Brain) -> Result<Option<Submitted>, ApiError> {
        let Some(row) = brain.store.row(IDEMPOTENCY, &self.row).await? else { return Ok(None) };
        let mut data = row.data.value();
        if data["digest"] != self.digest.as_str() {
            let message = "this Idempotency-Key was used with another text; use a new key for a new submission";
            return Err(ApiError::new(422, "idempotency_mismatch", message));
        }
        Ok(Some(Submitted { body: data["body"].take(), replayed: true }))
    }

    fn row(&self, owner: &str, body: &Value) -> Row {
        Row {
            kind: IDEMPOTENCY.into(),
            key: self.row.clone(),
            parent: None,
            owner: Some(owner.to_owned()),
            state: None,
            data: Raw::from(json!({ "digest": self.digest, "body": body })),
        }
    }
}
