//! Failed calls that the CLI retries.

use super::line::{ERROR_BYTES_MAX, TOOL_BYTES_MAX, without_digits};
use super::{Part, Reader, StreamUpdate};
use adjutant_core::{Cause, shorten};

impl Reader {
    /// Records a failed call that the CLI retries.
    pub(super) fn retry(
        &mut self,
        words: &str,
        cause: Option<Cause>,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = if words.is_empty() {
            "a call to its model failed".to_owned()
        } else {
            shorten::head(&words, TOOL_BYTES_MAX).to_owned()
        };
        if self.retries.same == 0 || without_digits(&self.retries.words) != without_digits(&words) {
            self.end_message(part);
            part(Part::Note(&format!("! {words}")));
            self.within_line = true;
            self.retries.words.clone_from(&words);
            self.retries.same = 0;
        }
        self.retries.same = self.retries.same.saturating_add(1);
        self.retries.tries = self.retries.tries.saturating_add(1);
        // The error of the attempt if the CLI gives up without a message.
        shorten::head(&words, ERROR_BYTES_MAX).clone_into(&mut self.summary.error);
        updates.push(StreamUpdate::Retry {
            error: words,
            cause,
        });
    }

    /// Reports progress if the model or a tool responds after failed calls.
    pub(super) fn report_progress(
        &mut self,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        if self.retries.tries > 0 {
            self.retries.end(part, &mut self.within_line);
            self.retries.tries = 0;
            updates.push(StreamUpdate::Progress);
        }
    }
}
