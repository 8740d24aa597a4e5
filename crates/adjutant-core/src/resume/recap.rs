//! Decisions and messages of earlier attempts.

use super::settled::{SentMessage, SettledRequest};

/// Limits of the earlier decisions and messages that a new attempt receives again: the number of
/// the newest ones, and their bytes. Decisions and messages are counted separately.
pub const EARLIER_MAX: usize = 50;
pub(crate) const EARLIER_BYTES_MAX: usize = 16 * 1024;

/// Earlier decisions or messages, within the limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recap {
    /// Oldest first.
    pub(super) texts: Vec<String>,
    /// Some entries were omitted because they are too old or too long.
    pub(super) has_more: bool,
}

impl Recap {
    /// Keeps the newest requests that fit. `all` is sorted, the oldest first.
    #[must_use]
    pub fn of_requests(all: &[SettledRequest]) -> Self {
        Self::newest(all.iter().rev().map(SettledRequest::to_recap))
    }

    /// Keeps the newest messages that fit. `all` is sorted, the oldest first.
    #[must_use]
    pub fn of_messages(all: &[SentMessage]) -> Self {
        Self::newest(all.iter().rev().map(SentMessage::to_text))
    }

    pub(super) fn newest(newest_first: impl Iterator<Item = String>) -> Self {
        let mut kept = Self::default();
        let mut bytes = 0;
        for text in newest_first {
            if kept.texts.len() == EARLIER_MAX || bytes + text.len() > EARLIER_BYTES_MAX {
                kept.has_more = true;
                continue;
            }
            bytes += text.len();
            kept.texts.push(text);
        }
        kept.texts.reverse();
        kept
    }

    pub(super) fn to_text(&self, heading: &str, about: &str) -> Option<String> {
        let Self { texts, has_more } = self;
        if texts.is_empty() && !*has_more {
            return None;
        }
        let more = has_more.then(|| "Older or longer entries are omitted.".to_owned());
        let parts: Vec<String> = [format!("{heading}\n\n{about}")]
            .into_iter()
            .chain(texts.iter().cloned())
            .chain(more)
            .collect();
        Some(parts.join("\n\n"))
    }
}
