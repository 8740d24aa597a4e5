//! Merges of runs' changes: the journal for crash recovery, and the record of completed merges.

use super::events::append as append_event;
use super::ids::run_id;
use super::{Run, StoreError, Tx, workspace_of};
use crate::store::db::{Connection, Record, params, row, select};
use crate::store::undos::forget_undo;
use crate::store::workspaces::set_workspace_state;
use adjutant_core::merge::MergeMode;
use adjutant_core::{EventKind, Principal, RunId, WorkspaceState};

row! {
    /// A merge of a run's changes into the user's repository.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Merge, named "a merge of run {}" {
        pub run: RunId = "run_id",
        /// The merge's number within its run, from 1.
        pub n: u32,
        pub mode: MergeMode,
        /// The top of the user's work tree.
        pub repository: String,
        /// The ref that is moved or created. `None`: only the tree and the index change.
        pub git_ref: Option<String>,
        /// The commit that was checked out.
        pub before: String = "before_commit",
        /// The new commit, or the new tree if no commit is created.
        pub after: String = "after_commit",
        /// The number of the run's snapshot that is merged.
        pub snapshot: u32,
        /// The user's name and email, for the reflog.
        pub user_name: String,
        pub user_email: String,
        pub reason: String,
        pub by: Principal = "merged_by",
    }
}

/// Lists merges in progress.
///
/// # Errors
/// A failure of the store.
pub fn merges_under_way(connection: &Connection) -> Result<Vec<Merge>, StoreError> {
    let mut statement =
        connection.prepare_cached(select!(Merge, "FROM merges WHERE is_done = 0"))?;
    Ok(statement.read_rows([])?)
}

/// Lists the completed merges of the newest runs, newest first.
///
/// # Errors
/// A failure of the store.
pub fn last_merges(connection: &Connection, limit: u32) -> Result<Vec<Merge>, StoreError> {
    let sql = Merge::select(
        "FROM merges WHERE is_done = 1 ORDER BY (SELECT no FROM runs WHERE id = run_id) DESC, n DESC LIMIT ?1",
    );
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.read_rows([limit])?)
}

/// Lists the completed merges of a run, newest first.
///
/// # Errors
/// A failure of the store.
pub fn merges_of(connection: &Connection, run: RunId) -> Result<Vec<Merge>, StoreError> {
    let mut statement = connection.prepare_cached(select!(
        Merge,
        "FROM merges WHERE run_id = ?1 AND is_done = 1 ORDER BY n DESC LIMIT 20"
    ))?;
    Ok(statement.read_rows([run.to_string()])?)
}

/// Returns the run whose conflicts another run resolves.
///
/// # Errors
/// A failure of the store.
pub fn resolved_by(connection: &Connection, run: RunId) -> Result<Option<RunId>, StoreError> {
    let found: Option<String> = connection
        .prepare_cached("SELECT resolves FROM resolutions WHERE run_id = ?1")?
        .find_row([run.to_string()])?;
    found.map(|run| run_id(&run)).transpose()
}

/// Lists the runs whose conflicts a run resolves, and those that they resolve, each after the run
/// that resolves it.
///
/// # Errors
/// A failure of the store.
pub fn resolved_below(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<(RunId, RunId)>, StoreError> {
    let mut pairs: Vec<(RunId, RunId)> = Vec::new();
    let mut by = run;
    while let Some(resolved) = resolved_by(connection, by)?
        && resolved != run
        && pairs.iter().all(|(_, known)| *known != resolved)
    {
        pairs.push((by, resolved));
        by = resolved;
    }
    Ok(pairs)
}

impl Tx<'_> {
    /// Records a merge before it changes anything. Returns it with its number.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn start_merge(&mut self, merge: &Merge) -> Result<Merge, StoreError> {
        let Merge {
            run,
            n: _,
            mode,
            repository,
            git_ref,
            before,
            after,
            snapshot,
            user_name,
            user_email,
            reason,
            by,
        } = merge;
        let n: u32 = self
            .prepare("SELECT coalesce(max(n), 0) + 1 FROM merges WHERE run_id = ?1")?
            .read_row([run.to_string()])?;
        self.prepare(
            "INSERT INTO merges (run_id, n, mode, repository, git_ref, before_commit, after_commit, snapshot, user_name, user_email, reason, \
             merged_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .run(params![
            run.to_string(),
            n,
            mode.word(),
            repository,
            git_ref,
            before,
            after,
            snapshot,
            user_name,
            user_email,
            reason,
            by.to_string()
        ])?;
        Ok(Merge { n, ..merge.clone() })
    }

    /// Records that a merge is complete: for the run, and for the runs whose conflicts it resolves.
    /// `text` describes it. `resolved`: the snapshot of each of these runs that is merged with it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn finish_merge(
        &mut self,
        merge: &Merge,
        text: &str,
        resolved: &[(RunId, u32)],
    ) -> Result<(), StoreError> {
        let changed = self
            .prepare("UPDATE merges SET is_done = 1 WHERE run_id = ?1 AND n = ?2 AND is_done = 0")?
            .execute(params![merge.run.to_string(), merge.n])?;
        // The end was already recorded.
        if changed == 0 {
            return Ok(());
        }
        for run in std::iter::once(merge.run).chain(
            resolved_below(self.connection(), merge.run)?
                .into_iter()
                .map(|(_, run)| run),
        ) {
            if let Some((_, snapshot)) = resolved.iter().find(|(resolved, _)| *resolved == run) {
                let of_run = self.start_merge(&Merge {
                    run,
                    snapshot: *snapshot,
                    ..merge.clone()
                })?;
                self.prepare("UPDATE merges SET is_done = 1 WHERE run_id = ?1 AND n = ?2")?
                    .run(params![run.to_string(), of_run.n])?;
            }
            // A new branch is not merged into the user's yet.
            if merge.mode != MergeMode::Branch {
                set_workspace_state(self, run, WorkspaceState::Merged)?;
            }
            append_run_event(self, EventKind::RunMerged, &self.run(run)?, &merge.by, text)?;
        }
        Ok(())
    }

    /// Removes the record of a merge that changed nothing.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_merge(&mut self, merge: &Merge) -> Result<(), StoreError> {
        self.prepare("DELETE FROM merges WHERE run_id = ?1 AND n = ?2 AND is_done = 0")?
            .run(params![merge.run.to_string(), merge.n])?;
        Ok(())
    }

    /// Removes the record of a merge that was recorded as complete, and is not on the disk.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn reopen_merge(&mut self, merge: &Merge) -> Result<(), StoreError> {
        self.prepare("DELETE FROM merges WHERE run_id = ?1 AND n = ?2")?
            .run(params![merge.run.to_string(), merge.n])?;
        if workspace_of(self.connection(), merge.run)?
            .is_some_and(|workspace| workspace.state == WorkspaceState::Merged)
        {
            set_workspace_state(self, merge.run, WorkspaceState::Ready)?;
        }
        Ok(())
    }

    /// Records that a run resolves the conflicts of another run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_resolved_run(&mut self, run: RunId, resolves: RunId) -> Result<(), StoreError> {
        self.prepare(
            "INSERT INTO resolutions (run_id, resolves) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
        )?
        .run([run.to_string(), resolves.to_string()])?;
        Ok(())
    }

    /// Records that a run's workspace is discarded.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn discard_workspace(
        &mut self,
        run: &Run,
        by: &Principal,
        text: &str,
    ) -> Result<(), StoreError> {
        set_workspace_state(self, run.id, WorkspaceState::Discarded)?;
        forget_undo(self, run.id)?;
        append_run_event(self, EventKind::RunDiscarded, run, by, text)
    }
}

fn append_run_event(
    tx: &mut Tx<'_>,
    kind: EventKind,
    run: &Run,
    by: &Principal,
    text: &str,
) -> Result<(), StoreError> {
    let seq = append_event(
        tx,
        kind,
        run.id,
        &run.owner.to_string(),
        None,
        &by.to_string(),
        text,
    )?;
    tx.touch(run.id, seq)
}
