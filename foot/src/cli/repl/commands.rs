//! What the prompt's commands do. What `vancetope` can do with a subcommand is done by the same code.

use std::future::Future;
use std::rc::Rc;

use clap::Parser as _;
use tokio::sync::mpsc;
use vance_shared::doc::nearest;
use vance_shared::ids::SessionId;
use vance_shared::show::plain;

use super::words::{self, Line, Name};
use super::{Next, Room};
use crate::cli::args::{Cli, Command, General, ToolsCommand, brain_url};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::interrupt::Interrupt;
use crate::cli::tools;
use crate::engine::{Connection, PackState};

/// Wishes for a command that it has not heard yet.
const WISHES: usize = 2;

/// What a person wants who types no command.
const NO_ENGINE: &str = "no engine is configured that works toward a goal, so nothing was submitted. What works: /run FILE \
(a task tree with steps), /tools call NAME JSON (one tool), /help (all commands)";

impl Room {
    /// Does what a line says. Only what ends the whole prompt is an error.
    pub(super) async fn does(&mut self, context: &mut Context, line: &str) -> Result<Next, Failure> {
        let (name, words) = match words::read(line) {
            Line::Blank => return Ok(Next::GoOn),
            Line::Goal => {
                self.stage.remark(NO_ENGINE);
                return Ok(Next::GoOn);
            }
            Line::Wrong(why) => {
                self.stage.remark(&why);
                return Ok(Next::GoOn);
            }
            Line::Command(name, words) => (name, words),
        };
        let (tell, wishes) = mpsc::channel(WISHES);
        let mut its = self.context(wishes);
        let done: Result<Next, Failure> = match name {
            Name::Quit => return Ok(Next::Leave),
            Name::Help => its.screen.line(&words::help()).map_err(Failure::from).map(|()| Next::GoOn),
            Name::Run => self.run(&words),
            Name::Session | Name::Connect => {
                let wanted = guarded(context, tell, self.wanted(&mut its, name, &words)).await;
                match wanted {
                    Outcome::Done(Ok(Some(general))) => Ok(Next::Attach(Box::new(general))),
                    Outcome::Done(other) => other.map(|_| Next::GoOn),
                    Outcome::Left(next) => return Ok(next),
                }
            }
            Name::Tools | Name::Packs | Name::Trust | Name::Tasks => {
                match guarded(context, tell, self.command(&mut its, name, &words)).await {
                    Outcome::Done(done) => done.map(|()| Next::GoOn),
                    Outcome::Left(next) => return Ok(next),
                }
            }
        };
        done.or_else(|failure| {
            its.screen.failure(&failure);
            Ok(Next::GoOn)
        })
    }

    fn run(&mut self, words: &[String]) -> Result<Next, Failure> {
        let Command::Run(args) = parse("run", words)? else { return Err(misread()) };
        if args.file == std::path::Path::new("-") {
            return Err(Failure::Usage("standard input is the keyboard here: expected a file".to_owned()));
        }
        let (wishes, heard) = mpsc::channel(WISHES);
        let context = self.context(heard);
        self.runs.start(args, context, wishes, Rc::clone(&self.foot))?;
        Ok(Next::GoOn)
    }

    async fn command(&self, its: &mut Context, name: Name, words: &[String]) -> Result<(), Failure> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match (name, words.as_slice()) {
            (Name::Tools, [] | ["list"]) => tools::list(its, &self.foot).await.map(drop),
            (Name::Tools, ["call", ..]) => match parse("tools", &words)? {
                Command::Tools { command: Some(ToolsCommand::Call(args)) } if args.via_brain => {
                    tools::call_via_brain(its, &args).await.map(drop)
                }
                Command::Tools { command: Some(ToolsCommand::Call(args)) } => {
                    tools::call_here(its, &self.foot, &args).await.map(drop)
                }
                _ => Err(misread()),
            },
            (Name::Tools, ["reload"]) => self.reload(its).await,
            (Name::Tools, [tool]) => self.describe(its, tool),
            (Name::Tools, _) => {
                Err(Failure::Usage("expected /tools, /tools NAME, /tools call NAME JSON or /tools reload".to_owned()))
            }
            (Name::Packs, []) => self.packs(its).await,
            (Name::Packs, words) => crate::cli::command(its, parse("packs", words)?).await.map(drop),
            (Name::Trust, words) => crate::cli::command(its, parse("trust", words)?).await.map(drop),
            (_, words) => crate::cli::command(its, parse("tasks", words)?).await.map(drop),
        }
    }

    fn describe(&self, its: &mut Context, name: &str) -> Result<(), Failure> {
        let tools = self.foot.tools();
        let Some(tool) = tools.iter().find(|tool| tool.name.as_str() == name) else {
            let near = nearest(name, tools.iter().map(|tool| tool.name.as_str()));
            let near = near.map_or_else(|| "/tools lists all".to_owned(), |near| format!("did you mean `{near}`?"));
            return Err(Failure::Usage(format!("this machine has no tool {}; {near}", plain(name))));
        };
        let screen = &mut its.screen;
        screen.line(&format!(
            "{}  [{}]",
            tool.name,
            tool.labels.iter().map(|l| plain(l)).collect::<Vec<_>>().join(", ")
        ))?;
        let about: Vec<String> = tool.description.lines().map(|line| format!("  {}", plain(line))).collect();
        screen.line(&about.join("\n"))?;
        Ok(screen.pretty(&tool.input_schema.value())?)
    }

    /// Ends with the summary; the loader's warnings above it have the reasons.
    async fn reload(&self, its: &mut Context) -> Result<(), Failure> {
        let summary = self.foot.reload().await;
        Ok(its.screen.line(&summary.to_string())?)
    }

    async fn packs(&self, its: &mut Context) -> Result<(), Failure> {
        let rows = self.foot.packs().await.into_iter().map(|pack| {
            let why = pack.reason.unwrap_or_default();
            [pack.pack, word(pack.state).to_owned(), pack.tools.to_string(), why, pack.file]
        });
        Ok(its.screen.table(["PACK", "STATE", "TOOLS", "WHY", "FILE"], rows.collect(), "no packs")?)
    }

    /// What `/session` and `/connect` want: another Foot, or just to look.
    async fn wanted(&self, its: &mut Context, name: Name, words: &[String]) -> Result<Option<General>, Failure> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let general = self.general.clone();
        match (name, words.as_slice()) {
            (Name::Session, []) => {
                let Some(id) = its.general.session.clone() else {
                    its.screen.remark("not attached to a session: there is no line to the Brain now");
                    return Ok(None);
                };
                crate::cli::command(its, parse("sessions", &["show", id.as_str()])?).await?;
                Ok(None)
            }
            (Name::Session, ["list"]) => {
                crate::cli::command(its, parse("sessions", &[] as &[&str])?).await?;
                Ok(None)
            }
            (Name::Session, ["new"]) => Ok(Some(General { new_session: true, session: None, ..general })),
            (Name::Session, [id]) => {
                let id = SessionId::parse(id).map_err(|error| Failure::Usage(error.to_string()))?;
                its.brain()?.session(&id).await?;
                Ok(Some(General { new_session: false, session: Some(id), ..general }))
            }
            (Name::Connect, []) => {
                let state = match &*self.foot.connection().borrow() {
                    Connection::Online { session_id, .. } => format!("connected, session {session_id}"),
                    Connection::Connecting | Connection::Local => "connecting".to_owned(),
                    Connection::Refused { why, .. } => format!("refused: {}", plain(why)),
                };
                its.screen.line(&format!("{} {state}", plain(general.brain.as_str().trim_end_matches('/'))))?;
                Ok(None)
            }
            (Name::Connect, [url]) => {
                let brain = brain_url(url).map_err(Failure::Usage)?;
                its.general.brain = brain.clone();
                its.brain()?.health().await?;
                Ok(Some(General { brain, session: None, new_session: false, ..general }))
            }
            (Name::Session, _) => {
                Err(Failure::Usage("expected /session, /session list, /session new or /session ID".to_owned()))
            }
            (_, _) => Err(Failure::Usage("expected /connect or /connect URL".to_owned())),
        }
    }
}

fn word(state: PackState) -> &'static str {
    match state {
        PackState::Starting => "starting",
        PackState::Up => "up",
        PackState::Failed => "failed",
        PackState::Ending => "ending",
        PackState::Skipped => "skipped",
    }
}

/// Words as the command line's own table reads them.
fn parse(command: &str, words: &[impl AsRef<str>]) -> Result<Command, Failure> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    if words.iter().any(|word| word.starts_with("--brain")) {
        return Err(Failure::Usage("/connect URL goes to another Brain".to_owned()));
    }
    let line = ["vancetope", command].into_iter().chain(words);
    match Cli::try_parse_from(line) {
        Ok(Cli { command: Some(command), .. }) => Ok(command),
        Ok(_) => Err(misread()),
        Err(error) => {
            Err(Failure::Usage(error.render().to_string().trim_end().trim_start_matches("error: ").to_owned()))
        }
    }
}

fn misread() -> Failure {
    Failure::Usage("this command was not understood".to_owned())
}

/// How a command ended.
enum Outcome<T> {
    Done(T),
    /// The person did not wait for it.
    Left(Next),
}

/// Waits for a command. The first Ctrl-C is its own, the second one leaves it.
async fn guarded<T>(context: &mut Context, tell: mpsc::Sender<Interrupt>, work: impl Future<Output = T>) -> Outcome<T> {
    tokio::pin!(work);
    let mut pressed = false;
    loop {
        tokio::select! {
            done = &mut work => return Outcome::Done(done),
            wish = context.interrupts.next() => match wish {
                Interrupt::Terminate => return Outcome::Left(Next::Leave),
                Interrupt::CtrlC if context.screen.stage().is_asking() => {}
                Interrupt::CtrlC if pressed => {
                    context.screen.remark("vancetope: interrupted");
                    return Outcome::Left(Next::GoOn);
                }
                Interrupt::CtrlC => {
                    pressed = true;
                    if tell.try_send(wish).is_err() {
                        tracing::debug!("the command does not listen; the next Ctrl-C leaves it");
                    }
                }
            },
        }
    }
}
