//! The kinds of entries in the event history.

use crate::words;

/// The kind of an event. Every change of state appends exactly one event in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    RunQueued,
    RunStarting,
    RunStarted,
    RunRequeued,
    RunQueueChanged,
    RunHeld,
    RunStopping,
    RunStopped,
    RunFinished,
    RunProgress,
    RunReported,
    RunCheckpoint,
    RunAnnotated,
    RunAdopted,
    RunUndone,
    RunUndoInterrupted,
    RunMerged,
    RunDiscarded,
    RunSnapshotFailed,
    RunConflict,
    RunConflictSettled,
    RunOverlap,
    RunOverlapSettled,
    RunStalled,
    RunActiveAgain,
    RunRetrying,
    RunRecovered,
    RunOverdue,
    RunWriteDenied,
    BudgetNearlyUsed,
    BudgetChanged,
    PoolChanged,
    PoolPaused,
    PoolResumed,
    MessageSent,
    MessageDelivered,
    RequestAsked,
    RequestAnswered,
    RequestRetrieved,
    RequestRevoked,
    DelegationEnded,
    RequestExpired,
    RequestWithdrawn,
    RequestEscalated,
    GrantGiven,
    GrantRevoked,
    SignalMalformed,
}

words!(EventKind {
    RunQueued = "run.queued",
    RunStarting = "run.starting",
    RunStarted = "run.started",
    RunRequeued = "run.requeued",
    RunQueueChanged = "run.queue_changed",
    RunHeld = "run.held",
    RunStopping = "run.stopping",
    RunStopped = "run.stopped",
    RunFinished = "run.finished",
    RunProgress = "run.progress",
    RunReported = "run.reported",
    RunCheckpoint = "run.checkpoint",
    RunAnnotated = "run.annotated",
    RunAdopted = "run.adopted",
    RunUndone = "run.undone",
    RunUndoInterrupted = "run.undo_interrupted",
    RunMerged = "run.merged",
    RunDiscarded = "run.discarded",
    RunSnapshotFailed = "run.snapshot_failed",
    RunConflict = "run.conflict",
    RunConflictSettled = "run.conflict_settled",
    RunOverlap = "run.overlap",
    RunOverlapSettled = "run.overlap_settled",
    RunStalled = "run.stalled",
    RunActiveAgain = "run.stirred",
    RunRetrying = "run.retrying",
    RunRecovered = "run.recovered",
    RunOverdue = "run.overdue",
    RunWriteDenied = "run.write_denied",
    BudgetNearlyUsed = "budget.warned",
    BudgetChanged = "budget.changed",
    PoolChanged = "pool.changed",
    PoolPaused = "pool.paused",
    PoolResumed = "pool.resumed",
    MessageSent = "message.sent",
    MessageDelivered = "message.delivered",
    RequestAsked = "request.asked",
    RequestAnswered = "request.answered",
    RequestRetrieved = "request.retrieved",
    RequestRevoked = "request.vetoed",
    DelegationEnded = "delegation.ended",
    RequestExpired = "request.expired",
    RequestWithdrawn = "request.withdrawn",
    RequestEscalated = "request.escalated",
    GrantGiven = "grant.given",
    GrantRevoked = "grant.revoked",
    SignalMalformed = "signal.malformed",
});

impl EventKind {
    /// Returns whether the event can change the orders for a run's attempt (to stop, to receive
    /// messages).
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
            Self::RunQueueChanged
            | Self::RunHeld
            | Self::RunProgress
            | Self::RunReported
            | Self::RunCheckpoint
            | Self::RunAnnotated
            | Self::RunAdopted
            | Self::RunUndone
            | Self::RunUndoInterrupted
            | Self::RunMerged
            | Self::RunDiscarded
            | Self::RunSnapshotFailed
            | Self::RunConflict
            | Self::RunConflictSettled
            | Self::RunOverlap
            | Self::RunOverlapSettled
            | Self::RunStalled
            | Self::RunActiveAgain
            | Self::RunRetrying
            | Self::RunRecovered
            | Self::RunOverdue
            | Self::RunWriteDenied
            | Self::BudgetNearlyUsed
            | Self::BudgetChanged
            | Self::PoolChanged
            | Self::PoolPaused
            | Self::PoolResumed
            | Self::RequestAsked
            | Self::RequestAnswered
            | Self::RequestRetrieved
            | Self::RequestRevoked
            | Self::DelegationEnded
            | Self::RequestExpired
            | Self::RequestWithdrawn
            | Self::RequestEscalated
            | Self::GrantGiven
            | Self::GrantRevoked
            | Self::SignalMalformed => false,
        }
    }
}
