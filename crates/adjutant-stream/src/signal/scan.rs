//! Finds signal blocks in streamed output, in linear time and bounded memory, and independently of
//! how the output is split into reads.
//!
//! A block starts with a line `[TYPE]` and ends with a line `[/TYPE]` at the same indentation, so a
//! marker quoted within an indented field does not end it. An opening line within an unclosed block
//! starts a new block; the text before it is not scanned again. A line that contains a marker and
//! starts no block is reported, since its author may have meant one.

use adjutant_core::shorten;
use adjutant_core::signal::{
    MARKER_BYTES_MAX, Opening, SignalKind, closes, indentation, mentioned, opening,
};
use memchr::memchr;

/// Maximum length of the beginning of a block that people see.
const HEAD_BYTES: usize = 2_000;
/// Longest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// Longest character, in bytes.
const CHARACTER_BYTES_MAX: usize = 4;
/// Part of every object of the JSON form.
const JSON_MARK: &str = "\"signal_type\"";

/// The key of the kind in the JSON form, in an object with other quotes.
const JSON_KEY: &str = "signal_type";

/// A candidate for a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundSignal {
    /// The lines between the markers. `is_closed`: the closing one is there; otherwise the output
    /// or the next block ends it.
    Block {
        kind: SignalKind,
        text: String,
        is_closed: bool,
    },
    /// A JSON object that begins its line.
    Json { text: String },
    /// A block that is too large. `text` is its beginning.
    Oversized { kind: SignalKind, text: String },
    /// A line that contains a marker, and neither begins nor ends a block.
    Mention { kind: SignalKind, line: String },
}

/// What the scanner is currently reading.
#[derive(Debug)]
enum State {
    Outside,
    Block {
        begun: Opening,
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
        begun: Opening,
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
        Self {
            state: State::Outside,
            line: String::new(),
            overlong: false,
        }
    }
}

impl Scanner {
    /// Scans the next piece of output, and calls `found` for each block that it completes.
    pub fn feed(&mut self, text: &str, found: &mut impl FnMut(FoundSignal)) {
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
    pub fn end(&mut self, found: &mut impl FnMut(FoundSignal)) {
        if !self.line.is_empty() {
            self.end_line(found);
        }
        match std::mem::replace(&mut self.state, State::Outside) {
            State::Block { begun, text } => found(FoundSignal::Block {
                kind: begun.kind,
                text,
                is_closed: false,
            }),
            State::Oversized { begun, text } => found(FoundSignal::Oversized {
                kind: begun.kind,
                text,
            }),
            State::Json { text, .. } => unfinished(text, found),
            State::Outside => {}
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
            let fits = shorten::head(piece, room);
            self.line.push_str(fits);
            piece = &piece[fits.len()..];
            // The limit is higher if an object starts in this piece.
            if self.line_bytes_max() == max {
                self.overlong = true;
                return;
            }
        }
    }

    /// Returns how much of an unfinished line to keep: one character more than the relevant length,
    /// so that a truncated line is recognized as too long.
    fn line_bytes_max(&self) -> usize {
        match self.state {
            State::Outside if first_byte(&self.line) == Some(b'{') => {
                BLOCK_BYTES_MAX + CHARACTER_BYTES_MAX
            }
            State::Outside | State::Oversized { .. } => MARKER_BYTES_MAX + CHARACTER_BYTES_MAX,
            State::Block { .. } | State::Json { .. } => BLOCK_BYTES_MAX + CHARACTER_BYTES_MAX,
        }
    }

    fn end_line(&mut self, found: &mut impl FnMut(FoundSignal)) {
        let line = std::mem::take(&mut self.line);
        self.overlong = false;
        self.handle_line(&line, found);
        self.line = line;
        self.line.clear();
    }

    fn handle_line(&mut self, line: &str, found: &mut impl FnMut(FoundSignal)) {
        match std::mem::replace(&mut self.state, State::Outside) {
            State::Outside => self.begin(line, found),
            State::Block { begun, mut text } => {
                if closes(line, begun) {
                    found(FoundSignal::Block {
                        kind: begun.kind,
                        text,
                        is_closed: true,
                    });
                } else if let Some(next) = opening(line).filter(|next| next.indent <= begun.indent)
                {
                    found(FoundSignal::Block {
                        kind: begun.kind,
                        text,
                        is_closed: false,
                    });
                    self.state = State::Block {
                        begun: next,
                        text: String::new(),
                    };
                } else if text.len() + line.len() + 1 > BLOCK_BYTES_MAX {
                    self.state = State::Oversized {
                        begun,
                        text: shorten::head(&text, HEAD_BYTES).to_owned(),
                    };
                } else {
                    // The block's own indentation is removed from each line.
                    text.push_str(unindented(line, begun.indent));
                    text.push('\n');
                    self.state = State::Block { begun, text };
                }
            }
            State::Oversized { begun, text } => {
                let opened = opening(line).filter(|next| next.indent <= begun.indent);
                if closes(line, begun) || opened.is_some() {
                    found(FoundSignal::Oversized {
                        kind: begun.kind,
                        text,
                    });
                    if let Some(begun) = opened {
                        self.state = State::Block {
                            begun,
                            text: String::new(),
                        };
                    }
                } else {
                    self.state = State::Oversized { begun, text };
                }
            }
            State::Json {
                text,
                depth,
                in_string,
            } => match opening(line) {
                // A line of a JSON object cannot look like this, so it was not an object.
                Some(begun) => {
                    unfinished(text, found);
                    self.state = State::Block {
                        begun,
                        text: String::new(),
                    };
                }
                None => self.handle_json(line, text, depth, in_string, found),
            },
        }
    }

    /// Handles a line outside of all blocks.
    fn begin(&mut self, line: &str, found: &mut impl FnMut(FoundSignal)) {
        if first_byte(line) == Some(b'{') {
            return self.handle_json(line, String::new(), 0, false, found);
        }
        // Most lines of ordinary output contain no bracket.
        if line.len() > MARKER_BYTES_MAX || memchr(b'[', line.as_bytes()).is_none() {
            return;
        }
        if let Some(begun) = opening(line) {
            self.state = State::Block {
                begun,
                text: String::new(),
            };
        } else if let Some(kind) = mentioned(line) {
            found(FoundSignal::Mention {
                kind,
                line: line.trim().to_owned(),
            });
        }
    }

    fn handle_json(
        &mut self,
        line: &str,
        mut text: String,
        mut depth: usize,
        mut in_string: bool,
        found: &mut impl FnMut(FoundSignal),
    ) {
        if text.len() + line.len() + 1 > BLOCK_BYTES_MAX {
            return unfinished(text, found);
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
        text.push_str(&line[..closed_at.map_or(line.len(), |at| at + 1)]);
        text.push('\n');
        match closed_at {
            Some(_) if text.contains(JSON_MARK) => found(FoundSignal::Json { text }),
            // An object with other quotes.
            Some(_) => {
                if let Some(kind) = kind_named(&text) {
                    found(FoundSignal::Mention {
                        kind,
                        line: shorten::head(&text, HEAD_BYTES).trim().to_owned(),
                    });
                }
            }
            // A JSON string does not continue on the next line, but an agent may have written one
            // that does.
            None if in_string && !text.contains(JSON_MARK) => {}
            None => {
                self.state = State::Json {
                    text,
                    depth,
                    in_string,
                }
            }
        }
    }
}

/// Reports an object that has no end, if it was to be a signal.
fn unfinished(text: String, found: &mut impl FnMut(FoundSignal)) {
    if text.contains(JSON_MARK) {
        found(FoundSignal::Json { text });
    }
}

/// Returns the kind that an object names as its own.
fn kind_named(text: &str) -> Option<SignalKind> {
    let (_, after) = text.split_once(JSON_KEY)?;
    let word = after
        .split(|c: char| !(c.is_ascii_alphabetic() || c == '_'))
        .find(|word| !word.is_empty())?;
    SignalKind::from_spoken_tag(word)
}

/// Returns the first byte after a bounded number of blanks.
fn first_byte(line: &str) -> Option<u8> {
    line.bytes()
        .take(MARKER_BYTES_MAX + 1)
        .find(|byte| !byte.is_ascii_whitespace())
}

fn unindented(line: &str, indent: usize) -> &str {
    let spaces = indentation(line).min(indent);
    &line[spaces..]
}
