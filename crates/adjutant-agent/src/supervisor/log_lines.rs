//! The lines of a log that is read in pieces.

/// Longest line that is examined, in bytes.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// The incomplete line of a file.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(&str)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            // A longer line cannot match.
            if self.0.len() + piece.len() <= LINE_BYTES_MAX {
                self.0.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                each(&String::from_utf8_lossy(&self.0));
                self.0.clear();
            }
        }
    }
}
