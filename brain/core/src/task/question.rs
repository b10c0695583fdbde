//! A question of a call's server, and a person's answer.
//!
//! | the question is | asked (again) | answered | over at the server | line cut, back |
//! |---|---|---|---|---|
//! | unknown | open: the task is blocked | refused | - | - |
//! | open | stays | the answer is stored, then sent; the task runs | the task runs | stays |
//! | answered | the answer is sent again | the same: taken; another: refused | the answer has arrived | the answer is sent again |
//!
//! A newer question of a call takes the place of an open one. What ends the call ends its question.

use vance_shared::ids::{CallId, QuestionId};
use vance_shared::question::{Action, Answer, Question, QuestionEnd};

use super::machine::Turn;
use super::{Effect, Event, OpenCall, State, Wait};

/// Questions of one call: each is kept with its task, and a server that asks without an end gets no more answers.
pub const MAX_QUESTIONS: u32 = 64;

impl Turn<'_> {
    /// The open call waits for a person.
    pub(super) fn is_asking(&self) -> bool {
        self.task.question.is_some()
    }

    pub(super) fn park_if_waiting(&mut self) {
        if matches!(self.task.state, State::Blocked | State::Queued) {
            self.effect(Effect::Park);
        }
    }

    pub(super) fn asked(&mut self, question: Question) {
        let Some(call) = self.under_way(&question.call_id) else { return self.park_if_waiting() };
        let known = self.task.question.as_ref().map(|asking| &asking.question.question_id);
        if known == Some(&question.question_id) {
            return self.park_if_waiting();
        }
        let last = self.task.answered.as_ref().filter(|last| last.question.question_id == question.question_id);
        if let Some(last) = last {
            let answer = last.answer.clone();
            return self.reply(&call, question.question_id, answer);
        }
        if self.task.asked >= MAX_QUESTIONS || question.too_large().is_some() {
            self.park_if_waiting();
            return self.reply(&call, question.question_id, Answer::bare(Action::Cancel));
        }
        let client_id = call.place.client().cloned();
        let wait = Wait::Answer { call_id: call.call_id, client_id, about: question.about() };
        self.event(Event::QuestionAsked { question });
        self.event(Event::Waiting { wait });
        self.effect(Effect::Park);
    }

    pub(super) fn question_ended(&mut self, call_id: &CallId, question_id: QuestionId, how: QuestionEnd) {
        if self.open(call_id).is_none() {
            // What ended the call ended the question.
            return self.park_if_waiting();
        }
        let asking = self.task.question.as_ref();
        let is_open = asking.is_some_and(|a| a.question.question_id == question_id && a.question.call_id == *call_id);
        let answered = self.task.answered.as_ref();
        let is_on_its_way = answered.is_some_and(|a| a.question.question_id == question_id && !a.arrived);
        if !is_open && !is_on_its_way {
            return self.park_if_waiting();
        }
        self.event(Event::QuestionEnded { question_id, how });
        if is_open {
            self.resume();
        } else {
            self.park_if_waiting();
        }
    }

    pub(super) fn answer(&mut self, question_id: QuestionId, answer: Answer, by: String) {
        if let Some(last) = self.task.answered.as_ref().filter(|last| last.question.question_id == question_id) {
            // Said twice, as after a lost answer to the first request.
            if last.answer != answer || last.by != by {
                let message =
                    format!("question {question_id} was already {} by {}", last.answer.action.past(), last.by);
                self.refuse("answered", message);
            }
            return self.park_if_waiting();
        }
        let asking = self.task.question.as_ref().filter(|asking| asking.question.question_id == question_id);
        let call = asking.and_then(|asking| self.open(&asking.question.call_id));
        let Some(call) = call else {
            self.refuse(
                "no_question",
                format!("the task does not wait for an answer to question {question_id} (any more)"),
            );
            return;
        };
        self.event(Event::QuestionAnswered { question_id: question_id.clone(), answer: answer.clone(), by });
        self.resume();
        if call.place.client().is_some() {
            // Should the client be away, the task waits for it. Once it is there, the answer is sent.
            self.effect(Effect::Reattach(call));
        } else {
            self.reply(&call, question_id, answer);
        }
    }

    /// An answer that the call's server may not have got.
    pub(super) fn reply_again(&mut self, call: &OpenCall) {
        let last = self.task.answered.as_ref().filter(|last| last.question.call_id == call.call_id && !last.arrived);
        if let Some((question_id, answer)) = last.map(|last| (last.question.question_id.clone(), last.answer.clone())) {
            self.reply(call, question_id, answer);
        }
    }

    fn reply(&mut self, call: &OpenCall, question_id: QuestionId, answer: Answer) {
        let client_id = call.place.client().cloned();
        self.effect(Effect::Reply { client_id, call_id: call.call_id.clone(), question_id, answer });
    }
}
