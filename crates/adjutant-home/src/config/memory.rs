//! Amounts of memory as people write them.

const UNITS: [(&str, u64); 4] = [
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
];

/// Parses an amount of memory such as `512MB`, `4GB` or `2GiB` into bytes.
///
/// # Errors
/// A message for the user, with the accepted formats.
pub fn memory_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not an amount of memory: write 512MB, 4GB or 2GiB");
    let text = text.trim();
    let (number, unit) =
        text.split_at(text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len());
    let (_, factor) = UNITS
        .iter()
        .find(|(name, _)| *name == unit.trim_start())
        .ok_or_else(wrong)?;
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*factor))
        .ok_or_else(wrong)?;
    // A run that may use nothing would be stopped at once; SQL integers are signed.
    if bytes == 0 || i64::try_from(bytes).is_err() {
        Err(wrong())
    } else {
        Ok(bytes)
    }
}

/// Formats an amount exactly if it is one that `memory_bytes` returned.
#[must_use]
pub fn memory_text(bytes: u64) -> String {
    let unit = UNITS
        .iter()
        .find(|(_, factor)| bytes.is_multiple_of(*factor));
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(name, factor)| format!("{}{name}", bytes / factor),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_parsed_and_formatted() {
        for (text, bytes) in [
            ("512MB", 512_000_000),
            ("4GB", 4_000_000_000),
            ("2GiB", 2 << 30),
            ("3MiB", 3 << 20),
        ] {
            assert_eq!(
                (memory_bytes(text), memory_text(bytes).as_str()),
                (Ok(bytes), text)
            );
        }
        assert_eq!(memory_bytes(" 7 MB "), Ok(7_000_000));
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
                memory_bytes(text).is_err_and(|problem| problem.contains("write 512MB")),
                "{text}"
            );
        }
    }
}
