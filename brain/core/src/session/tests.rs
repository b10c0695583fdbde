//! Stories of the line, and a property over feet that connect, die, are cut and cheat.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;

use proptest::prelude::*;
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;
use vance_shared::trace::TraceContext;

use super::*;

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
    assert_eq!(session.next_tick_ms(), Some(30_100));
    assert_eq!(session.handle(Input::Tick, 30_099), []);
    assert_eq!(session.handle(Input::Tick, 30_100), [Effect::ViewChanged]);
    assert_eq!((session.view().len(), session.next_tick_ms()), (0, None));
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
        assert_eq!(session.next_tick_ms(), Some(due + DEADLINE_SLACK_MS));
    }
    let overdue = 3_000 + DEADLINE_SLACK_MS;
    assert_eq!(session.handle(Input::Tick, overdue - 1), []);
    assert_eq!(session.handle(Input::Tick, overdue), [sent_cancel("a", 1, "its deadline is over")]);
    assert_eq!(session.handle(Input::Tick, overdue), []);
    assert_eq!(session.next_tick_ms(), Some(overdue + SILENCE_MS));
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

// ---- any order ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Running,
    Finished,
    Interrupted,
}

/// A client with its journal, and the frames on their way to it.
#[derive(Debug, Default)]
struct Foot {
    epoch: u64,
    online: bool,
    inbox: VecDeque<ToFoot>,
    journal: BTreeMap<CallId, Kept>,
    runs: BTreeMap<CallId, u32>,
}

/// What a task thinks of its call.
#[derive(Debug)]
struct Waiter {
    client: usize,
    attempt: u32,
    open: bool,
    ended: u32,
    /// It must ask how the call stands.
    ask: bool,
}

struct World {
    session: Session,
    feet: [Foot; 3],
    names: [ClientId; 3],
    calls: BTreeMap<CallId, Waiter>,
    epochs: u64,
    now: i64,
}

#[derive(Debug, Clone)]
enum Act {
    Attach(usize),
    Cut(usize),
    /// The foot's side is gone, the Brain does not know yet.
    HalfCut(usize),
    Crash(usize),
    Take(usize),
    Finish(usize),
    Call(usize),
    Cancel(usize),
    Ask(usize),
    Stale(usize, usize),
    Forge(usize, usize),
    Full(usize),
    SessionRestarts,
    Tick(i64),
}

fn act() -> impl Strategy<Value = Act> {
    let f = || 0..3_usize;
    let n = || 0..8_usize;
    prop_oneof![
        4 => f().prop_map(Act::Attach),
        2 => f().prop_map(Act::Cut),
        1 => f().prop_map(Act::HalfCut),
        1 => f().prop_map(Act::Crash),
        6 => f().prop_map(Act::Take),
        4 => f().prop_map(Act::Finish),
        5 => f().prop_map(Act::Call),
        1 => n().prop_map(Act::Cancel),
        2 => n().prop_map(Act::Ask),
        1 => (f(), n()).prop_map(|(f, n)| Act::Stale(f, n)),
        1 => (f(), n()).prop_map(|(f, n)| Act::Forge(f, n)),
        1 => n().prop_map(Act::Full),
        1 => Just(Act::SessionRestarts),
        2 => (0..40_000_i64).prop_map(Act::Tick),
    ]
}

impl World {
    fn new() -> Self {
        Self {
            session: Session::new(30_000, 3),
            feet: Default::default(),
            names: [foot("a"), foot("b"), foot("c")],
            calls: BTreeMap::new(),
            epochs: 0,
            now: 0,
        }
    }

    fn index(&self, client_id: &ClientId) -> usize {
        self.names.iter().position(|n| n == client_id).unwrap()
    }

    fn held(&self, client: usize) -> BTreeSet<CallId> {
        self.calls.iter().filter(|(_, w)| w.open && w.client == client).map(|(id, _)| id.clone()).collect()
    }

    fn input(&mut self, input: Input) {
        self.now += 1;
        let mut effects: VecDeque<Effect> = self.session.handle(input, self.now).into();
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Send { client_id, frame } => {
                    let foot = self.index(&client_id);
                    if self.feet[foot].online {
                        self.feet[foot].inbox.push_back(frame);
                    }
                }
                Effect::Welcome { client_id, inflight } => {
                    let foot = self.index(&client_id);
                    let listed: BTreeSet<CallId> = inflight.into_iter().collect();
                    assert_eq!(listed, self.held(foot), "the welcome lists what tasks hold open");
                }
                Effect::Deliver { client_id, call_id, news } => {
                    assert_eq!(self.calls[&call_id].client, self.index(&client_id));
                    effects.extend(self.news(&call_id, news));
                }
                Effect::Unclaimed { client_id, call_id, .. } => {
                    if let Some(waiter) = self.calls.get_mut(&call_id).filter(|w| w.open) {
                        assert_eq!(self.names[waiter.client], client_id, "a forged result");
                        (waiter.open, waiter.ended) = (false, waiter.ended + 1);
                    }
                    effects.extend(self.session.handle(Input::Ack { client_id, call_id }, self.now));
                }
                Effect::Supersede { .. } | Effect::ViewChanged => {}
            }
        }
        for (call_id, waiter) in &self.calls {
            assert!(waiter.ended <= 1, "{call_id} counted twice");
            let in_ledger = self.session.calls.get(call_id);
            if waiter.open && !waiter.ask {
                assert!(in_ledger.is_some_and(|e| !matches!(e.phase, Phase::Cancelled(_))), "{call_id} was lost");
            }
            if let Some(entry) = in_ledger {
                assert!(waiter.open || matches!(entry.phase, Phase::Cancelled(_)), "{call_id} is waited for by nobody");
                let online = self.session.clients.get(&entry.client_id).is_some_and(|c| c.presence == Presence::Online);
                let out = matches!(entry.phase, Phase::Sent | Phase::Accepted | Phase::Overdue);
                assert!(online || !out, "{call_id} is out on a line that is cut");
            }
        }
    }

    /// What a task does with news of its call.
    fn news(&mut self, call_id: &CallId, news: News) -> Vec<Effect> {
        let now = self.now;
        let waiter = self.calls.get_mut(call_id).unwrap();
        assert!(waiter.open, "news of a call that has ended: {news:?}");
        let client_id = self.names[waiter.client].clone();
        match news {
            News::NotSent { .. } if waiter.attempt == 1 => {
                waiter.open = false;
                Vec::new()
            }
            News::NotSent { .. } => {
                waiter.ask = true;
                Vec::new()
            }
            News::NeverArrived => {
                waiter.attempt += 1;
                waiter.ask = false;
                let call = number(call_id);
                self.session.handle(Input::Dispatch { client_id, call: self::call(call), replay: Replay::Unsafe }, now)
            }
            News::Ended(_) => {
                (waiter.open, waiter.ended, waiter.ask) = (false, waiter.ended + 1, false);
                self.session.handle(Input::Ack { client_id, call_id: call_id.clone() }, now)
            }
            News::Suspended | News::Attached => {
                waiter.ask = false;
                Vec::new()
            }
            News::Progress(_) => Vec::new(),
        }
    }

    fn attach(&mut self, foot: usize) {
        self.epochs += 1;
        let epoch = self.epochs;
        let state = &mut self.feet[foot];
        (state.epoch, state.online) = (epoch, true);
        state.inbox.clear();
        let of = |kept: Kept| state.journal.iter().filter(|(_, k)| **k == kept).map(|(id, _)| id.clone()).collect();
        let inflight: Inflight =
            Inflight { running: of(Kept::Running), finished: of(Kept::Finished), interrupted: of(Kept::Interrupted) };
        let finished = inflight.finished.clone();
        let held = self.held(foot);
        self.input(Input::Attach {
            client_id: self.names[foot].clone(),
            epoch,
            info: ClientInfo::default(),
            tools: Tools::default(),
            loading: BTreeSet::new(),
            inflight,
            held,
        });
        for call_id in finished {
            self.result(foot, epoch, call_id, done());
        }
    }

    fn result(&mut self, foot: usize, epoch: u64, call_id: CallId, outcome: Outcome) {
        self.input(Input::Result { client_id: self.names[foot].clone(), epoch, call_id, outcome });
    }

    fn cut(&mut self, foot: usize) {
        self.feet[foot].online = false;
        self.feet[foot].inbox.clear();
    }

    fn take(&mut self, foot: usize) {
        let epoch = self.feet[foot].epoch;
        match self.feet[foot].inbox.pop_front() {
            Some(ToFoot::Call(call)) => {
                let state = &mut self.feet[foot];
                match state.journal.get(&call.call_id) {
                    Some(Kept::Finished) => self.result(foot, epoch, call.call_id, done()),
                    Some(Kept::Interrupted) => {
                        let outcome = Outcome::Unknown { reason: "died".into() };
                        self.result(foot, epoch, call.call_id, outcome);
                    }
                    Some(Kept::Running) | None => {
                        if state.journal.insert(call.call_id.clone(), Kept::Running).is_none() {
                            *state.runs.entry(call.call_id.clone()).or_default() += 1;
                        }
                        let client_id = self.names[foot].clone();
                        self.input(Input::Accepted { client_id, epoch, call_id: call.call_id });
                    }
                }
            }
            Some(ToFoot::Cancel(cancel)) => {
                if let Some(kept) = self.feet[foot].journal.get_mut(&cancel.call_id).filter(|k| **k == Kept::Running) {
                    *kept = Kept::Finished;
                    self.result(foot, epoch, cancel.call_id, Outcome::Cancelled { reason: cancel.reason });
                }
            }
            Some(ToFoot::ResultAck(ack)) => {
                self.feet[foot].journal.remove(&ack.call_id);
            }
            _ => {}
        }
    }

    fn finish(&mut self, foot: usize) {
        let Some(call_id) =
            self.feet[foot].journal.iter().find(|(_, k)| **k == Kept::Running).map(|(id, _)| id.clone())
        else {
            return;
        };
        self.feet[foot].journal.insert(call_id.clone(), Kept::Finished);
        if self.feet[foot].online {
            self.result(foot, self.feet[foot].epoch, call_id, done());
        }
    }

    fn ask(&mut self, call_id: &CallId) {
        if let Some(waiter) = self.calls.get(call_id).filter(|w| w.open) {
            let client_id = self.names[waiter.client].clone();
            self.input(Input::Reattach { client_id, call: call(number(call_id)), replay: Replay::Unsafe });
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Attach(foot) => self.attach(foot),
            Act::HalfCut(foot) => self.cut(foot),
            Act::Cut(foot) | Act::Crash(foot) => {
                if matches!(act, Act::Crash(_)) {
                    let journal = self.feet[foot].journal.values_mut();
                    journal.filter(|k| **k == Kept::Running).for_each(|k| *k = Kept::Interrupted);
                }
                self.cut(foot);
                self.input(Input::Detach { client_id: self.names[foot].clone(), epoch: self.feet[foot].epoch });
            }
            Act::Take(foot) => self.take(foot),
            Act::Finish(foot) => self.finish(foot),
            Act::Call(foot) => {
                let n = self.calls.len();
                self.calls.insert(id(n), Waiter { client: foot, attempt: 1, open: true, ended: 0, ask: false });
                self.input(Input::Dispatch {
                    client_id: self.names[foot].clone(),
                    call: call(n),
                    replay: Replay::Unsafe,
                });
            }
            Act::Cancel(n) => {
                if let Some(waiter) = self.calls.get_mut(&id(n)).filter(|w| w.open) {
                    waiter.open = false;
                    let client_id = self.names[waiter.client].clone();
                    self.input(Input::Cancel { client_id, call_id: id(n), reason: "x".into() });
                }
            }
            Act::Ask(n) => self.ask(&id(n)),
            Act::Stale(foot, n) => {
                let Some(older) = self.feet[foot].epoch.checked_sub(1) else { return };
                let before = self.session.open_calls();
                let client_id = self.names[foot].clone();
                let input = Input::Result { client_id, epoch: older, call_id: id(n), outcome: done() };
                assert_eq!(self.session.handle(input, self.now), [], "an older epoch counts for nothing");
                assert_eq!(self.session.open_calls(), before);
            }
            Act::Forge(foot, n) => {
                if self.calls.get(&id(n)).is_some_and(|w| w.client != foot && self.session.calls.contains_key(&id(n))) {
                    self.result(foot, self.feet[foot].epoch, id(n), done());
                }
            }
            Act::Full(n) => {
                // Only a call that has just been sent can find its outbox full: nothing of it may be on its way.
                let on_its_way = self.feet.iter().any(|f| {
                    f.journal.contains_key(&id(n))
                        || f.inbox.iter().any(|i| matches!(i, ToFoot::Call(c) if c.call_id == id(n)))
                });
                let sent = self.session.calls.get(&id(n)).is_some_and(|e| e.phase == Phase::Sent);
                if sent && !on_its_way {
                    self.input(Input::OutboxFull(id(n)));
                }
            }
            Act::SessionRestarts => {
                self.session = Session::new(30_000, 3);
                (0..3).for_each(|foot| self.cut(foot));
                self.calls.values_mut().filter(|w| w.open).for_each(|w| w.ask = true);
            }
            Act::Tick(ms) => {
                self.now += ms;
                self.input(Input::Tick);
            }
        }
    }
}

fn number(call_id: &CallId) -> usize {
    call_id.as_str().trim_start_matches("call_").parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_call_is_lost_and_none_counts_twice(acts in proptest::collection::vec(act(), 1..90)) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        // All come back, and everything that waits is done.
        for _ in 0..20 {
            for foot in 0..3 {
                world.attach(foot);
                let asking: Vec<CallId> =
                    world.calls.iter().filter(|(_, w)| w.open && w.ask).map(|(id, _)| id.clone()).collect();
                asking.iter().for_each(|id| world.ask(id));
                while !world.feet[foot].inbox.is_empty() || world.feet[foot].journal.values().any(|k| *k == Kept::Running) {
                    world.take(foot);
                    world.finish(foot);
                }
            }
        }
        let open: Vec<_> = world.calls.iter().filter(|(_, w)| w.open).collect();
        prop_assert!(open.is_empty(), "still open: {open:?}");
        world.act(Act::Tick(2 * SILENCE_MS));
        prop_assert_eq!(world.session.open_calls(), 0);
        for foot in &world.feet {
            let twice: Vec<_> = foot.runs.iter().filter(|(_, n)| **n > 1).collect();
            prop_assert!(twice.is_empty(), "run twice: {twice:?}");
            prop_assert!(foot.journal.is_empty(), "never acknowledged: {:?}", foot.journal);
        }
    }
}
