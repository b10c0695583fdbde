//! Feet that connect, die, are cut and cheat, in any order: no call is lost, and none counts twice.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

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
    /// Its server has asked a person.
    asks: bool,
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
    /// A running call's server asks; `true`: and hears something, or does not wait any more.
    Question(usize, bool),
    /// A person answers.
    Reply(usize),
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
        2 => (f(), any::<bool>()).prop_map(|(f, over)| Act::Question(f, over)),
        1 => n().prop_map(Act::Reply),
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
                let out = entry.phase.is_out();
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
            News::Asked(_) => {
                waiter.asks = true;
                Vec::new()
            }
            News::Progress(_) | News::QuestionEnded(_) => Vec::new(),
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
                self.calls
                    .insert(id(n), Waiter { client: foot, attempt: 1, open: true, ended: 0, ask: false, asks: false });
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
            Act::Question(foot, over) => {
                let runs = |(_, kept): &(&CallId, &Kept)| **kept == Kept::Running;
                let Some((call_id, _)) = self.feet[foot].journal.iter().find(runs).filter(|_| self.feet[foot].online)
                else {
                    return;
                };
                let (call_id, client_id, epoch) = (call_id.clone(), self.names[foot].clone(), self.feet[foot].epoch);
                if self.calls.get(&call_id).is_none_or(|w| !w.open) {
                    return;
                }
                let question_id = QuestionId::parse("q").unwrap();
                self.input(if over {
                    let end = wire::ElicitEnd::of(call_id, question_id, QuestionEnd::Answered);
                    Input::QuestionEnded { client_id, epoch, end }
                } else {
                    let (message, schema, url) = ("?".to_owned(), Raw::empty_object(), None);
                    Input::Asked { client_id, epoch, question: Question { call_id, question_id, message, schema, url } }
                });
            }
            Act::Reply(n) => {
                if let Some(waiter) = self.calls.get(&id(n)).filter(|w| w.open && w.asks) {
                    let (client_id, question_id) = (self.names[waiter.client].clone(), QuestionId::parse("q").unwrap());
                    let reply = wire::ElicitReply::of(id(n), question_id, Answer::bare(Action::Accept));
                    self.input(Input::Reply { client_id, reply });
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
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(300), failure_persistence: None, ..ProptestConfig::default() })]

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
