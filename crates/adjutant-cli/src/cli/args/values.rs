//! Parsers of single values.

use adjutant_core::units::duration::{self, DurationError};
use jiff::civil::{DateTime, Time};
use jiff::{Timestamp, Zoned};
use std::time::Duration;

/// Why the value of an argument is refused.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("{0:?} is too long ago")]
    TooLongAgo(String),
    #[error(
        "{0:?} is neither a duration such as 10m nor a time such as 14:30 or 2026-11-21T14:30Z"
    )]
    Time(String),
    #[error("{0:?} is not a number from 1 to {max}", max = u32::MAX)]
    Count(String),
    #[error("{0:?} is not a range of snapshots, such as 1..3, 2.. or ..3 (see adj show)")]
    Snapshots(String),
    #[error("{0:?} is not the number of a chat, such as 3 (see adj chat ls)")]
    Chat(String),
    #[error("{0:?} is not a message: use CHAT.NUMBER, such as 3.17 (see adj chat show)")]
    Message(String),
    #[error("{0:?} is not the number of a message, such as 17, or 0")]
    Position(String),
    #[error("{0:?} is not one of agent, pool, project and parent")]
    StatsBy(String),
    #[error("{0:?} is neither a number of slots nor \"configured\"")]
    Slots(String),
    #[error("use client, read-only, person or runner")]
    Role,
    #[error("use NAME=VALUE, such as gpu=a100: letters, digits and . _ - /")]
    Label,
}

/// Parses a duration, such as 45m.
pub(super) fn duration(text: &str) -> Result<Duration, DurationError> {
    duration::parse(text).map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// Parses a duration that is not zero.
pub(crate) fn positive_duration(text: &str) -> Result<Duration, DurationError> {
    duration::parse_positive(text).map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// Parses a time in the past: a duration ago, a time of today, a date, or a date with a time.
/// Without a zone, it is the machine's.
pub(super) fn since(text: &str) -> Result<Timestamp, ValueError> {
    since_in(
        text,
        &crate::cli::context::now().to_zoned(crate::cli::context::zone()),
    )
}

fn since_in(text: &str, now: &Zoned) -> Result<Timestamp, ValueError> {
    if let Ok(ago) = duration(text) {
        return now
            .timestamp()
            .checked_sub(ago)
            .map_err(|_| ValueError::TooLongAgo(text.to_owned()));
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    // A bare number would be an hour.
    let given = if text.contains([':', '-']) { text } else { "" };
    let local = given.parse::<DateTime>().or_else(|_| {
        given
            .parse::<Time>()
            .map(|time| now.date().to_datetime(time))
    });
    let time = local.and_then(|local| local.to_zoned(now.time_zone().clone()));
    time.map(|time| time.timestamp())
        .map_err(|_| ValueError::Time(text.to_owned()))
}

/// Parses how many of something are to be shown.
pub(super) fn count(text: &str) -> Result<u32, ValueError> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| ValueError::Count(text.to_owned()))
}

/// Parses a range of snapshots: 1..3, 2.., ..3, or 2 for 2... 0 is the base of an isolated run.
pub(super) fn snapshots(text: &str) -> Result<(Option<u32>, Option<u32>), ValueError> {
    let (from, to) = text.split_once("..").unwrap_or((text, ""));
    let number = |part: &str| {
        if part.is_empty() {
            Ok(None)
        } else {
            count(part).map(Some)
        }
    };
    let from = if from == "0" {
        Ok(Some(0))
    } else {
        number(from)
    };
    match (from, number(to)) {
        (Ok(from), Ok(to)) => Ok((from, to)),
        _ => Err(ValueError::Snapshots(text.to_owned())),
    }
}

/// Parses a chat's number.
pub(crate) fn chat_number(text: &str) -> Result<i64, ValueError> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| ValueError::Chat(text.to_owned()))
}

/// Parses a message with its chat, such as 3.17.
pub(super) fn message_id(text: &str) -> Result<String, ValueError> {
    let number = |part: &str| part.parse::<i64>().is_ok_and(|number| number > 0);
    let is_one = text
        .trim()
        .split_once('.')
        .is_some_and(|(chat, seq)| number(chat) && number(seq));
    if is_one {
        Ok(text.trim().to_owned())
    } else {
        Err(ValueError::Message(text.to_owned()))
    }
}

/// Parses the number of a message in its chat.
pub(super) fn position(text: &str) -> Result<i64, ValueError> {
    text.parse()
        .ok()
        .filter(|number| *number >= 0)
        .ok_or_else(|| ValueError::Position(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_the_past_has_many_forms() {
        let now: Zoned = "2026-03-02T10:00:00+01:00[Europe/Berlin]"
            .parse()
            .expect("a time");
        let parsed = |text: &str| since_in(text, &now).map(|time| time.to_string());
        for (text, time) in [
            ("10m", "2026-03-02T08:50:00Z"),
            ("2h", "2026-03-02T07:00:00Z"),
            ("14:30", "2026-03-02T13:30:00Z"),
            ("09:05:07", "2026-03-02T08:05:07Z"),
            ("2026-03-01", "2026-02-28T23:00:00Z"),
            ("2026-03-01 14:30", "2026-03-01T13:30:00Z"),
            ("2026-03-01T14:30:05", "2026-03-01T13:30:05Z"),
            ("2026-03-01T14:30Z", "2026-03-01T14:30:00Z"),
            ("2026-03-01T14:30:05.5+02:00", "2026-03-01T12:30:05.5Z"),
        ] {
            assert_eq!(parsed(text), Ok(time.to_owned()), "{text}");
        }
        for text in ["", "yesterday", "25:00", "2026-02-30", "-10m", "10"] {
            assert_eq!(parsed(text), Err(ValueError::Time(text.to_owned())));
        }
    }
}
