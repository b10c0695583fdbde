//! When restarting a server becomes "failed": a pure count, reset by sustained uptime.

use std::time::Duration;

use vance_shared::launch::RestartBudget;

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

/// Ends in a row without sustained uptime in between.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    ends: u32,
}

impl Budget {
    /// The server ended after it had been up for `uptime` (zero if it never was). `hopeless`: another try alone cannot help.
    pub(crate) fn ended(&mut self, uptime: Duration, hopeless: bool, limits: &RestartBudget) -> Verdict {
        if uptime >= limits.within {
            self.ends = 0;
        }
        self.ends = self.ends.saturating_add(1);
        if hopeless || self.ends > limits.max_restarts { Verdict::Failed } else { Verdict::Restart }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_loop_is_told_from_a_bad_day() {
        let limits = RestartBudget { max_restarts: 2, within: Duration::from_secs(60) };
        let mut budget = Budget::default();
        for (uptime, hopeless, want) in [
            (0, false, Verdict::Restart),
            (59, false, Verdict::Restart),
            (59, false, Verdict::Failed),
            (0, false, Verdict::Failed),
            (60, false, Verdict::Restart),
            (0, true, Verdict::Failed),
            (3600, false, Verdict::Restart),
        ] {
            assert_eq!(budget.ended(Duration::from_secs(uptime), hopeless, &limits), want, "{uptime} {hopeless}");
        }
        let never = RestartBudget { max_restarts: 0, within: Duration::from_secs(60) };
        assert_eq!(Budget::default().ended(Duration::ZERO, false, &never), Verdict::Failed);
    }
}
