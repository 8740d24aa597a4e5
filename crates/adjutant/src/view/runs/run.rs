//! Everything about a run that an interface shows.

use super::activity::{IgnoredView, RetryingView, SubagentView, UsageView};
use super::checkpoint::{CheckpointView, ChoiceView};
use super::messages::MessageView;
use super::report::{AcceptanceView, ReportView};
use super::workspace::WorkspaceView;
use crate::view::{AttentionView, EventView, RequestView, SnapshotView, Word};
use adjutant_core::result::{EndReason, ResultGap};
use adjutant_core::run::RunStatus;
use adjutant_core::{Cause, OutcomeKind, Permissions, RunStateKind};
use serde::{Deserialize, Serialize};

/// Everything about a run that an interface shows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunView {
    pub run_id: String,
    pub name: String,
    pub agent: String,
    /// In the original protocol's words.
    pub status: Word<RunStatus>,
    pub state: Word<RunStateKind>,
    /// Once finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Word<OutcomeKind>>,
    /// Why it is stopping, stopped, failed or could not be started, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why its agent failed, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Word<Cause>>,
    /// Why it needs attention, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionView>,
    /// It is stopped and resumes by itself: with an answer, the end of a child run, or
    /// at `resumes_at`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumes_by_itself: bool,
    /// When a run that its model's rate limit has stopped resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes_at: Option<String>,
    /// Since when a running run has neither written output nor made a call, if that exceeds its agent's
    /// `stall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<String>,
    /// The CLI retries a call to its model that has failed for 10 s or longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrying: Option<RetryingView>,
    /// Sub-agents that its CLI has started by itself, as far as its stream shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<SubagentView>,
    /// There were so many more than those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub subagents_more: u64,
    /// What the user should know about how its newest attempt was started: what of its directory's own
    /// agent configuration is honoured, with its hash, or could not be kept out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The first line of the prompt, shortened.
    pub task: String,
    pub cwd: String,
    /// The directory of its own that it works in, if it is isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceView>,
    /// What it may do without approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Word<Permissions>>,
    /// Nothing holds it to that: its agent is any program, declared by the user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permissions_not_enforced: bool,
    /// The dispatching principal: `person`, `client:<name>` or `run:<id>`.
    pub owner: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    pub root: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<String>,
    pub attempt: u32,
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    pub updated_at: String,
    /// What the run said it achieved, else nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Why its work ended, once it has ended or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<Word<EndReason>>,
    /// The agent's last message, or what is put together in its place: the last 16 KiB. The call `result` reads all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Length of the last message, where `result` is only its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// `result` is put together from what was seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reconstructed: bool,
    /// Why the last message is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_gap: Option<Word<ResultGap>>,
    /// The end of the agent's last message, where that is not the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// When it expects to be done, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<String>,
    /// What success means, in the dispatcher's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criteria: Option<String>,
    /// Its completion report, held against what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportView>,
    /// The result of the acceptance command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<AcceptanceView>,
    /// The files that changed in its directory, by git, while its attempts ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<Vec<String>>,
    /// There are more than those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_files_more: bool,
    /// Commits that were made in its work tree while its attempts ran, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<String>,
    /// What was changed before it started is not known: `changed_files` is all that differs from what is
    /// committed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed_before_too: bool,
    /// Runs that worked in its directory at the same time, where a run is looked at alone: each file may be
    /// theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_beside: Vec<String>,
    /// The kept states of its tree, the oldest first, where its directory lies in a git repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<SnapshotView>,
    /// What can be chosen for `resume`, where an error or a limit stopped it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChoiceView>,
    /// A parent's remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<String>,
    /// What looked like signals of the run and had no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored_signals: Option<IgnoredView>,
    /// The checkpoint of a stopped run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointView>,
    /// Every open request, oldest first; for a run that looks at itself also those that were
    /// answered and not read yet.
    #[serde(default)]
    pub pending: Vec<RequestView>,
    /// How many there are, should there be more than `pending` carries.
    #[serde(default)]
    pub pending_total: u64,
    /// The newest of its requests that are settled, oldest first, where a run is looked at alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<RequestView>,
    /// There are more than those.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled_more: bool,
    /// The newest events that come from its signals, oldest first, where a run is looked at alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<EventView>,
    /// How the attempt's processes are held together: `pid_namespace` or `subreaper`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<String>,
    /// Processes that were still there when the agent's own process had ended, and were killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swept: Option<u32>,
    /// A descendant kept the output open after the end.
    #[serde(default)]
    pub output_left_open: bool,
    /// Active time so far, without waiting.
    #[serde(default)]
    pub active_ms: u64,
    /// The `active_ms` at which it was to be done, by the newest estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate_ms: Option<u64>,
    /// Since when a live run works longer than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_since: Option<String>,
    /// The vendor's session that it works in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// What all attempts used up together, where the agent tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageView>,
    /// Place in the queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_place: Option<u64>,
    /// The name of the run that it was delegated by, and of those that it has delegated to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<String>,
    /// Other live runs in the same directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares_directory_with: Vec<String>,
    /// The log of the newest attempt.
    pub log_path: String,
    /// The logs of all attempts, oldest first.
    #[serde(default)]
    pub log_paths: Vec<String>,
    /// Position of the newest event about the run; a wait with `after` below it reports its end.
    #[serde(default)]
    pub cursor: i64,
    /// Messages for the run that came along with its own look at itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageView>,
}

impl RunView {
    /// Tells whether it has finished with this outcome.
    #[must_use]
    pub fn has_outcome(&self, outcome: OutcomeKind) -> bool {
        self.outcome.as_ref().is_some_and(|found| *found == outcome)
    }

    /// Tells whether it has finished well, its acceptance command included: one that could not be run has
    /// not passed.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.has_outcome(OutcomeKind::Succeeded) && self.acceptance.as_ref().is_none_or(|acceptance| acceptance.passed == Some(true))
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
