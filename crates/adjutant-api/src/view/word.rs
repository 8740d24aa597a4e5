//! Enumerated values in the contract, which may include values of later versions.

use adjutant_core::words::{self, Words};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;

/// A value of `T`, serialized as its word. A word that this version does not know is preserved,
/// displayed and serialized unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Word<T> {
    Known(T),
    Unknown(String),
}

impl<T: Words> Word<T> {
    /// Returns the value if this version knows the word.
    #[must_use]
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Unknown(_) => None,
        }
    }

    /// Returns the value if a run may have meant it: it is written in any case, or with blanks or
    /// hyphens.
    #[must_use]
    pub fn spoken(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Unknown(word) => words::spoken(word),
        }
    }

    /// Returns the word as it is serialized.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) => value.word(),
            Self::Unknown(word) => word,
        }
    }
}

/// The empty word, like any other absent text.
impl<T> Default for Word<T> {
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

impl<T> From<T> for Word<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T: Words> Word<T> {
    /// Parses a word.
    #[must_use]
    pub fn read(word: &str) -> Self {
        T::from_word(word)
            .filter(|value| value.word() == word)
            .map_or_else(|| Self::Unknown(word.to_owned()), Self::Known)
    }
}

impl<T: Words> PartialEq<T> for Word<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(*other)
    }
}

/// Words are ordered as strings, as in JSON.
impl<T: Words> Ord for Word<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl<T: Words> PartialOrd for Word<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Words> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl<T: Words> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: Words> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneWord<T>(PhantomData<T>);

        impl<T: Words> Visitor<'_> for OneWord<T> {
            type Value = Word<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
                Ok(Word::read(word))
            }
        }

        deserializer.deserialize_str(OneWord(PhantomData))
    }
}

#[cfg(test)]
impl<T: Words> schemars::JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Word".into()
    }

    /// A later version can reply with other words.
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        match (T::WORDS, generator.contract().is_serialize()) {
            ([], _) => schemars::json_schema!({"type": "string"}),
            (words, true) => schemars::json_schema!({"type": "string", "examples": words}),
            (words, false) => schemars::json_schema!({"type": "string", "enum": words}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::report::Claim;
    use adjutant_core::{RequestKind, RunStateKind};

    #[test]
    fn known_word_is_its_value() {
        let read: Word<RunStateKind> = serde_json::from_str("\"stopped\"").expect("a word");
        assert!(read == RunStateKind::Stopped && read == Word::Known(RunStateKind::Stopped));
        assert_eq!(serde_json::to_string(&read).expect("JSON"), "\"stopped\"");
    }

    #[test]
    fn unknown_word_is_kept_unchanged() {
        for word in ["\"hibernating\"", "\"\""] {
            let read: Word<RunStateKind> = serde_json::from_str(word).expect("a word");
            assert_eq!(
                (
                    read.known(),
                    serde_json::to_string(&read).expect("JSON").as_str()
                ),
                (None, word)
            );
        }
        assert_eq!(Word::<RequestKind>::read("vote").to_string(), "vote");
        assert!(serde_json::from_str::<Word<RequestKind>>("1").is_err());
    }

    /// A word is serialized as it was received, even if it is a synonym.
    #[test]
    fn second_spelling_is_not_rewritten() {
        assert_eq!(
            (
                Claim::from_word("failed"),
                Word::<Claim>::read("failed").as_str()
            ),
            (Some(Claim::Failed), "failed")
        );
    }
}
