//! An agent's stream of JSON lines while it flows: cut into lines, understood by the preset's rules,
//! written out readable; what counts at the end is kept.

use super::calls::Calls;
use crate::harness::StreamOf;
use crate::harness::stream::{Rules, StreamEvent, Usage};
use crate::preset::{End, StderrRetry, Stream};
use crate::text;
use adjutant_core::Cause;
use adjutant_core::subagent::{Subagent, Subagents};
use memchr::memchr;

/// Sessions that one attempt may name: more than one is begun only where one is gone.
const SESSIONS_MAX: u32 = 8;
const SESSION_ID_BYTES_MAX: usize = 128;
/// Longest line that is looked into, in bytes. A longer one is kept raw, and nothing else.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest text of a failure, in bytes.
const ERROR_BYTES_MAX: usize = 4 * 1024;
/// So much of a tool's input and output stands in the log, in bytes.
const TOOL_BYTES_MAX: usize = 2 * 1024;

/// A piece of what came, for the log.
#[derive(Debug, PartialEq)]
pub enum Part<'a> {
    /// The agent's own words: signals are looked for in these.
    Words(&'a str),
    /// What it does, what is returned to it, what goes wrong.
    Note(&'a str),
}

/// What the attempt has to know at once.
#[derive(Debug, PartialEq)]
pub enum StreamUpdate {
    Session(String),
    /// A try failed that the CLI repeats.
    Retry {
        words: String,
        cause: Option<Cause>,
    },
    /// The model or a tool was heard from after such a try.
    Progress,
    /// The sub-agents of the CLI's own, and how many more there were.
    Subagents(Vec<Subagent>, u64),
    /// Its model has said something, since the last line for the dialogue.
    Words,
    /// A line for the dialogue.
    Line(String),
}

/// The failed tries since the last progress, of which the same ones are one line of the log.
#[derive(Debug, Default)]
struct RetryLine {
    tries: u32,
    words: String,
    /// How often the line stands for them. 0: it is written to its end.
    same: u32,
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
    pub again_at_s: Option<u64>,
    pub usage: Option<Usage>,
    /// The model said something, or a tool was called.
    pub has_acted: bool,
    /// It said something behind its last call of a tool.
    pub has_answered: bool,
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
    last: String,
    /// Its words were told since the last line that the dialogue has seen.
    has_reported_words: bool,
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
    pub fn new(of: &StreamOf, answer_bytes_max: usize) -> Self {
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
            last: String::new(),
            remark: String::new(),
            has_reported_words: false,
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
    pub fn push(&mut self, bytes: &[u8], part: &mut impl FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) {
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
            note(part, &mut self.within_line, "(a line of more than 4 MiB is only in the raw stream)");
            return;
        }
        self.line.extend_from_slice(rest);
    }

    /// Takes the end of the stream.
    pub fn finish(mut self, part: &mut impl FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) -> Summary {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.read(&line, part, updates);
        }
        self.end_message(part);
        self.flush_calls(part);
        if self.within_line {
            part(Part::Words("\n"));
        }
        if let Some(cost) = self.cost_usd {
            let usage = self.summary.usage.get_or_insert_default();
            if usage.cost_usd.is_none() {
                (usage.cost_usd, usage.cost_is_total) = (Some(cost), true);
            }
        }
        if self.summary.result.trim().is_empty() {
            self.summary.result = std::mem::take(&mut self.last);
        }
        if self.summary.result.trim().is_empty() {
            self.summary.result = std::mem::take(&mut self.remark);
        }
        self.summary
    }

    fn read(&mut self, line: &[u8], part: &mut impl FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) {
        let line = String::from_utf8_lossy(line);
        if line.trim().is_empty() {
            return;
        }
        let rules = std::mem::replace(&mut self.rules, Rules::none());
        if let Some(id) = self.answers_after {
            // Text of an earlier attempt is not repeated.
            let mut listen = false;
            let is_known = rules.read(&line, &mut |said| match said {
                StreamEvent::Listen | StreamEvent::Session(_) => listen |= self.take(said, part, updates),
                _ => {}
            });
            if !is_known {
                self.end_retry_line(part);
                note(part, &mut self.within_line, &line);
            }
            if listen {
                if is_reply_to(&line, id) {
                    self.answers_after = None;
                }
                self.has_reported_words = false;
                updates.push(StreamUpdate::Line(line.into_owned()));
            }
        } else {
            let mut listen = false;
            let is_known = rules.read(&line, &mut |said| listen |= self.take(said, part, updates));
            if !is_known {
                self.end_message(part);
                note(part, &mut self.within_line, &line);
            }
            if listen {
                self.has_reported_words = false;
                updates.push(StreamUpdate::Line(line.into_owned()));
            }
        }
        self.rules = rules;
        self.speaker = None;
        if let Some((all, more)) = self.subagents.news() {
            updates.push(StreamUpdate::Subagents(all, more));
        }
    }

    /// Takes one thing that was said. `true`: the dialogue has to see the line.
    fn take(&mut self, said: StreamEvent<'_>, part: &mut impl FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) -> bool {
        match said {
            StreamEvent::Listen => return true,
            StreamEvent::Speaker(id) => self.speaker = (*id != *self.session && !self.session.is_empty()).then(|| id.into_owned()),
            StreamEvent::Subagent { told: subagent, begins } => self.subagents.take(subagent, begins),
            said if self.speaker.is_some() => self.take_of_subagent(said, part),
            StreamEvent::Session(id) if id == self.session => {}
            // It becomes an argument of the next attempt: what is no id is nobody's session.
            StreamEvent::Session(id) if !is_session_id(&id) || self.sessions == SESSIONS_MAX => {
                tracing::warn!(id = %id.chars().take(80).collect::<String>().escape_debug(), "no session");
            }
            StreamEvent::Session(id) => {
                self.sessions += 1;
                self.session = id.into_owned();
                updates.push(StreamUpdate::Session(self.session.clone()));
            }
            StreamEvent::Text(text) | StreamEvent::Delta { text, .. } if self.stream.is_retry_note(&text) => {
                self.retry(text.trim(), None, part, updates)
            }
            StreamEvent::Text(text) | StreamEvent::Delta { text, .. } if self.message.is_empty() && self.stream.is_remark(&text) => {
                self.go_on(part, updates);
                self.end_message(part);
                note(part, &mut self.within_line, text.trim());
                self.remark = self.tail(text.trim()).to_owned();
            }
            StreamEvent::Retry { words, cause } => self.retry(&words, cause, part, updates),
            StreamEvent::Call { id, name, input, state } => {
                (self.summary.has_acted, self.summary.has_answered) = (true, false);
                if let Some(call) = self.calls.note(&id, &name, &input, state) {
                    self.go_on(part, updates);
                    self.end_message(part);
                    note(part, &mut self.within_line, &format!("→ {}", shorten(&call)));
                }
            }
            StreamEvent::Step(step) if *step == *self.step => {}
            StreamEvent::Step(step) => {
                self.go_on(part, updates);
                self.end_message(part);
                note(part, &mut self.within_line, &format!("· {}", shorten(step.lines().next().unwrap_or_default())));
                self.step = step.into_owned();
            }
            StreamEvent::Cost(cost) => self.cost_usd = Some(cost),
            StreamEvent::Text(text) => {
                self.go_on(part, updates);
                self.flush_calls(part);
                self.report_model_words(&text, updates);
                self.end_message(part);
                self.say(&text, part);
                self.end_message(part);
            }
            StreamEvent::Delta { of, text } => {
                self.go_on(part, updates);
                self.flush_calls(part);
                self.report_model_words(&text, updates);
                if of.as_deref() != self.message_of.as_deref() {
                    self.end_message(part);
                    self.message_of = of.map(std::borrow::Cow::into_owned);
                }
                self.say(&text, part);
            }
            StreamEvent::Tool { name, input } => {
                (self.summary.has_acted, self.summary.has_answered) = (true, false);
                self.go_on(part, updates);
                self.end_message(part);
                note(part, &mut self.within_line, &format!("→ {name} {}", shorten(&input)));
            }
            StreamEvent::Output(output) => {
                self.go_on(part, updates);
                self.end_message(part);
                note(part, &mut self.within_line, &format!("← {}", shorten(output.trim_end()).replace('\n', "\n  ")));
            }
            StreamEvent::Error(error) => {
                self.end_message(part);
                note(part, &mut self.within_line, &format!("! {}", shorten(&error)));
                self.summary.error = text::head(&error, ERROR_BYTES_MAX).to_owned();
            }
            StreamEvent::Result(result) => self.summary.result = self.tail(&result).to_owned(),
            StreamEvent::Again(seconds) => self.summary.again_at_s = self.summary.again_at_s.max(Some(seconds)),
            StreamEvent::Usage(usage) => {
                let before = self.summary.usage.filter(|_| usage.add).unwrap_or_default();
                self.summary.usage = Some(Usage {
                    input_tokens: before.input_tokens + usage.input_tokens,
                    cached_tokens: before.cached_tokens + usage.cached_tokens,
                    output_tokens: before.output_tokens + usage.output_tokens,
                    cost_usd: match (before.cost_usd.filter(|_| !usage.cost_is_total), usage.cost_usd) {
                        (Some(before), Some(cost)) => Some(before + cost),
                        (before, cost) => cost.or(before),
                    },
                    add: usage.add,
                    cost_is_total: usage.cost_is_total,
                });
            }
            StreamEvent::End(end) => {
                // Some state each try that fails as an end, and go on.
                if end == End::Success {
                    self.go_on(part, updates);
                }
                self.end_message(part);
                self.summary.end = Some(end);
            }
        }
        false
    }

    /// Takes what a sub-agent of the CLI's own says: it stands in the log, and is nothing that the run says.
    fn take_of_subagent(&mut self, said: StreamEvent<'_>, part: &mut impl FnMut(Part<'_>)) {
        let id = self.speaker.clone().unwrap_or_default();
        let text = match said {
            StreamEvent::Text(text) | StreamEvent::Result(text) => text.into_owned(),
            StreamEvent::Tool { name, input } | StreamEvent::Call { name, input, .. } => format!("→ {name} {}", shorten(&input)),
            StreamEvent::Output(output) => format!("← {}", shorten(output.trim_end())),
            StreamEvent::Error(error) => format!("! {}", shorten(&error)),
            StreamEvent::Usage(usage) => {
                let tokens = Some(usage.input_tokens.saturating_add(usage.output_tokens));
                return self.subagents.take(Subagent { id, tokens, ..Subagent::default() }, false);
            }
            // Its pieces come again as a whole, and how it ends is said of it in other lines.
            StreamEvent::Delta { .. } | StreamEvent::Session(_) | StreamEvent::Retry { .. } | StreamEvent::Again(_) | StreamEvent::End(_) => return,
            StreamEvent::Listen | StreamEvent::Speaker(_) | StreamEvent::Subagent { .. } | StreamEvent::Step(_) | StreamEvent::Cost(_) => return,
        };
        self.end_message(part);
        let known = self.subagents.find(&id);
        let name = known.and_then(|known| known.about.as_deref().or(known.kind.as_deref())).unwrap_or("a sub-agent");
        note(part, &mut self.within_line, &format!("[{name}] {}", text.trim_end().replace('\n', "\n  ")));
    }

    /// Writes the calls that have no line yet.
    fn flush_calls(&mut self, part: &mut impl FnMut(Part<'_>)) {
        for call in self.calls.flush() {
            self.end_message(part);
            note(part, &mut self.within_line, &format!("→ {}", shorten(&call)));
        }
    }

    /// Tells the dialogue once that there are words between two of its lines.
    fn report_model_words(&mut self, text: &str, updates: &mut Vec<StreamUpdate>) {
        self.summary.has_answered |= !text.trim().is_empty();
        if !self.has_reported_words && !text.trim().is_empty() {
            self.has_reported_words = true;
            updates.push(StreamUpdate::Words);
        }
    }

    /// A try failed that the CLI repeats.
    fn retry(&mut self, words: &str, cause: Option<Cause>, part: &mut impl FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) {
        let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = if words.is_empty() { "a call to its model failed".to_owned() } else { text::head(&words, TOOL_BYTES_MAX).to_owned() };
        if self.retries.same == 0 || without_digits(&self.retries.words) != without_digits(&words) {
            self.end_message(part);
            part(Part::Note(&format!("! {words}")));
            self.within_line = true;
            self.retries.words.clone_from(&words);
            self.retries.same = 0;
        }
        self.retries.same = self.retries.same.saturating_add(1);
        self.retries.tries = self.retries.tries.saturating_add(1);
        // Should it give up without a word, that is why.
        text::head(&words, ERROR_BYTES_MAX).clone_into(&mut self.summary.error);
        updates.push(StreamUpdate::Retry { words, cause });
    }

    /// The model or a tool is heard from.
    fn go_on(&mut self, part: &mut impl FnMut(Part<'_>), updates: &mut Vec<StreamUpdate>) {
        if self.retries.tries > 0 {
            self.end_retry_line(part);
            self.retries.tries = 0;
            updates.push(StreamUpdate::Progress);
        }
    }

    fn end_retry_line(&mut self, part: &mut impl FnMut(Part<'_>)) {
        let same = std::mem::take(&mut self.retries.same);
        if same > 0 {
            let count = if same > 1 { format!(" ×{same}\n") } else { "\n".to_owned() };
            part(Part::Note(&count));
            self.within_line = false;
        }
    }

    fn say(&mut self, text: &str, part: &mut impl FnMut(Part<'_>)) {
        if text.is_empty() {
            return;
        }
        self.summary.has_acted = true;
        part(Part::Words(text));
        self.within_line = !text.ends_with('\n');
        if self.message.len() < self.answer_bytes_max * 2 {
            self.message.push_str(text);
        } else {
            let kept = self.tail(&self.message).to_owned();
            self.message = kept + text;
        }
    }

    /// The message that was being said is whole.
    fn end_message(&mut self, part: &mut impl FnMut(Part<'_>)) {
        self.end_retry_line(part);
        if self.within_line {
            part(Part::Words("\n"));
            self.within_line = false;
        }
        if !self.message.trim().is_empty() {
            self.last = self.tail(&self.message).trim_end().to_owned();
        }
        self.message.clear();
        self.message_of = None;
    }

    /// The last bytes of a text that are kept, whole characters.
    fn tail<'t>(&self, text: &'t str) -> &'t str {
        text::tail(text, self.answer_bytes_max)
    }
}

fn note(part: &mut impl FnMut(Part<'_>), within_line: &mut bool, text: &str) {
    if *within_line {
        part(Part::Note("\n"));
    }
    part(Part::Note(&format!("{}\n", text.trim_end())));
    *within_line = false;
}

fn shorten(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= TOOL_BYTES_MAX { text.into() } else { format!("{} …", text::head(text, TOOL_BYTES_MAX)).into() }
}

/// What tells tries apart that fail alike: their count and times.
fn without_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

fn is_reply_to(line: &str, id: u64) -> bool {
    serde_json::from_str::<serde_json::Value>(line).is_ok_and(|line| line["id"].as_u64() == Some(id) && line.get("method").is_none())
}

/// Tells whether a text can be a vendor's id of a session, and nothing that a command line takes for more.
fn is_session_id(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    text.len() <= SESSION_ID_BYTES_MAX && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    fn reader(name: &str, answers_after: Option<u64>) -> Reader {
        Reader::new(&StreamOf { stream: preset::builtin(name).expect("it is there").stream, answers_after }, 16 * 1024)
    }

    fn read(mut reader: Reader, pieces: &[&[u8]]) -> (String, String, Vec<StreamUpdate>, Summary) {
        let (mut log, mut words, mut updates) = (String::new(), String::new(), Vec::new());
        let mut part = |part: Part<'_>| match part {
            Part::Words(text) => {
                log.push_str(text);
                words.push_str(text);
            }
            Part::Note(text) => log.push_str(text),
        };
        for piece in pieces {
            reader.push(piece, &mut part, &mut updates);
        }
        let summary = reader.finish(&mut part, &mut updates);
        (log, words, updates, summary)
    }

    const CODEX: &str = concat!(
        r#"{"id":2,"result":{"thread":{"id":"t1"}}}"#,
        "\n",
        r#"{"method":"item/started","params":{"item":{"type":"commandExecution","command":"ls ä"}}}"#,
        "\nReading additional input from stdin...\n",
        r#"{"method":"item/completed","params":{"item":{"type":"commandExecution","aggregatedOutput":"one\ntwo\n"}}}"#,
        "\n",
        r#"{"method":"item/agentMessage/delta","params":{"itemId":"m","delta":"All done."}}"#,
        "\n",
        r#"{"method":"account/rateLimits/updated","params":{"rateLimits":{"primary":{"usedPercent":100,"resetsAt":1795288981}}}}"#,
        "\n",
        r#"{"method":"thread/tokenUsage/updated","params":{"tokenUsage":{"total":{"inputTokens":10,"cachedInputTokens":4,"outputTokens":2}}}}"#,
        "\n",
        r#"{"method":"turn/completed","params":{"turn":{"status":"completed"}}}"#,
    );

    #[test]
    fn cli_remark_is_not_a_result() {
        let said = |texts: &[&str]| {
            let mut reader = reader("copilot", None);
            let (mut log, mut updates) = (String::new(), Vec::new());
            for text in texts {
                let update = serde_json::json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}});
                let line = format!("{}\n", serde_json::json!({"method": "session/update", "params": {"update": update}}));
                reader.push(
                    line.as_bytes(),
                    &mut |part| {
                        log.push_str(match part {
                            Part::Words(text) | Part::Note(text) => text,
                        })
                    },
                    &mut updates,
                );
            }
            let result = reader.finish(&mut |_| (), &mut updates).result;
            (result, log.contains("Info: /w/a.txt"), updates)
        };
        assert_eq!(said(&["Info: /w/a.txt", "It is", " written."]), ("It is written.".to_owned(), true, vec![StreamUpdate::Words]));
        assert_eq!(said(&["Info: /w/a.txt"]), ("Info: /w/a.txt".to_owned(), true, Vec::new()), "nothing else was said");
    }

    #[test]
    fn invalid_session_id_is_ignored() {
        for id in ["01a1ff9c-e65f-7113-bec7-2445b36c0c10", "20261121_1", "s1", "a.b:c"] {
            assert!(is_session_id(id), "{id}");
        }
        for text in ["", "--dangerously-skip-permissions", "-c", "a b", "a\nb", "../x", "a/b", "é", "$(x)", &"x".repeat(129)] {
            assert!(!is_session_id(text), "{text}");
        }
    }

    #[test]
    fn result_is_the_last_answer_at_any_chunking() {
        let whole = read(reader("codex", None), &[CODEX.as_bytes()]);
        assert_eq!(whole.0, "→ commandExecution ls ä\nReading additional input from stdin...\n← one\n  two\nAll done.\n");
        assert_eq!((whole.1.as_str(), whole.3.result.as_str(), whole.3.end), ("All done.\n", "All done.", Some(End::Success)));
        assert_eq!(whole.2.first(), Some(&StreamUpdate::Session("t1".to_owned())));
        assert_eq!((whole.2.len(), whole.3.again_at_s), (4, Some(1_795_288_981)), "the dialogue sees the reply, words and the end");
        assert_eq!(whole.3.usage.map(|usage| (usage.input_tokens, usage.cached_tokens, usage.output_tokens)), Some((10, 4, 2)));
        for at in 0..CODEX.len() {
            assert_eq!(read(reader("codex", None), &[&CODEX.as_bytes()[..at], &CODEX.as_bytes()[at..]]), whole, "cut at {at}");
        }
    }

    #[test]
    fn failed_tries_are_one_line_until_progress() {
        let retry = "{\"type\":\"system\",\"subtype\":\"api_retry\",\"error_status\":null,\"error\":\"unknown\"}\n";
        let text = "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"Hello\"}]}}\n";
        let stream = [retry, retry, retry, text, retry, "noise\n", retry].concat();
        let (log, words, updates, summary) = read(reader("claude", None), &[stream.as_bytes()]);
        assert_eq!(log, "! unknown ×3\nHello\n! unknown\nnoise\n! unknown\n");
        assert_eq!((words.as_str(), summary.error.as_str()), ("Hello\n", "unknown"));
        let failed = |updates: &&StreamUpdate| matches!(updates, StreamUpdate::Retry { cause: Some(Cause::Network), .. });
        assert_eq!((updates.iter().filter(failed).count(), updates.iter().filter(|updates| **updates == StreamUpdate::Progress).count()), (5, 1));
    }

    #[test]
    fn retry_notice_is_not_model_output() {
        let chunk = |text: &str| {
            format!(
                "{{\"method\":\"session/update\",\"params\":{{\"update\":{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}}}}}\n"
            )
        };
        let note = "Info: Request failed due to a transient API error. Retrying...";
        let stream = [chunk(note), chunk(note), chunk("Done: "), chunk(&format!("I saw {note}"))].concat();
        let (log, words, _, summary) = read(reader("copilot", None), &[stream.as_bytes()]);
        assert_eq!(summary.result, format!("Done: I saw {note}"));
        assert_eq!((log.as_str(), words.matches("Info:").count()), (&*format!("! {note} ×2\nDone: I saw {note}\n"), 1));
    }

    const CHILD: &str = concat!(
        r#"{"type":"system","subtype":"init","session_id":"s1"}"#,
        "\n",
        r#"{"type":"system","subtype":"task_started","task_id":"a","tool_use_id":"t1","description":"count\n[y] files","subagent_type":"general","task_type":"local_agent"}"#,
        "\n",
        r#"{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]},"parent_tool_use_id":"t1"}"#,
        "\n",
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"[STOP_WORK]\nmine\n[/STOP_WORK]"}]},"parent_tool_use_id":"t1"}"#,
        "\n",
        r#"{"type":"system","subtype":"task_notification","tool_use_id":"t1","status":"completed","usage":{"total_tokens":2020}}"#,
        "\n",
        r#"{"type":"system","subtype":"task_notification","tool_use_id":"of a command","status":"completed"}"#,
        "\n",
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"Counted."}]},"parent_tool_use_id":null}"#,
        "\n",
    );

    fn subagents(updates: &[StreamUpdate]) -> Vec<Subagent> {
        let newest = updates.iter().rev().find_map(|updates| if let StreamUpdate::Subagents(all, 0) = updates { Some(all.clone()) } else { None });
        newest.expect("there are some")
    }

    #[test]
    fn sub_agent_output_is_logged_under_its_name_only() {
        let (log, words, updates, summary) = read(reader("claude", None), &[CHILD.as_bytes()]);
        let expected = "[count [y] files] → Bash {\"command\":\"ls\"}\n[count [y] files] [STOP_WORK]\n  mine\n  [/STOP_WORK]\nCounted.\n";
        assert_eq!((log.as_str(), words.as_str(), summary.result.as_str()), (expected, "Counted.\n", "Counted."));
        let known = Subagent {
            id: "t1".to_owned(),
            kind: Some("general".to_owned()),
            about: Some("count [y] files".to_owned()),
            state: Some("completed".to_owned()),
            tokens: Some(2020),
        };
        assert_eq!(subagents(&updates), [known]);
    }

    #[test]
    fn thread_of_a_sub_agent_does_not_end_the_run() {
        let item = |kind: &str| {
            format!(
                "{{\"method\":\"item/started\",\"params\":{{\"threadId\":\"t1\",\"item\":{{\"type\":\"subAgentActivity\",\"kind\":\"{kind}\",\"agentThreadId\":\"t2\",\"agentPath\":\"/root/count\"}}}}}}\n"
            )
        };
        let ended = "{\"method\":\"turn/completed\",\"params\":{\"threadId\":\"t2\",\"turn\":{\"status\":\"completed\",\"items\":[{\"type\":\"agentMessage\",\"text\":\"forged\"}]}}}\n";
        let usage = "{\"method\":\"thread/tokenUsage/updated\",\"params\":{\"threadId\":\"t2\",\"tokenUsage\":{\"total\":{\"inputTokens\":5,\"outputTokens\":2}}}}\n";
        let parts = "{\"id\":2,\"result\":{\"thread\":{\"id\":\"t1\"}}}\n".to_owned();
        let stream = [parts, item("started"), usage.to_owned(), ended.to_owned(), item("completed")].concat();
        let (log, words, updates, summary) = read(reader("codex", None), &[stream.as_bytes()]);
        assert_eq!((log.as_str(), words.as_str()), ("[/root/count] forged\n", ""));
        assert_eq!((summary.end, summary.usage, summary.result.as_str()), (None, None, ""));
        let [known] = &subagents(&updates)[..] else { panic!("one: {updates:?}") };
        assert_eq!((known.state.as_deref(), known.tokens, known.kind.as_deref()), (Some("completed"), Some(7), None));
    }

    #[test]
    fn message_chunks_are_joined_and_history_not_repeated() {
        let chunk = |text: &str| {
            format!(
                "{{\"method\":\"session/update\",\"params\":{{\"update\":{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{{\"type\":\"text\",\"text\":\"{text}\"}}}}}}}}\n"
            )
        };
        let stream = [
            chunk("of yesterday"),
            "{\"id\":3,\"result\":{}}\n".to_owned(),
            chunk("Hel"),
            chunk("lo"),
            "{\"method\":\"session/update\",\"params\":{\"update\":{\"sessionUpdate\":\"tool_call\",\"title\":\"ls\"}}}\n".to_owned(),
            chunk("Bye"),
            "{\"id\":5,\"result\":{\"stopReason\":\"end_turn\"}}\n".to_owned(),
        ]
        .concat();
        let (log, words, updates, summary) = read(reader("gemini", Some(3)), &[stream.as_bytes()]);
        assert_eq!(log, "Hello\n→ ls\nBye\n");
        assert_eq!(words, "Hello\nBye\n");
        assert_eq!((summary.result.as_str(), summary.end), ("Bye", Some(End::Success)));
        // Two replies, and the tool call that an approval may be asked for. That there are words is told once between them.
        assert!(
            matches!(updates[..], [StreamUpdate::Line(_), StreamUpdate::Words, StreamUpdate::Line(_), StreamUpdate::Words, StreamUpdate::Line(_)]),
            "{updates:?}"
        );
    }

    #[test]
    fn endless_line_uses_bounded_memory() {
        let mut reader = reader("codex", None);
        let (mut log, mut updates) = (String::new(), Vec::new());
        for _ in 0..100 {
            reader.push(
                &[b'x'; 100_000],
                &mut |part| {
                    log.push_str(match part {
                        Part::Words(text) | Part::Note(text) => text,
                    })
                },
                &mut updates,
            );
            assert!(reader.line.capacity() <= 2 * LINE_BYTES_MAX);
        }
        reader.push(b"\n{\"id\":2,\"result\":{\"thread\":{\"id\":\"t\"}}}\n", &mut |_| {}, &mut updates);
        assert_eq!(updates.first(), Some(&StreamUpdate::Session("t".to_owned())));
        assert!(log.len() < 200, "{log}");
    }
}
