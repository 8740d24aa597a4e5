//! How much of a text or a list is shown.

/// Most characters of a question in a list.
pub const QUESTION_CHARS: usize = 2_000;
/// Most characters of a run's last words in a list, and where it is looked at alone.
pub const RESULT_CHARS: usize = 1_500;
pub const RESULT_CHARS_ALONE: usize = 8_000;
/// The same in a list of many.
pub const RESULT_CHARS_LISTED: usize = 200;
/// Most files that are named.
pub(super) const FILES_MAX: usize = 50;
/// Most questions that a run is shown with; there is a tool for all of them.
pub const QUESTIONS_MAX: usize = 10;

pub(super) fn first(files: &[String]) -> &[String] {
    &files[..files.len().min(FILES_MAX)]
}

/// Keeps the end of a text.
pub(super) fn cut_end(text: &str, chars_max: usize) -> String {
    let skip = text.chars().count().saturating_sub(chars_max);
    text.chars().skip(skip).collect()
}
