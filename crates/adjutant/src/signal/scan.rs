//! Finding signal blocks in output as it streams by: linear in its length, bounded in memory, and
//! independent of how the reads cut it.
//!
//! A block begins with a line `[TYPE]` and ends with a line `[/TYPE]` at the same indentation, so a
//! marker quoted within an indented field does not end it. What is found within a block that
//! was never closed is not scanned again: a new opening line starts a new block.

use adjutant_core::signal::{SignalError, SignalKind};
use memchr::memchr;

/// Longest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Longest line that can open or close anything, in bytes.
const MARKER_BYTES_MAX: usize = 256;
/// Longest character, in bytes.
const CHARACTER_BYTES_MAX: usize = 4;
/// What every object of the JSON form holds.
const JSON_MARK: &str = "\"signal_type\"";

/// Something that looks like a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The lines between the markers.
    Block { kind: SignalKind, text: String },
    /// A JSON object on its own lines.
    Json { text: String },
    /// It began and did not end well. `text` is its beginning.
    Broken { kind: SignalKind, text: String, why: SignalError },
}

/// What the scanner is in the middle of.
#[derive(Debug)]
enum State {
    Outside,
    Block {
        kind: SignalKind,
        indent: usize,
        text: String,
    },
    /// An object whose braces are not balanced yet.
    Json {
        text: String,
        depth: usize,
        in_string: bool,
    },
    /// A block that grew too long, until it ends.
    Oversized {
        kind: SignalKind,
        indent: usize,
        text: String,
    },
}

/// Reads text as it comes and hands out what it finds.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    /// The line that has no end yet, as far as it can matter.
    line: String,
    /// The line is already longer than that.
    overlong: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self { state: State::Outside, line: String::new(), overlong: false }
    }
}

impl Scanner {
    /// Takes the next piece of output and calls `found` for each block that it completes.
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

    /// Tells that no more will come.
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
            // An object may have begun in what was just taken: then more of it is kept.
            if self.line_bytes_max() == max {
                self.overlong = true;
                return;
            }
        }
    }

    /// How much of a line is worth keeping until it ends: a character more than can matter, so that
    /// a line which was cut is not taken for one of that length.
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
            // Most lines of ordinary output are looked at by their first character only.
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
                    // A block within a list or a quotation carries its indentation on each line.
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
                // No line of an object looks like this: the object was none.
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
            // Behind the object its own lines hold nothing.
            Some(at) if line[at + 1..].trim().is_empty() && text.contains(JSON_MARK) => found(Found::Json { text }),
            Some(_) => {}
            // A string never goes on over a line's end.
            None if in_string => {}
            None => self.state = State::Json { text, depth, in_string },
        }
    }
}

/// Returns the first byte that is no blank, behind not too many of them.
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

/// Keeps the beginning of a block, for people.
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
