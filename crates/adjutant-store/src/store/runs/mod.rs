//! Runs and their attempts.

mod alternatives;
mod attempts;
mod conditions;
mod counts;
mod directory;
mod due;
mod fence;
mod left;
mod listing;
mod lookup;
mod parts;
mod ports;
mod reports;
mod spec;
mod tree;
mod unreadable;
mod write;

pub use alternatives::{AlternativeAgent, mean_costs, queued_with_alternatives, untried_agents};
pub use attempts::{
    AttemptRow, EndRow, HostLease, HostedAttempt, RUNNER_UNWRITABLE, attempt_row, current_host,
    failed_starts, fruitless_attempts, hosted_attempts, hosts_of, is_attempt_between, last_host,
    live_by_host, runner_name, times_limited,
};
pub use counts::{Counts, counts, is_queue_longer};
pub use directory::{
    LiveInDir, beside, later_runs_in, live_around, live_in_dir, runs_beside, runs_using_directory,
    working_around, working_in,
};
pub(in crate::store) use due::outlook;
pub use due::{due_estimates, due_stopped, has_scheduled_work, next_until, paused_by_pressure};
pub(in crate::store) use left::forget_left_with_token;
pub use left::left_on_runner;
#[cfg(test)]
pub(in crate::store) use listing::statements_of_queued;
pub(in crate::store) use listing::unfinished_with;
pub use listing::{
    FinishedPosition, MORE_COUNTED_MAX, Page, live_runs, old_finished, runs_before, runs_newest,
};
pub use lookup::{newest_run_names, run_by_id, run_by_ref};
pub use parts::{RunParts, run_parts};
pub use ports::ports_of;
pub use reports::report_of;
pub(in crate::store) use reports::supersede_report;
pub(in crate::store) use spec::write_spec;
pub use spec::{
    RunInput, RunTerms, acceptance_of, is_usage_of_last_call, permissions_of, run_input, run_terms,
};
pub use tree::{children_of, tree_size};
pub(in crate::store) use tree::{notify_ancestors, unrequested_answering_runs};
pub use unreadable::{signals_since, unreadable_blocks};
