//! The agent's output: both streams read, decoded, written to the log; its last words kept.
//!
//! Reading waits for writing, so an agent that writes faster than the disk is slowed down, and
//! memory is constant. Lines of standard error carry a prefix; where the two streams change within
//! a line, the line is ended first.

use super::logfile::LogFile;
use crate::client::Pulse;
use crate::preset::StderrRetry;
use crate::signal::{Found, Scanner};
use adjutant_core::fence::DeniedWrites;
use adjutant_core::limits;
use adjutant_stream::decoder::Decoder;
use adjutant_stream::reader::{Part, Reader, StreamUpdate, Summary};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How much is read at once: as much as a pipe holds.
const READ_BYTES: usize = 64 * 1024;
/// So many reads in a row before everything else has its turn.
const READS_IN_A_ROW: u32 = 16;
/// The end of standard error, at most.
const COMPLAINT_BYTES_MAX: usize = 16 * 1024;
/// What is read at most from a pipe that is being cut off: what it can hold.
const CUT_BYTES_MAX: usize = 1024 * 1024;
/// Longest line of standard error that is looked into, in bytes.
const ERR_LINE_BYTES_MAX: usize = 16 * 1024;
/// Marks a line of standard error.
const STDERR_PREFIX: &[u8] = b"stderr: ";

/// The result of reading the output.
#[derive(Debug)]
pub struct Output {
    /// The log, and the raw stream where there is one; neither is finished.
    pub logs: Vec<LogFile>,
    /// Length of the log.
    pub bytes: u64,
    /// The agent's last message, or the end of standard output: whole characters.
    pub result: String,
    /// The text on standard output does not end with a line.
    pub ends_within_line: bool,
    /// What the agent's stream said at its end, where it has one.
    pub summary: Option<Summary>,
    /// The end of standard error.
    pub complaint: String,
    /// A process still held a stream open when it was cut off.
    pub left_open: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Out,
    Err,
}

/// What the output reports to the attempt.
#[derive(Debug)]
pub enum OutputEvent {
    /// Something in the agent's own words looks like a signal.
    Signal(Found),
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
pub struct Pump {
    out: Stream,
    err: Stream,
    log: LogFile,
    buffer: Vec<u8>,
    text: Vec<u8>,
    lines: Vec<u8>,
    last_words: VecDeque<u8>,
    /// So much of them is kept.
    last_words_bytes_max: usize,
    last: Source,
    at_line_start: bool,
    scanner: Scanner,
    /// Found in the last read.
    events: Vec<OutputEvent>,
    /// The structured stream on standard output, and where it is kept as it came.
    lines_of: Option<(Reader, LogFile)>,
    complaint: VecDeque<u8>,
    /// What lines of standard error say of failed tries, and the line that is being read there.
    stderr_retries: Vec<StderrRetry>,
    err_line: Vec<u8>,
    /// `None`: the agent is not fenced.
    denied_writes: Option<DeniedWrites>,
}

impl Pump {
    /// Takes over the reading ends of both streams. Of the last message, `answer_bytes_max`
    /// are kept, or [`limits::RESULT_BYTES_MAX`] where that is more.
    ///
    /// # Errors
    /// They cannot be read without blocking.
    pub fn new(out: OwnedFd, err: OwnedFd, log: LogFile, lines_of: Option<(Reader, LogFile)>, answer_bytes_max: usize) -> io::Result<Self> {
        let stream = |fd| Ok::<_, io::Error>(Stream { pipe: Some(pipe::Receiver::from_owned_fd(fd)?), decoder: Decoder::default() });
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
            stderr_retries: lines_of.as_ref().map(|(reader, _)| reader.stderr_retries().to_vec()).unwrap_or_default(),
            err_line: Vec::new(),
            denied_writes: None,
            lines_of,
            complaint: VecDeque::new(),
        })
    }

    /// Has the pump report denied writes: the agent is fenced.
    pub fn watch_denied_writes(&mut self) {
        self.denied_writes = Some(DeniedWrites::default());
    }

    fn find_denied_writes(&mut self) {
        if let Some(scanner) = &mut self.denied_writes {
            let events = &mut self.events;
            scanner.feed(&self.text, &mut |line| events.push(OutputEvent::WriteDenied(line)));
        }
    }

    /// Reads until both streams have ended or `cut` is cancelled; tells the length of the log, and
    /// what in the agent's own words looks like a signal. A receiver that is slow slows reading.
    /// Lines of Adjutant are written between its own.
    pub async fn run(
        mut self,
        progress: watch::Sender<u64>,
        events: mpsc::Sender<OutputEvent>,
        mut notes: mpsc::Receiver<String>,
        pulse: Arc<Pulse>,
        cut: CancellationToken,
    ) -> Output {
        let mut reads = 0;
        let mut left_open = false;
        while self.out.pipe.is_some() || self.err.pipe.is_some() {
            let source = tokio::select! {
                () = readable(self.out.pipe.as_ref()) => Source::Out,
                () = readable(self.err.pipe.as_ref()) => Source::Err,
                Some(note) = notes.recv() => {
                    self.note(&note);
                    progress.send_replace(self.log.total_bytes());
                    continue;
                }
                () = cut.cancelled() => {
                    self.read_out(Source::Out);
                    self.read_out(Source::Err);
                    left_open = self.out.pipe.is_some() || self.err.pipe.is_some();
                    break;
                }
            };
            if self.read(source) > 0 {
                pulse.beat();
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
        let (summary, raw) = self.end_lines().unzip();
        self.text.clear();
        self.out.decoder.finish(&mut self.text);
        self.take(Source::Out);
        let events_now = &mut self.events;
        self.scanner.end(&mut |block| events_now.push(OutputEvent::Signal(block)));
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
            complaint: end_of(self.complaint),
            left_open,
        }
    }

    /// Writes a line of Adjutant.
    fn note(&mut self, note: &str) {
        let gap = if self.at_line_start { "" } else { "\n" };
        self.take_part(&Part::Note(&format!("{gap}{note}\n")));
    }

    async fn send_events(&mut self, to: &mpsc::Sender<OutputEvent>) {
        for events in self.events.drain(..) {
            if to.send(events).await.is_err() {
                tracing::debug!("output was reported after the end");
            }
        }
    }

    /// The structured stream has ended.
    fn end_lines(&mut self) -> Option<(Summary, LogFile)> {
        let (reader, raw) = self.lines_of.take()?;
        let mut updates = Vec::new();
        let summary = reader.finish(&mut |part| self.take_part(&part), &mut updates);
        self.events.extend(updates.into_iter().map(OutputEvent::Stream));
        Some((summary, raw))
    }

    /// Takes lines of the structured stream: kept as they are, and written readable to the log.
    fn take_lines(&mut self, bytes: &[u8]) {
        let Some((mut reader, mut raw)) = self.lines_of.take() else { return };
        raw.append(bytes);
        let mut updates = Vec::new();
        reader.push(bytes, &mut |part| self.take_part(&part), &mut updates);
        self.events.extend(updates.into_iter().map(OutputEvent::Stream));
        self.lines_of = Some((reader, raw));
    }

    fn take_part(&mut self, part: &Part<'_>) {
        let (text, are_own_words) = match part {
            Part::Text(text) => (text, true),
            Part::Note(text) => (text, false),
        };
        self.text.clear();
        self.out.decoder.push(text.as_bytes(), &mut self.text);
        if !are_own_words {
            self.find_denied_writes();
        }
        self.take_out(are_own_words);
    }

    /// Reads what is there in a stream that is about to be cut off.
    fn read_out(&mut self, source: Source) {
        let mut bytes = 0;
        while bytes < CUT_BYTES_MAX {
            match self.read(source) {
                0 => break,
                read => bytes += read,
            }
        }
    }

    /// Reads once. Returns how much came; nothing also where the stream has ended.
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
                self.take_lines(&buffer[..read]);
                self.buffer = buffer;
                read
            }
            Ok(read) => {
                self.text.clear();
                stream.decoder.push(&self.buffer[..read], &mut self.text);
                self.take(source);
                read
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => 0,
            Err(error) => {
                tracing::warn!(%error, "a stream of the agent cannot be read any more");
                stream.pipe = None;
                0
            }
        }
    }

    /// Takes the decoded text of one read.
    fn take(&mut self, source: Source) {
        if self.text.is_empty() {
            return;
        }
        self.find_denied_writes();
        match source {
            Source::Out => {
                keep_end(&mut self.last_words, &self.text, self.last_words_bytes_max);
                self.take_out(true);
            }
            Source::Err => {
                keep_end(&mut self.complaint, &self.text, COMPLAINT_BYTES_MAX);
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

    /// Finds what standard error says of failed tries that the CLI repeats.
    fn find_retries(&mut self) {
        if self.stderr_retries.is_empty() {
            return;
        }
        for piece in self.text.split_inclusive(|byte| *byte == b'\n') {
            // A line that is longer than that says something else.
            if self.err_line.len() + piece.len() <= ERR_LINE_BYTES_MAX {
                self.err_line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.err_line);
                if let Some(words) = self.stderr_retries.iter().find_map(|retry| retry.find(&line)) {
                    self.events.push(OutputEvent::Stream(StreamUpdate::Retry { error: words.to_owned(), cause: None }));
                    if let Some((reader, _)) = &mut self.lines_of {
                        reader.expect_progress();
                    }
                }
                self.err_line.clear();
            }
        }
    }

    /// Takes decoded text of standard output, the agent's own words or not.
    fn take_out(&mut self, are_own_words: bool) {
        if self.text.is_empty() {
            return;
        }
        self.begin(Source::Out);
        if are_own_words {
            let events = &mut self.events;
            match std::str::from_utf8(&self.text) {
                Ok(text) => self.scanner.feed(text, &mut |block| events.push(OutputEvent::Signal(block))),
                Err(error) => tracing::error!(%error, "decoded text is no text"),
            }
        }
        if !self.lines.is_empty() {
            self.log.append(&self.lines);
        }
        self.log.append(&self.text);
        self.at_line_start = self.text.ends_with(b"\n");
    }

    /// Where the streams change within a line, the line is ended first.
    fn begin(&mut self, source: Source) {
        self.lines.clear();
        if self.last != source && !self.at_line_start {
            self.lines.push(b'\n');
            self.at_line_start = true;
        }
        self.last = source;
    }
}

/// Keeps the end of what came.
fn keep_end(kept: &mut VecDeque<u8>, text: &[u8], bytes_max: usize) {
    let text = &text[text.len().saturating_sub(bytes_max)..];
    let excess = (kept.len() + text.len()).saturating_sub(bytes_max);
    kept.drain(..excess.min(kept.len()));
    kept.extend(text);
}

fn end_of(kept: VecDeque<u8>) -> String {
    let kept = Vec::from(kept);
    let from = kept.iter().position(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
    String::from_utf8_lossy(&kept[from..]).trim_end().to_owned()
}

/// Returns when there is something to read, or the stream has ended.
async fn readable(pipe: Option<&pipe::Receiver>) {
    match pipe {
        // An error here shows in the read that follows.
        Some(pipe) => match pipe.readable().await {
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "a stream cannot be watched"),
        },
        None => std::future::pending().await,
    }
}
