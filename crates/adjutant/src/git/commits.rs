//! Keeping the commits that an agent has made in its workspace.
//!
//! ```text
//!  refs/adjutant/<run id>/head             what the agent has checked out at the end
//!                        /heads/<branch>   other branches of a clone; a slash in the name is `%2F`
//! ```
//! Of a clone, refs are read through its own git directory, as everywhere; its objects are packed, checked, and put beside
//! those of the user's repository.

use super::scratch::WorkspaceTree;
use super::{GitError, Repo, Scratch};
use crate::files;
use adjutant_core::{Isolation, RunId};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Most branches that are kept beside the one that is checked out.
const BRANCHES_MAX: usize = 50;
/// A pack that is larger is not kept, in bytes.
const PACK_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Most of a file in the git directory of a clone that is read, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// A ref of the workspace that leads to commits that are not in the base.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tip {
    /// Below the refs of the run.
    name: String,
    commit: String,
}

/// Keeps the commits that the agent has made in the workspace under refs of its run. Returns the one that is checked out, if
/// the agent has made it. Outside a workspace there is nothing to do.
///
/// # Errors
/// git or the disk failed, or an object is damaged. Earlier refs are untouched.
pub async fn keep_commits(scratch: &Scratch, run: RunId) -> Result<Option<String>, GitError> {
    let Some(workspace) = scratch.workspace().filter(|workspace| workspace.is_there) else { return Ok(None) };
    let dir = workspace.path.join(".git");
    let objects = match workspace.isolation {
        Isolation::None => return Ok(None),
        Isolation::Clone => Some(own_objects(scratch, workspace, &dir)?),
        Isolation::Worktree => None,
    };
    let mut tips = new_tips(scratch, workspace, run).await?;
    if tips.is_empty() {
        return Ok(None);
    }
    if let Some(objects) = objects {
        copy_objects(scratch, workspace, &objects, &tips).await?;
    }
    // Everything is there, and what the base has is no commit of the agent's.
    let mut refs = String::new();
    let mut is_made = Vec::new();
    for tip in &tips {
        let counted = scratch.call(&["rev-list", "--count", &tip.commit, &format!("^{}", workspace.base)]).line().await?;
        is_made.push(counted != "0");
    }
    let mut is_made = is_made.into_iter();
    tips.retain(|_| is_made.next().unwrap_or(false));
    for Tip { name, commit } in &tips {
        scratch.call(&["rev-list", "--objects", "--quiet", commit, &format!("^{}", workspace.base)]).output().await?;
        refs.push_str(&format!("update refs/adjutant/{run}/{name} {commit}\n"));
    }
    if !refs.is_empty() {
        scratch.repo().of_refs(&["update-ref", "--no-deref", "--stdin"]).input(refs.into_bytes()).output().await?;
    }
    Ok(tips.into_iter().find(|tip| tip.name == "head").map(|tip| tip.commit))
}

/// Tells whether commits of an agent are kept for a run.
///
/// # Errors
/// git failed.
pub async fn has_commits(repo: &Repo, run: RunId) -> Result<bool, GitError> {
    let refs = ["head", "heads", "stash"].map(|name| format!("refs/adjutant/{run}/{name}"));
    let listed = repo.of_refs(&["for-each-ref", "--count=1", "--format=%(objectname)", &refs[0], &refs[1], &refs[2]]).output().await?;
    Ok(!listed.is_empty())
}

/// Returns the objects of a clone, if they are where Adjutant has made them: the agent must not have other repositories read.
fn own_objects(scratch: &Scratch, workspace: &WorkspaceTree, dir: &Path) -> Result<PathBuf, GitError> {
    let home = &workspace.home;
    let objects = dir.join("objects");
    let changed = || GitError::unusable(&workspace.path, "its git directory is not the one that was made for it");
    for dir in [dir, &objects, &objects.join("pack"), &objects.join("info")] {
        match files::open_dir(home, dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(changed()),
            _ => {}
        }
    }
    let alternates = files::read(home, &objects.join("info/alternates"), FILE_BYTES_MAX).map_err(|_| changed())?;
    let is_shared = alternates == format!("{}\n", scratch.repo().common.join("objects").display()).as_bytes();
    let is_elsewhere = dir.join("commondir").symlink_metadata().is_ok();
    if is_shared && !is_elsewhere { Ok(objects) } else { Err(changed()) }
}

/// Returns the name under which a branch is kept. It has no slash: the agent may have `a` first, and `a/b` later.
fn kept_branch(branch: &str) -> String {
    format!("heads/{}", branch.replace('%', "%25").replace('/', "%2F"))
}

/// Lists the commits of the workspace that can be the agent's: the one that is checked out, and the branches of a clone.
async fn new_tips(scratch: &Scratch, workspace: &WorkspaceTree, run: RunId) -> Result<Vec<Tip>, GitError> {
    let call = |args: &[&str]| scratch.repo().git.call(&workspace.path, args).env("GIT_DIR", workspace.path.join(".git"));
    let ran = call(&["rev-parse", "--verify", "--quiet", "HEAD"]).run().await?;
    let mut tips = Vec::new();
    if ran.exit_code == Some(0) {
        tips.push(Tip { name: "head".to_owned(), commit: String::from_utf8_lossy(&ran.output).trim_end().to_owned() });
    }
    if workspace.isolation == Isolation::Clone {
        let count = format!("--count={BRANCHES_MAX}");
        let args = ["for-each-ref", "--format=%(objectname) %(refname)", "--sort=-committerdate", &count, "refs/heads", "refs/stash"];
        let listed = call(&args).run().await?;
        for line in String::from_utf8_lossy(&listed.output).lines() {
            let Some((commit, name)) = line.split_once(' ') else { continue };
            let name = name.strip_prefix("refs/heads/").map_or_else(|| "stash".to_owned(), kept_branch);
            tips.push(Tip { name, commit: commit.to_owned() });
        }
    }
    let is_id = |text: &str| text.len() == workspace.base.len() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let known = scratch.repo().of_refs(&["for-each-ref", "--format=%(objectname)", &format!("refs/adjutant/{run}/")]).output().await?;
    let known = String::from_utf8_lossy(&known);
    let is_kept = |commit: &str| commit == workspace.base || known.lines().any(|line| line == commit);
    let checked_out = tips.first().filter(|tip| tip.name == "head").map(|tip| tip.commit.clone());
    tips.retain(|tip| is_id(&tip.commit) && !is_kept(&tip.commit) && (tip.name == "head" || Some(&tip.commit) != checked_out.as_ref()));
    Ok(tips)
}

/// Puts the objects that the tips have beyond the base into the user's repository. Each is checked against its name.
async fn copy_objects(scratch: &Scratch, workspace: &WorkspaceTree, objects: &Path, tips: &[Tip]) -> Result<(), GitError> {
    let stage = scratch.stage().join("commits");
    fs::create_dir_all(&stage).map_err(GitError::file(&stage))?;
    let mut wanted: String = tips.iter().map(|tip| format!("{}\n", tip.commit)).collect();
    wanted.push_str(&format!("^{}\n", workspace.base));
    let pack = scratch.call(&["pack-objects", "--revs", "--quiet", "--delta-base-offset"]).arg(stage.join("pack"));
    let name = pack.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted_path(objects)).input(wanted.into_bytes()).line().await?;
    if name.is_empty() {
        return Ok(());
    }
    let path = stage.join(format!("pack-{name}.pack"));
    let file = File::open(&path).map_err(GitError::file(&path))?;
    let bytes = file.metadata().map_err(GitError::file(&path))?.len();
    if bytes > PACK_BYTES_MAX {
        return Err(GitError::unusable(&workspace.path, format!("its commits have {bytes} bytes")));
    }
    // It names each object by its content. More checks would refuse what the user's own history has already.
    let stored = scratch.call(&["index-pack", "--stdin"]).input_file(file).output().await;
    fs::remove_dir_all(&stage).map_err(GitError::file(&stage))?;
    stored.map(drop)
}

/// Writes a path for a list of paths that git separates by colons.
fn quoted_path(path: &Path) -> String {
    let path = path.display().to_string();
    if path.contains([':', '"']) { format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"")) } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_branches_do_not_contain_each_other() {
        assert_eq!(["a", "a/b", "a%2Fb"].map(kept_branch), ["heads/a", "heads/a%2Fb", "heads/a%252Fb"]);
    }
}
