//! What the servers of packs ask in the middle of a call, on its way to a person: at this machine's terminal; if nobody answers there,
//! with the call's task at the Brain.
//!
//! ```text
//! server ─ asks ─▶ terminal ─ answered ──────────────────────────────▶ server
//!                     └ nobody ─▶ `elicit` ─▶ Brain ─ `elicit_reply` ─▶ server, `elicit_end` to the Brain
//! ```
//!
//! What other clients' calls ask is shown here too ([`shown`]).
//!
//! A lock and not an actor, because questions come on the tasks of calls and go with them; it is held for a map access. What was asked or
//! has ended is said anew on each line, so nothing here depends on a frame that arrives.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use vance_mcp_host::{Elicit, Elicited, Person};
use vance_shared::ids::{CallId, QuestionId};
use vance_shared::json::Raw;
use vance_shared::question::{Action, Answer, Question, QuestionEnd};
use vance_shared::show::plain;
use vance_shared::wire::{ElicitEnd, ElicitReply, ToBrain};
use vance_supervise::ActorRef;

use super::dispatcher::{Dispatcher, ToDispatcher};
use crate::native::AskElsewhere;

mod shown;
use shown::Shown;

/// Questions of one call that are remembered as ended, so that a Brain that did not hear of it still does.
const MAX_KEPT: usize = 64;

/// All questions of this Foot.
pub(crate) struct Questions {
    terminal: Option<Elicit>,
    /// What other clients' calls ask.
    pub(crate) shown: Arc<Shown>,
    /// Tells the Brain; none in a run without one.
    brain: Option<ActorRef<Dispatcher>>,
    asked: Mutex<HashMap<CallId, Vec<Kept>>>,
    /// A frame was not taken: all is to be said again.
    unsaid: AtomicBool,
}

struct Kept {
    question: Question,
    stand: Stand,
}

enum Stand {
    Open(oneshot::Sender<Answer>),
    Over(QuestionEnd),
}

impl Questions {
    /// With the person at the terminal, if there is one: for what is asked here, and elsewhere.
    pub(crate) fn new(
        terminal: Option<Elicit>,
        elsewhere: Option<AskElsewhere>,
        brain: Option<ActorRef<Dispatcher>>,
    ) -> Self {
        let shown = Arc::new(Shown::new(elsewhere, brain.clone()));
        Self { terminal, shown, brain, asked: Mutex::default(), unsaid: AtomicBool::new(false) }
    }

    /// For servers, which hear beforehand whether anybody can be asked, and for what they ask outside of any call of the Brain.
    pub(crate) fn people(&self) -> Option<Elicit> {
        let nobody = || {
            Arc::new(|question: vance_mcp_host::Question| -> BoxFuture<'static, Elicited> {
                Box::pin(async move {
                    tracing::warn!("a question of pack '{}' belongs to no task, so nobody was asked", question.pack);
                    Elicited::Declined
                })
            }) as Elicit
        };
        self.terminal.clone().or_else(|| self.brain.is_some().then(nobody))
    }

    /// The person behind a call of the Brain. `within`: how long a question of it may wait.
    pub(crate) fn person(self: &Arc<Self>, call_id: &CallId, within: Duration) -> Person {
        let (questions, call_id) = (Arc::clone(self), call_id.clone());
        let elicit = move |question| -> BoxFuture<'static, Elicited> {
            Box::pin(Arc::clone(&questions).ask(call_id.clone(), within, question))
        };
        Person { elicit: Some(Arc::new(elicit)), ..Person::default() }
    }

    async fn ask(self: Arc<Self>, call_id: CallId, within: Duration, asked: vance_mcp_host::Question) -> Elicited {
        if let Some(terminal) = &self.terminal {
            match terminal(asked.clone()).await {
                Elicited::Unanswered if self.brain.is_some() => {}
                said => return said,
            }
        }
        let (tell, answer) = oneshot::channel();
        let pack = asked.pack;
        let question = Question {
            call_id,
            question_id: QuestionId::generate(),
            message: asked.message,
            schema: Raw::from(asked.schema),
            url: asked.url,
        };
        tracing::info!("a question of pack '{pack}' waits with its task at the Brain: `vancetope tasks` shows it");
        let mut open = self.open(question, tell);
        let (how, said) = match tokio::time::timeout(within, answer).await {
            Ok(Ok(answer)) => (QuestionEnd::Answered, elicited(answer)),
            Ok(Err(_)) => (QuestionEnd::Withdrawn, Elicited::Cancelled),
            Err(_) => {
                tracing::warn!("a question of pack '{pack}' was not answered within {} s", within.as_secs());
                (QuestionEnd::Expired, Elicited::Unanswered)
            }
        };
        open.how = how;
        said
    }

    fn open(self: &Arc<Self>, question: Question, tell: oneshot::Sender<Answer>) -> Open {
        let (call_id, question_id) = (question.call_id.clone(), question.question_id.clone());
        let mut asked = self.asked();
        let kept = asked.entry(call_id.clone()).or_default();
        if kept.len() >= MAX_KEPT {
            kept.remove(0);
        }
        kept.push(Kept { question: question.clone(), stand: Stand::Open(tell) });
        drop(asked);
        self.say(ToBrain::Elicit(question));
        Open { questions: Arc::clone(self), call_id, question_id, how: QuestionEnd::Withdrawn }
    }

    fn over(&self, call_id: &CallId, question_id: &QuestionId, how: QuestionEnd) {
        let mut asked = self.asked();
        let kept =
            asked.get_mut(call_id).and_then(|kept| kept.iter_mut().find(|k| k.question.question_id == *question_id));
        if let Some(kept) = kept {
            kept.stand = Stand::Over(how);
        }
        drop(asked);
        self.say(ToBrain::ElicitEnd(ElicitEnd::of(call_id.clone(), question_id.clone(), how)));
    }

    fn say(&self, frame: ToBrain) {
        let Some(brain) = &self.brain else { return };
        if brain.tell(ToDispatcher::OfQuestion(Box::new(frame))).is_err() {
            self.unsaid.store(true, Ordering::Release);
        }
    }

    /// The Brain has an answer. Gives what the Brain is told, if the question is over already.
    pub(crate) fn answer(&self, reply: ElicitReply) -> Option<ElicitEnd> {
        let ElicitReply { call_id, question_id, action, content, reason } = reply;
        if let Some(reason) = reason {
            tracing::warn!(%call_id, "the Brain declines a question: {}", plain(&reason));
        }
        let mut asked = self.asked();
        let kept =
            asked.get_mut(&call_id).and_then(|kept| kept.iter_mut().find(|k| k.question.question_id == question_id));
        let how = match kept {
            None => QuestionEnd::Withdrawn,
            Some(kept) => match std::mem::replace(&mut kept.stand, Stand::Over(QuestionEnd::Answered)) {
                Stand::Open(tell) => match tell.send(Answer { action, content }) {
                    // It says so itself once the server has it.
                    Ok(()) => return None,
                    Err(_) => QuestionEnd::Withdrawn,
                },
                Stand::Over(how) => {
                    kept.stand = Stand::Over(how);
                    how
                }
            },
        };
        Some(ElicitEnd::of(call_id, question_id, how))
    }

    /// All that a Brain has to hear on a new line: what is open, and what has ended of calls that run.
    pub(crate) fn all(&self) -> Vec<ToBrain> {
        self.unsaid.store(false, Ordering::Release);
        let asked = self.asked();
        let mut frames: Vec<ToBrain> = Vec::new();
        for Kept { question, stand } in asked.values().flatten() {
            frames.push(match stand {
                Stand::Open(_) => ToBrain::Elicit(question.clone()),
                Stand::Over(how) => {
                    let (call_id, question_id) = (question.call_id.clone(), question.question_id.clone());
                    ToBrain::ElicitEnd(ElicitEnd::of(call_id, question_id, *how))
                }
            });
        }
        frames
    }

    /// True if a frame was not taken since all was said last.
    pub(crate) fn is_unsaid(&self) -> bool {
        self.unsaid.load(Ordering::Acquire)
    }

    /// The call has ended, and its questions with it.
    pub(crate) fn forget(&self, call_id: &CallId) {
        self.asked().remove(call_id);
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<CallId, Vec<Kept>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question, until its server has the answer or does not wait any more.
struct Open {
    questions: Arc<Questions>,
    call_id: CallId,
    question_id: QuestionId,
    how: QuestionEnd,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.questions.over(&self.call_id, &self.question_id, self.how);
    }
}

fn elicited(answer: Answer) -> Elicited {
    match answer.action {
        Action::Accept => {
            let content = answer.content.map(|content| content.value());
            Elicited::Accepted(content.and_then(|c| c.as_object().cloned()).unwrap_or_default())
        }
        Action::Decline => Elicited::Declined,
        Action::Cancel => Elicited::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use vance_shared::names::PackName;

    use super::*;

    fn saying(said: Elicited) -> Elicit {
        Arc::new(move |_| Box::pin(std::future::ready(said.clone())))
    }

    fn asked() -> vance_mcp_host::Question {
        vance_mcp_host::Question {
            pack: PackName::parse("p").unwrap(),
            message: "?".to_owned(),
            schema: json!({}),
            url: None,
        }
    }

    fn questions(terminal: Option<Elicit>) -> Arc<Questions> {
        Arc::new(Questions::new(terminal, None, Some(ActorRef::new("dispatcher"))))
    }

    /// The one question as the Brain hears it.
    fn heard(questions: &Questions) -> ToBrain {
        let mut all = questions.all();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn reply(question: &Question, action: Action) -> ElicitReply {
        ElicitReply::of(question.call_id.clone(), question.question_id.clone(), Answer::bare(action))
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_sits_at_the_terminal_is_asked_first_and_the_brain_if_nobody_does() {
        let within = Duration::from_secs(60);
        let ask = |questions: &Arc<Questions>| {
            let person = questions.person(&CallId::parse("call_1").unwrap(), within);
            tokio::spawn(person.elicit.unwrap()(asked()))
        };
        let there = questions(Some(saying(Elicited::Declined)));
        assert_eq!(ask(&there).await.unwrap(), Elicited::Declined);
        assert_eq!(there.all(), []);
        for terminal in [None, Some(saying(Elicited::Unanswered))] {
            let away = questions(terminal);
            let answer = ask(&away);
            tokio::task::yield_now().await;
            let ToBrain::Elicit(question) = heard(&away) else { panic!("open") };
            assert_eq!(away.answer(reply(&question, Action::Accept)), None);
            assert_eq!(answer.await.unwrap(), Elicited::Accepted(serde_json::Map::new()));
            let end = ElicitEnd::of(question.call_id.clone(), question.question_id.clone(), QuestionEnd::Answered);
            assert_eq!(heard(&away), ToBrain::ElicitEnd(end.clone()), "said on each line until the call ends");
            assert_eq!(away.answer(reply(&question, Action::Decline)), Some(end), "it was answered");
            away.forget(&question.call_id);
            assert_eq!(away.all(), []);
            let end = away.answer(reply(&question, Action::Accept)).unwrap();
            assert_eq!(end.how, QuestionEnd::Withdrawn, "of a call that is no more");
        }
        assert!(Questions::new(None, None, None).people().is_none());
        assert_eq!(questions(None).people().unwrap()(asked()).await, Elicited::Declined, "outside of any call");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_ends_with_its_call_and_with_its_time() {
        let within = Duration::from_secs(60);
        let questions = questions(None);
        let elicit = questions.person(&CallId::parse("call_1").unwrap(), within).elicit.unwrap();
        assert_eq!(elicit(asked()).await, Elicited::Unanswered);
        let ToBrain::ElicitEnd(ElicitEnd { how: QuestionEnd::Expired, .. }) = heard(&questions) else { panic!("time") };
        questions.forget(&CallId::parse("call_1").unwrap());
        assert!(tokio::time::timeout(Duration::from_secs(1), elicit(asked())).await.is_err());
        let ToBrain::ElicitEnd(ElicitEnd { how: QuestionEnd::Withdrawn, .. }) = heard(&questions) else {
            panic!("dropped")
        };
        assert!(questions.is_unsaid() || !questions.all().is_empty());
    }
}
