//! Records the facts of an attempt: signals, stalls, failing retries, denied writes, and the CLI's own sub-agents.

use super::Attempt;
use crate::harness::dialogue::Dialogue;
use crate::harness::step::Step;
use crate::link::{FactKind, FoundText, SubagentsText};
use crate::signal::Found;
use crate::supervisor::output::OutputEvent;
use crate::supervisor::stop::Stop;
use crate::view::SubagentView;
use adjutant_core::condition::Retrying;
use adjutant_core::signal::SignalKind;
use adjutant_core::subagent::Subagent;
use adjutant_stream::reader::StreamUpdate;
use adjutant_stream::rules::Usage;
use std::time::{Duration, Instant};

/// Maximum number of signals of one attempt that have an effect.
pub(super) const SIGNALS_MAX: u32 = 2_000;
/// Maximum number of lines of one attempt that contain a marker and are no signals, and are recorded.
const MENTIONS_MAX: u32 = 20;
/// Minimum interval between facts about the CLI's own sub-agents.
const SUBAGENTS_FACT_EVERY: Duration = Duration::from_secs(2);
/// Delay of facts about usage.
const USAGE_FACT_EVERY: Duration = Duration::from_secs(2);

/// Minimum interval between facts about denied writes, apart from the one at the end.
const DENIED_WRITES_FACT_EVERY: Duration = Duration::from_secs(60);

impl Attempt {
    pub(super) fn apply_output(&mut self, event: OutputEvent) {
        match event {
            OutputEvent::Signal(found) => self.report_signal(found),
            OutputEvent::WriteDenied(line) => {
                self.denied_writes += 1;
                self.denied_write = Some(line);
                if Instant::now() >= self.state_denied_writes_at {
                    self.report_denied_writes();
                }
            }
            OutputEvent::Stream(StreamUpdate::Session(session)) => {
                self.journal.state(FactKind::Session { session })
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
                self.subagents = Some(FactKind::Subagents(SubagentsText {
                    all: all.into_iter().map(text).collect(),
                    more,
                }));
            }
            OutputEvent::Stream(StreamUpdate::Usage(usage)) => self.note_usage(&usage),
            OutputEvent::Stream(StreamUpdate::Progress) => {
                if self.retries.note_progress() {
                    self.journal.state(FactKind::Recovered {});
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

    /// Records a signal. Beyond [`SIGNALS_MAX`], signals are only in the log.
    pub(super) fn report_signal(&mut self, found: Found) {
        if matches!(found, Found::Mention { .. }) {
            self.mentions += 1;
            if self.mentions <= MENTIONS_MAX {
                self.journal.state(FactKind::Signal {
                    found: text_of(found),
                });
            }
            return;
        }
        self.signals += 1;
        if self.signals <= SIGNALS_MAX {
            self.journal.state(FactKind::Signal {
                found: text_of(found),
            });
        } else if self.signals == SIGNALS_MAX + 1 {
            tracing::warn!(SIGNALS_MAX, "too many signals: further ones have no effect");
        }
    }

    /// Records a stall if the agent is silent although it is expected to act.
    pub(super) fn check_for_stall(&mut self) {
        let is_its_turn = !self.waiting && self.stop == Stop::Not;
        let silent_since = self.activity.silent_since().filter(|_| is_its_turn);
        if let Some(silent) = self.stall.check(silent_since, Instant::now()) {
            if self.dialogue.as_ref().is_some_and(Dialogue::is_opening) {
                let why = format!(
                    "it has not begun a session and has been silent for {} s: does it speak ACP?",
                    silent.as_secs()
                );
                self.perform_step(Step::Failed(why));
            }
            tracing::info!(
                ?silent,
                has_reported = self.stall.has_reported(),
                "the agent is silent"
            );
            if self.ends_after_report && self.stall.has_reported() {
                self.end_after_report(silent);
                return;
            }
            self.journal.state(FactKind::Stalled {
                silent_ms: i64::try_from(silent.as_millis()).unwrap_or(i64::MAX),
            });
        }
    }

    pub(super) fn retries_due(&self) -> Option<Instant> {
        let due_ms = self.retries.due_ms().filter(|_| !self.stop.is_asked())?;
        Some(self.began + Duration::from_millis(u64::try_from(due_ms).unwrap_or(0)))
    }

    /// Records that the CLI repeats a failing call.
    pub(super) fn report_retries(&mut self) {
        if let Some(Retrying {
            cause,
            for_ms,
            tries,
            words,
        }) = self.retries.due_statement(self.began_ms())
        {
            tracing::info!(cause = cause.word(), tries, "the agent's CLI retries");
            self.journal.state(FactKind::Retrying {
                cause: cause.word().to_owned(),
                words,
                tries,
                for_ms,
            });
        }
    }

    pub(super) fn began_ms(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    /// Records the denied writes that its output has reported since the last such fact.
    pub(super) fn report_denied_writes(&mut self) {
        if let Some(line) = self.denied_write.take() {
            self.journal.state(FactKind::WriteDenied {
                times: self.denied_writes,
                line,
            });
            self.state_denied_writes_at = Instant::now() + DENIED_WRITES_FACT_EVERY;
        }
    }

    /// Keeps the usage so far until it is recorded. If the agent exits meanwhile, it is known to have finished.
    fn note_usage(&mut self, usage: &Usage) {
        self.check_gate_use(usage);
        let Some(text) = self.ending.usage_so_far(usage) else {
            return;
        };
        if self.usage.is_none() {
            self.state_usage_at = Instant::now() + USAGE_FACT_EVERY;
        }
        self.usage = Some(FactKind::Usage(text));
    }

    /// Records the usage so far.
    pub(super) fn state_usage(&mut self) {
        if let Some(fact) = self.usage.take() {
            self.journal.state(fact);
        }
    }

    /// Records the CLI's own sub-agents.
    pub(super) fn report_subagents(&mut self) {
        if let Some(fact) = self.subagents.take() {
            self.journal.state(fact);
            self.state_subagents_at = Instant::now() + SUBAGENTS_FACT_EVERY;
        }
    }
}

fn text_of(found: Found) -> FoundText {
    let tag = |kind: SignalKind| kind.tag().to_owned();
    match found {
        Found::Block {
            kind,
            text,
            is_closed,
        } => FoundText::Block {
            tag: tag(kind),
            text,
            unclosed: !is_closed,
        },
        Found::Json { text } => FoundText::Json { text },
        Found::Oversized { kind, text } => FoundText::Oversized {
            tag: tag(kind),
            text,
        },
        Found::Mention { kind, line } => FoundText::Mention {
            tag: tag(kind),
            line,
        },
    }
}
