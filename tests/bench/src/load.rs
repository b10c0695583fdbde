//! The load: a closed loop over kept connections. Each of them sends its next request when it has its answer.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// An answer that takes longer fails the run.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Where requests go, and the bytes of one.
#[derive(Clone)]
pub(crate) struct Target {
    addr: String,
    request: Vec<u8>,
    /// What every good answer holds.
    holds: &'static str,
}

impl Target {
    /// A POST of a JSON or YAML body.
    pub(crate) fn post(addr: &str, path: &str, token: &str, kind: &str, body: &str, holds: &'static str) -> Self {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {token}\r\ncontent-type: application/{kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        Self { addr: addr.to_owned(), request: request.into_bytes(), holds }
    }
}

/// What a run gave.
pub(crate) struct Run {
    /// Time of each call, sorted.
    times: Vec<Duration>,
    /// All together.
    took: Duration,
}

impl Run {
    fn of(mut times: Vec<Duration>, took: Duration) -> Self {
        times.sort_unstable();
        Self { times, took }
    }

    /// The time within which that share of the calls ended, in microseconds.
    pub(crate) fn micros(&self, share: f64) -> f64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let at = (self.times.len() as f64 * share) as usize;
        self.times.get(at).or(self.times.last()).map_or(f64::NAN, |t| t.as_secs_f64() * 1e6)
    }

    /// Calls.
    pub(crate) fn calls(&self) -> f64 {
        f64::from(u32::try_from(self.times.len()).unwrap_or(u32::MAX))
    }

    /// Calls a second.
    pub(crate) fn rate(&self) -> f64 {
        self.calls() / self.took.as_secs_f64()
    }
}

/// One call after another, as many as given, from this thread and without any runtime.
pub(crate) fn alone(target: &Target, calls: usize, pause: Duration) -> anyhow::Result<Run> {
    let mut stream = std::net::TcpStream::connect(&target.addr)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut buffer = vec![0; 256 * 1024];
    let mut times = Vec::with_capacity(calls);
    let begun = Instant::now();
    for _ in 0..calls {
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let sent = Instant::now();
        stream.write_all(&target.request)?;
        let mut filled = 0;
        loop {
            let read = stream.read(buffer.get_mut(filled..).context("an answer of 256 KiB at most")?)?;
            anyhow::ensure!(read > 0, "the connection was closed");
            filled += read;
            let answer = buffer.get(..filled).unwrap_or_default();
            if let Some((head, length)) = head(answer)
                && filled >= head + length
            {
                times.push(sent.elapsed());
                check(answer, target.holds)?;
                break;
            }
        }
    }
    Ok(Run::of(times, begun.elapsed()))
}

/// Calls on so many connections for that long.
pub(crate) fn together(target: &Target, connections: usize, lasting: Duration) -> anyhow::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    let begun = Instant::now();
    let until = begun + lasting;
    let times = tasks.block_on(&runtime, async {
        let running: Vec<_> =
            (0..connections).map(|_| tokio::task::spawn_local(one(target.clone(), until, Duration::ZERO))).collect();
        let mut times = Vec::new();
        for task in running {
            times.extend(
                tokio::time::timeout(lasting + ANSWER_WITHIN, task).await.context("an answer did not come")???,
            );
        }
        anyhow::Ok(times)
    })?;
    Ok(Run::of(times, begun.elapsed()))
}

/// Calls to each of these for that long, each over a connection of its own, with a pause after each.
pub(crate) fn spread(targets: &[Target], lasting: Duration, pause: Duration) -> anyhow::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    let begun = Instant::now();
    let until = begun + lasting;
    let times = tasks.block_on(&runtime, async {
        let spawn = |target: &Target| tokio::task::spawn_local(one(target.clone(), until, pause));
        let running: Vec<_> = targets.iter().map(spawn).collect();
        let mut times = Vec::new();
        for task in running {
            let within = lasting + ANSWER_WITHIN;
            times.extend(tokio::time::timeout(within, task).await.context("an answer did not come")???);
        }
        anyhow::Ok(times)
    })?;
    Ok(Run::of(times, begun.elapsed()))
}

async fn one(target: Target, until: Instant, pause: Duration) -> anyhow::Result<Vec<Duration>> {
    let mut stream = tokio::net::TcpStream::connect(&target.addr).await?;
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(16 * 1024);
    let mut times = Vec::new();
    while Instant::now() < until {
        let sent = Instant::now();
        stream.write_all(&target.request).await?;
        buffer.clear();
        loop {
            anyhow::ensure!(stream.read_buf(&mut buffer).await? > 0, "the connection was closed");
            if let Some((head, length)) = head(&buffer)
                && buffer.len() >= head + length
            {
                break;
            }
        }
        times.push(sent.elapsed());
        check(&buffer, target.holds)?;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    Ok(times)
}

fn check(answer: &[u8], holds: &str) -> anyhow::Result<()> {
    let found = holds.is_empty() || answer.windows(holds.len()).any(|w| w == holds.as_bytes());
    anyhow::ensure!(
        found && answer.starts_with(b"HTTP/1.1 20"),
        "an answer without '{holds}': {}",
        String::from_utf8_lossy(answer.get(..answer.len().min(2_000)).unwrap_or_default())
    );
    Ok(())
}

/// Where the body begins, and its length.
pub(crate) fn head(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut from = 0;
    let mut length = 0;
    loop {
        let line = bytes.get(from..)?;
        let end = line.iter().position(|b| *b == b'\n')?;
        let line = line.get(..end)?;
        from += end + 1;
        if line == b"\r" {
            return Some((from, length));
        }
        let name = line.get(..15).unwrap_or_default();
        if name.eq_ignore_ascii_case(b"content-length:") {
            length = std::str::from_utf8(line.get(15..)?).ok()?.trim().parse().ok()?;
        }
    }
}
