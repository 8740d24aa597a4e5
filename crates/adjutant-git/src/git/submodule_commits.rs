//! Brings the commits home to which a merge moves nested repositories: a pointer moves only with
//! its commits.
//!
//! ```text
//!  <workspace>/sub (its objects, checked) ─> pack ─> the user's sub (objects, then a ref that keeps them) ─> the merge moves the pointer
//! ```
//! Nothing that a nested repository configures is run. From the agent's, only objects inside the
//! workspace are read; in the user's, only objects and refs below `refs/adjutant` are added: its
//! work tree, branches and index stay.

use super::base::pin;
use super::call::error_text;
use super::diff::{DiffEntry, GITLINK};
use super::exchange::pack;
use super::paths::{as_path, lossy, quote_path};
use super::submodules::ONLY_INSIDE;
use super::{GitError, MergeRefusal, Repo, Scratch};
use crate::files;
use adjutant_core::RunId;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of pointers that one merge may move.
const POINTERS_MAX: usize = 200;
/// Maximum depth of repositories in repositories.
const DEPTH_MAX: usize = 8;
/// Maximum number of the run's commits whose pointers are brought home besides those of the merged
/// tree.
const COMMITS_MAX: usize = 2_000;
/// Maximum size of the list of what these commits changed, in bytes.
const LIST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of the objects of one nested repository, in bytes.
const PACK_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Maximum number of known commits of the user's nested repository that are named to git.
const KNOWN_MAX: usize = 2_000;
/// Maximum size of a file that is read from the git directory of a nested repository, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Timeout for calls on the agent's nested repository, which can contain FIFOs instead of files.
const FOREIGN_MAX: Duration = Duration::from_secs(10);

/// Where a merge finds the commits of nested repositories.
#[derive(Debug, Clone)]
pub struct SubmoduleSource {
    pub run: RunId,
    /// The top of the workspace. `None`: it does not exist on this machine.
    pub workspace: Option<PathBuf>,
    /// Adjutant's home.
    pub home: PathBuf,
}

impl SubmoduleSource {
    /// Lists the directories in which the agent's nested repositories have their git directories:
    /// the workspace and, of a work tree, its git directory in the user's repository.
    fn roots(&self, repo: &Repo) -> Vec<PathBuf> {
        let Some(workspace) = &self.workspace else {
            return Vec::new();
        };
        let mut roots: Vec<PathBuf> = workspace.canonicalize().into_iter().collect();
        if let Ok(text) = files::read_named(&workspace.join(".git"), FILE_BYTES_MAX)
            && let Some(dir) = String::from_utf8_lossy(&text)
                .trim_end()
                .strip_prefix("gitdir: ")
            && let (Ok(dir), Ok(common)) = (
                workspace.join(dir).canonicalize(),
                repo.common.canonicalize(),
            )
            && dir.parent() == Some(&common.join("worktrees"))
        {
            roots.push(dir);
        }
        roots
    }
}

/// A commit of a nested repository that a merge has added to the user's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroughtCommit {
    /// The path of the nested repository from the top of the tree.
    pub path: String,
    pub commit: String,
}

impl BroughtCommit {
    /// Returns the entry of a snapshot that names the commit as left out.
    #[must_use]
    pub fn left_out(&self) -> String {
        super::snapshot::named(&vec![(
            self.path.clone().into_bytes(),
            ONLY_INSIDE.to_owned(),
        )])
        .concat()
    }
}

/// What is known about a commit to which a pointer moves.
enum Found {
    /// The user's nested repository has it, under a ref.
    Known,
    /// It was added to the user's nested repository.
    Brought,
    /// The user has no such repository yet, and the agent's has the commit from its remote.
    OnRemote,
    /// A pointer to it would be broken, for this reason.
    Missing(String),
}

/// A pointer to move, and what brings its commits.
struct Level<'a> {
    scratch: &'a Scratch,
    source: &'a SubmoduleSource,
    /// The directories that can contain the git directory of the agent's nested repositories.
    roots: &'a [PathBuf],
    /// The directory in the workspace that corresponds to the top of the tree.
    from: Option<PathBuf>,
    /// The path of the tree from the top of the user's repository, with a slash at the end, or
    /// empty.
    prefix: String,
    depth: usize,
}

/// Adds the commits to which an update moves nested repositories to those of the user, so that no
/// pointer is broken. Returns what was added. Nothing of the update itself is done.
///
/// # Errors
/// [`MergeRefusal::SubmoduleCommits`], or git or the disk failed.
pub async fn bring_submodule_commits(
    scratch: &Scratch,
    source: &SubmoduleSource,
    before: &str,
    after: &str,
) -> Result<Vec<BroughtCommit>, GitError> {
    let (mut brought, mut missing) = (Vec::new(), Vec::new());
    let roots = source.roots(scratch.repo());
    let top = Level {
        scratch,
        source,
        roots: &roots,
        from: source.workspace.clone(),
        prefix: String::new(),
        depth: 0,
    };
    top.bring(before, after, &mut brought, &mut missing).await?;
    MergeRefusal::files(MergeRefusal::SubmoduleCommits, missing)?;
    Ok(brought)
}

/// Adds a commit with all its objects to the user's nested repository. Returns why it cannot be
/// complete there.
async fn copy_commit(
    inner: &Scratch,
    agents: Option<&AgentsRepository>,
    commit: &str,
) -> Result<Option<String>, GitError> {
    if inner.repo().commit_of(commit).await?.is_none() {
        let Some(agents) = agents else {
            return Ok(Some(format!(
                "its commit {commit:.12} is neither here nor in a workspace on this machine"
            )));
        };
        if let Err(error) = agents.copy_objects(inner, commit).await {
            return Ok(Some(format!(
                "its commit {commit:.12} cannot be read in the workspace: {error}"
            )));
        }
    }
    // Every object is there, without the agent's repository.
    let complete = inner
        .repo()
        .of_refs(&["rev-list", "--objects", "--quiet", commit, "--not", "--all"])
        .run()
        .await?;
    Ok((complete.exit_code != Some(0)).then(|| {
        format!(
            "its commit {commit:.12} is incomplete: {}",
            error_text(&complete)
        )
    }))
}

impl Level<'_> {
    async fn bring(
        &self,
        before: &str,
        after: &str,
        brought: &mut Vec<BroughtCommit>,
        missing: &mut Vec<String>,
    ) -> Result<(), GitError> {
        let last = moved_pointers(&self.scratch.list(before, after).await?);
        if last.len() > POINTERS_MAX {
            return Err(GitError::unusable(
                self.scratch.tree(),
                format!(
                    "the merge moves {} nested repositories, more than {POINTERS_MAX}",
                    last.len()
                ),
            ));
        }
        // Pointers of older commits of the run, which a later checkout of these commits needs. The
        // last ones decide.
        let earlier = self.earlier_pointers(before, after).await?;
        for (path, commit) in last.iter().chain(
            earlier
                .iter()
                .filter(|pointer| !last.contains(pointer))
                .take(POINTERS_MAX),
        ) {
            let name = format!("{}{}", self.prefix, lossy(path));
            match self.find(path, commit, brought, missing).await? {
                Found::Known | Found::OnRemote => {}
                Found::Brought => brought.push(BroughtCommit {
                    path: name,
                    commit: commit.clone(),
                }),
                Found::Missing(why) if last.contains(&(path.clone(), commit.clone())) => {
                    missing.push(format!("{name} ({why})"))
                }
                Found::Missing(why) => tracing::info!(
                    why,
                    path = name,
                    commit,
                    "an older commit of a nested repository is not brought home"
                ),
            }
        }
        Ok(())
    }

    /// Lists the pointers of the commits that only `after` has.
    async fn earlier_pointers(
        &self,
        before: &str,
        after: &str,
    ) -> Result<BTreeSet<(Vec<u8>, String)>, GitError> {
        let count = format!("--max-count={COMMITS_MAX}");
        let args = [
            "log",
            "--raw",
            "-r",
            "-z",
            "-m",
            "--no-renames",
            "--no-abbrev",
            "--format=",
            &count,
            after,
        ];
        let listed = self
            .scratch
            .call(&args)
            .arg(format!("^{before}"))
            .output_bytes_max(LIST_BYTES_MAX)
            .run()
            .await?;
        // A tree without a commit has no history, and a list that is too long is used as far as it
        // goes: the merged tree decides.
        let listed = if listed.exit_code == Some(0) {
            super::diff::read_raw(&listed.output)
        } else {
            Vec::new()
        };
        Ok(moved_pointers(&listed))
    }

    /// Finds the commit of a nested repository in the user's or the agent's, and adds it to the
    /// user's.
    async fn find(
        &self,
        path: &[u8],
        commit: &str,
        brought: &mut Vec<BroughtCommit>,
        missing: &mut Vec<String>,
    ) -> Result<Found, GitError> {
        let user = match self.users_repository(path).await {
            Ok(user) => user,
            Err(error) => {
                return Ok(Found::Missing(format!(
                    "your repository there cannot be used: {error}"
                )));
            }
        };
        let agents = match &self.from {
            Some(from) => self.agents_repository(&from.join(as_path(path))).await,
            None => None,
        };
        let Some(user) = user else {
            return self.find_on_remote(path, commit, agents.as_ref()).await;
        };
        let dir = self.scratch.dir().join(format!("nested-{}", self.depth));
        let inner = Scratch::new(user, &self.source.home, &dir).await?;
        let before = inner.repo().head().await?;
        if inner.repo().is_in_a_ref(commit).await? {
            return Ok(Found::Known);
        }
        if let Some(why) = copy_commit(&inner, agents.as_ref(), commit).await? {
            return Ok(Found::Missing(why));
        }
        let is_public = self.is_public(agents.as_ref(), commit).await?;
        // The repositories inside it first, so that no pointer is kept before its commits. Those of
        // a pushed commit are its authors'.
        if self.depth < DEPTH_MAX && !is_public {
            let before = before.unwrap_or_else(|| inner.repo().empty_tree().to_owned());
            let level = self.below(&inner, path);
            Box::pin(level.bring(&before, commit, brought, missing)).await?;
        }
        let git_ref = format!("refs/adjutant/{}/merged/{commit}", self.source.run);
        pin(inner.repo(), &git_ref, commit).await?;
        Ok(Found::Brought)
    }

    /// Finds a commit of a nested repository that the user has not checked out.
    async fn find_on_remote(
        &self,
        path: &[u8],
        commit: &str,
        agents: Option<&AgentsRepository>,
    ) -> Result<Found, GitError> {
        if self.is_public(agents, commit).await? {
            return Ok(Found::OnRemote);
        }
        let name = format!("{}{}", self.prefix, lossy(path));
        Ok(Found::Missing(format!(
            "it is not checked out here, and its commit {commit:.12} was not pushed: git submodule update --init {name}"
        )))
    }

    /// Returns whether the agent's repository has a commit from its remote.
    async fn is_public(
        &self,
        agents: Option<&AgentsRepository>,
        commit: &str,
    ) -> Result<bool, GitError> {
        match agents {
            Some(agents) => agents.has_from_remote(self.scratch, commit).await,
            None => Ok(false),
        }
    }

    /// Returns the level of the repositories inside a nested one.
    fn below<'a>(&'a self, inner: &'a Scratch, path: &[u8]) -> Level<'a> {
        Level {
            scratch: inner,
            source: self.source,
            roots: self.roots,
            from: self.from.as_ref().map(|from| from.join(as_path(path))),
            prefix: format!("{}{}/", self.prefix, lossy(path)),
            depth: self.depth + 1,
        }
    }

    /// Finds the user's nested repository. `None`: it is not checked out.
    async fn users_repository(&self, path: &[u8]) -> Result<Option<Repo>, GitError> {
        let outer = self.scratch.repo();
        let top = outer.top.join(as_path(path));
        if top.join(".git").symlink_metadata().is_err() {
            return Ok(None);
        }
        let repo = Repo::find(&outer.git, &top).await?;
        let real = |path: &Path| path.canonicalize().map_err(GitError::file(path));
        let (common, of_outer, outer_top) =
            (real(&repo.common)?, real(&outer.common)?, real(&outer.top)?);
        // An agent that works in the user's tree could make it name any repository.
        if repo.top != outer_top.join(as_path(path))
            || !(common.starts_with(&outer_top) || common.starts_with(&of_outer))
        {
            return Err(GitError::unusable(
                &top,
                "its git directory is outside of your repository",
            ));
        }
        Ok(Some(repo))
    }

    /// Finds the objects of the agent's nested repository, if they are in the workspace.
    async fn agents_repository(&self, top: &Path) -> Option<AgentsRepository> {
        let found = async {
            let real = |path: &Path| path.canonicalize().map_err(GitError::file(path));
            let call = self.scratch.repo().git.call(
                top,
                &[
                    "rev-parse",
                    "--path-format=absolute",
                    "--git-dir",
                    "--git-common-dir",
                ],
            );
            let text = call
                .env("GIT_DIR", top.join(".git"))
                .limit(FOREIGN_MAX)
                .line()
                .await?;
            let Some((own, common)) = text.split_once('\n') else {
                return Err(GitError::unusable(top, "its path has a line break"));
            };
            let common = real(Path::new(common))?;
            let is_inside = self.roots.iter().any(|root| common.starts_with(root));
            let objects = common.join("objects");
            let is_dir = |dir: PathBuf| dir.symlink_metadata().is_ok_and(|meta| meta.is_dir());
            let is_shared = objects.join("info/alternates").symlink_metadata().is_ok()
                || common.join("commondir").symlink_metadata().is_ok();
            if !is_inside
                || is_shared
                || !is_dir(objects.clone())
                || !is_dir(objects.join("pack"))
                || !is_dir(objects.join("info"))
            {
                return Err(GitError::ForeignGitDirectory(top.to_owned()));
            }
            Ok(AgentsRepository {
                dir: own.into(),
                objects,
                shallow: common.join("shallow"),
            })
        };
        match found.await {
            Ok(found) => Some(found),
            Err(error) => {
                tracing::debug!(%error, "a nested repository of a workspace cannot be used");
                None
            }
        }
    }
}

/// The agent's nested repository.
struct AgentsRepository {
    /// Its git directory. Only its refs are read.
    dir: PathBuf,
    objects: PathBuf,
    /// The list of commits at which a shallow history ends.
    shallow: PathBuf,
}

impl AgentsRepository {
    /// Returns whether a branch that was fetched from a remote contains a commit.
    async fn has_from_remote(&self, scratch: &Scratch, commit: &str) -> Result<bool, GitError> {
        let args = [
            "for-each-ref",
            "--count=1",
            "--format=x",
            "--contains",
            commit,
            "refs/remotes",
        ];
        let listed = scratch
            .repo()
            .git
            .call(scratch.dir(), &args)
            .env("GIT_DIR", &self.dir)
            .limit(FOREIGN_MAX)
            .run()
            .await?;
        Ok(listed.exit_code == Some(0) && !listed.output.is_empty())
    }

    /// Adds the objects that a commit needs and the user's nested repository lacks. Each is
    /// verified against its id.
    async fn copy_objects(&self, to: &Scratch, commit: &str) -> Result<(), GitError> {
        if fs::symlink_metadata(&self.shallow).is_ok() {
            let mut ends = files::read_named(&self.shallow, FILE_BYTES_MAX)
                .map_err(GitError::file(&self.shallow))?;
            let own = to.dir().join("shallow");
            ends.extend(
                files::read_named(&own, FILE_BYTES_MAX)
                    .or_else(empty_if_missing)
                    .map_err(GitError::file(&own))?,
            );
            fs::write(&own, ends).map_err(GitError::file(&own))?;
        }
        let count = format!("--count={KNOWN_MAX}");
        let known = to
            .repo()
            .of_refs(&[
                "for-each-ref",
                "--sort=-committerdate",
                "--format=%(objectname)",
                &count,
            ])
            .output()
            .await?;
        let known: Vec<String> = String::from_utf8_lossy(&known)
            .lines()
            .map(str::to_owned)
            .collect();
        let path = to.dir().join("commits.pack");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(GitError::file(&path))?;
        let output = file.try_clone().map_err(GitError::file(&path))?;
        let call = |args: &[&str]| {
            to.tree_less_call(args, true).env(
                "GIT_ALTERNATE_OBJECT_DIRECTORIES",
                quote_path(&self.objects),
            )
        };
        if pack(
            call,
            &[commit.to_owned()],
            &known,
            None,
            output,
            PACK_BYTES_MAX,
        )
        .await?
        {
            file.seek(SeekFrom::Start(0))
                .map_err(GitError::file(&path))?;
            to.tree_less_call(&["index-pack", "--stdin"], true)
                .input_file(file)
                .output()
                .await?;
        }
        Ok(())
    }
}

fn empty_if_missing(error: std::io::Error) -> std::io::Result<Vec<u8>> {
    if error.kind() == std::io::ErrorKind::NotFound {
        Ok(Vec::new())
    } else {
        Err(error)
    }
}

/// Returns the nested repositories whose commits change, with their new ones.
fn moved_pointers(listed: &[DiffEntry]) -> BTreeSet<(Vec<u8>, String)> {
    let is_pointer = |listed: &&DiffEntry| listed.to_mode.as_deref() == Some(GITLINK);
    listed
        .iter()
        .filter(is_pointer)
        .map(|listed| (listed.path.clone(), listed.to_object.clone()))
        .collect()
}
