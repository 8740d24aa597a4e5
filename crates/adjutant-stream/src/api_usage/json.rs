//! Follows one JSON document as its bytes arrive, and keeps only token counts and the name of the
//! model. Memory does not depend on the document's size or depth.

use super::counts::{Counts, Field};
use memchr::memchr2;

/// Longest key, number or name that is kept, in bytes. Longer ones are ignored.
const TEXT_BYTES_MAX: usize = 128;
/// Maximum depth of a followed path: a list, an object, its message, its usage, the details of the
/// usage.
const OPEN_MAX: usize = 6;

/// A container on a path that can lead to counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    /// A list of documents, as Gemini sends without server-sent events.
    Documents,
    Document,
    /// `message` of Anthropic's first event: its counts are not the last ones.
    Message,
    /// `response` of OpenAI's last event.
    Response,
    Usage(Statement),
    UsageDetails,
}

/// The scope of the counts in a usage object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statement {
    /// The beginning of the response: others follow.
    First,
    /// Everything so far, in each document.
    SoFar,
    /// The whole response.
    Last,
}

/// What a value is, by its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Other,
    Container(Node),
    Count(Field),
    Model,
    /// The type of an event.
    Kind,
    /// Whether a request asks for a response in the background.
    Background,
}

/// The types of the events that end a stream: Anthropic's, and OpenAI's Responses. OpenAI's Chat
/// Completions end with `[DONE]`.
const LAST_KINDS: [&[u8]; 4] = [
    b"message_stop",
    b"response.completed",
    b"response.incomplete",
    b"response.failed",
];
const DONE: &[u8] = b"DONE";

/// The content of a request, apart from its model.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestFindings {
    /// The model is named twice, or in a form that servers read differently.
    pub(super) is_ambiguous: bool,
    pub(super) is_background: bool,
    /// A key of the request itself contains an escape.
    pub(super) has_escaped_key: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Value(Meaning),
    /// In an object, before a key or the end.
    KeyOrEnd,
    Key {
        is_escaped: bool,
    },
    Colon(Meaning),
    /// After a value.
    CommaOrEnd,
    /// In a string.
    Text {
        meaning: Meaning,
        is_escaped: bool,
    },
    /// In a number or literal.
    Scalar(Meaning),
    /// In a container that is not followed.
    Skipped {
        depth: u32,
    },
    SkippedString {
        depth: u32,
        is_escaped: bool,
    },
    /// The document has ended, or is not JSON.
    Ended,
}

/// The scanner of one document after the other.
#[derive(Debug)]
pub(super) struct JsonScanner {
    state: State,
    open: [Node; OPEN_MAX],
    depth: usize,
    text: Vec<u8>,
    /// The key or value contains an escape or is too long.
    is_other_text: bool,
    /// It contains an escape.
    is_escaped_text: bool,
    /// The document is a request, of which only the values of the outermost object count.
    is_request: bool,
    /// The outermost object has ended.
    is_complete: bool,
    pub(super) request: RequestFindings,
    /// The counts of the usage object that is being read.
    reading: Counts,
    pub(super) counts: Counts,
    /// Counts were stated that are the last ones of a response.
    pub(super) is_last_stated: bool,
    /// Each document states the counts so far.
    pub(super) is_cumulative: bool,
    /// The last event of a stream was read.
    pub(super) has_ended: bool,
    /// The document that is being read has begun, and has stated the counts of a whole response.
    document: Option<bool>,
    /// Whether the previous document has.
    before_stated: bool,
    pub(super) model: Option<String>,
}

impl JsonScanner {
    pub(super) fn new() -> Self {
        Self {
            state: State::Value(Meaning::Container(Node::Document)),
            open: [Node::Document; OPEN_MAX],
            depth: 0,
            text: Vec::with_capacity(TEXT_BYTES_MAX),
            is_other_text: false,
            is_escaped_text: false,
            is_request: false,
            is_complete: false,
            request: RequestFindings::default(),
            reading: Counts::default(),
            counts: Counts::default(),
            is_last_stated: false,
            is_cumulative: false,
            has_ended: false,
            document: None,
            before_stated: false,
            model: None,
        }
    }

    pub(super) fn of_request() -> Self {
        Self {
            is_request: true,
            ..Self::new()
        }
    }

    /// Returns whether the document has ended before its outermost object.
    pub(super) fn is_malformed(&self) -> bool {
        self.state == State::Ended && !self.is_complete
    }

    #[cfg(test)]
    pub(super) fn retained_bytes(&self) -> usize {
        size_of::<Self>() + self.text.capacity() + self.model.as_ref().map_or(0, String::capacity)
    }

    /// Returns whether the last document has stated the counts of a whole response.
    pub(super) fn states_last_at_the_end(&self) -> bool {
        self.document.unwrap_or(self.before_stated)
    }

    /// Starts with the next document. What was found stays.
    pub(super) fn begin_document(&mut self) {
        self.before_stated = self.states_last_at_the_end();
        self.document = None;
        self.state = State::Value(Meaning::Container(Node::Document));
        self.depth = 0;
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Ended => return,
                State::Skipped { depth } => at = self.skip(bytes, at, depth),
                State::SkippedString { depth, is_escaped } => {
                    at = self.skip_string(bytes, at, depth, is_escaped)
                }
                State::Text {
                    meaning,
                    is_escaped,
                } => at = self.read_text(bytes, at, meaning, is_escaped),
                State::Key { is_escaped } => at = self.read_key(bytes, at, is_escaped),
                State::Scalar(meaning) => at = self.read_scalar(bytes, at, meaning),
                State::Value(_) | State::KeyOrEnd | State::Colon(_) | State::CommaOrEnd => {
                    let byte = bytes[at];
                    at += 1;
                    if !byte.is_ascii_whitespace() {
                        at -= usize::from(self.take(byte));
                    }
                }
            }
        }
    }

    /// Reads one byte between values. Returns `true` if the byte belongs to the value that begins.
    fn take(&mut self, byte: u8) -> bool {
        match (self.state, byte) {
            // A request is an object.
            (State::Value(_), other) if self.is_request && self.depth == 0 && other != b'{' => {
                self.state = State::Ended
            }
            (State::Value(meaning), b'{' | b'[') => self.open(meaning, byte == b'['),
            (State::Value(meaning), b'"') => {
                self.clear_text();
                self.state = State::Text {
                    meaning,
                    is_escaped: false,
                };
                self.note_no_count(meaning);
            }
            // An empty list.
            (State::Value(_), b']')
            | (State::KeyOrEnd, b'}')
            | (State::CommaOrEnd, b'}' | b']') => self.close(),
            (State::Value(_), b',' | b':' | b'}') => self.state = State::Ended,
            (State::Value(meaning), _) => {
                self.clear_text();
                self.state = State::Scalar(meaning);
                return true;
            }
            (State::KeyOrEnd, b'"') => {
                self.clear_text();
                self.state = State::Key { is_escaped: false };
            }
            (State::Colon(meaning), b':') => self.state = State::Value(meaning),
            (State::CommaOrEnd, b',') => {
                self.state = match self.top() {
                    Some(Node::Documents) => State::Value(Meaning::Container(Node::Document)),
                    Some(_) => State::KeyOrEnd,
                    None => State::Ended,
                }
            }
            _ => self.state = State::Ended,
        }
        false
    }

    fn top(&self) -> Option<Node> {
        self.depth.checked_sub(1).map(|top| self.open[top])
    }

    fn open(&mut self, meaning: Meaning, is_list: bool) {
        let node = match meaning {
            Meaning::Container(Node::Document) if is_list && self.depth == 0 => {
                Some(Node::Documents)
            }
            Meaning::Container(node) if !is_list => Some(node),
            _ => None,
        };
        self.note_no_count(meaning);
        self.document.get_or_insert(false);
        match node.filter(|_| self.depth < OPEN_MAX) {
            Some(node) => {
                if matches!(node, Node::Usage(_)) {
                    self.reading = Counts::default();
                }
                self.open[self.depth] = node;
                self.depth += 1;
                self.state = if is_list {
                    State::Value(Meaning::Container(Node::Document))
                } else {
                    State::KeyOrEnd
                };
            }
            None => self.state = State::Skipped { depth: 1 },
        }
    }

    /// Ends the innermost container that is followed.
    fn close(&mut self) {
        if let Some(Node::Usage(statement)) = self.top() {
            let found = std::mem::take(&mut self.reading);
            if statement == Statement::Last && found.is_stated() {
                self.is_last_stated = true;
                self.document = Some(true);
            }
            self.is_cumulative |= statement == Statement::SoFar;
            self.counts.merge(&found);
        }
        self.depth = self.depth.saturating_sub(1);
        self.is_complete |= self.depth == 0;
        self.state = if self.depth == 0 {
            State::Ended
        } else {
            State::CommaOrEnd
        };
    }

    fn end_value(&mut self) {
        self.state = if self.depth == 0 {
            State::Ended
        } else {
            State::CommaOrEnd
        };
    }

    fn clear_text(&mut self) {
        self.text.clear();
        self.is_other_text = false;
        self.is_escaped_text = false;
    }

    fn keep_text(&mut self, bytes: &[u8]) {
        if self.text.len() + bytes.len() > TEXT_BYTES_MAX {
            self.is_other_text = true;
        } else {
            self.text.extend_from_slice(bytes);
        }
    }

    /// Reads the rest of a key.
    fn read_key(&mut self, bytes: &[u8], at: usize, is_escaped: bool) -> usize {
        match self.read_string(bytes, at, is_escaped, true) {
            StringPart::Ended(at) => {
                let meaning = match (self.is_request, self.is_other_text) {
                    (true, _) => self.meaning_in_request(),
                    (false, true) => Meaning::Other,
                    (false, false) => self.meaning(),
                };
                self.state = State::Colon(meaning);
                at
            }
            StringPart::Open { is_escaped } => {
                self.state = State::Key { is_escaped };
                bytes.len()
            }
        }
    }

    fn read_text(&mut self, bytes: &[u8], at: usize, meaning: Meaning, is_escaped: bool) -> usize {
        match self.read_string(
            bytes,
            at,
            is_escaped,
            matches!(meaning, Meaning::Model | Meaning::Kind),
        ) {
            StringPart::Ended(at) => {
                match meaning {
                    Meaning::Model
                        if !self.is_other_text && !self.text.is_empty() && self.model.is_none() =>
                    {
                        self.model = String::from_utf8(self.text.clone()).ok();
                    }
                    Meaning::Model => self.request.is_ambiguous = true,
                    Meaning::Kind => {
                        self.has_ended |=
                            !self.is_other_text && LAST_KINDS.contains(&self.text.as_slice())
                    }
                    Meaning::Other
                    | Meaning::Container(_)
                    | Meaning::Count(_)
                    | Meaning::Background => {}
                }
                self.end_value();
                at
            }
            StringPart::Open { is_escaped } => {
                self.state = State::Text {
                    meaning,
                    is_escaped,
                };
                bytes.len()
            }
        }
    }

    /// Reads a string up to its end or the end of the bytes.
    fn read_string(
        &mut self,
        bytes: &[u8],
        mut at: usize,
        mut is_escaped: bool,
        is_kept: bool,
    ) -> StringPart {
        loop {
            if is_escaped {
                if at == bytes.len() {
                    return StringPart::Open { is_escaped: true };
                }
                at += 1;
            }
            let Some(found) = memchr2(b'"', b'\\', &bytes[at..]) else {
                if is_kept {
                    self.keep_text(&bytes[at..]);
                }
                return StringPart::Open { is_escaped: false };
            };
            if is_kept {
                self.keep_text(&bytes[at..at + found]);
            }
            at += found + 1;
            if bytes[at - 1] == b'"' {
                return StringPart::Ended(at);
            }
            self.is_other_text = true;
            self.is_escaped_text = true;
            is_escaped = true;
        }
    }

    fn read_scalar(&mut self, bytes: &[u8], at: usize, meaning: Meaning) -> usize {
        let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
        let length = bytes[at..].iter().position(is_end);
        let end = length.map_or(bytes.len(), |length| at + length);
        if meaning != Meaning::Other {
            self.keep_text(&bytes[at..end]);
        }
        if length.is_some() {
            match meaning {
                Meaning::Count(field) => self.note_count(field),
                Meaning::Background => {
                    self.request.is_background |=
                        !matches!(self.text.as_slice(), b"false" | b"null")
                }
                Meaning::Container(Node::Document) if self.depth == 1 => {
                    self.has_ended |= self.text == DONE
                }
                Meaning::Other | Meaning::Container(_) | Meaning::Model | Meaning::Kind => {}
            }
            self.end_value();
        }
        end
    }

    fn note_count(&mut self, field: Field) {
        match self.text.as_slice() {
            b"null" => {}
            digits if !self.is_other_text => self.reading.note(field, digits),
            _ => self.reading.is_invalid = true,
        }
    }

    /// Records a value that is neither a number nor a literal.
    fn note_no_count(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Count(_) => self.reading.is_invalid = true,
            Meaning::Background => self.request.is_background = true,
            Meaning::Other | Meaning::Container(_) | Meaning::Model | Meaning::Kind => {}
        }
    }

    /// Returns the meaning of the key that was read.
    fn meaning(&self) -> Meaning {
        let Some(top) = self.top() else {
            return Meaning::Other;
        };
        match (top, self.text.as_slice()) {
            (Node::Document, b"message") => Meaning::Container(Node::Message),
            (Node::Document, b"response") => Meaning::Container(Node::Response),
            (Node::Document | Node::Message | Node::Response, b"usageMetadata") => {
                Meaning::Container(Node::Usage(Statement::SoFar))
            }
            (Node::Document | Node::Response, b"usage") => {
                Meaning::Container(Node::Usage(Statement::Last))
            }
            (Node::Message, b"usage") => Meaning::Container(Node::Usage(Statement::First)),
            (Node::Document | Node::Message | Node::Response, b"model" | b"modelVersion") => {
                Meaning::Model
            }
            (Node::Document, b"type") => Meaning::Kind,
            (Node::Usage(_), b"prompt_tokens_details" | b"input_tokens_details") => {
                Meaning::Container(Node::UsageDetails)
            }
            (Node::Usage(_), key) => Field::of_usage(key).map_or(Meaning::Other, Meaning::Count),
            (Node::UsageDetails, b"cached_tokens") => Meaning::Count(Field::CachedWithin),
            _ => Meaning::Other,
        }
    }

    /// Returns the meaning of the key of a request that was read. Some servers ignore the case of
    /// keys.
    fn meaning_in_request(&mut self) -> Meaning {
        let is = |text: &[u8], key: &[u8]| text.eq_ignore_ascii_case(key);
        if self.is_escaped_text {
            self.request.has_escaped_key = true;
            self.request.is_ambiguous = true;
            return Meaning::Other;
        }
        match self.text.as_slice() {
            text if self.is_other_text || text.is_empty() => Meaning::Other,
            text if is(text, b"background") => Meaning::Background,
            text if is(text, b"model") => {
                self.request.is_ambiguous |= text != b"model" || self.model.is_some();
                Meaning::Model
            }
            _ => Meaning::Other,
        }
    }

    fn skip(&mut self, bytes: &[u8], mut at: usize, mut depth: u32) -> usize {
        while let Some(byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'"' => {
                    self.state = State::SkippedString {
                        depth,
                        is_escaped: false,
                    };
                    return at;
                }
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        self.end_value();
                        return at;
                    }
                }
                _ => {}
            }
        }
        self.state = State::Skipped { depth };
        at
    }

    fn skip_string(&mut self, bytes: &[u8], at: usize, depth: u32, is_escaped: bool) -> usize {
        match self.read_string(bytes, at, is_escaped, false) {
            StringPart::Ended(at) => {
                self.state = State::Skipped { depth };
                at
            }
            StringPart::Open { is_escaped } => {
                self.state = State::SkippedString { depth, is_escaped };
                bytes.len()
            }
        }
    }
}

/// How far a string was read.
enum StringPart {
    /// It ended before this index.
    Ended(usize),
    Open {
        is_escaped: bool,
    },
}
