//! Runs: one task given to one agent, over one or more attempts.
//!
//! ```text
//!  Queued ──> Starting ──> Running ──> Stopping ──> Stopped ──> Queued (resume)
//!    │  <────────┘ │          │            │           │
//!    └─────────────┴──────────┴────────────┴───────────┴──────> Finished
//! ```
//! A finished run never changes. "Waiting" is no state: it is a live run with an open blocking
//! request.

use crate::report::Claim;
use crate::words;
use crate::{Denied, SteadyTime};
use std::fmt;

/// Why a run was or is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// Somebody wants it gone: it ends as cancelled.
    Cancelled,
    /// It used up its active time.
    ResourceLimit,
    /// Its supervisor died; what the agent did since its last fact is unknown.
    SupervisorLost,
    /// It ended with a blocking request open and waits for the answer.
    Parked,
    /// Its parent or a person stopped it, to go on later.
    Paused,
    /// It announced a blocker. It resumes by itself only with an open blocking request of its own.
    Blocker,
    /// It announced an error. It resumes like after a blocker.
    Error,
    /// Its model is not to be had for a while; it goes on by itself then.
    RateLimited,
}

words!(StopReason {
    Cancelled = "cancelled",
    ResourceLimit = "resource_limit",
    SupervisorLost = "supervisor_lost",
    Parked = "parked",
    Paused = "paused",
    Blocker = "blocker",
    Error = "error",
    RateLimited = "rate_limited",
});

impl StopReason {
    /// Tells whether the run itself announces such a stop. Its agent may finish what it is doing, and is
    /// terminated only when it has not exited within its grace.
    #[must_use]
    pub fn is_announced(self) -> bool {
        match self {
            Self::Blocker | Self::Error => true,
            Self::Cancelled | Self::ResourceLimit | Self::SupervisorLost | Self::Parked | Self::Paused | Self::RateLimited => false,
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What an agent's own stream said about how its work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    Succeeded,
    Failed(Cause),
}

/// Why an agent's work failed, as its stream or its absence tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    NotSignedIn,
    ModelUnavailable,
    /// Too many calls, or the quota of a time is used up.
    RateLimited,
    /// The service of its model fails or has no capacity.
    Overloaded,
    /// The service of its model cannot be reached.
    Network,
    /// The account has nothing left to pay with: waiting does not help.
    NoCredit,
    ContextExhausted,
    /// The CLI does not know what it was asked with.
    TooOld,
    /// The session that was to be resumed is gone.
    SessionLost,
    /// Something that it needed was not permitted.
    NotPermitted,
    /// A limit of the CLI's own (turns, budget) was reached.
    LimitReached,
    /// The process ended and its stream never said how.
    NoWord,
    /// It said so, and no more is known.
    Agent,
}

words!(Cause {
    NotSignedIn = "not_signed_in",
    ModelUnavailable = "model_unavailable",
    RateLimited = "rate_limited",
    Overloaded = "overloaded",
    Network = "network",
    NoCredit = "no_credit",
    ContextExhausted = "context_exhausted",
    TooOld = "too_old",
    SessionLost = "session_lost",
    NotPermitted = "not_permitted",
    LimitReached = "limit_reached",
    NoWord = "no_word",
    Agent = "agent_error",
});

impl Cause {
    /// Tells whether the service refuses work for a while only: a run that ends so goes on by itself later.
    #[must_use]
    pub fn passes(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSignedIn => "the agent is not signed in",
            Self::ModelUnavailable => "the model is not available",
            Self::RateLimited => "rate limited or out of quota",
            Self::Overloaded => "the model's service fails or has no capacity",
            Self::Network => "the model's service cannot be reached",
            Self::NoCredit => "no credit is left",
            Self::ContextExhausted => "the context is full",
            Self::TooOld => "the agent's program is too old or too new for its preset",
            Self::SessionLost => "the session to resume is gone",
            Self::NotPermitted => "something it needed was not permitted",
            Self::LimitReached => "a limit of the agent's own was reached",
            Self::NoWord => "the agent ended without saying how",
            Self::Agent => "the agent reported an error",
        })
    }
}

/// Why a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The process said so.
    Exit(Exit),
    /// It ended with a blocking question open that nobody can deliver an answer to.
    Unanswered,
    /// The run reported its own failure.
    Reported,
    /// The agent's stream said so, or ended without its last word.
    Agent(Cause),
    /// It was stopped and nobody resumed it in time.
    NotResumed(StopReason),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(exit) => exit.fmt(f),
            Self::Unanswered => f.write_str("ended with a question unanswered"),
            Self::Reported => f.write_str("reported by the run"),
            Self::Agent(cause) => cause.fmt(f),
            Self::NotResumed(reason) => write!(f, "stopped ({}) and not resumed", reason.word()),
        }
    }
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    Succeeded,
    Failed(Failure),
    Cancelled,
    SpawnFailed,
    /// What became of it cannot be known.
    Lost,
}

impl Outcome {
    /// Returns the outcome without its data.
    #[must_use]
    pub fn kind(self) -> OutcomeKind {
        match self {
            Self::Succeeded => OutcomeKind::Succeeded,
            Self::Failed(_) => OutcomeKind::Failed,
            Self::Cancelled => OutcomeKind::Cancelled,
            Self::SpawnFailed => OutcomeKind::SpawnFailed,
            Self::Lost => OutcomeKind::Lost,
        }
    }

    /// Returns the stable word.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.kind().word()
    }
}

/// An [`Outcome`] without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    Succeeded,
    Failed,
    Cancelled,
    SpawnFailed,
    Lost,
}

words!(OutcomeKind { Succeeded = "succeeded", Failed = "failed", Cancelled = "cancelled", SpawnFailed = "spawn_failed", Lost = "lost" });

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => write!(f, "failed: {failure}"),
            other => f.write_str(other.word()),
        }
    }
}

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
    /// When a run that has met a rate limit goes on by itself. `None`: it does not.
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
    /// No process ever took the attempt's lock, so it can be begun again.
    NotStarted,
    /// The agent's process is there.
    Started,
    /// The agent could not be started.
    SpawnFailed,
    /// The agent was not started, for this cause.
    Refused(Cause),
    /// Somebody, or a limit, wants the attempt stopped.
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

/// The blocking requests of a stopped run. A delegation counts until the child ends that the run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocking {
    /// One of them is open.
    pub open: bool,
    /// One of them was settled after the run announced its stop, or its answer has not been delivered.
    pub settled: bool,
}

/// Tells whether a stopped run resumes by itself when its blocking requests are settled. A run that
/// stopped itself beside a request counts as parked, and keeps the reason and the checkpoint of its stop.
#[must_use]
pub fn awaits_requests(state: RunState, blocking: Blocking) -> bool {
    match state {
        RunState::Stopped { reason: StopReason::Parked, .. } => true,
        RunState::Stopped { reason, .. } if reason.is_announced() => blocking.open || blocking.settled,
        _ => false,
    }
}

/// Tells whether a stopped run resumes by itself now.
#[must_use]
pub fn resumes_now(state: RunState, blocking: Blocking) -> bool {
    !blocking.open && awaits_requests(state, blocking)
}

/// What the open requests of a run say about its status word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRequests {
    pub blocking_pending: bool,
    pub answered_unread: bool,
}

/// The status of a run in the original protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunStatus {
    Queued,
    Starting,
    Running,
    WaitingParentReply,
    ParentReplied,
    Stopped,
    Success,
    Completed,
    PartialSuccess,
    Error,
    Cancelled,
}

words!(RunStatus {
    Queued = "queued",
    Starting = "starting",
    Running = "running",
    WaitingParentReply = "waiting_parent_reply",
    ParentReplied = "parent_replied",
    Stopped = "stopped",
    Success = "success",
    Completed = "completed",
    PartialSuccess = "partial_success",
    Error = "error",
    Cancelled = "cancelled",
});

/// Returns the status of a run. `claim` is what the run reported about its end, if it did: less than
/// success is never shown as success.
#[must_use]
pub fn status(state: RunState, open: OpenRequests, claim: Option<Claim>) -> RunStatus {
    match state {
        RunState::Queued => RunStatus::Queued,
        RunState::Starting => RunStatus::Starting,
        RunState::Running if open.blocking_pending => RunStatus::WaitingParentReply,
        RunState::Running if open.answered_unread => RunStatus::ParentReplied,
        RunState::Running | RunState::Stopping(_) => RunStatus::Running,
        RunState::Stopped { .. } => RunStatus::Stopped,
        RunState::Finished(Outcome::Succeeded) => match claim {
            Some(Claim::Completed) => RunStatus::Completed,
            Some(Claim::Partial) => RunStatus::PartialSuccess,
            Some(Claim::Success | Claim::Failed) | None => RunStatus::Success,
        },
        RunState::Finished(Outcome::Cancelled) => RunStatus::Cancelled,
        RunState::Finished(Outcome::Failed(_) | Outcome::SpawnFailed | Outcome::Lost) => RunStatus::Error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEEP: Retention = Retention { stopped_ms: 1_000 };

    fn reason() -> impl Strategy<Value = StopReason> {
        proptest::sample::select(StopReason::ALL.to_vec())
    }

    fn exit() -> impl Strategy<Value = Exit> {
        prop_oneof![(0_i32..3).prop_map(Exit::Code), (1_i32..16).prop_map(Exit::Signal)]
    }

    fn verdict() -> impl Strategy<Value = Option<Verdict>> {
        prop_oneof![
            Just(None),
            Just(Some(Verdict::Succeeded)),
            proptest::sample::select(Cause::ALL.to_vec()).prop_map(|cause| Some(Verdict::Failed(cause))),
        ]
    }

    fn event() -> impl Strategy<Value = RunEvent> {
        prop_oneof![
            3 => Just(RunEvent::Claimed),
            1 => Just(RunEvent::NotStarted),
            3 => Just(RunEvent::Started),
            1 => Just(RunEvent::SpawnFailed),
            1 => proptest::sample::select(Cause::ALL.to_vec()).prop_map(RunEvent::Refused),
            2 => reason().prop_map(RunEvent::StopAsked),
            2 => (exit(), verdict(), any::<[bool; 4]>()).prop_map(|(exit, verdict, [failure_reported, blocking_request_open, can_resume, checkpoint_left])| {
                let again_at = can_resume.then_some(SteadyTime(9));
                RunEvent::Ended(AttemptEnd { exit, verdict, again_at, failure_reported, blocking_request_open, checkpoint_left, can_resume })
            }),
            1 => Just(RunEvent::SupervisorLost),
            2 => Just(RunEvent::Resumed),
            1 => Just(RunEvent::Retired),
        ]
    }

    fn allowed(from: RunState, to: RunState) -> bool {
        use RunState as S;
        matches!(
            (from, to),
            (S::Queued, S::Starting | S::Stopped { .. } | S::Finished(_))
                | (S::Starting, S::Running | S::Queued | S::Stopping(_) | S::Stopped { .. } | S::Finished(_))
                | (S::Running, S::Stopping(_) | S::Stopped { .. } | S::Finished(_))
                | (S::Stopping(_), S::Stopping(_) | S::Stopped { .. } | S::Queued | S::Finished(_))
                | (S::Stopped { .. }, S::Queued | S::Finished(_))
        )
    }

    proptest! {
        #[test]
        fn a_finished_run_never_changes(events in proptest::collection::vec(event(), 0..60)) {
            let mut state = RunState::Queued;
            for (now, event) in events.into_iter().enumerate() {
                match apply(state, event, SteadyTime(now as i64), KEEP) {
                    Ok(next) => {
                        prop_assert!(!state.is_finished());
                        prop_assert!(allowed(state, next), "{state:?} -> {next:?}");
                        state = next;
                    }
                    Err(Denied::RunFinished(_)) => prop_assert!(state.is_finished()),
                    Err(Denied::WrongState { .. }) => prop_assert!(!state.is_finished()),
                    Err(other) => prop_assert!(false, "{other:?}"),
                }
            }
        }

        #[test]
        fn a_cancel_wins_over_every_end(before in reason(), exit in exit(), open in any::<bool>()) {
            let stopping = apply(RunState::Stopping(before), RunEvent::StopAsked(StopReason::Cancelled), SteadyTime(0), KEEP).expect("a cancel is always taken");
            let end = AttemptEnd { exit, verdict: None, again_at: None, failure_reported: false, blocking_request_open: open, checkpoint_left: false, can_resume: true };
            prop_assert_eq!(apply(stopping, RunEvent::Ended(end), SteadyTime(1), KEEP), Ok(RunState::Finished(Outcome::Cancelled)));
        }

        #[test]
        fn an_open_blocking_request_is_never_success(exit in exit(), can_resume in any::<bool>()) {
            let end = AttemptEnd { exit, verdict: Some(Verdict::Succeeded), again_at: None, failure_reported: false, blocking_request_open: true, checkpoint_left: true, can_resume };
            let next = apply(RunState::Running, RunEvent::Ended(end), SteadyTime(1), KEEP).expect("a running attempt can end");
            prop_assert_ne!(next, RunState::Finished(Outcome::Succeeded));
        }
    }

    #[test]
    fn stop_beside_a_request_resumes_when_the_request_is_settled() {
        let blocking = |open, settled| Blocking { open, settled };
        for reason in StopReason::ALL {
            let state = RunState::Stopped { reason, until: SteadyTime(1) };
            let waits = reason == StopReason::Parked || reason.is_announced();
            assert_eq!(awaits_requests(state, blocking(true, false)), waits, "{reason:?}");
            assert_eq!(resumes_now(state, blocking(false, true)), waits, "{reason:?}");
            assert!(!resumes_now(state, blocking(true, true)), "{reason:?}: another one is open");
            assert_eq!(resumes_now(state, blocking(false, false)), reason == StopReason::Parked, "{reason:?}");
        }
        assert!(!awaits_requests(RunState::Running, blocking(true, true)));
    }

    #[test]
    fn announced_stop_fails_like_a_parked_run_where_the_agent_cannot_resume() {
        let end = AttemptEnd { blocking_request_open: true, can_resume: false, ..end(None) };
        let unanswered = Ok(RunState::Finished(Outcome::Failed(Failure::Unanswered)));
        for state in [RunState::Running, RunState::Stopping(StopReason::Blocker), RunState::Stopping(StopReason::Error)] {
            assert_eq!(apply(state, RunEvent::Ended(end), SteadyTime(0), KEEP), unanswered, "{state:?}");
        }
        let plain = AttemptEnd { blocking_request_open: false, ..end };
        let stopped = Ok(RunState::Stopped { reason: StopReason::Blocker, until: SteadyTime(1_000) });
        assert_eq!(apply(RunState::Stopping(StopReason::Blocker), RunEvent::Ended(plain), SteadyTime(0), KEEP), stopped);
    }

    #[test]
    fn an_agent_that_is_not_started_for_a_cause_fails_its_run() {
        let refused = |state| apply(state, RunEvent::Refused(Cause::TooOld), SteadyTime(0), KEEP);
        assert_eq!(refused(RunState::Starting), Ok(RunState::Finished(Outcome::Failed(Failure::Agent(Cause::TooOld)))));
        assert_eq!(refused(RunState::Stopping(StopReason::Cancelled)), Ok(RunState::Finished(Outcome::Cancelled)));
        assert!(refused(RunState::Running).is_err(), "what runs was started");
    }

    #[test]
    fn a_failure_that_left_a_checkpoint_can_be_gone_on_with() {
        let end = AttemptEnd { exit: Exit::Code(1), checkpoint_left: true, ..end(None) };
        let next = apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP);
        assert_eq!(next, Ok(RunState::Stopped { reason: StopReason::Error, until: SteadyTime(1_000) }));
    }

    #[test]
    fn less_than_success_is_never_shown_as_success() {
        let open = OpenRequests { blocking_pending: false, answered_unread: false };
        let word = |claim| status(RunState::Finished(Outcome::Succeeded), open, claim).word();
        assert_eq!((word(None), word(Some(Claim::Completed)), word(Some(Claim::Partial))), ("success", "completed", "partial_success"));
        assert_eq!(status(RunState::Finished(Outcome::Failed(Failure::Reported)), open, Some(Claim::Partial)), RunStatus::Error);
    }

    #[test]
    fn a_claimed_failure_is_never_shown_as_success() {
        for verdict in [None, Some(Verdict::Succeeded)] {
            let end = AttemptEnd { failure_reported: true, ..end(verdict) };
            assert_eq!(
                apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP),
                Ok(RunState::Finished(Outcome::Failed(Failure::Reported)))
            );
        }
    }

    fn end(verdict: Option<Verdict>) -> AttemptEnd {
        AttemptEnd {
            exit: Exit::Code(0),
            verdict,
            again_at: None,
            failure_reported: false,
            blocking_request_open: false,
            checkpoint_left: false,
            can_resume: true,
        }
    }

    #[test]
    fn what_the_stream_says_counts_more_than_the_exit_status() {
        let outcome = |end| apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP);
        let failed = AttemptEnd { exit: Exit::Code(0), ..end(Some(Verdict::Failed(Cause::NotSignedIn))) };
        assert_eq!(outcome(failed), Ok(RunState::Finished(Outcome::Failed(Failure::Agent(Cause::NotSignedIn)))));
        let succeeded = AttemptEnd { exit: Exit::Signal(15), ..end(Some(Verdict::Succeeded)) };
        assert_eq!(outcome(succeeded), Ok(RunState::Finished(Outcome::Succeeded)));
    }

    #[test]
    fn a_rate_limit_stops_the_run_until_it_goes_on_by_itself() {
        let limited = end(Some(Verdict::Failed(Cause::RateLimited)));
        let outcome = |end| apply(RunState::Running, RunEvent::Ended(end), SteadyTime(0), KEEP);
        let until = SteadyTime(77);
        let stopped = RunState::Stopped { reason: StopReason::RateLimited, until };
        assert_eq!(outcome(AttemptEnd { again_at: Some(until), ..limited }), Ok(stopped));
        assert_eq!(outcome(limited), Ok(RunState::Finished(Outcome::Failed(Failure::Agent(Cause::RateLimited)))));
        assert_eq!(apply(stopped, RunEvent::Resumed, until, KEEP), Ok(RunState::Queued));
    }
}
