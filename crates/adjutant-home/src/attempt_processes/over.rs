//! Whether an attempt is over: neither its guard nor its supervisor is alive.

use crate::files;
use crate::process::lock;
use crate::process::watch::released;
use crate::protocol::AttemptDir;
use std::io;

/// Waits until neither guard nor supervisor of the attempt is alive. Their descendants have ended
/// then too, unless both were killed (see [`super::kill_stragglers`]).
///
/// The guard takes the supervisor's lock before it starts the supervisor and while it holds its own
/// lock, so waiting for the guard first leaves no gap. A replaced lock file proves nothing: the
/// attempt counts as over, and the hub that settles it kills the remaining processes.
///
/// # Errors
/// The locks cannot be examined.
pub async fn attempt_over(dir: &AttemptDir) -> io::Result<()> {
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        match released(dir.home(), &lock).await {
            Err(error) if files::unusable(&error).is_some() => {
                tracing::warn!(%error, "a lock cannot be examined")
            }
            looked => looked?,
        }
    }
    Ok(())
}

/// Returns whether neither guard nor supervisor of the attempt is alive.
///
/// # Errors
/// The locks cannot be examined.
pub fn is_over(dir: &AttemptDir) -> io::Result<bool> {
    for lock in [dir.guard_lock(), dir.supervisor_lock()] {
        match lock::is_held(dir.home(), &lock) {
            Ok(true) => return Ok(false),
            Err(error) if files::unusable(&error).is_none() => return Err(error),
            Ok(false) | Err(_) => {}
        }
    }
    Ok(true)
}
