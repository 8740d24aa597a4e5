//! Applies each event of the stream to the log, the updates and the summary.

use super::line::{ERROR_BYTES_MAX, TOOL_BYTES_MAX, write_note};
use super::{Part, Reader, StreamUpdate};
use crate::format::End;
use crate::rules::StreamEvent;
use adjutant_core::shorten;
use adjutant_core::subagent::Subagent;
use std::borrow::Cow;

impl Reader {
    /// Applies one event. Returns `true` if the line has to be passed to the dialogue.
    pub(super) fn apply(
        &mut self,
        event: StreamEvent<'_>,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) -> bool {
        match event {
            StreamEvent::DialogueLine => return true,
            StreamEvent::Speaker(id) => {
                self.speaker = self.sessions.is_other(&id).then(|| id.into_owned())
            }
            StreamEvent::Subagent { subagent, begins } => self.subagents.merge(subagent, begins),
            event if self.speaker.is_some() => self.apply_for_subagent(event, part),
            StreamEvent::Session(id) => {
                updates.extend(self.sessions.begin(&id).map(StreamUpdate::Session))
            }
            StreamEvent::Text(text) => self.apply_text(&text, part, updates),
            StreamEvent::Delta { of, text } => self.apply_chunk(of, &text, part, updates),
            StreamEvent::Retry { error, cause } => self.retry(&error, cause, part, updates),
            StreamEvent::Call {
                id,
                name,
                input,
                state,
            } => {
                self.count_action();
                if let Some(call) = self.calls.update(&id, &name, &input, state) {
                    self.log_progress(&format!("→ {}", short(&call)), part, updates);
                }
            }
            StreamEvent::Tool { name, input } => {
                self.count_action();
                self.log_progress(&format!("→ {name} {}", short(&input)), part, updates);
            }
            StreamEvent::Output(output) => {
                let output = short(output.trim_end()).replace('\n', "\n  ");
                self.log_progress(&format!("← {output}"), part, updates);
            }
            StreamEvent::Step(step) => self.apply_step(step, part, updates),
            StreamEvent::Error(error) => {
                self.log(&format!("! {}", short(&error)), part);
                self.summary.error = shorten::head(&error, ERROR_BYTES_MAX).to_owned();
            }
            StreamEvent::Result(result) => self.summary.result = self.tail(&result).to_owned(),
            StreamEvent::LimitReset(seconds) => {
                self.summary.limit_reset_at_s = self.summary.limit_reset_at_s.max(Some(seconds))
            }
            StreamEvent::Cost(cost) => self.usage.set_cost(cost),
            StreamEvent::Usage(usage) => self.usage.add(usage),
            StreamEvent::End(end) => {
                // Some CLIs report each failed try as an end, and continue.
                if end == End::Success {
                    self.report_progress(part, updates);
                }
                self.end_message(part);
                self.summary.end = Some(end);
            }
        }
        false
    }

    /// Applies a whole message.
    fn apply_text(
        &mut self,
        text: &str,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        if self.apply_words_of_cli(text, part, updates) {
            return;
        }
        self.begin_text(text, part, updates);
        self.end_message(part);
        self.append_text(text, part);
        self.end_message(part);
    }

    /// Applies a chunk of a message. `of`: the message's id.
    fn apply_chunk(
        &mut self,
        of: Option<Cow<'_, str>>,
        text: &str,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        if self.apply_words_of_cli(text, part, updates) {
            return;
        }
        self.begin_text(text, part, updates);
        if of.as_deref() != self.message_of.as_deref() {
            self.end_message(part);
            self.message_of = of.map(Cow::into_owned);
        }
        self.append_text(text, part);
    }

    /// Applies a text that the CLI itself has written between the model's messages: about a failed
    /// call, or a remark. Returns `false` for any other text.
    fn apply_words_of_cli(
        &mut self,
        text: &str,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) -> bool {
        if self.stream.is_retry_note(text) {
            self.retry(text.trim(), None, part, updates);
        } else if self.message.is_empty() && self.stream.is_remark(text) {
            self.log_progress(text.trim(), part, updates);
            self.remark = self.tail(text.trim()).to_owned();
        } else {
            return false;
        }
        true
    }

    /// Reports that the model writes, and writes the lines of calls that come before its text.
    fn begin_text(
        &mut self,
        text: &str,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        self.report_progress(part, updates);
        self.flush_calls(part);
        self.report_model_text(text, updates);
    }

    fn apply_step(
        &mut self,
        step: Cow<'_, str>,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        if *step == *self.step {
            return;
        }
        let first_line = step.lines().next().unwrap_or_default();
        self.log_progress(&format!("· {}", short(first_line)), part, updates);
        self.step = step.into_owned();
    }

    fn count_action(&mut self) {
        (self.summary.has_acted, self.summary.has_answered) = (true, false);
    }

    /// Writes a note about something that shows progress after failed calls.
    fn log_progress(
        &mut self,
        note: &str,
        part: &mut dyn FnMut(Part<'_>),
        updates: &mut Vec<StreamUpdate>,
    ) {
        self.report_progress(part, updates);
        self.log(note, part);
    }

    fn log(&mut self, note: &str, part: &mut dyn FnMut(Part<'_>)) {
        self.end_message(part);
        write_note(part, &mut self.within_line, note);
    }

    /// Applies an event of one of the CLI's own sub-agents: it is logged and does not count as the
    /// run's.
    pub(super) fn apply_for_subagent(
        &mut self,
        event: StreamEvent<'_>,
        part: &mut dyn FnMut(Part<'_>),
    ) {
        let id = self.speaker.clone().unwrap_or_default();
        let text = match event {
            StreamEvent::Text(text) | StreamEvent::Result(text) => text.into_owned(),
            StreamEvent::Tool { name, input } | StreamEvent::Call { name, input, .. } => {
                format!("→ {name} {}", short(&input))
            }
            StreamEvent::Output(output) => {
                format!("← {}", short(output.trim_end()))
            }
            StreamEvent::Error(error) => format!("! {}", short(&error)),
            StreamEvent::Usage(usage) => {
                let tokens = Some(usage.input_tokens.saturating_add(usage.output_tokens));
                return self.subagents.merge(
                    Subagent {
                        id,
                        tokens,
                        ..Subagent::default()
                    },
                    false,
                );
            }
            // A whole message follows its chunks, and other lines report how the sub-agent ends.
            StreamEvent::Delta { .. }
            | StreamEvent::Session(_)
            | StreamEvent::Retry { .. }
            | StreamEvent::LimitReset(_)
            | StreamEvent::End(_) => {
                return;
            }
            StreamEvent::DialogueLine
            | StreamEvent::Speaker(_)
            | StreamEvent::Subagent { .. }
            | StreamEvent::Step(_)
            | StreamEvent::Cost(_) => {
                return;
            }
        };
        let known = self.subagents.find(&id);
        let name = known
            .and_then(|known| known.about.as_deref().or(known.kind.as_deref()))
            .unwrap_or("a sub-agent");
        let note = format!("[{name}] {}", text.trim_end().replace('\n', "\n  "));
        self.log(&note, part);
    }

    /// Writes the lines of calls that have none yet.
    pub(super) fn flush_calls(&mut self, part: &mut dyn FnMut(Part<'_>)) {
        for call in self.calls.flush() {
            self.log(&format!("→ {}", short(&call)), part);
        }
    }
}

/// Shortens the input or output of a tool for the log.
fn short(text: &str) -> Cow<'_, str> {
    shorten::to_bytes(text, TOOL_BYTES_MAX)
}
