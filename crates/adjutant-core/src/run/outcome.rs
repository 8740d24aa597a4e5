//! How a run ends.

use super::stop_reason::StopReason;
use crate::words;
use std::fmt;

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
    /// Tells whether the service refuses work for a while only: a run that ends so resumes by itself later.
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
    /// Its outcome cannot be known.
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
