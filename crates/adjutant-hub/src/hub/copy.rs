//! Copying the store while no hub uses it.

use crate::config::Home;
use crate::process::{Lock, lock};
use crate::store;
pub use crate::store::{Copied, CopiedTable, CopyError, Progress, StoreLocation};

/// Why the store was not copied.
#[derive(Debug, thiserror::Error)]
pub enum StoreCopyError {
    #[error("a hub{} uses this home", .pid.map_or_else(String::new, |pid| format!(" (pid {pid})")))]
    HubRuns { pid: Option<i32> },
    #[error("{0}")]
    Home(String),
    #[error(transparent)]
    Copy(#[from] CopyError),
}

/// Copies the store of a home to another place, or back. It holds the locks of a hub meanwhile.
/// Blocks.
///
/// # Errors
/// A hub runs, or those of [`store::copy`].
pub fn copy_store(
    home: &Home,
    from: &StoreLocation,
    to: &StoreLocation,
    report: &mut dyn FnMut(Progress<'_>),
) -> Result<Copied, StoreCopyError> {
    let failed = |error: &dyn std::fmt::Display| {
        StoreCopyError::Home(format!("{}: {error}", home.dir.display()))
    };
    home.ensure().map_err(|error| failed(&error))?;
    let path = home.hub_lock();
    let Some(held) = Lock::try_take(&home.dir, &path).map_err(|error| failed(&error))? else {
        let pid = lock::written_pid(&home.dir, &path).ok().flatten();
        return Err(StoreCopyError::HubRuns {
            pid: pid.map(|pid| pid.as_raw_nonzero().get()),
        });
    };
    held.write_pid(rustix::process::getpid())
        .map_err(|error| failed(&error))?;
    Ok(store::copy(from, to, report)?)
}
