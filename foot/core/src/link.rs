//! When to connect, when to ask whether the line lives, when to give it up, when to stop.
//!
//! | state | connected, welcomed | failed, closed | tick |
//! |---|---|---|---|
//! | waiting until | - | - | due: connect; the machine slept: connect at once |
//! | connecting | online | wait for the backoff | longer than [`CONNECT_WITHIN`]: drop, wait |
//! | online | - | lost: wait for the backoff (the first time not at all) | ping; too long silent: drop, wait |
//! | refused | - | - | due ([`KNOCK`]): connect |
//! | stopped | - | - | nothing until [`Event::Start`] |
//!
//! A connection attempt comes at once, then after 0.5, 1, 2, … 30 s with jitter, for ever. Attempts count from zero again
//! once a line stayed up for [`SUSTAINED`]. What a person can mend on the Brain's side (a token, a scope, an allowed host) is tried again now
//! and then: nobody comes by to start each machine anew.

use std::time::Duration;

use vance_shared::wire::{CLOSE_FORBIDDEN, CLOSE_PROTOCOL, CLOSE_SUPERSEDED, CLOSE_UNAUTHORIZED};

/// The first wait between attempts.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// The longest wait between attempts.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// From the first packet to the Brain's welcome: name resolution, TLS and a busy Brain fit; a black hole does not hold us.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// A line that stayed up this long was good: the next attempt after it comes at once. Also the pace of free attempts.
pub const SUSTAINED: Duration = Duration::from_secs(10);
/// A Foot that was refused knocks again after this long, or up to half as much longer: a mended Brain has its machines back within two minutes,
/// and those that stay refused cost it next to nothing.
pub const KNOCK: Duration = Duration::from_secs(60);
/// How long a line may take to answer after the machine slept.
pub const PROBE_WITHIN: Duration = Duration::from_secs(3);
/// A wall clock that jumped by more than this against the monotonic clock means a sleep (or a clock that was set: a test is harmless).
pub const SLEEP_JUMP: Duration = Duration::from_secs(3);
/// Bounds of the heartbeat that a Brain may ask for: neither a busy loop nor a line that is never tested.
pub const HEARTBEAT_BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// The longest time between two ticks: a sleep is noticed this soon after waking up.
pub const TICK: Duration = Duration::from_secs(1);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Begin, or begin again after a stop.
    Start,
    /// The Brain's welcome came.
    Welcomed {
        /// The pace of pings that it asks for.
        heartbeat: Duration,
        /// Silent heartbeats until the line counts as dead.
        misses: u32,
    },
    /// The line is gone, or never came up.
    Ended(End),
    /// Time passed. `wall` is the wall clock since any fixed point; `heard` is when the last frame came (monotonic).
    Tick {
        /// Wall clock.
        wall: Duration,
        /// Monotonic time of the last frame of this line.
        heard: Duration,
    },
}

/// How a line ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// No connection, an error, or the end of the stream; for people.
    Broken(String),
    /// A close frame.
    Closed {
        /// Its code.
        code: u16,
        /// Its text.
        reason: String,
    },
    /// The Brain answered the upgrade with this HTTP status instead.
    Refused {
        /// The status.
        status: u16,
    },
}

/// Why the Foot does not go on trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// A later connection with the same identity took over.
    #[error(
        "another process took over this client's identity, this one stops; start a second Foot with its own VANCE_HOME"
    )]
    Superseded,
    /// The token is not good.
    #[error(
        "the Brain does not accept the token (any more): get one from whoever runs the Brain (`vance-brain token new --name NAME`) and store it with `vancetope login URL`, or set VANCE_TOKEN; on the Brain's own machine, use its VANCE_HOME"
    )]
    Unauthorized,
    /// The session is somebody else's, or the token's scope is too small.
    #[error(
        "the Brain refuses this session, this token's scope or the host name of its URL; leave --session out, use a token with scope foot of the session's owner, or add the host to allowed_hosts in brain.yaml"
    )]
    Forbidden,
    /// No common version.
    #[error("this Foot and the Brain have no common protocol version; update the older of the two")]
    Protocol,
}

/// What to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a line.
    Connect,
    /// Ask whether the line lives.
    Ping,
    /// Close the line without waiting for the other side.
    Drop {
        /// For the log.
        why: String,
    },
    /// Say once that the Brain cannot be reached, and that it is tried for ever.
    SayLost {
        /// For people.
        why: String,
    },
    /// Say why and what to do, and do not go on trying: a refusal that may pass is tried again by itself, rarely.
    Stop(Stop),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Waiting { until: Duration },
    Connecting { since: Duration },
    Online { since: Duration, heartbeat: Duration, misses: u32, next_ping: Duration, probe_until: Option<Duration> },
    Refused { until: Duration },
    Stopped,
}

/// The line's machine. Times are monotonic, from any fixed point.
#[derive(Debug)]
pub struct Link {
    state: State,
    /// Attempts since a good line; the n-th waits `backoff(n)`.
    attempts: u32,
    last_fresh: Option<Duration>,
    clocks: Option<(Duration, Duration)>,
    said_lost: bool,
    /// The refusal that was said: one that stays is said once.
    said_stop: Option<Stop>,
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

impl Link {
    /// A link that has not begun.
    pub fn new() -> Self {
        Self { state: State::Stopped, attempts: 0, last_fresh: None, clocks: None, said_lost: false, said_stop: None }
    }

    /// True between welcome and end.
    pub fn is_online(&self) -> bool {
        matches!(self.state, State::Online { .. })
    }

    /// True if it does not go on trying.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped | State::Refused { .. })
    }

    /// How long until the next tick must come.
    pub fn next_tick(&self, now: Duration) -> Duration {
        let due = match &self.state {
            State::Waiting { until } | State::Refused { until } => *until,
            State::Connecting { since } => *since + CONNECT_WITHIN,
            State::Online { next_ping, probe_until, .. } => probe_until.map_or(*next_ping, |p| p.min(*next_ping)),
            State::Stopped => now + TICK,
        };
        due.saturating_sub(now).min(TICK)
    }

    /// Takes an event at the monotonic time `now`. `jitter` is any number; it spreads the waits.
    pub fn apply(&mut self, now: Duration, event: Event, jitter: u32) -> Vec<Action> {
        match event {
            Event::Start => {
                if !self.is_stopped() {
                    return Vec::new();
                }
                self.attempts = 0;
                self.said_stop = None;
                self.connect(now)
            }
            Event::Welcomed { heartbeat, misses } => self.welcomed(now, heartbeat, misses),
            Event::Ended(end) => self.ended(now, end, jitter),
            Event::Tick { wall, heard } => self.tick(now, wall, heard, jitter),
        }
    }

    fn connect(&mut self, now: Duration) -> Vec<Action> {
        self.attempts = self.attempts.saturating_add(1);
        self.state = State::Connecting { since: now };
        vec![Action::Connect]
    }

    fn welcomed(&mut self, now: Duration, heartbeat: Duration, misses: u32) -> Vec<Action> {
        if !matches!(self.state, State::Connecting { .. }) {
            return Vec::new();
        }
        let heartbeat = heartbeat.clamp(HEARTBEAT_BOUNDS.0, HEARTBEAT_BOUNDS.1);
        let next_ping = now + heartbeat;
        self.state = State::Online { since: now, heartbeat, misses: misses.max(1), next_ping, probe_until: None };
        // One cut is repaired at once; a Brain that welcomes and hangs up in a loop is not hammered.
        if self.last_fresh.is_none_or(|at| now.saturating_sub(at) >= SUSTAINED) {
            self.last_fresh = Some(now);
            self.attempts = 0;
        }
        self.said_lost = false;
        self.said_stop = None;
        Vec::new()
    }

    fn ended(&mut self, now: Duration, end: End, jitter: u32) -> Vec<Action> {
        if !matches!(self.state, State::Connecting { .. } | State::Online { .. }) {
            return Vec::new();
        }
        let stop = match &end {
            End::Closed { code: CLOSE_SUPERSEDED, .. } => Some(Stop::Superseded),
            End::Closed { code: CLOSE_UNAUTHORIZED, .. } | End::Refused { status: 401 } => Some(Stop::Unauthorized),
            End::Closed { code: CLOSE_FORBIDDEN, .. } | End::Refused { status: 403 } => Some(Stop::Forbidden),
            End::Closed { code: CLOSE_PROTOCOL, .. } => Some(Stop::Protocol),
            End::Closed { .. } | End::Refused { .. } | End::Broken(_) => None,
        };
        if let Some(stop) = stop {
            self.state = match stop {
                Stop::Unauthorized | Stop::Forbidden => {
                    State::Refused { until: now + KNOCK + spread(KNOCK / 2, jitter) }
                }
                Stop::Superseded | Stop::Protocol => State::Stopped,
            };
            let is_new = self.said_stop.replace(stop) != Some(stop);
            return if is_new { vec![Action::Stop(stop)] } else { Vec::new() };
        }
        let why = match end {
            End::Broken(why) => why,
            End::Closed { code, reason } if reason.is_empty() => format!("closed with code {code}"),
            End::Closed { code, reason } => format!("closed with code {code}: {reason}"),
            End::Refused { status } => format!("HTTP status {status} instead of a WebSocket"),
        };
        self.lost(now, why, jitter)
    }

    fn lost(&mut self, now: Duration, why: String, jitter: u32) -> Vec<Action> {
        if let State::Online { since, .. } = self.state
            && now.saturating_sub(since) >= SUSTAINED
        {
            self.attempts = 0;
        }
        self.said_stop = None;
        let mut actions = Vec::new();
        if !self.said_lost {
            self.said_lost = true;
            actions.push(Action::SayLost { why });
        }
        let wait = backoff(self.attempts, jitter);
        if wait.is_zero() {
            actions.extend(self.connect(now));
        } else {
            self.state = State::Waiting { until: now + wait };
        }
        actions
    }

    fn tick(&mut self, now: Duration, wall: Duration, heard: Duration, jitter: u32) -> Vec<Action> {
        let slept = self.slept(now, wall);
        match &mut self.state {
            State::Stopped => Vec::new(),
            State::Refused { until } => {
                if now < *until {
                    return Vec::new();
                }
                self.attempts = 0;
                self.connect(now)
            }
            State::Waiting { until } => {
                if slept || now >= *until {
                    self.connect(now)
                } else {
                    Vec::new()
                }
            }
            State::Connecting { since } => {
                if now.saturating_sub(*since) < CONNECT_WITHIN {
                    return Vec::new();
                }
                self.give_up(now, format!("no answer within {} s", CONNECT_WITHIN.as_secs()), jitter)
            }
            State::Online { since, heartbeat, misses, next_ping, probe_until } => {
                let silent = now.saturating_sub(heard.max(*since));
                if let Some(until) = *probe_until {
                    if heard + PROBE_WITHIN > until {
                        *probe_until = None;
                    } else if now >= until {
                        return self.give_up(now, "the line did not answer after a sleep".to_owned(), jitter);
                    }
                }
                if silent >= *heartbeat * *misses {
                    let why = format!("silent for {} heartbeats", *misses);
                    return self.give_up(now, why, jitter);
                }
                if slept {
                    // The probe began before anything heard from here on.
                    *probe_until = Some(now + PROBE_WITHIN);
                } else if now < *next_ping {
                    return Vec::new();
                }
                *next_ping = now + *heartbeat;
                vec![Action::Ping]
            }
        }
    }

    fn give_up(&mut self, now: Duration, why: String, jitter: u32) -> Vec<Action> {
        let mut actions = vec![Action::Drop { why: why.clone() }];
        actions.extend(self.lost(now, why, jitter));
        actions
    }

    fn slept(&mut self, now: Duration, wall: Duration) -> bool {
        let before = self.clocks.replace((now, wall));
        before.is_some_and(|(then, wall_then)| {
            let monotonic = now.saturating_sub(then);
            wall.abs_diff(wall_then + monotonic) > SLEEP_JUMP
        })
    }
}

/// The wait before the attempt that follows `attempts` others: none, then 0.5 s doubling to 30 s, shortened by up to half.
pub fn backoff(attempts: u32, jitter: u32) -> Duration {
    let Some(doublings) = attempts.checked_sub(1) else { return Duration::ZERO };
    let whole = BACKOFF_FIRST.saturating_mul(1 << doublings.min(16)).min(BACKOFF_MAX);
    let half = whole / 2;
    half + spread(half, jitter)
}

fn spread(most: Duration, jitter: u32) -> Duration {
    most.mul_f64(f64::from(jitter) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
