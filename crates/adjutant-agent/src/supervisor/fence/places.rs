//! The directories that the plan of a fence depends on, without links, and why there is no plan.

use super::state::ChangeableLink;
use crate::protocol::{AttemptDir, FenceOrder, Order};
use adjutant_core::Isolation;
use adjutant_core::fence::{UnfitWorkspace, shared_workspace};
use std::io;
use std::path::{Path, PathBuf};

/// Why there can be no fence.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlanError {
    #[error("a worktree writes to its repository; use isolation = \"clone\"")]
    Worktree,
    #[error(transparent)]
    Workspace(#[from] UnfitWorkspace),
    #[error("its working directory {} has become a link to {}", cwd.display(), target.display())]
    CwdIsLink { cwd: PathBuf, target: PathBuf },
    #[error(
        "the shared cache {} has become a link to {}: remove it",
        cache.display(),
        target.display()
    )]
    CacheIsLink { cache: PathBuf, target: PathBuf },
    #[error(transparent)]
    ChangeableLink(#[from] ChangeableLink),
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
    /// The error names its path.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The directories of an attempt and of its user. All but `dir` are without links.
#[derive(Debug)]
pub(super) struct Places {
    pub dir: AttemptDir,
    pub user_home: Option<PathBuf>,
    /// Adjutant's home.
    pub home: PathBuf,
    pub cwd: PathBuf,
    /// The top of what the run changes.
    pub workspace: PathBuf,
    /// The repository of an isolated workspace.
    pub repository: Option<PathBuf>,
}

impl Places {
    /// Resolves the directories of an order.
    ///
    /// # Errors
    /// One is missing, cannot be fenced, or is no longer what it was when the run was dispatched.
    pub(super) fn of(order: &Order, fence: &FenceOrder) -> Result<Self, PlanError> {
        let user_home = order
            .env
            .get("HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .and_then(|path| path.canonicalize().ok());
        let home = canonical(&order.home)?;
        let cwd = canonical(&order.cwd)?;
        let workspace = match &order.workspace {
            Some(own) if Isolation::from_word(&own.isolation) == Some(Isolation::Worktree) => {
                return Err(PlanError::Worktree);
            }
            Some(own) => canonical(&own.path)?,
            // The top of the repository as it was at the dispatch: an agent can remove the `.git`
            // of a nested one.
            None => {
                let top = fence
                    .workspace
                    .as_deref()
                    .filter(|top| cwd.starts_with(top));
                shared_workspace(&cwd, top, user_home.as_deref(), &home)?
            }
        };
        // Both were without links when the run was dispatched.
        if order.workspace.is_none() && cwd != order.cwd
            || order.workspace.is_some() && !cwd.starts_with(&workspace)
        {
            return Err(PlanError::CwdIsLink {
                cwd: order.cwd.clone(),
                target: cwd,
            });
        }
        let repository = order
            .workspace
            .as_ref()
            .and_then(|own| own.repository.canonicalize().ok());
        Ok(Self {
            dir: AttemptDir::new(&order.home, &order.run_id, order.attempt),
            user_home,
            home,
            cwd,
            workspace,
            repository,
        })
    }

    /// Returns whether a path may be writable because the configuration or a preset names it.
    /// Nothing in the home is, except the attempt's own files, and no directory that contains the
    /// user's home.
    pub(super) fn allows_writing(&self, path: &Path) -> bool {
        let contains_user_home = self
            .user_home
            .as_ref()
            .is_some_and(|user_home| user_home.starts_with(path));
        !path.starts_with(&self.home) && path != Path::new("/") && !contains_user_home
    }
}

/// Returns a path without links.
pub(super) fn canonical(path: &Path) -> Result<PathBuf, PlanError> {
    path.canonicalize().map_err(|source| PlanError::Path {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The directories of a run of the user `u`, none of which exists.
    pub(in super::super) fn places() -> Places {
        let home = PathBuf::from("/home/u/.local/state/adjutant");
        Places {
            dir: AttemptDir::new(&home, "run", 1),
            user_home: Some("/home/u".into()),
            home,
            cwd: "/home/u/p/src".into(),
            workspace: "/home/u/p".into(),
            repository: None,
        }
    }

    #[test]
    fn homes_and_directories_that_contain_them_stay_read_only() {
        let places = places();
        for refused in [
            "/",
            "/home",
            "/home/u",
            "/home/u/.local/state/adjutant",
            "/home/u/.local/state/adjutant/caches",
        ] {
            assert!(!places.allows_writing(Path::new(refused)), "{refused}");
        }
        for allowed in ["/home/u/.codex", "/home/other", "/opt/data"] {
            assert!(places.allows_writing(Path::new(allowed)), "{allowed}");
        }
        let without_user_home = Places {
            user_home: None,
            ..places
        };
        assert!(without_user_home.allows_writing(Path::new("/home")));
        assert!(!without_user_home.allows_writing(Path::new("/")));
    }
}
