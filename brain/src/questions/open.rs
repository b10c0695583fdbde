//! Which questions are open, by owner: what clients are shown, the API lists, and an answer is looked up in.
//!
//! A task's question is in the store; here is what its task said of it last, and after a restart what is stored ([`crate::recovery`]). A
//! question of a call without a task is only here, and lives as long as the call. The table is behind a lock because tasks, sessions and
//! requests are on several threads; it is held for a look.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use vance_brain_core::session::OpenQuestion;
use vance_brain_core::spec::Mode;
use vance_shared::ids::{QuestionId, TaskId};
use vance_shared::question::{Answer, QuestionEnd};

use crate::directory::SessionHandle;
use crate::hub::{Brain, Hub};

/// Open questions of one owner that are shown and listed, of up to 70 KiB each. One more still waits with its task, and is answered there.
pub const MAX_OPEN: usize = 256;
/// Of one owner, how many are remembered as over: for an answer that comes late.
const MAX_ENDED: usize = 256;

/// The table.
#[derive(Default)]
pub struct OpenQuestions(Mutex<HashMap<String, OfOwner>>);

#[derive(Default)]
struct OfOwner {
    /// From the oldest on.
    open: Vec<Entry>,
    ended: VecDeque<(QuestionId, Ended)>,
}

struct Entry {
    question: Arc<OpenQuestion>,
    /// Who waits for the answer; none: its task takes it.
    waits: Option<oneshot::Sender<Answer>>,
}

/// A question that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// The task that waited with it; none: a call without a task.
    pub task_id: Option<TaskId>,
    /// How.
    pub how: QuestionEnd,
    /// Who answered.
    pub by: Option<String>,
    /// What was said, if no task remembers it.
    pub answer: Option<Answer>,
}

/// Where a question is.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// It waits.
    Open(Arc<OpenQuestion>),
    /// It did.
    Ended(Ended),
    /// Nobody knows of it (any more).
    Nowhere,
}

impl OfOwner {
    fn at(&self, id: &QuestionId) -> Option<usize> {
        self.open.iter().position(|entry| entry.question.question.question_id == *id)
    }

    fn end(&mut self, at: usize, how: QuestionEnd, by: Option<String>, answer: Option<Answer>) -> Entry {
        let entry = self.open.remove(at);
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
        }
        let task_id = entry.question.task_id.clone();
        let id = entry.question.question.question_id.clone();
        self.ended.push_back((id, Ended { task_id, how, by, answer }));
        entry
    }
}

impl OpenQuestions {
    fn table(&self) -> MutexGuard<'_, HashMap<String, OfOwner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a task stands: the question that it waits with. `answered`: its last answer, and by whom. True if that is news.
    fn task_stands(
        &self,
        owner: &str,
        task_id: &TaskId,
        now: Option<OpenQuestion>,
        answered: Option<(&QuestionId, &str)>,
    ) -> bool {
        let mut table = self.table();
        let Some(of) = (match now {
            Some(_) => Some(table.entry(owner.to_owned()).or_default()),
            None => table.get_mut(owner),
        }) else {
            return false;
        };
        let before = of.open.iter().position(|entry| entry.question.task_id.as_ref() == Some(task_id));
        let is_same = |at: usize| {
            let id = of.open.get(at).map(|entry| &entry.question.question.question_id);
            now.as_ref().map(|now| &now.question.question_id) == id
        };
        if before.is_some_and(is_same) {
            return false;
        }
        if let Some(at) = before {
            let id = of.open.get(at).map(|entry| entry.question.question.question_id.clone());
            let by = answered.filter(|(answered, _)| id.as_ref() == Some(*answered)).map(|(_, by)| by.to_owned());
            let how = if by.is_some() { QuestionEnd::Answered } else { QuestionEnd::Withdrawn };
            drop(of.end(at, how, by, None));
        }
        let is_new = now.is_some();
        if let Some(question) = now {
            if of.open.len() < MAX_OPEN {
                of.open.push(Entry { question: Arc::new(question), waits: None });
            } else {
                tracing::debug!(owner, %task_id, "{MAX_OPEN} questions are open already: one more is shown with its task alone");
            }
        }
        is_new || before.is_some()
    }

    /// All questions of tasks, as they are stored: in place of what tasks said before. True if that is news.
    fn of_tasks(&self, mut stored: Vec<(String, OpenQuestion)>) -> bool {
        let mut table = self.table();
        let mut is_news = false;
        let known: HashSet<QuestionId> = stored.iter().map(|(_, q)| q.question.question_id.clone()).collect();
        for of in table.values_mut() {
            let gone = |entry: &Entry| {
                entry.question.task_id.is_some() && !known.contains(&entry.question.question.question_id)
            };
            while let Some(at) = of.open.iter().position(gone) {
                drop(of.end(at, QuestionEnd::Withdrawn, None, None));
                is_news = true;
            }
        }
        stored.sort_by_key(|(_, q)| q.asked_at);
        for (owner, question) in stored {
            let of = table.entry(owner).or_default();
            if of.at(&question.question.question_id).is_none() && of.open.len() < MAX_OPEN {
                of.open.push(Entry { question: Arc::new(question), waits: None });
                is_news = true;
            }
        }
        is_news
    }

    /// From the oldest on.
    pub fn of(&self, owner: &str) -> Vec<Arc<OpenQuestion>> {
        let table = self.table();
        table.get(owner).map(|of| of.open.iter().map(|entry| entry.question.clone()).collect()).unwrap_or_default()
    }

    /// Those for the clients of a session: its own tasks' and calls', and those of its owner's sessions in which no client is expected.
    pub fn for_session(&self, session: &SessionHandle) -> Vec<Arc<OpenQuestion>> {
        let concerns = |q: &Arc<OpenQuestion>| {
            q.session_id == session.session_id || (q.autonomous && session.mode == Mode::Interactive)
        };
        self.of(&session.owner).into_iter().filter(concerns).collect()
    }

    /// An owner's question; another's is nowhere.
    pub fn find(&self, owner: &str, id: &QuestionId) -> Found {
        let table = self.table();
        let Some(of) = table.get(owner) else { return Found::Nowhere };
        match of.at(id).and_then(|at| of.open.get(at)) {
            Some(entry) => Found::Open(entry.question.clone()),
            None => {
                let ended = of.ended.iter().rev().find(|(ended, _)| ended == id);
                ended.map_or(Found::Nowhere, |(_, ended)| Found::Ended(ended.clone()))
            }
        }
    }

    /// One more question of a call without a task. None: there are too many.
    fn call_asks(&self, owner: &str, question: OpenQuestion) -> Option<oneshot::Receiver<Answer>> {
        let mut table = self.table();
        let of = table.entry(owner.to_owned()).or_default();
        if of.open.len() >= MAX_OPEN {
            return None;
        }
        let (tell, answer) = oneshot::channel();
        of.open.push(Entry { question: Arc::new(question), waits: Some(tell) });
        Some(answer)
    }

    /// Gives a call without a task its answer. False: it does not wait for one.
    fn tell_call(&self, owner: &str, id: &QuestionId, answer: &Answer, by: &str) -> bool {
        let mut table = self.table();
        let Some(of) = table.get_mut(owner) else { return false };
        let waits = |at: &usize| of.open.get(*at).is_some_and(|entry| entry.waits.is_some());
        let Some(at) = of.at(id).filter(waits) else { return false };
        let entry = of.end(at, QuestionEnd::Answered, Some(by.to_owned()), Some(answer.clone()));
        entry.waits.is_some_and(|tell| tell.send(answer.clone()).is_ok())
    }

    fn call_waits_no_more(&self, owner: &str, id: &QuestionId, how: QuestionEnd) -> bool {
        let mut table = self.table();
        let Some(of) = table.get_mut(owner) else { return false };
        let Some(at) = of.at(id) else { return false };
        drop(of.end(at, how, None, None));
        true
    }
}

impl Hub {
    /// A task says with which question it waits, if with any. `answered`: its last answer, and by whom.
    pub fn task_asks(
        &self,
        session: &SessionHandle,
        task_id: &TaskId,
        now: Option<OpenQuestion>,
        answered: Option<(&QuestionId, &str)>,
    ) {
        if self.questions.task_stands(&session.owner, task_id, now, answered) {
            self.directory.look_at_questions(session);
        }
    }

    /// The questions of all tasks, as they are stored.
    pub fn stored_questions(&self, stored: Vec<(String, OpenQuestion)>) {
        if self.questions.of_tasks(stored) {
            for session in self.directory.loaded() {
                self.directory.look_at_questions(&session);
            }
        }
    }

    /// Gives a call without a task its answer. False: it does not wait for one.
    pub fn tell_call(&self, owner: &str, question: &OpenQuestion, answer: &Answer) -> bool {
        let told = self.questions.tell_call(owner, &question.question.question_id, answer, owner);
        if let Some(session) = self.directory.loaded_one(&question.session_id) {
            self.directory.look_at_questions(&session);
        }
        told
    }
}

/// A question of a call without a task, until it is dropped.
pub struct CallAsks {
    brain: Brain,
    session: Arc<SessionHandle>,
    /// Which.
    pub question_id: QuestionId,
    answer: oneshot::Receiver<Answer>,
    /// How it ends, if not by an answer.
    pub how: QuestionEnd,
}

impl CallAsks {
    /// Opens it. None: too many are open.
    pub fn open(brain: &Brain, session: &Arc<SessionHandle>, question: OpenQuestion) -> Option<Self> {
        let question_id = question.question.question_id.clone();
        let answer = brain.questions.call_asks(&session.owner, question)?;
        brain.directory.look_at_questions(session);
        Some(Self { brain: brain.clone(), session: session.clone(), question_id, answer, how: QuestionEnd::Withdrawn })
    }

    /// Waits for the answer. None: it was closed.
    pub async fn answered(&mut self) -> Option<Answer> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for CallAsks {
    fn drop(&mut self) {
        if self.brain.questions.call_waits_no_more(&self.session.owner, &self.question_id, self.how) {
            self.brain.directory.look_at_questions(&self.session);
        }
    }
}

#[cfg(test)]
mod tests;
