//! The states of a run and the events that change them.

use super::outcome::{Cause, Exit, Failure, Outcome, Verdict};
use super::stop_reason::StopReason;
use crate::words;
use crate::{Denied, SteadyTime};

/// Where a run is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    Queued,
    Starting,
    Running,
    Stopping(StopReason),
    Stopped { reason: StopReason, until: SteadyTime },
    Finished(Outcome),
}

impl RunState {
    /// Returns the state without its data.
    #[must_use]
    pub fn kind(self) -> RunStateKind {
        match self {
            Self::Queued => RunStateKind::Queued,
            Self::Starting => RunStateKind::Starting,
            Self::Running => RunStateKind::Running,
            Self::Stopping(_) => RunStateKind::Stopping,
            Self::Stopped { .. } => RunStateKind::Stopped,
            Self::Finished(_) => RunStateKind::Finished,
        }
    }

    /// Returns the stable word.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.kind().word()
    }

    /// Tells whether an attempt may be alive: such a run takes a place among the live ones.
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Stopping(_))
    }

    /// Tells whether the run has ended for good.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Finished(_))
    }
}

/// A [`RunState`] without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunStateKind {
    Queued,
    Starting,
    Running,
    Stopping,
    Stopped,
    Finished,
}

words!(RunStateKind {
    Queued = "queued",
    Starting = "starting",
    Running = "running",
    Stopping = "stopping",
    Stopped = "stopped",
    Finished = "finished",
});

/// What is known when an attempt's process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptEnd {
    pub exit: Exit,
    /// What the agent's stream said. `None`: it has none, and the exit status decides.
    pub verdict: Option<Verdict>,
    /// When a run that has met a rate limit resumes by itself. `None`: it does not.
    pub again_at: Option<SteadyTime>,
    /// The run reported its own failure: never shown as success.
    pub failure_reported: bool,
    /// A blocking request is still pending.
    pub blocking_request_open: bool,
    /// The attempt left a checkpoint, so that a failure need not be the end.
    pub checkpoint_left: bool,
    /// The agent can be started again where it left off.
    pub can_resume: bool,
}

/// Something that happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEvent {
    /// A place is free and the hub begins the next attempt.
    Claimed,
    /// No process ever took the attempt's lock, so it can be started again.
    NotStarted,
    /// The agent's process is there.
    Started,
    /// The agent could not be started.
    SpawnFailed,
    /// The agent was not started, for this cause.
    Refused(Cause),
    /// A caller or a limit wants the attempt stopped.
    StopAsked(StopReason),
    /// The agent's process has ended and nothing of it is left.
    Ended(AttemptEnd),
    /// The supervisor died without saying how the attempt ended.
    SupervisorLost,
    /// A new attempt is wanted.
    Resumed,
    /// A stopped run is given up.
    Retired,
}

/// The longest that a run may stay stopped, given by configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub stopped_ms: i64,
}

/// Decides what an event does to a run.
///
/// # Errors
/// `RunFinished` for anything that happens to a finished run, `WrongState` for what cannot happen
/// now. The state is unchanged then.
pub fn apply(state: RunState, event: RunEvent, now: SteadyTime, retention: Retention) -> Result<RunState, Denied> {
    use RunEvent as E;
    use RunState as S;
    let stopped = |reason| S::Stopped { reason, until: now.plus_ms(retention.stopped_ms) };
    let wrong = |wanted| Err(Denied::WrongState { state: state.word(), wanted });
    match (state, event) {
        (S::Finished(outcome), _) => Err(Denied::RunFinished(outcome)),

        (S::Queued, E::Claimed) => Ok(S::Starting),
        (_, E::Claimed) => wrong("started"),

        (S::Starting, E::NotStarted) => Ok(S::Queued),
        (S::Stopping(StopReason::Cancelled), E::NotStarted) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Stopping(_), E::NotStarted) => Ok(S::Queued),
        (_, E::NotStarted) => wrong("started again"),

        (S::Starting, E::Started) => Ok(S::Running),
        (S::Stopping(_), E::Started) => Ok(state),
        (_, E::Started) => wrong("started"),

        (S::Starting, E::SpawnFailed) => Ok(S::Finished(Outcome::SpawnFailed)),
        (S::Stopping(StopReason::Cancelled), E::SpawnFailed) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Stopping(_), E::SpawnFailed) => Ok(S::Finished(Outcome::SpawnFailed)),
        (_, E::SpawnFailed) => wrong("ended as not started"),

        (S::Stopping(StopReason::Cancelled), E::Refused(_)) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Starting | S::Stopping(_), E::Refused(cause)) => Ok(S::Finished(Outcome::Failed(Failure::Agent(cause)))),
        (_, E::Refused(_)) => wrong("refused"),

        (S::Queued | S::Stopped { .. }, E::StopAsked(StopReason::Cancelled)) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Queued, E::StopAsked(StopReason::Paused)) => Ok(stopped(StopReason::Paused)),
        (S::Queued | S::Stopped { .. }, E::StopAsked(_)) => wrong("stopped"),
        (S::Starting | S::Running, E::StopAsked(reason)) => Ok(S::Stopping(reason)),
        // A cancel overrides every gentler stop under way; nothing overrides a cancel.
        (S::Stopping(_), E::StopAsked(StopReason::Cancelled)) => Ok(S::Stopping(StopReason::Cancelled)),
        (S::Stopping(_), E::StopAsked(_)) => Ok(state),

        (S::Starting | S::Running, E::Ended(end)) => Ok(ended(end, stopped)),
        (S::Stopping(StopReason::Cancelled), E::Ended(_)) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Stopping(reason), E::Ended(end)) if reason.is_announced() && end.blocking_request_open && !end.can_resume => {
            Ok(S::Finished(Outcome::Failed(Failure::Unanswered)))
        }
        (S::Stopping(reason), E::Ended(_)) => Ok(stopped(reason)),
        (S::Queued | S::Stopped { .. }, E::Ended(_)) => wrong("ended"),

        (S::Stopping(StopReason::Cancelled), E::SupervisorLost) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Starting | S::Running | S::Stopping(_), E::SupervisorLost) => Ok(stopped(StopReason::SupervisorLost)),
        (S::Queued | S::Stopped { .. }, E::SupervisorLost) => wrong("lost"),

        (S::Stopped { .. }, E::Resumed) => Ok(S::Queued),
        (_, E::Resumed) => wrong("resumed"),

        (S::Stopped { reason: StopReason::SupervisorLost, .. }, E::Retired) => Ok(S::Finished(Outcome::Lost)),
        (S::Stopped { reason, .. }, E::Retired) => Ok(S::Finished(Outcome::Failed(Failure::NotResumed(reason)))),
        (_, E::Retired) => wrong("given up"),
    }
}

/// The outcome of an attempt that nobody stopped.
fn ended(end: AttemptEnd, stopped: impl Fn(StopReason) -> RunState) -> RunState {
    if end.blocking_request_open {
        return if end.can_resume { stopped(StopReason::Parked) } else { RunState::Finished(Outcome::Failed(Failure::Unanswered)) };
    }
    if let (Some(Verdict::Failed(cause)), Some(until)) = (end.verdict, end.again_at)
        && cause.passes()
    {
        return RunState::Stopped { reason: StopReason::RateLimited, until };
    }
    let outcome = match (end.verdict, end.exit) {
        (Some(Verdict::Failed(_)), _) if end.checkpoint_left && end.can_resume => return stopped(StopReason::Error),
        (Some(Verdict::Failed(cause)), _) => Outcome::Failed(Failure::Agent(cause)),
        (Some(Verdict::Succeeded), _) | (None, Exit::Code(0)) if end.failure_reported => Outcome::Failed(Failure::Reported),
        (Some(Verdict::Succeeded), _) | (None, Exit::Code(0)) => Outcome::Succeeded,
        (None, _) if end.checkpoint_left && end.can_resume => return stopped(StopReason::Error),
        (None, exit) => Outcome::Failed(Failure::Exit(exit)),
    };
    RunState::Finished(outcome)
}
