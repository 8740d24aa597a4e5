//! Typed ids. Foreign strings are parsed into them at the edges, so no path, query or message is
//! built from another party's text.

use std::fmt;
use uuid::Uuid;

/// The error for a text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id: expected a UUID such as 0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11")]
pub struct IdError;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Creates a version-7 id from a time and 10 random bytes.
            #[must_use]
            pub fn new(now: crate::Time, random: [u8; 10]) -> Self {
                let ms = u64::try_from(now.0).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid())
            }

            /// Parses the canonical hyphenated form.
            ///
            /// # Errors
            /// The text has another form, including other spellings of a UUID.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                if text.len() != 36 {
                    return Err(IdError);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| IdError)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

uuid_id!(
    /// Identifies one run.
    RunId
);
uuid_id!(
    /// Identifies one request (`messageId` in the original protocol).
    RequestId
);

/// The number of an attempt within its run, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptNo(pub u32);

impl fmt::Display for AttemptNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position in the event history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventSeq(pub i64);

/// The short number of a request within one home, shown as `Q12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestNo(pub i64);

impl fmt::Display for RequestNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Q{}", self.0)
    }
}

impl RequestNo {
    /// Parses `Q12` or `q12`.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let digits = text.strip_prefix(['Q', 'q']).ok_or(IdError)?;
        if digits.is_empty() || digits.len() > 18 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(IdError);
        }
        digits.parse().map(Self).map_err(|_| IdError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    #[test]
    fn ids_sort_by_creation_time() {
        let old = RunId::new(Time(1_000), [0xff; 10]);
        let new = RunId::new(Time(1_001), [0; 10]);
        assert!(old < new && old.to_string() < new.to_string());
        assert_eq!(RunId::parse(&new.to_string()), Ok(new));
    }

    #[test]
    fn only_the_canonical_form_is_an_id() {
        for text in [
            "",
            "../../etc/passwd",
            "0192f0c17c3e7a529f1e3f6f0a7f2b11",
            "{0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11}",
            "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b1\0",
        ] {
            assert_eq!(RunId::parse(text), Err(IdError), "{text:?}");
        }
        for text in ["Q", "12", "Q-1", "Q 1", "Q1234567890123456789"] {
            assert_eq!(RequestNo::parse(text), Err(IdError), "{text:?}");
        }
        assert_eq!(RequestNo::parse("q7"), Ok(RequestNo(7)));
    }
}
