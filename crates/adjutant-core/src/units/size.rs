//! Sizes: `512MB`, `4GB`, `2GiB`.

const KB: u64 = 1_000;
const MB: u64 = 1_000 * KB;
const GB: u64 = 1_000 * MB;

/// The units of the grammar, in the order of preference for [`exact`].
const UNITS: [(&str, u64); 4] = [("GB", GB), ("GiB", 1 << 30), ("MB", MB), ("MiB", 1 << 20)];

/// A text is not an amount of memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an amount of memory: write 512MB, 4GB or 2GiB")]
pub struct SizeError(String);

/// Parses an amount of memory such as `512MB`, `4GB` or `2GiB` into bytes.
///
/// # Errors
/// The text is not an amount of memory.
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let wrong = || SizeError(text.to_owned());
    let text = text.trim();
    let (number, unit) =
        text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len());
    let (_, factor) = UNITS
        .into_iter()
        .find(|(name, _)| *name == unit.trim_start())
        .ok_or_else(wrong)?;
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(wrong)?;
    // A run that may use nothing would be stopped at once; SQL integers are signed.
    if bytes == 0 || i64::try_from(bytes).is_err() {
        Err(wrong())
    } else {
        Ok(bytes)
    }
}

/// Formats an amount exactly. If [`parse`] has returned it, it does so again.
#[must_use]
pub fn exact(bytes: u64) -> String {
    let unit = UNITS
        .into_iter()
        .find(|(_, factor)| bytes.is_multiple_of(*factor));
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(name, factor)| format!("{}{name}", bytes / factor),
    )
}

/// Formats a size for people as kB, MB or, from 1 GB on, GB with a decimal.
#[must_use]
pub fn text(bytes: u64) -> String {
    match bytes {
        ..MB => format!("{} kB", bytes.div_ceil(KB)),
        MB..GB => format!("{} MB", bytes / MB),
        GB.. => format!("{}.{} GB", bytes / GB, bytes % GB / (GB / 10)),
    }
}

/// Formats a size for people in MB, so that two similar ones can be compared.
#[must_use]
pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes / MB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amounts_are_parsed_with_units() {
        for (text, bytes) in [
            ("512MB", 512_000_000),
            ("4GB", 4_000_000_000),
            ("2GiB", 2 << 30),
            ("3MiB", 3 << 20),
        ] {
            assert_eq!((parse(text), exact(bytes).as_str()), (Ok(bytes), text));
        }
        assert_eq!(parse(" 7 MB "), Ok(7_000_000));
        for text in [
            "",
            "4",
            "GB",
            "0MB",
            "-1GB",
            "1.5GB",
            "4gb",
            "4TB",
            "99999999999999999999GB",
            "9999999999999GB",
        ] {
            assert!(
                parse(text).is_err_and(|problem| problem.to_string().contains("write 512MB")),
                "{text}"
            );
        }
    }

    #[test]
    fn people_see_a_rounded_size() {
        let shown = [
            0,
            1,
            1_000,
            1_001,
            999_999,
            1_000_000,
            999_999_999,
            1_250_000_000,
        ]
        .map(text);
        assert_eq!(
            shown,
            [
                "0 kB", "1 kB", "1 kB", "2 kB", "1000 kB", "1 MB", "999 MB", "1.2 GB"
            ]
        );
    }

    proptest! {
        #[test]
        fn exact_amounts_are_parsed_to_the_same_value(number in 1_u64..8_000_000_000, unit in 0_usize..4) {
            let bytes = number * UNITS[unit].1;
            prop_assume!(i64::try_from(bytes).is_ok());
            prop_assert_eq!(parse(&exact(bytes)), Ok(bytes));
        }
    }
}
