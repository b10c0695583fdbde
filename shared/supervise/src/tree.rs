//! The supervisor's task: performs what `decide` says, and takes commands.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep_until};

use crate::decide::{Action, Decider, Key, Phase, Then};
use crate::exit::ExitReason;
use crate::host::{Launch, Launched, label};
use crate::reference::Refusal;
use crate::spec::{Backoff, ChildSpec, Intensity, Restart, Strategy, SupervisorSpec};
use crate::supervisor::{ChildState, ChildStatus, Command, StartError, SupervisorRef};

/// Starts a supervisor without a parent.
pub(crate) fn start_root(spec: SupervisorSpec, handle: &SupervisorRef) {
    let (_, stopped) = oneshot::channel();
    Plan::new(spec).start(handle.clone(), stopped, Refusal::Stopped);
}

/// A nested supervisor: its plan, started afresh each time.
pub(crate) struct NestedSeat {
    plan: Plan,
    handle: SupervisorRef,
}

impl NestedSeat {
    pub(crate) fn new(spec: SupervisorSpec, handle: SupervisorRef) -> Self {
        NestedSeat { plan: Plan::new(spec), handle }
    }
}

impl Launch for NestedSeat {
    fn launch(&self) -> Launched {
        let (stop, stopped) = oneshot::channel();
        let ended = self.plan.start(self.handle.clone(), stopped, Refusal::Restarting);
        Launched { stop, ended }
    }

    fn vacate(&self, refusal: Refusal) {
        self.plan.children.iter().for_each(|(_, _, seat)| seat.vacate(refusal));
    }

    fn strike(&self) -> bool {
        false
    }
}

/// A supervisor's spec on its thread, from where it can be started any number of times.
struct Plan {
    name: String,
    strategy: Strategy,
    intensity: Intensity,
    backoff: Backoff,
    max_children: usize,
    children: Vec<(String, Restart, Rc<dyn Launch>)>,
}

impl Plan {
    fn new(spec: SupervisorSpec) -> Self {
        let SupervisorSpec { name, strategy, intensity, backoff, max_children, children } = spec;
        let children = children.into_iter().map(ChildSpec::settle).collect();
        Plan { name, strategy, intensity, backoff, max_children, children }
    }

    /// Launches the children, then the task that watches them.
    fn start(
        &self,
        handle: SupervisorRef,
        stopped: oneshot::Receiver<()>,
        after_failure: Refusal,
    ) -> JoinHandle<ExitReason> {
        let commands = handle.bind();
        let mut tree = Tree {
            name: self.name.clone(),
            handle,
            decider: Decider::new(self.strategy, self.intensity, self.backoff),
            seats: HashMap::new(),
            names: HashMap::new(),
            running: FuturesUnordered::new(),
            started: Instant::now(),
            max_children: self.max_children,
            after_failure,
            over: None,
        };
        for (name, restart, launch) in &self.children {
            if let Err(error) = tree.admit(name.clone(), *restart, Rc::clone(launch), true) {
                tracing::error!(supervisor = tree.name, child = name, %error, "child left out");
            }
        }
        tree.tick();
        spawn_local(tree.run(commands, stopped))
    }
}

/// A child's place in the tree.
struct Seat {
    name: String,
    launch: Rc<dyn Launch>,
    /// Part of the spec, so started again when the supervisor is.
    planned: bool,
    stop: Option<oneshot::Sender<()>>,
    /// Who waits for it to be gone.
    gone: Vec<oneshot::Sender<bool>>,
}

type End = Pin<Box<dyn Future<Output = (Key, ExitReason)>>>;

struct Tree {
    name: String,
    handle: SupervisorRef,
    decider: Decider,
    seats: HashMap<Key, Seat>,
    names: HashMap<String, Key>,
    running: FuturesUnordered<End>,
    started: Instant,
    max_children: usize,
    /// What planned children answer after this supervisor gave up: a parent may start it again.
    after_failure: Refusal,
    over: Option<ExitReason>,
}

impl Tree {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>, stopped: oneshot::Receiver<()>) -> ExitReason {
        // A root's sender is gone from the start: nobody above asks it to stop.
        let mut asked = pin!(async move {
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        });
        let mut stopping = false;
        loop {
            if let Some(reason) = self.over.clone() {
                return reason;
            }
            let due = self.decider.next_due();
            tokio::select! {
                () = &mut asked, if !stopping => {
                    stopping = true;
                    self.shutdown();
                }
                Some((key, reason)) = self.running.next() => self.ended(key, reason),
                Some(command) = commands.recv() => self.obey(command),
                () = sleep_until(self.started + due.unwrap_or_default()), if due.is_some() => {}
            }
            self.tick();
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn tick(&mut self) {
        let actions = self.decider.tick(self.now());
        self.perform(actions);
    }

    fn shutdown(&mut self) {
        let actions = self.decider.shutdown();
        self.perform(actions);
    }

    fn ended(&mut self, key: Key, reason: ExitReason) {
        if let Some(seat) = self.seats.get_mut(&key) {
            seat.stop = None;
            seat.launch.vacate(Refusal::Restarting);
            let said = seat.launch.says_why() && !matches!(reason, ExitReason::Panicked(_));
            if reason.is_fault() && !said {
                tracing::warn!(supervisor = self.name, child = seat.name, %reason, "child ended");
            } else {
                tracing::debug!(supervisor = self.name, child = seat.name, %reason, "child ended");
            }
        }
        let actions = self.decider.ended(key, reason, self.now(), fastrand::f64());
        self.perform(actions);
    }

    fn obey(&mut self, command: Command) {
        // Whoever asked may have gone; there is nobody to tell then.
        match command {
            Command::Start(child, reply) => {
                let (name, restart, launch) = child.settle();
                let admitted = self.admit(name, restart, launch, false);
                self.tick();
                reply.send(admitted).ok();
            }
            Command::Stop(name, reply) => match self.names.get(&name).copied() {
                None => {
                    reply.send(false).ok();
                }
                Some(key) => {
                    if let Some(seat) = self.seats.get_mut(&key) {
                        seat.gone.push(reply);
                    }
                    let actions = self.decider.stop(key);
                    self.perform(actions);
                }
            },
            Command::Children(reply) => {
                reply.send(self.decider.children().map(status).collect()).ok();
            }
            Command::Strike(name, reply) => {
                let seat = self.names.get(&name).and_then(|key| self.seats.get(key));
                reply.send(seat.is_some_and(|seat| seat.launch.strike())).ok();
            }
            Command::Shutdown => self.shutdown(),
        }
    }

    /// Makes room for a child; the next tick starts it.
    fn admit(
        &mut self,
        name: String,
        restart: Restart,
        launch: Rc<dyn Launch>,
        planned: bool,
    ) -> Result<(), StartError> {
        if self.decider.ending().is_some() {
            return Err(StartError::NotRunning);
        }
        if let Some(key) = self.names.get(&name).copied() {
            if self.decider.get(key).is_some_and(|child| child.phase != Phase::Failed) {
                return Err(StartError::Duplicate(name));
            }
            let actions = self.decider.stop(key);
            self.perform(actions);
        }
        if self.seats.len() >= self.max_children {
            return Err(StartError::Full(self.max_children));
        }
        let key = self.decider.add(name.clone(), restart, self.now());
        self.names.insert(name.clone(), key);
        self.seats.insert(key, Seat { name, launch, planned, stop: None, gone: Vec::new() });
        Ok(())
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start(key) => self.launch(key),
                Action::Stop(key) => {
                    if let Some(stop) = self.seats.get_mut(&key).and_then(|seat| seat.stop.take()) {
                        // It may have ended just now; its end is on the way then.
                        stop.send(()).ok();
                    }
                }
                Action::Fail(key) => {
                    if let Some(seat) = self.seats.get(&key) {
                        seat.launch.vacate(Refusal::Stopped);
                    }
                }
                Action::Remove(key) => self.remove(key),
                Action::End(reason) => self.end(reason),
            }
        }
    }

    fn launch(&mut self, key: Key) {
        let Some(seat) = self.seats.get_mut(&key) else { return };
        let again = self.decider.get(key).is_some_and(|child| child.restarts > 0);
        // Also the first start counts, as nothing: a series that appears with its first fault cannot be watched for one.
        let restarts = metrics::counter!("vance_actor_restarts_total", "actor" => label(&seat.name));
        restarts.increment(u64::from(again));
        metrics::counter!("vance_actor_panics_total", "actor" => label(&seat.name)).increment(0);
        if again {
            tracing::debug!(supervisor = self.name, child = seat.name, "child restarts");
        }
        let Launched { stop, ended } = seat.launch.launch();
        seat.stop = Some(stop);
        self.running.push(Box::pin(async move {
            let reason = ended.await.unwrap_or_else(|error| ExitReason::Panicked(error.to_string()));
            (key, reason)
        }));
    }

    fn remove(&mut self, key: Key) {
        let Some(seat) = self.seats.remove(&key) else { return };
        self.names.remove(&seat.name);
        let gave_up = self.decider.ending().is_some_and(ExitReason::is_fault);
        seat.launch.vacate(if gave_up && seat.planned { self.after_failure } else { Refusal::Stopped });
        for waiter in seat.gone {
            waiter.send(true).ok();
        }
    }

    fn end(&mut self, reason: ExitReason) {
        if reason.is_fault() {
            tracing::error!(supervisor = self.name, %reason, "supervisor ended");
        }
        self.handle.unbind(reason.clone());
        self.over = Some(reason);
    }
}

impl Drop for Tree {
    /// For a tree whose thread ends under it: nobody may wait for it, or for its children.
    fn drop(&mut self) {
        if self.over.is_none() {
            self.seats.values().for_each(|seat| seat.launch.vacate(Refusal::Stopped));
            self.handle.unbind(ExitReason::Panicked("its thread ended".to_owned()));
        }
    }
}

fn status(child: &crate::decide::Child) -> ChildStatus {
    let state = match child.phase {
        Phase::Up { .. } => ChildState::Up,
        Phase::Waiting { .. } | Phase::Stopping(Then::Restart { .. }) => ChildState::Restarting,
        Phase::Stopping(Then::Remove) => ChildState::Stopping,
        Phase::Failed => ChildState::Failed,
    };
    let last_exit = child.last_exit.as_ref().map(ToString::to_string);
    ChildStatus { name: child.name.clone(), state, restarts: child.restarts, last_exit }
}
