//! The line of the log about failed calls. Repeated identical errors share one.

use super::Part;

/// The failed calls since the last progress.
#[derive(Debug, Default)]
pub(super) struct RetryLine {
    pub(super) tries: u32,
    pub(super) words: String,
    /// How many failures the unfinished line represents. 0: no line is unfinished.
    pub(super) same: u32,
}

impl RetryLine {
    /// Ends the unfinished line, if there is one.
    pub(super) fn end(&mut self, part: &mut dyn FnMut(Part<'_>), within_line: &mut bool) {
        let same = std::mem::take(&mut self.same);
        if same > 0 {
            let count = if same > 1 {
                format!(" ×{same}\n")
            } else {
                "\n".to_owned()
            };
            part(Part::Note(&count));
            *within_line = false;
        }
    }
}
