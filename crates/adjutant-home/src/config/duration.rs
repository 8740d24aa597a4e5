//! Durations as people write them.

/// Parses a duration such as `300ms`, `90s`, `45m`, `24h`, `14d` or `1h30m` into milliseconds.
///
/// # Errors
/// A message for the user, with the accepted formats.
pub fn duration_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not a duration: write 90s, 45m, 24h, 14d or 1h30m");
    let mut total: i64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: i64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let unit = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        total = number
            .checked_mul(unit)
            .and_then(|ms| total.checked_add(ms))
            .ok_or_else(wrong)?;
    }
    Ok(total)
}

/// Parses a duration that is not zero.
///
/// # Errors
/// A message for the user.
pub fn positive_duration_ms(text: &str) -> Result<i64, String> {
    match duration_ms(text)? {
        0 => Err(format!(
            "{text:?} is zero, which is too short: write 90s, 45m, 24h, 14d or 1h30m"
        )),
        ms => Ok(ms),
    }
}

/// Formats a duration exactly, so that [`duration_ms`] parses it to the same value.
#[must_use]
pub fn duration_text(ms: i64) -> String {
    let mut rest = ms.max(0);
    let mut text = String::new();
    for (unit, name) in [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
        (1, "ms"),
    ] {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_durations_are_parsed_to_the_same_value() {
        for (ms, text) in [
            (0, "0s"),
            (250, "250ms"),
            (90_000, "1m30s"),
            (5_400_000, "1h30m"),
            (86_400_000, "1d"),
            (3_000, "3s"),
        ] {
            assert_eq!(
                (duration_text(ms).as_str(), duration_ms(text)),
                (text, Ok(ms))
            );
        }
    }

    #[test]
    fn zero_is_refused_where_it_makes_no_sense() {
        assert_eq!(positive_duration_ms("1ms"), Ok(1));
        for text in ["0s", "0m0s"] {
            assert!(
                positive_duration_ms(text).is_err_and(|problem| problem.contains("is zero")),
                "{text:?}"
            );
        }
    }

    #[test]
    fn durations_are_parsed_with_units() {
        assert_eq!(duration_ms("1h30m"), Ok(5_400_000));
        assert_eq!(duration_ms("250ms"), Ok(250));
        for text in ["", "5", "m", "1y", "-1s", "99999999999999999999d", "1h 30m"] {
            assert!(duration_ms(text).is_err(), "{text:?}");
        }
    }
}
