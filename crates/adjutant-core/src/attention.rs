//! Decides what needs attention: runs that cannot continue until a person or a client acts, and bad
//! ends of which the owner has not been notified.
//!
//! Every list and every wait classifies runs with [`run_phase`] and [`need`];
//! open requests and unread messages need attention by themselves.

use crate::report::{AcceptanceResult, Verdict};
use crate::words::Words;
use crate::{Outcome, RunState, StopReason, words};

/// How a run that reports success fell short of its dispatcher's requirements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shortfall {
    /// Its acceptance command failed.
    NotAccepted,
    /// Its acceptance command could not be run, or its outcome is unknown.
    NotChecked,
    /// The evidence contradicts its report.
    Contradicted,
}

words!(Shortfall { NotAccepted = "not_accepted", NotChecked = "not_checked", Contradicted = "contradicted" });

impl Shortfall {
    /// Returns whether the run counts as failed. A contradicted report alone does not fail a run.
    #[must_use]
    pub fn fails(self) -> bool {
        match self {
            Self::NotAccepted | Self::NotChecked => true,
            Self::Contradicted => false,
        }
    }
}

/// Returns how a run that reports success fell short: by its acceptance command, otherwise by its
/// report.
#[must_use]
pub fn shortfall(
    accepted: Option<&AcceptanceResult>,
    report: Option<Verdict>,
) -> Option<Shortfall> {
    match accepted.map(AcceptanceResult::passed) {
        Some(Some(false)) => Some(Shortfall::NotAccepted),
        Some(None) => Some(Shortfall::NotChecked),
        Some(Some(true)) | None => {
            (report == Some(Verdict::Contradicted)).then_some(Shortfall::Contradicted)
        }
    }
}

/// The phase of a run, as its waiters see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunPhase {
    /// Queued and not held, live, or stopped until an answer, the end of a child run or the reset
    /// of a rate limit resumes it.
    Underway,
    /// Stopped until it is resumed.
    Stopped(StopReason),
    /// Queued, and held until it is resumed or what it starts after is retried, because that has
    /// failed.
    Held,
    /// Paused on purpose.
    Paused,
    Finished,
}

/// Returns the phase of a run. `awaits_requests`: it resumes automatically when its requests are
/// settled. `is_held`: a run that it starts after has failed.
#[must_use]
pub fn run_phase(state: RunState, awaits_requests: bool, is_held: bool) -> RunPhase {
    match state {
        RunState::Queued if is_held => RunPhase::Held,
        RunState::Queued | RunState::Starting | RunState::Running | RunState::Stopping(_) => {
            RunPhase::Underway
        }
        RunState::Stopped { .. } if awaits_requests => RunPhase::Underway,
        RunState::Stopped { reason, .. } => match reason {
            StopReason::Parked
            | StopReason::RateLimited
            | StopReason::Overloaded
            | StopReason::MemoryPressure => RunPhase::Underway,
            StopReason::Paused => RunPhase::Paused,
            StopReason::Blocker
            | StopReason::Error
            | StopReason::ResourceLimit
            | StopReason::MemoryLimit
            | StopReason::Budget
            | StopReason::SupervisorLost
            | StopReason::HostLost
            | StopReason::UnreadableBlock
            | StopReason::Cancelled => RunPhase::Stopped(reason),
        },
        RunState::Finished(_) => RunPhase::Finished,
    }
}

/// The facts about a run that [`need`] uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    pub state: RunState,
    /// It resumes automatically when its requests are settled.
    pub awaits_requests: bool,
    /// It is queued, and a run that it starts after has failed.
    pub is_held: bool,
    /// It has reported, has made no statement since, and has been silent for longer than its agent
    /// may be.
    pub is_silent_after_report: bool,
    pub shortfall: Option<Shortfall>,
    /// The owner was notified of the newest stop or end.
    pub is_owner_notified: bool,
}

/// What a run needs a person or a client to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// To be resumed or cancelled.
    Resume(StopReason),
    /// To be resumed or cancelled, or a run that it starts after to be retried.
    Release,
    /// To be ended or waited for, because its process lives on in silence after its report.
    EndOrWait,
    /// To notify its owner of a bad end.
    Notice(BadEnd),
}

/// The word of a held run.
const HELD: &str = "held";
/// The word of a run whose process lives on after its report.
const STILL_ALIVE: &str = "still_alive";

/// The word is the reason of the stop or of the end. No word is both.
impl Words for Need {
    fn word(self) -> &'static str {
        match self {
            Self::Resume(reason) => reason.word(),
            Self::Release => HELD,
            Self::EndOrWait => STILL_ALIVE,
            Self::Notice(end) => end.word(),
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        match word {
            HELD => return Some(Self::Release),
            STILL_ALIVE => return Some(Self::EndOrWait),
            _ => {}
        }
        StopReason::from_word(word)
            .map(Self::Resume)
            .or_else(|| BadEnd::from_word(word).map(Self::Notice))
    }
}

/// An end of which the owner has to be notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BadEnd {
    Failed,
    NotStarted,
    Lost,
    Short(Shortfall),
}

impl BadEnd {
    /// Returns the stable word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::NotStarted => "not_started",
            Self::Lost => "lost",
            Self::Short(shortfall) => shortfall.word(),
        }
    }

    /// Returns the end that a stable word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Failed, Self::NotStarted, Self::Lost]
            .into_iter()
            .chain(Shortfall::ALL.map(Self::Short))
            .find(|end| end.word() == word)
    }
}

/// Returns what a run needs a person or a client to do. A stopped or held run needs it until it
/// resumes, a silent run that has reported until it acts or ends, a bad end until the owner was
/// notified. A cancelled run needs nothing, because it was ended on purpose.
#[must_use]
pub fn need(facts: &Facts) -> Option<Need> {
    let Facts {
        state,
        awaits_requests,
        is_held,
        is_silent_after_report,
        shortfall,
        is_owner_notified,
    } = *facts;
    match (run_phase(state, awaits_requests, is_held), state) {
        (RunPhase::Stopped(reason), _) => Some(Need::Resume(reason)),
        (RunPhase::Held, _) => Some(Need::Release),
        (RunPhase::Underway, RunState::Running) if is_silent_after_report => Some(Need::EndOrWait),
        (RunPhase::Finished, RunState::Finished(outcome)) if !is_owner_notified => {
            bad_end(outcome, shortfall).map(Need::Notice)
        }
        _ => None,
    }
}

fn bad_end(outcome: Outcome, shortfall: Option<Shortfall>) -> Option<BadEnd> {
    match outcome {
        Outcome::Succeeded => shortfall.map(BadEnd::Short),
        Outcome::Failed(_) => Some(BadEnd::Failed),
        Outcome::SpawnFailed => Some(BadEnd::NotStarted),
        Outcome::Lost => Some(BadEnd::Lost),
        Outcome::Cancelled => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Exit, Failure, SteadyTime};
    use proptest::prelude::*;

    fn reason() -> impl Strategy<Value = StopReason> {
        proptest::sample::select(StopReason::ALL.to_vec())
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        prop_oneof![
            Just(Outcome::Succeeded),
            Just(Outcome::Failed(Failure::Exit(Exit::Code(1)))),
            Just(Outcome::Failed(Failure::Reported)),
            proptest::sample::select(Cause::ALL.to_vec())
                .prop_map(|cause| Outcome::Failed(Failure::Agent(cause))),
            Just(Outcome::Cancelled),
            Just(Outcome::SpawnFailed),
            Just(Outcome::Lost),
        ]
    }

    fn facts() -> impl Strategy<Value = Facts> {
        let state = prop_oneof![
            Just(RunState::Queued),
            Just(RunState::Starting),
            Just(RunState::Running),
            reason().prop_map(RunState::Stopping),
            reason().prop_map(|reason| RunState::Stopped {
                reason,
                until: SteadyTime(1)
            }),
            outcome().prop_map(RunState::Finished),
        ];
        let shortfall = proptest::option::of(proptest::sample::select(Shortfall::ALL.to_vec()));
        (state, any::<[bool; 4]>(), shortfall).prop_map(
            |(
                state,
                [
                    awaits_requests,
                    is_held,
                    is_silent_after_report,
                    is_owner_notified,
                ],
                shortfall,
            )| Facts {
                state,
                awaits_requests,
                is_held,
                is_silent_after_report,
                shortfall,
                is_owner_notified,
            },
        )
    }

    proptest! {
        #[test]
        fn run_that_resumes_automatically_needs_nothing(facts in facts()) {
            if run_phase(facts.state, facts.awaits_requests, facts.is_held) == RunPhase::Underway {
                let is_alive = facts.state == RunState::Running && facts.is_silent_after_report;
                prop_assert_eq!(need(&facts), is_alive.then_some(Need::EndOrWait));
            }
        }

        #[test]
        fn stopped_run_needs_attention_until_it_resumes(facts in facts()) {
            let notified = Facts { is_owner_notified: !facts.is_owner_notified, ..facts };
            if let RunPhase::Stopped(reason) = run_phase(facts.state, facts.awaits_requests, facts.is_held) {
                prop_assert_eq!(need(&facts), Some(Need::Resume(reason)));
                prop_assert_eq!(need(&notified), need(&facts));
            }
        }

        #[test]
        fn bad_end_needs_attention_until_notified(facts in facts()) {
            if let RunState::Finished(outcome) = facts.state {
                let is_bad = match outcome {
                    Outcome::Succeeded => facts.shortfall.is_some(),
                    Outcome::Cancelled => false,
                    Outcome::Failed(_) | Outcome::SpawnFailed | Outcome::Lost => true,
                };
                prop_assert_eq!(matches!(need(&facts), Some(Need::Notice(_))), is_bad && !facts.is_owner_notified);
            } else {
                prop_assert!(!matches!(need(&facts), Some(Need::Notice(_))));
            }
        }
    }

    #[test]
    fn held_run_needs_attention_until_it_is_released() {
        let of = |is_held| {
            need(&Facts {
                state: RunState::Queued,
                awaits_requests: false,
                is_held,
                is_silent_after_report: true,
                shortfall: None,
                is_owner_notified: true,
            })
        };
        assert_eq!((of(true), of(false)), (Some(Need::Release), None));
        assert_eq!(
            [Need::Release, Need::EndOrWait].map(|need| Need::from_word(need.word())),
            [Some(Need::Release), Some(Need::EndOrWait)]
        );
        let live = run_phase(RunState::Starting, false, true);
        assert_eq!(
            live,
            RunPhase::Underway,
            "a run that has started is not held"
        );
    }

    #[test]
    fn parked_rate_limited_and_paused_runs_need_nothing() {
        let of = |reason| {
            let state = RunState::Stopped {
                reason,
                until: SteadyTime(1),
            };
            need(&Facts {
                state,
                awaits_requests: false,
                is_held: false,
                is_silent_after_report: true,
                shortfall: None,
                is_owner_notified: false,
            })
        };
        for reason in [
            StopReason::Parked,
            StopReason::RateLimited,
            StopReason::Overloaded,
            StopReason::MemoryPressure,
            StopReason::Paused,
        ] {
            assert_eq!(of(reason), None, "{reason:?}");
        }
        for reason in [
            StopReason::Blocker,
            StopReason::Error,
            StopReason::ResourceLimit,
            StopReason::MemoryLimit,
            StopReason::Budget,
            StopReason::SupervisorLost,
            StopReason::HostLost,
            StopReason::UnreadableBlock,
        ] {
            assert_eq!(of(reason), Some(Need::Resume(reason)));
        }
    }

    #[test]
    fn acceptance_command_counts_before_the_report() {
        let failed = AcceptanceResult::Ended(Exit::Code(1));
        assert_eq!(
            shortfall(Some(&failed), Some(Verdict::Contradicted)),
            Some(Shortfall::NotAccepted)
        );
        assert_eq!(
            shortfall(Some(&AcceptanceResult::NotKnown("lost".to_owned())), None),
            Some(Shortfall::NotChecked)
        );
        assert_eq!(
            shortfall(
                Some(&AcceptanceResult::Ended(Exit::Code(0))),
                Some(Verdict::Contradicted)
            ),
            Some(Shortfall::Contradicted)
        );
        assert_eq!(shortfall(None, Some(Verdict::Unverified)), None);
        for shortfall in Shortfall::ALL {
            assert_eq!(Shortfall::from_word(shortfall.word()), Some(shortfall));
        }
    }
}
