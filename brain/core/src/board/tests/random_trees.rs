//! Random trees whose tasks answer in any order: all of them end.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

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
                let orders = self.board.server_tools_changed(&|_| true);
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
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(500), failure_persistence: None, ..ProptestConfig::default() })]

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
