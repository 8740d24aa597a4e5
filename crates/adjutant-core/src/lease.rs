//! The lease of an attempt on a runner.
//!
//! The hub renews it with each call of the runner. When it has expired, the hub records that the
//! run has stopped, and the run may be resumed elsewhere. So the supervisor ends its agent earlier:
//! it counts from the time at which it sent the last call that the hub has answered, which is
//! before the hub has received it.

use std::time::Duration;

/// Shortest lease.
pub const LEASE_MIN_MS: i64 = 2_000;
/// The lease, unless it is configured.
pub const LEASE_DEFAULT_MS: i64 = 60_000;
/// Longest lease.
pub const LEASE_MAX_MS: i64 = 24 * 60 * 60 * 1000;

/// The times of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease(Duration);

impl Lease {
    #[must_use]
    pub fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Returns after which time without a call the hub gives the runner's attempts up.
    #[must_use]
    pub fn whole(self) -> Duration {
        self.0
    }

    /// Returns after which time without an answered call a supervisor begins to end its agent.
    #[must_use]
    pub fn end_begins(self) -> Duration {
        self.0 / 4 * 3
    }

    /// Returns how long the agent may take to end by itself then.
    #[must_use]
    pub fn grace_max(self) -> Duration {
        self.0 / 8
    }

    /// Returns how long a call of a runner or its supervisors may wait, so that several of them fit
    /// into the lease.
    #[must_use]
    pub fn wait_max(self) -> Duration {
        self.0 / 6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agent_has_ended_before_the_hub_records_the_loss(ms in LEASE_MIN_MS..=LEASE_MAX_MS) {
            let lease = Lease::from_ms(ms.unsigned_abs());
            let ended = lease.end_begins() + lease.grace_max();
            prop_assert!(ended + lease.whole() / 10 < lease.whole(), "time to kill it remains");
            prop_assert!(lease.wait_max() * 3 < lease.end_begins(), "one lost call ends nothing");
        }
    }
}
