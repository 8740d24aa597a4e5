//! Everything about a run that an interface shows.

use super::activity::{
    FenceView, IgnoredView, ReportedView, ResourcesView, RetryingView, SubagentView, UsageView,
};
use super::checkpoint::{CheckpointView, ChoiceView};
use super::messages::MessageView;
use super::report::{CommandView, ReportView};
use super::workspace::{PortsView, WorkspaceView};
use crate::view::{
    AfterView, AnnouncedView, AttentionView, BudgetView, EventView, InterruptedUndoView, QueueView,
    RequestView, RunConflictView, RunOverlapView, SnapshotView, TreeStatsView, Word, field_names,
};
use adjutant_core::attention::Need;
use adjutant_core::result::{EndReason, ResultGap};
use adjutant_core::run::RunStatus;
use adjutant_core::signal::Priority;
use adjutant_core::{Cause, OutcomeKind, Permissions, RunStateKind};
use serde::{Deserialize, Serialize};

/// Everything about a run that an interface shows.
// Flattened, so that its JSON is one object whose fields are chosen by their names.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunView {
    #[serde(flatten)]
    pub identity: RunIdentityView,
    #[serde(flatten)]
    pub condition: RunConditionView,
    #[serde(flatten)]
    pub times: RunTimesView,
    #[serde(flatten)]
    pub terms: RunTermsView,
    #[serde(flatten)]
    pub place: RunPlaceView,
    #[serde(flatten)]
    pub in_queue: RunInQueueView,
    #[serde(flatten)]
    pub activity: RunActivityView,
    #[serde(flatten)]
    pub results: RunResultView,
    #[serde(flatten)]
    pub changes: RunChangesView,
    #[serde(flatten)]
    pub requests: RunRequestsView,
    #[serde(flatten)]
    pub processes: RunProcessesView,
    #[serde(flatten)]
    pub cost: RunCostView,
    /// The position of the newest event of the run. A wait with a smaller `after` reports the run's
    /// end.
    #[serde(default)]
    pub cursor: i64,
}

/// What a run is, who started it, and its relatives.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunIdentityView {
    pub run_id: String,
    pub name: String,
    pub agent: String,
    /// Why it has its agent, if the agent was chosen from several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_why: Option<String>,
    /// The first line of the prompt, shortened.
    pub task: String,
    /// The dispatching principal: `person`, `client:<name>` or `run:<id>`.
    pub owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The name of the parent run, then the names of child runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    pub root: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    pub attempt: u32,
    /// The id of the vendor's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// The state of a run, why it has it, and what it needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunConditionView {
    /// The status in the original protocol's terms.
    pub status: Word<RunStatus>,
    pub state: Word<RunStateKind>,
    /// Present once the run has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Word<OutcomeKind>>,
    /// Why the run is stopping, stopped, failed or could not be started, as text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the agent failed, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Word<Cause>>,
    /// Why the run's work ended. Present once it has ended or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<Word<EndReason>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Present if the run needs attention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionView>,
    /// The choices for `resume` if an error or a limit stopped the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChoiceView>,
    /// The run is stopped and resumes by itself: when it is answered, when a child run ends, or at
    /// `resumes_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumes_by_itself: bool,
    /// When a run resumes that a rate limit or an overload of its model's service stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes_at: Option<String>,
    /// The report of a running run, unless it has made a statement since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<ReportedView>,
    /// When a running run last wrote output or made a call, if that is longer ago than its agent's
    /// `stall`, or `report_grace` after its report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<String>,
    /// Present if the CLI is retrying a model call that has failed for 10 s or longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrying: Option<RetryingView>,
    /// When a live run exceeded its estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_since: Option<String>,
    /// A note on the newest attempt: which agent configuration in the directory is honoured, with
    /// its hash, or could not be excluded; that the agent ignores its gate; that it succeeded
    /// without ever connecting to Adjutant's tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// A note by the run's parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<String>,
}

/// When a run began and ended, and how long it works.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunTimesView {
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    pub updated_at: String,
    /// Active time so far, excluding time spent waiting.
    #[serde(default)]
    pub active_ms: u64,
    /// The `active_ms` at which the run should finish by its newest estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<u64>,
}

/// What the dispatcher asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunTermsView {
    /// The dispatcher's success criteria.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// What the run may do without approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Word<Permissions>>,
    /// Nothing enforces `permissions`, because the agent is a program that the user declared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permissions_not_enforced: bool,
    /// The model that the dispatcher named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The arguments that the dispatcher added to those of the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The names of the variables that the dispatcher set. Their values are not shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_env: Vec<String>,
    /// The pool whose slot the run needs.
    #[serde(default)]
    pub pool: String,
    /// Its priority. Absent: an optional delegation, which starts after all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Word<Priority>>,
    /// Why policies of repositories are not in effect for it. In replies about the run alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies_not_in_effect: Vec<String>,
}

/// Where a run works, and where its logs are.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunPlaceView {
    pub cwd: String,
    /// The workspace of an isolated run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceView>,
    /// The ports that a live run in a workspace may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortsView>,
    /// Other live runs in the same directory of the hub's machine, the oldest first. Empty for runs
    /// on runners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares_directory_with: Vec<String>,
    /// There are more than listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_directory_more: bool,
    /// The log of the newest attempt. Empty: it is not on the hub's machine.
    pub log_path: String,
    /// The logs of all attempts, oldest first, as far as they are on the hub's machine.
    #[serde(default)]
    pub log_paths: Vec<String>,
    /// The runner that has the log of the newest attempt. In replies about a single run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_runner: Option<String>,
}

/// Why a queued run has not started.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunInQueueView {
    /// The runs that it starts after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<AfterView>,
    /// Why the run is queued and has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueView>,
    /// Position in the queue of its pool, from 1. Absent while it waits for other runs, and with
    /// `queue_ahead_min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_place: Option<u64>,
    /// At least this many runs of its pool start before it. Present if its position was not counted
    /// further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ahead_min: Option<u64>,
}

/// What a run says and does while it works.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunActivityView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// When the run expects to finish, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// Sub-agents that the run's CLI started by itself, as far as its output shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<SubagentView>,
    /// The number of sub-agents beyond those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub subagents_more: u64,
    /// The checkpoint of a stopped run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointView>,
    /// The newest events caused by the run's signals, oldest first. Only in replies about a single
    /// run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<EventView>,
    /// Apparent signals of the run that had no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_signals: Option<IgnoredView>,
}

/// The result of a run, and how it was verified.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunResultView {
    /// The run's own summary of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The agent's last message, or a reconstructed result, cut to the last 16 KiB. The call
    /// `result` returns all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The length of the last message, if `result` is only its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// Whether `result` was reconstructed from other evidence.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconstructed: bool,
    /// Why the last message is not a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_gap: Option<Word<ResultGap>>,
    /// The end of the agent's last message, if it is not the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// The run's completion report with its verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
    /// The result of the acceptance command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<CommandView>,
}

/// What a run changed, and with which runs that conflicts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunChangesView {
    /// The files in the run's directory that git reports as changed while its attempts ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<Vec<String>>,
    /// There are more than listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_files_more: bool,
    /// Commits made in the run's work tree while its attempts ran, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<String>,
    /// Earlier changes are not known: `changed_files` has everything that differs from the last
    /// commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_before_too: bool,
    /// Runs in the same directory at the same time, which may have changed these files. Only in
    /// replies about a single run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_beside: Vec<String>,
    /// Why a snapshot of its tree could not be taken: some of its changes may not be stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_problem: Option<String>,
    /// An undo of the run that was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo_interrupted: Option<InterruptedUndoView>,
    /// Runs whose changes conflict with its own, as long as neither is merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<RunConflictView>,
    /// The order of merging that is proposed, where there are conflicts: the names of it and its
    /// siblings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merge_order: Vec<String>,
    /// The paths and interfaces that it has announced to change or provide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<AnnouncedView>,
    /// Unfinished runs whose announcements overlap with its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlaps: Vec<RunOverlapView>,
    /// Changed files that no announced path covers, if it has announced paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unannounced_files: Vec<String>,
    /// Snapshots of the run's tree, oldest first, if its directory is in a git repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<SnapshotView>,
    /// Says that the repository or the directory of the run was moved or deleted: its snapshots are
    /// not known. Only with `snapshots`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<String>,
    /// Files in the run's commits that were copied into its workspace, such as `.env`: they can be
    /// secrets, so its commits are kept and merged without them. Only with `snapshots`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub committed_copies: Vec<String>,
}

/// The requests of a run, and the messages to it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunRequestsView {
    /// Open requests, oldest first. If a run reads itself, also requests that were answered but not
    /// yet read.
    #[serde(default)]
    pub pending: Vec<RequestView>,
    /// The number of such requests, if there are more than `pending` has.
    #[serde(default)]
    pub pending_total: u64,
    /// The newest settled requests, oldest first. Only in replies about a single run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<RequestView>,
    /// There are more than listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled_more: bool,
    /// Messages to the run, delivered when the run reads itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageView>,
}

/// The processes of the newest attempt.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunProcessesView {
    /// How the attempt's processes are contained: `pid_namespace` or `subreaper`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<String>,
    /// The enforced fence, if one was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<FenceView>,
    /// The number of processes that outlived the agent's own process and were killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept: Option<u32>,
    /// A descendant process kept the output open after the agent's end.
    #[serde(default)]
    pub output_left_open: bool,
    /// The machine resources that the run's processes use, at the newest measurement. Absent before
    /// the first one, a second after the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesView>,
}

/// What a run has used, and what it may use.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunCostView {
    /// The usage of all attempts together, if the agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// The budgets on which the run draws. Absent: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetView>,
    /// The time and cost of the run's tree, when all of it has ended. In replies about a single
    /// run, and in waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeStatsView>,
}

impl RunView {
    /// Returns the names of the fields of all parts.
    #[must_use]
    pub fn field_names() -> Vec<&'static str> {
        [
            field_names::<RunIdentityView>(),
            field_names::<RunConditionView>(),
            field_names::<RunTimesView>(),
            field_names::<RunTermsView>(),
            field_names::<RunPlaceView>(),
            field_names::<RunInQueueView>(),
            field_names::<RunActivityView>(),
            field_names::<RunResultView>(),
            field_names::<RunChangesView>(),
            field_names::<RunRequestsView>(),
            field_names::<RunProcessesView>(),
            field_names::<RunCostView>(),
            &["cursor"],
        ]
        .concat()
    }

    /// Returns whether the run has finished with this outcome.
    #[must_use]
    pub fn has_outcome(&self, outcome: OutcomeKind) -> bool {
        self.condition
            .outcome
            .as_ref()
            .is_some_and(|found| *found == outcome)
    }

    /// Begins the reason of a failed program that is its last line of standard error.
    pub const STDERR: &str = "stderr: ";

    /// Returns the last line of standard error, with its label, if it is the reason of a failure.
    #[must_use]
    pub fn stderr_reason(&self) -> Option<&str> {
        let reason = self
            .condition
            .reason
            .as_deref()
            .filter(|_| self.condition.outcome.is_some() && self.condition.cause.is_none())?;
        let at = reason.find(&format!(": {}", Self::STDERR))?;
        reason.get(at + 2..)
    }

    /// Returns the reason without the line of standard error.
    #[must_use]
    pub(crate) fn reason_without_stderr(&self) -> Option<&str> {
        let reason = self.condition.reason.as_deref()?;
        match self.stderr_reason() {
            Some(line) => reason
                .strip_suffix(line)
                .map(|first| first.trim_end_matches(": ")),
            None => Some(reason),
        }
    }

    /// Returns whether the run is queued, and held because a run that it starts after has failed.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.condition
            .attention
            .as_ref()
            .is_some_and(|attention| attention.why == Need::Release)
    }

    /// Returns whether the run is stopped or held until it is resumed or cancelled.
    #[must_use]
    pub fn needs_resume(&self) -> bool {
        self.is_held()
            || self.condition.state == RunStateKind::Stopped && !self.condition.resumes_by_itself
    }

    /// Returns whether the run has ended, or needs to be resumed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.condition.state == RunStateKind::Finished || self.needs_resume()
    }

    /// Returns the number of running sub-agents of the run's CLI.
    #[must_use]
    pub fn working_subagents(&self) -> u64 {
        self.activity
            .subagents
            .iter()
            .filter(|one| one.is_running())
            .count() as u64
    }

    /// Returns why the acceptance command did not pass of a run whose agent succeeded.
    #[must_use]
    pub fn unmet_acceptance(&self) -> Option<String> {
        self.results
            .acceptance
            .as_ref()
            .filter(|_| self.has_outcome(OutcomeKind::Succeeded))?
            .problem()
    }

    /// Returns whether a live run is silent, retrying, overdue, rate limited, near the end of its
    /// budget or has denied writes.
    #[must_use]
    pub fn has_condition(&self) -> bool {
        self.condition.silent_since.is_some()
            || self.condition.retrying.is_some()
            || self.condition.overdue_since.is_some()
            || self.condition.resumes_at.is_some()
            || self.condition.outcome.is_none()
                && self.cost.budgets.iter().any(|budget| budget.nearly_used)
            || self
                .processes
                .fence
                .as_ref()
                .is_some_and(|fence| fence.denied_writes.is_some())
    }

    /// Returns whether the run succeeded and its acceptance command, if any, passed. A command that
    /// could not run has not passed.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.has_outcome(OutcomeKind::Succeeded)
            && self
                .results
                .acceptance
                .as_ref()
                .is_none_or(|acceptance| acceptance.passed == Some(true))
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_of_fields_are_those_of_the_schema() -> Result<(), serde_json::Error> {
        let schema = serde_json::to_value(schemars::schema_for!(RunView))?;
        let of_schema: Option<BTreeSet<&str>> = schema["properties"]
            .as_object()
            .map(|properties| properties.keys().map(String::as_str).collect());
        let names = RunView::field_names();
        assert_eq!(of_schema, Some(names.iter().copied().collect()));
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        Ok(())
    }
}
