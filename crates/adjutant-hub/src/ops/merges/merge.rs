//! Merging a run's changes into the repository that its workspace was made from.

use super::journal::update_of;
use super::target::Target;
use crate::failpoint::failpoint;
use crate::git::{
    self, BroughtCommit, BuiltMerge, Head, Identity, MergeInput, PreparedUpdate, RecoveryOutcome,
    Refusal, Scratch, Snapshot, SubmoduleSource,
};
use crate::ops::workspaces::{MergeBase, workspace_base};
use crate::ops::{Caller, OpError, Ops};
use crate::store::{
    Merge, Run, StoreError, Workspace, interrupted_undo, later_runs_in, merges_of, resolved_by,
    run_by_id,
};
use crate::view::{ConflictView, MergeRun, MergeView, SubmoduleView};
use adjutant_core::merge::{MergeMode, MergeOutcome};
use adjutant_core::quote::quote_line;
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Action, Denied, Outcome, RunState, WorkspaceState};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// Longest subject of a commit, in characters.
const SUBJECT_CHARS_MAX: usize = 68;
/// Maximum number of later runs in a workspace that are read.
const LATER_RUNS_MAX: u32 = 50;

/// Other runs that the commits of a merge name.
#[derive(Debug, Default)]
struct History {
    /// The run whose conflicts the merged one resolves.
    resolves: Option<Run>,
    /// The newest run that has worked in the workspace since, if the workspace was merged before.
    follow_up: Option<Run>,
}

/// A merge whose commits exist.
struct PreparedMerge {
    target: Target,
    scratch: Scratch,
    head: Head,
    who: Identity,
    mode: MergeMode,
    snapshot: u32,
    after: String,
}

impl Ops {
    /// Merges an isolated run's changes into the user's repository, in one step.
    ///
    /// # Errors
    /// Unknown or foreign; live; not isolated; something is in the way ([`git::Refusal`]); git failed. Nothing is changed then.
    pub async fn merge(&self, caller: Caller, call: MergeRun) -> Result<MergeView, OpError> {
        let run = call.run.clone();
        self.merge_run(caller, call)
            .await
            .map_err(|error| error.of_run(&run))
    }

    async fn merge_run(&self, caller: Caller, call: MergeRun) -> Result<MergeView, OpError> {
        let mode = match &call.mode {
            Some(mode) => mode.known().ok_or_else(|| {
                Denied::invalid("mode", "use merge, squash, rebase, branch or stage")
            })?,
            None => MergeMode::Merge,
        };
        if (mode == MergeMode::Branch) != call.branch.is_some() {
            return Err(
                Denied::invalid("branch", "belongs to the mode branch, which requires it").into(),
            );
        }
        let only = Arc::clone(&self.tree_changes).lock_owned().await;
        if let Some(earlier) = self.stored_reply(&caller)? {
            return Ok(earlier);
        }
        let target = self.target(
            &caller.who,
            Action::Merge,
            &call.run,
            "merged; pause it, or wait for its end",
        )?;
        if let Some(undo) = self
            .store
            .read(|connection| interrupted_undo(connection, target.run.id))?
        {
            let complete = undo.completing_command(&target.run.name);
            let problem = format!(
                "an undo of {} was interrupted, so its workspace has files of two snapshots: {complete} completes it",
                target.run.name
            );
            return Err(Denied::conflict("workspace", problem).into());
        }
        self.recover_all(Some(&target.workspace.repository)).await;
        let (snapshot, committed_copies) = self.newest_snapshot(&target, mode).await?;
        let scratch = self
            .user_scratch(&target.run.id.to_string(), &target.workspace.repository)
            .await?;
        let repo = scratch.repo();
        let head = repo
            .checked_out()
            .await?
            .ok_or_else(|| git::GitError::NoCommit(repo.top.clone()))?;
        let mut view = MergeView {
            run_id: target.run.id.to_string(),
            run_name: target.run.name.clone(),
            outcome: MergeOutcome::Nothing.into(),
            mode: mode.into(),
            repository: target.workspace.repository.clone(),
            branch: call.branch.clone().or_else(|| {
                head.branch
                    .as_ref()
                    .map(|branch| branch_name(branch).to_owned())
            }),
            before: Some(head.commit.clone()),
            not_merged: snapshot.left_out.clone(),
            committed_copies,
            workspace: Some(target.workspace.path.clone())
                .filter(|path| !snapshot.left_out.is_empty() && Path::new(path).exists()),
            incomplete: incomplete(target.run.state),
            with_changes: target.workspace.changes.is_some(),
            ..MergeView::default()
        };
        for git_ref in git::other_branches(repo, target.run.id).await? {
            if !repo.has_commit(&head.commit, &git_ref).await? {
                view.other_branches.push(git_ref);
            }
        }
        if let Some(branch) = &call.branch {
            if let Some(made) = self
                .existing_branch(&target, &scratch, branch, &snapshot)
                .await?
            {
                view.outcome = MergeOutcome::AlreadyMerged.into();
                view.commit = Some(made);
                return self.store_reply(caller, view).await;
            }
            repo.checked_branch(branch).await?;
        }
        let own_head = repo.own_head(target.run.id).await?;
        let from = match self
            .merge_base_of(&target, &scratch, &head, &snapshot, own_head.as_deref())
            .await
        {
            // The branch has the run's own commits, regardless of what they count from.
            Err(OpError::Git(git::GitError::Refused(Refusal::CrissCross)))
                if mode == MergeMode::Branch =>
            {
                Ok(workspace_base(&target.workspace))
            }
            found => found?,
        };
        let from = match from {
            Ok(from) => from,
            Err(merged) if mode != MergeMode::Branch => {
                view.outcome = MergeOutcome::AlreadyMerged.into();
                view.files = scratch.changed_paths(&merged.before, &merged.after).await?;
                view.commit = Some(merged.after);
                return self.store_reply(caller, view).await;
            }
            Err(_) => workspace_base(&target.workspace),
        };
        if mode == MergeMode::Merge && from.is_public {
            self.refuse_other_base(&target, &scratch, &head).await?;
        }
        let history = self.history_of(&target)?;
        if let Some(resolved) = history
            .resolves
            .as_ref()
            .filter(|_| mode != MergeMode::Branch)
        {
            // Nor do empty commits count as a resolution.
            if scratch.tree_of(&snapshot.commit).await? == scratch.tree_of(&from.commit).await? {
                view.resolved_nothing_of = Some(resolved.name.clone());
                return self.store_reply(caller, view).await;
            }
            let markers = scratch
                .added_conflict_markers(&from.commit, &snapshot.commit)
                .await?;
            Refusal::files(
                Refusal::Markers,
                markers
                    .into_iter()
                    .map(|(path, line)| format!("{path} (line {line})")),
            )?;
        }
        if let Some(own_head) = own_head
            .as_ref()
            .filter(|_| matches!(mode, MergeMode::Merge | MergeMode::Rebase) && !from.is_public)
            && !repo.has_commit(&head.commit, own_head).await?
        {
            let why = if target.workspace.changes.is_some() {
                "started with uncommitted changes of yours"
            } else {
                "was merged before"
            };
            view.one_commit = Some(why.to_owned());
        }
        if let Some(own_head) = own_head.as_ref().filter(|_| {
            matches!(
                mode,
                MergeMode::Merge | MergeMode::Rebase | MergeMode::Branch
            )
        }) {
            let Workspace { spec, base, .. } = &target.workspace;
            Refusal::files(
                Refusal::Copies,
                scratch
                    .committed_copies(&spec.copy, base, std::slice::from_ref(own_head))
                    .await?,
            )?;
        }
        let who = repo.identity().await?;
        let input = MergeInput {
            head: head.clone(),
            base: from.commit,
            is_base_public: from.is_public,
            snapshot: snapshot.commit.clone(),
            own_head,
            mode,
            no_ff: call.no_ff,
            who: who.clone(),
            message: message(&target, &history, ""),
            merge_message: message(
                &target,
                &history,
                &format!("Merge run {}: ", target.run.name),
            ),
            run_name: target.run.name.clone(),
        };
        let after = match input.make(&scratch).await? {
            BuiltMerge::Nothing => return self.store_reply(caller, view).await,
            BuiltMerge::Conflicts { commit, files } => {
                let changes = match &call.resolve_with {
                    Some(_) => scratch.wrap_tree(&snapshot.tree, &[&input.base]).await?,
                    None => String::new(),
                };
                view.outcome = MergeOutcome::Conflicts.into();
                view.conflicts = files.into_iter().map(conflict_view).collect();
                view.conflicting_commit = commit;
                drop((only, scratch));
                return match &call.resolve_with {
                    Some(agent) => {
                        let view = self
                            .resolve(
                                caller.of_step("resolve"),
                                &target,
                                &changes,
                                agent,
                                call.env,
                                view,
                            )
                            .await?;
                        self.store_reply(caller, view).await
                    }
                    None => self.store_reply(caller, view).await,
                };
            }
            BuiltMerge::Commit(after) => after,
        };
        let prepared = PreparedMerge {
            target,
            scratch,
            head,
            who,
            mode,
            snapshot: snapshot.n,
            after,
        };
        self.apply_merge(only, caller, prepared, call.branch, view)
            .await
    }

    /// Reads the other runs that the commits of a merge name.
    fn history_of(&self, target: &Target) -> Result<History, OpError> {
        Ok(self.store.read(|connection| {
            let resolves = resolved_by(connection, target.run.id)?
                .map(|run| run_by_id(connection, run))
                .transpose()?
                .flatten();
            let is_merged = merges_of(connection, target.run.id)?
                .iter()
                .any(|merge| !matches!(merge.mode, MergeMode::Branch | MergeMode::Stage));
            let follow_up = match is_merged {
                true => later_runs_in(
                    connection,
                    &target.workspace.path,
                    target.run.id,
                    LATER_RUNS_MAX,
                )?
                .pop(),
                false => None,
            };
            Ok::<_, StoreError>(History {
                resolves,
                follow_up,
            })
        })?)
    }

    /// Refuses a merge that would also bring commits that the run started from and the user's branch lacks, for example
    /// those of another branch.
    async fn refuse_other_base(
        &self,
        target: &Target,
        scratch: &Scratch,
        head: &Head,
    ) -> Result<(), OpError> {
        let Workspace { base, branch, .. } = &target.workspace;
        let commits = scratch.commits(&head.commit, base).await?;
        let Some(newest) = commits.first() else {
            return Ok(());
        };
        let into = head
            .branch
            .as_deref()
            .map_or("the checked-out commit", branch_name);
        let count = match commits.len() {
            1 => "1 commit".to_owned(),
            count => format!("{count} commits, the newest"),
        };
        let from = match branch {
            Some(branch) if branch == into => {
                format!(
                    "an earlier state of {branch}, which was amended, rebased or reset since: a merge would restore {count}: {newest}"
                )
            }
            Some(branch) => {
                format!("branch {branch} with {count} that {into} does not have: {newest}")
            }
            None => {
                format!("a commit that {into} does not have: a merge would bring {count}: {newest}")
            }
        };
        Err(git::GitError::from(Refusal::OtherBase(from)).into())
    }

    /// Keeps the tree of the run as it is, with the commits that its agent has made. Also returns the copied files that these commits lack.
    async fn newest_snapshot(
        &self,
        target: &Target,
        mode: MergeMode,
    ) -> Result<(Snapshot, Vec<String>), OpError> {
        let scratch = self.scratch_of(&target.run).await?;
        if scratch.has_tree() {
            let taken = self
                .take_snapshot(&scratch, &target.run, SnapshotCause::Merge)
                .await?;
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
        let is_elsewhere = self.runner_of(&target.run)?.is_some();
        let is_missing = target.workspace.state != WorkspaceState::Discarded
            && !scratch.is_torn()
            && !is_elsewhere;
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

    /// Finds what the run's changes count from: the base of its workspace, what was merged before, or what it has merged of the user's
    /// branch since. `Err`: everything was merged, by this commit.
    async fn merge_base_of(
        &self,
        target: &Target,
        scratch: &Scratch,
        head: &Head,
        newest: &Snapshot,
        own_head: Option<&str>,
    ) -> Result<Result<MergeBase, Merge>, OpError> {
        let merged = self
            .store
            .read(|connection| merges_of(connection, target.run.id))?;
        let all = git::snapshots(scratch.repo(), target.run.id).await?;
        let mut from = (
            workspace_base(&target.workspace),
            target.workspace.base.clone(),
        );
        for merge in merged
            .into_iter()
            .filter(|merge| !matches!(merge.mode, MergeMode::Branch | MergeMode::Stage))
        {
            // A merge that the user has reset does not count.
            if !scratch
                .repo()
                .has_commit(&head.commit, &merge.after)
                .await?
            {
                continue;
            }
            let Some(snapshot) = all.iter().find(|snapshot| snapshot.n == merge.snapshot) else {
                continue;
            };
            if snapshot.tree == newest.tree {
                return Ok(Err(merge));
            }
            from = (
                MergeBase {
                    commit: snapshot.commit.clone(),
                    is_public: false,
                },
                merge.after,
            );
            break;
        }
        let (from, known) = from;
        if let Some(own_head) = own_head.filter(|_| target.workspace.changes.is_none())
            && let Some(commit) = scratch.taken_in(&head.commit, own_head, &known).await?
        {
            return Ok(Ok(MergeBase {
                commit,
                is_public: true,
            }));
        }
        Ok(Ok(from))
    }

    /// Returns the commit of a branch that was already created from the run's current changes, for example by a call whose
    /// reply was lost. `None`: there is no such branch, or it was moved.
    async fn existing_branch(
        &self,
        target: &Target,
        scratch: &Scratch,
        branch: &str,
        newest: &Snapshot,
    ) -> Result<Option<String>, OpError> {
        let git_ref = format!("refs/heads/{branch}");
        let merges = self
            .store
            .read(|connection| merges_of(connection, target.run.id))?;
        let made = |merge: &&Merge| {
            merge.mode == MergeMode::Branch && merge.git_ref.as_deref() == Some(&git_ref)
        };
        let Some(merge) = merges.iter().find(made) else {
            return Ok(None);
        };
        let all = git::snapshots(scratch.repo(), target.run.id).await?;
        let is_whole = all
            .iter()
            .any(|snapshot| snapshot.n == merge.snapshot && snapshot.tree == newest.tree);
        let is_there = scratch.repo().commit_of(&git_ref).await?.as_ref() == Some(&merge.after);
        Ok((is_whole && is_there).then(|| merge.after.clone()))
    }

    /// Applies a prepared merge to the user's repository. A caller that hangs up does not interrupt it.
    async fn apply_merge(
        &self,
        only: OwnedMutexGuard<()>,
        caller: Caller,
        prepared_merge: PreparedMerge,
        branch: Option<String>,
        mut view: MergeView,
    ) -> Result<MergeView, OpError> {
        let PreparedMerge {
            target,
            scratch,
            head,
            who,
            mode,
            snapshot,
            after,
        } = prepared_merge;
        let git_ref = match (&branch, mode) {
            (Some(branch), _) => Some(scratch.repo().checked_branch(branch).await?),
            (None, MergeMode::Stage) => None,
            (None, _) => Some(head.branch.clone().unwrap_or_else(|| "HEAD".to_owned())),
        };
        let is_unsigned = mode != MergeMode::Stage && scratch.repo().signs_commits().await?;
        let mut merge = Merge {
            run: target.run.id,
            n: 0,
            mode,
            repository: target.workspace.repository.clone(),
            git_ref,
            before: head.commit.clone(),
            after: after.clone(),
            snapshot,
            user_name: who.name.clone(),
            user_email: who.email.clone(),
            reason: format!("adj merge {}", target.run.name),
            by: caller.who.clone(),
        };
        // The number names the update's files, which the preparation does not make.
        let source = submodule_source(&target, &self.home.dir);
        let prepared = match &branch {
            Some(_) => {
                add_submodule_commits(&scratch, &source, &merge, &mut view).await?;
                None
            }
            None => {
                let prepared = PreparedUpdate::prepare(scratch, head, update_of(&merge)).await?;
                add_submodule_commits(prepared.scratch(), &source, &merge, &mut view).await?;
                Some(prepared)
            }
        };
        failpoint!("merge.before_journal");
        let journal = merge.clone();
        merge = self.store.write(move |tx| tx.start_merge(&journal)).await?;
        view.files = prepared
            .as_ref()
            .map(PreparedUpdate::files)
            .unwrap_or_default();
        view.commit = Some(after).filter(|_| mode != MergeMode::Stage);
        view.outcome = MergeOutcome::Merged.into();
        view.unsigned = is_unsigned;
        let (ops, runtime) = (self.clone(), tokio::runtime::Handle::current());
        let work = async move {
            let changed = match prepared {
                Some(prepared) => prepared.with_name(update_of(&merge)).apply().await,
                None => ops
                    .make_branch(&merge, &who)
                    .await
                    .map(|()| git::Applied::default()),
            };
            match changed {
                Ok(applied) => {
                    view.is_unguarded = applied.is_unguarded;
                    ops.record_end(&merge, RecoveryOutcome::Finished).await?;
                }
                // The journal is needed to restore the rest.
                Err(error @ git::GitError::PartlyApplied { .. }) => return Err(error.into()),
                Err(error) => {
                    ops.recover_all(Some(&merge.repository)).await;
                    return Err(error.into());
                }
            }
            failpoint!("merge.after_end");
            ops.store_reply(caller, view).await
        };
        let work = move || {
            let _only = only;
            runtime.block_on(work)
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
    }

    async fn make_branch(&self, merge: &Merge, who: &Identity) -> Result<(), git::GitError> {
        let top = Path::new(&merge.repository);
        let repo =
            git::Repo::find(&git::Git::find(&crate::config::git_env(None), top)?, top).await?;
        let name = merge.git_ref.as_deref().map_or("", branch_name);
        repo.make_branch(name, &merge.after, who, &merge.reason)
            .await
    }
}

/// Returns where the commits of nested repositories to which a run's changes point are.
fn submodule_source(target: &Target, home: &Path) -> SubmoduleSource {
    let path = Path::new(&target.workspace.path);
    SubmoduleSource {
        run: target.run.id,
        workspace: path.exists().then(|| path.to_owned()),
        home: home.to_owned(),
    }
}

/// Adds the commits to which a merge moves nested repositories to the user's, before anything of the merge happens.
async fn add_submodule_commits(
    scratch: &Scratch,
    source: &SubmoduleSource,
    merge: &Merge,
    view: &mut MergeView,
) -> Result<(), git::GitError> {
    let brought =
        git::bring_submodule_commits(scratch, source, &merge.before, &merge.after).await?;
    view.not_merged
        .retain(|file| !brought.iter().any(|commit| *file == commit.left_out()));
    view.submodules = brought
        .into_iter()
        .map(|BroughtCommit { path, commit }| SubmoduleView { path, commit })
        .collect();
    if view.not_merged.is_empty() {
        view.workspace = None;
    }
    Ok(())
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
fn branch_name(git_ref: &str) -> &str {
    git_ref.strip_prefix("refs/heads/").unwrap_or(git_ref)
}

fn conflict_view(conflict: git::Conflict) -> ConflictView {
    let git::Conflict {
        path,
        kind,
        hunks,
        is_cut,
    } = conflict;
    ConflictView {
        path: String::from_utf8_lossy(&path).into_owned(),
        kind: kind.into(),
        hunks,
        is_cut,
    }
}

/// Composes the message of a commit: the run's task, and which run and agent made it. `before` is the beginning of the subject.
fn message(target: &Target, history: &History, before: &str) -> String {
    let Target { run, .. } = target;
    let (about, task) = match &history.resolves {
        Some(other) => (
            format!("Resolve conflicts with {}: ", other.name),
            &other.task,
        ),
        None => (String::new(), &run.task),
    };
    let after = history
        .follow_up
        .as_ref()
        .map(|run| format!(" (follow-up {})", run.name))
        .unwrap_or_default();
    let others = before.chars().count() + about.chars().count() + after.chars().count();
    let task = quote_line(task, SUBJECT_CHARS_MAX.saturating_sub(others).max(20));
    let task = if task.is_empty() {
        format!("Changes of run {}", run.name)
    } else {
        task
    };
    let subject = format!("{before}{about}{task}{after}");
    format!(
        "{subject}\n\nAdjutant-Run: {} ({})\nAdjutant-Agent: {}\n",
        run.name, run.id, run.agent
    )
}
