//! Applies the events of the agent's output.

use super::Attempt;
use crate::protocol::{FactKind, SubagentsText};
use crate::supervisor::output::OutputEvent;
use crate::view::SubagentView;
use adjutant_core::subagent::Subagent;
use adjutant_stream::reader::StreamUpdate;
use std::time::Instant;

impl Attempt {
    pub(super) fn apply_output(&mut self, event: OutputEvent) {
        match event {
            OutputEvent::Signal(found) => self.report_signal(found),
            OutputEvent::WriteDenied(line) => {
                self.denied_writes += 1;
                self.denied_write.put(FactKind::WriteDenied {
                    times: self.denied_writes,
                    line,
                });
                // What comes within the interval is in the next such fact, or in the last one.
                if let Some(fact) = self.denied_write.take_due(Instant::now()) {
                    self.journal.record(fact);
                }
            }
            OutputEvent::Stream(StreamUpdate::Session(session)) => {
                self.journal.record(FactKind::Session { session })
            }
            OutputEvent::Stream(StreamUpdate::Retry {
                error: words,
                cause,
            }) => {
                let cause = cause.unwrap_or_else(|| self.ending.cause_of(&words));
                self.retries.note_failed_try(cause, &words, self.began_ms());
            }
            OutputEvent::Stream(StreamUpdate::Subagents(all, more)) => {
                let text = |Subagent {
                                id: _,
                                kind,
                                about,
                                state,
                                tokens,
                            }| SubagentView {
                    kind,
                    about,
                    state,
                    tokens,
                };
                self.subagents.put(FactKind::Subagents(SubagentsText {
                    all: all.into_iter().map(text).collect(),
                    more,
                }));
            }
            OutputEvent::Stream(StreamUpdate::Usage(usage)) => self.note_usage(&usage),
            OutputEvent::Stream(StreamUpdate::Progress) => {
                if self.retries.note_progress() {
                    self.journal.record(FactKind::Recovered {});
                }
            }
            OutputEvent::Stream(StreamUpdate::ModelText) => {
                if let Some(dialogue) = &mut self.dialogue {
                    dialogue.note_model_text();
                }
            }
            OutputEvent::Stream(StreamUpdate::DialogueLine(line)) => {
                let steps = self
                    .dialogue
                    .as_mut()
                    .map(|dialogue| dialogue.receive(&line))
                    .unwrap_or_default();
                steps.into_iter().for_each(|step| self.perform_step(step));
            }
        }
    }
}
