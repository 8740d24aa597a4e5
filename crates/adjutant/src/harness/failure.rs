//! What a failure's text means: its cause, what to do about it, and when it can go on.

use crate::preset::FailurePattern;
use adjutant_core::{Cause, Time};

/// Longest wait that is believed.
const AGAIN_MS_MAX: i64 = 8 * 24 * 60 * 60 * 1000;

/// A failure, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub cause: Cause,
    /// What went wrong and what to do about it.
    pub message: String,
    pub again_at: Option<Time>,
}

/// Finds out what a failure's text means.
#[must_use]
pub fn explain(patterns: &[FailurePattern], otherwise: Cause, text: &str, now: Time) -> Failure {
    let lower = text.to_lowercase();
    let found = patterns.iter().find(|pattern| pattern.any.iter().any(|any| has_word(&lower, any)));
    let (cause, hint) = match found {
        Some(pattern) => (Cause::from_word(&pattern.cause).unwrap_or(otherwise), pattern.hint.as_str()),
        None => (otherwise, ""),
    };
    let text = text.trim();
    let message = match (text.is_empty(), hint.is_empty()) {
        (_, true) => text.to_owned(),
        (true, false) => hint.to_owned(),
        (false, false) => format!("{text}\n{hint}"),
    };
    let again_at = if cause == Cause::RateLimited { again_at(&lower, now) } else { None };
    Failure { cause, message, again_at }
}

/// A number stands alone: `429` is not in `84290`.
fn has_word(text: &str, word: &str) -> bool {
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.contains(word);
    }
    let is_alone = |at: usize| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_alphanumeric()) && !after.is_some_and(|c| c.is_ascii_alphanumeric())
    };
    text.match_indices(word).any(|(at, _)| is_alone(at))
}

/// Reads when a limit ends, where the text tells: `…|<seconds since the epoch>`, `try again in 2h 5m`,
/// `resets_in_seconds: 40`, `retryDelay: "34s"`.
fn again_at(lower: &str, now: Time) -> Option<Time> {
    let epoch = lower.rsplit_once('|').and_then(|(_, rest)| rest.get(..10)?.parse::<i64>().ok()).map(|seconds| Time(seconds.saturating_mul(1000)));
    let within = || {
        let marks = ["again in", "retry in", "resets in", "reset in", "reset after", "retry after", "retry-after", "retrydelay", "resets_in_seconds"];
        let rest = marks.iter().find_map(|mark| lower.split_once(mark)).map(|(_, rest)| rest)?;
        Some(now.plus_ms(length_ms(rest.trim_start_matches([' ', ':', '"', '~', '\\', '=']))?))
    };
    epoch.or_else(within).filter(|at| at.0 > now.0 && at.0 - now.0 <= AGAIN_MS_MAX)
}

/// Reads a length of time at the beginning of a text.
fn length_ms(mut text: &str) -> Option<i64> {
    let mut total = 0.0_f64;
    let mut found = false;
    loop {
        text = text.trim_start_matches([' ', ',']).strip_prefix("and ").unwrap_or(text.trim_start_matches([' ', ','])).trim_start();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let Ok(number) = text[..digits].trim_end_matches('.').parse::<f64>() else { break };
        let unit_at = text[digits..].trim_start();
        let letters = unit_at.len() - unit_at.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit = match &unit_at[..letters] {
            "ms" | "milliseconds" => 1.0,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => 1_000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            _ => break,
        };
        found = true;
        total += number * unit;
        text = &unit_at[letters..];
        if letters == 0 {
            break;
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "what is absurdly long becomes the longest, which is not believed")]
    found.then_some(total as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    const NOW: Time = Time(1_763_700_000_000);

    #[test]
    fn the_end_of_a_limit_is_read_where_it_is_told() {
        let after = |text: &str| again_at(text, NOW).map(|at| at.0 - NOW.0);
        assert_eq!(after("claude ai usage limit reached|1763703600"), Some(3_600_000));
        assert_eq!(after("try again in 2 hours 5 minutes."), Some(7_500_000));
        assert_eq!(after("you've hit your usage limit. try again in 3 days and 1 hour."), Some(262_800_000));
        assert_eq!(after("please try again in 1.5s"), Some(1_500));
        assert_eq!(after("\"retrydelay\": \"34s\""), Some(34_000));
        assert_eq!(after("\"resets_in_seconds\":40}"), Some(40_000));
        assert_eq!(after("quota will reset after 5h30m1s"), Some(19_801_000));
        for text in ["rate limited", "try again later", "try again in a while", "limit|1", "try again in 900 days"] {
            assert_eq!(after(text), None, "{text}");
        }
    }

    #[test]
    fn a_failure_has_a_cause_and_a_hint() {
        let claude = preset::builtin("claude").expect("it is there").failures;
        let of = |text: &str| explain(&claude, Cause::Agent, text, NOW);
        assert_eq!(of("Failed to authenticate. API Error: 401 {\"type\":\"error\"}").cause, Cause::NotSignedIn);
        assert!(of("Invalid API key · Please run /login").message.ends_with("where you call adj"));
        assert_eq!(of("Claude AI usage limit reached|1763703600").again_at, Some(Time(1_763_703_600_000)));
        assert_eq!(of("No conversation found with session ID: x").cause, Cause::SessionLost);
        assert_eq!(
            of("wrote 14290 lines, then broke"),
            Failure { cause: Cause::Agent, message: "wrote 14290 lines, then broke".to_owned(), again_at: None }
        );
    }
}
