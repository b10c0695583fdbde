//! Stories of slots and wake-ups, and a property over random trees with tasks that answer in any order.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

fn tid(n: usize) -> TaskId {
    TaskId::parse(&format!("task_{n}")).unwrap()
}

fn number(id: &TaskId) -> usize {
    id.as_str().trim_start_matches("task_").parse().unwrap()
}

fn tool(n: usize) -> ToolName {
    ToolName::parse(&format!("tool_{n}")).unwrap()
}

fn foot(n: usize) -> ClientId {
    ClientId::parse(&format!("foot_{n}")).unwrap()
}

fn session() -> SessionId {
    SessionId::parse("sess_1").unwrap()
}

fn call(n: usize) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

fn entry(n: usize) -> Entry {
    Entry {
        task_id: tid(n),
        id: format!("t{n}"),
        tree_id: TreeId::parse("tree_1").unwrap(),
        session_id: session(),
        parent: None,
        has_children: false,
        depends_on: Vec::new(),
        run_if: RunIf::Success,
        state: State::Pending,
        wait: None,
        wake_on: Vec::new(),
        held: None,
    }
}

fn child(n: usize, parent: usize) -> Entry {
    Entry { parent: Some(tid(parent)), ..entry(n) }
}

fn parent(n: usize) -> Entry {
    Entry { has_children: true, ..entry(n) }
}

fn after(n: usize, dependencies: &[usize]) -> Entry {
    Entry { depends_on: dependencies.iter().map(|d| tid(*d)).collect(), ..entry(n) }
}

fn online(clients: &[(usize, &[usize])]) -> HashMap<ClientId, Offer> {
    clients.iter().map(|(c, tools)| (foot(*c), Arc::new(tools.iter().map(|t| tool(*t)).collect()))).collect()
}

fn needs(n: usize) -> Wait {
    Wait::Client { tool: tool(n), queued: false }
}

fn suspended(client: usize) -> Wait {
    Wait::Suspended { tool: tool(0), client_id: foot(client), call_id: call(0) }
}

/// Orders as `3 start`, `4 skip: …`, `5 cancel: …`, `6 children Done`.
fn shown(orders: &[Order]) -> Vec<String> {
    let one = |order: &Order| {
        let what = match &order.input {
            Input::Start => "start".to_owned(),
            Input::DependencyFailed { reason } => format!("skip: {reason}"),
            Input::Cancel { reason } => format!("cancel: {reason}"),
            Input::ChildrenEnded(end) => format!("children {end:?}"),
            other => panic!("{other:?}"),
        };
        format!("{} {what}", number(&order.task_id))
    };
    orders.iter().map(one).collect()
}

#[test]
fn tasks_start_after_their_dependencies_and_within_the_slots() {
    let mut board = Board::new(2);
    let orders = board.add(vec![entry(0), entry(1), entry(2), after(3, &[0, 2])]);
    assert_eq!(shown(&orders), ["0 start", "1 start"]);
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["2 start"]);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), ["3 start"]);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), Vec::<String>::new());
    board.ended(&tid(1), State::Completed);
    board.ended(&tid(3), State::Completed);
    assert_eq!((board.trees(), board.counts(), board.has(&tid(0))), (0, (0, 0), false));
}

#[test]
fn what_depends_on_a_failure_is_skipped_with_its_name_unless_it_always_runs() {
    for (state, word) in
        [(State::Failed, "failed"), (State::Cancelled, "was cancelled"), (State::Skipped, "was skipped")]
    {
        let mut board = Board::new(4);
        let always = Entry { run_if: RunIf::Always, ..after(2, &[0]) };
        board.add(vec![entry(0), after(1, &[0]), always, after(3, &[1])]);
        let orders = board.ended(&tid(0), state);
        assert_eq!(shown(&orders), [format!("1 skip: dependency t0 {word}"), "2 start".to_owned()]);
        let orders = board.ended(&tid(1), State::Skipped);
        assert_eq!(shown(&orders), ["3 skip: dependency t1 was skipped"]);
    }
}

#[test]
fn a_parent_holds_no_slot_and_ends_as_its_children_do() {
    for (ends, want) in [
        ([State::Completed, State::Skipped], "Done"),
        ([State::Failed, State::Cancelled], "Failed { child: \"t1\" }"),
        ([State::Cancelled, State::Completed], "Cancelled { child: \"t1\" }"),
    ] {
        let mut board = Board::new(1);
        assert_eq!(shown(&board.add(vec![parent(0), child(1, 0), child(2, 0)])), ["0 start"]);
        assert_eq!(shown(&board.children_may_run(&tid(0))), ["1 start"]);
        assert_eq!(shown(&board.ended(&tid(1), ends[0])), ["2 start"]);
        assert_eq!(shown(&board.ended(&tid(2), ends[1])), [format!("0 children {want}")]);
    }
}

#[test]
fn children_end_with_their_parent() {
    let tree = || vec![parent(0), child(1, 0), Entry { depends_on: vec![tid(1)], ..child(2, 0) }];
    for (state, want) in [
        (State::Cancelled, ["2 cancel: parent task t0 was cancelled", "1 cancel: parent task t0 ended"]),
        (State::Failed, ["2 skip: parent task t0 failed", "1 cancel: parent task t0 ended"]),
    ] {
        let mut board = Board::new(4);
        board.add(tree());
        board.children_may_run(&tid(0));
        assert_eq!(shown(&board.ended(&tid(0), state)), want);
        // The Brain died before the children were told.
        let mut entries = tree();
        (entries[0].state, entries[1].state) = (state, State::Running);
        let orders = shown(&Board::new(0).add(entries));
        assert!(want.iter().all(|w| orders.iter().any(|o| o == w)), "{orders:?}");
    }
}

#[test]
fn a_waiting_task_gives_its_slot_away_and_wakes_with_its_tool_first_in_first_out() {
    let mut board = Board::new(1);
    board.add((0..4).map(entry).collect());
    for n in 0..3 {
        assert_eq!(shown(&board.parked(&tid(n), needs(1), &[tool(1)], 0)), [format!("{} start", n + 1)]);
    }
    assert_eq!(board.counts(), (1, 3));
    assert_eq!(shown(&board.presence(&session(), 1, online(&[(0, &[2])]))), Vec::<String>::new());
    board.ended(&tid(3), State::Completed);
    assert_eq!(shown(&board.presence(&session(), 2, online(&[(0, &[2, 1])]))), ["0 start"]);
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["1 start"]);
    assert_eq!(shown(&board.ended(&tid(1), State::Completed)), ["2 start"]);
}

#[test]
fn a_client_that_came_while_the_task_decided_wakes_it_at_once() {
    let mut board = Board::new(1);
    board.add(vec![entry(0)]);
    board.presence(&session(), 6, online(&[(0, &[1])]));
    assert_eq!(shown(&board.parked(&tid(0), needs(1), &[tool(1)], 5)), ["0 start"]);
    // It decided on that very view: the client is not for it. It is not told again and again.
    assert_eq!(shown(&board.parked(&tid(0), needs(1), &[tool(1)], 6)), Vec::<String>::new());
    assert_eq!(shown(&board.presence(&session(), 7, online(&[(0, &[1]), (1, &[1])]))), ["0 start"]);
}

#[test]
fn a_view_that_the_board_never_saw_loses_no_wake_up() {
    // The client left with view 6 and came back with 7; the board hears of 7 only.
    for (wait, wake_on) in [(needs(1), vec![tool(1)]), (suspended(0), vec![])] {
        let mut board = Board::new(1);
        board.add(vec![entry(0)]);
        board.presence(&session(), 5, online(&[(0, &[1])]));
        assert_eq!(shown(&board.parked(&tid(0), wait, &wake_on, 6)), Vec::<String>::new());
        assert_eq!(shown(&board.presence(&session(), 7, online(&[(0, &[1])]))), ["0 start"]);
    }
}

#[test]
fn a_suspended_task_is_not_asked_over_and_over_while_the_board_is_behind() {
    let mut board = Board::new(1);
    board.add(vec![entry(0)]);
    board.presence(&session(), 5, online(&[(0, &[])]));
    assert_eq!(shown(&board.parked(&tid(0), suspended(0), &[], 0)), ["0 start"]);
    assert_eq!(shown(&board.parked(&tid(0), suspended(0), &[], 0)), Vec::<String>::new(), "once for each view");
    assert_eq!(shown(&board.presence(&session(), 6, online(&[]))), Vec::<String>::new());
    assert_eq!(shown(&board.presence(&session(), 7, online(&[(0, &[])]))), ["0 start"]);
}

#[test]
fn server_tools_that_changed_while_the_task_decided_wake_it() {
    let mut board = Board::new(1);
    board.add(vec![entry(0)]);
    board.server_tools_changed();
    assert_eq!(shown(&board.parked(&tid(0), needs(1), &[tool(1)], 0)), ["0 start"]);
    assert_eq!(shown(&board.parked(&tid(0), needs(1), &[tool(1)], 0)), Vec::<String>::new());
    assert_eq!(shown(&board.server_tools_changed()), ["0 start"]);
    let unknown = Wait::Unknown { tool: tool(1), call_id: call(1) };
    board.parked(&tid(0), unknown, &[], 0);
    assert_eq!(shown(&board.server_tools_changed()), Vec::<String>::new(), "only a person answers");
    board.resumed(&tid(0));
    assert_eq!(board.counts(), (1, 0));
}

#[test]
fn a_retry_takes_failed_ancestors_and_what_was_skipped_because_of_it() {
    // 0 { 1 failed, 2 skipped after 1, 3 completed }, 4 skipped after 0, 5 cancelled by a person after 0; 6 { 7 failed, 8 cancelled }
    let done = |mut e: Entry, state| {
        e.state = state;
        e
    };
    let mut board = Board::new(1);
    board.add(vec![
        done(parent(0), State::Failed),
        done(child(1, 0), State::Failed),
        done(Entry { depends_on: vec![tid(1)], ..child(2, 0) }, State::Skipped),
        done(child(3, 0), State::Completed),
        done(after(4, &[0]), State::Skipped),
        done(after(5, &[0]), State::Cancelled),
        done(parent(6), State::Failed),
        done(child(7, 6), State::Failed),
        done(child(8, 6), State::Cancelled),
    ]);
    let closure = |board: &Board, n| board.retry_closure(&tid(n)).iter().map(number).collect::<Vec<_>>();
    assert_eq!(closure(&board, 1), [0, 1, 4, 2]);
    assert_eq!(closure(&board, 0), [0, 1, 2, 4]);
    assert_eq!(closure(&board, 6), [6, 7, 8]);
    assert_eq!(closure(&board, 7), [6, 7], "a sibling stays as it ended");
    let ids = board.retry_closure(&tid(1));
    assert_eq!(shown(&board.retried(&ids)), ["0 start"]);
    assert_eq!(shown(&board.children_may_run(&tid(0))), ["1 start"]);
    assert_eq!(shown(&board.ended(&tid(1), State::Completed)), ["2 start"]);
    assert_eq!(shown(&board.ended(&tid(2), State::Completed)), ["0 children Done"]);
    assert_eq!(shown(&board.ended(&tid(0), State::Completed)), ["4 start"]);
    assert_eq!(board.trees(), 1);
    board.ended(&tid(4), State::Completed);
    assert_eq!(board.trees(), 0);
}

#[test]
fn calls_are_found_by_client_and_by_id() {
    let mut board = Board::new(1);
    board.add(vec![Entry { state: State::Running, held: Some((call(1), foot(0))), ..entry(0) }]);
    assert_eq!(board.held_on(&foot(0)), BTreeSet::from([call(1)]));
    assert_eq!(board.holder(&call(1), &foot(0)), Some(tid(0)));
    assert_eq!(board.holder(&call(1), &foot(1)), None, "another client's word");
    board.call_closed(&call(1));
    assert_eq!((board.held_on(&foot(0)).len(), board.holder(&call(1), &foot(0))), (0, None));
}

// ---- random trees ----

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Tool(usize),
    Client(usize),
    Person,
}

#[derive(Debug, Clone)]
struct Plan {
    parent: Option<usize>,
    has_children: bool,
    depends_on: Vec<usize>,
    always: bool,
    needs: Vec<Need>,
    end: State,
}

fn need() -> impl Strategy<Value = Need> {
    prop_oneof![
        4 => (0..3_usize).prop_map(Need::Tool),
        2 => (0..2_usize).prop_map(Need::Client),
        1 => Just(Need::Person),
    ]
}

/// Parents before their children, dependencies among siblings.
fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let one = (
        any::<prop::sample::Index>(),
        proptest::option::weighted(0.5, any::<prop::sample::Index>()),
        proptest::collection::vec(any::<bool>(), 10),
        proptest::bool::weighted(0.2),
        proptest::collection::vec(need(), 0..3),
        prop_oneof![6 => Just(State::Completed), 2 => Just(State::Failed), 1 => Just(State::Skipped)],
    );
    proptest::collection::vec(one, 1..10).prop_map(|raw| {
        let mut plans: Vec<Plan> = Vec::new();
        for (i, (_, parent, depends, always, needs, end)) in raw.into_iter().enumerate() {
            let parent = parent.filter(|_| i > 0).map(|p| p.index(i));
            let siblings = (0..i).filter(|j| plans[*j].parent == parent);
            let depends_on = siblings.filter(|j| depends[*j]).collect();
            if let Some(parent) = parent {
                plans[parent].has_children = true;
            }
            plans.push(Plan { parent, has_children: false, depends_on, always, needs, end });
        }
        plans
    })
}

#[derive(Debug)]
enum Mail {
    Presence(u64, HashMap<ClientId, Offer>),
    Parked(usize, Wait, Vec<ToolName>, u64),
    Running(usize),
    ChildrenMayRun(usize),
    Ended(usize, State),
    RetryAsked(usize),
    Retried(Vec<usize>),
}

#[derive(Debug)]
enum Told {
    Board(Input),
    Retry(usize),
}

/// A task as its actor and its stored state are.
#[derive(Debug)]
struct Fake {
    plan: Plan,
    state: State,
    wait: Option<Wait>,
    at: usize,
    inbox: VecDeque<Told>,
}

struct World {
    board: Board,
    slots: usize,
    fakes: Vec<Fake>,
    mail: VecDeque<Mail>,
    /// Retries under way: tasks that have not answered, and those that are pending again.
    gathers: Vec<(usize, Vec<usize>)>,
    revision: u64,
    view: HashMap<ClientId, Offer>,
}

#[derive(Debug, Clone)]
enum Act {
    Mail,
    Task(prop::sample::Index),
    View(u8),
    Resolve(prop::sample::Index),
    Cancel(prop::sample::Index),
    Retry(prop::sample::Index),
    BoardRestarts,
    ServerTools,
}

fn act() -> impl Strategy<Value = Act> {
    let i = any::<prop::sample::Index>;
    prop_oneof![
        8 => Just(Act::Mail),
        8 => i().prop_map(Act::Task),
        3 => any::<u8>().prop_map(Act::View),
        1 => i().prop_map(Act::Resolve),
        1 => i().prop_map(Act::Cancel),
        1 => i().prop_map(Act::Retry),
        1 => Just(Act::BoardRestarts),
        1 => Just(Act::ServerTools),
    ]
}

impl World {
    fn new(plans: Vec<Plan>, slots: usize) -> Self {
        let fake = |plan| Fake { plan, state: State::Pending, wait: None, at: 0, inbox: VecDeque::new() };
        let fakes = plans.into_iter().map(fake).collect();
        let mut world = Self {
            board: Board::new(slots),
            slots,
            fakes,
            mail: VecDeque::new(),
            gathers: Vec::new(),
            revision: 0,
            view: HashMap::new(),
        };
        let orders = world.board.add(world.entries());
        world.follow(orders);
        world
    }

    fn entries(&self) -> Vec<Entry> {
        let one = |(n, fake): (usize, &Fake)| Entry {
            parent: fake.plan.parent.map(tid),
            has_children: fake.plan.has_children,
            depends_on: fake.plan.depends_on.iter().map(|d| tid(*d)).collect(),
            run_if: if fake.plan.always { RunIf::Always } else { RunIf::Success },
            state: fake.state,
            wait: fake.wait.clone(),
            wake_on: self.wake_on(n),
            ..entry(n)
        };
        self.fakes.iter().enumerate().map(one).collect()
    }

    fn wake_on(&self, n: usize) -> Vec<ToolName> {
        match &self.fakes[n].wait {
            Some(Wait::Client { tool, .. }) => vec![tool.clone()],
            _ => Vec::new(),
        }
    }

    fn follow(&mut self, orders: Vec<Order>) {
        if orders.iter().any(|o| o.input == Input::Start) {
            assert!(self.board.counts().0 <= self.slots, "more tasks than slots");
        }
        for order in orders {
            self.fakes[number(&order.task_id)].inbox.push_back(Told::Board(order.input));
        }
    }

    fn set_view(&mut self, bits: u8, told: bool) {
        self.revision += 1;
        let offers = |c: usize| (0..3).filter(|t| bits >> (c * 3 + t) & 1 == 1).collect::<Vec<_>>();
        let there = (0..2).filter(|c| bits >> (6 + c) & 1 == 1);
        self.view = there.map(|c| (foot(c), Arc::new(offers(c).into_iter().map(tool).collect()))).collect();
        if told {
            self.mail.push_back(Mail::Presence(self.revision, self.view.clone()));
        }
    }

    fn take_mail(&mut self) {
        let Some(mail) = self.mail.pop_front() else { return };
        let orders = match mail {
            Mail::Presence(revision, online) => self.board.presence(&session(), revision, online),
            Mail::Parked(n, wait, wake_on, seen) => self.board.parked(&tid(n), wait, &wake_on, seen),
            Mail::Running(n) => {
                self.board.resumed(&tid(n));
                Vec::new()
            }
            Mail::ChildrenMayRun(n) => self.board.children_may_run(&tid(n)),
            Mail::Ended(n, state) => self.board.ended(&tid(n), state),
            Mail::RetryAsked(n) => {
                let mut orders = Vec::new();
                if !self.board.has(&tid(n)) {
                    orders = self.board.add(self.entries());
                }
                let closure = self.board.retry_closure(&tid(n));
                let gather = self.gathers.len();
                self.gathers.push((closure.len(), Vec::new()));
                self.follow(orders);
                for id in closure {
                    self.fakes[number(&id)].inbox.push_back(Told::Retry(gather));
                }
                return;
            }
            Mail::Retried(ids) => {
                let ids: Vec<TaskId> = ids.into_iter().map(tid).collect();
                match ids.first() {
                    // Its tree ended and was forgotten meanwhile.
                    Some(first) if !self.board.has(first) => self.board.add(self.entries()),
                    _ => self.board.retried(&ids),
                }
            }
        };
        self.follow(orders);
    }

    fn end(&mut self, n: usize, state: State) {
        let fake = &mut self.fakes[n];
        (fake.state, fake.wait) = (state, None);
        self.mail.push_back(Mail::Ended(n, state));
    }

    fn take_order(&mut self, n: usize) {
        let Some(told) = self.fakes[n].inbox.pop_front() else { return };
        let input = match told {
            Told::Retry(gather) => {
                let fake = &mut self.fakes[n];
                if matches!(fake.state, State::Failed | State::Cancelled | State::Skipped) {
                    // The second time it works.
                    (fake.state, fake.plan.end) = (State::Pending, State::Completed);
                    self.gathers[gather].1.push(n);
                }
                self.gathers[gather].0 -= 1;
                if self.gathers[gather].0 == 0 {
                    self.mail.push_back(Mail::Retried(self.gathers[gather].1.clone()));
                }
                return;
            }
            Told::Board(input) => input,
        };
        let state = self.fakes[n].state;
        match input {
            // As the machine does: it says so again.
            _ if state.is_terminal() => self.end(n, state),
            Input::Start => {
                if state == State::Pending {
                    self.check_start(n);
                }
                (self.fakes[n].state, self.fakes[n].wait) = (State::Running, None);
                self.go_on(n);
            }
            Input::DependencyFailed { .. } if state == State::Pending => self.end(n, State::Skipped),
            Input::Cancel { .. } => self.end(n, State::Cancelled),
            Input::ChildrenEnded(end) if state == State::Running => self.end(
                n,
                match end {
                    ChildrenEnd::Done => State::Completed,
                    ChildrenEnd::Failed { .. } => State::Failed,
                    ChildrenEnd::Cancelled { .. } => State::Cancelled,
                },
            ),
            _ => {}
        }
    }

    fn check_start(&self, n: usize) {
        let plan = &self.fakes[n].plan;
        for dependency in &plan.depends_on {
            let state = self.fakes[*dependency].state;
            // A dependency that a person retries while the start is on its way was done when the start was ordered.
            let retried = self.fakes[*dependency].plan.end == State::Completed && !self.gathers.is_empty();
            assert!(state == State::Completed || plan.always && state.is_terminal() || retried, "{n} too early");
        }
    }

    fn go_on(&mut self, n: usize) {
        if self.fakes[n].plan.has_children {
            self.mail.push_back(Mail::ChildrenMayRun(n));
            return;
        }
        while let Some(need) = self.fakes[n].plan.needs.get(self.fakes[n].at).copied() {
            let wait = match need {
                Need::Tool(t) if self.view.values().any(|offer| offer.contains(&tool(t))) => None,
                Need::Tool(t) => Some(needs(t)),
                Need::Client(c) if self.view.contains_key(&foot(c)) => None,
                Need::Client(c) => Some(suspended(c)),
                Need::Person => Some(Wait::Unknown { tool: tool(0), call_id: call(n) }),
            };
            if let Some(wait) = wait {
                let fake = &mut self.fakes[n];
                (fake.state, fake.wait) = (State::Blocked, Some(wait.clone()));
                let wake_on = self.wake_on(n);
                self.mail.push_back(Mail::Parked(n, wait, wake_on, self.revision));
                return;
            }
            self.fakes[n].at += 1;
        }
        let end = self.fakes[n].plan.end;
        self.end(n, end);
    }

    fn resolve(&mut self, n: usize) {
        if matches!(self.fakes[n].wait, Some(Wait::Unknown { .. })) {
            let fake = &mut self.fakes[n];
            (fake.at, fake.state, fake.wait) = (fake.at + 1, State::Running, None);
            self.mail.push_back(Mail::Running(n));
            self.go_on(n);
        }
    }

    fn act(&mut self, act: &Act) {
        let count = self.fakes.len();
        match act {
            Act::Mail => self.take_mail(),
            Act::Task(n) => self.take_order(n.index(count)),
            // A view now and then never reaches the board; the last one always does.
            Act::View(bits) => self.set_view(*bits, bits % 5 != 0),
            Act::Resolve(n) => self.resolve(n.index(count)),
            Act::Cancel(n) => {
                self.fakes[n.index(count)].inbox.push_back(Told::Board(Input::Cancel { reason: "x".into() }))
            }
            Act::Retry(n) => self.mail.push_back(Mail::RetryAsked(n.index(count))),
            Act::ServerTools => {
                let orders = self.board.server_tools_changed();
                self.follow(orders);
            }
            Act::BoardRestarts => self.restart(),
        }
    }

    /// All that was on its way is gone; what is stored stays.
    fn restart(&mut self) {
        self.mail.clear();
        self.gathers.clear();
        self.fakes.iter_mut().for_each(|f| f.inbox.clear());
        if self.fakes.iter().all(|f| f.state.is_terminal()) {
            self.board = Board::new(self.slots);
            return;
        }
        let mut twice = Board::new(self.slots);
        self.board = Board::new(self.slots);
        let orders = self.board.add(self.entries());
        assert_eq!(twice.add(self.entries()), orders, "recovery is the same each time");
        assert_eq!(twice.add(self.entries()), [], "and twice is the same as once");
        assert_eq!(twice.counts(), self.board.counts());
        self.follow(orders);
        self.mail.push_back(Mail::Presence(self.revision, self.view.clone()));
    }

    fn settle(&mut self) {
        while !self.mail.is_empty() || self.fakes.iter().any(|f| !f.inbox.is_empty()) {
            self.take_mail();
            (0..self.fakes.len()).for_each(|n| self.take_order(n));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_tasks_end_once_everything_is_there(
        plans in plans(),
        slots in 1..4_usize,
        acts in proptest::collection::vec(act(), 0..120),
    ) {
        let mut world = World::new(plans, slots);
        for act in &acts {
            world.act(act);
        }
        world.set_view(255, true);
        world.settle();
        while let Some(n) = (0..world.fakes.len()).find(|n| matches!(world.fakes[*n].wait, Some(Wait::Unknown { .. }))) {
            world.resolve(n);
            world.settle();
        }
        for (n, fake) in world.fakes.iter().enumerate() {
            prop_assert!(fake.state.is_terminal(), "task {n} is lost: {fake:?}");
        }
        prop_assert_eq!(world.board.counts(), (0, 0));
        prop_assert_eq!(world.board.live.values().sum::<usize>(), 0);
    }
}
