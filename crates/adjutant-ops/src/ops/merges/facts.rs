//! The state of a run and of the user's repository when a merge begins.

use super::target::Target;
use crate::git::{self, Head, Scratch, Snapshot};
use crate::ops::OpError;
use crate::ops::trees::{Trees, take_snapshot};
use crate::ops::workspaces::runner_of;
use crate::store::Store;
use crate::view::MergeView;
use adjutant_core::merge::{MergeMode, MergeOutcome};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Denied, Outcome, RunState, WorkspaceState};
use std::path::Path;

/// What a merge begins with.
pub(super) struct MergeFacts {
    pub(super) target: Target,
    pub(super) mode: MergeMode,
    /// The user's repository.
    pub(super) scratch: Scratch,
    pub(super) head: Head,
    /// The run's tree as it is.
    pub(super) snapshot: Snapshot,
    /// Copied files that the commits in the workspace have, and that are not merged.
    committed_copies: Vec<String>,
    /// The branches of the run that the user's branch does not have.
    other_branches: Vec<String>,
}

impl MergeFacts {
    /// Returns the view of a merge that has merged nothing yet. `branch`: the one to create.
    pub(super) fn view(&self, branch: Option<&str>) -> MergeView {
        let Target { run, workspace } = &self.target;
        let into = branch.or(self.head.branch.as_deref().map(branch_name));
        MergeView {
            run_id: run.id.to_string(),
            run_name: run.name.clone(),
            outcome: MergeOutcome::Nothing.into(),
            mode: self.mode.into(),
            repository: workspace.repository.clone(),
            branch: into.map(str::to_owned),
            before: Some(self.head.commit.clone()),
            not_merged: self.snapshot.left_out.clone(),
            committed_copies: self.committed_copies.clone(),
            workspace: Some(workspace.path.clone())
                .filter(|path| !self.snapshot.left_out.is_empty() && Path::new(path).exists()),
            incomplete: incomplete(run.state),
            with_changes: workspace.changes.is_some(),
            other_branches: self.other_branches.clone(),
            ..MergeView::default()
        }
    }

    /// Returns a commit whose difference from its parent is what is merged.
    pub(super) async fn changes_from(&self, base: &str) -> Result<String, git::GitError> {
        self.scratch.wrap_tree(&self.snapshot.tree, &[base]).await
    }

    /// Releases the user's repository.
    pub(super) fn into_target(self) -> Target {
        self.target
    }
}

/// Reads what a merge begins with, after taking a snapshot of the run's tree.
pub(super) async fn merge_facts(
    store: &Store,
    trees: &Trees,
    target: Target,
    mode: MergeMode,
) -> Result<MergeFacts, OpError> {
    let (snapshot, committed_copies) = newest_snapshot(store, trees, &target, mode).await?;
    let scratch = trees
        .user_scratch(&target.run.id.to_string(), &target.workspace.repository)
        .await?;
    let repo = scratch.repo();
    let head = repo
        .checked_out()
        .await?
        .ok_or_else(|| git::GitError::NoCommit(repo.top.clone()))?;
    let mut other_branches = Vec::new();
    for git_ref in git::other_branches(repo, target.run.id).await? {
        if !repo.has_commit(&head.commit, &git_ref).await? {
            other_branches.push(git_ref);
        }
    }
    Ok(MergeFacts {
        target,
        mode,
        scratch,
        head,
        snapshot,
        committed_copies,
        other_branches,
    })
}

/// Keeps the tree of the run as it is, with the commits that its agent has made. Also returns
/// the copied files that these commits lack.
async fn newest_snapshot(
    store: &Store,
    trees: &Trees,
    target: &Target,
    mode: MergeMode,
) -> Result<(Snapshot, Vec<String>), OpError> {
    let scratch = trees.scratch_of(&target.run).await?;
    if scratch.has_tree() {
        let taken = take_snapshot(&scratch, &target.run, SnapshotCause::Merge).await?;
        let without = match git::keep_commits(&scratch, target.run.id).await {
            // The tree is what counts: it is merged over what was kept of its commits before.
            Err(error @ git::GitError::ForeignGitDirectory(_)) => {
                tracing::warn!(%error, run = %target.run.id, "commits in a workspace cannot be kept");
                Vec::new()
            }
            // These modes make no use of them.
            Err(error @ git::GitError::UnreadableCommits { .. })
                if matches!(mode, MergeMode::Squash | MergeMode::Stage) =>
            {
                tracing::warn!(%error, run = %target.run.id, "only the files of a workspace are merged");
                Vec::new()
            }
            kept => kept?.without,
        };
        return Ok((taken.snapshot, without));
    }
    let all = git::snapshots(scratch.repo(), target.run.id).await?;
    let is_elsewhere = runner_of(store, &target.run)?.is_some();
    let is_missing =
        target.workspace.state != WorkspaceState::Discarded && !scratch.is_torn() && !is_elsewhere;
    if is_missing
        && all
            .last()
            .is_none_or(|last| last.cause == Some(SnapshotCause::Start))
    {
        let path = &target.workspace.path;
        return Err(Denied::conflict(
            "workspace",
            format!("{path} is missing, and nothing of what the run did there is kept"),
        )
        .into());
    }
    let problem = || {
        Denied::conflict(
            "run",
            format!(
                "{} has no snapshot, and its workspace is missing",
                target.run.name
            ),
        )
    };
    Ok((all.last().cloned().ok_or_else(problem)?, Vec::new()))
}

/// Describes why the work of a run may be incomplete.
fn incomplete(state: RunState) -> Option<String> {
    match state {
        RunState::Stopped { reason, .. } => Some(format!("is stopped ({})", reason.word())),
        RunState::Finished(outcome) if outcome != Outcome::Succeeded => {
            Some(format!("has ended ({})", outcome.word()))
        }
        _ => None,
    }
}

/// Returns the name of a branch.
pub(super) fn branch_name(git_ref: &str) -> &str {
    git_ref.strip_prefix("refs/heads/").unwrap_or(git_ref)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::{SteadyTime, StopReason};

    #[test]
    fn work_of_a_run_that_did_not_succeed_may_be_incomplete() {
        let stopped = RunState::Stopped {
            reason: StopReason::Paused,
            until: SteadyTime(0),
        };
        assert_eq!(incomplete(stopped).as_deref(), Some("is stopped (paused)"));
        let cancelled = RunState::Finished(Outcome::Cancelled);
        assert_eq!(
            incomplete(cancelled).as_deref(),
            Some("has ended (cancelled)")
        );
        assert_eq!(incomplete(RunState::Finished(Outcome::Succeeded)), None);
    }

    #[test]
    fn branch_is_shown_without_its_namespace() {
        assert_eq!(branch_name("refs/heads/topic/one"), "topic/one");
        assert_eq!(branch_name("HEAD"), "HEAD");
    }
}
