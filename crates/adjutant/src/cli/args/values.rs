//! Parsers of single values.

use jiff::civil::{DateTime, Time};
use jiff::{Timestamp, Zoned};
use std::time::Duration;

/// Parses a duration, such as 45m.
pub fn duration(text: &str) -> Result<Duration, String> {
    crate::config::duration_ms(text).map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// Parses a duration that is not zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    crate::config::positive_duration_ms(text).map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// Parses a time in the past: a duration ago, a time of today, a date, or a date with a time. Without a zone, it is the machine's.
pub fn since(text: &str) -> Result<Timestamp, String> {
    since_in(
        text,
        &crate::cli::context::now().to_zoned(crate::cli::context::zone()),
    )
}

fn since_in(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    if let Ok(ago) = duration(text) {
        return now
            .timestamp()
            .checked_sub(ago)
            .map_err(|_| format!("{text:?} is too long ago"));
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
    time.map(|time| time.timestamp()).map_err(|_| format!("{text:?} is neither a duration such as 10m nor a time such as 14:30 or 2026-11-21T14:30Z"))
}

/// Parses how many of something are to be shown.
pub fn count(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("{text:?} is not a number from 1 to {}", u32::MAX))
}

/// Parses a range of snapshots: 1..3, 2.., ..3, or 2 for 2... 0 is the base of an isolated run.
pub fn snapshots(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
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
        _ => Err(format!(
            "{text:?} is not a range of snapshots, such as 1..3, 2.. or ..3 (see adj show)"
        )),
    }
}

/// Parses a chat's number.
pub fn chat_number(text: &str) -> Result<i64, String> {
    text.parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("{text:?} is not the number of a chat, such as 3 (see adj chat ls)"))
}

/// Parses a message with its chat, such as 3.17.
pub fn message_id(text: &str) -> Result<String, String> {
    let number = |part: &str| part.parse::<i64>().is_ok_and(|number| number > 0);
    let is_one = text
        .trim()
        .split_once('.')
        .is_some_and(|(chat, seq)| number(chat) && number(seq));
    if is_one {
        Ok(text.trim().to_owned())
    } else {
        Err(format!(
            "{text:?} is not a message: use CHAT.NUMBER, such as 3.17 (see adj chat show)"
        ))
    }
}

/// Parses the number of a message in its chat.
pub fn position(text: &str) -> Result<i64, String> {
    text.parse()
        .ok()
        .filter(|number| *number >= 0)
        .ok_or_else(|| format!("{text:?} is not the number of a message, such as 17, or 0"))
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
            assert_eq!(parsed(text).as_deref(), Ok(time), "{text}");
        }
        for text in ["", "yesterday", "25:00", "2026-02-30", "-10m", "10"] {
            assert!(
                parsed(text).is_err_and(|error| error.contains("neither")),
                "{text}"
            );
        }
    }
}
