//! Parsers of single values.

use std::time::Duration;

/// Parses a duration, such as 45m.
pub fn duration(text: &str) -> Result<Duration, String> {
    crate::config::duration_ms(text).map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// Parses a duration that is not zero.
pub fn positive_duration(text: &str) -> Result<Duration, String> {
    crate::config::positive_duration_ms(text).map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// Parses how many of something are to be shown.
pub fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| format!("{text:?} is not a number from 1 to {}", u32::MAX))
}

/// Parses a range of snapshots: 1..3, 2.., ..3, or 2 for 2... 0 is the base of an isolated run.
pub fn snapshots(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    let (from, to) = text.split_once("..").unwrap_or((text, ""));
    let number = |part: &str| if part.is_empty() { Ok(None) } else { count(part).map(Some) };
    let from = if from == "0" { Ok(Some(0)) } else { number(from) };
    match (from, number(to)) {
        (Ok(from), Ok(to)) => Ok((from, to)),
        _ => Err(format!("{text:?} is not a range of snapshots, such as 1..3, 2.. or ..3 (see adj show)")),
    }
}

/// Parses a chat's number.
pub fn chat_number(text: &str) -> Result<i64, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("{text:?} is not the number of a chat, such as 3 (see adj chat ls)"))
}

/// Parses a message with its chat, such as 3.17.
pub fn message_id(text: &str) -> Result<String, String> {
    let number = |part: &str| part.parse::<i64>().is_ok_and(|number| number > 0);
    let is_one = text.trim().split_once('.').is_some_and(|(chat, seq)| number(chat) && number(seq));
    if is_one { Ok(text.trim().to_owned()) } else { Err(format!("{text:?} is not a message: use CHAT.NUMBER, such as 3.17 (see adj chat show)")) }
}

/// Parses the number of a message in its chat.
pub fn position(text: &str) -> Result<i64, String> {
    text.parse().ok().filter(|number| *number >= 0).ok_or_else(|| format!("{text:?} is not the number of a message, such as 17, or 0"))
}
