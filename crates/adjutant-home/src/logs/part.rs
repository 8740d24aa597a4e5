//! What is read of a log: the query and its result.

use super::times::{TimeMark, push_mark};
use adjutant_core::Time;

/// An output of an attempt that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Readable text.
    Text,
    /// What the agent's CLI wrote, for agents whose output is not the text itself.
    Raw,
}

/// Which part of a log to read.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    pub output: Output,
    /// Position in the stream. `None`: the last part.
    pub after: Option<u64>,
    /// Bytes of text to return at most, but at least one character.
    pub bytes_max: u64,
    /// Return only lines that contain this.
    pub grep: Option<&'a str>,
    /// The stream is complete, and so is its last line.
    pub ended: bool,
    /// Also return when the lines were written.
    pub times: bool,
    /// Return only what was written from then on. Output without times counts if nothing earlier is
    /// known to follow.
    pub since: Option<Time>,
}

/// A part of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// The text, in whole characters. A line marks dropped bytes.
    pub text: String,
    /// Start position in the stream.
    pub from: u64,
    /// Position to continue from.
    pub next: u64,
    /// Length of the stream so far.
    pub total: u64,
    /// Bytes between `from` and `next` that were dropped because of the cap.
    pub omitted: u64,
    /// When the lines of the text were written.
    pub times: Vec<TimeMark>,
}

impl Part {
    /// Shifts the positions by the bytes of earlier attempts.
    pub(super) fn shifted(self, bytes: u64) -> Self {
        Self {
            from: self.from + bytes,
            next: self.next + bytes,
            total: self.total + bytes,
            ..self
        }
    }

    /// Appends the part that follows.
    pub(super) fn append(&mut self, more: Self) {
        if self.text.is_empty() && self.next == self.from {
            self.from = more.from;
        }
        let lines = self.text.matches('\n').count() as u64;
        let is_line_open = !self.text.is_empty() && !self.text.ends_with('\n');
        for TimeMark { line, time } in more.times {
            push_mark(
                &mut self.times,
                TimeMark {
                    line: lines + line.max(u64::from(is_line_open)),
                    time,
                },
            );
        }
        self.text.push_str(&more.text);
        self.omitted += more.omitted;
        (self.next, self.total) = (more.next, more.total);
    }
}
