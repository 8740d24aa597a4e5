//! The fingerprint of the public key of a certificate.

use crate::Denied;
use std::fmt;
use std::str::FromStr;

const HEX_DIGITS: usize = 64;

/// The SHA-256 of the public key of a certificate (its `SubjectPublicKeyInfo` in DER).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Parses hexadecimal digits in any case, with or without colons and the prefix `sha256:`.
    ///
    /// # Errors
    /// The text is not a SHA-256.
    pub fn parse(given: &str) -> Result<Self, Denied> {
        let lower = given.trim().to_ascii_lowercase();
        let digits = lower
            .strip_prefix("sha256:")
            .unwrap_or(&lower)
            .replace(':', "");
        if digits.len() == HEX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(Self(digits))
        } else {
            Err(Denied::invalid(
                "fingerprint",
                "use the SHA-256 of the public key of the certificate, in hexadecimal",
            ))
        }
    }

    /// Parses fingerprints with commas between them.
    ///
    /// # Errors
    /// One of them is not a SHA-256.
    pub fn parse_list(given: &str) -> Result<Vec<Self>, Denied> {
        given.split(',').map(Self::parse).collect()
    }

    /// Returns the digits in lower case, without colons.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = Denied;

    fn from_str(text: &str) -> Result<Self, Denied> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_has_64_digits_in_any_notation() {
        let plain = "0a".repeat(32);
        let colons = ["0A"; 32].join(":");
        for given in [
            plain.clone(),
            plain.to_uppercase(),
            format!(" sha256:{plain}\n"),
            format!("SHA256:{colons}"),
            colons,
        ] {
            assert_eq!(
                Fingerprint::parse(&given).expect("a fingerprint").as_str(),
                plain,
                "{given}"
            );
        }
        let two = format!("{plain}, sha256:{plain}");
        assert_eq!(
            Fingerprint::parse_list(&two)
                .expect("two fingerprints")
                .len(),
            2
        );
        assert!(Fingerprint::parse_list(&format!("{plain},")).is_err());
        for bad in [
            "",
            "sha256:",
            &plain[1..],
            &format!("{plain}0"),
            &"0g".repeat(32),
            &format!("sha1:{plain}"),
        ] {
            assert!(Fingerprint::parse(bad).is_err(), "{bad}");
        }
    }
}
