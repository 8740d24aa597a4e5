//! Runs and their attempts.

mod attempts;
mod conditions;
mod directory;
mod due;
mod fence;
mod listing;
mod lookup;
mod queue;
mod reports;
mod row;
mod run;
mod spec;
mod write;

pub use attempts::{AttemptRow, EndRow, attempt_row, fruitless_attempts, is_attempt_between, times_limited};
pub use directory::{beside, live_around, live_in_dir, taken_by, working_in};
pub use due::{due_estimates, due_stopped, is_work_ahead, next_until};
pub use fence::FenceState;
pub use listing::{FINISHED_PAGE, Page, live_runs, old_finished, runs_newest};
pub use lookup::{run_by_id, run_by_ref};
pub use queue::{Counts, counts, next_queued, queue_place};
pub use reports::report_of;
pub(in crate::store) use row::list;
pub use run::{NewRun, RetryingSince, Run, Usage};
pub use spec::{RunInput, acceptance_of, is_usage_of_last_call, permissions_of, run_input};
