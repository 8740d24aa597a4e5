//! Helpers for lines of the stream and of the log.

use super::Part;

/// Longest error message that is kept, in bytes.
pub(super) const ERROR_BYTES_MAX: usize = 4 * 1024;
pub(super) const SESSION_ID_BYTES_MAX: usize = 128;
/// Longest input or output of a tool in the log, in bytes.
pub(super) const TOOL_BYTES_MAX: usize = 2 * 1024;

pub(super) fn write_note(part: &mut dyn FnMut(Part<'_>), within_line: &mut bool, text: &str) {
    if *within_line {
        part(Part::Note("\n"));
    }
    part(Part::Note(&format!("{}\n", text.trim_end())));
    *within_line = false;
}

/// Removes digits, such as counts and times, so that errors of the same kind compare equal.
pub(super) fn without_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

pub(super) fn is_reply_to(line: &str, id: u64) -> bool {
    serde_json::from_str::<serde_json::Value>(line)
        .is_ok_and(|line| line["id"].as_u64() == Some(id) && line.get("method").is_none())
}

/// Returns whether a text can be a vendor's session id. A valid id cannot be taken for an option or
/// a path.
pub(super) fn is_session_id(text: &str) -> bool {
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
