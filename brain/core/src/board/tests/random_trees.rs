//! Random trees whose tasks answer in any order: all of them end.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const A_PERSON: &str = "a person";

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
    /// With all tasks as they were stored then.
    RetryAsked(usize, Vec<Entry>),
    /// The store writes.
    Revive(Vec<TaskId>),
    Revived(Vec<TaskId>, HashSet<TaskId>),
}

impl Mail {
    /// What a task says, and not the world.
    fn said_by(&self) -> Option<usize> {
        match self {
            Self::Parked(n, ..) | Self::Running(n) | Self::ChildrenMayRun(n) | Self::Ended(n, _) => Some(*n),
            Self::Presence(..) | Self::RetryAsked(..) | Self::Revive(_) | Self::Revived(..) => None,
        }
    }
}

/// A task as its actor and its stored state are.
#[derive(Debug)]
struct Fake {
    plan: Plan,
    state: State,
    wait: Option<Wait>,
    at: usize,
    inbox: VecDeque<Input>,
    /// A person cancelled it, or what is around it.
    cancelled: bool,
    /// It was skipped because of a dependency.
    skipped: bool,
}

struct World {
    board: Board,
    slots: usize,
    fakes: Vec<Fake>,
    mail: VecDeque<Mail>,
    /// Retries that wait for their turn.
    asked: VecDeque<(usize, Vec<Entry>)>,
    is_reviving: bool,
    /// Something was retried once.
    retried: bool,
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
        let fake = |plan| Fake {
            plan,
            state: State::Pending,
            wait: None,
            at: 0,
            inbox: VecDeque::new(),
            cancelled: false,
            skipped: false,
        };
        let fakes = plans.into_iter().map(fake).collect();
        let mut world = Self {
            board: Board::new(slots),
            slots,
            fakes,
            mail: VecDeque::new(),
            asked: VecDeque::new(),
            is_reviving: false,
            retried: false,
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
            self.fakes[number(&order.task_id)].inbox.push_back(order.input);
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
            Mail::RetryAsked(n, tree) => {
                self.asked.push_back((n, tree));
                Vec::new()
            }
            Mail::Revive(closure) => {
                self.revive(closure);
                Vec::new()
            }
            Mail::Revived(closure, lives) => self.revived(&closure, &lives),
        };
        self.follow(orders);
        self.next_retry();
    }

    fn next_retry(&mut self) {
        let board = &self.board;
        if self.is_reviving {
            return;
        }
        let Some((n, tree)) = self.asked.pop_front_if(|(_, tree)| board.is_settled(tree)) else { return };
        if !tree[n].state.can_be_retried() {
            return self.next_retry();
        }
        let closure = if self.board.has(&tid(n)) {
            self.board.begin_retry(&tid(n))
        } else {
            let mut aside = Board::new(0);
            aside.add(self.entries());
            aside.begin_retry(&tid(n))
        };
        self.is_reviving = true;
        self.mail.push_back(Mail::Revive(closure));
    }

    /// In one transaction, which the first of all decides: the one that was asked for is among them.
    fn revive(&mut self, closure: Vec<TaskId>) {
        let can =
            |id: &&TaskId| matches!(self.fakes[number(id)].state, State::Failed | State::Cancelled | State::Skipped);
        let lives: HashSet<TaskId> = closure.iter().filter(can).cloned().collect();
        for id in &lives {
            let fake = &mut self.fakes[number(id)];
            // The second time it works.
            (fake.state, fake.plan.end) = (State::Pending, State::Completed);
            (fake.cancelled, fake.skipped) = (false, false);
        }
        self.retried = true;
        self.mail.push_back(Mail::Revived(closure, lives));
    }

    fn revived(&mut self, closure: &[TaskId], lives: &HashSet<TaskId>) -> Vec<Order> {
        self.is_reviving = false;
        let live = |id: &&TaskId| !self.fakes[number(id)].state.is_terminal();
        let lives: HashSet<TaskId> = lives.iter().filter(live).cloned().collect();
        for id in &lives {
            // Their actors are let go, with all that was on its way to them and from them.
            self.fakes[number(id)].inbox.clear();
            self.mail.retain(|mail| mail.said_by() != Some(number(id)));
        }
        let tree = self.entries();
        self.asked.iter_mut().for_each(|(_, stored)| stored.clone_from(&tree));
        match closure.first() {
            Some(first) if !self.board.has(first) => self.board.add(tree),
            _ => self.board.retried(closure, &lives),
        }
    }

    fn end(&mut self, n: usize, state: State) {
        let fake = &mut self.fakes[n];
        (fake.state, fake.wait) = (state, None);
        self.mail.push_back(Mail::Ended(n, state));
    }

    fn take_order(&mut self, n: usize) {
        let Some(input) = self.fakes[n].inbox.pop_front() else { return };
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
            Input::DependencyFailed { reason } if state == State::Pending => {
                self.fakes[n].skipped = reason.starts_with("dependency");
                self.end(n, State::Skipped);
            }
            Input::Cancel { reason } => {
                self.fakes[n].cancelled = reason == A_PERSON || self.upwards(n).any(|around| around.cancelled);
                self.end(n, State::Cancelled);
            }
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
            let retried = self.retried && self.fakes[*dependency].plan.end == State::Completed;
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
            Act::Cancel(n) => self.fakes[n.index(count)].inbox.push_back(Input::Cancel { reason: A_PERSON.to_owned() }),
            Act::Retry(n) => self.mail.push_back(Mail::RetryAsked(n.index(count), self.entries())),
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
        self.asked.clear();
        self.is_reviving = false;
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
        assert!(self.asked.is_empty(), "a retry waits for ever: {:?}", self.asked);
    }

    /// Itself, and those around it.
    fn upwards(&self, n: usize) -> impl Iterator<Item = &Fake> {
        std::iter::successors(Some(&self.fakes[n]), |fake| fake.plan.parent.map(|parent| &self.fakes[parent]))
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
            let blamed = fake.plan.depends_on.iter().any(|d| world.fakes[*d].state != State::Completed);
            prop_assert!(!fake.skipped || blamed, "task {n} stays skipped though all that it depends on is done: {:?}", world.fakes);
            let told = fake.plan.has_children || fake.cancelled;
            prop_assert!(fake.state != State::Cancelled || told, "nobody cancelled task {n}: {:?}", world.fakes);
        }
        prop_assert_eq!(world.board.counts(), (0, 0));
        prop_assert_eq!(world.board.live.values().sum::<usize>(), 0);
    }
}
