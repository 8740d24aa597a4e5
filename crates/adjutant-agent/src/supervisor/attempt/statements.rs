//! What an agent's output has stated: signals, failing retries, usage, denied writes, and the CLI's
//! own sub-agents. Returns the facts about it to record. `now` is an argument.

use super::throttled::Throttled;
use crate::protocol::{FactKind, FoundText, SubagentsText, UsageText};
use crate::signal::FoundSignal;
use crate::view::SubagentView;
use adjutant_core::Cause;
use adjutant_core::condition::{Retries, Retrying};
use adjutant_core::signal::SignalKind;
use adjutant_core::subagent::Subagent;
use std::time::{Duration, Instant};

/// Maximum number of signals of one attempt that have an effect.
pub(super) const SIGNALS_MAX: u32 = 2_000;
/// Maximum number of lines of one attempt that contain a marker and are no signals, and are
/// recorded.
const MENTIONS_MAX: u32 = 20;
/// Minimum interval between facts about the CLI's own sub-agents.
const SUBAGENTS_FACT_EVERY: Duration = Duration::from_secs(2);
/// Delay of facts about usage.
const USAGE_FACT_EVERY: Duration = Duration::from_secs(2);
/// Minimum interval between facts about denied writes, apart from the one at the end.
const DENIED_WRITES_FACT_EVERY: Duration = Duration::from_secs(60);

/// The statements so far, and the facts that wait until they may be recorded.
#[derive(Debug)]
pub(super) struct Statements {
    /// The number of signals.
    signals: u32,
    /// The number of lines with a marker that are no signals.
    mentions: u32,
    retries: Retries,
    /// The start of the times of `retries`.
    began: Instant,
    /// The CLI's own sub-agents.
    subagents: Throttled<FactKind>,
    usage: Throttled<FactKind>,
    /// The number of denied writes.
    denied_writes: u64,
    denied_write: Throttled<FactKind>,
}

impl Statements {
    pub(super) fn begin(now: Instant) -> Self {
        Self {
            signals: 0,
            mentions: 0,
            retries: Retries::default(),
            began: now,
            subagents: Throttled::new(SUBAGENTS_FACT_EVERY, now),
            usage: Throttled::new(USAGE_FACT_EVERY, now),
            denied_writes: 0,
            denied_write: Throttled::new(DENIED_WRITES_FACT_EVERY, now),
        }
    }

    /// Returns the number of signals.
    pub(super) fn signals(&self) -> u32 {
        self.signals
    }

    /// Counts a signal. Beyond [`SIGNALS_MAX`], signals are only in the log.
    pub(super) fn note_signal(&mut self, found: FoundSignal) -> Option<FactKind> {
        let is_recorded = if matches!(found, FoundSignal::Mention { .. }) {
            self.mentions += 1;
            self.mentions <= MENTIONS_MAX
        } else {
            self.signals += 1;
            if self.signals == SIGNALS_MAX + 1 {
                tracing::warn!(SIGNALS_MAX, "too many signals: further ones have no effect");
            }
            self.signals <= SIGNALS_MAX
        };
        is_recorded.then(|| FactKind::Signal {
            found: text_of(found),
        })
    }

    /// Counts a denied write. What comes within the interval is in the next such fact, or in the
    /// last one.
    pub(super) fn note_denied_write(&mut self, line: String, now: Instant) -> Option<FactKind> {
        self.denied_writes += 1;
        self.denied_write.put(FactKind::WriteDenied {
            times: self.denied_writes,
            line,
        });
        self.denied_write.take_due(now)
    }

    /// Counts a failed call that the CLI repeats.
    pub(super) fn note_failed_try(&mut self, cause: Cause, words: &str, now: Instant) {
        self.retries
            .note_failed_try(cause, words, ms_between(self.began, now));
    }

    /// Records that the model or a tool has responded.
    pub(super) fn note_progress(&mut self) -> Option<FactKind> {
        self.retries
            .note_progress()
            .then_some(FactKind::Recovered {})
    }

    /// Returns when [`Self::take_retrying`] is due.
    pub(super) fn retrying_due(&self) -> Option<Instant> {
        let due_ms = self.retries.due_ms()?;
        Some(self.began + Duration::from_millis(u64::try_from(due_ms).unwrap_or(0)))
    }

    /// Returns the fact that the CLI repeats a failing call, if it is due.
    pub(super) fn take_retrying(&mut self, now: Instant) -> Option<FactKind> {
        let Retrying {
            cause,
            for_ms,
            tries,
            words,
        } = self.retries.due_statement(ms_between(self.began, now))?;
        tracing::info!(cause = cause.word(), tries, "the agent's CLI retries");
        Some(FactKind::Retrying {
            cause: cause.word().to_owned(),
            words,
            tries,
            for_ms,
        })
    }

    /// Keeps the CLI's own sub-agents until they are recorded. `more`: the number of those that are
    /// not listed.
    pub(super) fn note_subagents(&mut self, all: Vec<Subagent>, more: u64) {
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

    /// Keeps the usage so far until it is recorded. If the agent exits meanwhile, it is known to
    /// have finished.
    pub(super) fn note_usage(&mut self, usage: UsageText, now: Instant) {
        self.usage.put_delayed(FactKind::Usage(usage), now);
    }

    /// Takes the usage so far, due or not.
    pub(super) fn take_usage(&mut self, now: Instant) -> Option<FactKind> {
        self.usage.take(now)
    }

    /// Returns when [`Self::take_due`] has facts.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.subagents.due().into_iter().chain(self.usage.due());
        due.min()
    }

    /// Takes the facts about the CLI's own sub-agents and about usage that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> impl Iterator<Item = FactKind> + use<> {
        let due = [self.subagents.take_due(now), self.usage.take_due(now)];
        due.into_iter().flatten()
    }

    /// Takes the latest sub-agents and denied writes before the attempt's last fact, which has the
    /// usage.
    pub(super) fn take_last(&mut self, now: Instant) -> impl Iterator<Item = FactKind> + use<> {
        let last = [self.subagents.take(now), self.denied_write.take(now)];
        last.into_iter().flatten()
    }
}

fn ms_between(from: Instant, to: Instant) -> i64 {
    i64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(i64::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn signal() -> FoundSignal {
        FoundSignal::Json {
            text: "{}".to_owned(),
        }
    }

    #[test]
    fn signals_beyond_the_maximum_are_counted_and_not_recorded() {
        let mut statements = Statements::begin(Instant::now());
        let recorded = (0..SIGNALS_MAX + 5)
            .filter_map(|_| statements.note_signal(signal()))
            .count();
        assert_eq!(u32::try_from(recorded), Ok(SIGNALS_MAX));
        assert_eq!(statements.signals(), SIGNALS_MAX + 5);
    }

    #[test]
    fn denied_writes_within_the_interval_are_in_the_last_fact() {
        let now = Instant::now();
        let mut statements = Statements::begin(now);
        let mut deny = |line: &str| statements.note_denied_write(line.to_owned(), now);
        assert!(matches!(
            deny("first"),
            Some(FactKind::WriteDenied { times: 1, .. })
        ));
        assert!(deny("second").is_none() && deny("third").is_none());
        let last: Vec<FactKind> = statements.take_last(now).collect();
        assert!(
            matches!(&last[..], [FactKind::WriteDenied { times: 3, line }] if line == "third"),
            "{last:?}"
        );
    }
}
