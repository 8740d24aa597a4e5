//! Recovery of merges, discards and undos that were interrupted by the death of the hub.

use crate::config::Home;
use crate::files;
use crate::git::{self, Identity, RecoveryOutcome, Scratch, Update};
use crate::ops::trees::Trees;
use crate::ops::undo::settle_undo;
use crate::ops::workspaces::Workspaces;
use crate::ops::{OpError, Ops};
use crate::store::{
    Merge, Store, discarded_workspaces, last_merges, merges_under_way, resolved_below, run_by_id,
    undos_under_way,
};
use adjutant_core::RunId;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the recovery of merges and discards may delay the start of a hub.
const RECOVERY_MAX: Duration = Duration::from_secs(20);
/// How many of the last merges are checked when a hub starts. A check is a look at one name.
const PROVEN_MAX: u32 = 1000;

/// The journal of merges, and what an earlier hub has left of changes of trees.
#[derive(Debug, Clone)]
pub struct MergeJournal {
    pub(super) store: Store,
    pub(super) home: Arc<Home>,
    trees: Trees,
    workspaces: Workspaces,
}

impl MergeJournal {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            trees: ops.trees.clone(),
            workspaces: Workspaces::of(ops),
        }
    }

    /// Completes or reverts every interrupted merge, and completes every interrupted discard.
    /// Failures are logged, and retried by the next merge and the next hub. Interrupted undos are
    /// recorded: the user completes them, because nothing has prevented changes of the files since.
    pub async fn recover(&self) {
        let _only = self.trees.lock().await;
        let deadline = tokio::time::Instant::now() + RECOVERY_MAX;
        if tokio::time::timeout_at(deadline, self.recover_all(None))
            .await
            .is_err()
        {
            tracing::error!(
                "merges that were interrupted are not all recovered: git took too long"
            );
        }
        if tokio::time::timeout_at(deadline, self.prove_merges())
            .await
            .is_err()
        {
            tracing::error!("merges that ended last are not all checked: git took too long");
        }
        match tokio::time::timeout_at(deadline, self.remove_discarded()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "the workspaces of discarded runs cannot be listed")
            }
            Err(_) => tracing::warn!(
                "the workspaces of discarded runs are not all removed: it took too long"
            ),
        }
        if tokio::time::timeout_at(deadline, self.settle_undos())
            .await
            .is_err()
        {
            tracing::error!(
                "what interrupted undos have left is not all settled: git took too long"
            );
        }
        if let Err(error) = self.store.write(|tx| tx.note_interrupted_undos(None)).await {
            tracing::error!(%error, "interrupted undos cannot be recorded");
        }
    }

    /// Recovers the last merges that are recorded as complete and have left their lock: the machine
    /// stopped, and its disk has not kept what it had confirmed.
    async fn prove_merges(&self) {
        let ended = match self
            .store
            .read(|connection| last_merges(connection, PROVEN_MAX))
        {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "the merges that ended last cannot be listed");
                return;
            }
        };
        for merge in ended
            .iter()
            .filter(|merge| merge.mode != adjutant_core::merge::MergeMode::Branch)
        {
            let top = Path::new(&merge.repository);
            // Without a call of git, because each start of a hub does this.
            if !git::may_have_remains(top, &update_of(merge)) {
                continue;
            }
            let proven = async {
                let scratch = self.scratch_at(merge).await?;
                if !git::has_remains(scratch.repo(), &update_of(merge))? {
                    return Ok(());
                }
                let recovered = git::recover(&scratch, &update_of(merge)).await?;
                tracing::warn!(run = %merge.run, ?recovered, "a complete merge was not complete on the disk");
                if recovered == RecoveryOutcome::Undone {
                    let merge = merge.clone();
                    self.store.write(move |tx| tx.reopen_merge(&merge)).await?;
                }
                Ok(())
            };
            let proven: Result<(), OpError> = proven.await;
            if let Err(error) = proven {
                tracing::error!(%error, run = %merge.run, repository = merge.repository, "a merge cannot be checked yet");
            }
        }
    }

    /// Settles what the undos of a hub that is gone have left in the trees.
    async fn settle_undos(&self) {
        let under_way = match self.store.read(undos_under_way) {
            Ok(under_way) => under_way,
            Err(error) => {
                tracing::error!(%error, "interrupted undos cannot be listed");
                return;
            }
        };
        for undo in under_way {
            let settled = async {
                let Some(run) = self
                    .store
                    .read(|connection| run_by_id(connection, undo.run))?
                else {
                    return Ok(());
                };
                let scratch = self.trees.scratch_of(&run).await?;
                settle_undo(&scratch, &undo).await
            };
            let settled: Result<(), OpError> = settled.await;
            if let Err(error) = settled {
                tracing::error!(%error, run = %undo.run, "what an interrupted undo has left cannot be settled yet");
            }
        }
    }

    /// Recovers the merges of one repository, or of all. The caller holds the lock for tree
    /// changes.
    pub(super) async fn recover_all(&self, repository: Option<&str>) {
        let under_way = match self.store.read(merges_under_way) {
            Ok(under_way) => under_way,
            Err(error) => {
                tracing::error!(%error, "interrupted merges cannot be listed");
                return;
            }
        };
        for merge in under_way
            .iter()
            .filter(|merge| repository.is_none_or(|repository| merge.repository == repository))
        {
            if let Err(error) = self.recover_merge(merge).await {
                tracing::error!(%error, run = %merge.run, repository = merge.repository, "an interrupted merge cannot be recovered yet");
            }
        }
    }

    async fn recover_merge(&self, merge: &Merge) -> Result<(), OpError> {
        let scratch = self.scratch_at(merge).await?;
        let is_branch = merge.mode == adjutant_core::merge::MergeMode::Branch;
        let recovered = match &merge.git_ref {
            // A branch is created atomically.
            Some(git_ref)
                if is_branch && scratch.repo().has_commit(git_ref, &merge.after).await? =>
            {
                RecoveryOutcome::Finished
            }
            _ if is_branch => RecoveryOutcome::Undone,
            _ => git::recover(&scratch, &update_of(merge)).await?,
        };
        tracing::info!(run = %merge.run, ?recovered, "an interrupted merge is recovered");
        self.record_end(merge, recovered).await
    }

    /// Records how a merge ended.
    pub(super) async fn record_end(
        &self,
        merge: &Merge,
        recovered: RecoveryOutcome,
    ) -> Result<(), OpError> {
        let merge = merge.clone();
        let text = describe(&merge);
        let resolved = match recovered {
            RecoveryOutcome::Finished => self.resolved_snapshots(&merge).await?,
            RecoveryOutcome::Undone => Vec::new(),
        };
        let end = move |tx: &mut crate::store::Tx<'_>| match recovered {
            RecoveryOutcome::Finished => tx.finish_merge(&merge, &text, &resolved),
            RecoveryOutcome::Undone => tx.forget_merge(&merge),
        };
        Ok(self.store.write(end).await?)
    }

    /// Lists the runs whose conflicts a merged run resolves, each with the snapshot that it was
    /// given of it.
    async fn resolved_snapshots(&self, merge: &Merge) -> Result<Vec<(RunId, u32)>, OpError> {
        let pairs = self
            .store
            .read(|connection| resolved_below(connection, merge.run))?;
        let mut resolved = Vec::new();
        if pairs.is_empty() {
            return Ok(resolved);
        }
        let scratch = self.scratch_at(merge).await?;
        for (by, run) in pairs {
            resolved.extend(
                git::resolved_snapshot(&scratch, run, by)
                    .await?
                    .map(|snapshot| (run, snapshot)),
            );
        }
        Ok(resolved)
    }

    /// Opens the user's repository of a merge.
    async fn scratch_at(&self, merge: &Merge) -> Result<Scratch, OpError> {
        self.trees
            .user_scratch(&merge.run.to_string(), &merge.repository)
            .await
    }

    /// Removes remaining directories of discarded workspaces.
    async fn remove_discarded(&self) -> Result<(), OpError> {
        for workspace in self.store.read(discarded_workspaces)? {
            let parent = Path::new(&workspace.path)
                .parent()
                .unwrap_or(Path::new(&workspace.path));
            if files::open_dir(&self.home.dir, parent).is_ok()
                && let Err(error) = self.workspaces.remove(&workspace).await
            {
                tracing::warn!(%error, run = %workspace.run, "the workspace of a discarded run cannot be removed yet");
            }
        }
        Ok(())
    }
}

/// Returns the change of the user's repository that a merge makes.
pub(super) fn update_of(merge: &Merge) -> Update {
    let Merge {
        run,
        n,
        mode: _,
        repository: _,
        git_ref,
        before,
        after,
        snapshot: _,
        user_name,
        user_email,
        reason,
        by: _,
    } = merge;
    Update {
        name: format!("{run}-{n}"),
        git_ref: git_ref.clone(),
        before: before.clone(),
        after: after.clone(),
        who: Identity {
            name: user_name.clone(),
            email: user_email.clone(),
        },
        reason: reason.clone(),
    }
}

/// Describes a merge for its event.
fn describe(merge: &Merge) -> String {
    let into = merge
        .git_ref
        .as_deref()
        .map_or("the tree, without a commit", |git_ref| {
            git_ref.strip_prefix("refs/heads/").unwrap_or(git_ref)
        });
    format!(
        "{} into {into}: {}, snapshot {}",
        merge.mode.word(),
        merge.after,
        merge.snapshot
    )
}
