//! The agent's output: reads and decodes both streams, writes them to the log, and keeps the last
//! message.
//!
//! Reading waits for writing, so an agent that writes faster than the disk is slowed down, and
//! memory is constant. Lines of standard error have a prefix. If the other stream writes before a
//! line is complete, the line is ended first.

use super::log_writer::LogWriter;
use super::own_log::OwnLog;
use crate::hub_client::AgentActivity;
use crate::preset::StderrRetry;
use crate::signal::{FoundSignal, Scanner};
use adjutant_core::fence::DeniedWrites;
use adjutant_core::limits;
use adjutant_stream::decoder::Decoder;
use adjutant_stream::reader::{Part, Reader, StreamUpdate, Summary};
use adjutant_stream::text_retries::TextRetries;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Size of a read, in bytes: the capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;
/// Number of consecutive reads before other tasks run.
const READS_IN_A_ROW: u32 = 16;
/// How much of the end of standard error is kept, in bytes.
const STDERR_BYTES_MAX: usize = 16 * 1024;
/// How much is read from a pipe before it is closed, in bytes: the largest capacity of a pipe.
const CUT_BYTES_MAX: usize = 1024 * 1024;
/// Longest line of standard error that is examined, in bytes.
const ERR_LINE_BYTES_MAX: usize = 16 * 1024;
/// Prefix of a line of standard error.
const STDERR_PREFIX: &[u8] = b"stderr: ";

/// The result of reading the output.
#[derive(Debug)]
pub(super) struct Output {
    /// The log, and the raw stream if there is one; neither is finished.
    pub logs: Vec<LogWriter>,
    /// Length of the log, in bytes.
    pub bytes: u64,
    /// The agent's last message, or the end of standard output.
    pub result: String,
    /// Standard output ends within a line.
    pub ends_within_line: bool,
    /// The summary of the structured stream, if there is one.
    pub summary: Option<Summary>,
    /// The end of standard error.
    pub stderr_end: String,
    /// A process still held a stream open when the stream was closed.
    pub left_open: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Out,
    Err,
}

/// An event that the output reports to the attempt.
#[derive(Debug)]
pub(crate) enum OutputEvent {
    /// A possible signal in the agent's own text.
    Signal(FoundSignal),
    Stream(StreamUpdate),
    /// A line that reports a denied write.
    WriteDenied(String),
}

#[derive(Debug)]
struct Stream {
    pipe: Option<pipe::Receiver>,
    decoder: Decoder,
}

/// Reads one attempt's output.
#[derive(Debug)]
pub(crate) struct Pump {
    out: Stream,
    err: Stream,
    log: LogWriter,
    buffer: Vec<u8>,
    text: Vec<u8>,
    lines: Vec<u8>,
    last_words: VecDeque<u8>,
    /// How much of the final output is kept, in bytes.
    last_words_bytes_max: usize,
    last: Source,
    at_line_start: bool,
    scanner: Scanner,
    /// The events of the last read.
    events: Vec<OutputEvent>,
    /// The reader of the structured stream on standard output, and the file of the raw stream.
    lines_of: Option<(Reader, LogWriter)>,
    stderr_end: VecDeque<u8>,
    /// The patterns of failed tries in lines of standard error, and the incomplete line.
    stderr_retries: Vec<StderrRetry>,
    err_line: Vec<u8>,
    /// The CLI's own log.
    own_log: Option<OwnLog>,
    /// `None`: the agent's text announces no retries.
    text_retries: Option<TextRetries>,
    /// `None`: the agent is not fenced.
    denied_writes: Option<DeniedWrites>,
}

impl Pump {
    /// Takes over the reading ends of both streams. Of the last message, `answer_bytes_max` are
    /// kept, or [`limits::RESULT_BYTES_MAX`] if that is more.
    ///
    /// # Errors
    /// The streams cannot be read without blocking.
    pub(super) fn new(
        out: OwnedFd,
        err: OwnedFd,
        log: LogWriter,
        lines_of: Option<(Reader, LogWriter)>,
        answer_bytes_max: usize,
    ) -> io::Result<Self> {
        let stream = |fd| {
            Ok::<_, io::Error>(Stream {
                pipe: Some(pipe::Receiver::from_owned_fd(fd)?),
                decoder: Decoder::default(),
            })
        };
        Ok(Self {
            out: stream(out)?,
            err: stream(err)?,
            log,
            buffer: vec![0; READ_BYTES],
            text: Vec::with_capacity(READ_BYTES),
            lines: Vec::new(),
            last_words: VecDeque::new(),
            last_words_bytes_max: answer_bytes_max.max(limits::RESULT_BYTES_MAX),
            last: Source::Out,
            at_line_start: true,
            scanner: Scanner::default(),
            events: Vec::new(),
            stderr_retries: lines_of
                .as_ref()
                .map(|(reader, _)| reader.stderr_retries().to_vec())
                .unwrap_or_default(),
            err_line: Vec::new(),
            own_log: None,
            text_retries: None,
            denied_writes: None,
            lines_of,
            stderr_end: VecDeque::new(),
        })
    }

    /// Reports denied writes from here on, because the agent is fenced.
    pub(crate) fn watch_denied_writes(&mut self) {
        self.denied_writes = Some(DeniedWrites::default());
    }

    /// Makes the pump report retries that the agent announces in its text.
    pub(crate) fn watch_text_retries(&mut self, retries: Option<TextRetries>) {
        self.text_retries = retries;
    }

    /// Makes the pump read the CLI's own log, of which it keeps only failed tries.
    pub(crate) fn watch_own_log(&mut self, log: OwnLog) {
        self.own_log = Some(log);
    }

    fn read_own_log(&mut self) {
        let Some(mut log) = self.own_log.take() else {
            return;
        };
        let (mut buffer, mut words) = (std::mem::take(&mut self.buffer), Vec::new());
        let (retries, session) = (&self.stderr_retries, log.session().map(str::to_owned));
        let find = |line: &str| {
            retries
                .iter()
                .find_map(|retry| retry.find(line, session.as_deref()).map(str::to_owned))
        };
        let read = log.read(&mut buffer, &mut |line| words.extend(find(line)));
        self.buffer = buffer;
        for words in words {
            self.note_retry(&words);
        }
        match read {
            Ok(()) => self.own_log = Some(log),
            Err(error) => {
                tracing::warn!(%error, "the log of the agent's CLI cannot be read any more")
            }
        }
    }

    /// Records a failed try that a line of the CLI's own log reports.
    fn note_retry(&mut self, words: &str) {
        let Some((mut reader, raw)) = self.lines_of.take() else {
            return;
        };
        let mut updates = Vec::new();
        reader.note_retry(words, &mut |part| self.process_part(&part), &mut updates);
        self.events
            .extend(updates.into_iter().map(OutputEvent::Stream));
        self.lines_of = Some((reader, raw));
    }

    fn find_text_retries(&mut self) {
        if let Some(retries) = &mut self.text_retries {
            let mut updates = Vec::new();
            retries.push(&self.text, &mut updates);
            self.events
                .extend(updates.into_iter().map(OutputEvent::Stream));
        }
    }

    fn find_denied_writes(&mut self) {
        if let Some(scanner) = &mut self.denied_writes {
            let events = &mut self.events;
            scanner.feed(&self.text, &mut |line| {
                events.push(OutputEvent::WriteDenied(line))
            });
        }
    }

    /// Reads until both streams have ended or `cut` is cancelled. Reports the length of the log and
    /// possible signals; a slow receiver slows reading. `notes` are lines of Adjutant for the log.
    pub(super) async fn run(
        mut self,
        progress: watch::Sender<u64>,
        events: mpsc::Sender<OutputEvent>,
        mut notes: mpsc::Receiver<String>,
        activity: Arc<AgentActivity>,
        cut: CancellationToken,
    ) -> Output {
        let mut reads = 0;
        let mut left_open = false;
        while self.out.pipe.is_some() || self.err.pipe.is_some() {
            let source = tokio::select! {
                () = readable(self.out.pipe.as_ref()) => Source::Out,
                () = readable(self.err.pipe.as_ref()) => Source::Err,
                () = readable_log(self.own_log.as_ref()) => {
                    self.read_own_log();
                    progress.send_replace(self.log.total_bytes());
                    self.send_events(&events).await;
                    continue;
                }
                Some(note) = notes.recv() => {
                    self.note(&note);
                    progress.send_replace(self.log.total_bytes());
                    continue;
                }
                () = cut.cancelled() => {
                    self.read_rest(Source::Out);
                    self.read_rest(Source::Err);
                    left_open = self.out.pipe.is_some() || self.err.pipe.is_some();
                    break;
                }
            };
            if self.read(source) > 0 {
                activity.record();
                progress.send_replace(self.log.total_bytes());
            }
            self.send_events(&events).await;
            reads += 1;
            if reads % READS_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
        while let Ok(note) = notes.try_recv() {
            self.note(&note);
        }
        // Why its last turn has failed may stand only there.
        self.read_own_log();
        let (summary, raw) = self.end_lines().unzip();
        self.text.clear();
        self.out.decoder.finish(&mut self.text);
        self.take(Source::Out);
        let events_now = &mut self.events;
        self.scanner
            .end(&mut |block| events_now.push(OutputEvent::Signal(block)));
        self.send_events(&events).await;
        self.text.clear();
        self.err.decoder.finish(&mut self.text);
        self.take(Source::Err);
        progress.send_replace(self.log.total_bytes());
        let ends_within_line = self.last_words.back().is_some_and(|byte| *byte != b'\n');
        let result = match &summary {
            Some(summary) => summary.result.trim_end().to_owned(),
            None => end_of(self.last_words),
        };
        let bytes = self.log.total_bytes();
        Output {
            logs: raw.into_iter().chain([self.log]).collect(),
            bytes,
            result,
            ends_within_line,
            summary,
            stderr_end: end_of(self.stderr_end),
            left_open,
        }
    }

    /// Writes a line of Adjutant to the log.
    fn note(&mut self, note: &str) {
        let gap = if self.at_line_start { "" } else { "\n" };
        self.process_part(&Part::Note(&format!("{gap}{note}\n")));
    }

    async fn send_events(&mut self, to: &mpsc::Sender<OutputEvent>) {
        for events in self.events.drain(..) {
            if to.send(events).await.is_err() {
                tracing::debug!("an event of the output came after the end of the attempt");
            }
        }
    }

    /// Ends the structured stream.
    fn end_lines(&mut self) -> Option<(Summary, LogWriter)> {
        let (reader, raw) = self.lines_of.take()?;
        let mut updates = Vec::new();
        let summary = reader.finish(&mut |part| self.process_part(&part), &mut updates);
        self.events
            .extend(updates.into_iter().map(OutputEvent::Stream));
        Some((summary, raw))
    }

    /// Stores bytes of the structured stream unchanged, and writes them to the log as text.
    fn process_lines(&mut self, bytes: &[u8]) {
        let Some((mut reader, mut raw)) = self.lines_of.take() else {
            return;
        };
        raw.append(bytes);
        let mut updates = Vec::new();
        reader.push(bytes, &mut |part| self.process_part(&part), &mut updates);
        if let Some(log) = self.own_log.as_mut().filter(|_| !updates.is_empty()) {
            for update in &updates {
                if let StreamUpdate::Session(session) = update {
                    log.set_session(session);
                }
            }
            log.find_first();
        }
        self.events
            .extend(updates.into_iter().map(OutputEvent::Stream));
        self.lines_of = Some((reader, raw));
    }

    fn process_part(&mut self, part: &Part<'_>) {
        let (text, are_own_words) = match part {
            Part::Text(text) => (text, true),
            Part::Note(text) => (text, false),
        };
        self.text.clear();
        self.out.decoder.push(text.as_bytes(), &mut self.text);
        if !are_own_words {
            self.find_denied_writes();
        }
        self.process_output(are_own_words);
    }

    /// Reads the available bytes of a stream that will be closed.
    fn read_rest(&mut self, source: Source) {
        let mut bytes = 0;
        while bytes < CUT_BYTES_MAX {
            match self.read(source) {
                0 => break,
                read => bytes += read,
            }
        }
    }

    /// Reads once. Returns the number of bytes, 0 also at the end of the stream.
    fn read(&mut self, source: Source) -> usize {
        let stream = match source {
            Source::Out => &mut self.out,
            Source::Err => &mut self.err,
        };
        let Some(pipe) = &stream.pipe else { return 0 };
        match pipe.try_read(&mut self.buffer) {
            Ok(0) => {
                stream.pipe = None;
                0
            }
            Ok(read) if source == Source::Out && self.lines_of.is_some() => {
                let buffer = std::mem::take(&mut self.buffer);
                self.process_lines(&buffer[..read]);
                self.buffer = buffer;
                read
            }
            Ok(read) => {
                self.text.clear();
                stream.decoder.push(&self.buffer[..read], &mut self.text);
                self.take(source);
                read
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                0
            }
            Err(error) => {
                tracing::warn!(%error, "a stream of the agent can no longer be read");
                stream.pipe = None;
                0
            }
        }
    }

    /// Processes the decoded text of one read.
    fn take(&mut self, source: Source) {
        if self.text.is_empty() {
            return;
        }
        self.find_denied_writes();
        match source {
            Source::Out => {
                keep_end(&mut self.last_words, &self.text, self.last_words_bytes_max);
                self.find_text_retries();
                self.process_output(true);
            }
            Source::Err => {
                keep_end(&mut self.stderr_end, &self.text, STDERR_BYTES_MAX);
                self.find_retries();
                self.begin(Source::Err);
                let mut begins = self.at_line_start;
                for line in self.text.split_inclusive(|byte| *byte == b'\n') {
                    if begins {
                        self.lines.extend_from_slice(STDERR_PREFIX);
                    }
                    self.lines.extend_from_slice(line);
                    begins = true;
                }
                self.log.append(&self.lines);
                self.at_line_start = self.text.ends_with(b"\n");
            }
        }
    }

    /// Finds lines of standard error about failed tries that the CLI repeats.
    fn find_retries(&mut self) {
        if self.stderr_retries.is_empty() {
            return;
        }
        for piece in self.text.split_inclusive(|byte| *byte == b'\n') {
            // A longer line cannot match.
            if self.err_line.len() + piece.len() <= ERR_LINE_BYTES_MAX {
                self.err_line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.err_line);
                if let Some(words) = self
                    .stderr_retries
                    .iter()
                    .find_map(|retry| retry.find(&line, None))
                {
                    self.events.push(OutputEvent::Stream(StreamUpdate::Retry {
                        error: words.to_owned(),
                        cause: None,
                    }));
                    if let Some((reader, _)) = &mut self.lines_of {
                        reader.expect_progress();
                    }
                }
                self.err_line.clear();
            }
        }
    }

    /// Processes decoded text of standard output, which may be the agent's own text.
    fn process_output(&mut self, are_own_words: bool) {
        if self.text.is_empty() {
            return;
        }
        self.begin(Source::Out);
        if are_own_words {
            let events = &mut self.events;
            match std::str::from_utf8(&self.text) {
                Ok(text) => self
                    .scanner
                    .feed(text, &mut |block| events.push(OutputEvent::Signal(block))),
                Err(error) => tracing::error!(%error, "decoded text is not valid UTF-8"),
            }
        }
        if !self.lines.is_empty() {
            self.log.append(&self.lines);
        }
        self.log.append(&self.text);
        self.at_line_start = self.text.ends_with(b"\n");
    }

    /// Begins text of a stream. If the other stream ends within a line, ends that line.
    fn begin(&mut self, source: Source) {
        self.lines.clear();
        if self.last != source && !self.at_line_start {
            self.lines.push(b'\n');
            self.at_line_start = true;
        }
        self.last = source;
    }
}

/// Appends `text` and keeps the last `bytes_max` bytes.
fn keep_end(kept: &mut VecDeque<u8>, text: &[u8], bytes_max: usize) {
    let text = &text[text.len().saturating_sub(bytes_max)..];
    let excess = (kept.len() + text.len()).saturating_sub(bytes_max);
    kept.drain(..excess.min(kept.len()));
    kept.extend(text);
}

fn end_of(kept: VecDeque<u8>) -> String {
    let kept = Vec::from(kept);
    let from = kept
        .iter()
        .position(|byte| byte & 0xc0 != 0x80)
        .unwrap_or(0);
    String::from_utf8_lossy(&kept[from..]).trim_end().to_owned()
}

/// Waits until the stream is readable or has ended.
async fn readable_log(log: Option<&OwnLog>) {
    match log {
        Some(log) => log.readable().await,
        None => std::future::pending().await,
    }
}

async fn readable(pipe: Option<&pipe::Receiver>) {
    match pipe {
        // The next read returns this error again.
        Some(pipe) => match pipe.readable().await {
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "a stream cannot be watched"),
        },
        None => std::future::pending().await,
    }
}
