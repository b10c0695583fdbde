//! What the server of a call without a task asks: it waits in the table of open questions, as long as the call does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use vance_brain_core::session::OpenQuestion;
use vance_brain_core::spec::Mode;
use vance_brain_core::task::MAX_QUESTIONS;
use vance_mcp_host::{Elicited, Person};
use vance_shared::ids::{CallId, ClientId, QuestionId};
use vance_shared::json::Raw;
use vance_shared::question::{Action, Answer, Question, QuestionEnd};
use vance_shared::wire::{ElicitEnd, ElicitReply};

use crate::directory::SessionHandle;
use crate::hub::{Brain, now_ms};
use crate::questions::open::CallAsks;
use crate::questions::{NO_TASK, elicited};

/// Why one more question of a call is not asked.
const TOO_MANY: &str = "too many questions are open; answer some, or submit the call as a task";

/// About a call that may ask.
#[derive(Clone)]
pub(super) struct About {
    pub(super) brain: Brain,
    pub(super) session: Arc<SessionHandle>,
    pub(super) tool: String,
    /// Who runs it, and its machine; none: the server.
    pub(super) client: Option<(ClientId, String)>,
    /// False: it has nobody to ask, and its caller did not want it to wait.
    pub(super) waits: bool,
    /// How often that came to pass.
    pub(super) declined: Arc<AtomicU32>,
}

impl About {
    fn open(&self, question: Question) -> Option<CallAsks> {
        let (asker, machine) = self.client.clone().unzip();
        let open = OpenQuestion {
            question,
            session_id: self.session.session_id.clone(),
            autonomous: self.session.mode == Mode::Autonomous,
            task_id: None,
            tool: self.tool.clone(),
            asker,
            machine,
            asked_at: now_ms(),
        };
        CallAsks::open(&self.brain, &self.session, open)
    }

    fn declines(&self, pack: &str) {
        self.declined.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(pack, "a question is declined: {NO_TASK}");
    }

    fn within(&self) -> Duration {
        self.brain.config.defaults.answer_within
    }

    /// Whoever answers what a server pack asks in this call.
    pub(super) fn person(&self, call_id: &CallId) -> Person {
        let (about, call_id) = (self.clone(), call_id.clone());
        let elicit = move |asked: vance_mcp_host::Question| -> BoxFuture<'static, Elicited> {
            let (about, call_id) = (about.clone(), call_id.clone());
            Box::pin(async move { about.ask(call_id, asked).await })
        };
        Person { elicit: Some(Arc::new(elicit)), ..Person::default() }
    }

    async fn ask(self, call_id: CallId, asked: vance_mcp_host::Question) -> Elicited {
        if !self.waits {
            self.declines(asked.pack.as_str());
            return Elicited::Declined;
        }
        let question = Question {
            call_id,
            question_id: QuestionId::generate(),
            message: asked.message,
            schema: Raw::from(asked.schema),
            url: asked.url,
        };
        if question.too_large().is_some() {
            return Elicited::Cancelled;
        }
        let Some(mut open) = self.open(question) else {
            tracing::warn!(pack = %asked.pack, "a question is declined: {TOO_MANY}");
            return Elicited::Declined;
        };
        match tokio::time::timeout(self.within(), open.answered()).await {
            Ok(answer) => elicited(answer.unwrap_or(Answer::bare(Action::Cancel))),
            Err(_) => {
                open.how = QuestionEnd::Expired;
                Elicited::Unanswered
            }
        }
    }
}

/// Questions of a call that a client runs.
pub(super) struct Asks {
    about: About,
    open: Option<CallAsks>,
    /// The last answer: sent again until the client says that it has it.
    given: Option<ElicitReply>,
    call_id: CallId,
    count: u32,
}

impl Asks {
    pub(super) fn new(about: About, call_id: CallId) -> Self {
        Self { about, open: None, given: None, call_id, count: 0 }
    }

    /// How long a question of it may wait, if it may at all.
    pub(super) fn within(&self) -> Option<Duration> {
        self.about.waits.then(|| self.about.within())
    }

    /// True while a person is waited for.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Its server asks, or asks again after a cut. Gives what is known to say.
    pub(super) fn asked(&mut self, question: Question) -> Option<ElicitReply> {
        let id = &question.question_id;
        if let Some(given) = self.given.as_ref().filter(|given| given.question_id == *id) {
            return Some(given.clone());
        }
        if self.open.as_ref().is_some_and(|open| open.question_id == *id) {
            return None;
        }
        if !self.about.waits {
            self.about.declines(&self.about.tool);
            return Some(ElicitReply::decline(&question, NO_TASK));
        }
        if self.count >= MAX_QUESTIONS || question.too_large().is_some() {
            let answer = Answer::bare(Action::Cancel);
            return Some(ElicitReply::of(question.call_id, question.question_id, answer));
        }
        self.count += 1;
        // A newer question takes the place of an open one.
        self.open = None;
        self.open = self.about.open(question.clone());
        if self.open.is_none() {
            return Some(ElicitReply::decline(&question, TOO_MANY));
        }
        None
    }

    /// Waits for a person's answer; for ever while nothing is asked.
    pub(super) async fn answered(&mut self) -> ElicitReply {
        let Some(open) = &mut self.open else { return std::future::pending().await };
        let answer = open.answered().await.unwrap_or(Answer::bare(Action::Cancel));
        let reply = ElicitReply::of(self.call_id.clone(), open.question_id.clone(), answer);
        self.open = None;
        self.given = Some(reply.clone());
        reply
    }

    /// It is over where it was asked. True if it was still open here.
    pub(super) fn ended(&mut self, end: &ElicitEnd) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.question_id == end.question_id) else { return false };
        open.how = end.how;
        self.open = None;
        true
    }
}
