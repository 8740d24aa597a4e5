//! The repositories of runs on runners: sends them to the runner, and stores the work of the runs.

use super::{check_hosted, find_placed};
use crate::config::Home;
use crate::git::{self, CarriedSettings, GitError, KeptAs, RunRefs};
use crate::named_locks::{NamedLock, NamedLocks};
use crate::ops::runner_sessions::RunnerSession;
use crate::ops::trees::Trees;
use crate::ops::{AttemptId, OpError};
use crate::protocol::{
    BUNDLE_LINE_BYTES_MAX, GetRepository, REPOSITORY_BYTES_MAX, RepositoryBundle, RunRefsReply,
    SnapshotsBundle, WORK_BYTES_MAX,
};
use crate::spool;
use crate::store::{Run, Store, run_by_id, workspace_of};
use adjutant_core::{Denied, WorkspaceState};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;

/// The repositories of runs on runners. Clones share the locks.
#[derive(Debug, Clone)]
pub struct HostedRepositories {
    store: Store,
    home: Arc<Home>,
    trees: Trees,
    /// One for each attempt whose repository is packed or whose work is received: a runner cannot
    /// fill the disk by repeating a call.
    bundles: NamedLocks,
}

impl HostedRepositories {
    pub(in crate::ops) fn new(store: Store, home: Arc<Home>, trees: Trees) -> Self {
        Self {
            store,
            home,
            trees,
            bundles: NamedLocks::default(),
        }
    }

    /// Makes the bundle with the repository that a run works in. The file is read from its
    /// beginning.
    ///
    /// # Errors
    /// The attempt is not on this runner or has ended; the repository is gone or too large; git or
    /// the disk failed.
    pub async fn bundle(
        &self,
        session: &RunnerSession,
        call: &GetRepository,
    ) -> Result<File, OpError> {
        let (id, run) = self.hosted_run(session, &call.attempt)?;
        let workspace = self
            .store
            .read(|connection| workspace_of(connection, run.id))?;
        let _one = self.bundles.lock(&call.attempt).await;
        let workspace = workspace.ok_or_else(|| {
            Denied::conflict("run", format!("{} has no workspace of its own", run.name))
        })?;
        let scratch = self.trees.scratch_of(&run).await?;
        let repo = scratch.repo();
        let refs = {
            // What an earlier attempt sends is stored before, or refused.
            let _only = self.trees.lock().await;
            // The runner's supervisor cannot do it.
            git::pin_base(repo, run.id, &workspace.base, workspace.changes.as_deref()).await?;
            git::carried_refs(repo, run.id).await?
        };
        let carried = repo.carried_settings().await?;
        let wanted: Vec<String> = refs.values().cloned().collect();
        let CarriedSettings {
            object_format,
            settings,
            patterns,
            shallow,
        } = carried;
        let mut file = self.spool(id)?;
        let line = RepositoryBundle {
            refs,
            object_format,
            settings,
            patterns,
            shallow,
        };
        let to = spool::write_line(&mut file, &line).map_err(of_spool)?;
        git::write_pack(&scratch, &wanted, &call.known, to, REPOSITORY_BYTES_MAX).await?;
        file.seek(SeekFrom::Start(0)).map_err(of_spool)?;
        Ok(file)
    }

    /// Returns the refs of the run of an attempt.
    ///
    /// # Errors
    /// The attempt is not on this runner, or nothing of its work can be missing; git failed, which
    /// is recorded with the run.
    pub async fn refs(
        &self,
        session: &RunnerSession,
        attempt: &str,
    ) -> Result<RunRefsReply, OpError> {
        let (_, run, _) = self.run_of_work(session, attempt)?;
        let refs = async { Ok(git::carried_refs(&self.trees.repo_of(&run).await?, run.id).await?) };
        match refs.await {
            Ok(refs) => Ok(RunRefsReply { refs }),
            Err(error) => Err(self.note_not_stored(&run, error).await?),
        }
    }

    /// Returns a file for the work of an attempt that its runner sends. The lock is held while the
    /// work is received: another call for the same attempt waits for it.
    ///
    /// # Errors
    /// The attempt is not on this runner, or nothing of its work can be missing; the disk failed.
    pub async fn file_for_work(
        &self,
        session: &RunnerSession,
        attempt: &str,
    ) -> Result<(File, NamedLock), OpError> {
        let (id, _, _) = self.run_of_work(session, attempt)?;
        let one = self.bundles.lock(&format!("work of {attempt}")).await;
        Ok((self.spool(id)?, one))
    }

    /// Stores the work of an attempt in the user's repository, as objects and refs of its run.
    /// Returns when it is durable. May be repeated. The attempt may have ended if its work was not
    /// stored.
    ///
    /// # Errors
    /// The attempt is not on this runner, or nothing of its work can be missing. It is not work of
    /// the run, or git failed, which is recorded with the run.
    pub async fn accept_work(
        &self,
        session: &RunnerSession,
        attempt: &str,
        mut file: File,
    ) -> Result<(), OpError> {
        let SnapshotsBundle { refs, problem } =
            match spool::read_line(&mut file, BUNDLE_LINE_BYTES_MAX) {
                Ok(line) => line,
                Err(error) => return Err(Denied::invalid("body", error.to_string()).into()),
            };
        // No merge, discard or cleanup of the run at the same time, and no fetch by a later
        // attempt.
        let _only = self.trees.lock().await;
        let (_, run, kept) = self.run_of_work(session, attempt)?;
        let accepted = match problem {
            Some(problem) => Err(GitError::NotAccepted(problem).into()),
            None => self.store_work(&run, &refs, kept, file).await,
        };
        match accepted {
            Ok(()) if run.snapshot_problem.is_some() && kept == KeptAs::Refs => Ok(self
                .store
                .write(move |tx| tx.clear_snapshot_problem(run.id))
                .await?),
            Ok(()) => Ok(()),
            Err(error) => Err(self.note_not_stored(&run, error).await?),
        }
    }

    async fn store_work(
        &self,
        run: &Run,
        refs: &RunRefs,
        kept: KeptAs,
        mut file: File,
    ) -> Result<(), OpError> {
        let (at, end) = (file.stream_position(), file.metadata());
        let has_pack = end.map_err(of_spool)?.len() > at.map_err(of_spool)?;
        let scratch = self.trees.scratch_of(run).await?;
        Ok(git::accept_work(
            &scratch,
            run.id,
            refs,
            kept,
            has_pack.then_some(file),
            WORK_BYTES_MAX,
        )
        .await?)
    }

    /// Records why the work of a run is only on its runner. Returns the error for the runner, which
    /// says whether the call can succeed later.
    async fn note_not_stored(&self, run: &Run, error: OpError) -> Result<OpError, OpError> {
        let error = match error {
            OpError::Git(
                error @ (GitError::RepositoryGone { .. }
                | GitError::DirectoryGone(_)
                | GitError::Unusable { .. }
                | GitError::Missing
                | GitError::Slow { .. }
                | GitError::Failed { .. }),
            ) => OpError::Io(error.to_string()),
            error => error,
        };
        let (why, id) = (error.to_string(), run.id);
        let noted = self.store.write(move |tx| {
            let run = tx.run(id)?;
            tx.set_snapshot_problem(&run, &why, "hub")
        });
        noted.await?;
        Ok(error)
    }

    /// Returns the run of a live attempt on a runner.
    fn hosted_run(
        &self,
        session: &RunnerSession,
        attempt: &str,
    ) -> Result<(AttemptId, Run), OpError> {
        let id = check_hosted(&self.store, session, attempt)?;
        let run = self
            .store
            .read(|connection| run_by_id(connection, id.run))?
            .filter(|run| run.attempt == id.n && run.state.is_live());
        Ok((
            id,
            run.ok_or_else(|| Denied::conflict("attempt", format!("{id} has ended")))?,
        ))
    }

    /// Returns the run of an attempt whose work its runner may send, and how the work is kept.
    /// These are live attempts, lost ones, and those whose work could not be stored. After other
    /// attempts, a runner could change work that a person has reviewed.
    fn run_of_work(
        &self,
        session: &RunnerSession,
        attempt: &str,
    ) -> Result<(AttemptId, Run, KeptAs), OpError> {
        let (id, row) = find_placed(&self.store, session, attempt)?;
        let (run, workspace) = self.store.read(|connection| {
            Ok((
                run_by_id(connection, id.run)?,
                workspace_of(connection, id.run)?,
            ))
        })?;
        let run = run.ok_or_else(|| Denied::not_found("run", &id.run.to_string()))?;
        let is_last = run.attempt == id.n;
        let is_missing = row.lost_at.is_some()
            || (is_last && (run.state.is_live() || run.snapshot_problem.is_some()));
        if !is_missing {
            return Err(Denied::conflict("attempt", format!("{id} has ended")).into());
        }
        let is_merged =
            workspace.is_some_and(|workspace| workspace.state == WorkspaceState::Merged);
        // Later attempts and the merge have not seen it.
        let kept = if is_last && !is_merged {
            KeptAs::Refs
        } else {
            KeptAs::Commits
        };
        Ok((id, run, kept))
    }

    fn spool(&self, id: AttemptId) -> Result<File, OpError> {
        spool::create(
            &self.home.dir,
            &self.home.runs_dir().join(id.run.to_string()),
        )
        .map_err(of_spool)
    }
}

fn of_spool(error: std::io::Error) -> OpError {
    OpError::Io(format!("a file for a bundle: {error}"))
}
