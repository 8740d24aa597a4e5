//! Helpers for lines of the stream and of the log.

use super::Part;

/// Longest error message that is kept, in bytes.
pub(super) const ERROR_BYTES_MAX: usize = 4 * 1024;
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
