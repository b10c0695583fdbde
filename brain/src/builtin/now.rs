//! `now`: date and time, in UTC or at an offset.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};
use vance_shared::call::Outcome;
use vance_shared::tool::ToolResult;

const DAY_SECONDS: i64 = 86_400;
/// From Thursday, the first day of 1970.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

#[derive(Deserialize)]
pub(super) struct Wanted {
    timezone: Option<String>,
}

pub(super) fn schemas() -> (Value, Value) {
    (
        json!({
            "type": "object",
            "properties": {"timezone": {"type": "string", "description": "UTC (the default) or an offset such as +02:00."}},
            "additionalProperties": false
        }),
        json!({
            "type": "object",
            "properties": {
                "time": {"type": "string", "description": "RFC 3339, at the offset."},
                "utc": {"type": "string", "description": "RFC 3339, in UTC."},
                "weekday": {"type": "string", "description": "At the offset."},
                "unix_ms": {"type": "integer"}
            },
            "required": ["time", "utc", "weekday", "unix_ms"]
        }),
    )
}

pub(super) fn run(wanted: Wanted, now: SystemTime) -> Outcome {
    let zone = wanted.timezone.as_deref().unwrap_or("UTC");
    let Some(offset) = offset_minutes(zone) else {
        let zone = vance_shared::show::quoted(zone, 40);
        return Outcome::failed("invalid_argument", format!("timezone is UTC or an offset such as +02:00, got {zone}"));
    };
    // A clock before 1970 is a clock that was never set: it shows as 1970.
    let unix_ms = now.duration_since(UNIX_EPOCH).map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let seconds = unix_ms / 1000;
    let local = seconds + offset * 60;
    let weekday = WEEKDAYS.get(usize::try_from(local.div_euclid(DAY_SECONDS).rem_euclid(7)).unwrap_or(0));
    let (time, utc) = (rfc3339(local, offset), rfc3339(seconds, 0));
    Outcome::Done(ToolResult::structured(json!({"time": time, "utc": utc, "weekday": weekday, "unix_ms": unix_ms})))
}

/// `UTC`, `Z`, `+02:00`, `-0530`, `+2`.
fn offset_minutes(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("utc") || zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some((hours, minutes)) if minutes.len() == 2 => (hours, minutes),
        Some(_) => return None,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
    };
    let number = |text: &str, below: i64| {
        let ok = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<i64>().ok().filter(|n| ok && *n < below)
    };
    Some(sign * (number(hours, 24)? * 60 + number(minutes, 60)?))
}

/// Seconds since 1970, already moved by the offset.
fn rfc3339(seconds: i64, offset: i64) -> String {
    let (days, second) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let zone = match offset {
        0 => "Z".to_owned(),
        _ => format!("{}{:02}:{:02}", if offset < 0 { '-' } else { '+' }, offset.abs() / 60, offset.abs() % 60),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{zone}")
}

/// Days since 1970 to year, month and day: counted in eras of 400 years that begin on 1 March, so that a leap day is last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (seconds, offset, want) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (951_782_400, 0, "2000-02-29T00:00:00Z"),
            (951_868_799, 0, "2000-02-29T23:59:59Z"),
            (951_868_800, 0, "2000-03-01T00:00:00Z"),
            (1_709_164_800, 0, "2024-02-29T00:00:00Z"),
            (1_735_689_599, 0, "2024-12-31T23:59:59Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00Z"),
            (-1, -330, "1969-12-31T23:59:59-05:30"),
            (7200, 120, "1970-01-01T02:00:00+02:00"),
        ] {
            assert_eq!(rfc3339(seconds, offset), want);
        }
    }

    #[test]
    fn a_zone_is_utc_or_an_offset() {
        for (zone, want) in [
            ("UTC", Some(0)),
            ("utc", Some(0)),
            ("Z", Some(0)),
            ("+02:00", Some(120)),
            ("-0530", Some(-330)),
            ("+2", Some(120)),
            ("+24:00", None),
            ("+02:60", None),
            ("+02:0", None),
            ("+", None),
            ("+-2", None),
            ("Europe/Berlin", None),
            ("é", None),
            ("", None),
        ] {
            assert_eq!(offset_minutes(zone), want, "{zone:?}");
        }
    }
}
