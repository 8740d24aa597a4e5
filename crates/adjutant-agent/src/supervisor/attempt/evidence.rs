//! The evidence about the agent's work, which is collected after its exit.

use super::Attempt;
use crate::clock;
use crate::protocol::{CommandEvidence, FactKind, VerdictText};
use crate::supervisor::closing::{AcceptTime, Closer, HUB_MAX};
use crate::supervisor::side_command::StopCause;
use crate::supervisor::stop::Stop;
use adjutant_core::Time;
use std::time::{Duration, Instant};

/// The agent's exit as the supervisor saw it. What follows (the sweep, the evidence, an unreachable
/// hub) takes none of the run's time.
#[derive(Debug)]
pub(super) struct AgentExit {
    pub at: Time,
    pub active_ms: i64,
    pub time_left: Option<Duration>,
    /// No stop had begun.
    pub by_itself: bool,
}

impl Attempt {
    /// Describes the agent's exit, which has just been seen.
    pub(super) fn agent_exit(&self) -> AgentExit {
        AgentExit {
            at: clock::now(),
            active_ms: self.clock.active_ms(Instant::now()),
            time_left: self.clock.left(Instant::now()),
            by_itself: !self.stop.is_asked(),
        }
    }

    /// Collects evidence about the agent's work, if the hub requests it. `last` is the agent's end,
    /// and becomes that of the attempt. Returns the time of the end.
    pub(super) async fn conclude(
        &mut self,
        closer: &Closer<'_>,
        last: &mut FactKind,
        exit: &AgentExit,
    ) -> Time {
        match self.collect_evidence(closer, last, exit).await {
            Some(acceptance) => {
                add_acceptance(last, &acceptance);
                clock::now()
            }
            None => exit.at,
        }
    }

    /// Returns the result of the acceptance command, if it was run.
    async fn collect_evidence(
        &mut self,
        closer: &Closer<'_>,
        end: &FactKind,
        exit: &AgentExit,
    ) -> Option<CommandEvidence> {
        if !closer.may_inspect(self.stop != Stop::Not, self.statements.signals()) {
            return None;
        }
        // From here on the agent's end counts, even if the supervisor dies.
        self.journal.record_at(
            exit.at,
            FactKind::AgentEnded {
                end: Box::new(end.clone()),
            },
        );
        // The reaper would also reap the acceptance command, which has a reaper of its own.
        self.worker.stop_reaping();
        let taken = self.journal.received_by_hub();
        let asked = async {
            taken.await;
            closer.fetch_closing(exit.by_itself).await
        };
        // The snapshot is taken even if no hub is running.
        let (asked, (changes, facts)) =
            tokio::join!(tokio::time::timeout(HUB_MAX, asked), closer.changes());
        facts.into_iter().for_each(|fact| self.journal.record(fact));
        let Ok(Some(closing)) = asked else {
            return None;
        };
        let accept =
            (!self.stop.is_asked() || has_succeeded(end)).then_some(AcceptTime(exit.time_left));
        let evidence = closer
            .inspect(&closing, changes, accept, &mut self.orders)
            .await;
        let acceptance = evidence.acceptance.clone();
        self.journal.record(FactKind::EvidenceCollected(evidence));
        acceptance
    }
}

/// Returns whether an agent has ended its work without a failure.
fn has_succeeded(end: &FactKind) -> bool {
    matches!(
        end,
        FactKind::Ended {
            exit_code: Some(0),
            verdict: Some(VerdictText { cause: None, .. }),
            ..
        }
    )
}

/// Adds the acceptance command to the end of an attempt: it uses the run's time, and a stop during
/// it is a stop of the attempt.
fn add_acceptance(last: &mut FactKind, acceptance: &CommandEvidence) {
    if let FactKind::Ended {
        active_ms,
        by_itself,
        ..
    } = last
    {
        *active_ms =
            active_ms.saturating_add(i64::try_from(acceptance.took_ms).unwrap_or(i64::MAX));
        *by_itself &= acceptance.stopped.as_deref() != Some(StopCause::ByOrder.text());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit_code: Option<i32>, verdict: Option<VerdictText>) -> FactKind {
        FactKind::Ended {
            exit_code,
            signal: None,
            swept: 0,
            output_left_open: false,
            active_ms: 1_000,
            by_itself: true,
            result: String::new(),
            result_bytes: 0,
            gap: None,
            output_bytes: 0,
            error_line: String::new(),
            verdict,
            usage: None,
            lacks_tools: false,
        }
    }

    fn after(stopped: Option<StopCause>) -> (i64, bool) {
        let mut last = ended(Some(0), None);
        let acceptance = CommandEvidence {
            took_ms: 250,
            stopped: stopped.map(|cause| cause.text().to_owned()),
            ..CommandEvidence::default()
        };
        add_acceptance(&mut last, &acceptance);
        let FactKind::Ended {
            active_ms,
            by_itself,
            ..
        } = last
        else {
            panic!("it stays an end")
        };
        (active_ms, by_itself)
    }

    #[test]
    fn acceptance_uses_the_time_of_the_run_and_its_stop_stops_the_attempt() {
        assert_eq!(after(None), (1_250, true));
        assert_eq!(after(Some(StopCause::ByOrder)), (1_250, false));
        assert_eq!(after(Some(StopCause::TimeUp)), (1_250, true));
    }

    #[test]
    fn success_needs_exit_code_and_verdict() {
        let verdict = |cause: Option<&str>| {
            Some(VerdictText {
                cause: cause.map(str::to_owned),
                message: String::new(),
                again_at_ms: None,
            })
        };
        assert!(has_succeeded(&ended(Some(0), verdict(None))));
        assert!(!has_succeeded(&ended(Some(1), verdict(None))));
        assert!(!has_succeeded(&ended(Some(0), verdict(Some("no_word")))));
        assert!(!has_succeeded(&ended(Some(0), None)));
    }
}
