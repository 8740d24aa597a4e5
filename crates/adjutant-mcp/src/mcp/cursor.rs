//! The cursors that waits take and return. A wait that times out at position 57 returns `57.1`, the
//! next one `57.2`. All denote the same position. The count makes each call different from the
//! last, because clients stop an agent that keeps repeating the same call.

use super::refusal::ToolRefusal;
use super::text::quoted;
use std::fmt;

/// The note for a caller whose cursor is from before the database was set back.
pub(super) const RESET: &str = "the hub's database was set back: some of what you know is lost. Check the runs and questions that you know";

/// A position, and the number of consecutive waits that timed out there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub position: i64,
    timeouts: u32,
}

impl Cursor {
    /// Parses the argument `name`. An empty one counts as absent.
    ///
    /// # Errors
    /// The text is not a cursor.
    pub(super) fn read(text: Option<&str>, name: &str) -> Result<Option<Self>, ToolRefusal> {
        text.filter(|text| !text.trim().is_empty())
            .map(|text| Self::parse(text, name))
            .transpose()
    }

    fn parse(text: &str, name: &str) -> Result<Self, ToolRefusal> {
        let (position, timeouts) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
        match (position.parse(), timeouts.parse()) {
            (Ok(position), Ok(timeouts)) => Ok(Self { position, timeouts }),
            _ => Err(ToolRefusal::invalid(
                format!("{} is not a cursor", quoted(text, 40)),
                format!("pass the {name} that an earlier call returned, or omit it"),
            )),
        }
    }

    /// Returns the cursor after a wait that began at `from`.
    #[must_use]
    pub(super) fn after(from: Option<Self>, position: i64, has_timed_out: bool) -> Self {
        let timeouts = if has_timed_out {
            from.map_or(0, |from| from.timeouts).wrapping_add(1).max(1)
        } else {
            0
        };
        Self { position, timeouts }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timeouts {
            0 => write!(f, "{}", self.position),
            timeouts => write!(f, "{}.{timeouts}", self.position),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_moves_with_every_timeout_and_means_the_same_position() {
        let mut from = None;
        for expected in ["57.1", "57.2", "57.3"] {
            let cursor = Cursor::after(from, 57, true);
            assert_eq!(
                (cursor.to_string().as_str(), cursor.position),
                (expected, 57)
            );
            from = Some(Cursor::parse(expected, "cursor").expect("a cursor"));
            assert_eq!(from, Some(cursor));
        }
        assert_eq!(Cursor::after(from, 58, false).to_string(), "58");
        assert_eq!(
            Cursor::parse("57", "cursor").expect("an old one"),
            Cursor {
                position: 57,
                timeouts: 0
            }
        );
        assert_eq!(
            Cursor::after(
                Some(Cursor {
                    position: 1,
                    timeouts: u32::MAX
                }),
                57,
                true
            )
            .to_string(),
            "57.1"
        );
        for bad in ["", "x", "1.2.3", "57.", ".1", "57.-1"] {
            assert!(Cursor::parse(bad, "cursor").is_err(), "{bad}");
        }
    }
}
