//! A server asks in the middle of a call.

use super::*;

pub(super) fn question_id(n: u8) -> QuestionId {
    QuestionId::parse(&format!("question_{n}")).unwrap()
}

pub(super) fn question(call_id: &CallId, n: u8) -> Question {
    let (message, schema) = ("how\nmany?".to_owned(), Raw::empty_object());
    Question { call_id: call_id.clone(), question_id: question_id(n), message, schema, url: None }
}

fn accept(n: i64) -> Answer {
    Answer { action: Action::Accept, content: Some(Raw::from(json!({ "n": n }))) }
}

fn said(n: u8, answer: Answer, by: &str) -> Input {
    Input::Answer { question_id: question_id(n), answer, by: by.to_owned() }
}

fn ended(n: u8, how: QuestionEnd) -> Input {
    Input::QuestionEnded { call_id: call_id(1), question_id: question_id(n), how }
}

/// Its call on foot `a` asks.
fn asking() -> Story {
    let mut story = Story::running(spec(1), Replay::Unsafe);
    let step = story.say(Input::Asked(question(&call_id(1), 1)));
    assert_eq!(step.effects, [Effect::Park]);
    assert_eq!(story.task.state, State::Blocked);
    assert_eq!(story.task.blocked_reason().as_deref(), Some("Waiting for an answer: how many?"));
    story
}

fn reply(n: u8, answer: Answer) -> Effect {
    Effect::Reply { client_id: Some(foot("a")), call_id: call_id(1), question_id: question_id(n), answer }
}

#[test]
fn an_answer_is_stored_then_sent_until_it_has_arrived() {
    let mut story = asking();
    let step = story.say(said(1, accept(3), "me"));
    assert!(matches!(&step.events[..], [Event::QuestionAnswered { .. }, Event::Resumed {}]), "{step:?}");
    assert!(matches!(&step.effects[..], [Effect::Reattach(call)] if call.call_id == call_id(1)), "{step:?}");
    story.restart();
    for _ in 0..2 {
        assert_eq!(story.say(Input::CallAttached(call_id(1))).effects, [reply(1, accept(3))]);
        assert_eq!(story.say(Input::Asked(question(&call_id(1), 1))).effects, [reply(1, accept(3))], "asked again");
    }
    story.say(ended(1, QuestionEnd::Answered));
    let step = story.say(Input::CallAttached(call_id(1)));
    assert!(step.effects.is_empty() && step.events.is_empty(), "{step:?}");
    story.say(Input::CallEnded { call_id: call_id(1), from: Some(foot("a")), outcome: done("x") });
    assert_eq!(story.task.state, State::Completed);
}

#[test]
fn the_first_answer_wins_and_the_same_one_again_is_taken() {
    let mut story = asking();
    story.say(said(1, accept(3), "me"));
    for (answer, by, code) in [
        (accept(3), "me", None),
        (accept(4), "me", Some("answered")),
        (accept(3), "you", Some("answered")),
        (Answer::bare(Action::Decline), "me", Some("answered")),
    ] {
        let step = story.say(said(1, answer.clone(), by));
        assert_eq!(step.refused.as_ref().map(|f| f.code.as_str()), code, "{answer:?} by {by}");
        assert!(step.events.is_empty() && step.effects.is_empty(), "{step:?}");
    }
    let refused = story.say(said(2, accept(3), "me")).refused.unwrap();
    assert_eq!(refused.code, "no_question");
    story.say(Input::CallEnded { call_id: call_id(1), from: Some(foot("a")), outcome: done("x") });
    assert_eq!(story.say(said(1, accept(3), "me")).refused, None, "also after the end");
}

#[test]
fn a_cut_line_keeps_the_question_and_a_dead_process_ends_it() {
    let mut story = asking();
    let step = story.say(Input::CallSuspended(call_id(1)));
    assert_eq!((step.events, step.effects), (vec![], vec![Effect::Park]));
    let step = story.say(Input::Start);
    assert!(matches!(&step.effects[..], [Effect::Reattach(_)]), "{step:?}");
    assert_eq!(story.say(Input::CallAttached(call_id(1))).effects, [Effect::Park]);
    // Answered while the client is away: then it is the client that is waited for.
    story.say(Input::CallSuspended(call_id(1)));
    story.say(said(1, accept(3), "me"));
    story.say(Input::CallSuspended(call_id(1)));
    assert_eq!(story.task.blocked_reason().as_deref(), Some(WAITING));
    assert_eq!(story.say(Input::CallAttached(call_id(1))).effects, [reply(1, accept(3))]);

    let mut story = asking();
    story.say(Input::CallEnded { call_id: call_id(1), from: Some(foot("a")), outcome: unknown() });
    assert!(story.task.blocked_reason().unwrap().starts_with("Outcome unknown"));
    assert_eq!(story.say(said(1, accept(3), "me")).refused.unwrap().code, "no_question");
}

#[test]
fn what_ends_the_call_or_its_wait_ends_the_question() {
    for (how, state) in [
        (ended(1, QuestionEnd::Withdrawn), State::Running),
        (ended(1, QuestionEnd::Expired), State::Running),
        (ended(2, QuestionEnd::Expired), State::Blocked),
        (Input::CallEnded { call_id: call_id(1), from: Some(foot("a")), outcome: done("x") }, State::Completed),
        (Input::Cancel { reason: "x".into() }, State::Cancelled),
        (Input::CallNeverArrived(call_id(1)), State::Running),
    ] {
        let mut story = asking();
        story.say(how.clone());
        assert_eq!(story.task.state, state, "{how:?}");
        assert_eq!(story.task.question.is_some(), state == State::Blocked, "{how:?}");
    }
}

#[test]
fn a_newer_question_takes_the_place_and_too_many_get_no_answer() {
    let mut story = asking();
    story.say(Input::Asked(question(&call_id(1), 2)));
    assert_eq!(story.say(said(1, accept(3), "me")).refused.unwrap().code, "no_question");
    for n in 2..MAX_QUESTIONS {
        story.say(Input::Asked(question(&call_id(1), u8::try_from(n + 1).unwrap())));
    }
    let step = story.say(Input::Asked(question(&call_id(1), 200)));
    assert_eq!(step.effects, [Effect::Park, reply(200, Answer::bare(Action::Cancel))]);
    assert!(step.events.is_empty());
    let mut large = question(&call_id(1), 3);
    large.schema = Raw::from(json!({"d": "x".repeat(100_000)}));
    let mut story = Story::running(spec(1), Replay::Unsafe);
    assert_eq!(story.say(Input::Asked(large)).effects, [reply(3, Answer::bare(Action::Cancel))]);
    assert!(story.say(Input::Asked(question(&call_id(9), 1))).events.is_empty(), "another call's");
}

#[test]
fn a_question_of_the_server_outlives_its_tasks_actor_but_not_its_process() {
    let mut story = Story::of(spec(1));
    story.say(Input::Start);
    story.place(1, Place::Server, Replay::Unsafe);
    story.say(Input::Asked(question(&call_id(1), 1)));
    story.restart();
    story.task.runs_here(call_id(1));
    assert_eq!(story.say(Input::Start).effects, [Effect::Park], "told to look twice");
    let step = story.say(said(1, accept(3), "me"));
    let (call_id, question_id) = (call_id(1), question_id(1));
    assert_eq!(step.effects, [Effect::Reply { client_id: None, call_id, question_id, answer: accept(3) }]);

    for (replay, state, reason) in
        [(Replay::Unsafe, State::Blocked, Some("Outcome unknown")), (Replay::Safe, State::Running, None)]
    {
        let mut story = Story::of(spec(1));
        story.say(Input::Start);
        story.place(1, Place::Server, replay);
        story.say(Input::Asked(question(&super::call_id(1), 1)));
        story.restart();
        story.say(Input::Start);
        assert_eq!(story.task.state, state, "{replay:?}");
        let shown = story.task.blocked_reason().unwrap_or_default();
        assert!(shown.starts_with(reason.unwrap_or_default()), "{shown}");
    }
}
