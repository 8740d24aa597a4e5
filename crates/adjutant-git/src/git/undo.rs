//! Undoes what a run has changed: restores the files that it has changed to their state in an
//! earlier snapshot, and leaves those alone that others have changed.

use super::call::error_text;
use super::diff::{DiffEntry, GITLINK};
use super::paths::{as_path, lossy, nul_terminated};
use super::restore::{
    Restore, Stamps, changed_by_run, distinct, edits_between_attempts, export, only_in,
    paths_between, refuse_unsaved,
};
use super::work_tree::LINK;
use super::{GitError, Scratch, Snapshot, TakenSnapshot};
use crate::user_files::{Cause, LeftAlone};
use adjutant_core::snapshot::SnapshotCause;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A prepared restore of the files that a run has changed, and the files that need attention.
#[derive(Debug)]
pub struct PreparedUndo {
    pub restore: Restore,
    /// Files to restore that were changed while no attempt was running.
    pub changed_since: Vec<String>,
    /// Files to restore that other runs changed at the same time.
    pub changed_beside: Vec<String>,
    /// Files that it does not remove because they were there before that snapshot, or can have
    /// been: it leaves them out, since they were ignored then, or too large.
    pub not_removed: Vec<String>,
    /// Files that the run has changed outside its directory. They are not restored.
    pub outside: Vec<String>,
    /// Files that changed after the snapshot was taken. They are not restored.
    pub left_alone: Vec<(String, LeftAlone)>,
}

/// The files that a run has changed, with their states before the snapshot is taken to which they
/// are compared.
#[derive(Debug)]
pub struct UndoStart {
    changed: BTreeSet<Vec<u8>>,
    stamps: Stamps,
}

impl UndoStart {
    /// Reads the states of the files that an undo to the snapshot `to` can restore. `own`: the
    /// snapshots of the run's own work.
    ///
    /// # Errors
    /// git or the disk failed.
    pub async fn read(
        scratch: &Scratch,
        to: &Snapshot,
        own: &[&Snapshot],
    ) -> Result<Self, GitError> {
        let mut changed = changed_by_run(scratch, own).await?;
        if let Some(last) = own.last().filter(|last| !ends_attempt(last)) {
            // This can revert an undo, after which the tree is as it was before those changes.
            changed.extend(paths_between(scratch, &last.commit, &to.commit).await?);
        }
        let stamps = Stamps::read(scratch.tree(), changed.clone())?;
        Ok(Self { changed, stamps })
    }
}

/// Without a snapshot of the last attempt's end, its changes cannot be distinguished from later
/// ones.
fn ends_attempt(last: &Snapshot) -> bool {
    last.cause == Some(SnapshotCause::End)
}

/// The states between which the files of a run are restored.
#[derive(Debug, Clone, Copy)]
pub struct Undo<'a> {
    pub scratch: &'a Scratch,
    /// The state of the tree now.
    pub now: &'a TakenSnapshot,
    /// The state to restore.
    pub to: &'a Snapshot,
    /// The snapshots of the run's own work.
    pub own: &'a [&'a Snapshot],
}

impl Undo<'_> {
    /// Prepares to restore the files that a run has changed, below the directory from which the
    /// repository was found. `start`: their states before the snapshot `now` was taken; `beside`:
    /// the paths that other runs changed at the same time. Does not change the tree.
    ///
    /// # Errors
    /// A file would be lost that is not in the snapshot `now`, or git or the disk failed.
    pub async fn prepare(
        &self,
        start: UndoStart,
        beside: &BTreeSet<Vec<u8>>,
    ) -> Result<PreparedUndo, GitError> {
        let (scratch, to) = (self.scratch, self.to);
        let UndoStart { changed, stamps } = start;
        let mut listed = self.changed_files(changed).await?;
        let not_removed = self.take_kept(&mut listed).await?;
        listed.extend(self.differing_bytes(&listed).await?);
        let (listed, outside): (Vec<DiffEntry>, Vec<DiffEntry>) = listed
            .into_iter()
            .partition(|listed| as_path(&listed.path).starts_with(&scratch.repo().below));
        let filtered = self.filtered(&listed).await?;
        let (skipped, listed): (Vec<DiffEntry>, Vec<DiffEntry>) = listed
            .into_iter()
            .partition(|listed| is_repository(listed) || filtered.contains(&listed.path));
        refuse_unsaved(scratch.tree(), self.now, &listed)?;
        let since = self.edited_since().await?;
        let among = |paths: &BTreeSet<Vec<u8>>| {
            let listed = listed.iter();
            names(listed.filter(|listed| paths.contains(&listed.path)))
        };
        let (changed_since, changed_beside) = (among(&since), among(beside));
        let restore =
            Restore::of(scratch, listed, &to.commit, to.bytes.as_deref(), &stamps).await?;
        let mut restore = restore.with_skipped(names(&skipped));
        let changed_after = restore.changed_after(scratch, &stamps).await?;
        restore.retain(|listed| !changed_after.contains(&listed.path));
        let left_alone = changed_after
            .iter()
            .map(|path| (lossy(path), Cause::Changed.into()))
            .collect();
        Ok(PreparedUndo {
            restore,
            changed_since,
            changed_beside,
            not_removed,
            outside: names(&outside),
            left_alone,
        })
    }

    /// Lists the files of the run that differ between the two states. `changed`: the files that it
    /// has changed.
    async fn changed_files(
        &self,
        mut changed: BTreeSet<Vec<u8>>,
    ) -> Result<Vec<DiffEntry>, GitError> {
        let (scratch, now) = (self.scratch, &self.now.snapshot.commit);
        let mut all = scratch.list(now, &self.to.commit).await?;
        if let Some(last) = self.own.last().filter(|last| !ends_attempt(last)) {
            changed.extend(paths_between(scratch, &last.commit, now).await?);
        }
        all.retain(|listed| changed.contains(&listed.path));
        Ok(all)
    }

    /// Takes out the files that are not removed, and names them.
    async fn take_kept(&self, all: &mut Vec<DiffEntry>) -> Result<Vec<String>, GitError> {
        // Files in a renamed directory keep their times. They are new at their path if the restore
        // writes the same content elsewhere.
        let moved: HashSet<_> = all
            .iter()
            .filter(|listed| listed.from_mode.is_none())
            .map(|listed| (listed.to_object.clone(), listed.to_mode.clone()))
            .collect();
        let was_there = |listed: &DiffEntry| {
            let now = (listed.from_object.clone(), listed.from_mode.clone());
            is_older(self.scratch.tree(), listed, self.to) && !moved.contains(&now)
        };
        // Nothing tells what an older snapshot has left out from what the run has created.
        let gone: Vec<&Vec<u8>> = all
            .iter()
            .filter(|listed| listed.to_mode.is_none())
            .map(|listed| &listed.path)
            .collect();
        let left_out = self.scratch.left_out_of(self.to, &gone).await?;
        let kept: Vec<DiffEntry> = all
            .extract_if(.., |listed| {
                left_out.contains(&listed.path) || was_there(listed)
            })
            .collect();
        Ok(names(&kept))
    }

    /// Lists the other files that differ only in line ends or encoding.
    async fn differing_bytes(&self, listed: &[DiffEntry]) -> Result<Vec<DiffEntry>, GitError> {
        let (before, exact) = (
            self.scratch
                .exact_files(self.now.snapshot.bytes.as_deref())
                .await?,
            self.scratch.exact_files(self.to.bytes.as_deref()).await?,
        );
        let listed: HashSet<&[u8]> = listed.iter().map(|listed| listed.path.as_slice()).collect();
        let others = before.iter().chain(&exact).filter(|(path, _)| {
            before.get(*path) != exact.get(*path) && !listed.contains(path.as_slice())
        });
        let others: BTreeMap<_, _> = others
            .map(|(path, entry)| (path.clone(), entry.listed(path)))
            .collect();
        Ok(others.into_values().collect())
    }

    /// Returns which of these files a filter writes to the disk with other content than git stores.
    async fn filtered(&self, listed: &[DiffEntry]) -> Result<HashSet<Vec<u8>>, GitError> {
        let commits = [self.now.snapshot.commit.as_str(), self.to.commit.as_str()];
        let mut filtered = self.scratch.find_filtered(listed, &commits).await?;
        if !filtered.is_empty() {
            let first = self.own.first().copied();
            let cleaned = self.scratch.cleaned_blobs(&filtered, first).await?;
            for listed in listed.iter().filter(|listed| is_exact(listed, &cleaned)) {
                filtered.remove(&listed.path);
            }
        }
        Ok(filtered)
    }

    /// Lists the paths that were changed while no attempt was running.
    async fn edited_since(&self) -> Result<BTreeSet<Vec<u8>>, GitError> {
        let (tree, trees) = (&self.now.snapshot.tree, distinct(self.own));
        let mut since = only_in(self.scratch, tree, &trees).await?;
        for (start, edited) in edits_between_attempts(self.scratch, self.own).await? {
            since.extend(edited.into_iter().filter(|_| start.n > self.to.n));
        }
        Ok(since)
    }
}

fn names<'a>(listed: impl IntoIterator<Item = &'a DiffEntry>) -> Vec<String> {
    listed
        .into_iter()
        .map(|listed| lossy(&listed.path))
        .collect()
}

/// Returns whether one of the states is a nested repository.
fn is_repository(listed: &DiffEntry) -> bool {
    [&listed.from_mode, &listed.to_mode]
        .iter()
        .any(|mode| mode.as_deref() == Some(GITLINK))
}

/// Returns whether both states of a file with a filter are its content. Snapshots run no filter:
/// what git has not stored itself (`cleaned`) is the content of the file.
fn is_exact(listed: &DiffEntry, cleaned: &HashSet<(Vec<u8>, String)>) -> bool {
    let of = |mode: &Option<String>, object: &String| {
        mode.is_none() || !cleaned.contains(&(listed.path.clone(), object.clone()))
    };
    of(&listed.from_mode, &listed.from_object) && of(&listed.to_mode, &listed.to_object)
}

/// Returns whether a file that is missing in a snapshot is older than the snapshot. Creating or
/// renaming a file sets its change time; renaming its directory does not.
fn is_older(tree: &Path, listed: &DiffEntry, to: &Snapshot) -> bool {
    let Ok(meta) = tree.join(as_path(&listed.path)).symlink_metadata() else {
        return false;
    };
    listed.to_mode.is_none()
        && !meta.is_dir()
        && meta.ctime().saturating_mul(1000) + meta.ctime_nsec() / 1_000_000 < to.at_ms
}

/// Returns whether a snapshot names a file, or a directory above it, as left out. `left_out`: as it
/// names them, quoted, each with the reason.
fn is_named(left_out: &[String], path: &[u8]) -> bool {
    let above =
        as_path(path)
            .ancestors()
            .skip(1)
            .map(|dir| match lossy(dir.as_os_str().as_bytes()) {
                top if top.is_empty() => top,
                dir => dir + "/",
            });
    std::iter::once(lossy(path)).chain(above).any(|name| {
        let named = format!("{name:?} (");
        left_out.iter().any(|entry| entry.starts_with(&named))
    })
}

impl Scratch {
    /// Returns which of these files a snapshot would not have even if they were there when it was
    /// taken: it names them as left out, or the patterns that it has ignore them.
    async fn left_out_of(
        &self,
        snapshot: &Snapshot,
        paths: &[&Vec<u8>],
    ) -> Result<HashSet<Vec<u8>>, GitError> {
        if paths.is_empty() {
            return Ok(HashSet::new());
        }
        let mut found = self.ignored_by_patterns_of(snapshot, paths).await?;
        let named = paths
            .iter()
            .filter(|path| is_named(&snapshot.left_out, path));
        found.extend(named.map(|path| (*path).clone()));
        Ok(found)
    }

    /// Returns which of these files the pattern files of a snapshot ignore.
    async fn ignored_by_patterns_of(
        &self,
        snapshot: &Snapshot,
        paths: &[&Vec<u8>],
    ) -> Result<HashSet<Vec<u8>>, GitError> {
        let dir = self.export_patterns(snapshot).await?;
        // The name as given is the name in the reply.
        let given: Vec<Vec<u8>> = paths
            .iter()
            .map(|path| [b"./".as_slice(), path].concat())
            .collect();
        let patterns = self.pattern_settings()?;
        let call = self
            .repo()
            .git
            .call(&dir, &["check-ignore", "-z", "--stdin", "--no-index"])
            .settings(&self.repo().settings)
            .settings(&patterns);
        let ran = call
            .env("GIT_DIR", self.dir())
            .env("GIT_WORK_TREE", &dir)
            .input(nul_terminated(&given))
            .run()
            .await?;
        // Exit code 1: none is ignored.
        if !matches!(ran.exit_code, Some(0 | 1)) {
            return Err(GitError::Failed {
                command: "check-ignore".to_owned(),
                why: error_text(&ran),
            });
        }
        Ok(ran
            .output
            .split(|byte| *byte == 0)
            .filter_map(|path| path.strip_prefix(b"./"))
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// Writes a work tree that has only the pattern files of a snapshot.
    async fn export_patterns(&self, snapshot: &Snapshot) -> Result<PathBuf, GitError> {
        let dir = self.dir().join("pattern-files");
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(GitError::File { path: dir, error });
            }
            _ => {}
        }
        fs::create_dir_all(&dir).map_err(GitError::file(&dir))?;
        let all = self.list_pattern_files(&snapshot.commit).await?;
        let is_pattern_file = |listed: &&DiffEntry| {
            let is_file = !matches!(listed.to_mode.as_deref(), Some(GITLINK | LINK));
            is_file
                && as_path(&listed.path)
                    .file_name()
                    .is_some_and(|name| name == ".gitignore")
        };
        let files: Vec<&Vec<u8>> = all
            .iter()
            .filter(is_pattern_file)
            .map(|listed| &listed.path)
            .collect();
        export(self, |args| self.call(args), &snapshot.commit, &files, &dir).await?;
        Ok(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(from: Option<&str>, to: Option<&str>) -> DiffEntry {
        DiffEntry {
            path: b"a".to_vec(),
            from_mode: from.map(str::to_owned),
            to_mode: to.map(str::to_owned),
            from_object: "before".to_owned(),
            to_object: "after".to_owned(),
        }
    }

    #[test]
    fn left_out_directory_covers_what_is_below() {
        let left_out = ["\"big.bin\" (70000000 bytes)", "\"logs/\" (too many files)"];
        let left_out = left_out.map(str::to_owned);
        for (path, expected) in [
            ("big.bin", true),
            ("big.bin2", false),
            ("dir/big.bin", false),
            ("logs/a", true),
            ("logs/a/b", true),
            ("logs", false),
            ("logs2/a", false),
        ] {
            assert_eq!(is_named(&left_out, path.as_bytes()), expected, "{path}");
        }
        let all = ["\"\" (more files than are listed)".to_owned()];
        assert!(is_named(&all, b"any/file") && !is_named(&[], b"any/file"));
    }

    #[test]
    fn content_that_git_has_cleaned_is_not_that_of_the_file() {
        let cleaned = |object: &str| HashSet::from([(b"a".to_vec(), object.to_owned())]);
        let file = Some("100644");
        assert!(is_exact(&entry(file, file), &HashSet::new()));
        assert!(!is_exact(&entry(file, file), &cleaned("before")));
        assert!(!is_exact(&entry(file, file), &cleaned("after")));
        // The object of a state without the file says nothing.
        assert!(is_exact(&entry(file, None), &cleaned("after")));
    }
}
