//! Syncs what git has renamed in a git directory. git syncs the content of its files, and not the
//! directories that name them.

use super::work_tree::sync_directory;
use super::{GitError, Repo};
use crate::failpoint;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

impl Repo {
    /// Syncs the user's ref that was moved or created, and its reflog.
    pub(super) fn sync_ref(&self, git_ref: &str) -> Result<(), GitError> {
        let base = if git_ref == "HEAD" {
            &self.dir
        } else {
            &self.common
        };
        let log = Path::new("logs").join(git_ref);
        let mut dirs: BTreeSet<PathBuf> = above(base, Path::new(git_ref)).collect();
        if base.join(&log).exists() {
            dirs.extend(above(base, &log));
        }
        self.sync_names(dirs)?;
        if failpoint::is_unsynced() {
            return Ok(());
        }
        // git appends to the reflogs that exist.
        sync_file(&base.join(log))?;
        sync_file(&self.dir.join("logs/HEAD"))
    }

    /// Syncs refs of runs that were written.
    pub(super) fn sync_refs<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), GitError> {
        self.sync_names(
            names
                .into_iter()
                .flat_map(|name| above(&self.common, Path::new(name)))
                .collect(),
        )
    }

    /// Syncs directories, all of which can be new.
    fn sync_names(&self, mut dirs: BTreeSet<PathBuf>) -> Result<(), GitError> {
        if failpoint::is_unsynced() || dirs.is_empty() {
            return Ok(());
        }
        // Another storage of refs than files.
        dirs.extend([&self.dir, &self.common].map(|dir| dir.join("reftable")));
        // The deepest first: a file system that writes its whole journal for the first one has
        // nothing left to write for the others.
        dirs.iter().rev().try_for_each(|dir| sync_directory(dir))
    }

    /// Syncs the index, and the names in the git directory: the index, its lock, and the second
    /// name of a new index.
    pub(super) fn sync_index(&self) -> Result<(), GitError> {
        if failpoint::is_unsynced() {
            return Ok(());
        }
        sync_file(&self.dir.join("index"))?;
        sync_directory(&self.dir)
    }
}

/// Returns the directories above a name, up to `base`.
fn above<'a>(base: &'a Path, name: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
    name.ancestors().skip(1).map(move |dir| base.join(dir))
}

/// Syncs a file, if it exists.
fn sync_file(path: &Path) -> Result<(), GitError> {
    match File::open(path) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(())
        }
        opened => opened
            .and_then(|file| file.sync_all())
            .map_err(GitError::file(path)),
    }
}
