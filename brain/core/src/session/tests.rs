//! Stories of the line, and a property over feet that connect, die, are cut and cheat.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use vance_shared::ids::QuestionId;
use vance_shared::json::Raw;
use vance_shared::limits::ANSWER_WITHIN;
use vance_shared::question::{Action, Answer, QuestionEnd};
use vance_shared::tool::ToolResult;
use vance_shared::trace::TraceContext;

use super::*;

mod any_order;

fn foot(name: &str) -> ClientId {
    ClientId::parse(&format!("foot_{name}")).unwrap()
}

fn id(n: usize) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

fn call(n: usize) -> Arc<wire::Call> {
    Arc::new(wire::Call {
        call_id: id(n),
        attempt: 1,
        tool: "read_local_file".into(),
        arguments: Raw::empty_object(),
        timeout_ms: 1_000,
        cap_ms: 3_000,
        answer_ms: None,
        traceparent: TraceContext::from_parts(1, 1, true),
    })
}

fn done() -> Outcome {
    Outcome::Done(ToolResult::text("x"))
}

fn attach(name: &str, epoch: u64, inflight: Inflight, held: &[usize]) -> Input {
    Input::Attach {
        client_id: foot(name),
        epoch,
        info: ClientInfo { name: name.into(), machine: format!("{name}.local"), ..ClientInfo::default() },
        tools: Tools::default(),
        loading: BTreeSet::new(),
        inflight,
        held: held.iter().map(|n| id(*n)).collect(),
    }
}

fn dispatch(name: &str, n: usize, replay: Replay) -> Input {
    Input::Dispatch { client_id: foot(name), call: call(n), replay }
}

fn result(name: &str, epoch: u64, n: usize) -> Input {
    Input::Result { client_id: foot(name), epoch, call_id: id(n), outcome: done() }
}

fn deliver(name: &str, n: usize, news: News) -> Effect {
    Effect::Deliver { client_id: foot(name), call_id: id(n), news }
}

fn sent_cancel(name: &str, n: usize, reason: &str) -> Effect {
    let frame = ToFoot::Cancel(wire::Cancel { call_id: id(n), reason: reason.into(), traceparent: None });
    Effect::Send { client_id: foot(name), frame }
}

fn sent_ack(name: &str, n: usize) -> Effect {
    Effect::Send { client_id: foot(name), frame: ToFoot::ResultAck(wire::ResultAck { call_id: id(n) }) }
}

fn welcome(name: &str, calls: &[usize]) -> Effect {
    Effect::Welcome { client_id: foot(name), inflight: calls.iter().map(|n| id(*n)).collect() }
}

fn running(calls: &[usize]) -> Inflight {
    Inflight { running: calls.iter().map(|n| id(*n)).collect(), ..Inflight::default() }
}

/// Foot `a` is online with epoch 1, call 1 is out to it.
fn sent(replay: Replay) -> Session {
    let mut session = Session::new(30_000, 4);
    let effects = session.handle(attach("a", 1, Inflight::default(), &[]), 0);
    assert_eq!(effects, [welcome("a", &[]), Effect::ViewChanged]);
    let effects = session.handle(dispatch("a", 1, replay), 0);
    assert_eq!(effects, [Effect::Send { client_id: foot("a"), frame: ToFoot::Call((*call(1)).clone()) }]);
    session
}

fn detach(name: &str, epoch: u64) -> Input {
    Input::Detach { client_id: foot(name), epoch }
}

fn accepted(n: usize) -> Input {
    Input::Accepted { client_id: foot("a"), epoch: 1, call_id: id(n) }
}

#[test]
fn a_result_counts_once_and_only_from_the_connection_that_holds_the_call() {
    let mut session = sent(Replay::Unsafe);
    session.handle(attach("b", 7, Inflight::default(), &[]), 1);
    assert_eq!(session.handle(result("a", 0, 1), 2), [], "an older epoch");
    assert_eq!(session.handle(result("nobody", 1, 1), 2), []);
    let forged = session.handle(result("b", 7, 1), 2);
    assert!(
        matches!(&forged[..], [Effect::Send { frame: ToFoot::Error(e), .. }] if e.code == "not_yours"),
        "{forged:?}"
    );
    assert_eq!(session.handle(result("a", 1, 1), 3), [deliver("a", 1, News::Ended(done()))]);
    let again = Effect::Unclaimed { client_id: foot("a"), call_id: id(1), outcome: done() };
    assert_eq!(session.handle(result("a", 1, 1), 4), [again]);
    let ack = Input::Ack { client_id: foot("a"), call_id: id(1) };
    assert_eq!(session.handle(ack, 5), [sent_ack("a", 1)]);
    assert_eq!(session.open_calls(), 0);
}

#[test]
fn a_client_that_accepted_a_call_and_does_not_know_it_any_more_has_another_journal() {
    let mut session = sent(Replay::Unsafe);
    session.handle(dispatch("a", 2, Replay::Unsafe), 0);
    session.handle(accepted(1), 1);
    session.handle(detach("a", 1), 2);
    let effects = session.handle(attach("a", 2, Inflight::default(), &[1, 2]), 3);
    let unknown = |effect: &Effect| matches!(effect, Effect::Deliver { call_id, news: News::Ended(Outcome::Unknown { .. }), .. } if *call_id == id(1));
    assert!(effects.iter().any(unknown), "{effects:?}");
    assert!(effects.contains(&deliver("a", 2, News::NeverArrived)), "{effects:?}");
}

#[test]
fn a_cut_line_suspends_and_the_return_says_how_each_call_stands() {
    let mut session = sent(Replay::Unsafe);
    for n in 2..=4 {
        session.handle(dispatch("a", n, Replay::Unsafe), 0);
    }
    session.handle(accepted(1), 1);
    let mut effects = session.handle(detach("a", 1), 10);
    assert_eq!(effects.pop(), Some(Effect::ViewChanged));
    assert_eq!(effects.len(), 4);
    assert!(effects.iter().all(|e| matches!(e, Effect::Deliver { news: News::Suspended, .. })));
    assert_eq!(session.handle(detach("a", 1), 11), []);
    // However long it is away.
    session.handle(Input::Tick, 10_000_000);
    assert_eq!((session.view().len(), session.open_calls()), (0, 4));
    let inflight = Inflight { running: vec![id(1)], finished: vec![id(2)], interrupted: vec![id(3)] };
    let effects = session.handle(attach("a", 2, inflight, &[1, 2, 3, 4]), 10_000_001);
    assert_eq!(effects[0], welcome("a", &[1, 2, 3, 4]));
    for want in [deliver("a", 1, News::Attached), deliver("a", 2, News::Attached), deliver("a", 4, News::NeverArrived)]
    {
        assert!(effects.contains(&want), "{want:?} in {effects:?}");
    }
    let gone = effects.iter().any(|e| {
        matches!(e, Effect::Deliver { call_id, news: News::Ended(Outcome::Unknown { .. }), .. } if *call_id == id(3))
    });
    assert!(gone, "{effects:?}");
    assert_eq!(session.handle(result("a", 2, 2), 10_000_002), [deliver("a", 2, News::Ended(done()))]);
    assert_eq!(session.open_calls(), 1);
}

#[test]
fn a_call_without_a_ready_client_is_not_sent_and_a_full_one_is_busy() {
    let mut session = Session::new(30_000, 2);
    let not_sent = |n, busy| vec![deliver("a", n, News::NotSent { busy })];
    assert_eq!(session.handle(dispatch("a", 1, Replay::Safe), 0), not_sent(1, false));
    session.handle(attach("a", 1, Inflight::default(), &[]), 0);
    session.handle(dispatch("a", 1, Replay::Safe), 0);
    session.handle(dispatch("a", 2, Replay::Safe), 0);
    assert_eq!(session.handle(dispatch("a", 3, Replay::Safe), 0), not_sent(3, true));
    assert_eq!(session.handle(Input::OutboxFull(id(2)), 0), not_sent(2, true));
    assert_eq!(session.handle(Input::OutboxFull(id(2)), 0), []);
    session.handle(Input::Draining { client_id: foot("a"), epoch: 1 }, 1);
    assert!(!session.view()[0].online, "no new calls");
    assert_eq!(session.handle(dispatch("a", 4, Replay::Safe), 1), not_sent(4, false));
    assert_eq!(session.handle(result("a", 1, 1), 2), [deliver("a", 1, News::Ended(done()))], "running ones finish");
}

#[test]
fn a_client_is_online_then_in_grace_then_gone() {
    let mut session = sent(Replay::Safe);
    session.handle(detach("a", 1), 100);
    let view = session.view();
    assert_eq!((view.len(), view[0].online), (1, false));
    assert_eq!(session.first_due_ms(), Some(30_100));
    assert_eq!(session.handle(Input::Tick, 30_099), []);
    assert_eq!(session.handle(Input::Tick, 30_100), [Effect::ViewChanged]);
    assert_eq!((session.view().len(), session.first_due_ms()), (0, None));
}

#[test]
fn a_later_connection_takes_over_and_an_older_one_never_does() {
    let mut session = sent(Replay::Unsafe);
    let effects = session.handle(attach("a", 2, running(&[1]), &[1]), 5);
    let supersede = Effect::Supersede { client_id: foot("a"), epoch: 1 };
    let suspended = deliver("a", 1, News::Suspended);
    let attached = deliver("a", 1, News::Attached);
    assert_eq!(effects, [suspended, supersede.clone(), welcome("a", &[1]), attached, Effect::ViewChanged]);
    assert_eq!(session.handle(attach("a", 1, Inflight::default(), &[]), 6), [supersede]);
    assert_eq!(session.handle(detach("a", 1), 7), [], "the older connection's end");
    assert_eq!(session.handle(result("a", 1, 1), 8), []);
    assert!(session.holds(&foot("a"), 2) && !session.holds(&foot("a"), 1));
    assert_eq!(session.handle(result("a", 2, 1), 9), [deliver("a", 1, News::Ended(done()))]);
}

#[test]
fn progress_extends_the_deadline_up_to_its_cap() {
    let progress = |at| Input::Progress {
        client_id: foot("a"),
        epoch: 1,
        progress: wire::Progress { call_id: id(1), fraction: None, message: Some(format!("{at}")), traceparent: None },
    };
    let mut session = sent(Replay::Safe);
    for (now, due) in [(900, 1_900), (1_800, 2_800), (2_700, 3_000)] {
        assert!(matches!(session.handle(progress(now), now)[..], [Effect::Deliver { news: News::Progress(_), .. }]));
        assert_eq!(session.first_due_ms(), Some(due + DEADLINE_SLACK_MS));
    }
    let overdue = 3_000 + DEADLINE_SLACK_MS;
    assert!(session.next_tick_ms().is_some_and(|at| at < overdue), "a tick too early finds the right time");
    assert_eq!(session.handle(Input::Tick, overdue - 1), []);
    assert_eq!(session.next_tick_ms(), Some(overdue));
    assert_eq!(session.handle(Input::Tick, overdue), [sent_cancel("a", 1, "its deadline is over")]);
    assert_eq!(session.handle(Input::Tick, overdue), []);
    assert_eq!(session.first_due_ms(), Some(overdue + SILENCE_MS));
}

#[test]
fn a_question_has_a_time_of_its_own_and_its_answer_goes_to_the_client() {
    let question_id = || QuestionId::parse("q").unwrap();
    let question = Question {
        call_id: id(1),
        question_id: question_id(),
        message: "?".into(),
        schema: Raw::empty_object(),
        url: None,
    };
    let asked = |epoch| Input::Asked { client_id: foot("a"), epoch, question: question.clone() };
    let within = i64::try_from(ANSWER_WITHIN.as_millis()).unwrap();
    let reply = wire::ElicitReply::of(id(1), question_id(), Answer::bare(Action::Accept));
    let replied = || Input::Reply { client_id: foot("a"), reply: reply.clone() };
    let end = wire::ElicitEnd::of(id(1), question_id(), QuestionEnd::Withdrawn);
    let over = || Input::QuestionEnded { client_id: foot("a"), epoch: 1, end: end.clone() };
    let frame = Effect::Send { client_id: foot("a"), frame: ToFoot::ElicitReply(reply.clone()) };
    for (input, effect) in [(replied(), frame), (over(), deliver("a", 1, News::QuestionEnded(end.clone())))] {
        let mut session = sent(Replay::Unsafe);
        assert_eq!(session.handle(asked(0), 500), [], "of an older connection");
        assert_eq!(session.handle(asked(1), 500), [deliver("a", 1, News::Asked(question.clone()))]);
        assert_eq!(session.first_due_ms(), Some(500 + within + DEADLINE_SLACK_MS));
        assert_eq!(session.handle(Input::Tick, 1_000_000), []);
        assert_eq!(session.handle(input, 2_000_000), [effect]);
        assert_eq!(session.first_due_ms(), Some(2_001_000 + DEADLINE_SLACK_MS), "its whole time again");
    }
    let mut session = sent(Replay::Unsafe);
    session.handle(asked(1), 500);
    assert_eq!(session.handle(detach("a", 1), 600)[0], deliver("a", 1, News::Suspended));
    assert_eq!(session.handle(replied(), 700), [], "nobody is there");
    let overdue = 500 + within + DEADLINE_SLACK_MS;
    let mut session = sent(Replay::Unsafe);
    session.handle(asked(1), 500);
    assert_eq!(session.handle(Input::Tick, overdue), [sent_cancel("a", 1, "its deadline is over")]);
    session.handle(attach("b", 2, Inflight::default(), &[]), 600);
    let forged = Input::Asked { client_id: foot("b"), epoch: 2, question: question.clone() };
    assert!(matches!(&session.handle(forged, 700)[..], [Effect::Send { frame: ToFoot::Error(_), .. }]));
}

#[test]
fn silence_after_the_deadline_fails_a_safe_call_and_leaves_an_unsafe_one_unknown() {
    for replay in [Replay::Safe, Replay::Unsafe] {
        let mut session = sent(replay);
        session.handle(Input::Tick, 1_000 + DEADLINE_SLACK_MS);
        let effects = session.handle(Input::Tick, 1_000 + DEADLINE_SLACK_MS + SILENCE_MS);
        let [Effect::Deliver { news: News::Ended(outcome), .. }] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!(outcome.word(), if replay == Replay::Safe { "failed" } else { "unknown" });
        let late = session.handle(result("a", 1, 1), 100_000);
        assert!(matches!(late[..], [Effect::Unclaimed { .. }]), "its task may still want it");
    }
}

#[test]
fn a_cancel_goes_out_at_once_or_when_the_client_is_back() {
    let cancel = || Input::Cancel { client_id: foot("a"), call_id: id(1), reason: "enough".into() };
    let mut session = sent(Replay::Unsafe);
    assert_eq!(session.handle(cancel(), 1), [sent_cancel("a", 1, "enough")]);
    let late = session.handle(result("a", 1, 1), 2);
    assert!(matches!(late[..], [Effect::Unclaimed { .. }]), "what happened belongs into the history: {late:?}");

    let mut session = sent(Replay::Unsafe);
    session.handle(detach("a", 1), 1);
    assert_eq!(session.handle(cancel(), 2), []);
    let effects = session.handle(attach("a", 2, running(&[1]), &[]), 3);
    assert_eq!(effects, [welcome("a", &[]), sent_cancel("a", 1, "enough"), Effect::ViewChanged]);

    // A client that never answers does not fill its room with cancelled calls.
    assert_eq!(session.open_calls(), 1);
    session.handle(Input::Tick, 2 + SILENCE_MS);
    assert_eq!(session.open_calls(), 0);
}

#[test]
fn what_nobody_waits_for_is_stopped_or_forgotten() {
    let mut session = Session::new(30_000, 4);
    let inflight = Inflight { running: vec![id(1)], finished: vec![id(2)], interrupted: vec![id(3)] };
    let effects = session.handle(attach("a", 1, inflight, &[]), 0);
    let stopped = sent_cancel("a", 1, "nobody waits for this call any more");
    assert_eq!(effects, [welcome("a", &[]), stopped, sent_ack("a", 2), sent_ack("a", 3), Effect::ViewChanged]);
}

#[test]
fn a_session_that_began_anew_learns_its_calls_from_tasks_and_clients() {
    let reattach = |n| Input::Reattach { client_id: foot("a"), call: call(n), replay: Replay::Unsafe };
    let mut session = Session::new(30_000, 4);
    assert_eq!(session.handle(reattach(1), 0), [deliver("a", 1, News::Suspended)]);
    let effects = session.handle(attach("a", 5, running(&[1, 2]), &[1, 2]), 1);
    assert_eq!(effects, [welcome("a", &[1, 2]), deliver("a", 1, News::Attached), Effect::ViewChanged]);
    assert_eq!(session.handle(reattach(2), 2), [deliver("a", 2, News::Attached)]);
    assert_eq!(session.handle(reattach(3), 2), [deliver("a", 3, News::NeverArrived)]);
    // A result whose task lost it on the way is asked for again: the client answers a repeated call from its journal.
    session.handle(result("a", 5, 2), 3);
    assert_eq!(session.handle(reattach(2), 4), [deliver("a", 2, News::NeverArrived)]);
}
