//! Shortens texts, never within a character.
//!
//! A shortened text for a reader ends with [`MARK`] right after the kept part, and is no
//! longer than its limit with the mark. [`counted`] also says how much is left out. Without a mark,
//! [`head`], [`tail`] and [`head_chars`] return parts of a text. (What has to fit a terminal is
//! shortened by columns, see `adjutant-api`'s `text`.)

use std::borrow::Cow;

/// Stands for what is left out.
pub const MARK: char = '…';

/// Returns the longest prefix of `text` that has at most `bytes_max` bytes.
#[must_use]
pub fn head(text: &str, bytes_max: usize) -> &str {
    let mut at = bytes_max.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}

/// Returns the longest suffix of `text` that has at most `bytes_max` bytes.
#[must_use]
pub fn tail(text: &str, bytes_max: usize) -> &str {
    let mut at = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

/// Returns the longest prefix of `text` that has at most `chars_max` characters.
#[must_use]
pub fn head_chars(text: &str, chars_max: usize) -> &str {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => &text[..at],
        None => text,
    }
}

/// Returns the longest suffix of `text` that has at most `chars_max` characters.
#[must_use]
pub fn tail_chars(text: &str, chars_max: usize) -> &str {
    match chars_max.checked_sub(1) {
        None => "",
        Some(before) => match text.char_indices().rev().nth(before) {
            Some((at, _)) => &text[at..],
            None => text,
        },
    }
}

/// Shortens a text to at most `chars_max` characters with the mark.
#[must_use]
pub fn to_chars(text: &str, chars_max: usize) -> Cow<'_, str> {
    if head_chars(text, chars_max).len() == text.len() {
        return text.into();
    }
    marked(head_chars(text, chars_max.saturating_sub(1)), chars_max)
}

/// Shortens a text to at most `bytes_max` bytes with the mark.
#[must_use]
pub fn to_bytes(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let kept = head(text, bytes_max.saturating_sub(MARK.len_utf8()));
    marked(kept, bytes_max / MARK.len_utf8())
}

fn marked(kept: &str, marks_max: usize) -> Cow<'_, str> {
    match marks_max {
        0 => kept.into(),
        _ => format!("{kept}{MARK}").into(),
    }
}

/// Shortens a text to at most `chars_max` characters, followed by the number of those left out.
#[must_use]
pub fn counted(text: &str, chars_max: usize) -> Cow<'_, str> {
    let kept = head_chars(text, chars_max);
    match omitted(&text[kept.len()..]) {
        Some(note) => format!("{kept}{note}").into(),
        None => text.into(),
    }
}

/// Returns the mark with the number of characters in `rest`, which is left out. `None`: there are
/// none.
#[must_use]
pub fn omitted(rest: &str) -> Option<String> {
    match rest.chars().count() {
        0 => None,
        1 => Some(format!("{MARK} (1 more character)")),
        more => Some(format!("{MARK} ({more} more characters)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mark_follows_the_kept_part() {
        let by_chars = [0, 1, 2, 3].map(|max| to_chars("äöü", max).into_owned());
        assert_eq!(by_chars, ["", "…", "ä…", "äöü"]);
        let by_bytes = [0, 2, 3, 4, 5, 6].map(|max| to_bytes("äöü", max).into_owned());
        assert_eq!(by_bytes, ["", "", "…", "…", "ä…", "äöü"]);
    }

    #[test]
    fn omitted_characters_are_counted() {
        let counts = [1, 2, 3].map(|max| counted("äöü", max).into_owned());
        assert_eq!(
            counts,
            ["ä… (2 more characters)", "äö… (1 more character)", "äöü"]
        );
    }

    proptest! {
        #[test]
        fn shortened_texts_never_exceed_the_limit(text in "\\PC{0,30}", max in 0_usize..40) {
            let chars = |text: &str| text.chars().count();
            prop_assert!(head(&text, max).len() <= max && text.starts_with(head(&text, max)));
            prop_assert!(tail(&text, max).len() <= max && text.ends_with(tail(&text, max)));
            prop_assert_eq!(chars(head_chars(&text, max)), max.min(chars(&text)));
            prop_assert_eq!(chars(tail_chars(&text, max)), max.min(chars(&text)));
            prop_assert!(text.ends_with(tail_chars(&text, max)));
            for (short, is_within) in [
                (to_chars(&text, max), chars(&text) <= max),
                (to_bytes(&text, max), text.len() <= max),
            ] {
                let kept = short.strip_suffix(MARK).unwrap_or(&short);
                prop_assert!(text.starts_with(kept));
                prop_assert_eq!(short == text, is_within || text.is_empty());
            }
            prop_assert!(chars(&to_chars(&text, max)) <= max);
            prop_assert!(to_bytes(&text, max).len() <= max);
            prop_assert!(counted(&text, max).starts_with(head_chars(&text, max)));
        }
    }
}
