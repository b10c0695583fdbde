//! The thread that reads what a person types: with reedline, or, on a terminal that can do nothing but print, line by line.

use std::io::{BufRead as _, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use reedline::{
    ColumnarMenu, EditCommand, Emacs, ExternalPrinter, FileBackedHistory, KeyCode, KeyModifiers, MenuBuilder as _,
    Reedline, ReedlineEvent, ReedlineMenu, Signal, default_emacs_keybindings,
};
use tokio::sync::mpsc;

use super::complete::{Completions, Words};
use super::history;
use super::prompt::{Entered, Scene, TOKEN, Watched};
use crate::cli::stage::{Bell, Stage};

/// Between two looks at what others want: short enough to seem at once, long enough to cost nothing.
const LOOK: Duration = Duration::from_millis(40);
/// Longest line of the plain mode, in bytes; what is longer is no line that a person types.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// Entries that are kept of what was typed.
const HISTORY_ENTRIES: usize = 1000;
const MENU: &str = "completions";

/// What came from the keyboard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    /// A line.
    Line(String),
    /// Ctrl-C; whether the line was empty then.
    CtrlC { blank: bool },
    /// Ctrl-D on an empty line, or the input's end.
    End,
    /// The terminal cannot be read.
    Fault(String),
}

/// The other end of the thread.
pub(super) struct Keyboard {
    typed: mpsc::Receiver<Typed>,
    go: SyncSender<()>,
}

impl Keyboard {
    /// What is typed next; `None` once the thread has ended. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Option<Typed> {
        self.typed.recv().await
    }

    /// What was typed is done: the next line may be read.
    pub(super) fn go_on(&self) {
        if self.go.try_send(()).is_err() {
            // A thread that has ended says so by itself.
            tracing::debug!("the keyboard was told already");
        }
    }

    /// Waits for the thread's end, after the stage has closed the keyboard.
    pub(super) async fn ends(self) {
        let Self { mut typed, go } = self;
        drop(go);
        while typed.recv().await.is_some() {}
    }
}

/// Starts the thread; it waits for the first [`Keyboard::go_on`].
pub(super) fn start(person: Person) -> std::io::Result<Keyboard> {
    let (tell, typed) = mpsc::channel(1);
    let (go, may) = sync_channel(1);
    std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || match person {
        Person::Plain => plain(&tell, &may),
        Person::Editing(desk) => desk.work(&tell, &may),
    })?;
    Ok(Keyboard { typed, go })
}

/// How lines are read.
pub(super) enum Person {
    /// Without any help.
    Plain,
    /// With an editor.
    Editing(Box<Desk>),
}

fn plain(tell: &mpsc::Sender<Typed>, may: &Receiver<()>) {
    while may.recv().is_ok() {
        let prompted = write!(std::io::stderr(), "> ").and_then(|()| std::io::stderr().flush());
        let mut line = String::new();
        let read = prompted.and_then(|()| std::io::stdin().lock().take(MAX_LINE_BYTES).read_line(&mut line));
        let typed = match read {
            Ok(0) => Typed::End,
            Ok(_) => Typed::Line(line.trim_end_matches(['\n', '\r']).to_owned()),
            Err(error) => Typed::Fault(error.to_string()),
        };
        if tell.blocking_send(typed).is_err() {
            return;
        }
    }
}

/// What the editor works with.
pub(super) struct Desk {
    pub(super) stage: Stage,
    pub(super) scene: Scene,
    pub(super) words: Words,
    /// Where typed lines are kept.
    pub(super) history: PathBuf,
    pub(super) colours: bool,
}

impl Desk {
    fn work(self, tell: &mpsc::Sender<Typed>, may: &Receiver<()>) {
        let (mut editor, mut bell) = self.editor();
        while may.recv().is_ok() {
            let typed = loop {
                if !self.stage.takes_keyboard(bell.clone()) {
                    return;
                }
                let signal = editor.read_line(&self.scene);
                if let Ok(Signal::ExternalBreak(_)) = &signal {
                    // Before the keyboard is free: whoever waits for it writes at once.
                    if let Err(error) = write!(std::io::stderr(), "{}", self.scene.clear()) {
                        tracing::debug!("the terminal was not written: {error}");
                    }
                }
                self.stage.leaves_keyboard();
                match signal {
                    Ok(Signal::Success(line)) => break Typed::Line(line),
                    Ok(Signal::CtrlC) => break Typed::CtrlC { blank: self.scene.is_blank() },
                    Ok(Signal::CtrlD) => break Typed::End,
                    Ok(Signal::ExternalBreak(line)) => {
                        // A new editor: this one would paint over what was said meanwhile.
                        let at = editor.current_insertion_point();
                        drop(editor);
                        (editor, bell) = self.editor();
                        editor.run_edit_commands(&[
                            EditCommand::InsertString(line),
                            EditCommand::MoveToPosition { position: at, select: false },
                        ]);
                    }
                    Ok(_) => {}
                    Err(error) => break Typed::Fault(error.to_string()),
                }
            };
            // What was typed outlives a sudden end, too.
            if let Err(error) = editor.sync_history() {
                tracing::debug!("{}: {error}", self.history.display());
            }
            if tell.blocking_send(typed).is_err() {
                return;
            }
        }
    }

    fn editor(&self) -> (Reedline, Bell) {
        let mut keys = default_emacs_keybindings();
        let next = vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext];
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, ReedlineEvent::UntilFound(next));
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
        let menu = Box::new(ColumnarMenu::default().with_name(MENU).with_columns(4));
        let printer = ExternalPrinter::new(1);
        let (stop, above) = (Arc::<AtomicBool>::default(), printer.sender());
        let mut editor = Reedline::create()
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_completer(Box::new(Completions(self.words.clone())))
            .with_menu(ReedlineMenu::EngineCompleter(menu))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_highlighter(Box::new(Watched(self.scene.clone())))
            .with_transient_prompt(Box::new(Entered))
            .with_ansi_colors(self.colours)
            .with_history_exclusion_prefix(Some(" ".to_owned()))
            .with_external_printer(printer)
            .with_break_signal(Arc::clone(&stop))
            .with_poll_interval(LOOK)
            .use_bracketed_paste(true);
        if let Some(kept) = self.kept() {
            editor = editor.with_history(Box::new(kept));
        }
        let painter = editor.repaint_signal();
        let repaint = Arc::new(move || painter.request_repaint());
        (editor, Bell { stop, above, token: TOKEN, repaint })
    }

    /// What was typed before. Without it the line is edited all the same.
    fn kept(&self) -> Option<FileBackedHistory> {
        let kept = history::prepare(&self.history).map_err(|error| error.to_string()).and_then(|()| {
            FileBackedHistory::with_file(HISTORY_ENTRIES, self.history.clone()).map_err(|error| error.to_string())
        });
        kept.inspect_err(|error| tracing::warn!("{}: {error}; lines are not kept", self.history.display())).ok()
    }
}
