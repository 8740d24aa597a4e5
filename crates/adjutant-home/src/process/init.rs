//! `adj __init <program> <argv…>`: pid 1 of an attempt's PID namespace.
//!
//! It mounts a `/proc` of the namespace, starts the worker, reaps orphans, reports the worker's end to the supervisor, and
//! exits when no process is left or its lifeline closes. The kernel then kills all processes in the namespace. It has no
//! runtime and no threads.
//!
//! With a fence ([`super::fence`]), it first mounts and tests the fence.
//!
//! Descriptors: 3 is the lifeline's reading end, 4 receives [`Message`]s, 5 holds the plan of a fence. With `--passed`, 5 and 6 are
//! the worker's 3 and 4.

use super::fence::FENCED;
#[cfg(target_os = "linux")]
use super::fence::{self, FencePlan, entry::PLAN_FD};
use super::hygiene;
use super::start::INHERITED;
use super::status::Message;
use super::tree::{Reaped, reap};
use super::{Spawn, StdioTarget};
use crate::config;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::WaitOptions;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

/// The argument that has init pass two descriptors on to the worker.
pub const PASSED: &str = "--passed";

/// Runs as pid 1. `args` follow `__init`; the environment is the worker's.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let (Some(lifeline), Some(status)) = (
        hygiene::inherited(INHERITED),
        hygiene::inherited(INHERITED + 1),
    ) else {
        return ExitCode::FAILURE;
    };
    let mut status = std::fs::File::from(status);
    let umask = rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    let is_fenced = args.first().is_some_and(|arg| arg == FENCED);
    let passes = args.first().is_some_and(|arg| arg == PASSED);
    let args = if is_fenced || passes {
        &args[1..]
    } else {
        args
    };
    let passed: Vec<OwnedFd> = if passes {
        [INHERITED + 2, INHERITED + 3]
            .into_iter()
            .filter_map(hygiene::inherited)
            .collect()
    } else {
        Vec::new()
    };
    let (Some(program), argv) = (args.first(), args.get(1..).unwrap_or_default()) else {
        return ExitCode::FAILURE;
    };
    if is_fenced {
        if let Err(problem) = set_up_fence() {
            let written = Message::write_not_fenced(&mut status, &problem);
            return if written.is_ok() {
                ExitCode::FAILURE
            } else {
                ExitCode::from(2)
            };
        }
    } else if let Err(error) = set_up_namespace() {
        send_message(&mut status, Message::NotSetUp(errno(&error)));
        return ExitCode::FAILURE;
    }
    let events = match watch_children() {
        Ok(events) => events,
        Err(error) => {
            send_message(&mut status, Message::NotSetUp(errno(&error)));
            return ExitCode::FAILURE;
        }
    };
    let worker = Spawn {
        program: Path::new(program),
        argv: argv.to_vec(),
        env: config::whole_env(),
        cwd: Path::new("."),
        stdin: StdioTarget::Fd(rustix::stdio::stdin()),
        stdout: StdioTarget::Fd(rustix::stdio::stdout()),
        stderr: StdioTarget::Fd(rustix::stdio::stderr()),
        inherit: passed.iter().map(AsFd::as_fd).collect(),
        umask: Some(umask),
    }
    .start();
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
    loop {
        loop {
            match reap(WaitOptions::NOHANG) {
                Reaped::Child(pid, ended) if pid == worker => {
                    send_message(&mut status, Message::Ended(ended.as_raw()))
                }
                Reaped::Child(..) => {}
                Reaped::NoneEnded => break,
                Reaped::NoneLeft => return ExitCode::SUCCESS,
            }
        }
        let mut fds = [
            PollFd::new(&lifeline, PollFlags::IN),
            PollFd::new(&events, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            return ExitCode::SUCCESS;
        }
        drain(&events);
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

/// Writes a message. If the supervisor has exited, its lifeline is closed too, which ends this process.
fn send_message(status: &mut std::fs::File, message: Message) {
    if status.write_all(&message.encode()).is_err() {
        std::process::exit(1);
    }
}

/// Sets up the fence by the supervisor's plan, drops the right to change it, and tests it.
#[cfg(target_os = "linux")]
fn set_up_fence() -> Result<(), String> {
    let plan = hygiene::inherited(PLAN_FD).ok_or("there is no plan")?;
    let plan: FencePlan = serde_json::from_reader(io::BufReader::new(std::fs::File::from(plan)))
        .map_err(|error| format!("the plan cannot be read: {error}"))?;
    fence::mounts::set_up(&plan).map_err(|error| error.to_string())?;
    fence::landlock::scope_sockets()
        .map_err(|error| format!("abstract sockets cannot be closed: {error}"))?;
    fence::entry::drop_capabilities()
        .map_err(|error| format!("capabilities cannot be dropped: {error}"))?;
    if !plan.is_root {
        // Root can only lose rights by becoming another user.
        rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string())?;
    }
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|error| error.to_string())?;
    fence::check::run(&plan)
}

#[cfg(not(target_os = "linux"))]
fn set_up_fence() -> Result<(), String> {
    Err("there are no mount namespaces on this system".to_owned())
}

/// Mounts a `/proc` of this namespace.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "unshare is unsafe where it unshares descriptors, which is not done here"
)]
fn set_up_namespace() -> io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
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
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "no PID namespaces on this system",
    ))
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
    // SAFETY: the set is initialised by sigemptyset; the descriptor that signalfd returns has no other owner.
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
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "no PID namespaces on this system",
    ))
}
