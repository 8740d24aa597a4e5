//! Readable names for runs, such as `brave-otter`, in addition to their UUIDs.

use crate::agent::{edit_distance, suggested_name};
use crate::limits::NAME_BYTES_MAX;
use std::fmt;

const ADJECTIVES: [&str; 64] = [
    "able", "amber", "bold", "brave", "brisk", "calm", "clever", "coral", "crisp", "curly",
    "dapper", "daring", "eager", "early", "fair", "fleet", "fond", "frank", "fresh", "gentle",
    "glad", "golden", "grand", "green", "happy", "hardy", "honest", "humble", "jolly", "keen",
    "kind", "lively", "loyal", "lucid", "lucky", "merry", "mild", "modest", "neat", "nimble",
    "noble", "odd", "patient", "plain", "polite", "proud", "quick", "quiet", "rapid", "ready",
    "sharp", "shy", "silver", "sleek", "smart", "snug", "solid", "steady", "sunny", "swift",
    "tidy", "vivid", "warm", "wise",
];

const ANIMALS: [&str; 64] = [
    "ant", "badger", "bat", "bear", "beaver", "bee", "bison", "boar", "camel", "cat", "cobra",
    "crab", "crane", "crow", "deer", "dingo", "dog", "dove", "eagle", "egret", "elk", "emu",
    "falcon", "ferret", "finch", "fox", "frog", "gecko", "goat", "goose", "hare", "hawk", "heron",
    "horse", "ibis", "jay", "koala", "lark", "lion", "llama", "lynx", "mole", "moose", "moth",
    "mouse", "newt", "orca", "otter", "owl", "panda", "puma", "quail", "rabbit", "raven", "robin",
    "seal", "shark", "sloth", "swan", "tiger", "toad", "whale", "wolf", "wren",
];

/// What stands for the newest run where a name is accepted.
pub const LAST_RUN: &str = "@last";

/// Words that have another meaning where names are accepted.
const RESERVED: [&str; 12] = [
    "person",
    "user",
    "me",
    "parent",
    "hub",
    "board",
    "root-board",
    "ledger",
    "agent",
    "client",
    "run",
    "file",
];

/// A run's human name: lower-case ASCII letters, digits and hyphens, 1 to 50 bytes, not beginning
/// with a hyphen, never shaped like a request number or a UUID, and no reserved word.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunName(String);

/// Why a text cannot name a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("use a-z, 0-9 and -, starting with a letter, at most {NAME_BYTES_MAX} characters")]
    Malformed,
    #[error("this word is reserved")]
    Reserved,
    #[error("questions have such names, as q12; use another, as job-1")]
    Number,
    #[error("runs have such ids")]
    Id,
}

impl RunName {
    /// Parses a name that a user chose.
    ///
    /// # Errors
    /// The text is not a valid name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let well_formed = (1..=NAME_BYTES_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        match well_formed {
            _ if crate::RequestNo::parse(text).is_ok() => Err(NameError::Number),
            _ if crate::RunId::parse(text).is_ok() => Err(NameError::Id),
            _ if RESERVED.contains(&text) => Err(NameError::Reserved),
            false => Err(NameError::Malformed),
            true => Ok(Self(text.to_owned())),
        }
    }

    /// Generates the `round`-th candidate from random bytes: two words in the first two rounds,
    /// then also a number.
    #[must_use]
    pub fn draw(random: [u8; 4], round: u32) -> Self {
        let adjective = ADJECTIVES[usize::from(random[0]) % ADJECTIVES.len()];
        let animal = ANIMALS[usize::from(random[1]) % ANIMALS.len()];
        if round < 2 {
            return Self(format!("{adjective}-{animal}"));
        }
        let number = u16::from_le_bytes([random[2], random[3]]);
        Self(format!("{adjective}-{animal}-{number}"))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the name of a run, or `@last`, that a misspelled one probably means.
#[must_use]
pub fn misspelled_run<'a>(typed: &str, names: &'a [String]) -> Option<&'a str> {
    let known = names
        .iter()
        .map(String::as_str)
        .chain([LAST_RUN])
        .filter(|name| *name != typed);
    // Short names such as `e1` and `e2` differ on purpose.
    suggested_name(typed, known)
        .filter(|name| edit_distance(&typed.to_lowercase(), name) * 2 < name.len())
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn confusing_names_are_refused() {
        for text in [
            "",
            "-x",
            "Q1",
            "q12",
            "Brave",
            "a b",
            "a/b",
            "ä",
            "1abc",
            "person",
            "parent",
            "board",
            "ledger",
            &"a".repeat(51),
        ] {
            assert!(RunName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn error_mentions_reserved_words_only_when_hit() {
        assert_eq!(RunName::parse("My Run"), Err(NameError::Malformed));
        assert_eq!(RunName::parse("parent"), Err(NameError::Reserved));
        assert_eq!(RunName::parse("q1"), Err(NameError::Number));
        assert_eq!(RunName::parse("q"), Ok(RunName("q".to_owned())));
    }

    proptest! {
        #[test]
        fn generated_names_are_valid(random in any::<[u8; 4]>(), round in 0_u32..5) {
            let drawn = RunName::draw(random, round);
            prop_assert_eq!(RunName::parse(drawn.as_str()), Ok(drawn));
        }
    }
}
