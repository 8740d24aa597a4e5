//! Reasons of stops.

use crate::words;

/// Why a run was or is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It was cancelled.
    Cancelled,
    /// It used up its active time.
    ResourceLimit,
    /// Its processes used more memory than its agent may.
    MemoryLimit,
    /// The machine ran short of memory, and it was the newest run. It resumes automatically later.
    MemoryPressure,
    /// A budget on which it draws is used up. It resumes when the budget is raised.
    Budget,
    /// Its supervisor died; what the agent did since its last fact is unknown.
    SupervisorLost,
    /// Its runner had no contact with the hub for longer than the lease. Its agent has ended by
    /// then.
    HostLost,
    /// It ended with a blocking request open and waits for the answer.
    Parked,
    /// Its parent or a person stopped it, to resume it later.
    Paused,
    /// It announced a blocker. It resumes automatically only if it has an open blocking request.
    Blocker,
    /// It announced an error. It resumes like after a blocker.
    Error,
    /// It printed a block that cannot be read, and did not fix it.
    UnreadableBlock,
    /// Its model is rate-limited. The run resumes automatically later.
    RateLimited,
    /// The service of its model fails or has no capacity. The run resumes automatically later.
    Overloaded,
}

words!(StopReason {
    Cancelled = "cancelled",
    ResourceLimit = "resource_limit",
    MemoryLimit = "memory_limit",
    MemoryPressure = "memory_pressure",
    Budget = "budget",
    SupervisorLost = "supervisor_lost",
    HostLost = "host_lost",
    Parked = "parked",
    Paused = "paused",
    Blocker = "blocker",
    Error = "error",
    UnreadableBlock = "unreadable_block",
    RateLimited = "rate_limited",
    Overloaded = "overloaded",
});

impl StopReason {
    /// Returns whether the run itself announces such a stop. Its agent may finish its work, and is
    /// terminated only if it has not exited within the grace period.
    #[must_use]
    pub fn is_announced(self) -> bool {
        match self {
            Self::Blocker | Self::Error => true,
            Self::Cancelled
            | Self::ResourceLimit
            | Self::MemoryLimit
            | Self::MemoryPressure
            | Self::Budget
            | Self::SupervisorLost
            | Self::HostLost
            | Self::Parked
            | Self::Paused
            | Self::UnreadableBlock
            | Self::RateLimited
            | Self::Overloaded => false,
        }
    }

    /// Returns whether the run waits for its model's service, and resumes automatically later.
    #[must_use]
    pub fn waits_for_model(self) -> bool {
        matches!(self, Self::RateLimited | Self::Overloaded)
    }

    /// Returns whether such a stop takes effect even if the agent had exited before it: the run
    /// itself has stopped, or only another attempt can receive what it asked for.
    #[must_use]
    pub fn outlasts_an_exit(self) -> bool {
        self.is_announced() || matches!(self, Self::Parked | Self::UnreadableBlock)
    }
}
