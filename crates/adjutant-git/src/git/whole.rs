//! Whether a workspace is complete.
//!
//! ```text
//!  <workspaces>/<run>/.index      Adjutant's index of the workspace; exists once all its files were written
//!                    /.unsynced   the boot in which they were written; removed when they are synced
//! ```
//! Creating a workspace does not sync its files, so that the agent need not wait. After a power
//! loss, they can be empty or missing although the index exists. Therefore a workspace counts as
//! incomplete if an earlier boot has not synced it. An agent may have worked in it, so it is
//! renamed before another one is created.

use super::GitError;
use crate::files;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum size of a boot's identifier, in bytes.
const BOOT_BYTES_MAX: u64 = 4 * 1024;

/// Returns the path of Adjutant's index of the workspace at `path`.
pub(super) fn index_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).join(".index")
}

fn mark_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).join(".unsynced")
}

/// Returns whether all files of a workspace were written. After a power loss, some can be torn.
pub(super) fn is_made(home: &Path, path: &Path) -> bool {
    files::open_dir(home, path).is_ok() && index_of(path).symlink_metadata().is_ok()
}

/// Returns whether a workspace exists with all its files. `boot` identifies the boot of the
/// machine.
pub(super) fn is_whole(home: &Path, path: &Path, boot: &str) -> bool {
    is_made(home, path)
        && match files::read(home, &mark_of(path), BOOT_BYTES_MAX) {
            Ok(made_in) => made_in == boot.as_bytes(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
}

/// Records that the files of a workspace were written in this boot and are not synced.
pub(super) fn mark_unsynced(home: &Path, path: &Path, boot: &str) -> Result<(), GitError> {
    let mark = mark_of(path);
    files::write_atomically(home, &mark, boot.as_bytes()).map_err(GitError::file(mark))
}

/// Syncs the files of a workspace unless they are synced already. This can take seconds.
///
/// # Errors
/// The disk failed. The workspace counts as unsynced then.
pub fn sync_workspace(home: &Path, path: &Path) -> io::Result<()> {
    let mark = mark_of(path);
    if files::look(home, &mark)?.is_none() {
        return Ok(());
    }
    // One call, instead of one for each of possibly many thousand files.
    files::sync_file_system(files::open_dir(home, path)?)?;
    match std::fs::remove_file(&mark) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        // A mark that a power failure restores would name an earlier boot, and the complete
        // workspace would count as torn.
        _ => files::sync_dirs(home, mark.parent().unwrap_or(&mark)),
    }
}
