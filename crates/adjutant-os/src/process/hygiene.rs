//! Initialization of Adjutant's processes: private files, no core dumps, no inherited descriptors,
//! ignored SIGPIPE.

pub use super::system::become_subreaper;

use super::system;
use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::process::{Resource, Rlimit};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

#[cfg(target_os = "linux")]
const OPEN_DESCRIPTORS: &str = "/proc/self/fd";
#[cfg(not(target_os = "linux"))]
const OPEN_DESCRIPTORS: &str = "/dev/fd";

/// Prepares a guard, a supervisor or a hub. Ignores signals that would end a background process by
/// accident: a closed terminal, a closed pipe, a file-size limit.
///
/// Agents inherit limits, so only the soft limit of descriptors is changed. A process of Adjutant
/// leaves no core dump, because it is not dumpable.
///
/// # Errors
/// The kernel rejects one of these settings.
pub fn background() -> io::Result<()> {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    // Its owner can always read and write.
    USER_UMASK.get_or_init(|| before & (Mode::RWXG | Mode::RWXO));
    seal_descriptors()?;
    ignore(&[
        libc::SIGHUP,
        libc::SIGPIPE,
        libc::SIGXFSZ,
        libc::SIGINT,
        libc::SIGQUIT,
    ]);
    raise_descriptor_limit()?;
    system::forbid_inspection()
}

static USER_UMASK: OnceLock<Mode> = OnceLock::new();

/// Returns the umask that this process had at its start: of a hub, that of the user whose command
/// started it.
#[must_use]
pub fn user_umask() -> Mode {
    USER_UMASK.get().copied().unwrap_or(Mode::WGRP | Mode::WOTH)
}

/// The soft limit of open descriptors is raised to the hard limit, but not above this.
const DESCRIPTORS_MAX: u64 = 65_536;

fn raise_descriptor_limit() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .unwrap_or(DESCRIPTORS_MAX)
        .min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        rustix::process::setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(wanted),
                maximum: limit.maximum,
            },
        )?;
    }
    Ok(())
}

/// Returns how many descriptors this process may have open.
#[must_use]
pub fn descriptors_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile)
        .current
        .unwrap_or(DESCRIPTORS_MAX)
}

/// Takes over an inherited descriptor. `None`: the parent passed none. Each can be taken once.
#[must_use]
#[expect(
    unsafe_code,
    reason = "a descriptor placed by the parent has no owner in this process yet"
)]
pub fn inherited(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: descriptors from 3 on have no other owner at the start of the process; the first call
    // detects an unused number, which is forgotten without being closed.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    match rustix::io::fcntl_setfd(&owned, FdFlags::CLOEXEC) {
        Ok(()) => Some(owned),
        Err(_) => {
            std::mem::forget(owned);
            None
        }
    }
}

/// Replaces standard input by `/dev/null`.
///
/// # Errors
/// The kernel's error.
pub fn drop_stdin() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::stdio::dup2_stdin(&null)?)
}

/// Replaces the three standard streams by `/dev/null`.
///
/// # Errors
/// The kernel's error.
pub(crate) fn drop_stdio() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Marks every descriptor above the standard streams close-on-exec, inherited ones included.
pub(super) fn seal_descriptors() -> io::Result<()> {
    // Kernels before 5.11 cannot do it at once, and containers can forbid it.
    seal_at_once().or_else(|_| seal_each_descriptor())
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "close_range has no safe wrapper")]
fn seal_at_once() -> io::Result<()> {
    // SAFETY: this changes only flags of descriptors, and closes none before an exec.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(not(target_os = "linux"))]
fn seal_at_once() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[expect(
    unsafe_code,
    reason = "a descriptor that was inherited has no owner in this process"
)]
fn seal_each_descriptor() -> io::Result<()> {
    let open = std::fs::read_dir(OPEN_DESCRIPTORS)?
        .map(|entry| {
            Ok(entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok()))
        })
        .collect::<io::Result<Vec<Option<RawFd>>>>()?;
    for fd in open.into_iter().flatten().filter(|fd| *fd > 2) {
        // SAFETY: only a flag is changed, and a number that is not open any more is an error.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        match rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC) {
            // The directory that was read.
            Ok(()) | Err(rustix::io::Errno::BADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Releases the memory of this program's code, most of which is needed only at the start. Code that
/// is needed again is mapped from the page cache, 16 pages at a time.
///
/// # Errors
/// The kernel does not report the mappings of the code, or rejects the call.
#[cfg(target_os = "linux")]
pub fn release_code() -> io::Result<()> {
    let own = std::fs::read_link("/proc/self/exe")?;
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let mut fields = line.splitn(6, ' ');
        let (range, access) = (
            fields.next().unwrap_or_default(),
            fields.next().unwrap_or_default(),
        );
        let is_own = fields
            .last()
            .is_some_and(|name| std::path::Path::new(name.trim_start()) == own);
        if access == "r-xp" && is_own {
            let (from, to) = range
                .split_once('-')
                .ok_or_else(|| io::Error::other("a line of the memory map"))?;
            let address = |text| usize::from_str_radix(text, 16).map_err(io::Error::other);
            release_mapping(address(from)?, address(to)?)?;
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub fn release_code() -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "madvise has no safe wrapper")]
fn release_mapping(from: usize, to: usize) -> io::Result<()> {
    // SAFETY: the mapping is read-only and backed by a file, so dropped pages are read again
    // unchanged.
    let done = unsafe {
        libc::madvise(
            std::ptr::with_exposed_provenance_mut(from),
            to - from,
            libc::MADV_DONTNEED,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[expect(
    unsafe_code,
    reason = "setting a signal's disposition has no safe wrapper"
)]
fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN runs no code of Adjutant.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_sealed_without_close_range() {
        let (inherited, _other) = std::io::pipe().expect("a pipe");
        rustix::io::fcntl_setfd(&inherited, FdFlags::empty()).expect("its flag");
        seal_each_descriptor().expect("seals");
        let flags = rustix::io::fcntl_getfd(&inherited).expect("its flags");
        assert_eq!(flags, FdFlags::CLOEXEC);
    }
}
