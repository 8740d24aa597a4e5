//! Opens what an untrusted path names inside a directory. Links are followed if they stay inside.

use rustix::fs::{Mode, OFlags};
#[cfg(target_os = "linux")]
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens a file of any kind without read access, because opening a FIFO or a device for reading can
/// have effects. [`for_reading`] opens a regular file again.
///
/// # Errors
/// `EXDEV`: the path leads outside. Otherwise the kernel's error.
#[cfg(target_os = "linux")]
pub fn open_inside(dir: &Path, relative: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{ResolveFlags, open, openat2};
    let dir = open(
        dir,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    loop {
        match openat2(
            &dir,
            relative,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            // A directory of the path was renamed meanwhile.
            Err(Errno::AGAIN) => {}
            opened => return Ok(opened?),
        }
    }
}

/// Opens a file of any kind. A link that is replaced meanwhile could lead outside, and opening a
/// FIFO or a device can have effects.
///
/// # Errors
/// `EXDEV`: the path leads outside. Otherwise the kernel's error.
#[cfg(not(target_os = "linux"))]
pub fn open_inside(dir: &Path, relative: &Path) -> io::Result<OwnedFd> {
    let real = dir.join(relative).canonicalize()?;
    if !real.starts_with(dir.canonicalize()?) {
        return Err(io::Error::from_raw_os_error(libc::EXDEV));
    }
    Ok(rustix::fs::open(
        real,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens a regular file of [`open_inside`] for reading.
///
/// # Errors
/// The kernel's error.
#[cfg(target_os = "linux")]
pub fn for_reading(found: &OwnedFd) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// Returns a regular file of [`open_inside`], which was opened for reading.
///
/// # Errors
/// There are too many descriptors.
#[cfg(not(target_os = "linux"))]
pub fn for_reading(found: &OwnedFd) -> io::Result<File> {
    Ok(File::from(found.try_clone()?))
}
