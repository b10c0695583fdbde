//! When restarting a server becomes "failed": a pure count of crashes, reset by sustained uptime, and a time for who is only away.

use std::time::Duration;

use tokio::time::Instant;
use vance_shared::launch::RestartBudget;

/// A server that nobody answers for counts as failed after this time: a router's or a host's restart takes minutes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// After a server counts as failed, how often it is tried nevertheless: what was missing may have been installed meanwhile.
pub(crate) const SLOW_RETRY: Duration = Duration::from_secs(60);

/// What the end of a server means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Start it again.
    Restart,
    /// It failed for now: start it again after [`SLOW_RETRY`].
    Failed,
}

/// Why a server ended, or could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It crashed, or answers what cannot be used: another try may help.
    Broken,
    /// Nobody answers at its address. That passes by itself, mostly.
    Away,
    /// Another try alone cannot help.
    Hopeless,
}

/// Ends in a row without sustained uptime in between.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    ends: u32,
    /// Since when nobody answers.
    away: Option<Instant>,
}

impl Budget {
    /// The server ended after it had been up for `uptime` (zero if it never was).
    pub(crate) fn ended(&mut self, now: Instant, uptime: Duration, cause: Cause, limits: &RestartBudget) -> Verdict {
        if uptime >= limits.within {
            self.ends = 0;
        }
        if uptime > Duration::ZERO || cause != Cause::Away {
            self.away = None;
        }
        let is_over = match cause {
            Cause::Hopeless => true,
            Cause::Away => now.saturating_duration_since(*self.away.get_or_insert(now)) >= PATIENCE,
            Cause::Broken => {
                self.ends = self.ends.saturating_add(1);
                self.ends > limits.max_restarts
            }
        };
        if is_over { Verdict::Failed } else { Verdict::Restart }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_loop_is_told_from_a_bad_day() {
        let limits = RestartBudget { max_restarts: 2, within: Duration::from_secs(60) };
        let mut budget = Budget::default();
        let now = Instant::now();
        for (uptime, cause, want) in [
            (0, Cause::Broken, Verdict::Restart),
            (59, Cause::Broken, Verdict::Restart),
            (59, Cause::Broken, Verdict::Failed),
            (0, Cause::Broken, Verdict::Failed),
            (60, Cause::Broken, Verdict::Restart),
            (0, Cause::Hopeless, Verdict::Failed),
            (3600, Cause::Broken, Verdict::Restart),
        ] {
            assert_eq!(budget.ended(now, Duration::from_secs(uptime), cause, &limits), want, "{uptime} {cause:?}");
        }
        let never = RestartBudget { max_restarts: 0, within: Duration::from_secs(60) };
        assert_eq!(Budget::default().ended(now, Duration::ZERO, Cause::Broken, &never), Verdict::Failed);
    }

    #[test]
    fn who_is_away_is_waited_for_however_often_nobody_answers() {
        let limits = RestartBudget { max_restarts: 0, within: Duration::from_secs(60) };
        let (mut budget, begin, second) = (Budget::default(), Instant::now(), Duration::from_secs(1));
        assert_eq!(budget.ended(begin, 5 * second, Cause::Away, &limits), Verdict::Restart);
        for tries in 1..300 {
            let verdict = budget.ended(begin + tries * second, Duration::ZERO, Cause::Away, &limits);
            assert_eq!(verdict, Verdict::Restart, "after {tries} s");
        }
        for later in [PATIENCE, 2 * PATIENCE] {
            assert_eq!(budget.ended(begin + later, Duration::ZERO, Cause::Away, &limits), Verdict::Failed);
        }
        assert_eq!(budget.ended(begin + 3 * PATIENCE, second, Cause::Away, &limits), Verdict::Restart, "it was back");
    }
}
