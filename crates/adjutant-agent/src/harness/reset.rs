//! Reads when a usage limit resets from a vendor's message: seconds since the epoch, a duration, an
//! RFC 3339 time or a clock time in prose. Pure: `now` and the zone are arguments.

use adjutant_core::Time;
use adjutant_core::units::duration;
use jiff::civil::{self, Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit, Zoned};
use std::iter::Peekable;

/// Longest wait that counts as plausible.
const WAIT_MS_MAX: i64 = 8 * 24 * 60 * 60 * 1000;

/// A reset time at most this long ago counts as just passed, since clocks differ; the run then
/// waits `PASSED_PAUSE_MS`.
const PASSED_MS_MIN: i64 = -2 * 60 * 1000;
const PASSED_PAUSE_MS: i64 = 5 * 1000;

const DURATION_MARKS: [&str; 9] = [
    "again in",
    "retry in",
    "resets in",
    "reset in",
    "reset after",
    "retry after",
    "retry-after",
    "retrydelay",
    "resets_in_seconds",
];
const CLOCK_MARKS: [&str; 6] = [
    "again at",
    "again on",
    "resets",
    "reset at",
    "reset on",
    "available at",
];
const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

/// Reads the reset time from a message in lower case: `…|<seconds since the epoch>`, `try again in
/// 2h 5m`, `resets_in_seconds: 40`, `retryDelay: "34s"`, `resets 3:45pm (America/New_York)`, `try
/// again at Nov 24th, 2026 3:45 PM`. Clock times without a zone are in `zone`.
pub(crate) fn reset_time(lower: &str, now: Time, zone: &TimeZone) -> Option<Time> {
    let epoch = lower
        .rsplit_once('|')
        .and_then(|(_, rest)| rest.get(..10)?.parse::<i64>().ok())
        .map(|seconds| Time(seconds.saturating_mul(1000)));
    let within = || {
        let rest = DURATION_MARKS
            .iter()
            .find_map(|mark| lower.split_once(mark))
            .map(|(_, rest)| rest)?;
        Some(now.plus_ms(duration_ms(
            rest.trim_start_matches([' ', ':', '"', '~', '\\', '=']),
        )?))
    };
    let clock = || {
        CLOCK_MARKS
            .iter()
            .flat_map(|mark| {
                lower
                    .match_indices(mark)
                    .map(|(at, found)| at + found.len())
            })
            .find_map(|at| clock_time(&lower[at..], now, zone))
    };
    epoch
        .or_else(within)
        .or_else(clock)
        .and_then(|at| resume_time(at, now))
}

/// Returns when to resume for a reset time: soon if it has just passed, `None` if it is
/// implausible.
pub(crate) fn resume_time(at: Time, now: Time) -> Option<Time> {
    let in_ms = at.0.checked_sub(now.0)?;
    match in_ms {
        1..=WAIT_MS_MAX => Some(at),
        PASSED_MS_MIN..=0 => Some(now.plus_ms(PASSED_PAUSE_MS)),
        _ => None,
    }
}

/// Reads a clock time at the start of a text, with optional date, `am` or `pm`, and zone. It means
/// the next such time; without seconds, the end of the minute, since vendors round down.
fn clock_time(text: &str, now: Time, zone: &TimeZone) -> Option<Time> {
    let mut words = text
        .split(|c: char| c.is_whitespace() || c == ',')
        .map(|word| word.trim_matches([':', '"', ';']))
        .filter(|word| !word.is_empty());
    let first = words.find(|word| !matches!(*word, "on" | "at"))?;
    if let Ok(stamp) = first
        .trim_end_matches('.')
        .to_uppercase()
        .parse::<Timestamp>()
    {
        return Some(Time(stamp.as_millisecond()));
    }
    let (day, word) = day(first, &mut words)?;
    let mut words = words.peekable();
    let (time, has_seconds) = time_of_day(word, &mut words)?;
    ClockTime {
        day,
        time,
        has_seconds,
        zone: named_zone(words.next(), zone)?,
    }
    .next_after(now)
}

/// A time of a day, as a message names it.
struct ClockTime {
    day: Day,
    time: civil::Time,
    has_seconds: bool,
    zone: TimeZone,
}

/// The day of a clock time.
enum Day {
    /// Today, or tomorrow if the time has passed.
    Next,
    Tomorrow,
    /// Without a year: this year, or the next one if the time has passed.
    Date {
        month: i8,
        day: i8,
        year: Option<i16>,
    },
}

impl ClockTime {
    fn next_after(&self, now: Time) -> Option<Time> {
        let now = Timestamp::from_millisecond(now.0)
            .ok()?
            .to_zoned(self.zone.clone());
        let tomorrow = || self.on(now.date().tomorrow().ok()?);
        let zoned = match self.day {
            Day::Tomorrow => tomorrow()?,
            Day::Next => match self.on(now.date())? {
                today if today > now => today,
                _ => tomorrow()?,
            },
            Day::Date { month, day, year } => {
                let of = |year| self.on(Date::new(year, month, day).ok()?);
                let this = of(year.unwrap_or(now.year()))?;
                if year.is_none() && this <= now {
                    of(now.year().checked_add(1)?)?
                } else {
                    this
                }
            }
        };
        Some(Time(
            zoned.round(Unit::Second).ok()?.timestamp().as_millisecond(),
        ))
    }

    /// Returns the time on a date, or the end of its minute.
    fn on(&self, date: Date) -> Option<Zoned> {
        let begins = DateTime::from_parts(date, self.time)
            .to_zoned(self.zone.clone())
            .ok()?;
        if self.has_seconds {
            Some(begins)
        } else {
            begins.checked_add(jiff::Span::new().minutes(1)).ok()
        }
    }
}

/// Reads the day with which a clock time may begin. Returns it with the word after it.
fn day<'a>(first: &'a str, words: &mut impl Iterator<Item = &'a str>) -> Option<(Day, &'a str)> {
    let Some(month) = MONTHS.iter().position(|month| first.starts_with(month)) else {
        return if first == "tomorrow" {
            Some((Day::Tomorrow, words.find(|word| *word != "at")?))
        } else {
            Some((Day::Next, first))
        };
    };
    let month = i8::try_from(month + 1).ok()?;
    let digits = words
        .next()?
        .trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let day = digits.parse::<i8>().ok()?;
    let mut word = words.find(|word| !matches!(*word, "on" | "at"))?;
    let mut year = None;
    if word.len() == 4
        && let Ok(number) = word.parse::<i16>()
    {
        year = Some(number);
        word = words.find(|word| *word != "at")?;
    }
    Some((Day::Date { month, day, year }, word))
}

/// Reads a time such as `3:45pm`, `3 p.m.` or `15:45:10`. Returns whether it has seconds, too.
fn time_of_day<'a>(
    word: &'a str,
    words: &mut Peekable<impl Iterator<Item = &'a str>>,
) -> Option<(civil::Time, bool)> {
    let (clock, half) = match word.find(['a', 'p']) {
        Some(at) => (&word[..at], Some(&word[at..])),
        None => (
            word,
            words.next_if(|word| {
                word.starts_with(['a', 'p'])
                    && word.trim_end_matches(['.', ')']).replace('.', "").len() == 2
            }),
        ),
    };
    let half = half.map(|half| half.replace(['.', ')'], ""));
    let mut numbers = clock
        .trim_end_matches('.')
        .split(':')
        .map(|number| number.parse::<i8>().ok());
    let (hour, minute, second) = (numbers.next()??, numbers.next(), numbers.next());
    let hour = match half.as_deref() {
        Some("am") if (1..=12).contains(&hour) => hour % 12,
        Some("pm") if (1..=12).contains(&hour) => hour % 12 + 12,
        // A bare number is not a time.
        None if minute.is_some() => hour,
        _ => return None,
    };
    let time = civil::Time::new(
        hour,
        minute.unwrap_or(Some(0))?,
        second.unwrap_or(Some(0))?,
        0,
    );
    Some((time.ok()?, second.is_some()))
}

/// Reads the zone after a time. An unknown zone makes the time unknown; other words are none, and
/// the time is in `otherwise`.
fn named_zone(word: Option<&str>, otherwise: &TimeZone) -> Option<TimeZone> {
    match word.map(|word| word.trim_matches(['(', ')', '.', '\'', '"'])) {
        Some("utc" | "gmt" | "z") => Some(TimeZone::UTC),
        Some(name) if name.contains('/') => TimeZone::get(name).ok(),
        _ => Some(otherwise.clone()),
    }
}

/// Reads a duration at the start of a text. A number without a unit is seconds.
#[expect(clippy::cast_precision_loss, reason = "a unit has few digits")]
fn duration_ms(mut text: &str) -> Option<i64> {
    let mut total = 0.0_f64;
    let mut found = false;
    loop {
        text = text
            .trim_start_matches([' ', ','])
            .strip_prefix("and ")
            .unwrap_or(text.trim_start_matches([' ', ',']))
            .trim_start();
        let digits = text.len()
            - text
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let Ok(number) = text[..digits].trim_end_matches('.').parse::<f64>() else {
            break;
        };
        let unit_at = text[digits..].trim_start();
        let letters = unit_at.len()
            - unit_at
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let unit = match &unit_at[..letters] {
            "" => "s",
            word => word,
        };
        let Some(unit_ms) = duration::unit_ms(unit) else {
            break;
        };
        found = true;
        total += number * unit_ms as f64;
        text = &unit_at[letters..];
        if letters == 0 {
            break;
        }
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`as` saturates, and the largest value is implausible"
    )]
    found.then_some(total as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_763_700_000_000);

    #[test]
    fn end_of_a_limit_is_read_from_its_message() {
        let after = |text: &str| reset_time(text, NOW, &TimeZone::UTC).map(|at| at.0 - NOW.0);
        assert_eq!(
            after("claude ai usage limit reached|1763703600"),
            Some(3_600_000)
        );
        assert_eq!(
            after("claude ai usage limit reached|1763699990"),
            Some(PASSED_PAUSE_MS),
            "clocks differ"
        );
        assert_eq!(after("try again in 2 hours 5 minutes."), Some(7_500_000));
        assert_eq!(
            after("you've hit your usage limit. try again in 3 days and 1 hour."),
            Some(262_800_000)
        );
        assert_eq!(after("please try again in 1.5s"), Some(1_500));
        assert_eq!(after("\"retrydelay\": \"34s\""), Some(34_000));
        assert_eq!(after("\"resets_in_seconds\":40}"), Some(40_000));
        assert_eq!(after("quota will reset after 5h30m1s"), Some(19_801_000));
        for text in [
            "rate limited",
            "try again later",
            "try again in a while",
            "limit|1",
            "try again in 900 days",
            "resets 5",
            "resets 25:00",
            "resets 13pm",
            "resets feb 31 at 3pm",
            "resets 3pm (nowhere/at_all)",
            "resets soon at noon",
        ] {
            assert_eq!(after(text), None, "{text}");
        }
    }

    #[test]
    fn clock_time_is_the_next_one_in_its_zone() {
        // A Friday, 23:40 in New York (five hours behind UTC), 04:40 on Saturday in UTC.
        let now: Timestamp = "2025-11-22T04:40:30Z".parse().expect("a time");
        let new_york =
            TimeZone::get("America/New_York").expect("the time zone database is installed");
        let after = |text: &str, zone: &TimeZone| {
            let at = reset_time(&text.to_lowercase(), Time(now.as_millisecond()), zone)?;
            Some(
                Timestamp::from_millisecond(at.0)
                    .expect("a time")
                    .to_string(),
            )
        };
        let (here, utc) = (
            |text: &str| after(text, &new_york),
            |text: &str| after(text, &TimeZone::UTC),
        );
        // Without seconds it is the end of the minute. A time that has passed today is tomorrow's.
        assert_eq!(
            utc("limit reached ∙ resets at 3:45 PM").as_deref(),
            Some("2025-11-22T15:46:00Z")
        );
        assert_eq!(
            here("limit reached ∙ resets at 3:45 PM").as_deref(),
            Some("2025-11-22T20:46:00Z")
        );
        assert_eq!(utc("resets 4am").as_deref(), Some("2025-11-23T04:01:00Z"));
        assert_eq!(
            utc("You've hit your 5-hour limit · resets 4:40am").as_deref(),
            Some("2025-11-22T04:41:00Z"),
            "this very minute"
        );
        assert_eq!(
            here("visit https://x.example/usage or try again at 11:59 PM.").as_deref(),
            Some("2025-11-22T05:00:00Z")
        );
        assert_eq!(here("resets 12am").as_deref(), Some("2025-11-22T05:01:00Z"));
        assert_eq!(
            utc("resets 7:19pm (America/New_York)").as_deref(),
            Some("2025-11-23T00:20:00Z")
        );
        assert_eq!(
            here("resets 7:19pm (UTC)").as_deref(),
            Some("2025-11-22T19:20:00Z")
        );
        assert_eq!(
            utc("try again at Nov 24th, 2025 3:45 PM.").as_deref(),
            Some("2025-11-24T15:46:00Z")
        );
        assert_eq!(
            utc("weekly limit reached · resets Nov 25 at 3pm (America/New_York)").as_deref(),
            Some("2025-11-25T20:01:00Z")
        );
        assert_eq!(
            utc("resets tomorrow at 05:00").as_deref(),
            Some("2025-11-23T05:01:00Z")
        );
        assert_eq!(
            utc("it will reset at 15:45:10").as_deref(),
            Some("2025-11-22T15:45:10Z")
        );
        assert_eq!(
            utc("reset at 2025-11-22T06:00:00Z").as_deref(),
            Some("2025-11-22T06:00:00Z")
        );
        assert_eq!(
            utc("try again at Jan 3rd, 2027 3:45 PM"),
            None,
            "implausibly far"
        );
        assert_eq!(
            utc("context resets; resets at 3:45 p.m.").as_deref(),
            Some("2025-11-22T15:46:00Z"),
            "the first valid time counts"
        );
    }
}
