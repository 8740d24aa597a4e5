//! Text in scripts without spaces between words. The index treats a run of letters as one word. In
//! these scripts, a separator is inserted between all characters, in indexed texts and in queries,
//! so that a word is found as a sequence of characters at any position.
//!
//! Text is first normalized to NFC, so that composed and decomposed forms of a character (`é`, or
//! `e` and an accent) match each other.
//!
//! The index stores the converted text. Changing the conversion requires a new index and a new
//! schema version.

use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// The separator between two characters. The index treats it like a space; it is removed from
/// displayed text.
const GAP: char = '\u{1}';
/// The start of a private use plane. The index ignores vowel and tone marks above or below a
/// letter, so they are mapped to characters of this plane, which count as letters.
const PRIVATE: u32 = 0xF_0000;

/// Converts a text to its indexed form.
pub(super) fn indexed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return set_apart(text);
    }
    let composed: String = text.nfc().collect();
    Cow::Owned(set_apart(&composed).into_owned())
}

/// Inserts separators between characters of unspaced scripts.
fn set_apart(text: &str) -> Cow<'_, str> {
    if !has_unspaced(text) {
        return Cow::Borrowed(text);
    }
    let mut apart = String::with_capacity(2 * text.len());
    let mut was_unspaced = false;
    for c in text.chars() {
        let is_unspaced = is_unspaced(c);
        if (is_unspaced || was_unspaced) && !apart.is_empty() {
            apart.push(GAP);
        }
        apart.push(if is_mark(c) {
            char::from_u32(PRIVATE + u32::from(c)).unwrap_or(c)
        } else {
            c
        });
        was_unspaced = is_unspaced;
    }
    Cow::Owned(apart)
}

/// Returns whether a text contains characters of an unspaced script.
pub(super) fn has_unspaced(text: &str) -> bool {
    // In UTF-8, all their characters begin with a byte of at least E0.
    text.bytes().any(|byte| byte >= 0xE0) && text.chars().any(is_unspaced)
}

/// Converts indexed text back to the original.
pub(super) fn joined(text: String) -> String {
    let is_private = |c: char| u32::from(c) & !0xFFFF == PRIVATE;
    if !text.chars().any(|c| c == GAP || is_private(c)) {
        return text;
    }
    let mark = |c: char| {
        char::from_u32(u32::from(c) & 0xFFFF).filter(|mark| is_private(c) && is_mark(*mark))
    };
    text.chars()
        .filter(|c| *c != GAP)
        .map(|c| mark(c).unwrap_or(c))
        .collect()
}

/// Converts a text to another form of it.
type Convert = fn(&str) -> String;

/// The function of SQL statements that converts a text to its indexed form.
pub(in crate::store) const TEXT_FUNCTIONS: [(&str, Convert); 1] =
    [("index_text", |text| indexed(text).into_owned())];

/// Korean is included: it has spaces between words, but not before the particles appended to them.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        // Thai and Lao, Myanmar, Khmer.
        '\u{E01}'..='\u{EFF}' | '\u{1000}'..='\u{109F}' | '\u{A9E0}'..='\u{A9FF}' | '\u{AA60}'..='\u{AA7F}' | '\u{1780}'..='\u{17FF}'
        // Hangul.
        | '\u{1100}'..='\u{11FF}' | '\u{3130}'..='\u{318F}' | '\u{A960}'..='\u{A97F}' | '\u{AC00}'..='\u{D7FF}'
        // Kana, Bopomofo and Han punctuation; Han; half-width kana and Hangul.
        | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{312F}' | '\u{31A0}'..='\u{31BF}' | '\u{31F0}'..='\u{31FF}'
        | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{FF66}'..='\u{FFDC}'
        | '\u{1B000}'..='\u{1B16F}' | '\u{20000}'..='\u{3FFFD}')
}

/// Returns whether a character is a mark of these scripts that distinguishes words, although
/// Unicode counts it as neither letter nor digit.
fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{E31}' | '\u{E34}'..='\u{E3A}' | '\u{E47}'..='\u{E4E}'
        | '\u{EB1}' | '\u{EB4}'..='\u{EBC}' | '\u{EC8}'..='\u{ECE}'
        | '\u{102B}'..='\u{103E}' | '\u{1056}'..='\u{1059}' | '\u{105E}'..='\u{1060}' | '\u{1062}'..='\u{1064}'
        | '\u{1067}'..='\u{106D}' | '\u{1071}'..='\u{1074}' | '\u{1082}'..='\u{108D}' | '\u{108F}' | '\u{109A}'..='\u{109D}'
        | '\u{17B4}'..='\u{17D3}' | '\u{17DD}'
        | '\u{3099}' | '\u{309A}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_unspaced_scripts_are_split() {
        for as_it_is in [
            "",
            "plain words",
            "Grüße, Ελλάδα, Привет, हिन्दी",
            "“quoted” – 5 €",
            "⚠️ 👍",
        ] {
            assert!(
                matches!(set_apart(as_it_is), Cow::Borrowed(_)),
                "{as_it_is}"
            );
        }
        assert_eq!(set_apart("Rust语言 ok"), "Rust\u{1}语\u{1}言\u{1} ok");
        assert_eq!(set_apart("ปี"), "ป\u{1}\u{F0E35}");
    }

    #[test]
    fn composed_and_decomposed_text_is_indexed_alike() {
        for text in ["Größe", "データ", "데이터", "й", "ế ạ", "ά"] {
            let decomposed: String = text.nfd().collect();
            assert_ne!(decomposed, text);
            assert_eq!(indexed(&decomposed), indexed(text));
            assert_eq!(joined(indexed(&decomposed).into_owned()), text);
        }
    }

    proptest! {
        #[test]
        fn indexing_again_changes_nothing(text: String) {
            let text: String = text.chars().filter(|c| *c != GAP && u32::from(*c) & !0xFFFF != PRIVATE).collect();
            let read_back = joined(indexed(&text).into_owned());
            prop_assert_eq!(indexed(&read_back), indexed(&text));
        }

        #[test]
        fn split_text_joins_to_the_original(text in "[a-z 0-9\u{E01}-\u{E4E}\u{1000}-\u{109F}\u{1780}-\u{17DD}ぁ-ヿ一-十가-힣\u{20000}-\u{20010}é👍]{0,60}") {
            prop_assert_eq!(joined(set_apart(&text).into_owned()), text);
        }
    }
}
