//! Writes to the agent's input, and performs the steps of its dialogue.

use super::Attempt;
use crate::harness::step::{ChangedCall, Decision, Step};
use crate::protocol::FactKind;
use crate::supervisor::approve;
use crate::supervisor::worker::Line;
use crate::text;
use crate::view::MessageView;
use adjutant_core::shorten;

/// How much of a changed call is written to the log, in bytes.
const NOTED_BYTES_MAX: usize = 2 * 1024;

impl Attempt {
    pub(super) fn perform_step(&mut self, step: Step) {
        match step {
            Step::Write(bytes) => self.write(bytes),
            Step::Delivered(message_id) => self.journal.record(FactKind::Delivered { message_id }),
            Step::Permission(permission) => {
                match approve::at_once(&permission, &self.permissions, &self.cwd) {
                    Some(decision) => {
                        self.permits.withdraw(&permission.id);
                        self.write_decision(&permission.id, &decision);
                    }
                    None => self
                        .permits
                        .ask(self.client.clone(), permission, self.cwd.clone()),
                }
            }
            Step::Elicit(elicitation) => self.permits.elicit(self.client.clone(), elicitation),
            Step::Withdraw(id) => {
                self.permits.withdraw(&id);
            }
            Step::Changed(changed) => {
                self.note(&changed_note(&changed));
                self.permits.report_change(self.client.clone(), changed);
            }
            Step::Note(note) => self.note(&note),
            Step::Failed(why) => {
                self.failed.get_or_insert(why);
                self.close();
            }
            Step::TurnEnded => {
                self.record_usage();
                self.journal.record(FactKind::TurnEnded {});
            }
            Step::Close => self.close(),
        }
    }

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

/// Returns the line for the log about a call that changed after it was allowed.
fn changed_note(ChangedCall { tool, allowed, now }: &ChangedCall) -> String {
    let short = |text| shorten::to_bytes(text, NOTED_BYTES_MAX);
    format!(
        "! changed after approval: {tool} {} (approved: {})",
        short(now),
        short(allowed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_call_is_marked_in_the_log() {
        let note = |now: &str| {
            changed_note(&ChangedCall {
                tool: "bash".to_owned(),
                allowed: "ls".to_owned(),
                now: now.to_owned(),
            })
        };
        assert_eq!(
            note("rm"),
            "! changed after approval: bash rm (approved: ls)"
        );
        let long = note(&"x".repeat(NOTED_BYTES_MAX + 1));
        assert!(long.ends_with("x… (approved: ls)"), "{long}");
    }
}
