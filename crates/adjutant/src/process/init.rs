//! `adj __init <program> <argv…>`: pid 1 of an attempt's PID namespace.
//!
//! It gives the namespace its own `/proc`, starts the worker, reaps orphans, tells the
//! supervisor how the worker ended, and ends when nothing is left or when its lifeline closes. With
//! its end the kernel kills everything in the namespace. No runtime, no threads.
//!
//! Descriptors: 3 is the lifeline's reading end, 4 takes [`Message`]s.

use super::hygiene;
use super::start::INHERITED;
use super::tree::{Reaped, reap};
use super::{Spawn, StdioTarget};
use crate::config;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::WaitOptions;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

/// What init tells the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The namespace cannot be set up, with an errno.
    NotSetUp(i32),
    /// The worker cannot be started, with an errno.
    NotStarted(i32),
    Started,
    /// The worker has ended, with its wait status.
    Ended(i32),
}

impl Message {
    pub const BYTES: usize = 8;

    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        let (tag, value) = match self {
            Self::NotSetUp(errno) => (1_i32, errno),
            Self::NotStarted(errno) => (2, errno),
            Self::Started => (3, 0),
            Self::Ended(status) => (4, status),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&tag.to_le_bytes());
        bytes[4..].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let value = i32::from_le_bytes([e, f, g, h]);
        match i32::from_le_bytes([a, b, c, d]) {
            1 => Some(Self::NotSetUp(value)),
            2 => Some(Self::NotStarted(value)),
            3 => Some(Self::Started),
            4 => Some(Self::Ended(value)),
            _ => None,
        }
    }
}

/// Runs as pid 1. `args` are what follows `__init`; the environment is the worker's.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let (Some(lifeline), Some(status)) = (hygiene::inherited(INHERITED), hygiene::inherited(INHERITED + 1)) else {
        return ExitCode::FAILURE;
    };
    let mut status = std::fs::File::from(status);
    let mut tell = move |message: Message| {
        // A supervisor that is gone has closed the lifeline too, which ends us anyway.
        if status.write_all(&message.encode()).is_err() {
            std::process::exit(1);
        }
    };
    let (Some(program), argv) = (args.first(), args.get(1..).unwrap_or_default()) else { return ExitCode::FAILURE };
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    let events = match set_up() {
        Ok(events) => events,
        Err(error) => {
            tell(Message::NotSetUp(errno(&error)));
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
        inherit: Vec::new(),
        umask: Some(umask),
    }
    .start();
    let worker = match worker {
        Ok(child) => child.pid,
        Err(error) => {
            tell(Message::NotStarted(errno(&error)));
            return ExitCode::FAILURE;
        }
    };
    // The worker's pipes must not stay open through us.
    if hygiene::drop_stdio().is_err() {
        return ExitCode::FAILURE;
    }
    tell(Message::Started);
    loop {
        loop {
            match reap(WaitOptions::NOHANG) {
                Reaped::Child(pid, ended) if pid == worker => tell(Message::Ended(ended.as_raw())),
                Reaped::Child(..) => {}
                Reaped::NoneEnded => break,
                Reaped::NoneLeft => return ExitCode::SUCCESS,
            }
        }
        let mut fds = [PollFd::new(&lifeline, PollFlags::IN), PollFd::new(&events, PollFlags::IN)];
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

/// Takes what the signal descriptor holds; several ends may share one entry.
fn drain(events: &OwnedFd) {
    let mut buffer = [0_u8; 128 * 4];
    // Nothing to read is fine: the children are looked at anyway.
    if rustix::io::read(events, &mut buffer).is_err() {
        std::thread::yield_now();
    }
}

/// Makes a `/proc` that shows this namespace, and returns a descriptor that is readable when a child
/// has ended.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "mounts, signal masks and signalfd have no safe wrappers here")]
fn set_up() -> io::Result<OwnedFd> {
    use std::mem::MaybeUninit;
    use std::os::fd::FromRawFd;
    fn check(code: libc::c_int) -> io::Result<libc::c_int> {
        if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
    }
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: all texts are literals; the set is initialised by sigemptyset; the descriptor that
    // signalfd returns has no other owner.
    unsafe {
        check(libc::unshare(libc::CLONE_NEWNS))?;
        // What is mounted outside later still appears inside, never the other way round.
        check(libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), libc::MS_REC | libc::MS_SLAVE, std::ptr::null()))?;
        check(libc::mount(c"proc".as_ptr(), c"/proc".as_ptr(), c"proc".as_ptr(), flags, std::ptr::null()))?;
        let mut set = MaybeUninit::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        check(libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()))?;
        Ok(OwnedFd::from_raw_fd(check(libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?))
    }
}

#[cfg(not(target_os = "linux"))]
fn set_up() -> io::Result<OwnedFd> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "no PID namespaces on this system"))
}
