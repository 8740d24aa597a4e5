//! Removing finished runs with their files.

use crate::config::Home;
use crate::git;
use crate::ops::kept_logs::KeptLogs;
use crate::ops::log_store::LogStore;
use crate::ops::review::Reviews;
use crate::ops::runner_sessions::Sessions;
use crate::ops::runners::send_removed;
use crate::ops::runs::caches::{list_unused_caches, remove_unused_caches};
use crate::ops::runs::keep::{Cleaning, Keeper};
use crate::ops::trees::Trees;
use crate::ops::workspaces::Workspaces;
use crate::ops::{Caller, OpError, Ops, lookup};
use crate::store::{
    AttemptRow, FinishedPosition, Run, Store, StoreError, Tx, attempt_row, hosts_of, old_finished,
    unfinished_below, workspace_of,
};
use crate::view::{Cleaned, KeptRun};
use crate::{clock, leftovers};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{Action, AttemptNo, Denied, Principal, RunId, SteadyTime};
use futures::FutureExt;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Runs that are read and removed together.
const PAGE_RUNS: u32 = 100;

/// A walk through the runs that may be removed.
#[derive(Debug, Default)]
struct Walk {
    /// What is removed, and what stays.
    cleaned: Cleaned,
    chosen: BTreeSet<RunId>,
    /// Why the log store has failed.
    log_store_problem: Option<String>,
    position: Option<FinishedPosition>,
}

/// Removes finished runs.
#[derive(Debug, Clone)]
pub struct Cleaner {
    store: Store,
    home: Arc<Home>,
    trees: Trees,
    keeper: Keeper,
    log_store: LogStore,
    kept_logs: KeptLogs,
    runners: Sessions,
}

impl Cleaner {
    pub fn of(ops: &Ops) -> Self {
        let (trees, reviews) = (ops.trees.clone(), Reviews::of(ops));
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            keeper: Keeper::new(
                ops.store.clone(),
                trees.clone(),
                Workspaces::of(ops),
                reviews,
            ),
            trees,
            log_store: ops.log_store.clone(),
            kept_logs: ops.kept_logs.clone(),
            runners: ops.sessions.clone(),
        }
    }

    /// Removes finished runs that are old enough, with their files: those that are named, or all. A
    /// run whose work in a workspace was neither merged nor discarded stays, unless that is forced.
    ///
    /// # Errors
    /// The caller may not remove runs, a named run is unknown or has not ended, or a failure of the
    /// store.
    pub async fn clean(
        &self,
        caller: Caller,
        older_than_ms: i64,
        names: &[String],
        cleaning: Cleaning,
    ) -> Result<Cleaned, OpError> {
        lookup::check(&caller.who, Action::Clean)?;
        if let Some(earlier) = caller.stored_reply(&self.store)? {
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
        if let Some(removed) = removal.stored_reply::<Cleaned>(&self.store)? {
            let caches = remove_unused_caches(&self.store, &self.home).await?;
            return caller
                .store_reply(&self.store, Cleaned { caches, ..removed })
                .await;
        }
        let mut named = self.ended_runs(&caller.who, names)?;
        let before = clock::steady().plus_ms(older_than_ms.saturating_neg());
        let mut walk = Walk {
            cleaned: Cleaned {
                dry_run: cleaning.dry_run,
                ..Cleaned::default()
            },
            ..Walk::default()
        };
        loop {
            let found = match names {
                [] => self.old_runs(before, &mut walk.position).await?,
                _ => std::mem::take(&mut named),
            };
            if found.is_empty() {
                let mut cleaned = walk.cleaned;
                cleaned.caches = if cleaning.dry_run {
                    list_unused_caches(&self.store, &self.home, &walk.chosen)?
                } else {
                    remove_unused_caches(&self.store, &self.home).await?
                };
                return caller.store_reply(&self.store, cleaned).await;
            }
            let old = self.choose_to_remove(found, cleaning, &mut walk).await?;
            if !old.is_empty() && !cleaning.dry_run {
                self.remove_runs(&removal, old, cleaning.force, &walk)
                    .await?;
            }
        }
    }

    /// Returns the runs that need not stay, and adds all of them to the walk.
    async fn choose_to_remove(
        &self,
        found: Vec<Run>,
        cleaning: Cleaning,
        walk: &mut Walk,
    ) -> Result<Vec<Run>, OpError> {
        let mut old = Vec::new();
        for run in found {
            // A walk through many runs must not hold up other calls.
            tokio::task::yield_now().await;
            match self
                .reason_to_keep_with_logs(&run, cleaning, &mut walk.log_store_problem)
                .await?
            {
                Some(reason) => walk.cleaned.kept.push(KeptRun {
                    run: run.name,
                    reason,
                }),
                None => old.push(run),
            }
        }
        walk.chosen.extend(old.iter().map(|run| run.id));
        let names = old.iter().map(|run| run.name.clone());
        walk.cleaned.runs.extend(names);
        Ok(old)
    }

    /// Removes runs with their files, and records what the walk has removed so far.
    async fn remove_runs(
        &self,
        removal: &Caller,
        old: Vec<Run>,
        force: bool,
        walk: &Walk,
    ) -> Result<(), OpError> {
        let mut at_runners = BTreeSet::new();
        for run in &old {
            if force || self.has_work_of_runners(run).await? {
                at_runners.insert(run.id);
            }
            self.trees.remove_snapshots(run).await;
        }
        let only = self.kept_logs.lock_all().await;
        let ids: Vec<RunId> = old.iter().map(|run| run.id).collect();
        // Files first: after a crash in between, the next clean finds the rest.
        let (home, runs) = (self.home.clone(), ids.clone());
        // What cannot be removed was logged, and is left.
        tokio::task::spawn_blocking(move || {
            leftovers::remove_files(&home.logs_dir(), &home.runs_dir(), &runs)
        })
        .await
        .map_err(|error| OpError::Io(error.to_string()))?;
        let removed = walk.cleaned.clone();
        let remove = move |tx: &mut Tx<'_>, _: &Principal| {
            remove(tx, &old, &at_runners)?;
            Ok(removed)
        };
        removal.clone().write(&self.store, remove).await?;
        drop(only);
        if walk.log_store_problem.is_none() {
            self.remove_late_logs(&ids).await;
        }
        if let Err(error) = send_removed(&self.store, &self.runners) {
            tracing::warn!(%error, "runners receive what was removed when they join again");
        }
        Ok(())
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

    /// Removes what a standby hub has moved to the log store before it could know that these runs
    /// were removed.
    async fn remove_late_logs(&self, runs: &[RunId]) {
        for run in runs.iter().filter(|_| self.store.is_shared()) {
            if let Err(problem) = self.log_store.remove(*run).await {
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

    /// As [`Keeper::reason_to_keep`]. If the run does not stay, its logs are also removed from the
    /// log store. `failed`: why the log store has failed before. It is not asked again then.
    async fn reason_to_keep_with_logs(
        &self,
        run: &Run,
        cleaning: Cleaning,
        failed: &mut Option<String>,
    ) -> Result<Option<String>, OpError> {
        let reason = self.keeper.reason_to_keep(run, cleaning).await?;
        let reason = reason.map(|reason| reason.to_string());
        if reason.is_some() || cleaning.dry_run {
            return Ok(reason);
        }
        let removed = match failed.clone() {
            Some(problem) => Err(problem),
            None => self.log_store.remove(run.id).await,
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

    /// Returns whether the hub has everything that the run has made on runners: a snapshot of the
    /// end of each attempt that may have started. What a run without a repository has made is only
    /// there.
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
        let taken = async {
            Ok::<_, OpError>(git::snapshots(&self.trees.repo_of(run).await?, run.id).await?)
        };
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
}

/// Removes runs from the store. A run with a child that was dispatched meanwhile stays until the
/// child has finished. `at_runners`: those whose files runners remove, too.
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
