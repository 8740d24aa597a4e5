//! `adj __init <program> <argv…>`: pid 1 of an attempt's PID namespace.
//!
//! It mounts a `/proc` of the namespace, starts the worker, reaps orphans, reports the worker's end
//! to the supervisor, and exits when no process is left or its lifeline closes. The kernel then
//! kills all processes in the namespace. It has no runtime and no threads.
//!
//! With a fence ([`super::fence`]), it first mounts and tests the fence.
//!
//! Descriptors: 3 is the lifeline's reading end, 4 receives [`Message`]s, 5 holds the plan of a
//! fence. With `--passed`, 5 and 6 are the worker's 3 and 4.

use super::fence::FENCED;
#[cfg(target_os = "linux")]
use super::fence::{self, FencePlan, entry::PLAN_FD};
use super::start::INHERITED;
use super::status::Message;
use super::tree::{Reaped, reap};
use super::{Child, Pid, Spawn, StdioTarget, hygiene};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::WaitOptions;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

/// The argument that has init pass two descriptors on to the worker.
pub const PASSED: &str = "--passed";

/// What init is started with.
#[derive(Debug, PartialEq, Eq)]
struct Arguments<'a> {
    is_fenced: bool,
    /// Two descriptors are passed on to the worker.
    passes: bool,
    program: &'a OsString,
    argv: &'a [OsString],
}

impl<'a> Arguments<'a> {
    /// Parses the arguments that follow `__init`. `None`: they name no program.
    fn parse(args: &'a [OsString]) -> Option<Self> {
        let is_fenced = args.first().is_some_and(|arg| arg == FENCED);
        let passes = args.first().is_some_and(|arg| arg == PASSED);
        let args = if is_fenced || passes {
            &args[1..]
        } else {
            args
        };
        let (program, argv) = args.split_first()?;
        Some(Self {
            is_fenced,
            passes,
            program,
            argv,
        })
    }

    /// Takes the descriptors that are passed on.
    fn passed(&self) -> Vec<OwnedFd> {
        if self.passes {
            [INHERITED + 2, INHERITED + 3]
                .into_iter()
                .filter_map(hygiene::inherited)
                .collect()
        } else {
            Vec::new()
        }
    }

    /// Sets up the fence, or the namespace. An error is reported, and the exit code returned.
    fn set_up(&self, status: &mut std::fs::File) -> Result<(), ExitCode> {
        if self.is_fenced {
            return set_up_fence().map_err(|problem| {
                match Message::write_not_fenced(status, &problem.to_string()) {
                    Ok(()) => ExitCode::FAILURE,
                    Err(_) => ExitCode::from(2),
                }
            });
        }
        set_up_namespace().map_err(|error| {
            send_message(status, Message::NotSetUp(errno(&error)));
            ExitCode::FAILURE
        })
    }

    /// Starts the worker.
    fn start(
        &self,
        env: Vec<(OsString, OsString)>,
        umask: rustix::fs::Mode,
        passed: &[OwnedFd],
    ) -> io::Result<Child> {
        Spawn {
            program: Path::new(self.program),
            argv: self.argv.to_vec(),
            env,
            cwd: Path::new("."),
            stdin: StdioTarget::Fd(rustix::stdio::stdin()),
            stdout: StdioTarget::Fd(rustix::stdio::stdout()),
            stderr: StdioTarget::Fd(rustix::stdio::stderr()),
            inherit: passed.iter().map(AsFd::as_fd).collect(),
            umask: Some(umask),
        }
        .start()
    }
}

/// Runs as pid 1. `args` follow `__init`; `env` is this process' own, for the worker.
#[must_use]
pub fn main(args: &[OsString], env: Vec<(OsString, OsString)>) -> ExitCode {
    let (Some(lifeline), Some(status)) = (
        hygiene::inherited(INHERITED),
        hygiene::inherited(INHERITED + 1),
    ) else {
        return ExitCode::FAILURE;
    };
    let mut status = std::fs::File::from(status);
    let umask = rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    let Some(args) = Arguments::parse(args) else {
        return ExitCode::FAILURE;
    };
    let passed = args.passed();
    if let Err(code) = args.set_up(&mut status) {
        return code;
    }
    // Blocks SIGCHLD before there is a child, so that an end between a reap and the poll is not
    // lost. The worker gets an empty mask.
    let events = match watch_children() {
        Ok(events) => events,
        Err(error) => {
            send_message(&mut status, Message::NotSetUp(errno(&error)));
            return ExitCode::FAILURE;
        }
    };
    let worker = args.start(env, umask, &passed);
    drop(passed);
    let worker = match worker {
        Ok(child) => child.pid,
        Err(error) => {
            send_message(&mut status, Message::NotStarted(errno(&error)));
            return ExitCode::FAILURE;
        }
    };
    // This process must not keep the worker's pipes open.
    if hygiene::drop_stdio().is_err() {
        return ExitCode::FAILURE;
    }
    send_message(&mut status, Message::Started);
    reap_until_end(worker, &lifeline, &events, &mut status)
}

/// Reaps all children, and reports the end of the worker, until none is left or the lifeline
/// closes.
fn reap_until_end(
    worker: Pid,
    lifeline: &OwnedFd,
    events: &OwnedFd,
    status: &mut std::fs::File,
) -> ExitCode {
    loop {
        loop {
            match reap(WaitOptions::NOHANG) {
                Reaped::Child(pid, ended) if pid == worker => {
                    send_message(status, Message::Ended(ended.as_raw()))
                }
                Reaped::Child(..) => {}
                Reaped::NoneEnded => break,
                Reaped::NoneLeft => return ExitCode::SUCCESS,
            }
        }
        let mut fds = [
            PollFd::new(lifeline, PollFlags::IN),
            PollFd::new(events, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            return ExitCode::SUCCESS;
        }
        drain(events);
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EINVAL)
}

/// Reads the signal descriptor. One entry may represent several ended children.
fn drain(events: &OwnedFd) {
    let mut buffer = [0_u8; 128 * 4];
    // If there is nothing to read, the children are checked anyway.
    if rustix::io::read(events, &mut buffer).is_err() {
        std::thread::yield_now();
    }
}

/// Writes a message. If the supervisor has exited, its lifeline is closed too, which ends this
/// process.
fn send_message(status: &mut std::fs::File, message: Message) {
    if status.write_all(&message.encode()).is_err() {
        std::process::exit(1);
    }
}

/// Why a fence is not set up, or does not hold.
#[cfg(target_os = "linux")]
#[derive(Debug, thiserror::Error)]
enum FenceError {
    #[error("there is no plan")]
    NoPlan,
    #[error("the plan cannot be read: {0}")]
    Plan(#[from] serde_json::Error),
    /// The error contains the path.
    #[error(transparent)]
    Mounts(io::Error),
    #[error("abstract sockets cannot be closed: {0}")]
    Sockets(#[source] io::Error),
    #[error("capabilities cannot be dropped: {0}")]
    Capabilities(#[source] io::Error),
    #[error(transparent)]
    Attributes(#[from] rustix::io::Errno),
    #[error(transparent)]
    Check(#[from] fence::check::FailedCheck),
}

/// Sets up the fence by the supervisor's plan, drops the right to change it, and tests it.
#[cfg(target_os = "linux")]
fn set_up_fence() -> Result<(), FenceError> {
    let plan = hygiene::inherited(PLAN_FD).ok_or(FenceError::NoPlan)?;
    let plan: FencePlan = serde_json::from_reader(io::BufReader::new(std::fs::File::from(plan)))?;
    fence::mounts::set_up(&plan).map_err(FenceError::Mounts)?;
    // The mounts above and these rules need the capabilities that are dropped next.
    fence::landlock::scope_sockets().map_err(FenceError::Sockets)?;
    fence::entry::drop_capabilities().map_err(FenceError::Capabilities)?;
    if !plan.is_root {
        // Root can only lose rights by becoming another user.
        rustix::thread::set_no_new_privs(true)?;
    }
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // Last, so that the test has the rights of the worker.
    Ok(fence::check::run(&plan)?)
}

#[cfg(not(target_os = "linux"))]
fn set_up_fence() -> Result<(), super::system::Unsupported> {
    Err(super::system::Unsupported::Fence)
}

/// Mounts a `/proc` of this namespace.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "unshare is unsafe where it unshares descriptors, which is not done here"
)]
fn set_up_namespace() -> io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    // The worker runs as the same user. It could otherwise trace this process, or open its pipe to
    // the supervisor through `/proc`.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    // SAFETY: only CLONE_NEWNS.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)? };
    // Later mounts outside still appear inside, but not the reverse.
    mount_change(
        "/",
        MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM,
    )?;
    Ok(mount(
        "proc",
        "/proc",
        "proc",
        MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
        None,
    )?)
}

#[cfg(not(target_os = "linux"))]
fn set_up_namespace() -> io::Result<()> {
    Err(super::system::Unsupported::Containment.into())
}

/// Returns a descriptor that is readable when a child has ended.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "signal masks and signalfd have no safe wrappers here"
)]
fn watch_children() -> io::Result<OwnedFd> {
    use std::mem::MaybeUninit;
    use std::os::fd::FromRawFd;
    fn check(code: libc::c_int) -> io::Result<libc::c_int> {
        if code < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(code)
        }
    }
    // SAFETY: the set is initialised by sigemptyset; the descriptor that signalfd returns has no
    // other owner.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            set.as_ptr(),
            std::ptr::null_mut(),
        ))?;
        Ok(OwnedFd::from_raw_fd(check(libc::signalfd(
            -1,
            set.as_ptr(),
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?))
    }
}

#[cfg(not(target_os = "linux"))]
fn watch_children() -> io::Result<OwnedFd> {
    Err(super::system::Unsupported::Containment.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(texts: &[&str]) -> Vec<OsString> {
        texts.iter().map(OsString::from).collect()
    }

    #[test]
    fn only_the_first_argument_is_an_option() {
        for (given, is_fenced, passes, argv) in [
            (
                &["/bin/x", "x", "--fenced"][..],
                false,
                false,
                &["x", "--fenced"][..],
            ),
            (&[FENCED, "/bin/x", "x"], true, false, &["x"]),
            (&[PASSED, "/bin/x"], false, true, &[]),
        ] {
            let given = args(given);
            let found = Arguments::parse(&given).expect("a program");
            assert_eq!(found.program, "/bin/x");
            let parts = (found.is_fenced, found.passes, found.argv.to_vec());
            assert_eq!(parts, (is_fenced, passes, args(argv)));
        }
        for given in [&[][..], &[FENCED], &[PASSED]] {
            assert_eq!(Arguments::parse(&args(given)), None, "{given:?}");
        }
    }
}
