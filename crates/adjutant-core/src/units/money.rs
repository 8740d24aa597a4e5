//! US dollars in millionths: `5`, `$0.25`.

const DOLLAR: i64 = 1_000_000;
const CENT: i64 = DOLLAR / 100;

/// Parses dollars such as `5`, `0.25` or `$5` into millionths.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    super::parse_decimal(text.strip_prefix('$').unwrap_or(text), DOLLAR)
}

/// Formats an amount exactly, without a sign, so that [`parse`] returns the same.
#[must_use]
pub fn exact(micros: i64) -> String {
    let micros = micros.max(0);
    let text = format!("{}.{:06}", micros / DOLLAR, micros % DOLLAR);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats an amount for people, to the cent; less than a cent exactly.
#[must_use]
pub fn text(micros: i64) -> String {
    if micros < CENT {
        return format!("${}", exact(micros));
    }
    let cents = micros.saturating_add(CENT / 2) / CENT;
    format!("${}.{:02}", cents / 100, cents % 100)
}

/// Formats dollars for people as [`text`] does.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "`as` saturates, and a double is exact to millionths up to billions"
)]
pub fn of(dollars: f64) -> String {
    text((dollars * DOLLAR as f64).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_see_cents() {
        let shown = [0, 1_250, 9_999, 10_000, 310_000, 5_000_000, 19_999].map(text);
        assert_eq!(
            shown,
            [
                "$0",
                "$0.00125",
                "$0.009999",
                "$0.01",
                "$0.31",
                "$5.00",
                "$0.02"
            ]
        );
    }

    #[test]
    fn dollars_with_a_fraction_are_rounded() {
        let shown = [0.0, 0.001_25, 0.305, 5.0, f64::NAN, 1e30].map(of);
        assert_eq!(shown[..5], ["$0", "$0.00125", "$0.31", "$5.00", "$0"]);
    }

    #[test]
    fn dollars_are_parsed_with_a_point() {
        assert_eq!(parse("$5"), Some(5_000_000));
        assert_eq!(parse(".25"), Some(250_000));
        for text in ["", "$", "5.", "$$5", "-1", "1e3", "0.0000001", "5k"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn exact_amounts_are_parsed_to_the_same_value(micros in 0..=i64::MAX) {
            prop_assert_eq!(parse(&exact(micros)), Some(micros));
        }
    }
}
