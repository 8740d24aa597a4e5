//! Workspaces of isolated runs: what a dispatch records, and the orders for creating them.

use super::settings::Settings;
use super::{OpError, Ops};
use crate::config::{self, Home};
use crate::failpoint::failpoint;
use crate::git::{self, Git, Scratch};
use crate::protocol::{TreeStart, WorkspaceOrder};
use crate::store::{
    Connection, NewWorkspace, Run, Store, StoreError, Workspace, last_host, run_by_id, runner_name,
    workspace_around, workspace_of,
};
use adjutant_core::{Denied, Isolation, RunId, WorkspaceSpec, WorkspaceState, hex};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a dispatch may take to store the user's uncommitted changes.
const CAPTURE_MAX: Duration = Duration::from_secs(30);
/// How long the choice of a run's base may delay its start.
const BASE_MAX: Duration = Duration::from_secs(10);
/// How long showing a run may wait for the number of commits that it is behind.
const BEHIND_MAX: Duration = Duration::from_secs(5);
/// How many characters of the hash of a repository's path are in the name of its cache directory.
const CACHE_ID_BYTES: usize = 6;

/// The workspaces of isolated runs.
#[derive(Debug, Clone)]
pub(super) struct Workspaces {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
}

impl Workspaces {
    pub(crate) fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
        }
    }

    /// Resolves the repository and the base of a new run's workspace, `with_changes` including the
    /// user's uncommitted changes. `None`: the run is not isolated.
    ///
    /// # Errors
    /// Git is missing, the directory is not in a repository with a commit, or it is in another
    /// run's workspace.
    pub(super) async fn plan(
        &self,
        cwd: &str,
        isolation: Isolation,
        with_changes: bool,
    ) -> Result<Option<NewWorkspace>, OpError> {
        if isolation == Isolation::None {
            let unusable = || {
                Denied::invalid(
                    "with_changes",
                    "a run without isolation has your changes: use isolation clone or worktree",
                )
            };
            return if with_changes {
                Err(unusable().into())
            } else {
                Ok(None)
            };
        }
        if let Some(other) = self
            .store
            .read(|connection| workspace_around(connection, cwd))?
        {
            let problem = format!(
                "{cwd} is in the workspace of another run: name a directory in {}",
                other.repository
            );
            return Err(Denied::invalid("cwd", problem).into());
        }
        let cwd = Path::new(cwd);
        let config = self.settings.config_or_builtin();
        let (repo, base) = git::find_base(&Git::find(&config::git_env(None), cwd)?, cwd).await?;
        let (repository, below) = (repo.top.display().to_string(), repo.below.clone());
        // The work trees of a repository have its settings.
        let of_repository = repo
            .common
            .parent()
            .filter(|_| repo.common.ends_with(".git"))
            .unwrap_or(&repo.top);
        let spec = config
            .workspaces
            .spec_of(&[&repo.top, of_repository])
            .clone();
        let changes = if with_changes {
            let dir = self
                .home
                .runs_dir()
                .join(format!("git-{}", crate::hub_client::random_hex::<8>()));
            // Files that are copied can be secrets: they are not kept in a commit.
            let scratch = Scratch::new(repo, &self.home.dir, &dir)
                .await?
                .without(&spec.copy);
            let captured =
                tokio::time::timeout(CAPTURE_MAX, git::capture_changes(&scratch, &base.commit))
                    .await;
            let slow = || {
                git::GitError::unusable(
                    scratch.tree(),
                    "its uncommitted changes take too long to read: ignore or commit large ones",
                )
            };
            captured.map_err(|_| slow())??
        } else {
            None
        };
        let all = self.home.workspaces_dir();
        Ok(Some(NewWorkspace {
            isolation,
            repository,
            base: base.commit,
            branch: base.branch,
            changes,
            all,
            spec,
            below,
        }))
    }

    /// Removes the directory of a workspace, and its registration if it is a work tree.
    pub(super) async fn remove(&self, workspace: &Workspace) -> Result<(), OpError> {
        let repository = Path::new(&workspace.repository);
        let repo = match workspace.isolation {
            Isolation::Worktree if repository.exists() => Some(
                git::Repo::find(&Git::find(&config::git_env(None), repository)?, repository)
                    .await?,
            ),
            // The registration was removed with the repository.
            Isolation::Worktree => None,
            Isolation::Clone | Isolation::None => None,
        };
        Ok(git::remove_workspace(
            repo.as_ref(),
            workspace.isolation,
            &self.home.dir,
            Path::new(&workspace.path),
        )
        .await?)
    }

    /// Chooses the commit that the workspace of a run is created from, when the first attempt
    /// starts that can create it: the tip of the branch that was checked out at the dispatch. What
    /// was promised at the dispatch stays: a commit without a branch, and one with the user's
    /// uncommitted changes. The store has the choice before anything uses it.
    pub(super) async fn settle_base(
        &self,
        run: RunId,
        order: &mut WorkspaceOrder,
    ) -> Result<(), OpError> {
        let found = self
            .store
            .read(|connection| workspace_of(connection, run))?;
        let Some(workspace) = found
            .filter(|of| matches!(of.state, WorkspaceState::Planned | WorkspaceState::Starting))
        else {
            return Ok(());
        };
        let repository = Path::new(&workspace.repository);
        let mut repo = None;
        let mut base = workspace.base.clone();
        let chosen = async {
            let found =
                git::Repo::find(&Git::find(&config::git_env(None), repository)?, repository)
                    .await?;
            if workspace.state == WorkspaceState::Planned && workspace.changes.is_none() {
                let tip = match &workspace.branch {
                    Some(branch) => found.commit_of(&format!("refs/heads/{branch}")).await?,
                    None => None,
                };
                base = tip.unwrap_or(base.clone());
            }
            repo = Some(found);
            Ok::<_, git::GitError>(())
        };
        match tokio::time::timeout(BASE_MAX, chosen).await {
            Ok(Ok(())) => {}
            // The supervisor reports what is wrong with the repository.
            Ok(Err(error)) => {
                tracing::warn!(%error, %run, "a run starts from the commit of its dispatch")
            }
            Err(_) => {
                tracing::warn!(%run, "a run starts from the commit of its dispatch: git took too long")
            }
        }
        let choice = base.clone();
        self.store
            .write(move |tx| tx.set_base(run, &choice))
            .await?;
        failpoint!("base.after_choice");
        if let Some(repo) =
            repo.filter(|_| base != order.base || workspace.state == WorkspaceState::Starting)
        {
            // The supervisor reports what is wrong with the repository, and other runs can start.
            if let Err(error) = git::move_base(&repo, run, &base).await {
                tracing::warn!(%error, %run, "the ref of the commit from which a run starts cannot be moved yet");
            }
        }
        order.base = base;
        Ok(())
    }

    /// Returns how many commits the branch that a workspace was created from has had since. `None`:
    /// there is no such branch, or git failed, which is logged.
    pub(super) async fn behind_of(&self, run: RunId) -> Option<u64> {
        let counted = async {
            let Some(workspace) = self
                .store
                .read(|connection| workspace_of(connection, run))?
            else {
                return Ok(None);
            };
            let Some(branch) = &workspace.branch else {
                return Ok(None);
            };
            let repository = Path::new(&workspace.repository);
            let repo = git::Repo::find(&Git::find(&config::git_env(None), repository)?, repository)
                .await?;
            Ok::<_, OpError>(
                repo.commits_since(&workspace.base, &format!("refs/heads/{branch}"))
                    .await?,
            )
        };
        match tokio::time::timeout(BEHIND_MAX, counted).await {
            Ok(Ok(behind)) => behind,
            Ok(Err(error)) => {
                tracing::debug!(%error, %run, "how far a run is behind its branch is not known");
                None
            }
            Err(_) => None,
        }
    }

    /// Pins the base of a new run with a ref in its repository. A failure is logged; the supervisor
    /// tries again.
    pub(super) async fn pin_base(&self, run: RunId, new: &NewWorkspace) {
        let repository = Path::new(&new.repository);
        let pinned = async {
            let repo = git::Repo::find(&Git::find(&config::git_env(None), repository)?, repository)
                .await?;
            git::pin_base(&repo, run, &new.base, new.changes.as_deref()).await
        };
        if let Err(error) = pinned.await {
            tracing::warn!(%error, %run, "the base of a run is not pinned yet");
        }
    }
}

/// Returns the name of the runner on which a run has worked last, so that its workspace is there.
/// `None`: on this machine, or nowhere yet.
pub(super) fn runner_of(store: &Store, run: &Run) -> Result<Option<String>, StoreError> {
    let host = store
        .read(|connection| last_host(connection, run.id, None))?
        .flatten();
    Ok(host.map(|host| runner_name(&host).to_owned()))
}

/// The base of the changes of an isolated run.
#[derive(Debug, Clone)]
pub(super) struct MergeBase {
    pub commit: String,
    /// The commit may be a parent of the run's commits. Otherwise it is a snapshot, which stays
    /// hidden.
    pub is_public: bool,
}

/// Returns the base of the changes of an isolated run. Uncommitted changes that it started with are
/// not its own.
pub(super) fn workspace_base(workspace: &Workspace) -> MergeBase {
    match &workspace.changes {
        Some(changes) => MergeBase {
            commit: changes.clone(),
            is_public: false,
        },
        None => MergeBase {
            commit: workspace.base.clone(),
            is_public: true,
        },
    }
}

/// Returns the order to make a workspace, for the attempts of the runs that work in it.
pub(super) fn order_of(
    connection: &Connection,
    home: &Home,
    found: Workspace,
) -> Result<WorkspaceOrder, StoreError> {
    let caches = cache_dirs(home, &found).into_values().collect();
    let Workspace {
        run,
        isolation,
        repository,
        base,
        branch,
        changes,
        path,
        state: _,
        spec,
        preparation: _,
    } = found;
    let WorkspaceSpec {
        setup,
        setup_timeout_ms,
        copy,
        caches: _,
        ports: _,
    } = spec;
    let run_name = run_by_id(connection, run)?.map_or_else(String::new, |run| run.name);
    Ok(WorkspaceOrder {
        isolation: isolation.word().to_owned(),
        repository: PathBuf::from(repository),
        base,
        branch,
        changes,
        path: PathBuf::from(path),
        copy,
        setup,
        setup_timeout_ms,
        caches,
        start: TreeStart::default(),
        run_id: run.to_string(),
        run_name,
    })
}

/// Returns the directory that has the shared caches of a repository.
pub(super) fn cache_root(home: &Home, repository: &str) -> PathBuf {
    let id = hex(&Sha256::digest(repository)[..CACHE_ID_BYTES]);
    let name = Path::new(repository)
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    home.caches_dir().join(format!("{name}-{id}"))
}

/// Returns whether a name below the directory of caches has the form of [`cache_root`].
pub(super) fn is_cache_root(name: &str) -> bool {
    name.rsplit_once('-').is_some_and(|(_, id)| {
        id.len() == 2 * CACHE_ID_BYTES && id.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Returns the directories that a workspace shares with others of its repository, by the variables
/// that name them.
pub(super) fn cache_dirs(home: &Home, workspace: &Workspace) -> BTreeMap<String, PathBuf> {
    let of_repository = cache_root(home, &workspace.repository);
    // An absolute directory replaces that of the repository.
    workspace
        .spec
        .caches
        .iter()
        .map(|(variable, dir)| (variable.clone(), of_repository.join(dir)))
        .collect()
}

/// Returns the directory whose agent configuration applies to a run: its working directory or,
/// until its workspace exists, the corresponding directory of the user's repository.
pub(super) fn source_of(cwd: &str, workspace: Option<&WorkspaceOrder>) -> String {
    match workspace {
        Some(workspace) if !Path::new(cwd).exists() => {
            let below = Path::new(cwd)
                .strip_prefix(&workspace.path)
                .unwrap_or("".as_ref());
            // Joining an empty path would append a slash, and trust is given by the name.
            let source = if below.as_os_str().is_empty() {
                workspace.repository.clone()
            } else {
                workspace.repository.join(below)
            };
            source.display().to_string()
        }
        _ => cwd.to_owned(),
    }
}
