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

/// Patterns for any CLI, used if its preset has no match: substrings, cause, hint. They are
/// messages of HTTP, sockets and common libraries.
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

/// Causes that every CLI reports in the words or the status of the model's API. They are checked
/// before the preset's patterns, which are wider: a message about an overload or an empty account
/// often mentions limits and accounts too.
const FIRST: [(&[&str], &[&str], Cause, &str); 2] = [
    (
        &[
            "payment required",
            "insufficient credit",
            "insufficient_credit",
            "credit balance",
            "out of credit",
            "insufficient balance",
            "not enough credit",
        ],
        &["402"],
        Cause::NoCredit,
        "add credit, or use another agent or account; then adj retry",
    ),
    (
        &["overloaded_error", "is overloaded", "overloaded errors"],
        &[
            "500", "502", "503", "504", "520", "521", "522", "523", "524", "529",
        ],
        Cause::Overloaded,
        "wait, or use another agent or account; then adj retry",
    ),
];

/// The reasons of the Agent Client Protocol for the end of a turn, which are whole messages:
/// reason, cause, what it means, hint.
const STOP_REASONS: [(&str, Cause, &str, &str); 4] = [
    (
        "max_tokens",
        Cause::ContextExhausted,
        "the model reached its maximum number of tokens",
        "start over with adj retry and a smaller task",
    ),
    (
        "max_turn_requests",
        Cause::LimitReached,
        "the agent reached its limit of model calls in a turn",
        "raise the agent's own limit of model calls in a turn, then adj retry",
    ),
    (
        "refusal",
        Cause::Refused,
        "the model refused to continue",
        "change the task, or use another agent: adj retry",
    ),
    (
        "cancelled",
        Cause::Agent,
        "the agent cancelled its turn",
        "start over with adj retry",
    ),
];

fn stop_reason(lower: &str) -> Option<&'static (&'static str, Cause, &'static str, &'static str)> {
    STOP_REASONS
        .iter()
        .find(|(reason, ..)| lower.trim() == *reason)
}

/// Returns the cause of an error message and a hint.
fn find(patterns: &[FailurePattern], text: &str) -> Option<(Cause, String)> {
    let lower = text.to_lowercase();
    let first = FIRST.iter().find(|(words, statuses, ..)| {
        words.iter().any(|word| lower.contains(word))
            || statuses.iter().any(|status| has_status(&lower, status))
    });
    if let Some((_, _, cause, hint)) = first {
        // The preset's hint names the vendor's way.
        let of_preset = patterns
            .iter()
            .find(|pattern| Cause::from_word(&pattern.cause) == Some(*cause))
            .map(|pattern| pattern.hint.clone());
        return Some((*cause, of_preset.unwrap_or_else(|| (*hint).to_owned())));
    }
    if let Some((_, cause, _, hint)) = stop_reason(&lower) {
        return Some((*cause, (*hint).to_owned()));
    }
    let known = patterns
        .iter()
        .find(|pattern| pattern.any.iter().any(|any| has_word(&lower, any)));
    if let Some(pattern) = known {
        return Some((
            Cause::from_word(&pattern.cause).unwrap_or(Cause::Agent),
            pattern.hint.clone(),
        ));
    }
    let common = COMMON
        .iter()
        .find(|(words, _, _)| words.iter().any(|word| has_word(&lower, word)));
    common.map(|(_, cause, hint)| (*cause, (*hint).to_owned()))
}

/// Returns whether a text states a status of HTTP: the number, beside a word such as `status`,
/// `code` or `error`. `wrote 500 files` states none.
fn has_status(text: &str, status: &str) -> bool {
    const BEFORE: [&str; 5] = ["status", "code", "error", "http", "errors"];
    const AFTER: [&str; 12] = [
        "payment",
        "insufficient",
        "internal",
        "bad",
        "service",
        "gateway",
        "overloaded",
        "server",
        "status",
        "error",
        "errors",
        "unavailable",
    ];
    let words: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    words
        .iter()
        .enumerate()
        .filter(|(_, word)| **word == status)
        .any(|(at, _)| {
            let before = at.checked_sub(1).map_or("", |before| words[before]);
            let after = words.get(at + 1).copied().unwrap_or_default();
            BEFORE.iter().any(|word| before.ends_with(word)) || AFTER.contains(&after)
        })
}

/// Returns the cause of an error message, or `Cause::Agent` if it is unknown.
#[must_use]
pub(crate) fn cause_of(patterns: &[FailurePattern], text: &str) -> Cause {
    find(patterns, text).map_or(Cause::Agent, |(cause, _)| cause)
}

/// Explains an error message. `stated` is the reset time of a limit from a field of the stream;
/// otherwise the time is read from the message. Its clock times are in `zone`.
#[must_use]
pub fn explain(
    patterns: &[FailurePattern],
    otherwise: Cause,
    text: &str,
    stated: Option<Time>,
    now: Time,
    zone: &TimeZone,
) -> Failure {
    let lower = text.to_lowercase();
    let (cause, hint) = find(patterns, text).unwrap_or((otherwise, String::new()));
    let text = stop_reason(&lower).map_or(text.trim(), |(_, _, meaning, _)| *meaning);
    let message = match (text.is_empty(), hint.is_empty()) {
        (_, true) => text.to_owned(),
        (true, false) => hint,
        (false, false) => format!("{text}\n{hint}"),
    };
    let again_at = || {
        stated
            .and_then(|at| reset::resume_time(at, now))
            .or_else(|| reset::reset_time(&lower, now, zone))
    };
    let again_at = if cause.passes() { again_at() } else { None };
    Failure {
        cause,
        message,
        again_at,
    }
}

/// Returns whether a text contains a word. A number has to stand alone: `84290` does not contain
/// `429`.
fn has_word(text: &str, word: &str) -> bool {
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.contains(word);
    }
    let is_alone = |at: usize| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(|c| c.is_ascii_alphanumeric())
            && !after.is_some_and(|c| c.is_ascii_alphanumeric())
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
        assert_eq!(
            of("Failed to authenticate. API Error: 401 {\"type\":\"error\"}").cause,
            Cause::NotSignedIn
        );
        assert!(
            of("Invalid API key · Please run /login")
                .message
                .ends_with("where you call adj")
        );
        assert_eq!(
            of("Claude AI usage limit reached|1763703600").again_at,
            Some(Time(1_763_703_600_000))
        );
        let stated = explain(
            &claude,
            Cause::Agent,
            "You've hit your 5-hour limit · resets 7:19pm (UTC)",
            Some(NOW.plus_ms(9)),
            NOW,
            &TimeZone::UTC,
        );
        assert_eq!(
            (stated.cause, stated.again_at),
            (Cause::RateLimited, Some(NOW.plus_ms(9))),
            "a field takes precedence over the message"
        );
        assert_eq!(
            of("No conversation found with session ID: x").cause,
            Cause::SessionLost
        );
        assert_eq!(
            of("API Error: Connection dropped (ECONNRESET).").cause,
            Cause::Network
        );
        let aider = preset::builtin("aider").expect("it is there").failures;
        for (text, cause) in [
            (
                "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota, please check your plan and billing details.",
                Cause::NoCredit,
            ),
            (
                "litellm.RateLimitError: RateLimitError: OpenAIException - too many requests",
                Cause::RateLimited,
            ),
            (
                "litellm.InternalServerError: InternalServerError: OpenAIException - Connection error.",
                Cause::Network,
            ),
            (
                "litellm.ServiceUnavailableError: ServiceUnavailableError: OpenAIException - Overloaded",
                Cause::Overloaded,
            ),
        ] {
            assert_eq!(cause_of(&aider, text), cause, "{text}");
        }
        assert_eq!(
            (
                of("Repeated 529 Overloaded errors").cause,
                of("wrote 529 files").cause
            ),
            (Cause::Overloaded, Cause::Agent)
        );
        assert_eq!(
            of("wrote 14290 lines, then broke"),
            Failure {
                cause: Cause::Agent,
                message: "wrote 14290 lines, then broke".to_owned(),
                again_at: None
            }
        );
    }

    /// Messages as the CLIs print them, for a status of the model's API.
    const MESSAGES: [(&str, Cause); 22] = [
        (
            "API Error: 402 {\"error\":{\"message\":\"Insufficient credits\",\"code\":402}}",
            Cause::NoCredit,
        ),
        (
            "unexpected status 402 Payment Required: insufficient credits",
            Cause::NoCredit,
        ),
        ("Request failed with status code 402", Cause::NoCredit),
        ("{\"code\":402,\"message\":\"x\"}", Cause::NoCredit),
        (
            "400 Your credit balance is too low to access the API. Please go to Plans & Billing (quota)",
            Cause::NoCredit,
        ),
        ("You are out of credits", Cause::NoCredit),
        ("Insufficient Balance", Cause::NoCredit),
        (
            "API Error: Repeated 529 Overloaded errors. See the status page; rate limits apply",
            Cause::Overloaded,
        ),
        (
            "Server error: 500 The server had an error (rate limit exceeded?)",
            Cause::Overloaded,
        ),
        (
            "Request failed with status: 529 rate limited",
            Cause::Overloaded,
        ),
        ("CAPIError: 500 no body", Cause::Overloaded),
        ("HTTP 503", Cause::Overloaded),
        (
            "{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"} quota",
            Cause::Overloaded,
        ),
        ("statusCode: 502", Cause::Overloaded),
        ("max_tokens", Cause::ContextExhausted),
        ("max_turn_requests", Cause::LimitReached),
        ("refusal", Cause::Refused),
        ("wrote 500 files, then broke", Cause::Agent),
        ("moved 402 entries and 529 lines", Cause::Agent),
        ("line 5020 of error.log", Cause::Agent),
        ("the refusal of the test", Cause::Agent),
        ("set max_tokens to a lower number", Cause::Agent),
    ];

    #[test]
    fn stop_reasons_of_acp_are_explained() {
        for (reason, cause, ..) in STOP_REASONS {
            for preset in preset::all().iter().chain([preset::acp()]) {
                let Failure {
                    cause: found,
                    message,
                    ..
                } = explain(
                    &preset.failures,
                    Cause::Agent,
                    reason,
                    None,
                    NOW,
                    &TimeZone::UTC,
                );
                assert_eq!(found, cause, "{}: {reason}", preset.name);
                assert!(
                    message.lines().next() != Some(reason) && message.contains("adj retry"),
                    "{}: {message}",
                    preset.name
                );
            }
        }
    }

    #[test]
    fn status_of_the_api_has_the_same_cause_for_every_preset() {
        for preset in preset::all().iter().chain([preset::acp()]) {
            for (message, cause) in MESSAGES {
                // Some presets know the text by a word of their own.
                if cause != Cause::Agent
                    || preset.failures.iter().all(|pattern| {
                        !pattern.any.iter().any(|any| message.contains(any.as_str()))
                    })
                {
                    assert_eq!(
                        cause_of(&preset.failures, message),
                        cause,
                        "{}: {message}",
                        preset.name
                    );
                }
            }
            assert_eq!(
                cause_of(
                    &preset.failures,
                    "429 rate limit reached, limit of 500 requests"
                ),
                cause_of(&preset.failures, "429 rate limit"),
                "{}",
                preset.name
            );
        }
    }
}
