//! Compares the user's index and files with a commit.

use super::Update;
use crate::git::call::error_text;
use crate::git::diff::DiffEntry;
use crate::git::paths::lossy;
use crate::git::refusal::MergeRefusal;
use crate::git::{GitError, Repo, Scratch};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

impl Scratch {
    /// Refuses changes that the user has staged in the listed files.
    pub(super) async fn refuse_staged(
        &self,
        update: &Update,
        listed: &[DiffEntry],
    ) -> Result<(), GitError> {
        // A copy, so that both calls of git read the same state: the user's git may replace the
        // index in between.
        let copy = self.index().with_extension("user");
        let index = self.repo().dir.join("index");
        match fs::copy(&index, &copy) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied.map_err(GitError::file(&index))?),
        }
        let call = |args: &[&str]| self.call(args).env("GIT_INDEX_FILE", &copy);
        let marked = call(&["ls-files", "-z", "-v"]).run().await?;
        if marked.exit_code != Some(0) {
            // A split index needs a shared one, which git looks for in its git directory, here that
            // of the scratch.
            let is_split = fs::read_dir(&self.repo().dir).is_ok_and(|entries| {
                entries
                    .flatten()
                    .any(|entry| entry.file_name().as_bytes().starts_with(b"sharedindex."))
            });
            let failed = GitError::Failed {
                command: "ls-files".to_owned(),
                why: error_text(&marked),
            };
            return Err(if is_split {
                MergeRefusal::SplitIndex.into()
            } else {
                failed
            });
        }
        let changed: HashSet<&[u8]> = listed.iter().map(|listed| listed.path.as_slice()).collect();
        // `S` is a file outside of the sparse checkout, which must not appear in the tree.
        let skipped = marked
            .output
            .split(|byte| *byte == 0)
            .filter_map(|entry| entry.strip_prefix(b"S "))
            .filter(|path| changed.contains(path));
        MergeRefusal::files(MergeRefusal::Sparse, skipped.map(lossy))?;
        let staged = call(&[
            "diff-index",
            "--cached",
            "-z",
            "--name-only",
            "--no-renames",
            &update.before,
            "--",
        ])
        .output()
        .await?;
        let dirty = staged
            .split(|byte| *byte == 0)
            .filter(|path| changed.contains(path));
        Ok(MergeRefusal::files(MergeRefusal::Dirty, dirty.map(lossy))?)
    }

    /// Returns the listed files whose content in the tree differs from their older state in `from`.
    /// Ignores files without an older state.
    pub(super) async fn differing(
        &self,
        listed: &[DiffEntry],
        from: &str,
    ) -> Result<HashSet<Vec<u8>>, GitError> {
        let index = self.index().with_extension("compare");
        remove_file(&index)?;
        let there: Vec<DiffEntry> = listed
            .iter()
            .filter(|listed| listed.from_mode.is_some())
            .cloned()
            .collect();
        let input = index_info(self.repo(), &there, false);
        // Like git: with the line ends and the encoding of a checkout.
        let call = |args: &[&str]| self.text_call(args, from).env("GIT_INDEX_FILE", &index);
        call(&["update-index", "-z", "--add", "--index-info"])
            .input(input)
            .output()
            .await?;
        // The exit code says whether a file differs.
        call(&["update-index", "-q", "--refresh"]).run().await?;
        let output = call(&["diff-files", "-z", "--name-only", "--no-renames"])
            .output()
            .await?;
        Ok(output
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// Returns whether the listed files are in the user's index as in a commit or tree.
    pub(super) async fn is_index_at(
        &self,
        commit: &str,
        listed: &[DiffEntry],
    ) -> Result<bool, GitError> {
        let copy = self.index().with_extension("user");
        let index = self.repo().dir.join("index");
        match fs::copy(&index, &copy) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            copied => drop(copied.map_err(GitError::file(&index))?),
        }
        let call = self
            .call(&[
                "diff-index",
                "--cached",
                "-z",
                "--name-only",
                "--no-renames",
                commit,
                "--",
            ])
            .env("GIT_INDEX_FILE", &copy);
        let differing = call.output().await?;
        let differing: HashSet<&[u8]> = differing.split(|byte| *byte == 0).collect();
        Ok(!listed
            .iter()
            .any(|listed| differing.contains(listed.path.as_slice())))
    }
}

/// Returns files in the format of `update-index --index-info`, in the older or the newer state.
/// Removals come first, because a directory can replace a file.
pub(super) fn index_info(repo: &Repo, listed: &[DiffEntry], is_newer: bool) -> Vec<u8> {
    let side = |listed: &DiffEntry| match is_newer {
        true => listed
            .to_mode
            .clone()
            .map(|mode| (mode, listed.to_object.clone())),
        false => listed
            .from_mode
            .clone()
            .map(|mode| (mode, listed.from_object.clone())),
    };
    let (there, gone): (Vec<_>, Vec<_>) = listed
        .iter()
        .map(|listed| (&listed.path, side(listed)))
        .partition(|(_, entry)| entry.is_some());
    let mut info = Vec::new();
    for (path, entry) in gone.into_iter().chain(there) {
        let (mode, object) = entry.unwrap_or_else(|| ("0".to_owned(), repo.zero()));
        for part in [mode.as_bytes(), b" ", object.as_bytes(), b"\t", path, b"\0"] {
            info.extend_from_slice(part);
        }
    }
    info
}

pub(super) fn remove_file(path: &Path) -> Result<(), GitError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::File {
            path: path.to_owned(),
            error,
        }),
        _ => Ok(()),
    }
}
