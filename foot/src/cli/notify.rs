//! The service manager's protocol (`sd_notify`): says that the service is up, ends, and lives. Without `NOTIFY_SOCKET` nothing is said.

use std::convert::Infallible;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager, if one listens.
pub(super) struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    every: Option<Duration>,
}

impl Notify {
    /// From this process's environment.
    pub(super) fn of_process() -> Self {
        let text = |name: &str| std::env::var(name).ok();
        let socket = text("NOTIFY_SOCKET").and_then(|name| match open(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!("NOTIFY_SOCKET: {error}; the service manager is not told anything");
                None
            }
        });
        let every = watchdog(text("WATCHDOG_USEC").as_deref(), text("WATCHDOG_PID").as_deref(), std::process::id());
        Self { socket, every }
    }

    /// The first load has ended: from here on everything works that can.
    pub(super) fn ready(&self) {
        self.say("READY=1");
    }

    /// A line for `systemctl status`.
    pub(super) fn status(&self, text: &str) {
        self.say(&format!("STATUS={text}"));
    }

    /// The end has begun.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// Says again and again that this thread's loop turns. Never ends.
    pub(super) async fn lives(&self) -> Infallible {
        let Some(every) = self.every else { return std::future::pending().await };
        let mut turns = tokio::time::interval(every);
        loop {
            turns.tick().await;
            self.say("WATCHDOG=1");
        }
    }

    fn say(&self, text: &str) {
        let Some((socket, to)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), to) {
            tracing::debug!("the service manager was not told {text}: {error}");
        }
    }
}

fn open(name: &str) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // A service manager that does not read must not stop us.
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}

/// How often to say that we live: twice within what the service manager allows, if it means this process.
fn watchdog(micros: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
        return None;
    }
    micros?.parse().ok().filter(|micros| *micros > 0).map(|micros: u64| Duration::from_micros(micros) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_fed_twice_within_its_time_by_the_process_that_is_meant() {
        for (micros, pid, want) in [
            (Some("30000000"), None, Some(Duration::from_secs(15))),
            (Some("30000000"), Some("7"), Some(Duration::from_secs(15))),
            (Some("30000000"), Some("8"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, None, None),
        ] {
            assert_eq!(watchdog(micros, pid, 7), want, "{micros:?} {pid:?}");
        }
    }
}
