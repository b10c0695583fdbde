//! `vancetope run FILE`: submits a task tree, is a Foot for it, and follows it to its end.
//!
//! ```text
//! read the file → is the Brain there? → Foot up, hello answered → submit (same key on every attempt)
//!   → follow: stream open → snapshot; event → change; end in sight → snapshot again → summary, exit code
//! ```

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use vance_shared::ids::{ClientId, SessionId, TaskId};

use super::args::RunArgs;
use super::context::Context;
use super::failure::{EXIT_FAILED, Failure};
use super::foot::LocalFoot;
use super::interrupt::Interrupt;
use super::progress::words;
use super::tasks::only_on;
use crate::api::{Answer, ApiError, Brain, Event, Follow, Notice, Submission, Submitted, Task, TaskFilter};

mod file;
mod one_shot;
mod tree;
mod view;
use file::TreeFile;
pub(super) use one_shot::one_shot;
use tree::{Standing, Tree};
use view::View;

/// Attempts to submit. A cut between request and answer is harmless: the key makes it the same submission.
const SUBMIT_ATTEMPTS: u32 = 5;
/// Between two attempts.
const SUBMIT_WAIT: Duration = Duration::from_millis(500);
/// A new reading of the tree at least this often: nothing is missed even if an event was.
const READ_EVERY: Duration = Duration::from_secs(10);
/// After a task appeared that is not known yet; five times as long after a reading that failed.
const READ_SOON: Duration = Duration::from_millis(300);
/// After the Foot's packs have loaded, the Brain needs a moment to wake what waited for them.
const LOADED_MARGIN: Duration = Duration::from_secs(2);
/// How long this Foot's packs may take to start before the tree is submitted all the same: what needs a later one waits for it.
const PACKS_WITHIN: Duration = Duration::from_secs(10);
/// Cancels in flight at once.
const CANCELS_AT_ONCE: usize = 8;

/// Runs a file.
pub(super) async fn run(context: &mut Context, args: &RunArgs) -> Result<u8, Failure> {
    let file = TreeFile::read(&args.file)?;
    let session = session_of(context, &file)?;
    let brain = context.brain()?;
    brain.health().await?;
    // Before the Foot does: it would say in the log, too, that its token is refused.
    let there = brain.sessions().await?.value.sessions;
    if let Some(id) = session.as_ref().filter(|id| !there.iter().any(|session| session.session_id == **id)) {
        // Somebody else's is not made, and the Brain says so better than this Foot could.
        if let Err(error @ ApiError::Refused { status: 403, .. }) = brain.session(id).await {
            return Err(error.into());
        }
        context.screen.remark(&format!("vancetope: you have no session {id} yet; it is made now"));
    }
    if context.general.no_tools {
        let session = session.or_else(|| context.general.new_session.then(SessionId::generate));
        let new = file.session.is_none().then_some(session).flatten();
        let submitted = submit(&brain, &file, None, new).await?;
        return follow(context, args, &brain, &submitted, None).await;
    }
    let foot = LocalFoot::start(context, session.as_ref(), "cli")?;
    let ended = with_foot(context, args, &brain, &file, &foot).await;
    foot.shutdown().await;
    ended
}

/// Runs a file with a Foot that is there already.
pub(super) async fn run_on(context: &mut Context, args: &RunArgs, foot: &LocalFoot) -> Result<u8, Failure> {
    let file = TreeFile::read(&args.file)?;
    let brain = context.brain()?;
    with_foot(context, args, &brain, &file, foot).await
}

/// The session that the flags and the file name together.
fn session_of(context: &Context, file: &TreeFile) -> Result<Option<SessionId>, Failure> {
    match (&context.general.session, &file.session) {
        (Some(flag), Some(named)) if flag != named => Err(Failure::Usage(format!(
            "{} names the session {named}, --session names {flag}: expected one of them",
            file.name
        ))),
        (_, Some(named)) if context.general.new_session => {
            Err(Failure::Usage(format!("{} names the session {named}: expected no --new-session with it", file.name)))
        }
        (flag, named) => Ok(flag.clone().or_else(|| named.clone())),
    }
}

async fn with_foot(
    context: &mut Context,
    args: &RunArgs,
    brain: &Brain,
    file: &TreeFile,
    foot: &LocalFoot,
) -> Result<u8, Failure> {
    // Tasks that do not wait for a client would be over before its packs are up.
    tokio::select! {
        _ = tokio::time::timeout(PACKS_WITHIN, foot.first_load()) => {}
        _ = context.interrupts.next() => return Err(Failure::Foot("interrupted before the tree was submitted".to_owned())),
    }
    let submitted = submit_for(context, brain, file, foot).await?;
    follow(context, args, brain, &submitted, Some(foot)).await
}

/// Submits a file whose tasks prefer this Foot.
async fn submit_for(
    context: &mut Context,
    brain: &Brain,
    file: &TreeFile,
    foot: &LocalFoot,
) -> Result<Submitted, Failure> {
    let line = tokio::select! {
        line = foot.connected() => line?,
        _ = context.interrupts.next() => return Err(Failure::Foot("interrupted before the tree was submitted".to_owned())),
    };
    let asked = context.general.session.is_some() || context.general.new_session;
    let session = (asked && file.session.is_none()).then_some(line.session_id);
    submit(brain, file, Some(line.client_id), session).await
}

async fn submit(
    brain: &Brain,
    file: &TreeFile,
    client: Option<ClientId>,
    session: Option<SessionId>,
) -> Result<Submitted, Failure> {
    let submission = Submission {
        text: file.text.clone(),
        content_type: file.content_type,
        idempotency_key: uuid::Uuid::now_v7().to_string(),
        client,
        session,
    };
    let mut attempt = 1;
    loop {
        match brain.submit(submission.clone()).await {
            Ok(answer) => return Ok(answer.value),
            Err(ApiError::Refused { status: 400 | 413 | 422, problems, message, .. }) => {
                if problems.is_empty() {
                    return Err(Failure::File { file: file.name.clone(), why: message });
                }
                return Err(file.mistakes(problems));
            }
            Err(error) if error.may_pass() && attempt < SUBMIT_ATTEMPTS => {
                attempt += 1;
                sleep(SUBMIT_WAIT).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn follow(
    context: &mut Context,
    args: &RunArgs,
    brain: &Brain,
    submitted: &Submitted,
    foot: Option<&LocalFoot>,
) -> Result<u8, Failure> {
    let Some(end) = followed(context, args, brain, submitted, foot).await? else { return Ok(EXIT_FAILED) };
    if context.screen.json {
        end.print(context)?;
    } else {
        context.screen.line(&end.tree.summary())?;
        if end.tree.standing() == Standing::Waits {
            context.screen.remark(
                "vancetope: what waits stays with the Brain and goes on when it can; `vancetope tasks` shows it",
            );
        }
    }
    Ok(end.tree.exit())
}

/// Follows a tree to its end (or until it waits, where that is enough); nothing if the person left.
async fn followed<'s>(
    context: &mut Context,
    args: &RunArgs,
    brain: &Brain,
    submitted: &'s Submitted,
    foot: Option<&LocalFoot>,
) -> Result<Option<End<'s>>, Failure> {
    let mut follower = Follower {
        brain: brain.clone(),
        submitted,
        tree: Tree::default(),
        view: View::new(context.live_view()),
        body: Value::Null,
        read_at: Instant::now(),
        may_wait_at: foot.is_none().then(Instant::now),
        lost: false,
        cancelled: false,
        named: HashSet::new(),
        no_wait: args.no_wait,
    };
    let ended = follower.until_it_ends(context, foot).await;
    if ended.as_ref().is_ok_and(|ended| *ended) && context.screen.json {
        follower.read_outputs(context).await;
    }
    follower.view.end(&mut context.screen, &follower.tree)?;
    let Follower { tree, body, .. } = follower;
    Ok(ended?.then_some(End { submitted, tree, body }))
}

/// A tree that came to its end.
struct End<'s> {
    submitted: &'s Submitted,
    tree: Tree,
    /// The Brain's list of its tasks.
    body: Value,
}

impl End<'_> {
    /// As JSON.
    fn print(&self, context: &mut Context) -> Result<(), Failure> {
        Ok(context.screen.value(&json!({
            "tree_id": self.submitted.tree_id, "session_id": self.submitted.session_id,
            "summary": self.tree.summary(), "tasks": self.body,
        }))?)
    }
}

/// Follows one tree.
struct Follower<'s> {
    brain: Brain,
    submitted: &'s Submitted,
    tree: Tree,
    view: View,
    /// The Brain's last list of the tree's tasks, as it gave it.
    body: Value,
    /// When the tree is read next.
    read_at: Instant,
    /// From when on "it waits" may be the last word; none while the Foot's packs still load.
    may_wait_at: Option<Instant>,
    lost: bool,
    cancelled: bool,
    /// Tasks of which it was said that they wait for one client alone.
    named: HashSet<TaskId>,
    no_wait: bool,
}

impl Follower<'_> {
    /// True if the tree came to its end (or waits, where that is enough), false if the person left.
    async fn until_it_ends(&mut self, context: &mut Context, foot: Option<&LocalFoot>) -> Result<bool, Failure> {
        let mut events = Follow::start(self.brain.clone(), Some(self.submitted.tree_id.to_string()));
        loop {
            let loading = self.may_wait_at.is_none();
            tokio::select! {
                notice = events.next() => match notice {
                    Some(notice) => self.hear(context, notice).await?,
                    None => return Err(Failure::Foot("the Brain's events ended".to_owned())),
                },
                () = sleep_until(self.read_at) => {
                    if self.read(context).await? && self.is_over() {
                        return Ok(true);
                    }
                }
                () = loaded(foot), if loading => {
                    let at = Instant::now() + LOADED_MARGIN;
                    self.may_wait_at = Some(at);
                    self.read_at = self.read_at.min(at);
                }
                interrupt = context.interrupts.next() => {
                    if self.interrupted(context, interrupt) {
                        return Ok(false);
                    }
                }
            }
            self.view.draw(&context.screen, &self.tree);
            if self.is_over() && !self.lost {
                // The last word is the Brain's own view, not what events add up to.
                self.read_at = self.read_at.min(Instant::now());
            } else if let Some(at) = self.may_wait_at.filter(|at| self.no_wait && *at > Instant::now()) {
                // What waits now may still wait then, and nothing else might say so.
                self.read_at = self.read_at.min(at);
            }
        }
    }

    fn is_over(&self) -> bool {
        match self.tree.standing() {
            Standing::Ended => true,
            Standing::Waits => self.no_wait && self.may_wait_at.is_some_and(|at| Instant::now() >= at),
            Standing::Goes => false,
        }
    }

    async fn hear(&mut self, context: &mut Context, notice: Notice) -> Result<(), Failure> {
        match notice {
            Notice::Open => {
                self.found(context);
                self.read_at = Instant::now();
                Ok(())
            }
            Notice::Lost(why) => {
                self.away(context, &why);
                Ok(())
            }
            Notice::Refused(error) => Err(error.into()),
            Notice::Event(event, _) => self.happened(context, &event).await,
        }
    }

    async fn happened(&mut self, context: &mut Context, event: &Event) -> Result<(), Failure> {
        if event.tree_id.as_ref().is_some_and(|tree| *tree != self.submitted.tree_id) {
            return Ok(());
        }
        let Some(id) = &event.task_id else { return Ok(()) };
        if event.kind == Event::PROGRESS {
            if let (Some(task), Some(text)) = (self.tree.task(id), words(event.fraction, event.message.as_deref())) {
                self.view.goes_on(&mut context.screen, task, text);
            }
            return Ok(());
        }
        if !self.tree.has(id) {
            // Before the first reading, or a task that came later.
            if event.tree_id.is_some() {
                self.read_at = self.read_at.min(Instant::now() + READ_SOON);
            }
            return Ok(());
        }
        let change = self.tree.event(event);
        let ended = change.as_ref().is_some_and(|c| c.state.is_terminal());
        let fresh = if ended || self.view.shows_calls() { self.task(id).await } else { None };
        match (change, fresh) {
            (Some(change), Some(task)) if task.state == change.state => {
                self.view.moved(&mut context.screen, &change, Some(&task))?;
                self.tree.refresh(task);
                self.names_its_client(context, id).await;
            }
            (change, fresh) => {
                if let Some(change) = change {
                    self.view.moved(&mut context.screen, &change, None)?;
                    self.names_its_client(context, id).await;
                }
                self.take(context, fresh.into_iter().collect()).await?;
            }
        }
        Ok(())
    }

    /// Takes the Brain's view of some tasks and says what is new in it.
    async fn take(&mut self, context: &mut Context, tasks: Vec<Task>) -> Result<(), Failure> {
        for change in self.tree.snapshot(tasks) {
            self.view.moved(&mut context.screen, &change, self.tree.task(&change.task_id))?;
            self.names_its_client(context, &change.task_id).await;
        }
        Ok(())
    }

    /// Says, once, that a task waits for one client alone: any other one may come and go, and it still waits.
    async fn names_its_client(&mut self, context: &mut Context, id: &TaskId) {
        let Some(task) = self.tree.task(id).filter(|task| task.named_client().is_some() || task.bound_to.is_some())
        else {
            return;
        };
        if self.named.contains(id) {
            return;
        }
        if let Some(only) = only_on(&self.brain, task).await {
            context.screen.remark(&format!("vancetope: {}: {only}", vance_shared::show::plain(&task.id)));
            self.named.insert(id.clone());
        }
    }

    /// One task anew. If that fails the next reading of the tree has it.
    async fn task(&self, id: &TaskId) -> Option<Task> {
        match self.brain.task(id).await {
            Ok(answer) => Some(answer.value),
            Err(error) => {
                tracing::debug!("task {id} was not read: {error}");
                None
            }
        }
    }

    /// Reads the whole tree; false if the Brain is away.
    async fn read(&mut self, context: &mut Context) -> Result<bool, Failure> {
        self.read_at = Instant::now() + READ_EVERY;
        let filter = TaskFilter { tree: Some(self.submitted.tree_id.clone()), ..TaskFilter::default() };
        let Answer { mut value, body } = match self.brain.tasks(&filter).await {
            Ok(answer) => answer,
            Err(error) if error.may_pass() => {
                self.away(context, &error.to_string());
                self.read_at = Instant::now() + READ_SOON * 5;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        self.found(context);
        value.tasks.retain(|task| task.tree_id == self.submitted.tree_id);
        self.body = body.value().get_mut("tasks").map(Value::take).unwrap_or_default();
        self.take(context, value.tasks).await?;
        Ok(true)
    }

    /// Outputs that were too large for the list.
    async fn read_outputs(&mut self, context: &mut Context) {
        let large = self.tree.tasks().iter().filter(|task| task.output_bytes.is_some());
        for id in large.map(|task| task.task_id.clone()).collect::<Vec<_>>() {
            match self.brain.task(&id).await {
                Ok(Answer { value, body }) => {
                    let listed = self.body.as_array_mut().into_iter().flatten();
                    for task in listed.filter(|task| task["task_id"] == id.as_str()) {
                        *task = body.value();
                    }
                    self.tree.refresh(value);
                }
                Err(error) => context.screen.remark(&format!("vancetope: the output of {id} was not read: {error}")),
            }
        }
    }

    fn away(&mut self, context: &mut Context, why: &str) {
        if !std::mem::replace(&mut self.lost, true) {
            let why = vance_shared::show::plain(why);
            context.screen.remark(&format!("vancetope: the Brain is away ({why}); trying again until it is back"));
        }
    }

    fn found(&mut self, context: &mut Context) {
        if std::mem::replace(&mut self.lost, false) {
            context.screen.remark("vancetope: the Brain is back");
        }
    }

    /// The first Ctrl-C cancels, the second leaves; true to leave.
    fn interrupted(&mut self, context: &mut Context, interrupt: Interrupt) -> bool {
        if self.cancelled || interrupt == Interrupt::Terminate {
            context
                .screen
                .remark("vancetope: left; what still lives of the tree stays with the Brain (`vancetope tasks`)");
            return true;
        }
        self.cancelled = true;
        let ids: Vec<TaskId> = match self.tree.tasks() {
            [] => self.submitted.tasks.iter().map(|t| t.task_id.clone()).collect(),
            tasks => tasks.iter().filter(|t| !t.state.is_terminal()).map(|t| t.task_id.clone()).collect(),
        };
        context.screen.remark(&format!("vancetope: cancelling {} task(s); Ctrl-C again leaves at once", ids.len()));
        tokio::spawn(cancel_all(self.brain.clone(), ids));
        false
    }
}

async fn loaded(foot: Option<&LocalFoot>) {
    match foot {
        Some(foot) => drop(foot.first_load().await),
        None => std::future::pending().await,
    }
}

async fn cancel_all(brain: Brain, ids: Vec<TaskId>) {
    use futures_util::StreamExt as _;
    let cancels = futures_util::stream::iter(ids).map(|id| {
        let brain = brain.clone();
        async move {
            match brain.cancel(&id).await {
                Ok(_) => {}
                // It ended, or its parent's cancel took it along.
                Err(ApiError::Refused { status: 404 | 409, .. }) => {}
                Err(error) => tracing::warn!("task {id} was not cancelled: {error}"),
            }
        }
    });
    cancels.buffer_unordered(CANCELS_AT_ONCE).collect::<()>().await;
}
