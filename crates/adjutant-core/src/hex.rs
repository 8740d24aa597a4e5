//! Bytes as hexadecimal digits.

/// Formats bytes as lower-case hexadecimal digits, two for each byte.
#[must_use]
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes
        .as_ref()
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_two_digits_each() {
        assert_eq!(hex([0, 1, 0xab, 0xff]), "0001abff");
        assert_eq!(hex([]), "");
    }
}
