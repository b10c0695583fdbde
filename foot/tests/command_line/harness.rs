//! One run of the program inside the test, with its output and its Ctrl-C in the test's hands.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use vance_foot::cli::{Environment, Interrupt, Interrupts, Screen, execute};

use crate::fake_brain::{FakeBrain, TOKEN};

/// No wait for an event lasts so long on a machine that works.
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
pub struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    pub fn get(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Running {
    pub out: Text,
    pub err: Text,
    interrupts: mpsc::Sender<Interrupt>,
    done: oneshot::Receiver<u8>,
}

/// What a run left.
#[derive(Debug)]
pub struct Ended {
    pub exit: u8,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

pub fn start(line: &str, environment: Environment) -> Running {
    // The first test of the process installs it, the others find it.
    drop(rustls::crypto::ring::default_provider().install_default());
    let (out, err) = (Text::default(), Text::default());
    let (interrupts, wishes) = mpsc::channel(8);
    let screen = Screen::into_writers(Box::new(out.clone()), Box::new(err.clone()));
    let words: Vec<String> = std::iter::once("vancetope").chain(line.split_whitespace()).map(str::to_owned).collect();
    let (tell, done) = oneshot::channel();
    std::thread::spawn(move || {
        let run = execute(words, environment, screen, Interrupts::from_channel(wishes));
        tell.send(vance_supervise::run(1, run).unwrap())
    });
    Running { out, err, interrupts, done }
}

impl Running {
    pub async fn presses_ctrl_c(&self) {
        self.interrupts.send(Interrupt::CtrlC).await.unwrap();
    }

    /// Waits until standard output and error together hold a text.
    pub async fn says(&self, text: &str) {
        until(|| self.out.get().contains(text) || self.err.get().contains(text))
            .await
            .unwrap_or_else(|()| panic!("never said {text:?}; out: {}; err: {}", self.out.get(), self.err.get()));
    }

    pub async fn ends(self) -> Ended {
        let exit = tokio::time::timeout(LIMIT, self.done).await;
        let (out, err) = (self.out.get(), self.err.get());
        let exit = exit.unwrap_or_else(|_| panic!("never ended; out: {out}; err: {err}")).unwrap();
        Ended { exit, out, err }
    }
}

pub async fn until(mut holds: impl FnMut() -> bool) -> Result<(), ()> {
    for _ in 0..LIMIT.as_millis() / 5 {
        if holds() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(())
}

pub fn environment(home: &Path) -> Environment {
    Environment {
        vance_home: Some(home.to_owned()),
        token: Some(TOKEN.to_owned()),
        program: Some(env!("CARGO_BIN_EXE_vancetope").into()),
        ..Environment::default()
    }
}

/// One command against a Brain, from its start to its end.
pub async fn vancetope(brain: &FakeBrain, line: &str) -> Ended {
    let home = tempfile::tempdir().unwrap();
    start(&format!("--brain {} {line}", brain.url()), environment(home.path())).ends().await
}
