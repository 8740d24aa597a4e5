//! Keeps the commits that an agent has made in its workspace.
//!
//! ```text
//!  refs/adjutant/<run id>/head             the commit that the agent has checked out at the end
//!                        /heads/<branch>   other branches of a clone; a slash in the name is `%2F`
//!                        /stash            the newest stash of a clone
//!                        /reflog/<commit>  other commits in its reflogs (reset, amended or rebased commits, older stashes), and
//!                                          previous targets of the refs above
//! ```
//! The refs of a clone are read through its own git directory. Its objects are packed, verified,
//! and added to those of the user's repository. Commits that contain a file that was copied into
//! the workspace are rewritten without it, see [`super::rewrite`].

use super::call::{Call, error_text};
use super::rewrite::{RewrittenCommits, SearchedCommits, object_dirs};
use super::scratch::WorkspaceTree;
use super::{GitError, Repo, Scratch};
use crate::files;
use crate::process::tool::Output;
use adjutant_core::{Isolation, RunId};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of branches kept besides the checked-out one.
const BRANCHES_MAX: usize = 50;
/// Maximum number of reflog entries to read, the newest first.
const REFLOG_ENTRIES_MAX: u32 = 2_000;
/// Maximum number of commits kept that only reflogs name.
const REFLOG_TIPS_MAX: usize = 200;
/// Maximum size of a pack that is kept, in bytes.
const PACK_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Maximum size of a file that is read from the git directory of a clone, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// The name of the tip that is checked out.
const HEAD: &str = "head";

/// A ref of the workspace with commits that are not in the base.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tip {
    /// The name below the refs of the run.
    name: String,
    commit: String,
}

/// What a workspace names beyond its base.
#[derive(Debug, Default)]
struct NewTips {
    tips: Vec<Tip>,
    /// The base is checked out.
    is_at_base: bool,
    /// The names under which the branches and the stash that are there are kept. `None`: not all of
    /// them are known.
    names: Option<HashSet<String>>,
}

/// The commits of a workspace that are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptCommits {
    /// The one that is checked out, if the agent has made it and it is new.
    pub head: Option<String>,
    /// Files that were copied into the workspace and that the agent committed. The kept commits do
    /// not contain them.
    pub without: Vec<String>,
}

impl KeptCommits {
    /// Says which committed files are not kept. `None`: all are.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let files = (!self.without.is_empty()).then(|| self.without.join(", "))?;
        Some(format!(
            "its commits are kept without files that were copied into its workspace and can be secrets: {files}"
        ))
    }
}

/// Keeps the commits that the agent has made in the workspace under refs of its run, without the
/// files that were copied into the workspace. Outside a workspace there is nothing to do.
///
/// # Errors
/// git or the disk failed, an object is damaged, or too many commits contain copied files. Earlier
/// refs are untouched.
pub async fn keep_commits(scratch: &Scratch, run: RunId) -> Result<KeptCommits, GitError> {
    let Some((workspace, objects)) = readable_workspace(scratch)? else {
        return Ok(KeptCommits::default());
    };
    let known = known_refs(scratch, run).await?;
    let NewTips {
        mut tips,
        is_at_base,
        names,
    } = new_tips(scratch, workspace, &known).await?;
    tips.extend(reflog_tips(scratch, workspace, objects.as_deref(), &tips, &known).await?);
    let rewritten = searched(scratch, workspace, objects.as_deref(), &tips)
        .rewrite()
        .await?;
    let tips = rewritten_tips(tips, &rewritten, &known);
    let sources: Vec<&Path> = objects
        .iter()
        .chain(&rewritten.objects)
        .map(PathBuf::as_path)
        .collect();
    if !sources.is_empty() && !tips.is_empty() {
        copy_objects(scratch, workspace, &sources, &tips).await?;
    }
    let tips = made_tips(scratch, workspace, tips).await?;
    let refs = changed_refs(scratch, run, &known, &tips, is_at_base, names).await?;
    let input: String = refs
        .iter()
        .map(|(name, commit)| {
            commit.map_or_else(
                || format!("delete {name}\n"),
                |commit| format!("update {name} {commit}\n"),
            )
        })
        .collect();
    if !input.is_empty() {
        scratch
            .repo()
            .of_refs(&["update-ref", "--no-deref", "--stdin"])
            .input(input.into_bytes())
            .output()
            .await?;
        scratch.repo().sync_refs(refs.keys().map(String::as_str))?;
    }
    let without = rewritten.paths.into_iter().collect();
    Ok(KeptCommits {
        head: tips
            .into_iter()
            .find(|tip| tip.name == HEAD)
            .map(|tip| tip.commit),
        without,
    })
}

/// Lists the files that were copied into a workspace and that the agent committed, so that its kept
/// commits do not contain them. Keeps nothing.
///
/// # Errors
/// git failed, or the commits cannot be read.
pub async fn copies_in_commits(scratch: &Scratch) -> Result<Vec<String>, GitError> {
    let Some((workspace, objects)) =
        readable_workspace(scratch)?.filter(|_| !scratch.copied_paths().is_empty())
    else {
        return Ok(Vec::new());
    };
    let mut tips = new_tips(scratch, workspace, &[]).await?.tips;
    tips.extend(reflog_tips(scratch, workspace, objects.as_deref(), &tips, &[]).await?);
    Ok(searched(scratch, workspace, objects.as_deref(), &tips)
        .copies()
        .await?
        .into_iter()
        .collect())
}

/// Returns the workspace whose commits can be read, and the object directory of a clone.
fn readable_workspace(
    scratch: &Scratch,
) -> Result<Option<(&WorkspaceTree, Option<PathBuf>)>, GitError> {
    let Some(workspace) = scratch.workspace().filter(|workspace| workspace.is_there) else {
        return Ok(None);
    };
    Ok(match workspace.isolation {
        Isolation::None => None,
        Isolation::Clone => Some((
            workspace,
            Some(own_objects(
                scratch,
                workspace,
                &workspace.path.join(".git"),
            )?),
        )),
        Isolation::Worktree => Some((workspace, None)),
    })
}

fn searched<'a>(
    scratch: &'a Scratch,
    workspace: &'a WorkspaceTree,
    objects: Option<&'a Path>,
    tips: &'a [Tip],
) -> SearchedCommits<'a> {
    SearchedCommits {
        scratch,
        objects,
        base: &workspace.base,
        tips: tips.iter().map(|tip| tip.commit.as_str()).collect(),
    }
}

/// Replaces rewritten commits. A tip that was kept before under its new commit is left out.
fn rewritten_tips(tips: Vec<Tip>, rewritten: &RewrittenCommits, known: &[Tip]) -> Vec<Tip> {
    let new = |tip: Tip| {
        let commit = rewritten.kept(&tip.commit);
        if commit == tip.commit {
            return Some(tip);
        }
        let name = if tip.name.starts_with("reflog/") {
            format!("reflog/{commit}")
        } else {
            tip.name
        };
        Some(Tip {
            name,
            commit: commit.to_owned(),
        })
        .filter(|tip| !known.contains(tip))
    };
    tips.into_iter().filter_map(new).collect()
}

/// Returns the tips that are the agent's: the base does not contain them. All their objects exist
/// in the user's repository.
async fn made_tips(
    scratch: &Scratch,
    workspace: &WorkspaceTree,
    mut tips: Vec<Tip>,
) -> Result<Vec<Tip>, GitError> {
    let mut is_made = Vec::new();
    for tip in &tips {
        let counted = scratch
            .call(&[
                "rev-list",
                "--count",
                &tip.commit,
                &format!("^{}", workspace.base),
            ])
            .line()
            .await?;
        is_made.push(counted != "0");
    }
    let mut is_made = is_made.into_iter();
    tips.retain(|_| is_made.next().unwrap_or(false));
    if !tips.is_empty() {
        let mut wanted: String = tips.iter().map(|tip| format!("{}\n", tip.commit)).collect();
        wanted.push_str(&format!("^{}\n", workspace.base));
        scratch
            .call(&["rev-list", "--objects", "--quiet", "--stdin"])
            .input(wanted.into_bytes())
            .output()
            .await?;
    }
    Ok(tips)
}

/// Returns the refs to change, by name. `None`: to delete. No commit that a ref has named is lost.
async fn changed_refs<'a>(
    scratch: &Scratch,
    run: RunId,
    known: &'a [Tip],
    tips: &'a [Tip],
    is_at_base: bool,
    names: Option<HashSet<String>>,
) -> Result<BTreeMap<String, Option<&'a String>>, GitError> {
    let mut refs = BTreeMap::new();
    for Tip { name, commit } in tips {
        refs.insert(format!("refs/adjutant/{run}/{name}"), Some(commit));
        // Keeps the previous target of the ref, unless it is an ancestor of the new one.
        if let Some(before) = known.iter().find(|before| before.name == *name)
            && !scratch.is_ancestor(&before.commit, commit).await?
        {
            refs.insert(
                format!("refs/adjutant/{run}/reflog/{}", before.commit),
                Some(&before.commit),
            );
        }
    }
    // The agent has checked out the base again.
    if let Some(before) = known
        .iter()
        .find(|before| is_at_base && before.name == HEAD)
    {
        refs.insert(
            format!("refs/adjutant/{run}/reflog/{}", before.commit),
            Some(&before.commit),
        );
        refs.insert(format!("refs/adjutant/{run}/head"), None);
    }
    // A branch or stash that no longer exists does not prevent the removal of the run. Its commits
    // can still be found.
    if let Some(names) = names {
        let is_removed = |before: &&Tip| {
            (before.name.starts_with("heads/") || before.name == "stash")
                && !names.contains(&before.name)
        };
        for before in known.iter().filter(is_removed) {
            refs.insert(
                format!("refs/adjutant/{run}/reflog/{}", before.commit),
                Some(&before.commit),
            );
            refs.insert(format!("refs/adjutant/{run}/{}", before.name), None);
        }
    }
    Ok(refs)
}

/// Returns whether commits of the agent are kept for a run.
///
/// # Errors
/// git failed.
pub async fn has_commits(repo: &Repo, run: RunId) -> Result<bool, GitError> {
    let refs = ["head", "heads", "stash"].map(|name| format!("refs/adjutant/{run}/{name}"));
    let listed = repo
        .of_refs(&[
            "for-each-ref",
            "--count=1",
            "--format=%(objectname)",
            &refs[0],
            &refs[1],
            &refs[2],
        ])
        .output()
        .await?;
    Ok(!listed.is_empty())
}

/// Lists the tips of the branches that the agent of a run has made.
///
/// # Errors
/// git failed.
pub async fn branch_tips(repo: &Repo, run: RunId) -> Result<Vec<String>, GitError> {
    let refs = ["head", "heads"].map(|name| format!("refs/adjutant/{run}/{name}"));
    let listed = repo
        .of_refs(&["for-each-ref", "--format=%(objectname)", &refs[0], &refs[1]])
        .output()
        .await?;
    Ok(String::from_utf8_lossy(&listed)
        .lines()
        .map(str::to_owned)
        .collect())
}

/// Lists the refs of branches that the agent has made, except the checked-out one.
///
/// # Errors
/// git failed.
pub async fn other_branches(repo: &Repo, run: RunId) -> Result<Vec<String>, GitError> {
    let listed = repo
        .of_refs(&[
            "for-each-ref",
            "--format=%(refname)",
            &format!("refs/adjutant/{run}/heads"),
        ])
        .output()
        .await?;
    Ok(String::from_utf8_lossy(&listed)
        .lines()
        .map(str::to_owned)
        .collect())
}

/// Lists the refs of an agent's other branches and of its stash that were not merged with the run.
/// They are neither in a branch or tag of the user nor ancestors of the agent's checked-out commit,
/// and their tree is not the merged one.
///
/// # Errors
/// git failed.
pub async fn unmerged_refs(
    repo: &Repo,
    run: RunId,
    merged_tree: &str,
) -> Result<Vec<String>, GitError> {
    let [head, heads, stash] =
        ["head", "heads", "stash"].map(|name| format!("refs/adjutant/{run}/{name}"));
    let listed = repo
        .of_refs(&[
            "for-each-ref",
            "--format=%(objectname) %(tree) %(refname)",
            &heads,
            &stash,
        ])
        .output()
        .await?;
    let mut unmerged = Vec::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(commit), Some(tree), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if tree != merged_tree
            && !repo.has_commit(&head, commit).await?
            && !repo.is_in_a_branch(commit).await?
        {
            unmerged.push(name.to_owned());
        }
    }
    Ok(unmerged)
}

/// Returns the object directory of a clone. It must be in the clone, so that the agent cannot make
/// Adjutant read other repositories.
fn own_objects(
    scratch: &Scratch,
    workspace: &WorkspaceTree,
    dir: &Path,
) -> Result<PathBuf, GitError> {
    let home = &workspace.home;
    let objects = dir.join("objects");
    let changed = || GitError::ForeignGitDirectory(workspace.path.clone());
    for dir in [dir, &objects, &objects.join("pack"), &objects.join("info")] {
        match files::open_dir(home, dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(changed()),
            _ => {}
        }
    }
    // A repository that the agent has made itself has no alternates.
    let is_shared = match files::read(home, &objects.join("info/alternates"), FILE_BYTES_MAX) {
        Ok(alternates) => {
            alternates
                == format!("{}\n", scratch.repo().common.join("objects").display()).as_bytes()
        }
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let is_elsewhere = dir.join("commondir").symlink_metadata().is_ok();
    if is_shared && !is_elsewhere {
        Ok(objects)
    } else {
        Err(changed())
    }
}

/// Returns the ref name for a branch. Slashes are escaped, because the agent may have `a` first and
/// `a/b` later.
fn kept_branch(branch: &str) -> String {
    format!("heads/{}", branch.replace('%', "%25").replace('/', "%2F"))
}

/// Lists the commits of the workspace that can be the agent's: the one that is checked out, and the
/// branches of a clone.
async fn new_tips(
    scratch: &Scratch,
    workspace: &WorkspaceTree,
    known: &[Tip],
) -> Result<NewTips, GitError> {
    let dir = workspace.path.join(".git");
    match dir.symlink_metadata() {
        // The agent has removed it, with its commits.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(NewTips::default()),
        found => found.map_err(GitError::file(&dir))?,
    };
    let refs = WorkspaceRefs {
        scratch,
        workspace,
        dir,
    };
    let checked_out = refs.checked_out().await?;
    let (branches, names) = match workspace.isolation {
        Isolation::Clone => refs.branches().await?,
        Isolation::None | Isolation::Worktree => (Vec::new(), None),
    };
    let is_at_base = checked_out.as_ref() == Some(&workspace.base);
    let head = checked_out.iter().map(|commit| Tip {
        name: HEAD.to_owned(),
        commit: commit.clone(),
    });
    let is_new = |tip: &Tip| {
        is_id(&tip.commit, workspace) && is_new(tip, checked_out.as_deref(), &workspace.base, known)
    };
    Ok(NewTips {
        tips: head.chain(branches).filter(is_new).collect(),
        is_at_base,
        names,
    })
}

/// Returns whether a tip is one that the refs of the run do not keep yet. `checked_out`: the commit
/// that is checked out, which is kept as such and not again as a branch.
fn is_new(tip: &Tip, checked_out: Option<&str>, base: &str, known: &[Tip]) -> bool {
    let is_head = tip.name == HEAD;
    // What only a reflog named can have a branch again.
    let has_ref = || {
        known
            .iter()
            .any(|known| known.commit == tip.commit && !known.name.starts_with("reflog/"))
    };
    let is_kept = tip.commit == base || known.contains(tip) || (!is_head && has_ref());
    !is_kept && (is_head || Some(tip.commit.as_str()) != checked_out)
}

/// The refs of a workspace.
struct WorkspaceRefs<'a> {
    scratch: &'a Scratch,
    workspace: &'a WorkspaceTree,
    dir: PathBuf,
}

impl WorkspaceRefs<'_> {
    fn call(&self, args: &[&str]) -> Call<'_> {
        self.scratch
            .repo()
            .git
            .call(&self.workspace.path, args)
            .env("GIT_DIR", &self.dir)
    }

    fn unreadable(&self, ran: &Output) -> GitError {
        GitError::UnreadableCommits {
            workspace: self.workspace.path.clone(),
            why: error_text(ran),
        }
    }

    /// Returns the commit that is checked out. `None`: the branch has none.
    async fn checked_out(&self) -> Result<Option<String>, GitError> {
        let ran = self
            .call(&["rev-parse", "--verify", "--quiet", "HEAD"])
            .run()
            .await?;
        match ran.exit_code {
            Some(0) => Ok(Some(
                String::from_utf8_lossy(&ran.output).trim_end().to_owned(),
            )),
            // The branch has no commit, or its ref is damaged.
            Some(1) => {
                let name = self
                    .call(&["symbolic-ref", "--quiet", "HEAD"])
                    .run()
                    .await?;
                let branch = String::from_utf8_lossy(&name.output);
                let named = self
                    .call(&["for-each-ref", branch.trim_end()])
                    .run()
                    .await?;
                if name.exit_code != Some(0) || is_damaged(&named) {
                    return Err(self.unreadable(&named));
                }
                Ok(None)
            }
            _ => Err(self.unreadable(&ran)),
        }
    }

    /// Lists the branches of a clone and its stash, and the names under which they are kept, if all
    /// of them are known.
    async fn branches(&self) -> Result<(Vec<Tip>, Option<HashSet<String>>), GitError> {
        let count = format!("--count={BRANCHES_MAX}");
        let listed = self
            .call(&[
                "for-each-ref",
                "--format=%(objectname) %(refname)",
                "--sort=-committerdate",
                &count,
                "refs/heads",
                "refs/stash",
            ])
            .run()
            .await?;
        if is_damaged(&listed) {
            return Err(self.unreadable(&listed));
        }
        let listed = String::from_utf8_lossy(&listed.output).into_owned();
        let tips: Vec<Tip> = listed.lines().filter_map(branch_tip).collect();
        let names = tips.iter().map(|tip| tip.name.clone()).collect();
        let names = Some(names).filter(|_| listed.lines().count() < BRANCHES_MAX);
        Ok((tips, names))
    }
}

/// Parses a line `<commit> <ref>` of the branches and the stash.
fn branch_tip(line: &str) -> Option<Tip> {
    let (commit, name) = line.split_once(' ')?;
    let name = name
        .strip_prefix("refs/heads/")
        .map_or_else(|| "stash".to_owned(), kept_branch);
    Some(Tip {
        name,
        commit: commit.to_owned(),
    })
}

/// Returns whether a list of refs is incomplete. git leaves out unreadable refs.
fn is_damaged(listed: &Output) -> bool {
    listed.exit_code != Some(0) || listed.errors.contains("ignoring broken ref")
}

fn is_id(text: &str, workspace: &WorkspaceTree) -> bool {
    text.len() == workspace.base.len() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Lists the refs of a run, with their names below `refs/adjutant/<run id>/`.
async fn known_refs(scratch: &Scratch, run: RunId) -> Result<Vec<Tip>, GitError> {
    let below = format!("refs/adjutant/{run}/");
    let listed = scratch
        .repo()
        .of_refs(&["for-each-ref", "--format=%(objectname) %(refname)", &below])
        .output()
        .await?;
    let tip = |line: &str| {
        let (commit, name) = line.split_once(' ')?;
        Some(Tip {
            name: name.strip_prefix(&below)?.to_owned(),
            commit: commit.to_owned(),
        })
    };
    Ok(String::from_utf8_lossy(&listed)
        .lines()
        .filter_map(tip)
        .collect())
}

/// Lists the commits in the reflogs of the workspace that no other tip or ref of the run contains.
async fn reflog_tips(
    scratch: &Scratch,
    workspace: &WorkspaceTree,
    objects: Option<&Path>,
    tips: &[Tip],
    known: &[Tip],
) -> Result<Vec<Tip>, GitError> {
    let count = format!("--max-count={REFLOG_ENTRIES_MAX}");
    // A worktree shares all reflogs except that of HEAD with the user's repository.
    let args: &[&str] = match workspace.isolation {
        Isolation::Clone => &["rev-list", "--reflog", "--no-walk=unsorted", &count],
        _ => &["rev-list", "--walk-reflogs", &count, "HEAD"],
    };
    let ran = scratch
        .repo()
        .git
        .call(&workspace.path, args)
        .env("GIT_DIR", workspace.path.join(".git"))
        .run()
        .await?;
    if ran.exit_code != Some(0) {
        // There is no reflog, or it names missing commits.
        return Ok(Vec::new());
    }
    let named = String::from_utf8_lossy(&ran.output).into_owned();
    let mut wanted: String = named
        .lines()
        .filter(|line| is_id(line, workspace))
        .map(|line| format!("{line}\n"))
        .collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    for commit in tips
        .iter()
        .chain(known)
        .map(|tip| &tip.commit)
        .chain([&workspace.base])
    {
        wanted.push_str(&format!("^{commit}\n"));
    }
    let mut walk = scratch
        .call(&[
            "rev-list",
            "--parents",
            "--ignore-missing",
            &count,
            "--stdin",
        ])
        .input(wanted.into_bytes());
    if let Some(objects) = objects {
        walk = walk.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", object_dirs(&[objects]));
    }
    let walked = walk.line().await?;
    let mut parents = HashSet::new();
    let mut commits = Vec::new();
    for line in walked.lines() {
        let mut ids = line.split(' ');
        commits.extend(ids.next());
        parents.extend(ids);
    }
    let tip = |commit: &&str| Tip {
        name: format!("reflog/{commit}"),
        commit: (*commit).to_owned(),
    };
    Ok(commits
        .iter()
        .filter(|commit| !parents.contains(**commit))
        .take(REFLOG_TIPS_MAX)
        .map(tip)
        .collect())
}

/// Adds the objects of the tips that are not in the base to the user's repository, from other
/// object directories. Each object is verified against its id.
async fn copy_objects(
    scratch: &Scratch,
    workspace: &WorkspaceTree,
    sources: &[&Path],
    tips: &[Tip],
) -> Result<(), GitError> {
    let stage = scratch.stage().join("commits");
    fs::create_dir_all(&stage).map_err(GitError::file(&stage))?;
    let mut wanted: String = tips.iter().map(|tip| format!("{}\n", tip.commit)).collect();
    wanted.push_str(&format!("^{}\n", workspace.base));
    let pack = scratch
        .call(&["pack-objects", "--revs", "--quiet", "--delta-base-offset"])
        .arg(stage.join("pack"));
    let name = pack
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", object_dirs(sources))
        .input(wanted.into_bytes())
        .line()
        .await?;
    if name.is_empty() {
        return Ok(());
    }
    let path = stage.join(format!("pack-{name}.pack"));
    let file = File::open(&path).map_err(GitError::file(&path))?;
    let bytes = file.metadata().map_err(GitError::file(&path))?.len();
    if bytes > PACK_BYTES_MAX {
        return Err(GitError::unusable(
            &workspace.path,
            format!("its commits have {bytes} bytes"),
        ));
    }
    // index-pack computes each object's id from its content. Stricter checks would reject objects
    // like those in the user's own history.
    let stored = scratch
        .call(&["index-pack", "--stdin"])
        .input_file(file)
        .output()
        .await;
    fs::remove_dir_all(&stage).map_err(GitError::file(&stage))?;
    stored.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_branches_do_not_contain_each_other() {
        assert_eq!(
            ["a", "a/b", "a%2Fb"].map(kept_branch),
            ["heads/a", "heads/a%2Fb", "heads/a%252Fb"]
        );
    }

    fn tip(name: &str, commit: &str) -> Tip {
        Tip {
            name: name.to_owned(),
            commit: commit.to_owned(),
        }
    }

    #[test]
    fn branch_is_new_unless_a_ref_keeps_its_commit() {
        let known = [
            tip("heads/a", "c1"),
            tip("reflog/c2", "c2"),
            tip("head", "c3"),
        ];
        for (name, commit, expected) in [
            ("heads/b", "base", false),
            ("heads/a", "c1", false),
            ("heads/b", "c1", false),
            ("heads/b", "c2", true),
            ("heads/b", "c3", false),
            ("heads/b", "c4", true),
            ("heads/b", "now", false),
        ] {
            let found = is_new(&tip(name, commit), Some("now"), "base", &known);
            assert_eq!(found, expected, "{name} {commit}");
        }
    }

    #[test]
    fn checked_out_commit_is_kept_beside_its_branch() {
        let known = [tip("heads/a", "c1"), tip("head", "c2")];
        for (commit, expected) in [("base", false), ("c1", true), ("c2", false), ("c3", true)] {
            let found = is_new(&tip("head", commit), Some(commit), "base", &known);
            assert_eq!(found, expected, "{commit}");
        }
    }

    #[test]
    fn slash_in_the_name_of_a_branch_is_escaped() {
        assert_eq!(
            branch_tip("c1 refs/heads/a/b%"),
            Some(tip("heads/a%2Fb%25", "c1"))
        );
        assert_eq!(branch_tip("c1 refs/stash"), Some(tip("stash", "c1")));
        assert_eq!(branch_tip("c1"), None);
    }
}
