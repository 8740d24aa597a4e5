//! The trees of runs: opening them, taking and listing their snapshots, and the locks of their
//! files.

use super::OpError;
use crate::clock::{self, rfc3339};
use crate::config::{self, Home};
use crate::git::{
    self, Git, GitError, NewSnapshot, Repo, Scratch, Snapshot, TakenSnapshot, WorkspacePath,
};
use crate::protocol::AttemptEvidence;
use crate::store::{Run, Store, Workspace, workspace_around, workspace_of};
use crate::view::SnapshotView;
use adjutant_core::snapshot::{SnapshotCause, TreeWork};
use adjutant_core::{Denied, RunId, Time};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockWriteGuard, RwLock};

/// How long taking a snapshot of a lost attempt's tree may delay its recovery.
const KEEP_MAX: Duration = Duration::from_secs(10);
/// How long a change of a tree may delay the end of a hub.
const END_MAX: Duration = Duration::from_secs(10);
/// How long showing a run may wait for the list of its snapshots.
const LIST_MAX: Duration = Duration::from_secs(5);
/// Maximum number of changed files of a lost attempt that are listed.
const CHANGED_MAX: usize = 500;

/// The trees of runs, and the locks of their files. Clones share the locks.
#[derive(Debug, Clone)]
pub struct Trees {
    store: Store,
    home: Arc<Home>,
    /// Held while the files of a tree are changed.
    changes: Arc<Mutex<()>>,
    /// Held for writing while an undo replaces files: a run that was claimed meanwhile starts
    /// afterwards.
    restoring: Arc<RwLock<()>>,
}

impl Trees {
    pub(super) fn new(store: Store, home: Arc<Home>) -> Self {
        Self {
            store,
            home,
            changes: Arc::default(),
            restoring: Arc::default(),
        }
    }

    /// Waits until the files of no tree are changed. The caller may change those of one.
    pub(super) async fn lock(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.changes).lock_owned().await
    }

    /// Waits until no tree is being changed, so that the next hub finds a consistent state.
    pub async fn changes_end(&self) {
        if tokio::time::timeout(END_MAX, self.changes.lock())
            .await
            .is_err()
        {
            tracing::warn!("a change of a tree is not complete: the next hub completes it");
        }
    }

    /// Waits until no other undo replaces files. No run starts until the caller has replaced those
    /// of its undo.
    pub(super) async fn start_restoring(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.restoring).write_owned().await
    }

    /// Waits until no undo replaces files.
    pub async fn undos_end(&self) {
        drop(self.restoring.read().await);
    }

    /// Lists the snapshots of a run's tree. Empty if there is no repository, or if git fails, which
    /// is logged. Also says if the repository or the directory of the run is gone.
    pub(super) async fn snapshots_of(&self, run: &Run) -> (Vec<SnapshotView>, Option<String>) {
        let listed = async { Ok(git::snapshots(&self.repo_of(run).await?, run.id).await?) };
        let Ok(listed) = tokio::time::timeout(LIST_MAX, listed).await else {
            tracing::warn!(run = %run.id, "the snapshots of a run cannot be listed: git took too long");
            return (Vec::new(), None);
        };
        match listed {
            Ok(snapshots) => (
                snapshots
                    .iter()
                    .map(|snapshot| view(run.id, snapshot))
                    .collect(),
                None,
            ),
            Err(OpError::Git(
                error @ (GitError::RepositoryGone { .. } | GitError::DirectoryGone(_)),
            )) => (Vec::new(), Some(error.to_string())),
            Err(OpError::Git(error)) if error.is_without_repository() => (Vec::new(), None),
            Err(error) => {
                tracing::warn!(%error, run = %run.id, "the snapshots of a run cannot be listed");
                (Vec::new(), None)
            }
        }
    }

    /// Returns the files in a run's commits that were copied into its workspace from outside of
    /// git, such as `.env`. Empty if that is unknown, which is logged.
    pub(super) async fn committed_copies(&self, run: &Run) -> Vec<String> {
        let found = async {
            let (repo, workspace) = self.repo_and_workspace(run).await?;
            let Some(workspace) = workspace.filter(|workspace| !workspace.spec.copy.is_empty())
            else {
                return Ok(Vec::new());
            };
            let scratch = self.scratch_of(run).await?;
            let mut found = git::copies_in_commits(&scratch).await?;
            // Those that were kept as they are, because the user's branches have them in the
            // meantime.
            let tips = git::branch_tips(&repo, run.id).await?;
            if !tips.is_empty() {
                found.extend(
                    scratch
                        .committed_copies(&workspace.spec.copy, &workspace.base, &tips)
                        .await?,
                );
            }
            found.sort_unstable();
            found.dedup();
            Ok::<_, OpError>(found)
        };
        match tokio::time::timeout(LIST_MAX, found).await {
            Ok(Ok(found)) => return found,
            Ok(Err(OpError::Git(error))) if error.is_without_repository() => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, run = %run.id, "whether commits of a run have copied files is not known")
            }
            Err(_) => {
                tracing::warn!(run = %run.id, "the commits of a run cannot be checked for copied files: git took too long")
            }
        }
        Vec::new()
    }

    /// Takes a snapshot of the tree of an attempt whose supervisor has died, and returns the
    /// changes of the attempt. `None`: unknown, or no repository. Failures are logged; the tree
    /// itself remains.
    pub(super) async fn snapshot_after_loss(&self, run: &Run) -> Option<AttemptEvidence> {
        let kept = async {
            let scratch = self.scratch_of(run).await?;
            if scratch.is_torn() {
                let problem = "the machine stopped before all its files were on disk; a new attempt sets it aside and creates it again";
                return Err(Denied::conflict("workspace", problem).into());
            }
            if !scratch.has_tree() {
                return Ok(None);
            }
            let taken = take_snapshot(&scratch, run, SnapshotCause::End).await?;
            self.compare_later(run, &taken).await?;
            let made = git::keep_commits(&scratch, run.id).await?;
            if let Some(why) = made.problem() {
                let id = run.id;
                self.store
                    .write(move |tx| tx.set_snapshot_problem(&tx.run(id)?, &why, "hub"))
                    .await?;
            }
            self.changes_until(&scratch, run, &taken.snapshot, made.head)
                .await
                .map(Some)
        };
        let why = match tokio::time::timeout(KEEP_MAX, kept).await {
            Ok(Ok(changes)) => return changes,
            Ok(Err(OpError::Git(error))) if error.is_without_repository() => return None,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "git took too long".to_owned(),
        };
        tracing::error!(why, run = %run.id, "no snapshot of a lost attempt's tree could be taken");
        let id = run.id;
        let noted = self.store.write(move |tx| {
            let run = tx.run(id)?;
            tx.set_snapshot_problem(&run, &why, "hub")
        });
        if let Err(error) = noted.await {
            tracing::error!(%error, run = %run.id, "cannot record that a snapshot failed");
        }
        None
    }

    /// Schedules a comparison of the newest snapshot of an isolated run with those of its siblings.
    pub(super) async fn compare_later(
        &self,
        run: &Run,
        taken: &TakenSnapshot,
    ) -> Result<(), OpError> {
        let id = run.id;
        if !taken.is_new
            || self
                .store
                .read(|connection| workspace_of(connection, id))?
                .is_none()
        {
            return Ok(());
        }
        Ok(self
            .store
            .write(move |tx| tx.add_tree_work(id, TreeWork::Compare))
            .await?)
    }

    /// Lists what an attempt has changed from its start up to a snapshot. `made`: the agent's
    /// commit in an isolated workspace.
    async fn changes_until(
        &self,
        scratch: &Scratch,
        run: &Run,
        end: &Snapshot,
        made: Option<String>,
    ) -> Result<AttemptEvidence, OpError> {
        let all = git::snapshots(scratch.repo(), run.id).await?;
        let start = all.iter().rev().find(|taken| {
            taken.attempt == Some(run.attempt) && taken.cause == Some(SnapshotCause::Start)
        });
        let from = match start {
            Some(start) => Some(start.commit.clone()),
            None => scratch.base().await?,
        };
        let Some(from) = from else {
            return Ok(AttemptEvidence::default());
        };
        let listed = scratch.list(&from, &end.commit).await?;
        let below = &scratch.repo().below;
        let mut files = listed
            .iter()
            .map(|listed| String::from_utf8_lossy(&listed.path).into_owned())
            .filter(|path| Path::new(path).starts_with(below));
        let changed: Vec<String> = files.by_ref().take(CHANGED_MAX).collect();
        let workspace = self
            .store
            .read(|connection| workspace_of(connection, run.id))?;
        let commits = match (workspace, made) {
            (Some(workspace), Some(made)) if workspace.base != made => {
                scratch.commits(&workspace.base, &made).await?
            }
            _ => Vec::new(),
        };
        Ok(AttemptEvidence {
            changed: Some(changed),
            changed_cut: files.next().is_some(),
            commits,
            changed_since_start: start.is_some(),
            ..AttemptEvidence::default()
        })
    }

    /// Removes the snapshots of a run that is removed. Failures are logged.
    pub(super) async fn remove_snapshots(&self, run: &Run) {
        let removed = async { Ok(git::remove_all(&self.repo_of(run).await?, run.id).await?) };
        match removed.await {
            Ok(()) => {}
            Err(OpError::Git(error)) if error.is_without_repository() => {}
            Err(error) => {
                tracing::warn!(%error, run = %run.id, "the snapshots of a removed run stay in its repository")
            }
        }
    }

    pub(super) async fn scratch_of(&self, run: &Run) -> Result<Scratch, OpError> {
        self.open_tree(
            run,
            &format!("git-{}", crate::hub_client::random_hex::<8>()),
            None,
        )
        .await
    }

    /// Returns a scratch directory for the snapshot after a turn: the one that the last such
    /// snapshot used, if it is current.
    pub(super) async fn scratch_after(
        &self,
        run: &Run,
        last: Option<Scratch>,
    ) -> Result<Scratch, OpError> {
        // A directory left by a killed hub is replaced.
        self.open_tree(run, "git-turn", last).await
    }

    async fn open_tree(
        &self,
        run: &Run,
        name: &str,
        last: Option<Scratch>,
    ) -> Result<Scratch, OpError> {
        let dir = self.home.runs_dir().join(run.id.to_string()).join(name);
        let (repo, workspace) = self.repo_and_workspace(run).await?;
        let boot = clock::reading().boot;
        let place = workspace.as_ref().map(
            |Workspace {
                 isolation,
                 base,
                 path,
                 ..
             }| WorkspacePath {
                isolation: *isolation,
                base,
                path: Path::new(path),
                boot: &boot,
            },
        );
        if let Some(scratch) = last.filter(|last| last.is_current(&repo, place.as_ref())) {
            return Ok(scratch);
        }
        Ok(match place {
            Some(place) => Scratch::of_workspace(repo, place, &self.home.dir, &dir).await?,
            None => Scratch::new(repo, &self.home.dir, &dir).await?,
        })
    }

    /// Creates a scratch directory for the user's tree.
    pub(super) async fn user_scratch(
        &self,
        run: &str,
        repository: &str,
    ) -> Result<Scratch, OpError> {
        let top = Path::new(repository);
        let repo = Repo::find(&Git::find(&config::git_env(None), top)?, top).await?;
        let dir = self
            .home
            .runs_dir()
            .join(run)
            .join(format!("git-{}", crate::hub_client::random_hex::<8>()));
        Ok(Scratch::new(repo, &self.home.dir, &dir).await?)
    }

    /// Finds the repository that has a run's refs: the user's, also for a run in a workspace.
    pub(super) async fn repo_of(&self, run: &Run) -> Result<Repo, OpError> {
        Ok(self.repo_and_workspace(run).await?.0)
    }

    async fn repo_and_workspace(&self, run: &Run) -> Result<(Repo, Option<Workspace>), OpError> {
        let workspace = self
            .store
            .read(|connection| workspace_around(connection, &run.cwd))?;
        let Some(workspace) = workspace else {
            return Ok((repo_around(run).await?, None));
        };
        let repository = PathBuf::from(&workspace.repository);
        let repo = match find_repo(&repository).await {
            Err(error) if error.is_not_found() || matches!(error, GitError::NotARepository(_)) => {
                return Err(GitError::RepositoryGone {
                    repository,
                    run: run.name.clone(),
                }
                .into());
            }
            found => found?,
        };
        Ok((
            repo.below(
                Path::new(&run.cwd)
                    .strip_prefix(&workspace.path)
                    .unwrap_or("".as_ref()),
            ),
            Some(workspace),
        ))
    }
}

/// Takes a snapshot of the current tree.
pub(super) async fn take_snapshot(
    scratch: &Scratch,
    run: &Run,
    cause: SnapshotCause,
) -> Result<TakenSnapshot, OpError> {
    let new = NewSnapshot {
        run: run.id,
        run_name: run.name.clone(),
        attempt: run.attempt,
        cause,
        at: clock::now(),
    };
    Ok(git::take(scratch, &new).await?)
}

async fn find_repo(dir: &Path) -> Result<Repo, GitError> {
    Repo::find(&Git::find(&config::git_env(None), dir)?, dir).await
}

/// Finds the repository around the directory of a run without a workspace. The run can have removed
/// its directory itself.
async fn repo_around(run: &Run) -> Result<Repo, GitError> {
    let dir = Path::new(&run.cwd);
    match find_repo(dir).await {
        Err(error) if error.is_not_found() => {}
        found => return found,
    }
    if let Some(above) = dir.ancestors().find(|above| above.is_dir())
        && let Ok(repo) = find_repo(above).await
        && !git::snapshots(&repo, run.id).await?.is_empty()
    {
        let below = repo
            .below
            .join(dir.strip_prefix(above).unwrap_or("".as_ref()));
        return Ok(repo.below(&below));
    }
    Err(GitError::DirectoryGone(dir.to_owned()))
}

/// Finds the snapshot with a number, or the default.
pub(super) fn find_snapshot<'a>(
    run: &Run,
    all: &'a [Snapshot],
    n: Option<u32>,
    default: Option<&'a Snapshot>,
) -> Result<&'a Snapshot, OpError> {
    let found = match n {
        Some(n) => all.iter().find(|snapshot| snapshot.n == n),
        None => default,
    };
    found.ok_or_else(|| {
        let (last, has) = (
            all.last().map_or(0, |last| last.n),
            if all.is_empty() {
                "no snapshot"
            } else {
                "snapshots up to"
            },
        );
        let has = if all.is_empty() {
            has.to_owned()
        } else {
            format!("{has} {last}")
        };
        Denied::invalid("snapshot", format!("{} has {has}", run.name)).into()
    })
}

pub(super) fn view(run: RunId, snapshot: &Snapshot) -> SnapshotView {
    SnapshotView {
        n: snapshot.n,
        git_ref: format!("refs/adjutant/{run}/{}", snapshot.n),
        commit: snapshot.commit.clone(),
        cause: snapshot.cause.map(Into::into),
        attempt: snapshot.attempt.map(|attempt| attempt.0),
        at: rfc3339(Time(snapshot.at_ms)),
        left_out: snapshot.left_out.clone(),
    }
}
