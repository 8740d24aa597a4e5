//! Applies each event of the stream to the log, the updates and the summary.

use super::line::{ERROR_BYTES_MAX, is_session_id, shorten, write_note};
use super::{Part, Reader, StreamUpdate};
use crate::cut;
use crate::format::End;
use crate::rules::{StreamEvent, Usage};
use adjutant_core::subagent::Subagent;

/// Sessions that one attempt may report. A CLI starts another one only if the first is lost.
pub(super) const SESSIONS_MAX: u32 = 8;

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
                self.speaker =
                    (*id != *self.session && !self.session.is_empty()).then(|| id.into_owned())
            }
            StreamEvent::Subagent { subagent, begins } => self.subagents.merge(subagent, begins),
            event if self.speaker.is_some() => self.apply_for_subagent(event, part),
            StreamEvent::Session(id) if id == self.session => {}
            // The id becomes an argument of the next attempt, so an invalid one is ignored.
            StreamEvent::Session(id) if !is_session_id(&id) || self.sessions == SESSIONS_MAX => {
                tracing::warn!(id = %id.chars().take(80).collect::<String>().escape_debug(), "ignored an invalid or surplus session id");
            }
            StreamEvent::Session(id) => {
                self.sessions += 1;
                self.session = id.into_owned();
                updates.push(StreamUpdate::Session(self.session.clone()));
            }
            StreamEvent::Text(text) | StreamEvent::Delta { text, .. }
                if self.stream.is_retry_note(&text) =>
            {
                self.retry(text.trim(), None, part, updates)
            }
            StreamEvent::Text(text) | StreamEvent::Delta { text, .. }
                if self.message.is_empty() && self.stream.is_remark(&text) =>
            {
                self.report_progress(part, updates);
                self.end_message(part);
                write_note(part, &mut self.within_line, text.trim());
                self.remark = self.tail(text.trim()).to_owned();
            }
            StreamEvent::Retry { error, cause } => self.retry(&error, cause, part, updates),
            StreamEvent::Call {
                id,
                name,
                input,
                state,
            } => {
                (self.summary.has_acted, self.summary.has_answered) = (true, false);
                if let Some(call) = self.calls.update(&id, &name, &input, state) {
                    self.report_progress(part, updates);
                    self.end_message(part);
                    write_note(
                        part,
                        &mut self.within_line,
                        &format!("→ {}", shorten(&call)),
                    );
                }
            }
            StreamEvent::Step(step) if *step == *self.step => {}
            StreamEvent::Step(step) => {
                self.report_progress(part, updates);
                self.end_message(part);
                write_note(
                    part,
                    &mut self.within_line,
                    &format!("· {}", shorten(step.lines().next().unwrap_or_default())),
                );
                self.step = step.into_owned();
            }
            StreamEvent::Cost(cost) => {
                self.cost_usd = Some(cost);
                self.has_new_usage = true;
            }
            StreamEvent::Text(text) => {
                self.report_progress(part, updates);
                self.flush_calls(part);
                self.report_model_text(&text, updates);
                self.end_message(part);
                self.append_text(&text, part);
                self.end_message(part);
            }
            StreamEvent::Delta { of, text } => {
                self.report_progress(part, updates);
                self.flush_calls(part);
                self.report_model_text(&text, updates);
                if of.as_deref() != self.message_of.as_deref() {
                    self.end_message(part);
                    self.message_of = of.map(std::borrow::Cow::into_owned);
                }
                self.append_text(&text, part);
            }
            StreamEvent::Tool { name, input } => {
                (self.summary.has_acted, self.summary.has_answered) = (true, false);
                self.report_progress(part, updates);
                self.end_message(part);
                write_note(
                    part,
                    &mut self.within_line,
                    &format!("→ {name} {}", shorten(&input)),
                );
            }
            StreamEvent::Output(output) => {
                self.report_progress(part, updates);
                self.end_message(part);
                write_note(
                    part,
                    &mut self.within_line,
                    &format!("← {}", shorten(output.trim_end()).replace('\n', "\n  ")),
                );
            }
            StreamEvent::Error(error) => {
                self.end_message(part);
                write_note(
                    part,
                    &mut self.within_line,
                    &format!("! {}", shorten(&error)),
                );
                self.summary.error = cut::head(&error, ERROR_BYTES_MAX).to_owned();
            }
            StreamEvent::Result(result) => self.summary.result = self.tail(&result).to_owned(),
            StreamEvent::LimitReset(seconds) => {
                self.summary.limit_reset_at_s = self.summary.limit_reset_at_s.max(Some(seconds))
            }
            StreamEvent::Usage(usage) => {
                let before = self.summary.usage.filter(|_| usage.add).unwrap_or_default();
                self.has_new_usage = true;
                self.summary.usage = Some(Usage {
                    input_tokens: before.input_tokens.saturating_add(usage.input_tokens),
                    cached_tokens: before.cached_tokens.saturating_add(usage.cached_tokens),
                    output_tokens: before.output_tokens.saturating_add(usage.output_tokens),
                    cost_usd: match (
                        before.cost_usd.filter(|_| !usage.cost_is_total),
                        usage.cost_usd,
                    ) {
                        (Some(before), Some(cost)) => Some(before + cost),
                        (before, cost) => cost.or(before),
                    },
                    add: usage.add,
                    cost_is_total: usage.cost_is_total,
                });
            }
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

    /// Applies an event of one of the CLI's own sub-agents: it is logged and does not count as the run's.
    pub(super) fn apply_for_subagent(
        &mut self,
        event: StreamEvent<'_>,
        part: &mut dyn FnMut(Part<'_>),
    ) {
        let id = self.speaker.clone().unwrap_or_default();
        let text = match event {
            StreamEvent::Text(text) | StreamEvent::Result(text) => text.into_owned(),
            StreamEvent::Tool { name, input } | StreamEvent::Call { name, input, .. } => {
                format!("→ {name} {}", shorten(&input))
            }
            StreamEvent::Output(output) => format!("← {}", shorten(output.trim_end())),
            StreamEvent::Error(error) => format!("! {}", shorten(&error)),
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
        self.end_message(part);
        let known = self.subagents.find(&id);
        let name = known
            .and_then(|known| known.about.as_deref().or(known.kind.as_deref()))
            .unwrap_or("a sub-agent");
        write_note(
            part,
            &mut self.within_line,
            &format!("[{name}] {}", text.trim_end().replace('\n', "\n  ")),
        );
    }

    /// Writes the lines of calls that have none yet.
    pub(super) fn flush_calls(&mut self, part: &mut dyn FnMut(Part<'_>)) {
        for call in self.calls.flush() {
            self.end_message(part);
            write_note(
                part,
                &mut self.within_line,
                &format!("→ {}", shorten(&call)),
            );
        }
    }
}
