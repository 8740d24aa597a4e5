//! Rewrites the commits of an agent without the files that were copied into its workspace, such as
//! `.env`, because these can be secrets.
//!
//! ```text
//!  commits of the workspace ─> the same without these files, in <scratch>/rewritten ─> the user's repository
//! ```
//! The same commit always becomes the same new one, so a commit that was kept before is found
//! again. Commits that contain no such file stay as they are. A commit that only changed such files
//! becomes an empty one, so its message is kept. A path that the user's own branches have is no
//! secret of the workspace.

use super::paths::quote_path;
use super::{GitError, Repo, Scratch};
use crate::files;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Maximum number of commits that are rewritten. With more, none is kept, and the workspace stays
/// their only place.
const REWRITTEN_MAX: usize = 500;
/// Maximum number of commits that are searched for copied files.
const SEARCHED_MAX: usize = 20_000;

/// The commits to keep instead of those that contain copied files.
#[derive(Debug, Default)]
pub(super) struct RewrittenCommits {
    /// The new commit of each rewritten one.
    by_original: BTreeMap<String, String>,
    /// The copied files that the originals contain.
    pub paths: BTreeSet<String>,
    /// The directory with the new objects.
    pub objects: Option<PathBuf>,
}

impl RewrittenCommits {
    /// Returns the commit to keep for one of the workspace.
    pub(super) fn kept<'a>(&'a self, commit: &'a str) -> &'a str {
        self.by_original.get(commit).map_or(commit, String::as_str)
    }
}

/// The commits of a workspace to search.
pub(super) struct SearchedCommits<'a> {
    pub scratch: &'a Scratch,
    /// The object directory of a clone.
    pub objects: Option<&'a Path>,
    pub base: &'a str,
    pub tips: Vec<&'a str>,
}

/// A commit with its parents, and the copied files that it contains.
struct FoundCommit {
    id: String,
    parents: Vec<String>,
    copies: Vec<String>,
}

impl SearchedCommits<'_> {
    /// Lists the copied files that the commits contain.
    pub(super) async fn copies(&self) -> Result<BTreeSet<String>, GitError> {
        Ok(self
            .find()
            .await?
            .into_iter()
            .flat_map(|commit| commit.copies)
            .collect())
    }

    /// Rewrites the commits that contain copied files, and their descendants.
    pub(super) async fn rewrite(&self) -> Result<RewrittenCommits, GitError> {
        let found = self.find().await?;
        let affected = affected(found);
        if affected.is_empty() {
            return Ok(RewrittenCommits::default());
        }
        if affected.len() > REWRITTEN_MAX {
            return Err(self.too_many(format!(
                "more than {REWRITTEN_MAX} of them contain copied files"
            )));
        }
        let dir = self.scratch.dir().join("rewritten");
        files::remove_dir(&dir).map_err(GitError::file(&dir))?;
        let objects = dir.join("objects");
        fs::create_dir_all(&objects).map_err(GitError::file(&objects))?;
        let mut new = RewrittenCommits {
            objects: Some(objects.clone()),
            ..RewrittenCommits::default()
        };
        for FoundCommit {
            id,
            parents: _,
            copies,
        } in affected
        {
            let text = self.call(&["cat-file", "commit", &id]).output().await?;
            let tree = match copies.is_empty() {
                true => None,
                false => Some(
                    self.tree_without(&id, &copies, &dir.join("index"), &objects)
                        .await?,
                ),
            };
            // Parents come first, so the new ids of all rewritten parents are known.
            let text = rewritten(&text, tree.as_deref(), &new.by_original);
            // An agent can make commits that git's own check refuses. They are kept, too.
            let call = self.writing(
                &[
                    "hash-object",
                    "-t",
                    "commit",
                    "-w",
                    "--literally",
                    "--stdin",
                ],
                &objects,
            );
            let made = call.input(text).line().await?;
            new.paths.extend(copies);
            new.by_original.insert(id, made);
        }
        Ok(new)
    }

    /// Writes the tree of a commit without files.
    async fn tree_without(
        &self,
        commit: &str,
        paths: &[String],
        index: &Path,
        objects: &Path,
    ) -> Result<String, GitError> {
        let call = |args: &[&str]| self.writing(args, objects).env("GIT_INDEX_FILE", index);
        call(&["read-tree", "--reset", commit]).output().await?;
        let zero = self.scratch.repo().zero();
        let removed: Vec<u8> = paths
            .iter()
            .flat_map(|path| format!("0 {zero}\t{path}\0").into_bytes())
            .collect();
        call(&["update-index", "-z", "--index-info"])
            .input(removed)
            .output()
            .await?;
        call(&["write-tree", "--missing-ok"]).line().await
    }

    /// Lists the commits that the user's branches do not have, parents first, with the copied files
    /// that each contains. Empty if none contains one.
    async fn find(&self) -> Result<Vec<FoundCommit>, GitError> {
        let copied = self.scratch.copied_paths();
        if copied.is_empty() || self.tips.is_empty() || !self.have_any(&copied).await? {
            return Ok(Vec::new());
        }
        let limit = format!("--max-count={}", SEARCHED_MAX + 1);
        let listed = self
            .listed(
                &[
                    "--topo-order",
                    "--reverse",
                    "--boundary",
                    "--parents",
                    &limit,
                ],
                &[],
            )
            .await?;
        let (ends, listed): (Vec<&str>, Vec<&str>) =
            listed.lines().partition(|line| line.starts_with('-'));
        if listed.len() > SEARCHED_MAX {
            return Err(self.too_many(format!(
                "there are more than {SEARCHED_MAX}, too many to search for copied files"
            )));
        }
        // What the user's branches have is not a secret of the workspace.
        let ends: Vec<&str> = ends
            .iter()
            .filter_map(|line| line[1..].split(' ').next())
            .collect();
        let public: BTreeSet<String> = self
            .contained(&ends, &copied)
            .await?
            .into_iter()
            .flatten()
            .collect();
        let copied: Vec<String> = copied
            .into_iter()
            .filter(|path| !public.contains(path))
            .collect();
        let mut found: Vec<FoundCommit> = listed
            .iter()
            .filter_map(|line| {
                let mut ids = line.split(' ').map(str::to_owned);
                Some(FoundCommit {
                    id: ids.next()?,
                    parents: ids.collect(),
                    copies: Vec::new(),
                })
            })
            .collect();
        let ids: Vec<&str> = found.iter().map(|commit| commit.id.as_str()).collect();
        let contained = self.contained(&ids, &copied).await?;
        for (commit, copies) in found.iter_mut().zip(contained) {
            commit.copies = copies;
        }
        Ok(found)
    }

    /// Returns whether a commit may contain one of these files. One call, because most workspaces
    /// have none.
    async fn have_any(&self, paths: &[String]) -> Result<bool, GitError> {
        Ok(!self
            .listed(&["--full-history", "--max-count=1"], paths)
            .await?
            .is_empty())
    }

    async fn listed(&self, options: &[&str], paths: &[String]) -> Result<String, GitError> {
        // A name with `*` or a leading `:` would be read as a pattern.
        let call = self.with_objects(Repo::of_refs(
            self.scratch.repo(),
            &["--literal-pathspecs", "rev-list", "--ignore-missing"],
        ));
        let mut call = options.iter().fold(call, |call, option| call.arg(*option));
        for tip in &self.tips {
            call = call.arg(*tip);
        }
        call = [
            "--not",
            self.base,
            "HEAD",
            "--branches",
            "--remotes",
            "--tags",
            "--",
        ]
        .iter()
        .fold(call, |call, arg| call.arg(*arg));
        paths
            .iter()
            .fold(call, |call, path| call.arg(path))
            .line()
            .await
    }

    /// Lists for each commit which of these files it contains. A directory in such a place is not
    /// the copied file.
    async fn contained(
        &self,
        commits: &[&str],
        paths: &[String],
    ) -> Result<Vec<Vec<String>>, GitError> {
        if commits.is_empty() || paths.is_empty() {
            return Ok(vec![Vec::new(); commits.len()]);
        }
        let asked: String = commits
            .iter()
            .flat_map(|commit| paths.iter().map(move |path| format!("{commit}:{path}\n")))
            .collect();
        // An answer to a missing path repeats the question.
        let answers = self
            .call(&["cat-file", "--batch-check=%(objecttype)"])
            .input(asked.into_bytes())
            .output()
            .await?;
        let is_file: Vec<bool> = answers
            .split(|byte| *byte == b'\n')
            .map(|answer| answer == b"blob")
            .collect();
        if is_file.len() < commits.len() * paths.len() {
            return Err(GitError::Failed {
                command: "cat-file".to_owned(),
                why: "it did not answer for each commit".to_owned(),
            });
        }
        let of_commit = |answers: &[bool]| {
            paths
                .iter()
                .zip(answers)
                .filter(|(_, is_file)| **is_file)
                .map(|(path, _)| path.clone())
                .collect()
        };
        Ok(is_file
            .chunks(paths.len())
            .take(commits.len())
            .map(of_commit)
            .collect())
    }

    fn too_many(&self, why: String) -> GitError {
        GitError::UnreadableCommits {
            workspace: self.scratch.tree().to_owned(),
            why,
        }
    }

    fn call<'a>(&'a self, args: &[&str]) -> super::call::Call<'a> {
        self.with_objects(self.scratch.call(args))
    }

    fn with_objects<'a>(&self, call: super::call::Call<'a>) -> super::call::Call<'a> {
        match self.objects {
            Some(objects) => call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quote_path(objects)),
            None => call,
        }
    }

    /// Builds a call that writes its objects to a directory of its own.
    fn writing<'a>(&'a self, args: &[&str], to: &Path) -> super::call::Call<'a> {
        let theirs = self.scratch.repo().common.join("objects");
        let read: Vec<&Path> = std::iter::once(theirs.as_path())
            .chain(self.objects)
            .collect();
        self.scratch
            .call(args)
            .env("GIT_OBJECT_DIRECTORY", to)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", object_dirs(&read))
    }
}

/// Returns the commits that contain copied files, and their descendants. `found` has parents first.
fn affected(found: Vec<FoundCommit>) -> Vec<FoundCommit> {
    let mut ids = BTreeSet::new();
    let mut is_affected = |commit: &FoundCommit| {
        let is_affected =
            !commit.copies.is_empty() || commit.parents.iter().any(|parent| ids.contains(parent));
        is_affected && ids.insert(commit.id.clone())
    };
    found
        .into_iter()
        .filter(|commit| is_affected(commit))
        .collect()
}

/// Makes a list of object directories for git.
pub(super) fn object_dirs(dirs: &[&Path]) -> OsString {
    let quoted: Vec<OsString> = dirs.iter().map(|dir| quote_path(dir)).collect();
    OsString::from_vec(quoted.join(OsStr::new(":")).as_bytes().to_vec())
}

/// Returns the text of a commit with another tree and the new parents, without its signature, which
/// would not fit any more.
fn rewritten(text: &[u8], tree: Option<&str>, parents: &BTreeMap<String, String>) -> Vec<u8> {
    let mut new = Vec::with_capacity(text.len());
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let mut is_signature = false;
    // A merge of a commit with its rewritten one has only one parent left.
    let mut written = BTreeSet::new();
    for line in lines.by_ref() {
        if line == b"\n" {
            new.push(b'\n');
            break;
        }
        // The lines of a header with several start with a space.
        if line.starts_with(b" ") {
            if !is_signature {
                new.extend_from_slice(line);
            }
            continue;
        }
        is_signature = line.starts_with(b"gpgsig ") || line.starts_with(b"gpgsig-sha256 ");
        let value = |name: &str| {
            let value = line.strip_prefix(name.as_bytes())?;
            std::str::from_utf8(value.strip_suffix(b"\n").unwrap_or(value)).ok()
        };
        match (value("tree "), value("parent ")) {
            (Some(before), _) => {
                new.extend_from_slice(format!("tree {}\n", tree.unwrap_or(before)).as_bytes())
            }
            (_, Some(before)) => {
                let parent = parents.get(before).map_or(before, String::as_str);
                if written.insert(parent) {
                    new.extend_from_slice(format!("parent {parent}\n").as_bytes());
                }
            }
            _ if is_signature => {}
            _ => new.extend_from_slice(line),
        }
    }
    lines.for_each(|line| new.extend_from_slice(line));
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_keeps_all_but_its_tree_parents_and_signature() {
        let text = "tree 1\nparent 2\nparent 3\nauthor A <a@a> 1 +0000\ncommitter B <b@b> 2 +0000\nencoding latin1\ngpgsig -----BEGIN\n \n -----END\n\
                    mergetag object 3\n type commit\n\nSubject\n\ntree 9\nparent 2\ngpgsig no\n";
        let new = rewritten(
            text.as_bytes(),
            Some("5"),
            &BTreeMap::from([("3".to_owned(), "4".to_owned())]),
        );
        let expected = "tree 5\nparent 2\nparent 4\nauthor A <a@a> 1 +0000\ncommitter B <b@b> 2 +0000\nencoding latin1\n\
                        mergetag object 3\n type commit\n\nSubject\n\ntree 9\nparent 2\ngpgsig no\n";
        assert_eq!(String::from_utf8(new).expect("text"), expected);
        assert_eq!(
            rewritten(text.as_bytes(), None, &BTreeMap::new()).len(),
            text.len() - "gpgsig -----BEGIN\n \n -----END\n".len()
        );
        let both = BTreeMap::from([("2".to_owned(), "3".to_owned())]);
        assert_eq!(
            rewritten(b"tree 1\nparent 2\nparent 3\n\nx", None, &both),
            b"tree 1\nparent 3\n\nx"
        );
        assert_eq!(
            rewritten(b"tree 1\n\nno newline", Some("2"), &BTreeMap::new()),
            b"tree 2\n\nno newline"
        );
    }
}
