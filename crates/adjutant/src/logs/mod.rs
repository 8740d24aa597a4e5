//! A run's readable log: the paths of its files, and reading any part of it, also while it grows.
//!
//! The decoded output is one stream of bytes, addressed from 0. Its beginning is in the log file,
//! `<home>/logs/<run-id>.log` (`<run-id>.2.log` for the second attempt, and so on). Output beyond
//! half of the cap is in segments below the attempt's directory, of which the oldest are dropped.
//! At the end, the segments are appended to the log file, after a line with the number of omitted
//! bytes. A map in the attempt's directory records the layout.
//!
//! ```text
//!  stream   |------ head ------|........ omitted ........|-- segment --|- segment -|
//!  full     |------ head ------| marker line |-------------- tail ------------------|
//! ```

pub mod kept;
pub mod page;
pub mod stored;
pub mod times;
pub mod watch;

use crate::files;
use crate::link::{AttemptDir, LogFileName};
use adjutant_core::Time;
use rustix::fs::Dir;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stored::{ObjectFile, StoredAttempt};
use times::{LineTimes, TimeMark, Times, push_mark};
use tokio::sync::OwnedSemaphorePermit;

/// Longest line that a search keeps, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes that are read from a file at once.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of a stream that one search covers. The next search continues after them.
const SEARCH_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// More than the length of any stream. Sums of positions below this do not overflow.
pub const STREAM_BYTES_MAX: u64 = 1 << 52;
const MAP_BYTES_MAX: u64 = 64 * 1024;
/// Entries of an attempt's directory that are read. A log has at most three segments.
const ENTRIES_MAX: usize = 10_000;

/// Returns the path of an attempt's readable log.
#[must_use]
pub fn log_path(home: &Path, run_id: &str, attempt: u32) -> PathBuf {
    home.join("logs").join(file_name(run_id, attempt, "log"))
}

/// Maximum number of attempts, the newest ones, whose logs are listed.
const LOGS_NAMED_MAX: u32 = 50;

/// Returns the paths of a run's readable logs, oldest first: that of the newest attempt, and those of earlier attempts
/// with output.
#[must_use]
pub fn log_paths(home: &Path, run_id: &str, attempt: u32) -> Vec<PathBuf> {
    let newest = attempt.max(1);
    let all = newest.saturating_sub(LOGS_NAMED_MAX - 1).max(1)..=newest;
    all.filter_map(|n| Some(log_path(home, run_id, n)).filter(|path| n == newest || path.exists())).collect()
}

/// Returns the path of an attempt's raw stream, for agents that write one.
#[must_use]
pub fn raw_path(home: &Path, run_id: &str, attempt: u32) -> PathBuf {
    home.join("logs").join(file_name(run_id, attempt, "jsonl"))
}

/// Returns the path of the times of an attempt's output.
#[must_use]
pub fn times_path(home: &Path, run_id: &str, attempt: u32, output: Output) -> PathBuf {
    let ending = match output {
        Output::Text => "times",
        Output::Raw => "jsonl-times",
    };
    home.join("logs").join(file_name(run_id, attempt, ending))
}

/// Returns the directory of the raw stream's segments.
#[must_use]
pub fn raw_dir(dir: &AttemptDir) -> AttemptDir {
    AttemptDir(dir.0.join("raw"))
}

/// Returns the path of an attempt's prompt, as it was sent.
#[must_use]
pub fn prompt_path(home: &Path, run_id: &str, attempt: u32) -> PathBuf {
    home.join("logs").join(file_name(run_id, attempt, "prompt.md"))
}

fn file_name(run_id: &str, attempt: u32, ending: &str) -> String {
    if attempt <= 1 { format!("{run_id}.{ending}") } else { format!("{run_id}.{attempt}.{ending}") }
}

/// The layout of the stream in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// How much of the stream's beginning the log file contains at most, until it is merged.
    pub head_bytes_max: u64,
    /// Set once the segments were appended to the log file.
    #[serde(default)]
    pub merged: Option<Merged>,
}

/// The parts of a merged log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    pub head_bytes: u64,
    /// Bytes omitted after the head.
    pub omitted_bytes: u64,
    /// Length of the line in the file that reports them.
    pub marker_bytes: u64,
    /// Length of the stream.
    pub total_bytes: u64,
}

impl Map {
    /// Reads an attempt's map. `None`: there is no output yet.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn read(dir: &AttemptDir) -> io::Result<Option<Self>> {
        match files::read(dir.home(), &path(dir), MAP_BYTES_MAX) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok().filter(Self::is_plausible)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces an attempt's map.
    ///
    /// # Errors
    /// The map cannot be written; the old one then remains.
    pub fn write(&self, dir: &AttemptDir) -> io::Result<()> {
        files::write_atomically(dir.home(), &path(dir), &serde_json::to_vec(self)?)
    }

    /// Returns whether positions can be computed with the map, since the run's processes could have written it.
    fn is_plausible(&self) -> bool {
        self.merged.is_none_or(|Merged { head_bytes, omitted_bytes, marker_bytes, total_bytes }| {
            [head_bytes, omitted_bytes, marker_bytes, total_bytes].iter().all(|bytes| *bytes <= STREAM_BYTES_MAX)
        })
    }
}

fn path(dir: &AttemptDir) -> PathBuf {
    dir.0.join("log.json")
}

/// Returns the path of the segment that starts at `start` in the stream.
#[must_use]
pub fn segment_path(dir: &AttemptDir, start: u64) -> PathBuf {
    dir.0.join(format!("log.{start:020}"))
}

/// Returns the segments of an attempt: the start of each in the stream, and its path.
///
/// # Errors
/// The directory cannot be read.
pub fn segments(dir: &AttemptDir) -> io::Result<Vec<(u64, PathBuf)>> {
    let opened = match files::open_dir(dir.home(), &dir.0) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in Dir::new(opened)?.take(ENTRIES_MAX) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        let start = name.strip_prefix("log.").and_then(|start| start.parse().ok());
        if let Some(start) = start.filter(|start| *start <= STREAM_BYTES_MAX) {
            found.push((start, dir.0.join(&*name)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the line that replaces the omitted bytes.
#[must_use]
pub fn marker(omitted_bytes: u64) -> String {
    format!("\n[adj: {omitted_bytes} bytes of output are left out here]\n")
}

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
    /// Return only what was written from then on. Output without times counts if nothing earlier is known to follow.
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
    fn shifted(self, bytes: u64) -> Self {
        Self { from: self.from + bytes, next: self.next + bytes, total: self.total + bytes, ..self }
    }

    /// Appends the part that follows.
    fn append(&mut self, more: Self) {
        if self.text.is_empty() && self.next == self.from {
            self.from = more.from;
        }
        let lines = self.text.matches('\n').count() as u64;
        let is_line_open = !self.text.is_empty() && !self.text.ends_with('\n');
        for TimeMark { line, time } in more.times {
            push_mark(&mut self.times, TimeMark { line: lines + line.max(u64::from(is_line_open)), time });
        }
        self.text.push_str(&more.text);
        self.omitted += more.omitted;
        (self.next, self.total) = (more.next, more.total);
    }
}

/// Reads a part of an attempt's log from the files of a home.
///
/// # Errors
/// A file exists but cannot be read.
pub fn read(home: &Path, run_id: &str, attempt: u32, query: Query<'_>) -> io::Result<Part> {
    RunFiles::in_home(home, run_id).read(attempt, query)
}

/// Where the logs of a run's attempts are read.
#[derive(Debug, Clone)]
pub struct RunFiles {
    pub home: PathBuf,
    pub run_id: String,
    /// The attempts whose logs were moved from the home to the log store.
    pub stored: BTreeMap<u32, Arc<StoredAttempt>>,
}

impl RunFiles {
    /// Returns the files of a home.
    #[must_use]
    pub fn in_home(home: &Path, run_id: &str) -> Self {
        Self { home: home.to_owned(), run_id: run_id.to_owned(), stored: BTreeMap::new() }
    }

    /// Waits until a thread may read these files. Keep the permit until it has.
    pub async fn admit_reader(&self) -> Option<OwnedSemaphorePermit> {
        match self.stored.values().next() {
            Some(stored) => stored.objects.admit_reader().await,
            None => None,
        }
    }

    fn read(&self, attempt: u32, query: Query<'_>) -> io::Result<Part> {
        let mut stream = self.open(attempt, query.output)?;
        if query.times {
            stream.times = self.read_times(attempt, query.output);
        }
        match query.grep {
            Some(needle) if !needle.is_empty() => stream.search(needle, query),
            _ => stream.page(query),
        }
    }

    fn read_times(&self, attempt: u32, output: Output) -> Option<Times> {
        let Some(stored) = self.stored.get(&attempt) else {
            return Times::read(&self.home, &times_path(&self.home, &self.run_id, attempt, output), STREAM_BYTES_MAX);
        };
        let name = match output {
            Output::Text => LogFileName::TextTimes,
            Output::Raw => LogFileName::RawTimes,
        };
        Times::decode(stored.read(name, times::FILE_BYTES_MAX), &stored.place, STREAM_BYTES_MAX)
    }

    /// Returns the length of an attempt's output so far, in bytes.
    fn total_bytes(&self, attempt: u32, output: Output) -> io::Result<u64> {
        Ok(self.open(attempt, output)?.total)
    }

    fn open(&self, attempt: u32, output: Output) -> io::Result<Stream> {
        match self.stored.get(&attempt) {
            Some(stored) => Ok(Stream::of_stored(stored, output)),
            None => Stream::open(&self.home, &self.run_id, attempt, output),
        }
    }

    /// Returns the position of a run's first output since a time. The times of some attempts may be unknown.
    fn start_since(&self, earlier: &[u64], (first, newest): (u32, u32), output: Output, since: Time) -> io::Result<u64> {
        let mut start: u64 = earlier.iter().sum();
        let mut bytes = self.total_bytes(newest, output)?;
        for attempt in (first..=newest).rev() {
            if let Some(times) = self.read_times(attempt, output) {
                match times.first_since(since) {
                    None => return Ok(start + bytes),
                    Some(0) => {}
                    Some(position) => return Ok(start + position),
                }
            }
            if let Some(length) = (attempt - first).checked_sub(1).and_then(|n| earlier.get(n as usize)) {
                bytes = *length;
                start -= bytes;
            }
        }
        Ok(start)
    }
}

/// Reads a part of a run's output: the joined output of its attempts from `first` to `newest`.
///
/// # Errors
/// A file exists but cannot be read.
pub fn read_run(files: &RunFiles, first: u32, newest: u32, query: Query<'_>) -> io::Result<Part> {
    let mut earlier = Vec::new();
    for attempt in first..newest {
        earlier.push(files.total_bytes(attempt, query.output)?);
    }
    let before: u64 = earlier.iter().sum();
    let start = match query.since {
        Some(since) => files.start_since(&earlier, (first, newest), query.output, since)?,
        None => 0,
    };
    let at = match query.after {
        Some(after) => after.max(start),
        None => {
            let last = files.read(newest, query)?;
            let room = query.bytes_max.saturating_sub(last.next - last.from);
            if before + last.from < start {
                start
            } else if last.from > 0 || before == 0 || room == 0 {
                return Ok(last.shifted(before));
            } else {
                before.saturating_sub(room).max(start)
            }
        }
    };
    let mut part = Part { from: at, next: at, ..Part::default() };
    let (mut start, mut left) = (0, query.bytes_max);
    for (attempt, bytes) in (first..).zip(earlier) {
        let end = start + bytes;
        if part.next < end {
            let query = Query { after: Some(part.next - start), bytes_max: left, ended: true, ..query };
            part.append(files.read(attempt, query)?.shifted(start));
            left = query.bytes_max.saturating_sub(part.next - part.from);
            if part.next < end || left == 0 {
                part.total = before + files.total_bytes(newest, query.output)?;
                return Ok(part);
            }
        }
        start = end;
    }
    let query = Query { after: Some(part.next.saturating_sub(before)), bytes_max: left, ..query };
    part.append(files.read(newest, query)?.shifted(before));
    Ok(part)
}

/// A part of the stream in one file.
#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: u64,
    file: Source,
    /// Start position in the file.
    at: u64,
}

/// A file of a home, or an object.
#[derive(Debug, Clone)]
enum Source {
    File(Arc<File>),
    Object(Arc<ObjectFile>),
}

impl Source {
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read_at(into, at),
            Self::Object(object) => object.read_at(into, at),
        }
    }
}

#[derive(Debug, Default)]
struct Stream {
    /// In order, without overlaps. Bytes between two pieces were dropped.
    pieces: Vec<Piece>,
    total: u64,
    /// `None`: they are not known, or not wanted.
    times: Option<Times>,
}

/// A stream with its log file.
enum Head {
    /// There is nothing else.
    Whole(Stream),
    /// Segments follow.
    Beginning(Stream),
}

impl Stream {
    fn open(home: &Path, run_id: &str, attempt: u32, output: Output) -> io::Result<Self> {
        let dir = AttemptDir::new(home, run_id, attempt);
        let (dir, path) = match output {
            Output::Text => (dir, log_path(home, run_id, attempt)),
            Output::Raw => (raw_dir(&dir), raw_path(home, run_id, attempt)),
        };
        let Some(head) = open(home, &path)? else { return Ok(Self::default()) };
        let head_len = head.metadata()?.len().min(STREAM_BYTES_MAX);
        let map = Map::read(&dir)?;
        let mut stream = match Self::of_head(Source::File(Arc::new(head)), head_len, map) {
            Head::Whole(stream) => return Ok(stream),
            Head::Beginning(stream) => stream,
        };
        for (start, path) in segments(&dir)? {
            // A missing segment was dropped concurrently.
            if let Some(file) = open(home, &path)? {
                let bytes = file.metadata()?.len().min(STREAM_BYTES_MAX);
                stream.push(Piece { start, bytes, file: Source::File(Arc::new(file)), at: 0 });
            }
        }
        Ok(stream)
    }

    fn of_stored(stored: &StoredAttempt, output: Output) -> Self {
        let (name, map) = match output {
            Output::Text => (LogFileName::Text, stored.logs.text_map),
            Output::Raw => (LogFileName::Raw, stored.logs.raw_map),
        };
        let Some(head) = stored.open(name) else { return Self::default() };
        let head_len = head.bytes;
        let mut stream = match Self::of_head(Source::Object(Arc::new(head)), head_len, map) {
            Head::Whole(stream) => return stream,
            Head::Beginning(stream) => stream,
        };
        let mut segments: Vec<(u64, LogFileName)> =
            stored.logs.files.iter().filter_map(|file| Some((file.name.segment_of(output)?, file.name))).collect();
        segments.sort_unstable_by_key(|(start, _)| *start);
        for (start, name) in segments {
            if let Some(file) = stored.open(name) {
                stream.push(Piece { start, bytes: file.bytes, file: Source::Object(Arc::new(file)), at: 0 });
            }
        }
        stream
    }

    /// Begins a stream with its log file.
    fn of_head(head: Source, head_len: u64, map: Option<Map>) -> Head {
        let mut stream = Self::default();
        if let Some(merged) = map.and_then(|map| map.merged) {
            let tail_start = merged.head_bytes + merged.omitted_bytes;
            let at = merged.head_bytes + merged.marker_bytes;
            stream.push(Piece { start: 0, bytes: merged.head_bytes, file: head.clone(), at: 0 });
            stream.push(Piece { start: tail_start, bytes: merged.total_bytes.saturating_sub(tail_start), file: head, at });
            stream.total = merged.total_bytes;
            return Head::Whole(stream);
        }
        // Without a map, since the attempt's directory is gone, the whole log file is the head.
        let head_bytes = head_len.min(map.map_or(u64::MAX, |map| map.head_bytes_max));
        stream.push(Piece { start: 0, bytes: head_bytes, file: head, at: 0 });
        Head::Beginning(stream)
    }

    fn push(&mut self, piece: Piece) {
        // An empty piece can mark the end of a stream whose last bytes were dropped.
        self.total = self.total.max(piece.start + piece.bytes);
        if piece.bytes > 0 {
            self.pieces.push(piece);
        }
    }

    /// Reads up to `bytes_max` contiguous bytes from `at`, or from the first later position that was not dropped. Also
    /// returns that position. At the end of the stream, returns no bytes.
    fn read(&self, at: u64, bytes_max: usize) -> io::Result<(u64, Vec<u8>)> {
        let Some(piece) = self.pieces.iter().find(|piece| piece.start + piece.bytes > at) else {
            return Ok((self.total.max(at), Vec::new()));
        };
        let from = at.max(piece.start);
        let left = piece.start + piece.bytes - from;
        let mut bytes = vec![0; bytes_max.min(usize::try_from(left).unwrap_or(usize::MAX))];
        let mut filled = 0;
        while filled < bytes.len() {
            let offset = piece.at + (from - piece.start) + filled as u64;
            match piece.file.read_at(&mut bytes[filled..], offset) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok((from, bytes))
    }

    fn page(&self, query: Query<'_>) -> io::Result<Part> {
        let bytes_max = usize::try_from(query.bytes_max.max(4)).unwrap_or(usize::MAX);
        let asked = query.after.unwrap_or_else(|| self.total.saturating_sub(query.bytes_max));
        let mut part = Part { from: asked.min(self.total), next: asked.min(self.total), total: self.total, ..Part::default() };
        let mut text = Vec::new();
        let mut times = LineTimes::new(self.times.as_ref());
        while text.len() < bytes_max {
            let (from, mut bytes) = self.read(part.next, (bytes_max - text.len()).min(READ_BYTES))?;
            if from > part.next {
                part.omitted += from - part.next;
                let marker = marker(from - part.next);
                text.extend_from_slice(marker.as_bytes());
                times.skip(&marker);
                part.next = from;
            }
            if bytes.is_empty() {
                break;
            }
            // A position within a character moves to the next character.
            let skip = if text.is_empty() { bytes.iter().take_while(|byte| **byte & 0xc0 == 0x80).count() } else { 0 };
            bytes.drain(..skip);
            let whole = whole_characters(&bytes);
            if text.is_empty() && query.after.is_none() && part.from > 0 && skip > 0 {
                part.from += skip as u64;
            }
            text.extend_from_slice(&bytes[..whole]);
            if query.times {
                times.add(from + skip as u64, &bytes[..whole]);
            }
            part.next = from + (skip + whole) as u64;
            if whole == 0 {
                break;
            }
        }
        part.text = String::from_utf8_lossy(&text).into_owned();
        part.times = times.finish();
        Ok(part)
    }

    /// Searches lines from `after`, or from the beginning.
    fn search(&self, needle: &str, query: Query<'_>) -> io::Result<Part> {
        let finder = memchr::memmem::Finder::new(needle);
        let mut found: u64 = 0;
        let mut take = |part: &mut Part, line: &mut Vec<u8>| {
            if finder.find(line).is_some() {
                if query.times {
                    push_mark(&mut part.times, TimeMark { line: found, time: self.times.as_ref().and_then(|times| times.at(part.next)) });
                }
                found += 1;
                part.text.push_str(&String::from_utf8_lossy(line));
                if !line.ends_with(b"\n") {
                    part.text.push('\n');
                }
            }
            part.next += line.len() as u64;
            line.clear();
        };
        let mut part = Part { from: query.after.unwrap_or(0).min(self.total), total: self.total, ..Part::default() };
        part.next = part.from;
        // The current line, which starts at `part.next`.
        let mut line: Vec<u8> = Vec::new();
        let mut at = part.from;
        loop {
            let (from, bytes) = self.read(at, READ_BYTES)?;
            if from > at {
                part.omitted += from - at;
                take(&mut part, &mut line);
                part.next = from;
            }
            if bytes.is_empty() {
                break;
            }
            if from - part.from > SEARCH_BYTES_MAX && part.next > part.from {
                return Ok(part);
            }
            at = from + bytes.len() as u64;
            for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(piece);
                if line.ends_with(b"\n") || line.len() > LINE_BYTES_MAX {
                    take(&mut part, &mut line);
                    if part.text.len() as u64 >= query.bytes_max {
                        return Ok(part);
                    }
                }
            }
        }
        if query.ended {
            take(&mut part, &mut line);
        }
        Ok(part)
    }
}

/// Returns the length of the leading whole characters.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        // Invalid UTF-8, for instance in an edited file, is passed on and replaced.
        Err(error) if error.error_len().is_some() => bytes.len(),
        Err(error) => error.valid_up_to(),
    }
}

impl LogFileName {
    /// Returns where a segment of an output starts in its stream. `None`: it is none.
    const fn segment_of(self, output: Output) -> Option<u64> {
        match (self, output) {
            (Self::TextSegment(start), Output::Text) | (Self::RawSegment(start), Output::Raw) => Some(start),
            _ => None,
        }
    }
}

fn open(home: &Path, path: &Path) -> io::Result<Option<File>> {
    match files::open(home, path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use times::Record;

    const RUN: &str = "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11";

    /// Writes the log of an attempt. The times are in seconds, as for `read_since`.
    fn attempt(home: &Path, attempt: u32, text: &str, records: &[(u64, i64)]) {
        std::fs::create_dir_all(home.join("logs")).expect("a directory");
        std::fs::write(log_path(home, RUN, attempt), text).expect("a log");
        let bytes = records.iter().flat_map(|(position, time)| Record { position: *position, time: Time(*time * 1000) }.encode());
        if !records.is_empty() {
            std::fs::write(times_path(home, RUN, attempt, Output::Text), bytes.collect::<Vec<_>>()).expect("times");
        }
    }

    fn read_since(home: &Path, since: i64, after: Option<u64>) -> (String, Vec<(u64, Option<i64>)>) {
        let since = Some(Time(since * 1000));
        let query = Query { output: Output::Text, after, bytes_max: 1000, grep: None, ended: true, times: true, since };
        let part = read_run(&RunFiles::in_home(home, RUN), 1, 3, query).expect("reads");
        (part.text, part.times.into_iter().map(|mark| (mark.line, mark.time.map(|time| time.0 / 1000))).collect())
    }

    #[test]
    fn output_since_a_time_spans_attempts() {
        let home = tempfile::tempdir().expect("a directory");
        // Nothing is known of the first attempt. The second ends within a line.
        attempt(home.path(), 1, "a\n", &[]);
        attempt(home.path(), 2, "b\nc\nd", &[(0, 10), (2, 20)]);
        attempt(home.path(), 3, "e\nf\n", &[(0, 30), (2, 40)]);
        for after in [None, Some(0)] {
            let read = |since| read_since(home.path(), since, after);
            assert_eq!(read(0), ("a\nb\nc\nde\nf\n".to_owned(), vec![(0, None), (1, Some(10)), (2, Some(20)), (4, Some(40))]));
            assert_eq!(read(10).0, "a\nb\nc\nde\nf\n", "nothing earlier is known to follow the first attempt");
            assert_eq!(read(11), ("c\nde\nf\n".to_owned(), vec![(0, Some(20)), (2, Some(40))]));
            assert_eq!(read(21), ("e\nf\n".to_owned(), vec![(0, Some(30)), (1, Some(40))]));
            assert_eq!(read(40).0, "f\n");
            assert_eq!(read(41), (String::new(), vec![]));
        }
    }
}
