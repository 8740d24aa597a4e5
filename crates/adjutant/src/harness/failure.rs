//! Determines the cause of an error message, what to do about it, and when the run can resume.

use super::reset;
use crate::preset::FailurePattern;
use adjutant_core::{Cause, Time};
use jiff::tz::TimeZone;

/// A failure with its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub cause: Cause,
    /// The error message and what to do about it.
    pub message: String,
    pub again_at: Option<Time>,
}

/// Patterns for any CLI, used if its preset has no match: substrings, cause, hint. They are messages of HTTP,
/// sockets and common libraries.
const COMMON: [(&[&str], Cause, &str); 2] = [
    (
        &[
            "econnreset",
            "econnrefused",
            "enotfound",
            "etimedout",
            "eai_again",
            "fetch failed",
            "socket hang up",
            "connection refused",
            "connection reset",
            "connection error",
            "connection failed",
            "could not connect",
            "cannot connect",
            "socket connection was closed",
            "stream disconnected",
            "unable to connect",
            "error sending request",
            "network error",
            "network connection",
            "dns error",
        ],
        Cause::Network,
        "check the network, the proxy and the address of the model; then adj retry",
    ),
    (
        &[
            "overloaded",
            "experiencing high demand",
            "(code 503)",
            "502 bad gateway",
            "504 gateway",
            "status 500",
            "500 internal",
            "internal server error",
            "service unavailable",
            "server error",
            "server_error",
        ],
        Cause::Overloaded,
        "wait, or use another agent or account; then adj retry",
    ),
];

/// Returns the cause of an error message and a hint.
fn find(patterns: &[FailurePattern], text: &str) -> Option<(Cause, String)> {
    let lower = text.to_lowercase();
    let known = patterns.iter().find(|pattern| pattern.any.iter().any(|any| has_word(&lower, any)));
    if let Some(pattern) = known {
        return Some((Cause::from_word(&pattern.cause).unwrap_or(Cause::Agent), pattern.hint.clone()));
    }
    let common = COMMON.iter().find(|(words, _, _)| words.iter().any(|word| has_word(&lower, word)));
    common.map(|(_, cause, hint)| (*cause, (*hint).to_owned()))
}

/// Returns the cause of an error message, or `Cause::Agent` if it is unknown.
#[must_use]
pub fn cause_of(patterns: &[FailurePattern], text: &str) -> Cause {
    find(patterns, text).map_or(Cause::Agent, |(cause, _)| cause)
}

/// Explains an error message. `stated` is the reset time of a limit from a field of the stream; otherwise the time
/// is read from the message. Its clock times are in `zone`.
#[must_use]
pub fn explain(patterns: &[FailurePattern], otherwise: Cause, text: &str, stated: Option<Time>, now: Time, zone: &TimeZone) -> Failure {
    let lower = text.to_lowercase();
    let (cause, hint) = find(patterns, text).unwrap_or((otherwise, String::new()));
    let text = text.trim();
    let message = match (text.is_empty(), hint.is_empty()) {
        (_, true) => text.to_owned(),
        (true, false) => hint,
        (false, false) => format!("{text}\n{hint}"),
    };
    let again_at = || stated.and_then(|at| reset::resume_time(at, now)).or_else(|| reset::reset_time(&lower, now, zone));
    let again_at = if cause.passes() { again_at() } else { None };
    Failure { cause, message, again_at }
}

/// Returns whether a text contains a word. A number has to stand alone: `84290` does not contain `429`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    const NOW: Time = Time(1_763_700_000_000);

    #[test]
    fn failure_has_a_cause_and_a_hint() {
        let claude = preset::builtin("claude").expect("it is there").failures;
        let of = |text: &str| explain(&claude, Cause::Agent, text, None, NOW, &TimeZone::UTC);
        assert_eq!(of("Failed to authenticate. API Error: 401 {\"type\":\"error\"}").cause, Cause::NotSignedIn);
        assert!(of("Invalid API key · Please run /login").message.ends_with("where you call adj"));
        assert_eq!(of("Claude AI usage limit reached|1763703600").again_at, Some(Time(1_763_703_600_000)));
        let stated = explain(&claude, Cause::Agent, "You've hit your 5-hour limit · resets 7:19pm (UTC)", Some(NOW.plus_ms(9)), NOW, &TimeZone::UTC);
        assert_eq!((stated.cause, stated.again_at), (Cause::RateLimited, Some(NOW.plus_ms(9))), "a field takes precedence over the message");
        assert_eq!(of("No conversation found with session ID: x").cause, Cause::SessionLost);
        assert_eq!(of("API Error: Connection dropped (ECONNRESET).").cause, Cause::Network);
        let aider = preset::builtin("aider").expect("it is there").failures;
        for (text, cause) in [
            (
                "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check your plan and billing details.",
                Cause::NoCredit,
            ),
            ("litellm.RateLimitError: RateLimitError: OpenAIException - too many requests", Cause::RateLimited),
            ("litellm.InternalServerError: InternalServerError: OpenAIException - Connection error.", Cause::Network),
            ("litellm.ServiceUnavailableError: ServiceUnavailableError: OpenAIException - Overloaded", Cause::Overloaded),
        ] {
            assert_eq!(cause_of(&aider, text), cause, "{text}");
        }
        assert_eq!((of("Repeated 529 Overloaded errors").cause, of("wrote 529 files").cause), (Cause::Overloaded, Cause::Agent));
        assert_eq!(
            of("wrote 14290 lines, then broke"),
            Failure { cause: Cause::Agent, message: "wrote 14290 lines, then broke".to_owned(), again_at: None }
        );
    }
}
