//! The vendor's sessions that a stream reports.

use adjutant_core::shorten;

/// Sessions that one attempt may report. A CLI starts another one only if the first is lost.
const SESSIONS_MAX: u32 = 8;
const SESSION_ID_BYTES_MAX: usize = 128;

/// The sessions so far.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// The id of the last one.
    current: String,
    count: u32,
}

impl Sessions {
    /// Records a session. Returns its id if it is another one than before. The id becomes an
    /// argument of the next attempt, so an invalid one is ignored.
    pub(super) fn begin(&mut self, id: &str) -> Option<String> {
        if id == self.current {
            return None;
        }
        if !is_session_id(id) || self.count == SESSIONS_MAX {
            tracing::warn!(id = %shorten::to_chars(id, 80).escape_debug(), "ignored an invalid or surplus session id");
            return None;
        }
        self.count += 1;
        id.clone_into(&mut self.current);
        Some(id.to_owned())
    }

    /// Returns whether an id is that of another session than the current one.
    pub(super) fn is_other(&self, id: &str) -> bool {
        !self.current.is_empty() && id != self.current
    }
}

/// Returns whether a text can be a vendor's session id. A valid id cannot be taken for an option or
/// a path.
fn is_session_id(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    text.len() <= SESSION_ID_BYTES_MAX
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_session_id_is_ignored() {
        for id in [
            "01a1ff9c-e65f-7113-bec7-2445b36c0c10",
            "20261121_1",
            "s1",
            "a.b:c",
        ] {
            assert!(is_session_id(id), "{id}");
        }
        for text in [
            "",
            "--dangerously-skip-permissions",
            "-c",
            "a b",
            "a\nb",
            "../x",
            "a/b",
            "é",
            "$(x)",
            &"x".repeat(129),
        ] {
            assert!(!is_session_id(text), "{text}");
        }
    }
}
