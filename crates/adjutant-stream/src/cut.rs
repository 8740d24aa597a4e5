//! Cuts a text to a length in bytes without splitting a character.

/// Returns the longest prefix of `text` that has at most `bytes_max` bytes and ends at a character boundary.
#[must_use]
pub fn head(text: &str, bytes_max: usize) -> &str {
    let mut at = bytes_max.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}

/// Returns the longest suffix of `text` that has at most `bytes_max` bytes and starts at a character boundary.
#[must_use]
pub fn tail(text: &str, bytes_max: usize) -> &str {
    let mut at = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}
