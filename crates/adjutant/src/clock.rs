//! The one place that reads the wall clock, and how its instants are written for people.

use adjutant_core::Time;

/// Returns the wall-clock time.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this module is the one place that reads the wall clock")]
pub fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Writes a time as RFC 3339 in UTC with milliseconds, for instance `2026-11-21T01:02:03.004Z`.
#[must_use]
pub fn rfc3339(time: Time) -> String {
    match jiff::Timestamp::from_millisecond(time.0) {
        Ok(stamp) => format!("{stamp:.3}"),
        Err(_) => format!("{} ms", time.0),
    }
}

/// Reads what [`rfc3339`] wrote.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<Time> {
    text.parse::<jiff::Timestamp>().ok().map(|stamp| Time(stamp.as_millisecond()))
}

/// Returns the zone that a `TZ` variable names, else the machine's.
#[must_use]
pub fn zone(name: Option<&str>) -> jiff::tz::TimeZone {
    name.and_then(|name| jiff::tz::TimeZone::get(name.trim_start_matches(':')).ok()).unwrap_or_else(jiff::tz::TimeZone::system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_being_written() {
        let time = Time(1_763_686_923_004);
        assert_eq!(rfc3339(time), "2025-11-21T01:02:03.004Z");
        assert_eq!(parse_rfc3339(&rfc3339(time)), Some(time));
    }
}
