//! Ages and durations for people: `12s`, `3m`, `5h`, `2d`.

use jiff::Timestamp;

/// Formats a duration in its largest unit.
#[must_use]
pub fn short(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{}s", seconds.max(0)),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats the time that is left in its largest unit, rounded up.
#[must_use]
pub fn left(seconds: i64) -> String {
    match seconds {
        ..60 => short(seconds),
        60..3_541 => short((seconds + 59) / 60 * 60),
        3_541..169_201 => short((seconds + 3_599) / 3_600 * 3_600),
        _ => short((seconds + 86_399) / 86_400 * 86_400),
    }
}

/// Returns the seconds from an RFC 3339 time to `now`; `None` if the text is not a time.
#[must_use]
pub fn seconds_since(time: &str, now: Timestamp) -> Option<i64> {
    let then: Timestamp = time.parse().ok()?;
    Some(now.as_second() - then.as_second())
}

/// Formats a time as its age if `relative`, else unchanged.
#[must_use]
pub fn shown(time: &str, now: Timestamp, relative: bool) -> String {
    match seconds_since(time, now) {
        Some(seconds) if relative => short(seconds),
        _ => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_left_is_rounded_up() {
        let shown: Vec<String> = [59, 61, 3_541, 86_399, 172_800, 172_801]
            .into_iter()
            .map(left)
            .collect();
        assert_eq!(shown, ["59s", "2m", "1h", "24h", "2d", "3d"]);
    }

    #[test]
    fn ages_are_short_and_never_negative() {
        let shown: Vec<String> = [-3, 59, 60, 3_599, 7_200, 172_800]
            .into_iter()
            .map(short)
            .collect();
        assert_eq!(shown, ["0s", "59s", "1m", "59m", "2h", "2d"]);
    }

    #[test]
    fn times_are_relative_for_terminals_only() {
        let now: Timestamp = "2026-01-02T10:00:00Z".parse().expect("a time");
        assert_eq!(shown("2026-01-02T09:57:00.123Z", now, true), "3m");
        assert_eq!(
            shown("2026-01-02T09:57:00Z", now, false),
            "2026-01-02T09:57:00Z"
        );
        assert_eq!(shown("yesterday", now, true), "yesterday");
    }
}
