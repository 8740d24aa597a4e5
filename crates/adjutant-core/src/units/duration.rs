//! Durations: `300ms`, `90s`, `45m`, `24h`, `14d`, `1h30m`.

use std::time::Duration;

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Below this, people see hours instead of days.
const DAYS_FROM: i64 = 2 * DAY;

/// The units of the grammar, in milliseconds, largest first.
const UNITS: [(&str, i64); 5] = [
    ("d", DAY),
    ("h", HOUR),
    ("m", MINUTE),
    ("s", SECOND),
    ("ms", 1),
];

/// Examples of what [`parse`] accepts, for a refusal.
const ACCEPTED: &str = "write 90s, 45m, 24h, 14d or 1h30m";

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("{0:?} is not a duration: {ACCEPTED}")]
    Malformed(String),
    #[error("{0:?} is zero, which is too short: {ACCEPTED}")]
    Zero(String),
}

/// Parses a duration into milliseconds.
///
/// # Errors
/// The text is not a duration.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    parse_pairs(text.trim()).ok_or_else(|| DurationError::Malformed(text.to_owned()))
}

/// Parses a duration that is not zero into milliseconds.
///
/// # Errors
/// The text is not a duration, or zero.
pub fn parse_positive(text: &str) -> Result<i64, DurationError> {
    match parse(text)? {
        0 => Err(DurationError::Zero(text.to_owned())),
        ms => Ok(ms),
    }
}

fn parse_pairs(mut rest: &str) -> Option<i64> {
    let mut total = 0_i64;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let (_, unit) = UNITS
            .into_iter()
            .find(|(name, _)| *name == &rest[..letters])?;
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[letters..];
        if rest.is_empty() {
            return Some(total);
        }
    }
}

/// Returns the milliseconds of a unit as vendors and agents write it: `min`, `hours`.
#[must_use]
pub fn unit_ms(word: &str) -> Option<i64> {
    Some(match word {
        "ms" | "millisecond" | "milliseconds" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
        "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7 * DAY,
        _ => return None,
    })
}

/// Formats a duration exactly, so that [`parse`] returns the same.
#[must_use]
pub fn exact(ms: i64) -> String {
    largest_units(ms, UNITS.len(), DAY)
}

/// Formats a duration for people, with its two largest units: `1.2s`, `59s`, `1m30s`, `2h`.
#[must_use]
pub fn text(ms: i64) -> String {
    match ms {
        SECOND..10_000 if ms % SECOND >= 100 => {
            format!("{}.{}s", ms / SECOND, ms % SECOND / 100)
        }
        SECOND.. => largest_units(ms / SECOND * SECOND, 2, DAYS_FROM),
        _ => largest_units(ms, 1, DAYS_FROM),
    }
}

/// Formats a duration for people as [`text`] does; below 10 ms, with a decimal.
#[must_use]
pub fn of(duration: Duration) -> String {
    match duration.as_micros() {
        us @ 100..10_000 if us % 1_000 >= 100 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        us => text(i64::try_from(us / 1_000).unwrap_or(i64::MAX)),
    }
}

/// Formats an age for people, in its largest unit: `12s`, `3m`, `5h`, `2d`.
#[must_use]
pub fn age(seconds: i64) -> String {
    largest_units(seconds.saturating_mul(SECOND), 1, DAYS_FROM)
}

/// Formats the time that is left for people, in its largest unit, rounded up.
#[must_use]
pub fn left(seconds: i64) -> String {
    let up = |unit: i64| age(seconds.saturating_add(unit - 1) / unit * unit);
    match seconds {
        ..60 => age(seconds),
        60..=3_540 => up(60),
        3_541..=169_200 => up(3_600),
        _ => up(86_400),
    }
}

/// Formats the largest unit of a duration and those that follow it, up to `count` units, without
/// zeros. Days are used from `days_from` on.
fn largest_units(ms: i64, count: usize, days_from: i64) -> String {
    let mut rest = ms.max(0);
    let units = UNITS
        .into_iter()
        .filter(|(_, unit)| *unit != DAY || ms >= days_from)
        .skip_while(|(_, unit)| ms < *unit)
        .take(count);
    let mut out = String::new();
    for (name, unit) in units {
        if rest >= unit {
            out.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_parsed_with_units() {
        assert_eq!(parse("1h30m"), Ok(5_400_000));
        assert_eq!(parse(" 250ms "), Ok(250));
        for text in [
            "",
            " ",
            "5",
            "m",
            "1y",
            "-1s",
            "+1s",
            "1.5h",
            "99999999999999999999d",
            "1h 30m",
        ] {
            assert!(
                parse(text).is_err_and(|problem| problem.to_string().contains("write 90s")),
                "{text:?}"
            );
        }
    }

    #[test]
    fn zero_is_refused_where_it_makes_no_sense() {
        assert_eq!(parse_positive("1ms"), Ok(1));
        for text in ["0s", "0m0s"] {
            assert_eq!(
                parse_positive(text),
                Err(DurationError::Zero(text.to_owned()))
            );
        }
    }

    #[test]
    fn exact_durations_have_every_unit() {
        let shown = [0, 250, 90_000, 5_400_000, DAY, DAY + 1, 3_000].map(exact);
        assert_eq!(
            shown,
            ["0s", "250ms", "1m30s", "1h30m", "1d", "1d1ms", "3s"]
        );
    }

    #[test]
    fn people_see_two_units() {
        let shown = [
            -1,
            0,
            7,
            1_050,
            1_250,
            3_000,
            10_900,
            59_999,
            60_000,
            61_000,
            7_260_000,
            7_201_000,
            DAY,
            180_000_000,
        ]
        .map(text);
        assert_eq!(
            shown,
            [
                "0s", "0s", "7ms", "1s", "1.2s", "3s", "10s", "59s", "1m", "1m1s", "2h1m", "2h",
                "24h", "2d2h"
            ]
        );
        let shown = [0, 99, 250, 1_050, 9_999, 10_900, 90_000_000]
            .map(Duration::from_micros)
            .map(of);
        assert_eq!(
            shown,
            ["0s", "0s", "0.2ms", "1ms", "9.9ms", "10ms", "1m30s"]
        );
    }

    #[test]
    fn ages_have_one_unit_and_are_never_negative() {
        let shown = [-3, 59, 60, 3_599, 7_200, 172_799, 172_800].map(age);
        assert_eq!(shown, ["0s", "59s", "1m", "59m", "2h", "47h", "2d"]);
    }

    #[test]
    fn time_that_is_left_is_rounded_up() {
        let shown = [59, 61, 3_541, 86_399, 172_800, 172_801].map(left);
        assert_eq!(shown, ["59s", "2m", "1h", "24h", "2d", "3d"]);
    }

    proptest! {
        #[test]
        fn exact_durations_are_parsed_to_the_same_value(ms in prop_oneof![0..DAY, 0..=i64::MAX]) {
            prop_assert_eq!(parse(&exact(ms)), Ok(ms));
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in "\\PC{0,20}|[0-9dhms .]{0,20}", ms in any::<i64>()) {
            prop_assert!(parse(&text).is_err() || text.trim().starts_with(|c: char| c.is_ascii_digit()));
            for shown in [super::text(ms), age(ms), left(ms)] {
                prop_assert!(shown.len() <= 20, "{shown}");
            }
        }
    }
}
