//! `adj __guard <attempt-dir>`: the small process at the top of an attempt's process tree.
//!
//! It starts the supervisor, reaps orphans, and kills every remaining process of the attempt when
//! the supervisor exits or dies. It has no runtime, no threads and no pipes to serve, so little in
//! it can fail. It writes no facts: if the supervisor dies before the end of the attempt, the hub
//! determines how the attempt ended.

use crate::attempt_processes::{EXIT_LOCKED, mark};
use crate::config;
use crate::failpoint::failpoint;
use crate::process::start::{INHERITED, SELF_EXE};
use crate::process::tree::{self, Reaped};
use crate::process::{self, Lock, Spawn, StdioTarget, hygiene, limit};
use crate::protocol::AttemptDir;
use rustix::process::{Pid, WaitOptions};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs a guard: standard input holds the order, descriptor 3 its lock.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let Some(dir) = args.first() else {
        return ExitCode::FAILURE;
    };
    match run(&AttemptDir(PathBuf::from(dir))) {
        Ok(code) => code,
        Err(error) => {
            report_error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &AttemptDir) -> io::Result<ExitCode> {
    let given = hygiene::inherited(INHERITED);
    hygiene::background()?;
    let Some(lock) = Lock::adopt_or_take(given, dir.home(), &dir.guard_lock())? else {
        return Ok(ExitCode::from(EXIT_LOCKED));
    };
    lock.write_pid(rustix::process::getpid())?;
    // Before there is a child: an orphan goes to the subreaper that exists when its parent dies.
    hygiene::become_subreaper()?;
    if let Err(error) = limit::set(mark::limit(dir)) {
        // Without the limit, remaining processes are still recognised by their environment.
        report_error(&error);
    }
    failpoint!("guard.before_supervisor");
    // The lifeline must stay open until this process ends, so it needs a name.
    let Some((supervisor, _lifeline)) = start_supervisor(dir)? else {
        return Ok(ExitCode::from(EXIT_LOCKED));
    };
    failpoint!("guard.after_supervisor");
    let code = reap_until_exit(supervisor);
    failpoint!("guard.before_sweep");
    tree::sweep_blocking();
    Ok(code)
}

/// Starts the supervisor. The lifeline closes when this guard dies, which the supervisor notices.
/// `None`: another supervisor of this attempt is alive.
fn start_supervisor(dir: &AttemptDir) -> io::Result<Option<(Pid, OwnedFd)>> {
    // Taken here and inherited, so that it is held before the supervisor runs. The copy of the
    // guard closes when this function returns, so the lock ends with the supervisor.
    let Some(lock) = Lock::try_take(dir.home(), &dir.supervisor_lock())? else {
        return Ok(None);
    };
    let (theirs, lifeline) = process::pipe()?;
    let child = Spawn {
        program: Path::new(SELF_EXE),
        argv: vec![
            OsString::from("adj"),
            OsString::from("__supervise"),
            dir.0.clone().into_os_string(),
        ],
        env: config::guard_env(),
        cwd: Path::new("/"),
        stdin: StdioTarget::Fd(rustix::stdio::stdin()),
        stdout: StdioTarget::Fd(rustix::stdio::stdout()),
        stderr: StdioTarget::Fd(rustix::stdio::stderr()),
        inherit: vec![lock.as_fd(), theirs.as_fd()],
        umask: None,
    }
    .start()?;
    lock.write_pid(child.pid)?;
    // From here on, only the supervisor can read the order.
    hygiene::drop_stdin()?;
    Ok(Some((child.pid, lifeline)))
}

/// Reaps children until the supervisor exits, and returns its exit code.
fn reap_until_exit(supervisor: Pid) -> ExitCode {
    loop {
        match tree::reap(WaitOptions::empty()) {
            Reaped::Child(pid, status) if pid == supervisor => {
                let code = status
                    .exit_status()
                    .and_then(|code| u8::try_from(code).ok());
                return code.map_or(ExitCode::FAILURE, ExitCode::from);
            }
            Reaped::Child(..) | Reaped::NoneEnded => {}
            Reaped::NoneLeft => return ExitCode::FAILURE,
        }
    }
}

/// Writes an error to standard error, a file in the attempt's directory. If that fails, no way to
/// report is left.
fn report_error(error: &io::Error) {
    let line = format!("guard: {error}\n");
    if io::stderr().write_all(line.as_bytes()).is_err() {
        std::process::abort();
    }
}
