//! Removing finished runs with their files.

use crate::clock;
use crate::git::{self, GitError};
use crate::leftovers;
use crate::ops::{Caller, OpError, Ops, lookup};
use crate::store::{
    AttemptRow, FinishedPosition, Run, StoreError, Tx, Workspace, attempt_row, has_event, hosts_of,
    interrupted_undo, merges_of, merges_under_way, old_finished, unfinished_below, unfinished_in,
    workspace_of,
};
use crate::view::{Cleaned, KeptRun};
use adjutant_core::merge::MergeMode;
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{
    Action, AttemptNo, Denied, EventKind, Principal, RunId, SteadyTime, WorkspaceState,
};
use futures::FutureExt;
use std::collections::BTreeSet;
use std::path::Path;

/// Runs that are read and removed together.
const PAGE_RUNS: u32 = 100;
/// Maximum number of files that a reason names.
const NAMED_MAX: usize = 5;

impl Ops {
    /// Removes finished runs that are old enough, with their files: those that are named, or all. A run whose work in a workspace was
    /// neither merged nor discarded stays, unless that is forced.
    ///
    /// # Errors
    /// The caller may not remove runs, a named run is unknown or has not ended, or a failure of the store.
    pub async fn clean(
        &self,
        caller: Caller,
        older_than_ms: i64,
        names: &[String],
        cleaning: Cleaning,
    ) -> Result<Cleaned, OpError> {
        Self::check(&caller.who, Action::Clean)?;
        if let Some(earlier) = self.stored_reply(&caller)? {
            return Ok(earlier);
        }
        // A repeated call cannot find the named runs that it has removed before.
        let removal = if names.is_empty() {
            Caller {
                key: None,
                ..caller.clone()
            }
        } else {
            caller.of_step("removal")
        };
        if let Some(removed) = self.stored_reply::<Cleaned>(&removal)? {
            let caches = self.remove_unused_caches().await?;
            return self
                .store_reply(caller, Cleaned { caches, ..removed })
                .await;
        }
        let mut named = self.ended_runs(&caller.who, names)?;
        let before = clock::steady().plus_ms(older_than_ms.saturating_neg());
        let mut cleaned = Cleaned {
            dry_run: cleaning.dry_run,
            ..Cleaned::default()
        };
        let mut would_go = BTreeSet::new();
        let (mut log_store_problem, mut position) = (None, None);
        loop {
            let found = match names {
                [] => self.old_runs(before, &mut position).await?,
                _ => std::mem::take(&mut named),
            };
            let is_last = found.is_empty();
            let mut old = Vec::new();
            for run in found {
                // A walk through many runs must not hold up other calls.
                tokio::task::yield_now().await;
                match self
                    .reason_to_keep_with_logs(&run, cleaning, &mut log_store_problem)
                    .await?
                {
                    Some(reason) => cleaned.kept.push(KeptRun {
                        run: run.name,
                        reason,
                    }),
                    None => old.push(run),
                }
            }
            if is_last {
                cleaned.caches = if cleaning.dry_run {
                    self.unused_caches(&would_go)?
                } else {
                    self.remove_unused_caches().await?
                };
                return self.store_reply(caller, cleaned).await;
            }
            if old.is_empty() {
                continue;
            }
            would_go.extend(old.iter().map(|run| run.id));
            cleaned.runs.extend(old.iter().map(|run| run.name.clone()));
            if !cleaning.dry_run {
                let mut at_runners = BTreeSet::new();
                for run in &old {
                    if cleaning.force || self.has_work_of_runners(run).await? {
                        at_runners.insert(run.id);
                    }
                    self.remove_snapshots(run).await;
                }
                let only = self.kept_logs.write().await;
                // Files first: after a crash in between, the next clean finds the rest.
                let (home, runs) = (
                    self.home.clone(),
                    old.iter().map(|run| run.id).collect::<Vec<_>>(),
                );
                // What cannot be removed was logged, and is left.
                tokio::task::spawn_blocking(move || {
                    leftovers::remove_files(&home.logs_dir(), &home.runs_dir(), &runs)
                })
                .await
                .map_err(|error| OpError::Io(error.to_string()))?;
                let removed = cleaned.clone();
                let ids: Vec<RunId> = old.iter().map(|run| run.id).collect();
                let remove = move |tx: &mut Tx<'_>, _: &Principal| {
                    remove(tx, &old, &at_runners)?;
                    Ok(removed)
                };
                self.write(removal.clone(), remove).await?;
                drop(only);
                if log_store_problem.is_none() {
                    self.remove_late_logs(&ids).await;
                }
                if let Err(error) = self.send_removed() {
                    tracing::warn!(%error, "runners receive what was removed when they join again");
                }
            }
        }
    }

    /// Reads the next runs that finished before a time, and moves the position beyond them.
    async fn old_runs(
        &self,
        before: SteadyTime,
        position: &mut Option<FinishedPosition>,
    ) -> Result<Vec<Run>, OpError> {
        let (store, after) = (self.store.clone(), *position);
        let read =
            move || store.read(|connection| old_finished(connection, before, after, PAGE_RUNS));
        let (runs, next) = tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| OpError::Io(error.to_string()))??;
        *position = next;
        Ok(runs)
    }

    /// Removes what a standby hub has moved to the log store before it could know that these runs were removed.
    async fn remove_late_logs(&self, runs: &[RunId]) {
        for run in runs.iter().filter(|_| self.store.is_shared()) {
            if let Err(problem) = self.remove_stored_logs(*run).await {
                tracing::warn!(%run, problem, "logs of a removed run, and of others after it, may remain in the log store");
                return;
            }
        }
    }

    /// Returns the named runs, each once, which must have ended.
    fn ended_runs(&self, who: &Principal, names: &[String]) -> Result<Vec<Run>, OpError> {
        let mut runs: Vec<Run> = Vec::new();
        for name in names {
            let run = self
                .store
                .read(|connection| lookup::run(connection, who, Action::Clean, name))?;
            if !run.state.is_finished() {
                return Err(Denied::WrongState {
                    run: run.name.clone(),
                    state: run.state.word(),
                    wanted: "removed; cancel it first",
                }
                .into());
            }
            if runs.iter().all(|other| other.id != run.id) {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// As [`Self::reason_to_keep`]. If the run does not stay, its logs are also removed from the log store.
    /// `failed`: why the log store has failed before. It is not asked again then.
    async fn reason_to_keep_with_logs(
        &self,
        run: &Run,
        cleaning: Cleaning,
        failed: &mut Option<String>,
    ) -> Result<Option<String>, OpError> {
        let reason = self.reason_to_keep(run, cleaning).await?;
        if reason.is_some() || cleaning.dry_run {
            return Ok(reason);
        }
        let removed = match failed.clone() {
            Some(problem) => Err(problem),
            None => self.remove_stored_logs(run.id).await,
        };
        *failed = removed.as_ref().err().cloned();
        match removed {
            Ok(()) => Ok(None),
            Err(problem) if cleaning.force => {
                tracing::warn!(
                    run = run.name,
                    problem,
                    "logs of a removed run remain in the log store"
                );
                Ok(None)
            }
            Err(problem) => Ok(Some(format!(
                "its logs cannot be removed from the log store: {problem}; --force leaves them there"
            ))),
        }
    }

    /// Returns why a finished run has to stay. Otherwise its workspace is removed, except in a dry run.
    async fn reason_to_keep(
        &self,
        run: &Run,
        cleaning: Cleaning,
    ) -> Result<Option<String>, OpError> {
        // Unfinished descendants draw on its budgets and count in its tree.
        let unfinished = self
            .store
            .read(|connection| unfinished_below(connection, run.id))?;
        if unfinished > 0 {
            let runs = if unfinished == 1 {
                "1 run below it has".to_owned()
            } else {
                format!("{unfinished} runs below it have")
            };
            return Ok(Some(format!("{runs} not finished")));
        }
        if !cleaning.force
            && let Some(undo) = self
                .store
                .read(|connection| interrupted_undo(connection, run.id))?
        {
            return Ok(Some(format!(
                "an undo of it was interrupted: {} completes it",
                undo.completing_command(&run.name)
            )));
        }
        if !cleaning.force
            && let Some(reason) = self.undone_work(run).await?
        {
            return Ok(Some(reason));
        }
        let Some(workspace) = self
            .store
            .read(|connection| workspace_of(connection, run.id))?
        else {
            return Ok(None);
        };
        let _only = self.tree_changes.lock().await;
        let (users, under_way) = self.store.read(|connection| {
            Ok((
                unfinished_in(connection, &workspace.path, run.id)?,
                merges_under_way(connection)?,
            ))
        })?;
        if !users.is_empty() {
            return Ok(Some(format!("{} works in its workspace", users.join(", "))));
        }
        // Its record is needed to complete or revert the merge.
        if let Some(merge) = under_way.into_iter().find(|merge| merge.run == run.id) {
            if Path::new(&merge.repository).join(".git").exists() {
                return Ok(Some("its merge is not complete".to_owned()));
            }
            if !cleaning.force {
                return Ok(Some(
                    "its merge is not complete, and its repository is gone: use --force".to_owned(),
                ));
            }
            if !cleaning.dry_run {
                self.store.write(move |tx| tx.forget_merge(&merge)).await?;
            }
        }
        let path = Path::new(&workspace.path);
        if !cleaning.force
            && let Some(torn) = git::torn_workspaces(path)?.first()
        {
            let problem = "has an earlier workspace of it, which was set aside because the machine stopped before all its files were on disk";
            return Ok(Some(format!(
                "{} {problem}: copy what you need, then remove it or use --force",
                torn.display()
            )));
        }
        if !cleaning.force && workspace.state != WorkspaceState::Discarded {
            match self.unmerged_work(run, &workspace, cleaning.dry_run).await {
                Ok(None) => {}
                Ok(Some(reason)) => return Ok(Some(reason)),
                Err(OpError::Git(error @ GitError::RepositoryGone { .. })) => {
                    return Ok(Some(format!("{error}: move it back, or use --force")));
                }
                Err(error) => {
                    return Ok(Some(format!(
                        "its workspace {} cannot be checked: {error}",
                        workspace.path
                    )));
                }
            }
        }
        if cleaning.dry_run {
            return Ok(None);
        }
        let removed = async {
            git::remove_torn_workspaces(path).await?;
            self.remove_workspace(&workspace).await
        };
        match removed.await {
            Ok(()) => Ok(None),
            Err(error) => Ok(Some(format!(
                "its workspace {} cannot be removed: {error}",
                workspace.path
            ))),
        }
    }

    /// Returns whether the hub has everything that the run has made on runners: a snapshot of the end of each attempt that may have
    /// started. What a run without a repository has made is only there.
    async fn has_work_of_runners(&self, run: &Run) -> Result<bool, OpError> {
        let (hosted, workspace) = self.store.read(|connection| {
            let attempts = hosts_of(connection, run.id)?
                .into_iter()
                .map(|(n, _)| Ok((n, attempt_row(connection, run.id, n)?)));
            Ok::<_, StoreError>((
                attempts.collect::<Result<Vec<_>, StoreError>>()?,
                workspace_of(connection, run.id)?,
            ))
        })?;
        let never_started = |row: &AttemptRow| row.started_at.is_none() && row.lost_at.is_none();
        let may_have_started = |(n, row): (AttemptNo, Option<AttemptRow>)| {
            (!row.as_ref().is_some_and(never_started)).then_some(n)
        };
        let started: Vec<AttemptNo> = hosted.into_iter().filter_map(may_have_started).collect();
        if started.is_empty() {
            return Ok(true);
        }
        if workspace.is_none() || run.snapshot_problem.is_some() {
            return Ok(false);
        }
        let taken =
            async { Ok::<_, OpError>(git::snapshots(&self.repo_of(run).await?, run.id).await?) };
        match taken.boxed().await {
            Ok(taken) => {
                let has_end = |n: &AttemptNo| {
                    taken.iter().any(|known| {
                        known.attempt == Some(*n) && known.cause == Some(SnapshotCause::End)
                    })
                };
                Ok(started.iter().all(has_end))
            }
            Err(OpError::Git(error)) if error.is_without_repository() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the files replaced by an undo that only a snapshot of the run still has.
    async fn undone_work(&self, run: &Run) -> Result<Option<String>, OpError> {
        if !self
            .store
            .read(|connection| has_event(connection, run.id, EventKind::RunUndone))?
        {
            return Ok(None);
        }
        Ok(match self.only_before_undo(run).boxed().await {
            // The snapshots are not there, or stay where they are.
            Ok(None)
            | Err(OpError::Git(
                GitError::Missing
                | GitError::NotARepository(_)
                | GitError::RepositoryGone { .. }
                | GitError::DirectoryGone(_),
            )) => None,
            Ok(Some((n, files))) => {
                let more = files.len().saturating_sub(NAMED_MAX);
                let more = if more == 0 {
                    String::new()
                } else {
                    format!(" and {more} more")
                };
                let named = files
                    .into_iter()
                    .take(NAMED_MAX)
                    .collect::<Vec<_>>()
                    .join(", ");
                Some(format!(
                    "only its snapshot {n}, taken before an undo, has the replaced {named}{more}: adj undo {} {n} restores it",
                    run.name
                ))
            }
            Err(error) => Some(format!("its snapshots cannot be checked: {error}")),
        })
    }

    /// Returns the work that would be lost with the refs and the workspace of a run. A snapshot is taken first, also in a dry run, so
    /// that it names the same runs.
    async fn unmerged_work(
        &self,
        run: &Run,
        workspace: &Workspace,
        dry_run: bool,
    ) -> Result<Option<String>, OpError> {
        let scratch = self.scratch_of(run).await?;
        if scratch.is_torn() {
            let why = "no snapshot can be taken of it, because the machine stopped before all its files were on disk";
            return Ok(Some(format!(
                "its workspace {} may have changes, and {why}: copy what you need, then use --force",
                workspace.path
            )));
        }
        if scratch.has_tree() {
            let cause = if dry_run {
                SnapshotCause::Look
            } else {
                SnapshotCause::Discard
            };
            let taken = self.take_snapshot(&scratch, run, cause).await?;
            if let Some(file) = taken.snapshot.left_out.first() {
                return Ok(Some(format!(
                    "no snapshot can contain {file} of its workspace"
                )));
            }
            git::keep_commits(&scratch, run.id).await?;
        }
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let Some(last) = all.last() else {
            return Ok(None);
        };
        let merges = self
            .store
            .read(|connection| merges_of(connection, run.id))?;
        if let Some(merge) = merges.first() {
            if !all
                .iter()
                .any(|snapshot| snapshot.n == merge.snapshot && snapshot.tree == last.tree)
            {
                return Ok(Some(
                    "its workspace has changed since it was merged".to_owned(),
                ));
            }
            if merge.mode != MergeMode::Stage
                && !scratch.repo().is_in_a_branch(&merge.after).await?
            {
                return Ok(Some(
                    "no branch or tag contains its merge any more".to_owned(),
                ));
            }
            let unmerged = git::unmerged_refs(scratch.repo(), run.id, &last.tree).await?;
            return Ok(unmerged.first().map(|git_ref| unmerged_note(run, git_ref)));
        }
        if workspace.state == WorkspaceState::Merged {
            return Ok(Some(format!(
                "which of its changes were merged is not known: adj discard {} removes them",
                run.name
            )));
        }
        let is_changed = match all
            .first()
            .filter(|first| first.cause == Some(SnapshotCause::Start))
        {
            Some(first) => first.tree != last.tree,
            // There is no snapshot of the start, but its base is known.
            None => {
                scratch
                    .tree_of(workspace.changes.as_deref().unwrap_or(&workspace.base))
                    .await?
                    != last.tree
            }
        };
        let has_commits = git::has_commits(scratch.repo(), run.id).await?;
        Ok((is_changed || has_commits)
            .then(|| "its changes were neither merged nor discarded".to_owned()))
    }
}

/// Describes unmerged commits on a branch or in the stash of a merged run.
fn unmerged_note(run: &Run, git_ref: &str) -> String {
    let what = match git_ref.split_once("/heads/") {
        Some((_, branch)) => format!(
            "its branch {} is",
            branch.replace("%2F", "/").replace("%25", "%")
        ),
        None => "its stash is".to_owned(),
    };
    format!(
        "{what} not merged: git merge {git_ref}, or adj discard {}",
        run.name
    )
}

/// Removes runs from the store. A run with a child that was dispatched meanwhile stays until the child has finished.
/// `at_runners`: those whose files runners remove, too.
fn remove(tx: &mut Tx<'_>, runs: &[Run], at_runners: &BTreeSet<RunId>) -> Result<(), StoreError> {
    for run in runs {
        if unfinished_below(tx.connection(), run.id)? == 0 {
            if at_runners.contains(&run.id) {
                tx.note_left_on_runners(run.id)?;
            }
            tx.remove(run)?;
        }
    }
    Ok(())
}

/// What to remove.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cleaning {
    /// Nothing.
    pub dry_run: bool,
    /// Also work that was neither merged nor discarded.
    pub force: bool,
}
