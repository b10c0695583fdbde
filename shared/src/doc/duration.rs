//! Durations as people write them.

use std::time::Duration;

/// Longer than a year is a slip, and keeps sums of durations far from overflow.
const MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Reads `10m`, `1s`, `500ms`, `1h30m`, `1.5s`. The error says what to write.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{} is not a duration, expected one such as 10m, 1s or 500ms", crate::show::quoted(text, 40));
    let mut rest = text.trim();
    if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(format!("{} has no unit, expected a duration such as {}s", crate::show::quoted(text, 40), rest));
    }
    if rest.is_empty() {
        return Err(bad());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (amount, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let unit_seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(bad()),
        };
        seconds += amount.parse::<f64>().map_err(|_| bad())? * unit_seconds;
        rest = tail;
    }
    seconds_of(seconds).map_err(|_| format!("{} is too long, expected at most 366d", crate::show::quoted(text, 40)))
}

/// Seconds as a number, to the millisecond.
pub(super) fn seconds_of(seconds: f64) -> Result<Duration, String> {
    if !seconds.is_finite() || seconds < 0.0 || seconds > MAX.as_secs_f64() {
        return Err(format!("{seconds} seconds is out of range, expected 0s to 366d"));
    }
    // `as` saturates, and the range above lies well inside u64.
    Ok(Duration::from_millis((seconds * 1000.0).round() as u64))
}
