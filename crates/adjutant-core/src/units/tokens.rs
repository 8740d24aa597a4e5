//! Tokens: `500`, `20k`, `2M`. The exact form is the number.

use super::parse_decimal;

/// Parses a number of tokens such as `500`, `20k`, `1.5M` or `1G`.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1_000),
        (at, 'm' | 'M') => (&text[..at], 1_000_000),
        (at, 'g' | 'G') => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    parse_decimal(digits, unit)
}

/// Formats a number of tokens for people, with at most two decimals.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn text(tokens: i64) -> String {
    let scaled = |by: i64, suffix: &str| {
        let text = format!("{:.2}", tokens as f64 / by as f64);
        format!(
            "{}{suffix}",
            text.trim_end_matches('0').trim_end_matches('.')
        )
    };
    match tokens {
        ..1_000 => tokens.to_string(),
        1_000..1_000_000 => scaled(1_000, "k"),
        1_000_000..1_000_000_000 => scaled(1_000_000, "M"),
        _ => scaled(1_000_000_000, "G"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_suffixes() {
        for (text, tokens) in [("500", 500), ("20k", 20_000), ("1.5M", 1_500_000)] {
            assert_eq!(
                (parse(text), super::text(tokens).as_str()),
                (Some(tokens), text)
            );
        }
        assert_eq!(parse("2m"), Some(2_000_000));
        for text in ["", "k", "1.5", "1.", "-5", "1T", "9999999999G"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn plain_numbers_are_parsed_to_the_same_value(tokens in 0..=i64::MAX) {
            prop_assert_eq!(parse(&tokens.to_string()), Some(tokens));
        }
    }
}
