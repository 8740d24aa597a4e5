//! Whether a workspace is whole.
//!
//! ```text
//!  <workspaces>/<run>/.index      Adjutant's index of it, there once all its files were written
//!                    /.unsynced   the boot in which they were, until they are known to be on disk
//! ```
//! Its files are not synced while it is made: an agent need not wait for that. After a loss of power they can be empty or
//! missing although the index is there, so one whose files another boot has not synced counts as not made. It can have work of
//! an agent nevertheless, so it is moved aside before it is made again.

use super::{GitError, Scratch};
use crate::files;
use std::io;
use std::path::{Path, PathBuf};

/// Longest name of a boot, in bytes.
const BOOT_BYTES_MAX: u64 = 4 * 1024;

/// Returns where Adjutant keeps an index of the workspace at `path`: beside it.
pub(super) fn index_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).join(".index")
}

fn mark_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).join(".unsynced")
}

/// Tells whether all files of a workspace were written. After a loss of power some can be torn.
pub(super) fn is_made(home: &Path, path: &Path) -> bool {
    files::open_dir(home, path).is_ok() && index_of(path).symlink_metadata().is_ok()
}

/// Tells whether a workspace is there with all its files. `boot` identifies the boot of the machine.
pub(super) fn is_whole(home: &Path, path: &Path, boot: &str) -> bool {
    is_made(home, path)
        && match files::read(home, &mark_of(path), BOOT_BYTES_MAX) {
            Ok(made_in) => made_in == boot.as_bytes(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
}

impl Scratch {
    /// Tells whether a loss of power may have torn files of the workspace. It counts as not there, but can have work of an agent.
    #[must_use]
    pub fn is_torn(&self) -> bool {
        self.workspace().is_some_and(|workspace| !workspace.is_there && is_made(&workspace.home, &workspace.path))
    }
}

/// Notes that the files of a workspace are written in this boot and not synced.
pub(super) fn mark_unsynced(home: &Path, path: &Path, boot: &str) -> Result<(), GitError> {
    let mark = mark_of(path);
    files::write_atomically(home, &mark, boot.as_bytes()).map_err(GitError::file(mark))
}

/// Syncs the files of a workspace, if that is not known to have happened. It can take seconds.
///
/// # Errors
/// The disk failed. The workspace counts as unsynced then.
pub fn sync_workspace(home: &Path, path: &Path) -> io::Result<()> {
    let mark = mark_of(path);
    if files::look(home, &mark)?.is_none() {
        return Ok(());
    }
    files::sync_file_system(files::open_dir(home, path)?)?;
    match std::fs::remove_file(&mark) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => files::sync_dirs(home, mark.parent().unwrap_or(&mark)),
    }
}
