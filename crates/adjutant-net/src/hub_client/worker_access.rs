//! The connection to the hub from inside a fence: only the run's own supervisor can be reached.

use crate::config::{Home, text_variable};
use crate::files;
use crate::protocol::WorkerAccess;
use std::path::{Path, PathBuf};

/// Longest access file, in bytes.
const ACCESS_BYTES_MAX: u64 = 64 * 1024;

/// Returns the access of the run that this process belongs to, if a fence hides the hub from it.
pub(super) fn access(home: &Home) -> Option<WorkerAccess> {
    let file = text_variable("ADJ_WORKER").map(PathBuf::from)?;
    if !file.starts_with(home.runs_dir())
        || home.socket().symlink_metadata().is_ok()
        || home.hub_lock().symlink_metadata().is_ok()
    {
        return None;
    }
    read(&file)
}

fn read(file: &Path) -> Option<WorkerAccess> {
    let bytes = files::read_named(file, ACCESS_BYTES_MAX).ok()?;
    serde_json::from_slice(&bytes).ok()
}
