//! Any order of inputs, stale and forged ones too, keeps the promises of a task.

use proptest::prelude::*;

use super::questions::{question, question_id};
use super::*;

#[derive(Debug, Clone)]
enum Act {
    /// Do the oldest effect that waits.
    Perform,
    /// The open call ends.
    End(u8),
    /// News of a call: of the open one, or of any number.
    News(u8, Option<u8>),
    /// A result from anybody for any call.
    Forge(u8, u8, u8),
    Start,
    Restart,
    Cancel,
    Retry,
    Resolve(u8),
    TimedOut,
    DependencyFailed,
    /// The open call's server asks, or one of any number does; `true`: again what it asked last.
    Asks(bool, Option<u8>),
    /// Somebody answers the last question or one before it, in one of two ways.
    Answers(u8, bool),
    /// A question is over for the server.
    Over(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => Just(Act::Perform),
        4 => (0..5_u8).prop_map(Act::End),
        4 => (0..5_u8, proptest::option::weighted(0.3, 0..6_u8)).prop_map(|(k, n)| Act::News(k, n)),
        2 => (0..6_u8, 0..4_u8, 0..5_u8).prop_map(|(n, who, o)| Act::Forge(n, who, o)),
        2 => Just(Act::Start),
        1 => Just(Act::Restart),
        1 => Just(Act::Cancel),
        1 => Just(Act::Retry),
        1 => (0..3_u8).prop_map(Act::Resolve),
        1 => Just(Act::TimedOut),
        1 => Just(Act::DependencyFailed),
        3 => (any::<bool>(), proptest::option::weighted(0.2, 0..6_u8)).prop_map(|(again, n)| Act::Asks(again, n)),
        2 => (0..3_u8, any::<bool>()).prop_map(|(q, yes)| Act::Answers(q, yes)),
        1 => (0..3_u8).prop_map(Act::Over),
    ]
}

fn outcome(n: u8) -> Outcome {
    match n {
        0 => done("x"),
        1 => Outcome::failed("tool_failed", "no"),
        2 => Outcome::Cancelled { reason: "stopped".into() },
        3 => Outcome::failed("busy", "full"),
        _ => unknown(),
    }
}

/// The world around one task: effects wait until they are performed, in order.
struct World {
    story: Story,
    waiting: std::collections::VecDeque<Effect>,
    placed: u32,
    /// Unsafe calls whose last word was "unknown", by step, and that nobody has released.
    locked: Option<usize>,
    on_unknown: OnUnknown,
    picks: u32,
    /// Questions so far.
    asked: u8,
    /// What was answered to each question.
    answers: std::collections::BTreeMap<QuestionId, Answer>,
}

impl World {
    fn input(&mut self, input: Input) {
        let before = self.story.task.clone();
        let by_person = matches!(input, Input::Resolve(_));
        let step = self.story.say(input.clone());
        let context = format!("{input:?} in {:?}\n gave {step:?}", before.state);
        if before.state.is_terminal() {
            let ok = step.events.iter().all(|e| matches!(e, Event::LateResult { .. } | Event::Retried { .. }));
            assert!(ok, "terminal states absorb: {context}");
        }
        for event in &step.events {
            match event {
                Event::CallEnded { call_id, outcome: Outcome::Unknown { .. } } => {
                    let call = before.call.as_ref().filter(|c| c.call_id == *call_id).expect("only the open call ends");
                    if call.replay == Replay::Unsafe && self.on_unknown != OnUnknown::Retry {
                        self.locked = Some(call.step);
                    }
                }
                Event::CallEnded { call_id, .. } => {
                    assert_eq!(before.call.as_ref().map(|c| &c.call_id), Some(call_id), "{context}");
                    self.locked = None;
                }
                Event::Resolved { .. } if by_person => self.locked = None,
                Event::CallPlaced(call) => {
                    assert!(before.call.is_none(), "two open calls: {context}");
                    assert_ne!(self.locked, Some(call.step), "run again blindly: {context}");
                }
                Event::QuestionAnswered { question_id, answer, .. } => {
                    let first = self.answers.insert(question_id.clone(), answer.clone());
                    assert_eq!(first, None, "answered twice: {context}");
                }
                Event::CallSentAgain { .. } => assert_eq!(self.locked, None, "sent again blindly: {context}"),
                _ => {}
            }
        }
        let steps_done = self.story.task.step - before.step;
        assert!(steps_done <= 1, "{context}");
        if steps_done == 1 {
            let by = step.events.iter().filter(|e| {
                matches!(
                    e,
                    Event::CallEnded { outcome: Outcome::Done(_), .. }
                        | Event::Resolved { verdict: Verdict::Done { .. }, .. }
                )
            });
            assert_eq!(by.count(), 1, "{context}");
        }
        for effect in &step.effects {
            if let Effect::Reply { question_id, answer, .. } = effect {
                assert_eq!(self.answers.get(question_id), Some(answer), "sent before it was stored: {context}");
            }
        }
        self.waiting.extend(step.effects);
        let task = &self.story.task;
        let reason = match &task.wait {
            None => None,
            Some(Wait::Unknown { call_id, .. }) => {
                Some(format!("Outcome unknown for Tool: read_local_file (call {call_id})"))
            }
            Some(Wait::Client { .. } | Wait::Suspended { .. }) => Some(WAITING.to_owned()),
            Some(Wait::Answer { .. }) => Some("Waiting for an answer: how many?".to_owned()),
        };
        assert_eq!(task.question.is_some(), matches!(task.wait, Some(Wait::Answer { .. })), "{context}");
        assert_eq!(task.blocked_reason(), reason);
        assert_eq!(task.wait.is_some(), matches!(task.state, State::Blocked | State::Queued), "{context}");
        assert!(!task.state.is_terminal() || task.call.is_none(), "{context}");
        // Never lost: who runs has an effect under way or a call out; who waits was parked, or is told to look again.
        if task.state == State::Running && task.call.is_none() {
            let goes_on = |e: &Effect| matches!(e, Effect::Route | Effect::LookAgain(_));
            assert!(self.waiting.iter().any(goes_on), "lost: {context}");
        }
    }

    fn perform(&mut self) {
        let Some(effect) = self.waiting.pop_front() else { return };
        match effect {
            Effect::Route => {
                self.picks += 1;
                let routed = match self.picks % 7 {
                    0 => Routed::Wait { queued: false },
                    3 => Routed::Wait { queued: true },
                    _ => {
                        self.placed += 1;
                        let place = match self.picks % 3 {
                            0 => Place::Server,
                            1 => on_foot("a"),
                            _ => on_foot("b"),
                        };
                        let replay = if self.picks % 5 < 3 { Replay::Unsafe } else { Replay::Safe };
                        Routed::Placed(open_call(&self.story.task, self.placed, place, replay))
                    }
                };
                self.input(Input::Routed(routed));
            }
            Effect::LookAgain(_) => self.input(Input::Start),
            Effect::Reattach(call) => self.input(Input::CallAttached(call.call_id)),
            Effect::Dispatch(_)
            | Effect::Reply { .. }
            | Effect::CancelCall(..)
            | Effect::Ack(..)
            | Effect::Park
            | Effect::ChildrenMayRun
            | Effect::Ended => {}
        }
    }

    fn act(&mut self, act: Act) {
        let open = self.story.task.call.clone();
        match act {
            Act::Perform => self.perform(),
            Act::End(o) => {
                if let Some(call) = open {
                    let from = call.place.client().cloned();
                    self.input(Input::CallEnded { call_id: call.call_id, from, outcome: outcome(o) });
                }
            }
            Act::News(kind, n) => {
                let id = n.map(|n| call_id(n.into())).or(open.map(|c| c.call_id)).unwrap_or_else(|| call_id(0));
                self.input(match kind {
                    0 => Input::CallSuspended(id),
                    1 => Input::CallAttached(id),
                    2 => Input::CallNeverArrived(id),
                    3 => Input::CallNotSent { call_id: id, busy: false },
                    _ => Input::CallNotSent { call_id: id, busy: true },
                });
            }
            Act::Forge(n, who, o) => {
                let from = match who {
                    0 => None,
                    1 => Some(foot("a")),
                    2 => Some(foot("b")),
                    _ => Some(foot("mallory")),
                };
                self.input(Input::CallEnded { call_id: call_id(n.into()), from, outcome: outcome(o) });
            }
            Act::Start => self.input(Input::Start),
            Act::Restart => {
                self.story.restart();
                self.waiting.clear();
                if self.story.task.state == State::Running {
                    self.input(Input::Start);
                }
            }
            Act::Cancel => self.input(Input::Cancel { reason: "x".into() }),
            Act::Retry => self.input(Input::Retry { any_client: false }),
            Act::Resolve(n) => self.input(Input::Resolve(match n {
                0 => Verdict::Done { output: json!("by hand") },
                1 => Verdict::Failed,
                _ => Verdict::Retry,
            })),
            Act::TimedOut => self.input(Input::TimedOut),
            Act::Asks(again, n) => {
                self.asked += u8::from(!again);
                let id = n.map(|n| call_id(n.into())).or(open.map(|c| c.call_id)).unwrap_or_else(|| call_id(0));
                self.input(Input::Asked(question(&id, self.asked)));
            }
            Act::Answers(q, yes) => {
                let action = if yes { Action::Accept } else { Action::Decline };
                let answer = Answer::bare(action);
                self.input(Input::Answer {
                    question_id: question_id(self.asked.saturating_sub(q)),
                    answer,
                    by: "me".into(),
                });
            }
            Act::Over(q) => {
                let id = open.map_or_else(|| call_id(0), |c| c.call_id);
                let how = QuestionEnd::Answered;
                self.input(Input::QuestionEnded {
                    call_id: id,
                    question_id: question_id(self.asked.saturating_sub(q)),
                    how,
                });
            }
            Act::DependencyFailed => self.input(Input::DependencyFailed { reason: "dependency a failed".into() }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_inputs_keeps_the_promises(
        acts in proptest::collection::vec(act(), 1..60),
        steps in 1..4_usize,
        policy in 0..3_u8,
        attempts in 1..4_u32,
    ) {
        let on_unknown = [OnUnknown::Ask, OnUnknown::Fail, OnUnknown::Retry][usize::from(policy)];
        let retry = Retry { max_attempts: attempts, backoff: Duration::from_secs(1) };
        let story = Story::of(TaskSpec { on_unknown, retry, ..spec(steps) });
        let mut world =
            World { story, waiting: Default::default(), placed: 0, locked: None, on_unknown, picks: 0, asked: 0, answers: Default::default() };
        world.input(Input::Start);
        for act in acts {
            world.act(act);
        }
        // Everything that waits is given: it ends.
        for _ in 0..200 {
            if world.story.task.state.is_terminal() {
                return Ok(());
            }
            if !world.waiting.is_empty() {
                world.perform();
            } else if matches!(world.story.task.wait, Some(Wait::Unknown { .. })) {
                world.act(Act::Resolve(0));
            } else if world.story.task.call.is_some() {
                world.act(Act::End(0));
            } else {
                world.act(Act::Start);
            }
        }
        prop_assert!(false, "not terminal: {:?}", world.story.task);
    }
}
