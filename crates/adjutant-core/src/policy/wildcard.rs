//! Words with wildcards: `*` stands for any characters, including none.

/// A word in which `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wildcard(String);

impl Wildcard {
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the word contains no wildcard.
    #[must_use]
    pub fn is_literal(&self) -> bool {
        !self.0.contains('*')
    }

    /// Returns whether a whole word matches.
    #[must_use]
    pub fn matches(&self, word: &str) -> bool {
        // Each part must follow the one before it; the last one must end the word.
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = word.strip_prefix(first) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else {
            return rest.is_empty();
        };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    /// Returns whether a whole word matches, ignoring the case of ASCII letters.
    #[must_use]
    pub(crate) fn matches_any_case(&self, word: &str) -> bool {
        Self(self.0.to_ascii_lowercase()).matches(&word.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_stands_for_any_characters() {
        let matches = |pattern: &str, word: &str| Wildcard::new(pattern).matches(word);
        for (pattern, word) in [
            ("a", "a"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "a"),
            ("a*c", "abbc"),
            ("*b*", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("", ""),
        ] {
            assert!(matches(pattern, word), "{pattern} {word}");
        }
        for (pattern, word) in [
            ("a", "ab"),
            ("a*", "ba"),
            ("a*c", "ab"),
            ("a*a", "a"),
            ("*b*", "ac"),
            ("A", "a"),
            ("ab*ba", "aba"),
        ] {
            assert!(!matches(pattern, word), "{pattern} {word}");
        }
        assert!(Wildcard::new("A*").matches_any_case("aB"));
    }
}
