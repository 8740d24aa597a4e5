//! Starts the guard of an attempt.

use crate::process::start::{SELF_EXE, unlinked_file};
use crate::process::{Child, Lock, Spawn, StdioTarget};
use crate::protocol::{AttemptDir, Order};
use crate::{config, files};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Starts a guard, which starts the attempt's supervisor. Creates the attempt's directory if it is
/// missing. The guard's lock is held before the guard runs.
///
/// # Errors
/// `AlreadyExists`: another guard of this attempt is alive. Otherwise the kernel's error; no
/// process is left then.
pub fn spawn_guard(dir: &AttemptDir, order: &Order) -> io::Result<Child> {
    spawn_guard_of(Path::new(SELF_EXE), dir, order)
}

/// [`spawn_guard`] with another binary, for tests.
///
/// # Errors
/// As [`spawn_guard`].
pub fn spawn_guard_of(exe: &Path, dir: &AttemptDir, order: &Order) -> io::Result<Child> {
    files::make_dirs(dir.home(), &dir.0)?;
    let lock = Lock::try_take(dir.home(), &dir.guard_lock())?.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{}: a guard lives", dir.0.display()),
        )
    })?;
    let order = unlinked_file(dir.home(), &dir.0, &serde_json::to_vec(order)?)?;
    let log = files::open_for_append(dir.home(), &dir.log())?;
    let guard = Spawn {
        program: exe,
        argv: vec![
            OsString::from("adj"),
            OsString::from("__guard"),
            dir.0.clone().into_os_string(),
        ],
        env: config::guard_env(),
        cwd: Path::new("/"),
        stdin: StdioTarget::Fd(order.as_fd()),
        stdout: StdioTarget::Fd(log.as_fd()),
        stderr: StdioTarget::Fd(log.as_fd()),
        inherit: vec![lock.as_fd()],
        umask: None,
    }
    .start()?;
    // The guard writes its pid too. Until then, a watcher finds it here.
    if let Err(error) = lock.write_pid(guard.pid) {
        tracing::warn!(%error, dir = %dir.0.display(), "the guard's pid could not be written");
    }
    Ok(guard)
}
