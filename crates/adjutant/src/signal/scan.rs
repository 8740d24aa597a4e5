//! Finds signal blocks in streamed output, in linear time and bounded memory, and independently of how the output is
//! split into reads.
//!
//! A block starts with a line `[TYPE]` and ends with a line `[/TYPE]` at the same indentation, so a marker quoted
//! within an indented field does not end it. An opening line within an unclosed block starts a new block; the text
//! before it is not scanned again.

use adjutant_core::signal::{SignalError, SignalKind};
use memchr::memchr;

/// Longest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Longest line that can open or close a block, in bytes.
const MARKER_BYTES_MAX: usize = 256;
/// Longest character, in bytes.
const CHARACTER_BYTES_MAX: usize = 4;
/// Part of every object of the JSON form.
const JSON_MARK: &str = "\"signal_type\"";

/// A candidate for a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The lines between the markers.
    Block { kind: SignalKind, text: String },
    /// A JSON object on its own lines.
    Json { text: String },
    /// A block that is unclosed or too large. `text` is its beginning.
    Broken { kind: SignalKind, text: String, why: SignalError },
}

/// What the scanner is currently reading.
#[derive(Debug)]
enum State {
    Outside,
    Block {
        kind: SignalKind,
        indent: usize,
        text: String,
    },
    /// An object with unbalanced braces so far.
    Json {
        text: String,
        depth: usize,
        in_string: bool,
    },
    /// A block that is too long, until it ends.
    Oversized {
        kind: SignalKind,
        indent: usize,
        text: String,
    },
}

/// Scans text as it arrives.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    /// The beginning of the unfinished line, as far as it is relevant.
    line: String,
    /// The unfinished line is longer than `line`.
    overlong: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { state: State::Outside, line: String::new(), overlong: false }
    }
}

impl Scanner {
    /// Scans the next piece of output, and calls `found` for each block that it completes.
    pub fn feed(&mut self, text: &str, found: &mut impl FnMut(Found)) {
        let mut rest = text;
        while let Some(end) = memchr(b'\n', rest.as_bytes()) {
            let (line, after) = rest.split_at(end);
            rest = &after[1..];
            if self.line.is_empty() && !self.overlong {
                self.handle_line(line, found);
            } else {
                self.buffer(line);
                self.end_line(found);
            }
        }
        if !rest.is_empty() {
            self.buffer(rest);
        }
    }

    /// Ends the output, and reports an unclosed block.
    pub fn end(&mut self, found: &mut impl FnMut(Found)) {
        if !self.line.is_empty() {
            self.end_line(found);
        }
        match std::mem::replace(&mut self.state, State::Outside) {
            State::Block { kind, text, .. } => found(Found::Broken { kind, text: head(text), why: SignalError::Unclosed }),
            State::Oversized { kind, text, .. } => found(too_large(kind, text)),
            State::Outside | State::Json { .. } => {}
        }
    }

    fn buffer(&mut self, mut piece: &str) {
        loop {
            let max = self.line_bytes_max();
            let room = max.saturating_sub(self.line.len());
            if piece.len() <= room {
                self.line.push_str(piece);
                return;
            }
            let cut = (0..=room).rev().find(|at| piece.is_char_boundary(*at)).unwrap_or(0);
            self.line.push_str(&piece[..cut]);
            piece = &piece[cut..];
            // The limit is higher if an object starts in this piece.
            if self.line_bytes_max() == max {
                self.overlong = true;
                return;
            }
        }
    }

    /// Returns how much of an unfinished line to keep: one character more than the relevant length, so that a
    /// truncated line is recognized as too long.
    fn line_bytes_max(&self) -> usize {
        match self.state {
            State::Outside if first_byte(&self.line) == Some(b'{') => BLOCK_BYTES_MAX + CHARACTER_BYTES_MAX,
            State::Outside | State::Oversized { .. } => MARKER_BYTES_MAX + CHARACTER_BYTES_MAX,
            State::Block { .. } | State::Json { .. } => BLOCK_BYTES_MAX + CHARACTER_BYTES_MAX,
        }
    }

    fn end_line(&mut self, found: &mut impl FnMut(Found)) {
        let line = std::mem::take(&mut self.line);
        self.overlong = false;
        self.handle_line(&line, found);
        self.line = line;
        self.line.clear();
    }

    fn handle_line(&mut self, line: &str, found: &mut impl FnMut(Found)) {
        if let State::Outside = self.state {
            // For most lines of ordinary output, only the first character is examined.
            match first_byte(line) {
                Some(b'{') => self.handle_json(line, String::new(), 0, false, found),
                Some(byte) if byte == b'[' || !byte.is_ascii() => {
                    if let Some((kind, indent)) = opening(line) {
                        self.state = State::Block { kind, indent, text: String::new() };
                    }
                }
                _ => {}
            }
            return;
        }
        match std::mem::replace(&mut self.state, State::Outside) {
            State::Outside => {}
            State::Block { kind, indent, mut text } => {
                if closes(line, kind, indent) {
                    found(Found::Block { kind, text });
                } else if let Some((next, at)) = opening(line).filter(|(_, at)| *at <= indent) {
                    found(Found::Broken { kind, text: head(text), why: SignalError::Unclosed });
                    self.state = State::Block { kind: next, indent: at, text: String::new() };
                } else if text.len() + line.len() + 1 > BLOCK_BYTES_MAX {
                    self.state = State::Oversized { kind, indent, text: head(text) };
                } else {
                    // The block's own indentation is removed from each line.
                    text.push_str(unindented(line, indent));
                    text.push('\n');
                    self.state = State::Block { kind, indent, text };
                }
            }
            State::Oversized { kind, indent, text } => {
                let opened = opening(line).filter(|(_, at)| *at <= indent);
                if closes(line, kind, indent) || opened.is_some() {
                    found(too_large(kind, text));
                    if let Some((kind, indent)) = opened {
                        self.state = State::Block { kind, indent, text: String::new() };
                    }
                } else {
                    self.state = State::Oversized { kind, indent, text };
                }
            }
            State::Json { text, depth, in_string } => match opening(line) {
                // A line of a JSON object cannot look like this, so it was not an object.
                Some((kind, indent)) => self.state = State::Block { kind, indent, text: String::new() },
                None => self.handle_json(line, text, depth, in_string, found),
            },
        }
    }

    fn handle_json(&mut self, line: &str, mut text: String, mut depth: usize, mut in_string: bool, found: &mut impl FnMut(Found)) {
        if text.len() + line.len() + 1 > BLOCK_BYTES_MAX {
            return;
        }
        let mut escaped = false;
        let mut closed_at = None;
        for (at, byte) in line.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b'{' if !in_string => depth += 1,
                b'}' if !in_string => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        closed_at = Some(at);
                        break;
                    }
                }
                _ => {}
            }
        }
        text.push_str(line);
        text.push('\n');
        match closed_at {
            // Nothing may follow the object on its last line.
            Some(at) if line[at + 1..].trim().is_empty() && text.contains(JSON_MARK) => found(Found::Json { text }),
            Some(_) => {}
            // A JSON string does not continue on the next line.
            None if in_string => {}
            None => self.state = State::Json { text, depth, in_string },
        }
    }
}

/// Returns the first byte after a bounded number of blanks.
fn first_byte(line: &str) -> Option<u8> {
    line.bytes().take(MARKER_BYTES_MAX + 1).find(|byte| !byte.is_ascii_whitespace())
}

/// Returns the kind and the indentation of an opening line.
fn opening(line: &str) -> Option<(SignalKind, usize)> {
    if line.len() > MARKER_BYTES_MAX {
        return None;
    }
    let tag = line.trim().strip_prefix('[')?.strip_suffix(']')?;
    SignalKind::from_tag(tag).map(|kind| (kind, indentation(line)))
}

fn closes(line: &str, kind: SignalKind, indent: usize) -> bool {
    line.len() <= MARKER_BYTES_MAX
        && indentation(line) <= indent
        && line.trim().strip_prefix("[/").and_then(|tag| tag.strip_suffix(']')) == Some(kind.tag())
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t']).len()
}

fn unindented(line: &str, indent: usize) -> &str {
    let spaces = indentation(line).min(indent);
    &line[spaces..]
}

/// Returns the beginning of a block, for people.
fn head(mut text: String) -> String {
    const HEAD_BYTES: usize = 2_000;
    if text.len() > HEAD_BYTES {
        let cut = (0..=HEAD_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
    }
    text
}

fn too_large(kind: SignalKind, text: String) -> Found {
    Found::Broken { kind, text, why: SignalError::TooLarge { bytes_max: BLOCK_BYTES_MAX } }
}
