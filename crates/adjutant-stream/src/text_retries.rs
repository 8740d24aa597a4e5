//! Retries that a CLI reports in plain text: an error, followed by a line that announces another
//! try.

use crate::format::{PlainText, Stream};
use crate::reader::StreamUpdate;
use adjutant_core::shorten;
use memchr::memchr;

/// Longest line that is examined, in bytes. A longer one counts as other text.
const LINE_BYTES_MAX: usize = 16 * 1024;
/// Longest error message that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 2 * 1024;

/// Finds failed tries, and progress after them, in the text of a CLI.
#[derive(Debug)]
pub struct TextRetries {
    /// Prefixes of lines that announce another try.
    announcements: Vec<String>,
    /// Prefixes of lines that report an error.
    errors: Vec<String>,
    line: Vec<u8>,
    /// The current line is too long to be examined.
    is_overlong: bool,
    /// The error that the current lines describe.
    error: Option<String>,
    /// A try has failed, and nothing else has followed.
    is_retrying: bool,
}

impl TextRetries {
    /// Returns `None` if the CLI announces no retries.
    #[must_use]
    pub fn new(text: &PlainText, stream: &Stream) -> Option<Self> {
        (!text.retries.is_empty()).then(|| Self {
            announcements: text.retries.clone(),
            errors: stream.failed_results.clone(),
            line: Vec::new(),
            is_overlong: false,
            error: None,
            is_retrying: false,
        })
    }

    /// Reads the next text.
    pub fn push(&mut self, text: &[u8], updates: &mut Vec<StreamUpdate>) {
        let mut rest = text;
        while let Some(end) = memchr(b'\n', rest) {
            self.append(&rest[..end]);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.read(&String::from_utf8_lossy(&line), updates);
            self.is_overlong = false;
        }
        self.append(rest);
    }

    fn append(&mut self, piece: &[u8]) {
        self.is_overlong |= self.line.len() + piece.len() > LINE_BYTES_MAX;
        if !self.is_overlong {
            self.line.extend_from_slice(piece);
        }
    }

    fn read(&mut self, line: &str, updates: &mut Vec<StreamUpdate>) {
        let begins_with = |beginnings: &[String]| {
            beginnings
                .iter()
                .any(|beginning| line.starts_with(beginning.as_str()))
        };
        if begins_with(&self.announcements) {
            let error = self
                .error
                .take()
                .unwrap_or_else(|| "a call to its model failed".to_owned());
            self.is_retrying = true;
            updates.push(StreamUpdate::Retry { error, cause: None });
        } else if begins_with(&self.errors) {
            self.error = Some(shorten::head(line.trim_end(), ERROR_BYTES_MAX).to_owned());
        } else if self.is_retrying
            && self.error.is_none()
            && (self.is_overlong || !line.trim().is_empty())
        {
            self.is_retrying = false;
            updates.push(StreamUpdate::Progress);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updates(pieces: &[&str]) -> Vec<String> {
        let text = PlainText {
            retries: vec!["Retrying in ".to_owned()],
            ..PlainText::default()
        };
        let stream = Stream {
            failed_results: vec!["Error:".to_owned()],
            ..Stream::default()
        };
        let mut retries = TextRetries::new(&text, &stream).expect("retries are announced");
        let mut updates = Vec::new();
        pieces
            .iter()
            .for_each(|piece| retries.push(piece.as_bytes(), &mut updates));
        let show = |update| match update {
            StreamUpdate::Retry { error, cause: None } => error,
            StreamUpdate::Progress => "progress".to_owned(),
            other => format!("{other:?}"),
        };
        updates.into_iter().map(show).collect()
    }

    #[test]
    fn failed_tries_and_progress_are_found() {
        let failed = "Error: 529\nThe server is overloaded.\n\nRetrying in 0.2 seconds...\n";
        assert_eq!(
            updates(&["Model: x\n", failed, failed, "\nIt is done.\nReally.\n"]),
            ["Error: 529", "Error: 529", "progress"]
        );
        let bytes: Vec<String> = failed.chars().map(String::from).collect();
        assert_eq!(
            updates(&bytes.iter().map(String::as_str).collect::<Vec<_>>()),
            ["Error: 529"]
        );
        assert_eq!(
            updates(&["Retrying in 1 s\n", "Error: 401\nNo key.\n"]),
            ["a call to its model failed"],
            "the last error is not progress"
        );
    }

    #[test]
    fn other_text_is_ignored() {
        assert_eq!(
            updates(&[
                "It is done.\n",
                "Error: none was found.\n",
                "I am Retrying in a while.\n",
                "Retrying in"
            ]),
            Vec::<String>::new()
        );
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        assert_eq!(
            updates(&[
                "Retrying in 1 s\n",
                &long,
                "Error: 1\n",
                "Error: 2\nRetrying in 2 s\n"
            ]),
            ["a call to its model failed", "progress", "Error: 2"]
        );
        let when_none = TextRetries::new(&PlainText::default(), &Stream::default());
        assert!(when_none.is_none());
    }
}
