//! Decodes an agent's bytes to readable text: whole UTF-8 characters, no escape sequences, no
//! control characters other than newline and tab. A character or sequence may span two reads.
//!
//! - Invalid bytes become U+FFFD. An ASCII control character becomes its visible picture (NUL:
//!   `␀`); a C1 control character (U+0080 to U+009F) becomes U+FFFD.
//! - A carriage return becomes a newline, and so does a carriage return followed by a newline.
//! - Escape sequences (CSI, OSC and other string sequences, two-character sequences) are dropped.
//!   After a bounded length, an unterminated sequence counts as text again, so that it cannot hide
//!   the rest of the output.
//!
//! Memory use is constant, independent of the length of lines.

/// Longest CSI sequence that is recognized, in bytes.
const CSI_BYTES_MAX: u32 = 128;
/// Longest string sequence (such as a title or a link) that is recognized, in bytes.
const STRING_BYTES_MAX: u32 = 8 * 1024;
/// Bytes that are scanned ahead at once. Bounds the cost of input without plain text, where each
/// byte can cause another scan.
const WINDOW: usize = 512;
/// Bytes that one step of the scan compares.
const BLOCK: usize = 32;

/// Decodes one stream.
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    /// The first bytes of a character that continues in the next read.
    partial: [u8; 4],
    partial_len: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After a carriage return, which is already written as a newline.
    Return,
    Escape,
    /// After an escape and an intermediate byte; at least one more byte follows.
    EscapeMore,
    Csi(u32),
    /// Within a string sequence, which BEL or ST ends.
    Str(u32),
    /// After an escape within a string sequence.
    StrEscape(u32),
}

impl Decoder {
    /// Decodes `input` and appends the text to `out`.
    pub fn push(&mut self, mut input: &[u8], out: &mut Vec<u8>) {
        while self.partial_len > 0 && !input.is_empty() {
            input = self.complete(input, out);
        }
        while !input.is_empty() {
            input = match self.state {
                State::Text => self.text(input, out),
                _ => self.sequence(input),
            };
        }
    }

    /// Appends the remaining text at the end of the stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.partial_len > 0 {
            self.partial_len = 0;
            push_replacement(out);
        }
        self.state = State::Text;
    }

    /// Copies the leading plain text, then handles one character that needs a change. Returns the
    /// rest.
    fn text<'a>(&mut self, input: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let window = &input[..input.len().min(WINDOW)];
        let plain = &window[..plain_prefix_len(window)];
        let valid = std::str::from_utf8(plain).map_or_else(|error| error.valid_up_to(), str::len);
        out.extend_from_slice(&input[..valid]);
        let rest = &input[valid..];
        let Some(first) = rest.first() else {
            return rest;
        };
        match *first {
            0x1b => self.state = State::Escape,
            b'\r' => {
                out.push(b'\n');
                self.state = State::Return;
            }
            // Plain text beyond the window.
            b'\n' | b'\t' | 0x20..0x7f => return rest,
            0x00..0x20 => push_control_picture(0x80 + first, out),
            0x7f => push_control_picture(0xa1, out),
            0x80.. => match classify(rest) {
                Character::Whole(length) => {
                    out.extend_from_slice(&rest[..length]);
                    return &rest[length..];
                }
                Character::Cut => {
                    self.partial[..rest.len()].copy_from_slice(rest);
                    self.partial_len = rest.len();
                    return &[];
                }
                Character::Control => {
                    push_replacement(out);
                    return &rest[2..];
                }
                Character::Invalid(length) => {
                    push_replacement(out);
                    return &rest[length..];
                }
            },
        }
        &rest[1..]
    }

    /// Completes a character that started in the previous read. Returns the rest.
    fn complete<'a>(&mut self, input: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        let held = self.partial_len;
        let mut bytes = [0; 8];
        bytes[..held].copy_from_slice(&self.partial[..held]);
        let taken = input.len().min(4 - held);
        bytes[held..held + taken].copy_from_slice(&input[..taken]);
        let joined = &bytes[..held + taken];
        let used = match classify(joined) {
            Character::Whole(length) => {
                out.extend_from_slice(&joined[..length]);
                length
            }
            Character::Control => {
                push_replacement(out);
                2
            }
            Character::Invalid(length) => {
                push_replacement(out);
                length
            }
            Character::Cut => {
                self.partial[..joined.len()].copy_from_slice(joined);
                self.partial_len = joined.len();
                return &input[taken..];
            }
        };
        // The held bytes are the beginning of one character, or invalid together.
        self.partial_len = 0;
        &input[used.saturating_sub(held)..]
    }

    /// Handles one byte within or after an escape sequence. Returns the rest.
    fn sequence<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        let byte = input[0];
        let mut is_unconsumed = false;
        self.state = match (self.state, byte) {
            (State::Return, b'\n') => State::Text,
            (State::Csi(length), 0x20..0x40) if length < CSI_BYTES_MAX => State::Csi(length + 1),
            (State::Csi(_), 0x40..0x7f) => State::Text,
            (State::Escape, b'[') => State::Csi(0),
            (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::Str(0),
            (State::Escape | State::EscapeMore, 0x20..0x30) => State::EscapeMore,
            (State::Escape | State::EscapeMore, 0x30..0x7f) => State::Text,
            (State::Escape | State::StrEscape(_), 0x1b) => State::Escape,
            (State::Str(_), 0x07) | (State::StrEscape(_), b'\\') => State::Text,
            (State::Str(length), 0x1b) => State::StrEscape(length),
            // A newline does not occur in a valid string sequence.
            (State::Str(_), b'\n') => {
                is_unconsumed = true;
                State::Text
            }
            (State::Str(length), _) if length < STRING_BYTES_MAX => State::Str(length + 1),
            (State::StrEscape(_), _) => {
                is_unconsumed = true;
                State::Escape
            }
            _ => {
                is_unconsumed = true;
                State::Text
            }
        };
        if is_unconsumed { input } else { &input[1..] }
    }
}

/// Counts the leading bytes that are neither an ASCII control character nor the first byte of a C1
/// control character (0xc2).
fn plain_prefix_len(input: &[u8]) -> usize {
    let mut at = 0;
    while let Some(block) = input.get(at..at + BLOCK) {
        // No early exit within a block, so that it compiles to vector instructions.
        if block
            .iter()
            .fold(false, |any, byte| any | is_special(*byte))
        {
            break;
        }
        at += BLOCK;
    }
    at + input[at..]
        .iter()
        .take_while(|byte| !is_special(**byte))
        .count()
}

fn is_special(byte: u8) -> bool {
    ((byte < 0x20) & (byte != b'\n') & (byte != b'\t')) | (byte == 0x7f) | (byte == 0xc2)
}

enum Character {
    /// A valid character of this many bytes.
    Whole(usize),
    /// A C1 control character, of two bytes.
    Control,
    /// The input ends before the character is complete.
    Cut,
    /// This many bytes are not valid UTF-8.
    Invalid(usize),
}

/// Classifies the multi-byte character at the start of `bytes`.
fn classify(bytes: &[u8]) -> Character {
    let (length, second) = match bytes[0] {
        0xc2..=0xdf => (2, 0x80..=0xbf),
        0xe0 => (3, 0xa0..=0xbf),
        0xe1..=0xec | 0xee..=0xef => (3, 0x80..=0xbf),
        0xed => (3, 0x80..=0x9f),
        0xf0 => (4, 0x90..=0xbf),
        0xf1..=0xf3 => (4, 0x80..=0xbf),
        0xf4 => (4, 0x80..=0x8f),
        _ => return Character::Invalid(1),
    };
    match bytes.get(1) {
        None => return Character::Cut,
        Some(byte) if !second.contains(byte) => return Character::Invalid(1),
        Some(0x80..=0x9f) if bytes[0] == 0xc2 => return Character::Control,
        Some(_) => {}
    }
    for at in 2..length {
        match bytes.get(at) {
            None => return Character::Cut,
            Some(0x80..=0xbf) => {}
            Some(_) => return Character::Invalid(at),
        }
    }
    Character::Whole(length)
}

fn push_replacement(out: &mut Vec<u8>) {
    out.extend_from_slice("\u{fffd}".as_bytes());
}

/// Appends the picture of a control character: a character of the block at U+2400, given by its
/// last byte.
fn push_control_picture(last: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xe2, 0x90, last]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> String {
        let mut decoder = Decoder::default();
        let mut out = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut out);
        }
        decoder.finish(&mut out);
        String::from_utf8(out).expect("the output is valid UTF-8")
    }

    #[test]
    fn character_may_be_split_at_any_byte() {
        let text = "a ä € 😀 z\u{2028}ﬀ\u{feff}";
        for at in 0..=text.len() {
            assert_eq!(
                decode(&[&text.as_bytes()[..at], &text.as_bytes()[at..]]),
                text,
                "cut at {at}"
            );
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(decode(&bytes), text);
    }

    #[test]
    fn long_text_in_any_script_is_unchanged() {
        let text = "plain ASCII, \u{a0}ä €\t😀 日本語のテキスト, ©\n".repeat(200);
        assert_eq!(decode(&[text.as_bytes()]), text);
        for size in [1, 7, 500, 511, 512, 513] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            assert_eq!(decode(&pieces), text, "in pieces of {size}");
        }
        assert_eq!(decode(&[&[0xff; 2_000]]), "\u{fffd}".repeat(2_000));
    }

    #[test]
    fn invalid_bytes_are_replaced() {
        assert_eq!(decode(&[b"a\xffb\x80c"]), "a\u{fffd}b\u{fffd}c");
        assert_eq!(decode(&[b"\xe2\x82"]), "\u{fffd}");
        assert_eq!(decode(&[b"\xe2\x82", b"x"]), "\u{fffd}x");
        assert_eq!(decode(&[b"\xed\xa0\x80"]), "\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(decode(&[b"\xf0\x9f", b"\xf0\x9f\x98\x80"]), "\u{fffd}😀");
    }

    #[test]
    fn control_characters_become_visible_pictures() {
        assert_eq!(decode(&[b"a\0b\x07c\x7f\xc2\x9bd"]), "a␀b␇c␡\u{fffd}d");
        assert_eq!(
            decode(&[b"one\r\ntwo\rthree\r", b"\nfour\tx\n"]),
            "one\ntwo\nthree\nfour\tx\n"
        );
    }

    #[test]
    fn escape_sequences_are_dropped() {
        assert_eq!(
            decode(&[
                b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07ok \x1b]8;;http://x\x1b\\link\x1b(B\x1b=."
            ]),
            "red ok link."
        );
        let sequence = b"a\x1b]8;;http://x\x1b\\b\x1b[38;5;1mc";
        for at in 0..=sequence.len() {
            assert_eq!(
                decode(&[&sequence[..at], &sequence[at..]]),
                "abc",
                "cut at {at}"
            );
        }
    }

    #[test]
    fn unterminated_sequence_hides_a_bounded_part() {
        let mut input = b"\x1b]".to_vec();
        input.extend(std::iter::repeat_n(b'x', 100_000));
        let text = decode(&[&input]);
        assert_eq!(text.len(), 100_000 - STRING_BYTES_MAX as usize);
        assert_eq!(decode(&[b"\x1b]unended\nnext"]), "\nnext");
        assert_eq!(decode(&["\x1b[é".as_bytes()]), "é");
    }

    proptest! {
        #[test]
        fn decoding_is_independent_of_chunks_and_safe(input in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0x1b_u8), Just(b'['), Just(0xe2_u8), Just(b'\r')], 0..200), cut in 0_usize..200) {
            let cut = cut.min(input.len());
            let whole = decode(&[&input]);
            prop_assert_eq!(&whole, &decode(&[&input[..cut], &input[cut..]]));
            prop_assert!(whole.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
        }
    }
}
