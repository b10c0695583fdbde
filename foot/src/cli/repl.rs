//! `vancetope`: the prompt. A Foot runs meanwhile; what it and the Brain have to say appears above the line that is typed.
//!
//! ```text
//! keyboard (thread): reads a line → tells → waits for "go on"
//! room (here):       line → command to its end → "go on"; beside it: signals, followed trees, the Foot's state → status line
//! ```

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use vance_shared::ids::SessionId;
use vance_shared::show::plain;
use vance_supervise::ExitReason;

use super::args::General;
use super::context::Context;
use super::failure::{EXIT_OK, Failure};
use super::foot::{LocalFoot, fallen};
use super::interrupt::{Interrupt, Interrupts};
use super::screen::Screen;
use super::settings::{Environment, token};
use super::stage::{KeysWait, Stage};
use crate::actors::catalogue::Catalogue;
use crate::api::Brain;
use crate::engine::{Connection, LoadSummary};

mod commands;
mod complete;
mod editor;
mod history;
mod prompt;
mod runs;
mod status;
mod waits;
mod words;

use complete::Words;
use editor::{Desk, Keyboard, Person, Typed};
use prompt::Scene;
use runs::{Ended, Runs};
use waits::{Count, Waits};

/// Longest wait for the editor to give the terminal back at the end.
const EDITOR_ENDS_WITHIN: Duration = Duration::from_secs(3);

/// Runs the prompt until the person leaves.
pub(super) async fn repl(context: &mut Context, rest: Option<SocketAddr>) -> Result<u8, Failure> {
    if context.general.json {
        let why = "the prompt has no JSON: --json needs a subcommand, --no-ui or --daemon";
        return Err(Failure::Usage(why.to_owned()));
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() || !context.screen.stage().is_own() {
        return Err(Failure::Usage(
            "the prompt needs a terminal, and standard input or standard error is none here. Without one: `vancetope --no-ui` \
             (be a Foot until Ctrl-C), `vancetope --daemon` (the same for a service manager), `vancetope run FILE`, `vancetope --help` (everything else)"
                .to_owned(),
        ));
    }
    let stage = context.screen.stage().clone();
    let (scene, words) = (Scene::new(stage.clone()), Words::default());
    let mut keyboard = keyboard(context, &scene, &words)?;
    let _keys = match context.dumb() {
        true => None,
        false => Some(keys_wait(&stage)?),
    };
    stage.remark(&format!("{}; /help lists the commands", env!("CARGO_PKG_VERSION")));
    let ended = loop {
        let mut room = match Room::open(context, &scene, &words) {
            Ok(room) => room,
            Err(failure) => break Err(failure),
        };
        let served = match rest {
            Some(address) => room.foot.rest(context, address).await.map(Some),
            None => Ok(None),
        };
        keyboard.go_on();
        let (next, served) = match served {
            Ok(served) => (room.serve(context, &mut keyboard).await, served),
            Err(failure) => (Err(failure), None),
        };
        if let Some(served) = served {
            served.end().await;
        }
        room.close().await;
        match next {
            Ok(Next::Attach(general)) => context.general = *general,
            Ok(Next::Leave | Next::GoOn) => break Ok(EXIT_OK),
            Err(failure) => break Err(failure),
        }
    };
    stage.closes_keyboard();
    // The plain mode cannot be woken; it ends with the process.
    if tokio::time::timeout(EDITOR_ENDS_WITHIN, keyboard.ends()).await.is_err() {
        tracing::debug!("the keyboard is still read");
    }
    ended
}

fn keys_wait(stage: &Stage) -> Result<KeysWait, Failure> {
    let waits = std::io::stdin().as_fd().try_clone_to_owned().and_then(|input| stage.lets_keys_wait(input));
    waits.map_err(|error| Failure::Foot(format!("the terminal cannot be set up: {error}")))
}

fn keyboard(context: &Context, scene: &Scene, words: &Words) -> Result<Keyboard, Failure> {
    let person = if context.dumb() {
        Person::Plain
    } else {
        Person::Editing(Box::new(Desk {
            stage: context.screen.stage().clone(),
            scene: scene.clone(),
            words: words.clone(),
            history: context.home()?.join("state").join("history"),
            colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }))
    };
    editor::start(person).map_err(|error| Failure::Foot(format!("the keyboard cannot be read: {error}")))
}

/// Whether the prompt goes on after a line.
enum Next {
    GoOn,
    /// The same, with a Foot that is attached elsewhere.
    Attach(Box<General>),
    Leave,
}

/// What the prompt works with as long as it is attached to one session.
struct Room {
    general: General,
    environment: Environment,
    stage: Stage,
    scene: Scene,
    words: Words,
    foot: Rc<LocalFoot>,
    waits: Waits,
    runs: Runs,
    /// How many signals there were.
    interrupts: Arc<AtomicU64>,
    /// Ctrl-C was pressed, and nothing was typed since.
    pressed: bool,
}

/// What changes by itself.
struct Signs {
    connection: watch::Receiver<Connection>,
    catalogue: watch::Receiver<Arc<Catalogue>>,
    waiting: watch::Receiver<Count>,
    /// The first load goes on.
    loading: bool,
    /// The session that was said last.
    said: Option<SessionId>,
}

/// What happens next.
enum Happens {
    Typed(Typed),
    Wish(Interrupt),
    RunEnds(Box<Ended>),
    Loaded(Arc<LoadSummary>),
    Falls(ExitReason),
    Changed,
}

impl Room {
    fn open(context: &Context, scene: &Scene, words: &Words) -> Result<Self, Failure> {
        let foot = Rc::new(LocalFoot::start(context, context.general.session.as_ref(), "cli")?);
        Ok(Self {
            general: context.general.clone(),
            environment: context.environment.clone(),
            stage: context.screen.stage().clone(),
            waits: count(context, &foot, words),
            scene: scene.clone(),
            words: words.clone(),
            foot,
            runs: Runs::default(),
            interrupts: context.interrupts.pressed(),
            pressed: false,
        })
    }

    /// The context of a command, with the wishes that are handed on to it.
    fn context(&self, wishes: mpsc::Receiver<Interrupt>) -> Context {
        // No live view: the prompt is below.
        let mut general = General { no_ui: true, ..self.general.clone() };
        if let Connection::Online { session_id, .. } = &*self.foot.connection().borrow() {
            general.session = Some(session_id.clone());
            general.new_session = false;
        }
        let screen = Screen::of_process(self.stage.clone());
        let interrupts = Interrupts::handed_on(wishes, Arc::clone(&self.interrupts));
        Context { general, environment: self.environment.clone(), screen, interrupts, nobody: None }
    }

    fn signs(&self) -> Signs {
        let foot = &self.foot;
        let (connection, catalogue) = (foot.connection(), foot.catalogue());
        Signs { connection, catalogue, waiting: self.waits.count(), loading: true, said: None }
    }

    /// Until the person leaves, or wants to be attached elsewhere.
    async fn serve(&mut self, context: &mut Context, keyboard: &mut Keyboard) -> Result<Next, Failure> {
        let mut signs = self.signs();
        self.paint(&mut signs);
        loop {
            let next = match self.happens(context, keyboard, &mut signs).await {
                Happens::Typed(typed) => {
                    let next = self.typed(context, typed).await?;
                    if matches!(next, Next::GoOn) {
                        self.paint(&mut signs);
                        keyboard.go_on();
                    }
                    next
                }
                // Ctrl-C at a question is its answer.
                Happens::Wish(Interrupt::CtrlC) if self.stage.is_asking() => Next::GoOn,
                Happens::Wish(Interrupt::CtrlC) => self.interrupted(true),
                Happens::Wish(Interrupt::Terminate) => Next::Leave,
                Happens::RunEnds(ended) => {
                    let Ended { result, mut context } = *ended;
                    self.pressed = false;
                    if let Err(failure) = result {
                        context.screen.failure(&failure);
                    }
                    Next::GoOn
                }
                Happens::Loaded(summary) => {
                    signs.loading = false;
                    self.stage.remark(&summary.to_string());
                    Next::GoOn
                }
                Happens::Falls(why) => return Err(fallen(&why)),
                Happens::Changed => Next::GoOn,
            };
            match next {
                Next::GoOn => self.paint(&mut signs),
                Next::Attach(_) | Next::Leave => return Ok(next),
            }
        }
    }

    async fn happens(&mut self, context: &mut Context, keyboard: &mut Keyboard, signs: &mut Signs) -> Happens {
        tokio::select! {
            typed = keyboard.next() => Happens::Typed(typed.unwrap_or(Typed::End)),
            wish = context.interrupts.next() => Happens::Wish(wish),
            ended = self.runs.next() => Happens::RunEnds(Box::new(ended)),
            summary = self.foot.first_load(), if signs.loading => Happens::Loaded(summary),
            why = self.foot.ended() => Happens::Falls(why),
            () = signs.change() => Happens::Changed,
        }
    }

    async fn typed(&mut self, context: &mut Context, typed: Typed) -> Result<Next, Failure> {
        match typed {
            Typed::Line(line) => {
                self.pressed = false;
                self.does(context, &line).await
            }
            Typed::CtrlC { blank } => Ok(self.interrupted(blank)),
            Typed::End => Ok(Next::Leave),
            Typed::Fault(why) => Err(Failure::Foot(format!("the terminal cannot be read: {why}"))),
        }
    }

    /// Ctrl-C: drops what was typed, else cancels what is followed, else leaves with the next one.
    fn interrupted(&mut self, blank: bool) -> Next {
        if !blank {
            return Next::GoOn;
        }
        if std::mem::replace(&mut self.pressed, true) {
            return Next::Leave;
        }
        if !self.runs.cancel() {
            self.stage.remark("Ctrl-C again leaves");
        }
        Next::GoOn
    }

    /// Brings the status line and what can be completed up to date.
    fn paint(&self, signs: &mut Signs) {
        let connection = signs.connection.borrow_and_update().clone();
        let renamed = signs.catalogue.has_changed().unwrap_or(false);
        let catalogue = signs.catalogue.borrow_and_update().clone();
        let waiting = *signs.waiting.borrow_and_update();
        let brain = self.general.brain.as_str().trim_end_matches('/');
        if let Connection::Online { session_id, .. } = &connection
            && signs.said.as_ref() != Some(session_id)
        {
            self.stage.remark(&format!("connected to the Brain at {}, session {session_id}", plain(brain)));
            signs.said = Some(session_id.clone());
        }
        let tools = catalogue.tools().len();
        self.words.set(|known| {
            // The names are many, and change seldom.
            if renamed || known.tools.len() != tools {
                known.tools = catalogue.in_order().iter().map(|tool| tool.spec.name.to_string()).collect();
            }
            known.sessions = signs.said.iter().map(ToString::to_string).collect();
        });
        if self.scene.set_status(&status::line(brain, &connection, tools, waiting, self.runs.count())) {
            self.stage.repaint();
        }
    }

    /// Leaves what is followed with the Brain, and ends the Foot.
    async fn close(mut self) {
        self.runs.leave().await;
        if let Some(foot) = Rc::into_inner(self.foot) {
            foot.shutdown().await;
        }
    }
}

impl Signs {
    /// Waits for the next change. What ends for good does not change any more.
    async fn change(&mut self) {
        let one = async |changed: Result<(), watch::error::RecvError>| {
            if changed.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            changed = self.connection.changed() => one(changed).await,
            changed = self.catalogue.changed() => one(changed).await,
            changed = self.waiting.changed() => one(changed).await,
        }
    }
}

/// Counts what waits in the session.
fn count(context: &Context, foot: &LocalFoot, words: &Words) -> Waits {
    let (environment, general) = (context.environment.clone(), context.general.clone());
    let home = environment.home();
    let brain = move || {
        let token = token(&environment, home.as_deref()?, &general.brain);
        Brain::new(general.brain.clone(), token).ok()
    };
    Waits::start(brain, foot.connection(), words.clone(), context.screen.stage().clone())
}
