//! What the system says of a process and of the disk.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// A tick of the clock in `/proc/PID/stat`: a hundredth of a second on every Linux that there is.
const TICK: Duration = Duration::from_millis(10);

/// Processor time of processes with all their threads, children not counted.
pub(crate) fn cpu(pids: &[i32]) -> anyhow::Result<Duration> {
    let mut ticks = 0u32;
    for pid in pids {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, rest) = stat.rsplit_once(") ").context("stat")?;
        // utime and stime: the fields 14 and 15, and `rest` begins with the third.
        for field in rest.split(' ').skip(11).take(2) {
            ticks += field.parse::<u32>()?;
        }
    }
    Ok(TICK * ticks)
}

/// Resident memory in KiB.
pub(crate) fn memory_kib(pid: i32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// As many open files as are allowed.
pub(crate) fn raise_open_files() -> anyhow::Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// The middle time of one flush of a page of a file there, in microseconds. The file has its size before, as a log that is used
/// again: where it grows, the file system writes its own journal too, and a flush costs ten times as much.
pub(crate) fn flush_micros(dir: &Path, times: usize) -> anyhow::Result<f64> {
    let path = dir.join("flush");
    std::fs::write(&path, vec![0; 4096 * times])?;
    let mut file = std::fs::OpenOptions::new().write(true).open(&path)?;
    file.sync_all()?;
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        took.push(begun.elapsed().as_secs_f64() * 1e6);
        // Alone, as a commit that nothing else is near.
        std::thread::sleep(Duration::from_millis(2));
    }
    std::fs::remove_file(&path)?;
    Ok(median(took))
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What the machine does besides: the load of the last minute.
pub(crate) fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}
