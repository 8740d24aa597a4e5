//! What a process of Adjutant does to itself before anything else: private files, no core dumps, no
//! descriptors for its children, no death by a closed pipe.

use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Prepares a guard, a supervisor or a hub. Signals that end a background process by accident are
/// ignored: a closed terminal, a closed pipe, a file-size limit.
///
/// Limits are inherited by agents, so none but the soft one of descriptors is touched; that a
/// process of Adjutant leaves no core dump comes with its not being dumpable.
///
/// # Errors
/// The kernel refuses one of it.
pub fn background() -> io::Result<()> {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    seal_descriptors()?;
    ignore(&[libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ, libc::SIGINT, libc::SIGQUIT]);
    raise_descriptor_limit()?;
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Makes orphans below this process its children, so that none escapes its sweep.
///
/// # Errors
/// The platform cannot.
#[cfg(target_os = "linux")]
pub fn become_subreaper() -> io::Result<()> {
    // Any pid means "yes".
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Leaves it at that: there is no such thing here, and survivors can only be reported.
#[cfg(not(target_os = "linux"))]
pub fn become_subreaper() -> io::Result<()> {
    Ok(())
}

/// The soft limit of open descriptors goes up to the hard one, at most to this.
const DESCRIPTORS_MAX: u64 = 65_536;

fn raise_descriptor_limit() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })?;
    }
    Ok(())
}

/// Returns how many descriptors this process may have open.
#[must_use]
pub fn descriptors_max() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS_MAX)
}

/// Takes over descriptor `fd` that the parent placed for us. `None` when there is none.
/// Each may be taken once.
#[must_use]
#[expect(unsafe_code, reason = "a descriptor placed by the parent has no owner in this process yet")]
pub fn inherited(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: descriptors 3 and up at the start of the process belong to nobody in it; an unused
    // number is found out by the first call and forgotten without being closed.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    match rustix::io::fcntl_setfd(&owned, FdFlags::CLOEXEC) {
        Ok(()) => Some(owned),
        Err(_) => {
            std::mem::forget(owned);
            None
        }
    }
}

/// Points standard input at `/dev/null`, letting go of what it was.
///
/// # Errors
/// As the kernel says.
pub fn drop_stdin() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::stdio::dup2_stdin(&null)?)
}

/// Points all three standard streams at `/dev/null`.
///
/// # Errors
/// As the kernel says.
pub fn drop_stdio() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Marks every descriptor above the standard streams close-on-exec, inherited ones included.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "close_range has no safe wrapper")]
fn seal_descriptors() -> io::Result<()> {
    // SAFETY: only flags of descriptors change; nothing is closed before an exec.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    // Kernels before 5.11 do not know it; there, everything we open is close-on-exec anyway.
    if done == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EPERM) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn seal_descriptors() -> io::Result<()> {
    Ok(())
}

/// Gives back the memory of this program's code, most of which is needed only to start. What is needed
/// again comes back from the page cache, 16 pages at a time.
///
/// # Errors
/// The kernel does not say where the code is, or refuses.
#[cfg(target_os = "linux")]
pub fn forget_code() -> io::Result<()> {
    let own = std::fs::read_link("/proc/self/exe")?;
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let mut fields = line.splitn(6, ' ');
        let (range, access) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let is_own = fields.last().is_some_and(|name| std::path::Path::new(name.trim_start()) == own);
        if access == "r-xp" && is_own {
            let (from, to) = range.split_once('-').ok_or_else(|| io::Error::other("a line of the memory map"))?;
            let address = |text| usize::from_str_radix(text, 16).map_err(io::Error::other);
            forget_mapping(address(from)?, address(to)?)?;
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub fn forget_code() -> io::Result<()> {
    Ok(())
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "madvise has no safe wrapper")]
fn forget_mapping(from: usize, to: usize) -> io::Result<()> {
    // SAFETY: the mapping is of a file and cannot be written, so what is dropped is what is read again.
    let done = unsafe { libc::madvise(std::ptr::with_exposed_provenance_mut(from), to - from, libc::MADV_DONTNEED) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[expect(unsafe_code, reason = "setting a signal's disposition has no safe wrapper")]
fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN runs no code of Adjutant.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}
