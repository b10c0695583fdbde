//! Now, in words.

use chrono::{DateTime, SecondsFormat, Utc};

fn now() -> DateTime<Utc> {
    std::time::SystemTime::now().into()
}

/// `2026-03-01`, in UTC.
pub(super) fn today() -> String {
    now().date_naive().to_string()
}

/// `2026-03-01T12:00:00Z`.
pub(super) fn instant() -> String {
    now().to_rfc3339_opts(SecondsFormat::Secs, true)
}
