//! Whether a process has a file open for writing.

use std::fs::File;

/// File systems of servers: NFS, CIFS, SMB (statfs(2)).
#[cfg(target_os = "linux")]
const REMOTE: [i64; 3] = [0x6969, 0xff53_4d42, 0xfe53_4d42];

/// Selects the signal of a broken lease (fcntl(2)). The crate `libc` does not name it.
#[cfg(target_os = "linux")]
const F_SETSIG: libc::c_int = 10;

/// Returns whether a process has this file open for writing, or mapped for it. The file itself must
/// be open for reading only. `None`: unknown, because of the file system or the owner of the file.
#[cfg(target_os = "linux")]
#[must_use]
#[expect(unsafe_code, reason = "rustix does not wrap F_SETLEASE")]
pub(crate) fn has_writer(file: &File) -> Option<bool> {
    use std::os::fd::AsRawFd as _;
    // Their servers decide about leases, and refuse most.
    if rustix::fs::fstatfs(file)
        .ok()
        .is_none_or(|found| REMOTE.contains(&found.f_type))
    {
        return None;
    }
    let set = |command: libc::c_int, value: libc::c_int| {
        // SAFETY: these commands take an integer and change only this open file.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, value) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // The kernel refuses a read lease on a file that is open for writing (fcntl(2)). The lease is
    // held for an instant, and breaking it sends a signal that is ignored by default instead of
    // SIGIO, which would end this process.
    set(F_SETSIG, libc::SIGURG).ok()?;
    match set(libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => set(libc::F_SETLEASE, libc::F_UNLCK).ok().map(|()| false),
        Err(error) => (error.raw_os_error() == Some(libc::EAGAIN)).then_some(true),
    }
}

/// This platform has no leases.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub(crate) fn has_writer(_file: &File) -> Option<bool> {
    None
}
