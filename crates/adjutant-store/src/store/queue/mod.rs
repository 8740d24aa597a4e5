//! The queue: pools, which run starts next, and why the others wait.

mod after;
mod claim;
mod limits;
mod memory;
mod place;
mod pools;

pub use after::{AfterRow, WaitedRun, after_for_retry, after_of, newest_follower, waited_runs};
pub(in crate::store) use after::{
    depend, note_queue_change, open_dependents, start_after, wake_port_waiters,
};
pub(in crate::store) use claim::note_start;
pub use claim::{SlotsUsed, announce_next, launch_candidates, next_to_start, slots_used};
pub(in crate::store) use limits::spread_starts;
pub use limits::{QuotaWindowRow, UsageLimitRow, next_limit_end, quota_windows, usage_limits};
pub use memory::{Held, MemoryNeeds};
#[cfg(test)]
pub(in crate::store) use place::statements_of_head;
pub use place::{QueueHead, live_times, measured_times};
pub use pools::{ConfiguredPool, PoolRow, Pools, StartTarget, pool_rows, queued_up_to};
