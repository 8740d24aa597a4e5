//! Applies the events of the agent's output.

use super::Attempt;
use crate::protocol::FactKind;
use crate::supervisor::output::OutputEvent;
use adjutant_stream::reader::StreamUpdate;
use adjutant_stream::rules::Usage;
use std::time::Instant;

impl Attempt {
    pub(super) fn apply_output(&mut self, event: OutputEvent) {
        let now = Instant::now();
        match event {
            OutputEvent::Signal(found) => {
                let fact = self.statements.note_signal(found);
                self.journal.record_all(fact);
            }
            OutputEvent::WriteDenied(line) => {
                let fact = self.statements.note_denied_write(line, now);
                self.journal.record_all(fact);
            }
            OutputEvent::Stream(update) => self.apply_update(update, now),
        }
    }

    fn apply_update(&mut self, update: StreamUpdate, now: Instant) {
        match update {
            StreamUpdate::Session(session) => self.journal.record(FactKind::Session { session }),
            StreamUpdate::Retry { error, cause } => {
                let cause = cause.unwrap_or_else(|| self.ending.cause_of(&error));
                self.statements.note_failed_try(cause, &error, now);
            }
            StreamUpdate::Progress => self.journal.record_all(self.statements.note_progress()),
            StreamUpdate::Subagents(all, more) => self.statements.note_subagents(all, more),
            StreamUpdate::Usage(usage) => self.note_usage(&usage, now),
            StreamUpdate::ModelText => {
                if let Some(dialogue) = &mut self.dialogue {
                    dialogue.note_model_text();
                }
            }
            StreamUpdate::DialogueLine(line) => {
                let steps = self
                    .dialogue
                    .as_mut()
                    .map(|dialogue| dialogue.receive(&line))
                    .unwrap_or_default();
                steps.into_iter().for_each(|step| self.perform_step(step));
            }
        }
    }

    fn note_usage(&mut self, usage: &Usage, now: Instant) {
        self.check_gate_use(usage);
        if let Some(text) = self.ending.usage_so_far(usage) {
            self.statements.note_usage(text, now);
        }
    }
}
