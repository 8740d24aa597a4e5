//! Parses agents' estimates of durations: `10 min`, `2-3 hours`, `1h 30m`.

use crate::units::duration::unit_ms;

/// Longest valid estimate.
const ESTIMATE_MS_MAX: f64 = 366.0 * 24.0 * 3_600_000.0;
/// Words that are ignored.
const FILLERS: [&str; 16] = [
    "about",
    "approx",
    "approximately",
    "around",
    "ca",
    "roughly",
    "circa",
    "up",
    "to",
    "and",
    "left",
    "remaining",
    "more",
    "of",
    "work",
    "max",
];

/// Parses an estimate: pairs of a number and a unit; of a range, the upper bound. `None`: the text
/// is not an estimate, or contains more than one.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a unit has few digits")]
pub fn duration_ms(text: &str) -> Option<i64> {
    let mut total = 0.0;
    let mut number: Option<f64> = None;
    let mut has_pair = false;
    for token in tokens(text)? {
        match (token, number) {
            // The upper bound of a range, as in `2-3` or `2 to 3`.
            (Token::Number(value), _) => number = Some(value),
            (Token::Word(word), _) if FILLERS.contains(&word.as_str()) => {}
            (Token::Word(word), None) if word == "a" || word == "an" => number = Some(1.0),
            (Token::Word(word), Some(value)) => {
                total += value * unit_ms(&word)? as f64;
                has_pair = true;
                number = None;
            }
            (Token::Word(_), None) => return None,
        }
    }
    if !has_pair || number.is_some() || !(1.0..=ESTIMATE_MS_MAX).contains(&total) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the bounds were checked above"
    )]
    Some(total as i64)
}

enum Token {
    Number(f64),
    Word(String),
}

/// Splits a text at blanks, and between digits and letters. `None`: it has other characters.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let end = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        if first.is_ascii_digit() {
            let at = end(|c| c.is_ascii_digit() || c == '.');
            tokens.push(Token::Number(
                rest[..at].trim_end_matches('.').parse().ok()?,
            ));
            rest = &rest[at..];
        } else if first.is_ascii_alphabetic() {
            let at = end(|c| c.is_ascii_alphabetic());
            tokens.push(Token::Word(rest[..at].to_ascii_lowercase()));
            rest = &rest[at..];
        } else if first.is_whitespace()
            || matches!(
                first,
                '~' | '≈' | '<' | '≤' | ',' | '.' | '-' | '–' | '—' | '+'
            )
        {
            rest = &rest[first.len_utf8()..];
        } else {
            return None;
        }
    }
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn estimates_of_agents_are_parsed() {
        const MINUTE: i64 = 60_000;
        for (text, expected) in [
            ("10 min", Some(10 * MINUTE)),
            ("~45 minutes", Some(45 * MINUTE)),
            ("2-3 hours", Some(180 * MINUTE)),
            ("2 to 3 Hours", Some(180 * MINUTE)),
            ("1h30m", Some(90 * MINUTE)),
            ("1 hour and 30 minutes", Some(90 * MINUTE)),
            ("about an hour", Some(60 * MINUTE)),
            ("1.5h", Some(90 * MINUTE)),
            ("90s left", Some(90_000)),
            ("2 days", Some(2 * 24 * 60 * MINUTE)),
            ("10", None),
            ("soon", None),
            ("0 min", None),
            ("", None),
            ("2 sprints", None),
            ("5 files per min", None),
            ("2026-01-11T12:00:00Z", None),
            ("99999999999 weeks", None),
            ("10 min 5", None),
        ] {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in "\\PC{0,40}") {
            if let Some(ms) = duration_ms(&text) {
                prop_assert!(ms >= 1);
            }
        }
    }
}
