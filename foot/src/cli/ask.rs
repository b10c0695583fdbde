//! Questions of the permissions, of the trust gate and of servers, asked at the terminal: one at a time, on a thread of their own, so that
//! whoever waits for the answer never is the one who reads it.
//!
//! ```text
//! tool ─ ask ──────▶ queue ─▶ thread: terminal ours? ─▶ prompt ─▶ once: yes | always: rule into the file, yes | else: no
//! gate ─ consent ──▶   "            "                    "    ─▶ the line, for the gate to judge
//! host ─ elicit ───▶   "            "                    "    ─▶ the fields that were filled in | declined | cancelled
//! ```

use std::collections::HashSet;
use std::io::{IsTerminal as _, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use vance_mcp_host::{Elicit, Elicited};
use vance_shared::gate::Nobody;
use vance_shared::show::plain;

use super::args::Cli;
use super::context::Context;
use super::failure::Failure;
use super::permissions;
use super::stage::Stage;
use crate::native::{AskElsewhere, Asker, Question};
use crate::trust::{self, Consent, Prompt};

mod elicit;
pub(super) mod form;
mod person;
mod prompt;
mod terminal;
use elicit::Form;
pub(super) use person::{Over, Reply, hidden, person, person_until};
use prompt::Answer;
use terminal::{Heard, Terminal};

/// Until silence is a no: long enough to read, short enough that no call's own time runs out unseen.
const PATIENCE: Duration = Duration::from_secs(25);
/// Questions that wait for their turn; a person who has more before them has lost sight, and the rest is no.
const MAX_WAITING: usize = 16;

/// Why nobody is asked in a way of running, whatever the terminal.
pub(super) fn unattended(cli: &Cli) -> Option<Nobody> {
    let without = |why, way_out| Some(Nobody { why, way_out });
    if cli.daemon {
        return without("--daemon asks nobody", "start `vancetope` in a terminal");
    }
    if cli.skill_one_shot.is_some() {
        return without("--skill-one-shot asks nobody", "use `vancetope run FILE` in a terminal");
    }
    let way_out = match cli.command {
        Some(_) => "run the command without it in a terminal",
        None => "start `vancetope` without it in a terminal",
    };
    cli.general.no_ui.then_some(Nobody { why: "--no-ui asks nobody", way_out })
}

/// Why there is nobody to ask in this run; none if somebody can be asked.
pub(super) fn nobody(context: &Context) -> Option<Nobody> {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if context.nobody.is_some() {
        return context.nobody;
    }
    if !is_terminal || !context.screen.stage().is_own() {
        return Some(Nobody::NO_TERMINAL);
    }
    if context.general.json {
        return Some(Nobody { why: "with --json nobody is asked", way_out: "run the command once without it" });
    }
    let why = match std::env::var_os("TERM").is_some_and(|term| term.is_empty()) {
        true => "with an empty TERM nobody is asked",
        false => "with TERM=dumb nobody is asked",
    };
    context.dumb().then_some(Nobody { why, way_out: "set TERM to what your terminal is" })
}

/// A person at this process's terminal, if there is one.
pub(super) fn at_terminal(context: &Context) -> Result<Option<Arc<dyn Asker>>, Failure> {
    let stage = context.screen.stage();
    if nobody(context).is_some() {
        return Ok(None);
    }
    let none = |error: std::io::Error| Failure::Foot(format!("the terminal cannot be read: {error}"));
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(none)?;
    let terminal = terminal_of(input, Box::new(std::io::stderr()), context.interrupts.pressed());
    Ok(Some(Arc::new(AtTerminal::new(terminal, stage.clone(), context.home()?))))
}

/// A terminal whose silence is a no after [`PATIENCE`].
fn terminal_of(input: OwnedFd, output: Box<dyn Write + Send>, pressed: Arc<AtomicU64>) -> Terminal {
    Terminal::new(input, output, pressed, PATIENCE)
}

/// One terminal for all who ask; clones are the same one.
#[derive(Clone)]
struct AtTerminal(Arc<Desk>);

impl AtTerminal {
    fn new(terminal: Terminal, stage: Stage, home: PathBuf) -> Self {
        Self(Arc::new(Desk { person: Mutex::new(Person::Idle(terminal)), stage, home }))
    }
}

struct Desk {
    // Two calls may ask at once; the first one starts the thread.
    person: Mutex<Person>,
    stage: Stage,
    home: PathBuf,
}

/// Where the terminal is.
enum Person {
    /// Nothing was asked so far.
    Idle(Terminal),
    /// A thread has it.
    Asked(SyncSender<Asked>),
    /// The thread could not be started.
    Gone,
}

/// A question and who waits for its answer.
enum Asked {
    /// May a tool do something?
    Permission { question: Question, tell: oneshot::Sender<bool> },
    /// May something that came with the working directory be used?
    Consent { prompt: Prompt, tell: oneshot::Sender<trust::Reply> },
    /// What does a server want to know in the middle of a call?
    Elicit { form: Form, tell: oneshot::Sender<Elicited> },
}

impl Asker for AtTerminal {
    fn ask(&self, question: Question) -> BoxFuture<'static, bool> {
        let (tell, answer) = oneshot::channel();
        let about = question.tool.to_string();
        let queued = self.0.queue(&about, Asked::Permission { question, tell });
        // A thread that is gone answers nothing, which is no.
        Box::pin(async move { queued && answer.await.unwrap_or(false) })
    }

    fn consent(&self) -> Option<Arc<dyn Consent>> {
        Some(Arc::new(self.clone()))
    }

    fn elicit(&self) -> Option<Elicit> {
        let at = self.clone();
        Some(Arc::new(move |question| {
            let (tell, answer) = oneshot::channel();
            let about = format!("pack '{}'", question.pack);
            let queued = at.0.queue(&about, Asked::Elicit { form: Form::of(question), tell });
            Box::pin(async move {
                match queued {
                    true => answer.await.unwrap_or(Elicited::Cancelled),
                    false => Elicited::Unanswered,
                }
            })
        }))
    }

    fn elsewhere(&self) -> Option<AskElsewhere> {
        let at = self.clone();
        Some(Arc::new(move |question| {
            let (tell, answer) = oneshot::channel();
            let form = Form::elsewhere(question);
            let queued = at.0.queue("another client's tool", Asked::Elicit { form, tell });
            Box::pin(async move {
                match queued {
                    true => answer.await.unwrap_or(Elicited::Unanswered),
                    false => Elicited::Unanswered,
                }
            })
        }))
    }
}

impl Consent for AtTerminal {
    fn consent(&self, prompt: Prompt) -> BoxFuture<'static, trust::Reply> {
        let (tell, reply) = oneshot::channel();
        let about = prompt.about.clone();
        let queued = self.0.queue(&about, Asked::Consent { prompt, tell });
        Box::pin(async move {
            match queued {
                true => reply.await.unwrap_or(trust::Reply::Broken),
                false => trust::Reply::Broken,
            }
        })
    }

    fn remark(&self, text: &str) {
        self.0.stage.remark(text);
    }
}

impl Desk {
    /// False if nobody will answer.
    fn queue(&self, about: &str, asked: Asked) -> bool {
        let queued = self.clerk().is_some_and(|queue| queue.try_send(asked).is_ok());
        if !queued {
            let why = "questions wait for an answer already, so this one is not asked: no";
            self.stage.remark(&format!("{about}: {MAX_WAITING} {why}"));
        }
        queued
    }

    fn clerk(&self) -> Option<SyncSender<Asked>> {
        let mut person = self.person.lock().unwrap_or_else(PoisonError::into_inner);
        let terminal = match std::mem::replace(&mut *person, Person::Gone) {
            Person::Idle(terminal) => terminal,
            Person::Asked(queue) => {
                *person = Person::Asked(queue.clone());
                return Some(queue);
            }
            Person::Gone => return None,
        };
        let (queue, asked) = sync_channel(MAX_WAITING);
        let clerk = Clerk { terminal, stage: self.stage.clone(), home: self.home.clone(), always: HashSet::new() };
        match std::thread::Builder::new().name("questions".to_owned()).spawn(move || clerk.work(&asked)) {
            Ok(_) => *person = Person::Asked(queue.clone()),
            Err(error) => {
                self.stage.remark(&format!("no question can be asked: {error}"));
                return None;
            }
        }
        Some(queue)
    }
}

/// The thread that asks.
struct Clerk {
    terminal: Terminal,
    stage: Stage,
    home: PathBuf,
    /// Rules that this run has written: the rules of a running Foot do not change under it.
    always: HashSet<String>,
}

impl Clerk {
    fn work(mut self, asked: &Receiver<Asked>) {
        while let Ok(asked) = asked.recv() {
            let in_time = match asked {
                Asked::Permission { tell, .. } if tell.is_closed() => continue,
                Asked::Consent { tell, .. } if tell.is_closed() => continue,
                Asked::Elicit { tell, .. } if tell.is_closed() => continue,
                Asked::Permission { question, mut tell } => {
                    let known = question.rule.as_ref().is_some_and(|rule| self.always.contains(rule));
                    let yes = known || self.put(&question, &mut tell);
                    tell.send(yes).is_ok()
                }
                Asked::Consent { prompt, tell } => {
                    let reply = self.put_consent(&prompt, &tell);
                    tell.send(reply).is_ok()
                }
                Asked::Elicit { form, tell } => {
                    let elicited = self.put_form(&form, &tell);
                    tell.send(elicited).is_ok()
                }
            };
            if !in_time {
                tracing::debug!("an answer came after whoever asked had ended");
            }
        }
    }

    /// Asks for consent. What the line means is the gate's to say; here only what is none of its choices is named.
    fn put_consent(&mut self, Prompt { text, about }: &Prompt, tell: &oneshot::Sender<trust::Reply>) -> trust::Reply {
        if !self.terminal.is_ours() {
            self.stage.remark(&format!("{about}: this program runs in the background, so nobody was asked: no"));
            return trust::Reply::Nobody;
        }
        let (lines, choices) = text.rsplit_once('\n').unwrap_or(("", text.as_str()));
        let quiet = self.stage.question();
        let heard = self.terminal.ask(&format!("{lines}\n"), &format!("{choices} "), &mut || tell.is_closed());
        let (reply, said) = match heard {
            Heard::Line(line) => {
                let odd = !["1", "2", "3"].contains(&line.trim());
                (trust::Reply::Line(line), odd.then(|| "that is not one of 1, 2, 3: no".to_owned()))
            }
            Heard::TooLong => (trust::Reply::Line(String::new()), Some("that is not one of 1, 2, 3: no".to_owned())),
            Heard::Silence => {
                let waited = self.terminal.patience().as_secs();
                (trust::Reply::Silence, Some(format!("\nno answer within {waited} s: no")))
            }
            Heard::End => (trust::Reply::Broken, Some("\nend of input: no".to_owned())),
            Heard::Interrupted => (trust::Reply::Broken, Some("\ninterrupted: no".to_owned())),
            Heard::TakenBack => (trust::Reply::Broken, Some("\nthe load has ended without an answer".to_owned())),
            Heard::Fault(why) => {
                (trust::Reply::Broken, Some(format!("\nthe terminal cannot be read ({}): no", plain(&why))))
            }
        };
        if let Some(said) = said {
            self.terminal.say(&said);
        }
        drop(quiet);
        reply
    }

    /// Asks one question.
    fn put(&mut self, question: &Question, tell: &mut oneshot::Sender<bool>) -> bool {
        if !self.terminal.is_ours() {
            let why = "this program runs in the background, so nobody was asked: no";
            self.stage.remark(&format!("{}: {}; {why}", question.tool, question.what));
            return false;
        }
        let file = permissions::file(&self.home);
        let (text, choices) = match prompt::text(question, &file.to_string_lossy()) {
            Ok(parts) => parts,
            Err(bytes) => {
                let why = format!("the question has {bytes} bytes, at most {} are asked: no", prompt::MAX_BYTES);
                self.stage.remark(&format!("{}: {why}", question.tool));
                return false;
            }
        };
        let quiet = self.stage.question();
        let heard = self.terminal.ask(&text, &choices, &mut || tell.is_closed());
        let answer = match &heard {
            Heard::Line(line) => prompt::answer(line, question.rule.is_some()),
            Heard::TooLong => None,
            Heard::Silence | Heard::End | Heard::Interrupted | Heard::TakenBack | Heard::Fault(_) => Some(Answer::No),
        };
        let said = match (&heard, answer) {
            (Heard::Line(_), Some(Answer::Once | Answer::No)) => None,
            (Heard::Line(_), Some(Answer::Always)) => Some(self.remember(question, &file)),
            (Heard::Line(_), None) | (Heard::TooLong, _) => {
                Some(format!("that is not one of {}: no", prompt::numbers(question)))
            }
            (Heard::Silence, _) => Some(format!("\nno answer within {} s: no", self.terminal.patience().as_secs())),
            (Heard::End, _) => Some("\nend of input: no".to_owned()),
            (Heard::Interrupted, _) => Some("\ninterrupted: no".to_owned()),
            (Heard::TakenBack, _) => Some("\nthe call has ended without an answer".to_owned()),
            (Heard::Fault(why), _) => Some(format!("\nthe terminal cannot be read ({}): no", plain(why))),
        };
        if let Some(said) = said {
            self.terminal.say(&said);
        }
        drop(quiet);
        matches!(answer, Some(Answer::Once | Answer::Always))
    }

    fn remember(&mut self, question: &Question, file: &std::path::Path) -> String {
        let Some(rule) = &question.rule else { return "allowed once".to_owned() };
        match permissions::add(&self.home, rule) {
            Ok(()) => {
                self.always.insert(rule.clone());
                format!("added `- {}` under `allow:` in {}", plain(rule), plain(&file.to_string_lossy()))
            }
            Err(error) => format!("allowed once; the rule was not written: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::sync::atomic::{AtomicU64, Ordering};

    use nix::pty::{OpenptyResult, openpty};
    use vance_shared::ids::CallId;
    use vance_shared::names::ToolName;

    use super::*;

    struct Table {
        at: AtTerminal,
        screen: File,
        pressed: Arc<AtomicU64>,
    }

    fn table(patience: Duration) -> Table {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let (output, pressed) = (File::from(slave.try_clone().unwrap()), Arc::new(AtomicU64::new(0)));
        let terminal = Terminal::new(slave, Box::new(output), Arc::clone(&pressed), patience);
        let at = AtTerminal::new(terminal, Stage::hidden(), PathBuf::from("/nowhere"));
        Table { at, screen: File::from(master), pressed }
    }

    impl Table {
        fn consent(&self, text: &str) -> BoxFuture<'static, trust::Reply> {
            Consent::consent(&self.at, Prompt { text: text.to_owned(), about: "pack 'a'".to_owned() })
        }

        /// Reads until the choices stand there.
        fn until(&mut self, end: &str) {
            let (mut seen, mut byte) = (Vec::new(), [0]);
            while !seen.ends_with(end.as_bytes()) {
                assert_eq!(self.screen.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&seen));
                seen.push(byte[0]);
            }
        }
    }

    #[test]
    fn no_ui_asks_nobody_whatever_the_command() {
        use clap::Parser as _;
        for (line, asked) in [
            ("vancetope --no-ui", false),
            ("vancetope --no-ui run plan.yaml", false),
            ("vancetope tools call x --no-ui", false),
            ("vancetope trust review --no-ui", false),
            ("vancetope --daemon", false),
            ("vancetope tools call x", true),
            ("vancetope", true),
        ] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(unattended(&cli).is_none(), asked, "{line}");
        }
    }

    #[test]
    fn silence_at_the_programs_own_terminal_is_a_no_after_25_seconds() {
        let OpenptyResult { master: _master, slave } = openpty(None, None).unwrap();
        let output = Box::new(File::from(slave.try_clone().unwrap()));
        assert_eq!(terminal_of(slave, output, Arc::default()).patience(), Duration::from_secs(25));
    }

    #[tokio::test]
    async fn silence_and_ctrl_c_are_no_answer_and_a_line_is_the_gates_to_judge() {
        let mut table = table(Duration::from_millis(200));
        assert_eq!(table.consent("q\nyes? 1>").await, trust::Reply::Silence);
        let asking = tokio::spawn(table.consent("q\nyes? 2>"));
        table.until("yes? 2> ");
        table.pressed.fetch_add(1, Ordering::Relaxed);
        assert_eq!(asking.await.unwrap(), trust::Reply::Broken);
        let asking = tokio::spawn(table.consent("q\nyes? 3>"));
        table.until("yes? 3> ");
        table.screen.write_all(b"2\n").unwrap();
        assert_eq!(asking.await.unwrap(), trust::Reply::Line("2".to_owned()));
    }

    #[tokio::test]
    async fn a_servers_question_is_cancelled_by_ctrl_c_and_goes_when_its_call_does() {
        let mut table = table(Duration::from_secs(30));
        let elicit = table.at.elicit().unwrap();
        let ask = |name: &str| {
            let schema = serde_json::json!({"properties": {name: {"type": "string"}}});
            let pack = vance_shared::names::PackName::parse("a").unwrap();
            elicit(vance_mcp_host::Question { pack, message: "who?".to_owned(), schema, url: None })
        };
        let first = ask("one");
        table.until("[2] decline \u{203a} ");
        table.pressed.fetch_add(1, Ordering::Relaxed);
        assert_eq!(first.await, Elicited::Cancelled);
        let second = ask("two");
        table.until("[2] decline \u{203a} ");
        drop(second);
        table.until("the server does not wait any more: nothing is answered\r\n");
        let third = ask("three");
        table.until("[2] decline \u{203a} ");
        table.screen.write_all(b"1\n").unwrap();
        table.until("three (text, empty: nothing) \u{203a} ");
        table.screen.write_all(format!("{}\n", "x".repeat(1500)).as_bytes()).unwrap();
        table.until("at most 1024 bytes are taken\r\n  three (text, empty: nothing) \u{203a} ");
        table.screen.write_all(b"Ada\n").unwrap();
        let fields = serde_json::Map::from_iter([("three".to_owned(), serde_json::json!("Ada"))]);
        assert_eq!(third.await, Elicited::Accepted(fields));
    }

    #[tokio::test]
    async fn the_gate_and_the_permissions_ask_one_after_the_other() {
        let mut table = table(Duration::from_secs(30));
        let question = Question {
            call_id: CallId::generate(),
            tool: ToolName::parse("shell_execute").unwrap(),
            what: "running 'git' needs a yes".to_owned(),
            remedy: String::new(),
            lines: Vec::new(),
            rule: None,
        };
        let pack = tokio::spawn(table.consent("q\nload? >"));
        table.until("load? > ");
        let tool = tokio::spawn(table.at.ask(question));
        let dropped = tokio::spawn(table.consent("q\nnever? >"));
        dropped.abort();
        table.screen.write_all(b"3\n").unwrap();
        table.until("[3] no \u{203a} ");
        table.screen.write_all(b"1\n").unwrap();
        assert_eq!((pack.await.unwrap(), tool.await.unwrap()), (trust::Reply::Line("3".to_owned()), true));
    }
}
