//! Finds the token counts in responses of models' APIs as they stream: Anthropic Messages, OpenAI
//! Chat Completions and Responses, Gemini generateContent, as server-sent events or as one JSON
//! document. The same rules serve all of them. Memory is bounded for any response, and no text of
//! it is kept.

mod counts;
mod json;
#[cfg(test)]
mod tests;

use json::JsonScanner;
use memchr::memchr2;

/// The tokens of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Without those read from or written to a cache.
    pub input: u64,
    /// Read from a cache.
    pub cached: u64,
    /// Written to a cache, where the vendor counts them separately.
    pub cache_write: u64,
    /// Including thinking.
    pub output: u64,
}

/// Counts as the vendors' APIs state them. Those of a response never decrease while it streams. Its
/// [`Tokens`] can decrease, because tokens read from a cache may be stated after the input that
/// contains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stated {
    pub input: u64,
    /// Part of `input` that was read from a cache.
    pub cached_within: u64,
    /// Read from a cache in addition to `input`.
    pub cache_read: u64,
    /// Part of `input` that was written to a cache.
    pub cache_write_within: u64,
    /// Written to a cache in addition to `input`.
    pub cache_write: u64,
    pub output: u64,
}

impl Stated {
    /// Returns the counts in Adjutant's terms.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        Tokens {
            input: self
                .input
                .saturating_sub(self.cached_within)
                .saturating_sub(self.cache_write_within),
            cached: self.cached_within.saturating_add(self.cache_read),
            cache_write: self.cache_write_within.saturating_add(self.cache_write),
            output: self.output,
        }
    }

    /// Adds the growth of these counts since earlier ones of the same response.
    pub fn add_growth(&mut self, earlier: &Self, now: &Self) {
        let add = |total: &mut u64, earlier: u64, now: u64| {
            *total = total.saturating_add(now.saturating_sub(earlier))
        };
        add(&mut self.input, earlier.input, now.input);
        add(
            &mut self.cached_within,
            earlier.cached_within,
            now.cached_within,
        );
        add(&mut self.cache_read, earlier.cache_read, now.cache_read);
        add(
            &mut self.cache_write_within,
            earlier.cache_write_within,
            now.cache_write_within,
        );
        add(&mut self.cache_write, earlier.cache_write, now.cache_write);
        add(&mut self.output, earlier.output, now.output);
    }
}

/// How much of a response's usage is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// No valid count was stated.
    Nothing,
    /// Counts were stated while it streamed, and others may follow.
    SoFar,
    /// The counts of the whole response were stated.
    All,
}

/// Reads a response.
#[derive(Debug)]
pub struct UsageScanner {
    framing: Framing,
    json: JsonScanner,
}

/// How documents follow each other. The first byte decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Undecided,
    Document,
    Events { line: Line, after_return: bool },
}

/// The position in a line of server-sent events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// This many bytes of [`DATA`] were read.
    Begins(usize),
    Data,
    Other,
}

const DATA: &[u8] = b"data:";

impl Default for UsageScanner {
    fn default() -> Self {
        Self {
            framing: Framing::Undecided,
            json: JsonScanner::new(),
        }
    }
}

impl UsageScanner {
    /// Reads the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        match self.framing {
            Framing::Undecided => {
                let Some(at) = bytes.iter().position(|byte| !byte.is_ascii_whitespace()) else {
                    return;
                };
                self.framing = match bytes[at] {
                    b'{' | b'[' => Framing::Document,
                    _ => Framing::Events {
                        line: Line::Begins(0),
                        after_return: false,
                    },
                };
                self.feed(&bytes[at..]);
            }
            Framing::Document => self.json.feed(bytes),
            Framing::Events { line, after_return } => self.feed_events(bytes, line, after_return),
        }
    }

    fn feed_events(&mut self, bytes: &[u8], mut line: Line, mut after_return: bool) {
        let mut at = 0;
        while at < bytes.len() {
            if after_return && bytes[at] == b'\n' {
                at += 1;
                after_return = false;
                continue;
            }
            after_return = false;
            if let Line::Begins(matched) = line {
                let byte = bytes[at];
                if byte == DATA[matched] {
                    at += 1;
                    line = if matched + 1 == DATA.len() {
                        Line::Data
                    } else {
                        Line::Begins(matched + 1)
                    };
                    continue;
                }
                if matches!(byte, b'\n' | b'\r') {
                    at += 1;
                    after_return = byte == b'\r';
                    // A blank line ends the event.
                    if matched == 0 {
                        self.json.begin_document();
                    }
                    line = Line::Begins(0);
                    continue;
                }
                line = Line::Other;
            }
            let end = memchr2(b'\n', b'\r', &bytes[at..]).map(|length| at + length);
            if line == Line::Data {
                self.json.feed(&bytes[at..end.unwrap_or(bytes.len())]);
            }
            match end {
                Some(end) => {
                    after_return = bytes[end] == b'\r';
                    line = Line::Begins(0);
                    at = end + 1;
                }
                None => at = bytes.len(),
            }
        }
        self.framing = Framing::Events { line, after_return };
    }

    /// Returns the counts that were stated so far.
    #[must_use]
    pub fn stated(&self) -> Stated {
        self.json.counts.stated()
    }

    /// Returns the tokens that were stated so far.
    #[must_use]
    pub fn tokens(&self) -> Tokens {
        self.stated().tokens()
    }

    /// Returns how much is known. `is_whole`: the response has ended as its length or last chunk
    /// says. Some servers state counts with every piece of a stream, so one that was cut has stated
    /// only those so far.
    #[must_use]
    pub fn known(&self, is_whole: bool) -> Known {
        let json = &self.json;
        let is_final = match self.framing {
            Framing::Undecided => false,
            // A document is sent once the model has ended. Gemini's can be a list that grows.
            Framing::Document => json.is_last_stated || (is_whole && json.is_cumulative),
            Framing::Events { .. } => {
                (json.has_ended && json.is_last_stated)
                    || (is_whole && (json.states_last_at_the_end() || json.is_cumulative))
            }
        };
        match (json.counts.is_stated() && !json.counts.is_invalid, is_final) {
            (false, _) => Known::Nothing,
            (true, true) => Known::All,
            (true, false) => Known::SoFar,
        }
    }

    /// Returns the model that the response names.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.json.model.as_deref()
    }
}

/// Finds the model that a request names, and whether it asks for a response in the background, as
/// the request is read.
#[derive(Debug)]
pub struct RequestScanner(JsonScanner);

impl Default for RequestScanner {
    fn default() -> Self {
        Self(JsonScanner::of_request())
    }
}

impl RequestScanner {
    /// Reads the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.0.feed(bytes);
    }

    /// Returns the name. `None`: it names none so far, or a server could read another one.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.0
            .model
            .as_deref()
            .filter(|_| !self.0.request.is_ambiguous)
    }

    /// Returns whether the request asks for a response in the background, or a server could read it
    /// so.
    #[must_use]
    pub fn may_be_background(&self) -> bool {
        self.0.request.is_background || self.0.request.has_escaped_key || self.0.is_malformed()
    }
}
