//! Ages of times: `12s`, `3m`, `5h`, `2d`.

use adjutant_core::units::duration;
use jiff::Timestamp;

/// Returns the seconds from an RFC 3339 time to `now`; `None` if the text is not a time.
#[must_use]
pub(crate) fn seconds_since(time: &str, now: Timestamp) -> Option<i64> {
    let then: Timestamp = time.parse().ok()?;
    Some(now.as_second() - then.as_second())
}

/// Formats a time as its age if `relative`, else unchanged.
#[must_use]
pub(super) fn shown(time: &str, now: Timestamp, relative: bool) -> String {
    match seconds_since(time, now) {
        Some(seconds) if relative => duration::age(seconds),
        _ => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
