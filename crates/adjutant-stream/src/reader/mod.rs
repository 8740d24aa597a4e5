//! Reads an agent's stream of JSON lines: splits it into lines, applies the preset's rules, writes
//! a readable log, and keeps a summary for the end of the attempt.

mod event;
mod line;
mod message;
mod retries;
mod retry_line;
mod session;
mod usage;

use crate::calls::Calls;
use crate::format::{End, StderrRetry, Stream};
use crate::rules::{Rules, StreamEvent, Usage};
use adjutant_core::Cause;
use adjutant_core::subagent::{Subagent, Subagents};
use line::{is_reply_to, write_note};
use memchr::memchr;
use retry_line::RetryLine;
use session::Sessions;
use std::borrow::Cow;
use std::collections::VecDeque;
use usage::StatedUsage;

/// Longest line that is parsed, in bytes. A longer one is only kept in the raw stream.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A piece of the log.
#[derive(Debug, PartialEq)]
pub enum Part<'a> {
    /// Text of the agent. Only this text is searched for signals.
    Text(&'a str),
    /// A tool call, its output, an error or another note.
    Note(&'a str),
}

/// A change that the attempt handles immediately.
#[derive(Debug, PartialEq)]
pub enum StreamUpdate {
    Session(String),
    /// A call failed and the CLI retries it.
    Retry {
        error: String,
        cause: Option<Cause>,
    },
    /// The model or a tool has responded after a failed call.
    Progress,
    /// The CLI's own sub-agents, and the number of those that are not listed.
    Subagents(Vec<Subagent>, u64),
    /// The usage so far.
    Usage(Usage),
    /// The model has written text since the last line for the dialogue.
    ModelText,
    /// A line for the dialogue.
    DialogueLine(String),
}

/// The results of a stream at its end.
#[derive(Debug, Default, PartialEq)]
pub struct Summary {
    /// The agent's last answer.
    pub result: String,
    pub end: Option<End>,
    /// The last error message.
    pub error: String,
    /// When the usage limit that was reached resets, in seconds since the epoch.
    pub limit_reset_at_s: Option<u64>,
    pub usage: Option<Usage>,
    /// The model wrote text, or a tool was called.
    pub has_acted: bool,
    /// The model wrote text after its last tool call.
    pub has_answered: bool,
    /// The stream ended within a message, and did not say how the work ended.
    pub is_cut: bool,
    /// Substantial messages, the oldest first: the last few.
    pub messages: VecDeque<String>,
}

/// How to read an agent's stream.
#[derive(Debug)]
pub struct ReaderConfig {
    pub stream: Stream,
    /// Text before the reply with this id repeats earlier attempts and is ignored.
    pub answers_after: Option<u64>,
}

/// Reads one stream.
#[derive(Debug)]
pub struct Reader {
    rules: Rules,
    stream: Stream,
    answers_after: Option<u64>,
    line: Vec<u8>,
    /// The current line is too long to be parsed.
    is_overlong: bool,
    /// The current message.
    message: String,
    message_of: Option<String>,
    /// The last completed message.
    last_message: String,
    /// `ModelText` was reported since the last line for the dialogue.
    has_reported_text: bool,
    /// The last remark of the CLI itself. It becomes the result if there is no other text.
    remark: String,
    /// The log ends within a line.
    within_line: bool,
    sessions: Sessions,
    retries: RetryLine,
    subagents: Subagents,
    /// The sub-agent that the current line belongs to.
    speaker: Option<String>,
    summary: Summary,
    calls: Calls,
    /// The current step of its plan.
    step: String,
    usage: StatedUsage,
    /// Longest answer that is kept, in bytes.
    answer_bytes_max: usize,
}

impl Reader {
    /// Creates a reader that keeps at most `answer_bytes_max` bytes of the last answer.
    #[must_use]
    pub fn new(of: &ReaderConfig, answer_bytes_max: usize) -> Self {
        Self {
            answer_bytes_max,
            rules: Rules::new(&of.stream),
            // `rules` holds the compiled rules.
            stream: Stream {
                rules: Vec::new(),
                ..of.stream.clone()
            },
            answers_after: of.answers_after,
            line: Vec::new(),
            is_overlong: false,
            message: String::new(),
            message_of: None,
            last_message: String::new(),
            remark: String::new(),
            has_reported_text: false,
            within_line: false,
            sessions: Sessions::default(),
            retries: RetryLine::default(),
            subagents: Subagents::default(),
            speaker: None,
            summary: Summary::default(),
            calls: Calls::default(),
            step: String::new(),
            usage: StatedUsage::default(),
        }
    }

    /// Returns the patterns for lines of standard error that report a failed call.
    #[must_use]
    pub fn stderr_retries(&self) -> &[StderrRetry] {
        &self.stream.stderr_retries
    }

    /// Counts a failed call that was reported on standard error, so that later progress is
    /// reported.
    pub fn expect_progress(&mut self) {
        self.retries.tries = self.retries.tries.saturating_add(1);
    }

    /// Logs and reports a failed call that the CLI's own log reports.
    pub fn note_retry(
        &mut self,
        error: &str,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        self.retry(error, None, part, updates);
    }

    /// Reads the next bytes of the stream.
    pub fn push(
        &mut self,
        bytes: &[u8],
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            rest = &after[1..];
            if self.is_overlong {
                self.is_overlong = false;
                continue;
            }
            if self.line.is_empty() {
                self.read(line, part, updates);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.read(&whole, part, updates);
                whole.clear();
                if whole.capacity() <= 64 * 1024 {
                    self.line = whole;
                }
            }
        }
        if self.is_overlong {
            return;
        }
        if self.line.len() + rest.len() > LINE_BYTES_MAX {
            self.is_overlong = true;
            self.line = Vec::new();
            self.retries.end(part, &mut self.within_line);
            write_note(
                part,
                &mut self.within_line,
                "(a line of more than 4 MiB is only in the raw stream)",
            );
            return;
        }
        self.line.extend_from_slice(rest);
    }

    /// Ends the stream and returns its summary.
    pub fn finish(
        mut self,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) -> Summary {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.read(&line, part, updates);
        }
        self.summary.is_cut = self.summary.end.is_none() && !self.message.trim().is_empty();
        self.end_message(part);
        self.flush_calls(part);
        if self.within_line {
            part(Part::Text("\n"));
        }
        self.summary.usage = self.usage.total();
        if self.summary.result.trim().is_empty() {
            self.summary.result = std::mem::take(&mut self.last_message);
        }
        if self.summary.result.trim().is_empty() {
            self.summary.result = std::mem::take(&mut self.remark);
        }
        self.summary
    }

    fn read(
        &mut self,
        line: &[u8],
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        // Faster than the lossy conversion alone, for valid text.
        let line =
            std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
        if line.trim().is_empty() {
            return;
        }
        let rules = std::mem::replace(&mut self.rules, Rules::empty());
        if let Some(id) = self.answers_after {
            // Skip text that repeats earlier attempts.
            let mut is_for_dialogue = false;
            let is_known = rules.read(&line, &mut |event| match event {
                StreamEvent::DialogueLine | StreamEvent::Session(_) => {
                    is_for_dialogue |= self.apply(event, part, updates)
                }
                _ => {}
            });
            if !is_known {
                self.retries.end(part, &mut self.within_line);
                write_note(part, &mut self.within_line, &line);
            }
            if is_for_dialogue {
                if is_reply_to(&line, id) {
                    self.answers_after = None;
                }
                self.has_reported_text = false;
                updates.push(StreamUpdate::DialogueLine(line.into_owned()));
            }
        } else {
            let mut is_for_dialogue = false;
            let is_known = rules.read(&line, &mut |event| {
                is_for_dialogue |= self.apply(event, part, updates)
            });
            if !is_known {
                self.end_message(part);
                write_note(part, &mut self.within_line, &line);
            }
            if is_for_dialogue {
                self.has_reported_text = false;
                // Before the line, which may end a turn: its usage is then recorded with it.
                self.report_usage(updates);
                updates.push(StreamUpdate::DialogueLine(line.into_owned()));
            }
        }
        self.rules = rules;
        self.speaker = None;
        if let Some((all, more)) = self.subagents.take_changed() {
            updates.push(StreamUpdate::Subagents(all, more));
        }
        self.report_usage(updates);
    }

    fn report_usage(&mut self, updates: &mut Vec<StreamUpdate>) {
        updates.extend(self.usage.take_new().map(StreamUpdate::Usage));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Rule;
    use std::collections::BTreeMap;

    #[test]
    fn endless_line_uses_bounded_memory() {
        let when = BTreeMap::from([("id".to_owned(), "2".to_owned())]);
        let rule = Rule {
            when,
            session: Some("session".to_owned()),
            ..Rule::default()
        };
        let stream = Stream {
            rules: vec![rule],
            ..Stream::default()
        };
        let mut reader = Reader::new(
            &ReaderConfig {
                stream,
                answers_after: None,
            },
            16 * 1024,
        );
        let (mut log, mut updates) = (String::new(), Vec::new());
        for _ in 0..100 {
            reader.push(
                &[b'x'; 100_000],
                &mut |part| {
                    log.push_str(match part {
                        Part::Text(text) | Part::Note(text) => text,
                    })
                },
                &mut updates,
            );
            assert!(reader.line.capacity() <= 2 * LINE_BYTES_MAX);
        }
        reader.push(
            b"\n{\"id\":2,\"session\":\"t\"}\n",
            &mut |_| {},
            &mut updates,
        );
        assert_eq!(
            updates.first(),
            Some(&StreamUpdate::Session("t".to_owned()))
        );
        assert!(log.len() < 200, "{log}");
    }
}
