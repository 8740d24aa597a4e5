//! Writes to the agent's input, and notes to the log.

use super::Attempt;
use crate::harness::step::Decision;
use crate::supervisor::worker::Line;
use crate::text;
use crate::view::MessageView;

impl Attempt {
    /// Writes a line of Adjutant to the log.
    pub(super) fn note(&self, note: &str) {
        if let Err(error) = self.notes.try_send(text::line(note)) {
            tracing::warn!(%error, note, "a line of Adjutant cannot be written to the log");
        }
    }

    pub(super) fn write_decision(&mut self, id: &str, decision: &Decision) {
        if let Some(bytes) = self
            .dialogue
            .as_mut()
            .and_then(|dialogue| dialogue.decide(id, decision))
        {
            self.write(bytes);
        }
    }

    /// Writes a line to the agent's input.
    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        let Some(lines) = &self.worker.lines else {
            return;
        };
        if let Err(error) = lines.try_send(Line {
            bytes,
            message_id: None,
        }) {
            tracing::warn!(%error, "the agent does not read its input");
        }
    }

    /// Writes messages to the agent's input, each once. An agent without an open input receives
    /// them from the hub, with its next tool call.
    pub(super) fn deliver(&mut self, messages: &[MessageView]) {
        let (Some(lines), Some(dialogue)) = (&self.worker.lines, &mut self.dialogue) else {
            return;
        };
        self.given
            .retain(|given| messages.iter().any(|message| message.message_id == *given));
        for message in messages {
            if self.given.contains(&message.message_id) {
                continue;
            }
            let Some((bytes, is_delivered_so)) = dialogue.message(message) else {
                return;
            };
            let line = Line {
                bytes,
                message_id: is_delivered_so.then(|| message.message_id.clone()),
            };
            match lines.try_send(line) {
                Ok(()) => {
                    self.given.insert(message.message_id.clone());
                }
                Err(error) => {
                    tracing::info!(%error, message = message.message_id, "a message stays queued")
                }
            }
        }
    }
}
