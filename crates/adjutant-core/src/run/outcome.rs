//! Outcomes of runs.

use super::stop_reason::StopReason;
use crate::words;
use std::fmt;

/// How a process exited.
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

/// The outcome that an agent's stream states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    Succeeded,
    Failed(Cause),
}

/// The cause of an agent's failure, from its stream or from what is missing there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    NotSignedIn,
    ModelUnavailable,
    /// Too many calls, or the quota of a period is used up.
    RateLimited,
    /// The model's service fails or has no capacity.
    Overloaded,
    /// The model's service cannot be reached.
    Network,
    /// The account has no credit left. Waiting does not help.
    NoCredit,
    ContextExhausted,
    /// The CLI does not know an option or feature that its preset uses.
    TooOld,
    /// The session to resume does not exist.
    SessionLost,
    /// A required action was not permitted.
    NotPermitted,
    /// A limit of the CLI (turns, budget) was reached.
    LimitReached,
    /// The model refused to continue.
    Refused,
    /// The process exited without stating an outcome in its stream.
    NoWord,
    /// The agent reported a failure of unknown cause.
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
    Refused = "refused",
    NoWord = "no_word",
    Agent = "agent_error",
});

impl Cause {
    /// Returns whether the cause is temporary, so that the run resumes automatically later.
    #[must_use]
    pub fn passes(self) -> bool {
        self.stop().is_some()
    }

    /// Returns the stop of a run for a temporary cause.
    #[must_use]
    pub fn stop(self) -> Option<StopReason> {
        match self {
            Self::RateLimited => Some(StopReason::RateLimited),
            Self::Overloaded => Some(StopReason::Overloaded),
            Self::NotSignedIn
            | Self::ModelUnavailable
            | Self::Network
            | Self::NoCredit
            | Self::ContextExhausted
            | Self::TooOld
            | Self::SessionLost
            | Self::NotPermitted
            | Self::LimitReached
            | Self::Refused
            | Self::NoWord
            | Self::Agent => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSignedIn => "the agent is not signed in",
            Self::ModelUnavailable => "the model is not available",
            Self::RateLimited => "rate limited or out of quota",
            Self::Overloaded => "the model's service is failing or overloaded",
            Self::Network => "the model's service cannot be reached",
            Self::NoCredit => "no credit is left",
            Self::ContextExhausted => "the context is full",
            Self::TooOld => "the agent's program is too old or too new for its preset",
            Self::SessionLost => "the session to resume no longer exists",
            Self::NotPermitted => "a required permission was denied",
            Self::LimitReached => "the agent's own limit was reached",
            Self::Refused => "the model refused to continue",
            Self::NoWord => "the agent exited without reporting a result",
            Self::Agent => "the agent reported an error",
        })
    }
}

/// Why a run failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The exit status of the process.
    Exit(Exit),
    /// It ended with an open blocking question whose answer cannot be delivered.
    Unanswered,
    /// The run reported its own failure.
    Reported,
    /// The agent's stream stated a failure, or ended without an outcome.
    Agent(Cause),
    /// It was stopped and not resumed in time.
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
    /// Its outcome is unknown.
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
