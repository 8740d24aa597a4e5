//! The beginning and the end of a text, in whole characters.

/// Returns the beginning of a text: at most so many bytes, whole characters.
#[must_use]
pub fn head(text: &str, bytes_max: usize) -> &str {
    let mut at = bytes_max.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}

/// Returns the end of a text: at most so many bytes, whole characters.
#[must_use]
pub fn tail(text: &str, bytes_max: usize) -> &str {
    let mut at = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}
