//! Owns the board: which task may run, which waits for what. Starts task actors, hands them everything that concerns them, and
//! lets those that wait go. Rebuilt from the store when it (re)starts.
//!
//! All inputs of a task pass through here, so a task that reports "I wait" while nothing is on its way to it can be dropped
//! without losing anything; the next input starts it again from the store.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;
use vance_brain_core::board::{Board, Entry, Offer, Order};
use vance_brain_core::registry::ClientView;
use vance_brain_core::session::News;
use vance_brain_core::task::Input;
use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, ClientId, SessionId, TaskId, TreeId};
use vance_shared::names::ToolName;
use vance_shared::wire::{self, Progress};
use vance_supervise::{
    Actor, ActorFutureExt, ActorRef, AsyncContext, ChildSpec, Context, Exit, Handler, MessageResult, Restart,
    WrapFuture,
};

use super::task::{Reply, Tally, TaskActor, ToTask};
use crate::hub::Brain;
use crate::progress::Whose;
use crate::recovery;

mod idle;
mod messages;
mod rest;
mod retry;

use messages::TaskUp;
pub use messages::{
    AddTree, CallNews, Command, Count, Counts, FromTask, HeldOn, OfQuestion, Presence, Presences, Queue, Report,
    ServerEnded, ServerToolsChanged, SessionRestarted, Unclaimed,
};
use retry::{Asked, Retries};

/// Inputs that wait for one task's actor to come up.
const MAX_PENDING: usize = 1_024;

/// Ended calls whose task is still found for a late result.
const RECENT_CALLS: usize = 10_000;

/// Messages that the scheduler's mailbox holds: the hub of all tasks.
pub const MAILBOX: usize = 16_384;

struct Seat {
    actor: ActorRef<TaskActor>,
    /// Inputs that were handed over.
    sent: u64,
    /// Inputs that wait until the actor is up.
    pending: Option<VecDeque<ToTask>>,
}

/// The actor.
pub struct Scheduler {
    brain: Brain,
    exit: Exit,
    board: Board,
    seats: HashMap<TaskId, Seat>,
    recent: VecDeque<CallId>,
    recent_tasks: HashMap<CallId, TaskId>,
    /// Tasks that were retried, with the last seat that knows them as ended.
    revived: HashMap<TaskId, u64>,
    /// Retries that are under way or wait, by tree.
    retries: HashMap<TreeId, Retries>,
    /// Autonomous sessions that had no tasks when it was looked for such last.
    idle: BTreeSet<SessionId>,
    names: u64,
}

impl Scheduler {
    /// An empty scheduler; it loads the store when it starts.
    pub fn new(brain: Brain, exit: Exit) -> Self {
        let board = Board::new(brain.config.defaults.max_parallel_tasks);
        Self {
            brain,
            exit,
            board,
            seats: HashMap::new(),
            recent: VecDeque::new(),
            recent_tasks: HashMap::new(),
            revived: HashMap::new(),
            retries: HashMap::new(),
            idle: BTreeSet::new(),
            names: 0,
        }
    }

    /// What a new board does not know: who is online already, and that the registry may have changed since tasks began to wait.
    fn look_around(&mut self) {
        for session in self.brain.directory.loaded() {
            let published = session.published();
            let orders = self.board.presence(&session.session_id, published.revision, online(&published.view.clients));
            self.follow(orders);
        }
        if !self.brain.registry.load().file.is_empty() {
            let orders = self.board.server_tools_changed(&|_| true);
            self.follow(orders);
        }
    }

    fn follow(&mut self, orders: Vec<Order>) {
        for Order { task_id, input } in orders {
            self.hand(&task_id, input, None);
        }
    }

    /// Gives a task an input, starting its actor if it has none.
    fn hand(&mut self, task_id: &TaskId, input: Input, reply: Option<Reply>) {
        if !self.seats.contains_key(task_id) {
            self.start(task_id);
        }
        let Some(seat) = self.seats.get_mut(task_id) else { return };
        let message = ToTask { input, reply };
        seat.sent += 1;
        match &mut seat.pending {
            Some(pending) if pending.len() >= MAX_PENDING => {
                tracing::error!(%task_id, "more than {MAX_PENDING} inputs wait for a task that does not start");
            }
            Some(pending) => pending.push_back(message),
            None => {
                if let Err(refusal) = seat.actor.tell(message) {
                    // It is being restarted and will look again by itself; a result is delivered again by the session.
                    tracing::warn!(%task_id, %refusal, "a task did not take an input");
                }
            }
        }
    }

    fn start(&mut self, task_id: &TaskId) {
        self.names += 1;
        let actor = ActorRef::new(format!("task:{task_id}:{}", self.names));
        let tally = Arc::new(Tally::new(self.names));
        let seat = Seat { actor: actor.clone(), sent: 0, pending: Some(VecDeque::new()) };
        self.seats.insert(task_id.clone(), seat);
        let (brain, id) = (self.brain.clone(), task_id.clone());
        let child =
            ChildSpec::actor(actor.clone(), move |exit| TaskActor::new(brain.clone(), exit, id.clone(), tally.clone()));
        let child = child.restart(Restart::Transient);
        let (tasks, scheduler, task_id) = (self.brain.tasks.clone(), self.brain.scheduler.clone(), task_id.clone());
        tokio::spawn(async move {
            if let Err(error) = tasks.start_child(child).await {
                tracing::error!(%task_id, %error, "cannot start a task's actor");
                return;
            }
            scheduler.post(TaskUp { task_id, name: actor.name().to_owned() }).await.ok();
        });
    }

    /// Lets a task's actor go. Nothing is on its way to it.
    fn release(&mut self, task_id: &TaskId) {
        if let Some(seat) = self.seats.remove(task_id) {
            let (tasks, name) = (self.brain.tasks.clone(), seat.actor.name().to_owned());
            tokio::spawn(async move { tasks.stop_child(&name).await });
        }
    }

    fn is_idle(&self, task_id: &TaskId, handled: u64) -> bool {
        self.seats.get(task_id).is_some_and(|seat| seat.sent == handled && seat.pending.is_none())
    }

    fn report(&mut self, task_id: &TaskId, seat: u64, handled: u64, report: Report) {
        if self.revived.get(task_id).is_some_and(|last| seat <= *last) {
            return;
        }
        match report {
            Report::Parked { wait, wake_on, seen } => {
                let orders = self.board.parked(task_id, wait, &wake_on, seen);
                if self.is_idle(task_id, handled) {
                    self.release(task_id);
                }
                self.follow(orders);
            }
            Report::Running => self.board.resumed(task_id),
            Report::Resting => {
                let orders = self.board.rests(task_id);
                self.follow(orders);
            }
            Report::Rested => {
                let orders = self.board.rested(task_id);
                self.follow(orders);
            }
            Report::Ended { state } => {
                self.revived.remove(task_id);
                let orders = self.board.ended(task_id, state);
                if self.is_idle(task_id, handled) {
                    self.release(task_id);
                }
                self.follow(orders);
            }
            Report::Pending => {}
            Report::ChildrenMayRun => {
                let orders = self.board.children_may_run(task_id);
                self.follow(orders);
            }
            Report::Held { closed, opened } => {
                if let Some(call_id) = closed {
                    self.board.call_closed(&call_id);
                    self.remember(call_id, task_id.clone());
                }
                if let Some((call_id, client_id)) = opened {
                    self.board.call_placed(task_id, call_id, client_id);
                }
            }
        }
    }

    fn remember(&mut self, call_id: CallId, task_id: TaskId) {
        if self.recent.len() >= RECENT_CALLS
            && let Some(oldest) = self.recent.pop_front()
        {
            self.recent_tasks.remove(&oldest);
        }
        self.recent.push_back(call_id.clone());
        self.recent_tasks.insert(call_id, task_id);
    }

    fn news(&mut self, client_id: ClientId, call_id: CallId, news: News) {
        let Some(task_id) = self.board.holder(&call_id, &client_id) else {
            match news {
                News::Ended(outcome) => self.unclaimed(client_id, call_id, outcome),
                News::Asked(question) => {
                    let why = "no task waits for this call any more";
                    self.brain.directory.reply(client_id, wire::ElicitReply::decline(&question, why));
                }
                News::NotSent { .. }
                | News::Suspended
                | News::Attached
                | News::NeverArrived
                | News::Progress(_)
                | News::QuestionEnded(_) => {}
            }
            return;
        };
        if let News::Progress(progress) = news {
            return self.progressed(&task_id, call_id, progress);
        }
        if let Some(input) = news.to_task(client_id, call_id) {
            self.hand(&task_id, input, None);
        }
    }

    /// No input of the task: nothing is decided by it, and whoever follows hears it from here.
    fn progressed(&self, task_id: &TaskId, call_id: CallId, progress: Progress) {
        let Some(Entry { id, tree_id, session_id, .. }) = self.board.entry(task_id) else { return };
        let Some(owner) = self.brain.directory.owner_of(session_id) else { return };
        let whose = Whose {
            owner,
            session_id: session_id.clone(),
            tree_id: tree_id.clone(),
            task_id: task_id.clone(),
            id: id.clone(),
            call_id,
        };
        self.brain.progress.tell(whose, progress.fraction, progress.message);
    }

    /// A result without a waiter: of a task that is parked, or late. Nobody's results are acknowledged, so that the client forgets them.
    fn unclaimed(&mut self, client_id: ClientId, call_id: CallId, outcome: Outcome) {
        let task = self.board.holder(&call_id, &client_id).or_else(|| self.recent_tasks.get(&call_id).cloned());
        match task {
            Some(task_id) => {
                let input = Input::CallEnded { call_id, from: Some(client_id), outcome };
                self.hand(&task_id, input, None);
            }
            None => self.brain.directory.acknowledge(&client_id, call_id),
        }
    }

    fn command(&mut self, command: Command, ctx: &mut Context<Self>) {
        let Command { task_id, input, tree, reply } = command;
        let Input::Retry { any_client } = input else {
            self.hand(&task_id, input, Some(reply));
            return;
        };
        self.retry_asked(Asked { task_id, any_client, tree, reply, since: Instant::now() }, ctx);
    }
}

impl Actor for Scheduler {
    type Context = Context<Self>;

    /// Loads all live trees. Nothing is run here: tasks are only put back to where they stood.
    fn started(&mut self, ctx: &mut Self::Context) {
        Self::look_for_idle(ctx);
        let load = recovery::live_trees(self.brain.clone());
        ctx.wait(load.into_actor(self).map(|trees, actor, ctx| match trees {
            Ok(trees) => {
                let tasks: usize = trees.iter().map(Vec::len).sum();
                if tasks > 0 {
                    tracing::info!(trees = trees.len(), tasks, "live task trees were taken up again");
                }
                actor.open_sessions(rest::autonomous(trees.iter().flatten()));
                for tree in trees {
                    let orders = actor.board.add(tree);
                    actor.follow(orders);
                }
                actor.look_around();
            }
            Err(error) => actor.exit.fail(ctx, format!("cannot load live trees: {error}")),
        }));
    }
}

impl Handler<AddTree> for Scheduler {
    type Result = ();
    fn handle(&mut self, AddTree(entries): AddTree, _: &mut Self::Context) {
        let orders = self.board.add(entries);
        self.follow(orders);
    }
}

impl Handler<Command> for Scheduler {
    type Result = ();
    fn handle(&mut self, command: Command, ctx: &mut Self::Context) {
        self.command(command, ctx);
    }
}

impl Handler<FromTask> for Scheduler {
    type Result = ();
    fn handle(&mut self, FromTask { task_id, seat, handled, report }: FromTask, ctx: &mut Self::Context) {
        let retried = self.tree_of_retries(&task_id);
        self.report(&task_id, seat, handled, report);
        if let Some(tree_id) = retried {
            self.next_retry(&tree_id, ctx);
        }
        self.look_at_rest(ctx);
    }
}

impl Handler<ServerEnded> for Scheduler {
    type Result = ();
    fn handle(&mut self, ServerEnded { task_id, call_id, outcome }: ServerEnded, _: &mut Self::Context) {
        self.hand(&task_id, Input::CallEnded { call_id, from: None, outcome }, None);
    }
}

impl Handler<OfQuestion> for Scheduler {
    type Result = ();
    fn handle(&mut self, OfQuestion { task_id, input }: OfQuestion, _: &mut Self::Context) {
        // Of a tree that has ended nothing is asked any more.
        if self.board.has(&task_id) {
            self.hand(&task_id, input, None);
        }
    }
}

impl Handler<CallNews> for Scheduler {
    type Result = ();
    fn handle(&mut self, CallNews { client_id, call_id, news }: CallNews, _: &mut Self::Context) {
        self.news(client_id, call_id, news);
    }
}

impl Handler<Unclaimed> for Scheduler {
    type Result = ();
    fn handle(&mut self, Unclaimed { client_id, call_id, outcome }: Unclaimed, _: &mut Self::Context) {
        self.unclaimed(client_id, call_id, outcome);
    }
}

impl Handler<Presence> for Scheduler {
    type Result = ();
    fn handle(&mut self, Presence { session_id, revision, online }: Presence, _: &mut Self::Context) {
        let orders = self.board.presence(&session_id, revision, online);
        self.follow(orders);
    }
}

impl Handler<Presences> for Scheduler {
    type Result = ();
    fn handle(&mut self, Presences(all): Presences, ctx: &mut Self::Context) {
        for presence in all {
            self.handle(presence, ctx);
        }
    }
}

impl Handler<SessionRestarted> for Scheduler {
    type Result = ();
    fn handle(&mut self, SessionRestarted(session_id): SessionRestarted, _: &mut Self::Context) {
        for (task_id, call_id) in self.board.holders_in(&session_id) {
            // Tasks whose actor was let go wait already.
            if self.seats.contains_key(&task_id) {
                self.hand(&task_id, Input::CallSuspended(call_id), None);
            }
        }
    }
}

impl Handler<ServerToolsChanged> for Scheduler {
    type Result = ();
    fn handle(&mut self, ServerToolsChanged(pack): ServerToolsChanged, _: &mut Self::Context) {
        let registry = self.brain.registry.load();
        let concerns = |tool: &ToolName| pack.as_ref().is_none_or(|pack| registry.may_use(tool, pack));
        let orders = self.board.server_tools_changed(&concerns);
        self.follow(orders);
    }
}

impl Handler<HeldOn> for Scheduler {
    type Result = MessageResult<HeldOn>;
    fn handle(&mut self, HeldOn(client_id): HeldOn, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.board.held_on(&client_id))
    }
}

impl Handler<Queue> for Scheduler {
    type Result = MessageResult<Queue>;
    fn handle(&mut self, Queue(session_id): Queue, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.board.queue(&session_id))
    }
}

impl Handler<Count> for Scheduler {
    type Result = Counts;
    fn handle(&mut self, _: Count, _: &mut Self::Context) -> Counts {
        let (running, waiting) = self.board.counts();
        Counts { running, waiting, trees: self.board.trees(), actors: self.seats.len() }
    }
}

impl Handler<TaskUp> for Scheduler {
    type Result = ();
    fn handle(&mut self, TaskUp { task_id, name }: TaskUp, _: &mut Self::Context) {
        let Some(seat) = self.seats.get_mut(&task_id).filter(|s| s.actor.name() == name) else { return };
        for message in seat.pending.take().into_iter().flatten() {
            if let Err(refusal) = seat.actor.tell(message) {
                tracing::warn!(%task_id, %refusal, "a task did not take an input");
            }
        }
    }
}

/// A session's online clients with what they offer, as the board takes them.
pub fn online(clients: &[ClientView]) -> HashMap<ClientId, Offer> {
    let offer = |client: &ClientView| Arc::new(client.tools.keys().cloned().collect::<HashSet<_>>());
    clients.iter().filter(|c| c.online).map(|c| (c.client_id.clone(), offer(c))).collect()
}
