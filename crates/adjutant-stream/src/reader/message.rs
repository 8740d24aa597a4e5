//! The agent's messages, assembled from chunks, and its last answer.

use super::{Part, Reader, StreamUpdate};
use adjutant_core::{result, shorten};

impl Reader {
    /// Reports text of the model once between two lines for the dialogue.
    pub(super) fn report_model_text(&mut self, text: &str, updates: &mut Vec<StreamUpdate>) {
        self.summary.has_answered |= !text.trim().is_empty();
        if !self.has_reported_text && !text.trim().is_empty() {
            self.has_reported_text = true;
            updates.push(StreamUpdate::ModelText);
        }
    }

    pub(super) fn append_text(&mut self, text: &str, part: &mut dyn FnMut(Part<'_>)) {
        if text.is_empty() {
            return;
        }
        self.summary.has_acted = true;
        part(Part::Text(text));
        self.within_line = !text.ends_with('\n');
        if self.message.len() < self.answer_bytes_max * 2 {
            self.message.push_str(text);
        } else {
            let kept = self.tail(&self.message).to_owned();
            self.message = kept + text;
        }
    }

    /// Ends the current message.
    pub(super) fn end_message(&mut self, part: &mut dyn FnMut(Part<'_>)) {
        self.retries.end(part, &mut self.within_line);
        if self.within_line {
            part(Part::Text("\n"));
            self.within_line = false;
        }
        if !self.message.trim().is_empty() {
            self.last_message = self.tail(&self.message).trim_end().to_owned();
            self.keep_message();
        }
        self.message.clear();
        self.message_of = None;
    }

    /// Keeps a substantial message, which may replace a last message without content.
    fn keep_message(&mut self) {
        if !result::is_substantial(&self.last_message) {
            return;
        }
        let messages = &mut self.summary.messages;
        // The last message may be among them; it is removed later.
        if messages.len() > result::MESSAGES_MAX {
            messages.pop_front();
        }
        messages.push_back(shorten::tail(&self.last_message, result::MESSAGE_BYTES_MAX).to_owned());
    }

    /// Returns the end of a text, as long as a kept answer may be.
    pub(super) fn tail<'t>(&self, text: &'t str) -> &'t str {
        shorten::tail(text, self.answer_bytes_max)
    }
}
