//! What a supervisor is told to keep: its children, and what to do when one ends.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use actix::prelude::{Actor, Context, Handler, Message};

use crate::exit::Exit;
use crate::host::{ActorSeat, Launch};
use crate::reference::ActorRef;
use crate::supervisor::SupervisorRef;
use crate::tree::NestedSeat;

/// Messages an actor's mailbox holds unless its spec says otherwise: enough for a burst, small
/// enough that a stuck actor is noticed.
const MAILBOX_MESSAGES: usize = 256;

/// The most a mailbox may hold: past this, memory and waiting are the problem, not bursts.
const MAILBOX_MOST: usize = 65_536;

/// How long a stopping actor may take unless its spec says otherwise.
const GRACE: Duration = Duration::from_secs(5);

/// Children of one supervisor unless its spec says otherwise. Each costs some kilobytes.
const MAX_CHILDREN: usize = 10_000;

/// When an ended child is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Always, except when it was asked to stop.
    Permanent,
    /// Only when it failed or panicked.
    Transient,
    /// Never, also not with its siblings.
    Temporary,
}

/// Who is restarted along with a child that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Nobody else.
    OneForOne,
    /// The children started after it: they are stopped first, then all start in order.
    RestForOne,
    /// All children: the others are stopped first, then all start in order.
    OneForAll,
}

/// How many restarts are too many.
///
/// A child that stayed up for `within` has its count set to zero: only restarts without sustained
/// uptime in between count. With [`Strategy::OneForOne`] each child has its own count; with the
/// group strategies the counts of all children add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intensity {
    /// Restarts allowed in a row; at the next end the supervisor gives up.
    pub max_restarts: u32,
    /// The uptime that counts as sustained.
    pub within: Duration,
}

/// How long to wait before a restart.
///
/// The first restart waits `first`, each further one in a row twice as long (after a `first` of
/// zero the steps are 100, 200, 400 … ms), `max` at most. Each wait is then shortened by up to
/// half at random, so that children that fell together do not rise together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait before the first restart; zero is allowed.
    pub first: Duration,
    /// The longest wait; never more than a day.
    pub max: Duration,
}

/// One child: how to start it, when to start it again, how to stop it.
pub struct ChildSpec {
    pub(crate) name: String,
    pub(crate) restart: Restart,
    settings: ChildSettings,
    settle: Box<dyn FnOnce(ChildSettings) -> Rc<dyn Launch> + Send>,
}

/// What the one who runs an actor needs to know.
pub(crate) struct ChildSettings {
    pub(crate) mailbox: usize,
    pub(crate) grace: Duration,
    pub(crate) on_stop: Option<Box<dyn Fn() -> bool + Send>>,
    pub(crate) says_why: bool,
}

impl ChildSpec {
    /// An actor, reached through `reference` and named like it. The factory runs at each start, on
    /// the supervisor's thread. Permanent, a mailbox of 256 messages and 5 s of grace, unless changed.
    pub fn actor<A>(reference: ActorRef<A>, factory: impl Fn(Exit) -> A + Send + 'static) -> ChildSpec
    where
        A: Actor<Context = Context<A>>,
    {
        let name = reference.name().to_owned();
        Self::new(name, |settings| Rc::new(ActorSeat::new(reference, factory, settings)))
    }

    /// A supervisor below this one, reached through `handle`. When it gives up, that is a failed
    /// child here. Its mailbox and grace are fixed by its own children.
    pub fn supervisor(spec: SupervisorSpec, handle: SupervisorRef) -> ChildSpec {
        let name = spec.name.clone();
        Self::new(name, |_| Rc::new(NestedSeat::new(spec, handle)))
    }

    fn new(name: String, settle: impl FnOnce(ChildSettings) -> Rc<dyn Launch> + Send + 'static) -> ChildSpec {
        let settings = ChildSettings { mailbox: MAILBOX_MESSAGES, grace: GRACE, on_stop: None, says_why: false };
        ChildSpec { name, restart: Restart::Permanent, settings, settle: Box::new(settle) }
    }

    /// When the child is started again.
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Whoever it concerns logs its failures already: the supervisor's line would be the second one on the same thing. A panic
    /// is logged all the same.
    pub fn says_why(mut self) -> Self {
        self.settings.says_why = true;
        self
    }

    /// How many messages the mailbox holds: 1 to 65,536.
    pub fn mailbox(mut self, capacity: usize) -> Self {
        self.settings.mailbox = capacity.clamp(1, MAILBOX_MOST);
        self
    }

    /// How long the child may take to stop before it is aborted.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// What the actor is told when it is to stop, before everything that waits in its mailbox. It
    /// then ends itself (`ctx.stop()`) within its grace, or is aborted. Without this, a stop ends
    /// the actor at once. `actor` is the reference the spec was made with.
    pub fn on_stop<A, M>(mut self, actor: &ActorRef<A>, message: impl Fn() -> M + Send + 'static) -> Self
    where
        A: Actor<Context = Context<A>> + Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let actor = actor.clone();
        self.settings.on_stop = Some(Box::new(move || actor.tell_first(message())));
        self
    }

    /// On the supervisor's thread: from here on nothing need be `Send`.
    pub(crate) fn settle(self) -> (String, Restart, Rc<dyn Launch>) {
        (self.name, self.restart, (self.settle)(self.settings))
    }
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec").field("name", &self.name).field("restart", &self.restart).finish()
    }
}

/// A supervisor and its first children, in start order.
#[derive(Debug)]
pub struct SupervisorSpec {
    pub(crate) name: String,
    pub(crate) strategy: Strategy,
    pub(crate) intensity: Intensity,
    pub(crate) backoff: Backoff,
    pub(crate) max_children: usize,
    pub(crate) children: Vec<ChildSpec>,
}

impl SupervisorSpec {
    /// One for one, five restarts in a row without a minute of uptime, waits of 0 to 30 s, at most
    /// 10,000 children; unless changed.
    pub fn new(name: impl Into<String>) -> Self {
        SupervisorSpec {
            name: name.into(),
            strategy: Strategy::OneForOne,
            intensity: Intensity { max_restarts: 5, within: Duration::from_secs(60) },
            backoff: Backoff { first: Duration::ZERO, max: Duration::from_secs(30) },
            max_children: MAX_CHILDREN,
            children: Vec::new(),
        }
    }

    /// Who is restarted along with a child that ended.
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// How many restarts are too many.
    pub fn intensity(mut self, intensity: Intensity) -> Self {
        self.intensity = intensity;
        self
    }

    /// How long to wait before a restart.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How many children there may be at a time; one more is refused.
    pub fn max_children(mut self, max_children: usize) -> Self {
        self.max_children = max_children;
        self
    }

    /// One more child, started after those before it. A second child of the same name replaces
    /// nothing: it is left out, with an error in the log.
    pub fn child(mut self, child: ChildSpec) -> Self {
        self.children.push(child);
        self
    }
}
