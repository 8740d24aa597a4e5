//! Records what an agent's output states: signals, failing retries, usage, denied writes, and the
//! CLI's own sub-agents.

use super::Attempt;
use crate::protocol::{FactKind, FoundText};
use crate::signal::FoundSignal;
use adjutant_core::condition::Retrying;
use adjutant_core::signal::SignalKind;
use adjutant_stream::rules::Usage;
use std::time::{Duration, Instant};

/// Maximum number of signals of one attempt that have an effect.
pub(super) const SIGNALS_MAX: u32 = 2_000;
/// Maximum number of lines of one attempt that contain a marker and are no signals, and are
/// recorded.
const MENTIONS_MAX: u32 = 20;
/// Minimum interval between facts about the CLI's own sub-agents.
pub(super) const SUBAGENTS_FACT_EVERY: Duration = Duration::from_secs(2);
/// Delay of facts about usage.
pub(super) const USAGE_FACT_EVERY: Duration = Duration::from_secs(2);
/// Minimum interval between facts about denied writes, apart from the one at the end.
pub(super) const DENIED_WRITES_FACT_EVERY: Duration = Duration::from_secs(60);

impl Attempt {
    /// Records a signal. Beyond [`SIGNALS_MAX`], signals are only in the log.
    pub(super) fn report_signal(&mut self, found: FoundSignal) {
        if matches!(found, FoundSignal::Mention { .. }) {
            self.mentions += 1;
            if self.mentions <= MENTIONS_MAX {
                self.journal.record(FactKind::Signal {
                    found: text_of(found),
                });
            }
            return;
        }
        self.signals += 1;
        if self.signals <= SIGNALS_MAX {
            self.journal.record(FactKind::Signal {
                found: text_of(found),
            });
        } else if self.signals == SIGNALS_MAX + 1 {
            tracing::warn!(SIGNALS_MAX, "too many signals: further ones have no effect");
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
            self.journal.record(FactKind::Retrying {
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

    /// Keeps the usage so far until it is recorded. If the agent exits meanwhile, it is known to
    /// have finished.
    pub(super) fn note_usage(&mut self, usage: &Usage) {
        self.check_gate_use(usage);
        let Some(text) = self.ending.usage_so_far(usage) else {
            return;
        };
        self.usage
            .put_delayed(FactKind::Usage(text), Instant::now());
    }

    /// Records the usage so far, due or not.
    pub(super) fn record_usage(&mut self) {
        if let Some(fact) = self.usage.take(Instant::now()) {
            self.journal.record(fact);
        }
    }

    /// Records the facts about the CLI's own sub-agents and about usage that are due.
    pub(super) fn report_due_facts(&mut self) {
        let now = Instant::now();
        let due = [self.subagents.take_due(now), self.usage.take_due(now)];
        due.into_iter()
            .flatten()
            .for_each(|fact| self.journal.record(fact));
    }

    /// Records the latest sub-agents and denied writes before the attempt's last fact, which has
    /// the usage.
    pub(super) fn report_last_facts(&mut self) {
        let now = Instant::now();
        let last = [self.subagents.take(now), self.denied_write.take(now)];
        last.into_iter()
            .flatten()
            .for_each(|fact| self.journal.record(fact));
    }
}

fn text_of(found: FoundSignal) -> FoundText {
    let tag = |kind: SignalKind| kind.tag().to_owned();
    match found {
        FoundSignal::Block {
            kind,
            text,
            is_closed,
        } => FoundText::Block {
            tag: tag(kind),
            text,
            unclosed: !is_closed,
        },
        FoundSignal::Json { text } => FoundText::Json { text },
        FoundSignal::Oversized { kind, text } => FoundText::Oversized {
            tag: tag(kind),
            text,
        },
        FoundSignal::Mention { kind, line } => FoundText::Mention {
            tag: tag(kind),
            line,
        },
    }
}
