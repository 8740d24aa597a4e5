//! The decoded output of one attempt as one stream of bytes, which is in several files or objects.

use super::stored::{ObjectFile, StoredAttempt};
use super::times::{LineTimes, TimeMark, Times, push_mark};
use super::{
    Map, Output, Part, Query, READ_BYTES, STREAM_BYTES_MAX, log_path, marker, raw_dir, raw_path,
    segments,
};
use crate::files;
use crate::protocol::{AttemptDir, LogFileName};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Longest line that a search keeps, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a stream that one search covers. The next search continues after them.
const SEARCH_BYTES_MAX: u64 = 256 * 1024 * 1024;

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
pub(super) struct Stream {
    /// In order, without overlaps. Bytes between two pieces were dropped.
    pieces: Vec<Piece>,
    pub(super) total: u64,
    /// `None`: they are not known, or not wanted.
    pub(super) times: Option<Times>,
}

/// A stream with its log file.
enum Head {
    /// There is nothing else.
    Whole(Stream),
    /// Segments follow.
    Beginning(Stream),
}

impl Stream {
    pub(super) fn open(
        home: &Path,
        run_id: &str,
        attempt: u32,
        output: Output,
    ) -> io::Result<Self> {
        let dir = AttemptDir::new(home, run_id, attempt);
        let (dir, path) = match output {
            Output::Text => (dir, log_path(home, run_id, attempt)),
            Output::Raw => (raw_dir(&dir), raw_path(home, run_id, attempt)),
        };
        let Some(head) = open(home, &path)? else {
            return Ok(Self::default());
        };
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
                stream.push(Piece {
                    start,
                    bytes,
                    file: Source::File(Arc::new(file)),
                    at: 0,
                });
            }
        }
        Ok(stream)
    }

    pub(super) fn of_stored(stored: &StoredAttempt, output: Output) -> Self {
        let (name, map) = match output {
            Output::Text => (LogFileName::Text, stored.logs.text_map),
            Output::Raw => (LogFileName::Raw, stored.logs.raw_map),
        };
        let Some(head) = stored.open(name) else {
            return Self::default();
        };
        let head_len = head.bytes;
        let mut stream = match Self::of_head(Source::Object(Arc::new(head)), head_len, map) {
            Head::Whole(stream) => return stream,
            Head::Beginning(stream) => stream,
        };
        let mut segments: Vec<(u64, LogFileName)> = stored
            .logs
            .files
            .iter()
            .filter_map(|file| Some((start_of_segment(file.name, output)?, file.name)))
            .collect();
        segments.sort_unstable_by_key(|(start, _)| *start);
        for (start, name) in segments {
            if let Some(file) = stored.open(name) {
                stream.push(Piece {
                    start,
                    bytes: file.bytes,
                    file: Source::Object(Arc::new(file)),
                    at: 0,
                });
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
            stream.push(Piece {
                start: 0,
                bytes: merged.head_bytes,
                file: head.clone(),
                at: 0,
            });
            stream.push(Piece {
                start: tail_start,
                bytes: merged.total_bytes.saturating_sub(tail_start),
                file: head,
                at,
            });
            stream.total = merged.total_bytes;
            return Head::Whole(stream);
        }
        // Without a map, since the attempt's directory is gone, the whole log file is the head.
        let head_bytes = head_len.min(map.map_or(u64::MAX, |map| map.head_bytes_max));
        stream.push(Piece {
            start: 0,
            bytes: head_bytes,
            file: head,
            at: 0,
        });
        Head::Beginning(stream)
    }

    fn push(&mut self, piece: Piece) {
        // An empty piece can mark the end of a stream whose last bytes were dropped.
        self.total = self.total.max(piece.start + piece.bytes);
        if piece.bytes > 0 {
            self.pieces.push(piece);
        }
    }

    /// Reads up to `bytes_max` contiguous bytes from `at`, or from the first later position that
    /// was not dropped. Also returns that position. At the end of the stream, returns no bytes.
    fn read(&self, at: u64, bytes_max: usize) -> io::Result<(u64, Vec<u8>)> {
        let Some(piece) = self
            .pieces
            .iter()
            .find(|piece| piece.start + piece.bytes > at)
        else {
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

    pub(super) fn page(&self, query: Query<'_>) -> io::Result<Part> {
        let bytes_max = usize::try_from(query.bytes_max.max(4)).unwrap_or(usize::MAX);
        let asked = query
            .after
            .unwrap_or_else(|| self.total.saturating_sub(query.bytes_max));
        let mut part = Part {
            from: asked.min(self.total),
            next: asked.min(self.total),
            total: self.total,
            ..Part::default()
        };
        let mut text = Vec::new();
        let mut times = LineTimes::new(self.times.as_ref());
        while text.len() < bytes_max {
            let (from, mut bytes) =
                self.read(part.next, (bytes_max - text.len()).min(READ_BYTES))?;
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
            let skip = if text.is_empty() {
                bytes
                    .iter()
                    .take_while(|byte| **byte & 0xc0 == 0x80)
                    .count()
            } else {
                0
            };
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
    pub(super) fn search(&self, needle: &str, query: Query<'_>) -> io::Result<Part> {
        let finder = memchr::memmem::Finder::new(needle);
        let mut found: u64 = 0;
        let mut take = |part: &mut Part, line: &mut Vec<u8>| {
            if finder.find(line).is_some() {
                if query.times {
                    push_mark(
                        &mut part.times,
                        TimeMark {
                            line: found,
                            time: self.times.as_ref().and_then(|times| times.at(part.next)),
                        },
                    );
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
        let mut part = Part {
            from: query.after.unwrap_or(0).min(self.total),
            total: self.total,
            ..Part::default()
        };
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

/// Returns where a segment of an output starts in its stream. `None`: it is none.
const fn start_of_segment(name: LogFileName, output: Output) -> Option<u64> {
    match (name, output) {
        (LogFileName::TextSegment(start), Output::Text)
        | (LogFileName::RawSegment(start), Output::Raw) => Some(start),
        _ => None,
    }
}

fn open(home: &Path, path: &Path) -> io::Result<Option<File>> {
    match files::open(home, path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
