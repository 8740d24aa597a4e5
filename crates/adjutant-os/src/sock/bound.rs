//! The paths to which the sockets of this machine are bound.

use std::io;
use std::path::PathBuf;

/// The kernel's list of sockets.
#[cfg(target_os = "linux")]
const SOCKETS: &str = "/proc/net/unix";

/// Returns the absolute paths to which programs have bound sockets. A path can name something else
/// by now.
///
/// # Errors
/// The kernel's list cannot be read.
#[cfg(target_os = "linux")]
pub fn bound_paths() -> io::Result<Vec<PathBuf>> {
    Ok(paths(&std::fs::read_to_string(SOCKETS)?).collect())
}

/// Fails: the list of sockets serves a fence, which there is not here.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn bound_paths() -> io::Result<Vec<PathBuf>> {
    Err(crate::process::Unsupported::Fence.into())
}

#[cfg(target_os = "linux")]
fn paths(list: &str) -> impl Iterator<Item = PathBuf> {
    // The eighth column; it may contain spaces.
    list.lines()
        .filter_map(|line| line.find(" /").map(|at| PathBuf::from(&line[at + 1..])))
}
