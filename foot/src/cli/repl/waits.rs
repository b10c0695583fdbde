//! How many tasks of the session wait, kept up to date by the Brain's events.

use std::collections::{HashSet, VecDeque};

use tokio::sync::watch;
use tokio::task::JoinHandle;
use vance_shared::ids::{SessionId, TaskId};
use vance_shared::show::plain;

use super::complete::Words;
use crate::api::{Brain, Event, Follow, Notice, TaskFilter};
use crate::cli::stage::Stage;
use crate::engine::Connection;

/// Waiting tasks that are told apart: beyond it the count says "at least".
const MAX_WAITING: usize = 10_000;
/// Ids that completion offers.
const MAX_IDS: usize = 200;

/// How many wait; `None` while nobody knows.
pub(super) type Count = Option<usize>;

/// Counts until it is dropped.
pub(super) struct Waits {
    count: watch::Receiver<Count>,
    task: JoinHandle<()>,
}

impl Waits {
    /// `brain` is asked anew at each new line.
    pub(super) fn start(
        brain: impl Fn() -> Option<Brain> + 'static,
        connection: watch::Receiver<Connection>,
        words: Words,
        stage: Stage,
    ) -> Self {
        let (tell, count) = watch::channel(None);
        let task = tokio::task::spawn_local(async move {
            let mut counter = Counter { connection, words, stage, tell, waiting: HashSet::new(), ids: VecDeque::new() };
            while let Some(session) = counter.attached().await {
                if let Some(brain) = brain() {
                    counter.follow(&brain, &session).await;
                }
                counter.tell.send_replace(None);
                if counter.connection.changed().await.is_err() {
                    return;
                }
            }
        });
        Self { count, task }
    }

    /// The count, now and from here on.
    pub(super) fn count(&self) -> watch::Receiver<Count> {
        self.count.clone()
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Counter {
    connection: watch::Receiver<Connection>,
    words: Words,
    stage: Stage,
    tell: watch::Sender<Count>,
    waiting: HashSet<TaskId>,
    ids: VecDeque<TaskId>,
}

impl Counter {
    /// Waits for a session.
    async fn attached(&mut self) -> Option<SessionId> {
        match &*self.connection.wait_for(|c| matches!(c, Connection::Online { .. })).await.ok()? {
            Connection::Online { session_id, .. } => Some(session_id.clone()),
            Connection::Local | Connection::Connecting | Connection::Refused { .. } => None,
        }
    }

    /// Follows a session until the line to the Brain changes or the Brain says no.
    async fn follow(&mut self, brain: &Brain, session: &SessionId) {
        let mut events = Follow::start(brain.clone(), None);
        loop {
            tokio::select! {
                notice = events.next() => match notice {
                    Some(Notice::Open) => self.read(brain, session).await,
                    Some(Notice::Event(event, _)) => self.heard(&event, session),
                    Some(Notice::Lost(_)) => {
                        self.tell.send_replace(None);
                    }
                    Some(Notice::Refused(error)) => {
                        tracing::debug!("waiting tasks are not counted: {error}");
                        return;
                    }
                    None => return,
                },
                changed = self.connection.changed() => {
                    let same = |c: &Connection| matches!(c, Connection::Online { session_id, .. } if session_id == session);
                    if changed.is_err() || !same(&self.connection.borrow()) {
                        // So that it is looked at again by who waits for a change.
                        self.connection.mark_changed();
                        return;
                    }
                }
            }
        }
    }

    async fn read(&mut self, brain: &Brain, session: &SessionId) {
        self.waiting.clear();
        for state in ["blocked", "queued"] {
            let filter = TaskFilter { state: Some(state.to_owned()), session: Some(session.clone()), tree: None };
            match brain.tasks(&filter).await {
                Ok(answer) => {
                    for task in answer.value.tasks {
                        self.note(task.task_id, true);
                    }
                }
                Err(error) => {
                    tracing::debug!("waiting tasks are not counted: {error}");
                    self.tell.send_replace(None);
                    return;
                }
            }
        }
        self.publish();
    }

    fn heard(&mut self, event: &Event, session: &SessionId) {
        let (Some(id), Some(state)) = (&event.task_id, event.state) else { return };
        if event.session_id.as_ref() == Some(session) {
            if let Some(hint) = hint(event) {
                self.stage.remark(&hint);
            }
            self.note(id.clone(), state.is_waiting());
            self.publish();
        }
    }

    fn note(&mut self, id: TaskId, waits: bool) {
        if !waits {
            self.waiting.remove(&id);
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.insert(id.clone());
        }
        if !self.ids.contains(&id) {
            self.ids.truncate(MAX_IDS - 1);
            self.ids.push_front(id);
        }
    }

    fn publish(&self) {
        self.tell.send_replace(Some(self.waiting.len()));
        self.words.set(|known| known.tasks = self.ids.iter().map(TaskId::to_string).collect());
    }
}

/// What the person can do about a task that begins to wait for them.
fn hint(event: &Event) -> Option<String> {
    let about = event.reason.as_deref()?.strip_prefix("Waiting for an answer: ")?;
    let id = event.task_id.as_ref().filter(|_| event.kind == "task_waiting")?;
    Some(format!("a task waits for an answer: {}; answer it with /tasks answer {id}", plain(about)))
}

/// For the status line.
pub(super) fn words(count: usize) -> String {
    if count < MAX_WAITING { format!("{count} waiting") } else { format!("at least {count} waiting") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_asks_is_named_with_the_way_to_answer() {
        let event = |kind: &str, reason: &str| Event {
            kind: kind.to_owned(),
            task_id: TaskId::parse("task_1").ok(),
            tree_id: None,
            session_id: None,
            state: None,
            reason: Some(reason.to_owned()),
            fraction: None,
            message: None,
        };
        let asks = hint(&event("task_waiting", "Waiting for an answer: How many?"));
        assert_eq!(asks.as_deref(), Some("a task waits for an answer: How many?; answer it with /tasks answer task_1"));
        assert_eq!(hint(&event("question_ended", "Waiting for an answer: x")), None);
        assert_eq!(hint(&event("task_waiting", "Waiting for Client for Tool: t")), None);
    }
}
