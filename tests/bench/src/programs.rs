//! Brain and Foot as processes, and the Brain's API.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// What a program has to say, or a state to come about, within this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of output that are kept; more say nothing new.
const LINES: usize = 256;

/// A home, and beside it the working directory of its Foot.
pub(crate) struct Home(TempDir);

impl Home {
    /// An empty one.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("vance-bench-").tempdir()?;
        std::fs::create_dir_all(dir.path().join("project"))?;
        Ok(Self(dir))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("home")
    }

    /// Writes a file below it.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        Ok(std::fs::write(path, text)?)
    }

    fn command(&self, program: &str, args: &[&str]) -> anyhow::Result<Command> {
        let exe = std::env::current_exe()?;
        let path = exe.with_file_name(program);
        anyhow::ensure!(path.exists(), "{} is not built: `make bench` builds it", path.display());
        #[allow(clippy::disallowed_methods)] // killed when it is dropped, or waited for
        let mut command = Command::new(path);
        command
            .args(args)
            .env("VANCE_HOME", self.path())
            .env("NO_COLOR", "1")
            .current_dir(self.0.path().join("project"));
        for name in ["VANCE_BRAIN", "VANCE_TOKEN", "OTEL_EXPORTER_OTLP_ENDPOINT"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a program to its end, which must be a good one.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> anyhow::Result<()> {
        self.output(program, args).map(drop)
    }

    /// The same, with what it prints.
    pub(crate) fn output(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        let done = self.command(program, args)?.output()?;
        anyhow::ensure!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?)
    }
}

/// A running program. Dropping it kills it.
pub(crate) struct Program {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Program {
    fn start(home: &Home, program: &str, args: &[&str]) -> anyhow::Result<Self> {
        let log = home.0.path().join(format!("{program}.log"));
        let mut command = home.command(program, args)?;
        let mut child = command.stdout(Stdio::piped()).stderr(std::fs::File::create(&log)?).spawn()?;
        let output = BufReader::new(child.stdout.take().context("stdout")?);
        let (tell, lines) = sync_channel(LINES);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // Read on: a full pipe would stop the program.
                tell.try_send(line).ok();
            }
        });
        Ok(Self { child, lines, log })
    }

    fn line(&self, prefix: &str) -> anyhow::Result<String> {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).with_context(|| {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                format!("no line '{prefix}…'; its log: {log}")
            })?;
            if let Some(rest) = line.strip_prefix(prefix) {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> anyhow::Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// Lets it end.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.pid()?), Signal::SIGTERM)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A Brain that serves.
pub(crate) struct Brain {
    /// Its process.
    pub(crate) program: Program,
    /// `HOST:PORT`.
    pub(crate) addr: String,
    /// Its local token.
    pub(crate) token: String,
}

impl Brain {
    /// Starts one on a free port.
    pub(crate) fn start(home: &Home) -> anyhow::Result<Self> {
        let program = Program::start(home, "vance-brain", &["serve", "--listen", "127.0.0.1:0"])?;
        let addr = program.line("brain ready http://")?;
        let token = std::fs::read_to_string(home.path().join("brain/local.token"))?.trim().to_owned();
        Ok(Self { program, addr, token })
    }

    /// Starts a Foot of the same home, and waits until the Brain offers these tools.
    pub(crate) fn foot(&self, home: &Home, tools: &[&str]) -> anyhow::Result<Program> {
        let foot = self.young_foot(home)?;
        foot.line("foot ready")?;
        for tool in tools {
            self.until(&format!("{tool} is there"), || {
                let body = self.get("/api/v1/sessions/default.local/tools")?;
                let all: Value = serde_json::from_str(&body)?;
                let there = |t: &Value| t["name"] == *tool && t["available"] == true;
                Ok(all["tools"].as_array().is_some_and(|tools| tools.iter().any(there)))
            })?;
        }
        Ok(foot)
    }

    /// Starts a Foot of the same home, which has loaded nothing yet.
    pub(crate) fn young_foot(&self, home: &Home) -> anyhow::Result<Program> {
        Program::start(home, "vancetope", &["--daemon", "--brain", &format!("http://{}", self.addr)])
    }

    /// Waits until something holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        while !holds()? {
            anyhow::ensure!(Instant::now() < until, "not within {} s: {what}", PATIENCE.as_secs());
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// GET; the body of a good answer.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<String> {
        self.ask("GET", path, "")
    }

    /// POST; the body of a good answer.
    pub(crate) fn post(&self, path: &str, body: &str) -> anyhow::Result<String> {
        self.ask("POST", path, body)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(&self.addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (host, token, length) = (&self.addr, &self.token, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\ncontent-type: application/yaml\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer")?;
        anyhow::ensure!(head.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
        Ok(body.to_owned())
    }
}

/// A path below `target/PROFILE` of this program.
pub(crate) fn profile() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    exe.parent().map(Path::to_owned).unwrap_or_default()
}
