//! The states of a run, and the events that change them.

use super::outcome::{Cause, Exit, Failure, Outcome, Verdict};
use super::stop_reason::StopReason;
use crate::signal::UnreadableEnd;
use crate::{Denied, SteadyTime, words};

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    Queued,
    Starting,
    Running,
    Stopping(StopReason),
    Stopped {
        reason: StopReason,
        until: SteadyTime,
    },
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

    /// Returns whether an attempt may be alive. Such a run occupies a slot.
    #[must_use]
    pub fn is_live(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Stopping(_))
    }

    /// Returns whether the run is finished, which is final.
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

/// The facts about an attempt whose process has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptEnd {
    pub exit: Exit,
    /// The outcome that the agent's stream states. `None`: the exit status decides.
    pub verdict: Option<Verdict>,
    /// When a rate-limited run resumes automatically. `None`: it does not.
    pub again_at: Option<SteadyTime>,
    /// The run must not resume by itself: after a rate limit it stays stopped until a caller
    /// resumes it.
    pub waits_for_caller: bool,
    /// The run reported its own failure, so it is never shown as success.
    pub failure_reported: bool,
    /// A blocking request is still pending.
    pub blocking_request_open: bool,
    /// The attempt left a checkpoint, so a failed run can be resumed.
    pub checkpoint_left: bool,
    /// What the blocks lead to that the run printed and that cannot be read, if it did not fix
    /// them.
    pub unreadable: Option<UnreadableEnd>,
    /// The agent can resume where it stopped.
    pub can_resume: bool,
    /// The agent exited before its supervisor began to stop it, so a stop that is in progress came
    /// too late.
    pub by_itself: bool,
}

/// An event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEvent {
    /// A slot is free, and the hub starts the next attempt.
    Claimed,
    /// No process took the attempt's lock, so the attempt can be retried.
    NotStarted,
    /// The agent's process was started.
    Started,
    /// The agent could not be started.
    SpawnFailed,
    /// The agent was not started because of this cause.
    Refused(Cause),
    /// The agent could not work, and another agent continues the run.
    FellBack,
    /// A caller or a limit requires the attempt to stop.
    StopAsked(StopReason),
    /// The agent's process has exited, and no process of it is left.
    Ended(AttemptEnd),
    /// The supervisor died without reporting how the attempt ended.
    SupervisorLost,
    /// The runner's lease of the attempt has expired.
    HostLost,
    /// A new attempt was requested.
    Resumed,
    /// A stopped run was not resumed in time.
    Retired,
}

/// The configured limit of how long a run may stay stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    pub stopped_ms: i64,
}

/// Why the state of a run does not accept an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateRefusal {
    /// A finished run accepts no event.
    Finished(Outcome),
    NotIn {
        state: &'static str,
        wanted: &'static str,
    },
}

impl StateRefusal {
    /// Returns the refusal of a call about the run with this name.
    #[must_use]
    pub fn of_run(self, name: &str) -> Denied {
        let run = name.to_owned();
        match self {
            Self::Finished(outcome) => Denied::RunFinished { run, outcome },
            Self::NotIn { state, wanted } => Denied::WrongState { run, state, wanted },
        }
    }
}

/// Returns the state of a run after an event.
///
/// # Errors
/// `Finished` for any event of a finished run, `NotIn` for an event that is not valid in this
/// state.
pub fn apply(
    state: RunState,
    event: RunEvent,
    now: SteadyTime,
    retention: Retention,
) -> Result<RunState, StateRefusal> {
    use RunEvent as E;
    if let RunState::Finished(outcome) = state {
        return Err(StateRefusal::Finished(outcome));
    }
    let stopped = |reason| RunState::Stopped {
        reason,
        until: now.plus_ms(retention.stopped_ms),
    };
    let next = match event {
        E::Claimed | E::NotStarted | E::Started | E::SpawnFailed | E::Refused(_) | E::FellBack => {
            after_start(state, event, stopped)
        }
        E::StopAsked(reason) => after_stop_asked(state, reason, stopped),
        E::Ended(end) => after_end(state, end, stopped),
        E::SupervisorLost => after_loss(state, StopReason::SupervisorLost, stopped),
        E::HostLost => after_loss(state, StopReason::HostLost, stopped),
        E::Resumed => match state {
            RunState::Stopped { .. } => Ok(RunState::Queued),
            _ => Err("resumed"),
        },
        E::Retired => match state {
            RunState::Stopped { reason, .. } => Ok(RunState::Finished(retired(reason))),
            _ => Err("expired"),
        },
    };
    next.map_err(|wanted| StateRefusal::NotIn {
        state: state.word(),
        wanted,
    })
}

/// The next state, or what the run cannot be in its state.
type Next = Result<RunState, &'static str>;

/// Returns the state after a step of the start of an attempt.
fn after_start(state: RunState, event: RunEvent, stopped: impl Fn(StopReason) -> RunState) -> Next {
    use RunEvent as E;
    use RunState as S;
    match (state, event) {
        (S::Queued, E::Claimed) => Ok(S::Starting),
        (_, E::Claimed) => Err("started"),

        (S::Starting, E::NotStarted) => Ok(S::Queued),
        (S::Stopping(StopReason::Cancelled), E::NotStarted) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Stopping(reason @ (StopReason::Paused | StopReason::Budget)), E::NotStarted) => {
            Ok(stopped(reason))
        }
        (S::Stopping(_), E::NotStarted) => Ok(S::Queued),
        (_, E::NotStarted) => Err("started again"),

        (S::Starting, E::Started) => Ok(S::Running),
        (S::Stopping(_), E::Started) => Ok(state),
        (_, E::Started) => Err("started"),

        (S::Starting, E::SpawnFailed) => Ok(S::Finished(Outcome::SpawnFailed)),
        (S::Stopping(StopReason::Cancelled), E::SpawnFailed) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Stopping(_), E::SpawnFailed) => Ok(S::Finished(Outcome::SpawnFailed)),
        (_, E::SpawnFailed) => Err("ended as not started"),

        (S::Stopping(StopReason::Cancelled), E::Refused(_)) => Ok(S::Finished(Outcome::Cancelled)),
        (S::Starting | S::Stopping(_), E::Refused(cause)) => {
            Ok(S::Finished(Outcome::Failed(Failure::Agent(cause))))
        }
        (_, E::Refused(_)) => Err("refused"),

        (S::Starting | S::Running, _) => Ok(S::Queued),
        (_, _) => Err("moved to another agent"),
    }
}

/// Returns the state after a caller or a limit has asked to stop.
fn after_stop_asked(
    state: RunState,
    reason: StopReason,
    stopped: impl Fn(StopReason) -> RunState,
) -> Next {
    use RunState as S;
    match (state, reason) {
        (S::Queued | S::Stopped { .. }, StopReason::Cancelled) => {
            Ok(S::Finished(Outcome::Cancelled))
        }
        (S::Queued, StopReason::Paused | StopReason::Budget) => Ok(stopped(reason)),
        // A caller's pause is not ended by the memory that is free again.
        (
            S::Stopped {
                reason: StopReason::MemoryPressure,
                ..
            },
            StopReason::Paused,
        ) => Ok(stopped(StopReason::Paused)),
        (S::Stopping(StopReason::MemoryPressure), StopReason::Paused) => {
            Ok(S::Stopping(StopReason::Paused))
        }
        (S::Queued | S::Stopped { .. } | S::Finished(_), _) => Err("stopped"),
        (S::Starting | S::Running, reason) => Ok(S::Stopping(reason)),
        // A cancel overrides any other stop in progress. Nothing overrides a cancel.
        (S::Stopping(_), StopReason::Cancelled) => Ok(S::Stopping(StopReason::Cancelled)),
        (S::Stopping(_), _) => Ok(state),
    }
}

/// Returns the state after the agent's process has exited.
fn after_end(state: RunState, end: AttemptEnd, stopped: impl Fn(StopReason) -> RunState) -> Next {
    use RunState as S;
    match state {
        S::Starting | S::Running => Ok(state_after_end(end, stopped)),
        S::Stopping(StopReason::Cancelled) => Ok(S::Finished(Outcome::Cancelled)),
        S::Stopping(reason)
            if reason.is_announced() && end.blocking_request_open && !end.can_resume =>
        {
            Ok(S::Finished(Outcome::Failed(Failure::Unanswered)))
        }
        // The stop came too late. Resuming the run would do its work again.
        S::Stopping(reason) if end.by_itself && !reason.outlasts_an_exit() => {
            match state_after_end(end, &stopped) {
                finished @ S::Finished(_) => Ok(finished),
                _ => Ok(stopped(reason)),
            }
        }
        // It has finished its work with what it used last.
        S::Stopping(StopReason::Budget)
            if (end.verdict, end.exit) == (Some(Verdict::Succeeded), Exit::Code(0))
                && !end.blocking_request_open =>
        {
            Ok(state_after_end(end, stopped))
        }
        S::Stopping(reason) => Ok(stopped(reason)),
        S::Queued | S::Stopped { .. } | S::Finished(_) => Err("ended"),
    }
}

/// Returns the state after the supervisor or the host of a live attempt was lost.
fn after_loss(state: RunState, lost: StopReason, stopped: impl Fn(StopReason) -> RunState) -> Next {
    use RunState as S;
    match state {
        S::Stopping(StopReason::Cancelled) => Ok(S::Finished(Outcome::Cancelled)),
        S::Starting | S::Running | S::Stopping(_) => Ok(stopped(lost)),
        S::Queued | S::Stopped { .. } | S::Finished(_) => Err("lost"),
    }
}

/// Returns the outcome of a run that was stopped and not resumed in time.
fn retired(reason: StopReason) -> Outcome {
    match reason {
        StopReason::SupervisorLost | StopReason::HostLost => Outcome::Lost,
        reason => Outcome::Failed(Failure::NotResumed(reason)),
    }
}

/// Returns the state after an attempt that was not stopped.
fn state_after_end(end: AttemptEnd, stopped: impl Fn(StopReason) -> RunState) -> RunState {
    if end.blocking_request_open {
        return if end.can_resume {
            stopped(StopReason::Parked)
        } else {
            RunState::Finished(Outcome::Failed(Failure::Unanswered))
        };
    }
    if let (Some(Verdict::Failed(cause)), Some(until)) = (end.verdict, end.again_at)
        && let Some(reason) = cause.stop()
        && !end.waits_for_caller
    {
        return RunState::Stopped { reason, until };
    }
    let outcome = match (end.verdict, end.exit) {
        (Some(Verdict::Failed(cause)), _)
            if cause.passes() && end.waits_for_caller && end.can_resume =>
        {
            return stopped(StopReason::Error);
        }
        (Some(Verdict::Failed(_)), _) if end.checkpoint_left && end.can_resume => {
            return stopped(StopReason::Error);
        }
        (Some(Verdict::Failed(cause)), _) => Outcome::Failed(Failure::Agent(cause)),
        (Some(Verdict::Succeeded), _) | (None, Exit::Code(0)) if end.failure_reported => {
            Outcome::Failed(Failure::Reported)
        }
        (Some(Verdict::Succeeded), _) | (None, Exit::Code(0)) => Outcome::Succeeded,
        (None, _) if end.checkpoint_left && end.can_resume => return stopped(StopReason::Error),
        (None, exit) => Outcome::Failed(Failure::Exit(exit)),
    };
    match (outcome, end.unreadable) {
        (
            Outcome::Succeeded | Outcome::Failed(Failure::Exit(Exit::Code(_))),
            Some(UnreadableEnd::Notify),
        ) if end.can_resume => RunState::Queued,
        (Outcome::Succeeded | Outcome::Failed(Failure::Exit(Exit::Code(_))), Some(_))
            if end.can_resume =>
        {
            stopped(StopReason::UnreadableBlock)
        }
        (outcome, _) => RunState::Finished(outcome),
    }
}
