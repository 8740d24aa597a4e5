//! Limits of displayed texts and lists.

/// Maximum number of characters of a question in a list.
pub(crate) const QUESTION_CHARS: usize = 2_000;
/// Maximum number of characters of a run's result, in a short list and in a result about the run
/// alone.
pub(crate) const RESULT_CHARS: usize = 1_500;
pub(crate) const RESULT_CHARS_ALONE: usize = 8_000;
/// Maximum number of characters of a run's result in a long list.
pub(crate) const RESULT_CHARS_LISTED: usize = 200;
/// Maximum number of listed files.
pub(super) const FILES_MAX: usize = 50;
/// Maximum number of questions shown with a run. Another tool lists all of them.
pub(crate) const QUESTIONS_MAX: usize = 10;

pub(super) fn first(files: &[String]) -> &[String] {
    &files[..files.len().min(FILES_MAX)]
}
