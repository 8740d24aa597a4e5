//! Finds work in nested repositories that a snapshot of the tree does not contain: a snapshot
//! stores only the commit of each.
//!
//! The configuration of a nested repository is not trusted and not read. Its files are compared
//! with a copy of its index through Adjutant's git directory; from its own git directory, only refs
//! are read.

use super::call::{Call, error_text};
use super::contents::links;
use super::index_file::copy_index;
use super::paths::as_path;
use super::snapshot::LeftOut;
use super::{GitError, Repo, Scratch};
use crate::files;
use adjutant_core::Isolation;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};
use tokio::time::Instant;

/// Maximum number of nested repositories to examine.
const REPOSITORIES_MAX: usize = 200;

/// Timeout for examining all of them. Their git directories can contain FIFOs instead of files.
const EXAMINED_MAX: Duration = Duration::from_secs(5);

/// The reason for which a snapshot does not contain the changes in a nested repository.
const UNCOMMITTED: &str = "uncommitted changes in a nested repository";

/// The reason for which a snapshot does not contain the commits of a nested repository.
pub(super) const ONLY_INSIDE: &str =
    "commits that are only in a nested repository: merge the run, or push them";

/// Maximum size of `.gitmodules`, in bytes, and maximum number of empty submodules to list.
const GITMODULES_BYTES_MAX: u64 = 1024 * 1024;
const EMPTY_NAMED_MAX: usize = 20;

/// Lists the submodules of a workspace with empty directories. Creating a workspace fetches
/// nothing.
#[must_use]
pub fn empty_submodules(home: &Path, workspace: &Path) -> Vec<String> {
    let Ok(text) = files::read(home, &workspace.join(".gitmodules"), GITMODULES_BYTES_MAX) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&text);
    let paths = text
        .lines()
        .filter_map(|line| {
            line.trim()
                .strip_prefix("path")?
                .trim_start()
                .strip_prefix('=')
        })
        .map(|path| path.trim().trim_matches('"'));
    let is_below = |path: &&str| {
        !path.is_empty()
            && Path::new(path)
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)))
    };
    let is_empty = |path: &&str| {
        let dir = workspace.join(path);
        dir.symlink_metadata().is_ok_and(|meta| meta.is_dir())
            && fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
    };
    paths
        .filter(is_below)
        .filter(is_empty)
        .take(EMPTY_NAMED_MAX)
        .map(str::to_owned)
        .collect()
}

/// A nested repository that an index names.
#[derive(Debug)]
struct NestedRepository {
    /// The path from the top of the tree.
    path: Vec<u8>,
    /// The commit that is stored outside the nested repository. `None`: its commits are not at
    /// risk.
    known: Option<String>,
}

/// The git directory of a nested repository or a workspace.
#[derive(Debug)]
struct GitDir {
    own: PathBuf,
    common: PathBuf,
}

/// A nested repository that is examined.
struct OpenedRepository<'a> {
    scratch: &'a Scratch,
    top: PathBuf,
    dir: GitDir,
    /// A copy of its index.
    index: PathBuf,
}

impl<'a> OpenedRepository<'a> {
    async fn open(scratch: &'a Scratch, top: PathBuf) -> Result<Self, GitError> {
        let dir = scratch.git_dir_of(&top).await?;
        let index = scratch.index().with_extension("inner");
        match files::open_named(&dir.own.join("index")) {
            Ok(from) => copy_index(from, &index).map_err(GitError::file(&index))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => drop(fs::remove_file(&index)),
            Err(error) => {
                return Err(GitError::File {
                    path: dir.own.join("index"),
                    error,
                });
            }
        }
        Ok(Self {
            scratch,
            top,
            dir,
            index,
        })
    }

    /// Builds a call that compares its files with the copy of its index.
    fn call(&self, args: &[&str]) -> Call<'_> {
        let repo = self.scratch.repo();
        let call = repo
            .git
            .call(&self.top, args)
            .env("GIT_DIR", self.scratch.dir())
            .env("GIT_WORK_TREE", &self.top)
            .env("GIT_INDEX_FILE", &self.index);
        let call = call
            .env("GIT_OBJECT_DIRECTORY", self.dir.common.join("objects"))
            .env("GIT_ATTR_SOURCE", repo.empty_tree());
        call.settings(&repo.settings)
    }

    /// Builds a call that reads its refs.
    fn refs(&self, args: &[&str]) -> Call<'_> {
        self.scratch
            .repo()
            .git
            .call(&self.top, args)
            .env("GIT_DIR", &self.dir.own)
    }

    /// Lists the entries of its index.
    async fn entries(&self) -> Result<Vec<u8>, GitError> {
        self.call(&["ls-files", "-z", "--stage"]).output().await
    }

    async fn has_changed_files(&self) -> Result<bool, GitError> {
        let patterns = self.scratch.repo().patterns_in(&self.dir.common);
        let patterns = self.scratch.copied_patterns("inner-patterns", &patterns)?;
        let changed = self
            .call(&[
                "ls-files",
                "-z",
                "--modified",
                "--deleted",
                "--others",
                "--exclude-standard",
            ])
            .settings(&patterns)
            .run()
            .await?;
        if changed.exit_code != Some(0) {
            return Err(GitError::Failed {
                command: "ls-files".to_owned(),
                why: error_text(&changed),
            });
        }
        Ok(!changed.output.is_empty())
    }

    /// Returns the commit that is checked out. `None`: its branch has no commit.
    async fn head(&self) -> Result<Option<String>, GitError> {
        let head = self
            .refs(&["rev-parse", "--verify", "--quiet", "HEAD"])
            .run()
            .await?;
        Ok((head.exit_code == Some(0))
            .then(|| String::from_utf8_lossy(&head.output).trim_end().to_owned()))
    }

    async fn has_staged_changes(&self, head: &str) -> Result<bool, GitError> {
        let staged = self
            .call(&["diff-index", "--cached", "--quiet", head, "--"])
            .run()
            .await?;
        match staged.exit_code {
            Some(0) => Ok(false),
            Some(1) => Ok(true),
            _ => Err(GitError::Failed {
                command: "diff-index".to_owned(),
                why: error_text(&staged),
            }),
        }
    }

    async fn is_on_remote(&self, commit: &str) -> Result<bool, GitError> {
        let found = self
            .refs(&[
                "for-each-ref",
                "--count=1",
                "--format=x",
                "--contains",
                commit,
                "refs/remotes",
            ])
            .output()
            .await?;
        Ok(!found.is_empty())
    }
}

impl Scratch {
    /// Lists the nested repositories with work that no snapshot of the tree contains, each with the
    /// reason. The index must be up to date.
    pub(super) async fn unsaved_in_repositories(&self) -> Result<LeftOut, GitError> {
        let mut waiting: Vec<NestedRepository> = Vec::new();
        for (path, commit) in self.contents().await?.links {
            // Commits in the user's own tree are not at risk: nothing removes the tree.
            let known = match self.workspace() {
                Some(workspace) => Some(
                    self.link_of(&workspace.base, &path)
                        .await?
                        .unwrap_or(commit),
                ),
                None => None,
            };
            waiting.push(NestedRepository { path, known });
        }
        let deadline = Instant::now() + EXAMINED_MAX;
        let (mut left_out, mut examined) = (LeftOut::new(), 0);
        while let Some(inner) = waiting.pop() {
            examined += 1;
            if examined > REPOSITORIES_MAX {
                left_out.push((
                    inner.path,
                    "one of too many repositories to examine".to_owned(),
                ));
                break;
            }
            let Ok(examined) =
                tokio::time::timeout_at(deadline, self.unsaved_in(&inner, &mut waiting)).await
            else {
                left_out.push((
                    inner.path,
                    "a nested repository that takes too long to examine".to_owned(),
                ));
                let others = waiting.into_iter().map(|inner| {
                    (
                        inner.path,
                        "a nested repository that was not examined in time".to_owned(),
                    )
                });
                left_out.extend(others);
                break;
            };
            match examined {
                Ok(None) => {}
                Ok(Some(why)) => left_out.push((inner.path, why.to_owned())),
                Err(error) => {
                    tracing::debug!(%error, "a nested repository cannot be examined");
                    left_out.push((
                        inner.path,
                        "a nested repository that cannot be examined".to_owned(),
                    ));
                }
            }
        }
        left_out.sort();
        Ok(left_out)
    }

    /// Describes the work in a nested repository that no snapshot contains, and adds the
    /// repositories nested in it to `waiting`.
    async fn unsaved_in(
        &self,
        inner: &NestedRepository,
        waiting: &mut Vec<NestedRepository>,
    ) -> Result<Option<&'static str>, GitError> {
        let top = self.tree().join(OsStr::from_bytes(&inner.path));
        match top.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {}
            _ => return Ok(None),
        }
        if top.join(".git").symlink_metadata().is_err() {
            let is_empty = fs::read_dir(&top)
                .map_err(GitError::file(&top))?
                .next()
                .is_none();
            return Ok((!is_empty)
                .then_some("files in the directory of a repository that is not checked out"));
        }
        let opened = OpenedRepository::open(self, top).await?;
        for (path, commit) in links(&opened.entries().await?) {
            let path = [inner.path.as_slice(), b"/", &path].concat();
            waiting.push(NestedRepository {
                path,
                known: inner.known.as_ref().map(|_| commit),
            });
        }
        if opened.has_changed_files().await? {
            return Ok(Some(UNCOMMITTED));
        }
        let Some(head) = opened.head().await? else {
            let is_empty = opened.entries().await?.is_empty();
            return Ok((!is_empty).then_some(UNCOMMITTED));
        };
        if opened.has_staged_changes(&head).await? {
            return Ok(Some(UNCOMMITTED));
        }
        if inner.known.as_ref().is_none_or(|known| *known == head) {
            return Ok(None);
        }
        // A merge of the run has added them to the user's.
        let is_elsewhere = opened.is_on_remote(&head).await?
            || self.has_users_repository(&inner.path, &head).await;
        Ok((!is_elsewhere).then_some(ONLY_INSIDE))
    }

    /// Returns whether the user's nested repository at a path has a commit under a ref, for example
    /// since a merge.
    async fn has_users_repository(&self, path: &[u8], commit: &str) -> bool {
        let top = self.repo().top.join(as_path(path));
        if top.join(".git").symlink_metadata().is_err() {
            return false;
        }
        let found = async {
            Repo::find(&self.repo().git, &top)
                .await?
                .is_in_a_ref(commit)
                .await
        };
        found.await.unwrap_or_else(|error| {
            tracing::debug!(%error, "a nested repository of the user cannot be read");
            false
        })
    }

    /// Copies the agent's index of a workspace. `None`: the tree is not a workspace, or has no
    /// index.
    pub(super) async fn agents_index(&self) -> Result<Option<PathBuf>, GitError> {
        let Some(workspace) = self.workspace().filter(|workspace| workspace.is_there) else {
            return Ok(None);
        };
        let from = match workspace.isolation {
            Isolation::Clone => self.tree().join(".git/index"),
            _ => self.git_dir_of(self.tree()).await?.own.join("index"),
        };
        let index = self.index().with_extension("agent");
        match files::open_named(&from) {
            Ok(from) => copy_index(from, &index).map_err(GitError::file(&index))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(GitError::File { path: from, error }),
        }
        Ok(Some(index))
    }

    /// Finds the git directory of a nested repository or a workspace.
    async fn git_dir_of(&self, top: &Path) -> Result<GitDir, GitError> {
        let call = self.repo().git.call(
            top,
            &[
                "rev-parse",
                "--path-format=absolute",
                "--git-dir",
                "--git-common-dir",
            ],
        );
        let text = call.env("GIT_DIR", top.join(".git")).line().await?;
        match text.split_once('\n') {
            Some((own, common)) if !common.contains('\n') => Ok(GitDir {
                own: own.into(),
                common: common.into(),
            }),
            _ => Err(GitError::unusable(top, "its path has a line break")),
        }
    }

    /// Returns the commit of a nested repository that a commit of the tree names.
    async fn link_of(&self, commit: &str, path: &[u8]) -> Result<Option<String>, GitError> {
        let listed = self
            .call(&[
                "--literal-pathspecs",
                "ls-tree",
                "-z",
                "--full-tree",
                commit,
                "--",
            ])
            .arg(OsStr::from_bytes(path))
            .output()
            .await?;
        let listed = String::from_utf8_lossy(&listed);
        Ok(listed
            .strip_prefix("160000 commit ")
            .and_then(|rest| Some(rest.split_once('\t')?.0.to_owned())))
    }
}
