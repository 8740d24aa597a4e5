//! An agent's stream of JSON lines while it flows: cut into lines, understood by the preset's rules,
//! written out readable; what counts at the end is kept.

mod event;
mod line;
mod message;
mod retries;

use line::{is_reply_to, write_note};
use retries::RetryLine;

use crate::calls::Calls;
use crate::format::{End, StderrRetry, Stream};
use crate::rules::{Rules, StreamEvent, Usage};
use adjutant_core::Cause;
use adjutant_core::subagent::{Subagent, Subagents};
use memchr::memchr;
use std::collections::VecDeque;

/// Longest line that is looked into, in bytes. A longer one is kept raw, and nothing else.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A piece of what came, for the log.
#[derive(Debug, PartialEq)]
pub enum Part<'a> {
    /// The agent's own words: signals are looked for in these.
    Text(&'a str),
    /// What it does, what is returned to it, what goes wrong.
    Note(&'a str),
}

/// What the attempt has to know at once.
#[derive(Debug, PartialEq)]
pub enum StreamUpdate {
    Session(String),
    /// A try failed that the CLI repeats.
    Retry {
        error: String,
        cause: Option<Cause>,
    },
    /// The model or a tool has responded after such a try.
    Progress,
    /// The sub-agents of the CLI's own, and how many more there were.
    Subagents(Vec<Subagent>, u64),
    /// Its model has said something, since the last line for the dialogue.
    ModelText,
    /// A line for the dialogue.
    DialogueLine(String),
}

/// What counts at the end.
#[derive(Debug, Default, PartialEq)]
pub struct Summary {
    /// The agent's last answer.
    pub result: String,
    pub end: Option<End>,
    /// What went wrong last.
    pub error: String,
    /// When the limit ends that was reached last, in seconds since the epoch.
    pub limit_reset_at_s: Option<u64>,
    pub usage: Option<Usage>,
    /// The model said something, or a tool was called.
    pub has_acted: bool,
    /// It said something behind its last call of a tool.
    pub has_answered: bool,
    /// The stream ended within a message, and did not say how the work ended.
    pub is_cut: bool,
    /// Substantial messages, the oldest first: the last few.
    pub messages: VecDeque<String>,
}

/// An agent's stream: its meaning, and from where on it counts.
#[derive(Debug)]
pub struct ReaderConfig {
    pub stream: Stream,
    /// What comes before the reply with this id is no answer.
    pub answers_after: Option<u64>,
}

/// Reads one stream.
#[derive(Debug)]
pub struct Reader {
    rules: Rules,
    stream: Stream,
    answers_after: Option<u64>,
    line: Vec<u8>,
    /// The line is too long to be looked into.
    is_overlong: bool,
    /// The message that is being said.
    message: String,
    message_of: Option<String>,
    /// The last one that was said.
    last_message: String,
    /// Its words were reported since the last line that the dialogue has seen.
    has_reported_text: bool,
    /// The last remark of the CLI's own: the result where nothing else was said.
    remark: String,
    /// The log stands within a line.
    within_line: bool,
    session: String,
    /// How many it has had.
    sessions: u32,
    retries: RetryLine,
    subagents: Subagents,
    /// The line that is being read is this sub-agent's.
    speaker: Option<String>,
    summary: Summary,
    calls: Calls,
    /// The part of its plan that it works on.
    step: String,
    /// What the session has cost so far.
    cost_usd: Option<f64>,
    /// Longest answer that is kept, in bytes.
    answer_bytes_max: usize,
}

impl Reader {
    /// Reads a stream whose last answer is kept up to a length.
    #[must_use]
    pub fn new(of: &ReaderConfig, answer_bytes_max: usize) -> Self {
        Self {
            answer_bytes_max,
            rules: Rules::new(&of.stream),
            // What the lines mean is the rules'.
            stream: Stream { rules: Vec::new(), ..of.stream.clone() },
            answers_after: of.answers_after,
            line: Vec::new(),
            is_overlong: false,
            message: String::new(),
            message_of: None,
            last_message: String::new(),
            remark: String::new(),
            has_reported_text: false,
            within_line: false,
            session: String::new(),
            sessions: 0,
            retries: RetryLine::default(),
            subagents: Subagents::default(),
            speaker: None,
            summary: Summary::default(),
            calls: Calls::default(),
            step: String::new(),
            cost_usd: None,
        }
    }

    /// Returns what lines of standard error say of failed tries.
    #[must_use]
    pub fn stderr_retries(&self) -> &[StderrRetry] {
        &self.stream.stderr_retries
    }

    /// Notes that a try failed that the stream says nothing of.
    pub fn expect_progress(&mut self) {
        self.retries.tries = self.retries.tries.saturating_add(1);
    }

    /// Takes what was read.
    pub fn push(&mut self, bytes: &[u8], part: &mut dyn FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) {
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
            self.end_retry_line(part);
            write_note(part, &mut self.within_line, "(a line of more than 4 MiB is only in the raw stream)");
            return;
        }
        self.line.extend_from_slice(rest);
    }

    /// Takes the end of the stream.
    pub fn finish(mut self, part: &mut dyn FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) -> Summary {
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
        if let Some(cost) = self.cost_usd {
            let usage = self.summary.usage.get_or_insert_default();
            if usage.cost_usd.is_none() {
                (usage.cost_usd, usage.cost_is_total) = (Some(cost), true);
            }
        }
        if self.summary.result.trim().is_empty() {
            self.summary.result = std::mem::take(&mut self.last_message);
        }
        if self.summary.result.trim().is_empty() {
            self.summary.result = std::mem::take(&mut self.remark);
        }
        self.summary
    }

    fn read(&mut self, line: &[u8], part: &mut dyn FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) {
        let line = String::from_utf8_lossy(line);
        if line.trim().is_empty() {
            return;
        }
        let rules = std::mem::replace(&mut self.rules, Rules::empty());
        if let Some(id) = self.answers_after {
            // Text of an earlier attempt is not repeated.
            let mut is_for_dialogue = false;
            let is_known = rules.read(&line, &mut |event| match event {
                StreamEvent::DialogueLine | StreamEvent::Session(_) => is_for_dialogue |= self.apply(event, part, updates),
                _ => {}
            });
            if !is_known {
                self.end_retry_line(part);
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
            let is_known = rules.read(&line, &mut |event| is_for_dialogue |= self.apply(event, part, updates));
            if !is_known {
                self.end_message(part);
                write_note(part, &mut self.within_line, &line);
            }
            if is_for_dialogue {
                self.has_reported_text = false;
                updates.push(StreamUpdate::DialogueLine(line.into_owned()));
            }
        }
        self.rules = rules;
        self.speaker = None;
        if let Some((all, more)) = self.subagents.news() {
            updates.push(StreamUpdate::Subagents(all, more));
        }
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
        let rule = Rule { when, session: Some("session".to_owned()), ..Rule::default() };
        let stream = Stream { rules: vec![rule], ..Stream::default() };
        let mut reader = Reader::new(&ReaderConfig { stream, answers_after: None }, 16 * 1024);
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
        reader.push(b"\n{\"id\":2,\"session\":\"t\"}\n", &mut |_| {}, &mut updates);
        assert_eq!(updates.first(), Some(&StreamUpdate::Session("t".to_owned())));
        assert!(log.len() < 200, "{log}");
    }
}
