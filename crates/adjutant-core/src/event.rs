//! The kinds of entries in the event history.

/// What an event says happened. Every change of state appends exactly one in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    RunQueued,
    RunStarting,
    RunStarted,
    RunRequeued,
    RunStopping,
    RunStopped,
    RunFinished,
    RunProgress,
    RunReported,
    RunCheckpoint,
    RunAnnotated,
    RunAdopted,
    RunStalled,
    RunStirred,
    RunRetrying,
    RunRecovered,
    RunOverdue,
    MessageSent,
    MessageDelivered,
    RequestAsked,
    RequestAnswered,
    RequestRetrieved,
    RequestVetoed,
    DelegationEnded,
    RequestExpired,
    RequestWithdrawn,
    SignalMalformed,
}

impl EventKind {
    pub const ALL: [Self; 27] = [
        Self::RunQueued,
        Self::RunStarting,
        Self::RunStarted,
        Self::RunRequeued,
        Self::RunStopping,
        Self::RunStopped,
        Self::RunFinished,
        Self::RunProgress,
        Self::RunReported,
        Self::RunCheckpoint,
        Self::RunAnnotated,
        Self::RunAdopted,
        Self::RunStalled,
        Self::RunStirred,
        Self::RunRetrying,
        Self::RunRecovered,
        Self::RunOverdue,
        Self::MessageSent,
        Self::MessageDelivered,
        Self::RequestAsked,
        Self::RequestAnswered,
        Self::RequestRetrieved,
        Self::RequestVetoed,
        Self::DelegationEnded,
        Self::RequestExpired,
        Self::RequestWithdrawn,
        Self::SignalMalformed,
    ];

    /// Returns the stable word for this kind, in the store and on every interface.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::RunQueued => "run.queued",
            Self::RunStarting => "run.starting",
            Self::RunStarted => "run.started",
            Self::RunRequeued => "run.requeued",
            Self::RunStopping => "run.stopping",
            Self::RunStopped => "run.stopped",
            Self::RunFinished => "run.finished",
            Self::RunProgress => "run.progress",
            Self::RunReported => "run.reported",
            Self::RunCheckpoint => "run.checkpoint",
            Self::RunAnnotated => "run.annotated",
            Self::RunAdopted => "run.adopted",
            Self::RunStalled => "run.stalled",
            Self::RunStirred => "run.stirred",
            Self::RunRetrying => "run.retrying",
            Self::RunRecovered => "run.recovered",
            Self::RunOverdue => "run.overdue",
            Self::MessageSent => "message.sent",
            Self::MessageDelivered => "message.delivered",
            Self::RequestAsked => "request.asked",
            Self::RequestAnswered => "request.answered",
            Self::RequestRetrieved => "request.retrieved",
            Self::RequestVetoed => "request.vetoed",
            Self::DelegationEnded => "delegation.ended",
            Self::RequestExpired => "request.expired",
            Self::RequestWithdrawn => "request.withdrawn",
            Self::SignalMalformed => "signal.malformed",
        }
    }

    /// Tells whether what is wanted of a run's attempt (to stop, to take messages) may differ after it.
    #[must_use]
    pub fn changes_orders(self) -> bool {
        match self {
            Self::RunQueued
            | Self::RunStarting
            | Self::RunStarted
            | Self::RunRequeued
            | Self::RunStopping
            | Self::RunStopped
            | Self::RunFinished
            | Self::MessageSent
            | Self::MessageDelivered => true,
            Self::RunProgress
            | Self::RunReported
            | Self::RunCheckpoint
            | Self::RunAnnotated
            | Self::RunAdopted
            | Self::RunStalled
            | Self::RunStirred
            | Self::RunRetrying
            | Self::RunRecovered
            | Self::RunOverdue
            | Self::RequestAsked
            | Self::RequestAnswered
            | Self::RequestRetrieved
            | Self::RequestVetoed
            | Self::DelegationEnded
            | Self::RequestExpired
            | Self::RequestWithdrawn
            | Self::SignalMalformed => false,
        }
    }

    /// Returns the kind that a stable word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}
