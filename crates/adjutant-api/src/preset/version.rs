//! Versions of CLIs, and how they compare with the tested ones.

use std::fmt;

/// A version's numbers, compared in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(Vec<u64>);

/// Numbers of a version that are compared; further ones are ignored.
const NUMBERS_MAX: usize = 6;

impl Version {
    /// Finds the version in the output of a program: the first word that begins with two numbers
    /// separated by a dot.
    #[must_use]
    pub fn find(output: &str) -> Option<Self> {
        output
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '/' | '@' | ':'))
            .find_map(Self::parse)
    }

    fn parse(word: &str) -> Option<Self> {
        let word = word.strip_prefix('v').unwrap_or(word);
        let end = word
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(word.len());
        let numbers: Option<Vec<u64>> = word[..end]
            .trim_end_matches('.')
            .split('.')
            .take(NUMBERS_MAX)
            .map(|number| number.parse().ok())
            .collect();
        numbers.filter(|numbers| numbers.len() >= 2).map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// The lowest and the highest tested version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestedVersions {
    pub lowest: Version,
    pub highest: Version,
}

impl TestedVersions {
    /// Reads `1.2.3`, or `1.2.3 to 1.4.0`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (lowest, highest) = text.split_once(" to ").unwrap_or((text, text));
        let tried = Self {
            lowest: Version::parse(lowest.trim())?,
            highest: Version::parse(highest.trim())?,
        };
        (tried.lowest <= tried.highest).then_some(tried)
    }

    /// Returns a note about a version outside of the tested range.
    #[must_use]
    pub fn note(&self, version: &Version) -> Option<String> {
        if *version < self.lowest {
            Some(format!("older than the tested versions ({self})"))
        } else if *version > self.highest {
            Some(format!("newer than the tested versions ({self})"))
        } else {
            None
        }
    }
}

impl fmt::Display for TestedVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lowest == self.highest {
            write!(f, "{}", self.lowest)
        } else {
            write!(f, "{} to {}", self.lowest, self.highest)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_found_in_program_output() {
        let of = |output: &str| Version::find(output).map(|version| version.to_string());
        assert_eq!(of("2.1.329 (Claude Code)").as_deref(), Some("2.1.329"));
        assert_eq!(of("codex-cli 0.169.0").as_deref(), Some("0.169.0"));
        assert_eq!(of(" 1.52.0\n").as_deref(), Some("1.52.0"));
        assert_eq!(
            of("tool v3.0.2-beta.1, built 2026").as_deref(),
            Some("3.0.2")
        );
        assert_eq!(
            of("tool/1.2.3 linux-x64 node-v24.9.0").as_deref(),
            Some("1.2.3")
        );
        for output in [
            "",
            "no version here",
            "2026",
            "v.",
            "99999999999999999999999.1",
        ] {
            assert_eq!(of(output), None, "{output}");
        }
    }

    #[test]
    fn version_outside_the_tested_range_gets_a_note() {
        let tried = TestedVersions::parse("0.160.0 to 0.169.0").expect("a range");
        let note = |version: &str| tried.note(&Version::find(version).expect("a version"));
        assert_eq!(note("0.169.0"), None);
        assert_eq!(
            note("0.160"),
            Some("older than the tested versions (0.160.0 to 0.169.0)".to_owned())
        );
        assert_eq!(note("0.165.9"), None);
        assert_eq!(
            note("0.169.1"),
            Some("newer than the tested versions (0.160.0 to 0.169.0)".to_owned())
        );
        assert_eq!(
            note("1.0"),
            Some("newer than the tested versions (0.160.0 to 0.169.0)".to_owned())
        );
        assert_eq!(
            TestedVersions::parse("1.0.0")
                .expect("one version")
                .to_string(),
            "1.0.0"
        );
        assert_eq!(
            (
                TestedVersions::parse(""),
                TestedVersions::parse("2.0 to 1.0")
            ),
            (None, None)
        );
    }
}
