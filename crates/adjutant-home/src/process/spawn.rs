//! Starts one process: an argv without a shell, in a new session, with the given environment, working directory and
//! descriptors.
//!
//! It uses `posix_spawn` instead of fork: the parent's memory is not copied, no code of Adjutant runs in the child, and the
//! call returns a failure to execute. Every descriptor of Adjutant is close-on-exec (see [`super::hygiene`]), so the child
//! inherits only the ones named here.

use rustix::fs::Mode;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus};
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A standard stream of the child.
#[derive(Debug, Clone, Copy)]
pub enum StdioTarget<'a> {
    /// `/dev/null`.
    Null,
    Fd(BorrowedFd<'a>),
}

/// A process to start.
#[derive(Debug)]
pub struct Spawn<'a> {
    /// An absolute path. `PATH` is not searched.
    pub program: &'a Path,
    /// Its own name, and its arguments.
    pub argv: Vec<OsString>,
    /// The whole environment of the process.
    pub env: Vec<(OsString, OsString)>,
    pub cwd: &'a Path,
    pub stdin: StdioTarget<'a>,
    pub stdout: StdioTarget<'a>,
    pub stderr: StdioTarget<'a>,
    /// These become descriptors 3, 4, ….
    pub inherit: Vec<BorrowedFd<'a>>,
    /// Its umask. Only a single-threaded parent may set one.
    pub umask: Option<Mode>,
}

/// A child of this process that is not reaped yet.
#[derive(Debug)]
pub struct Child {
    pub pid: Pid,
    /// Refers to this process even if its pid is reused.
    pub pidfd: OwnedFd,
}

impl Child {
    /// Waits for the end, blocking the thread, and reaps.
    ///
    /// # Errors
    /// The kernel's error; interruptions are retried.
    pub fn wait_blocking(&self) -> io::Result<WaitIdStatus> {
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
            {
                Ok(Some(status)) => return Ok(status),
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Spawn<'_> {
    /// Starts the process.
    ///
    /// # Errors
    /// The kernel's error: `NotFound` when the program, its interpreter or the working directory is
    /// missing, `PermissionDenied` when it may not be executed, `InvalidInput` for a NUL in a text.
    pub fn start(&self) -> io::Result<Child> {
        let before = self.umask.map(rustix::process::umask);
        let started = self.spawn();
        if let Some(before) = before {
            rustix::process::umask(before);
        }
        let pid = started?;
        // It is an unreaped child of this process, so no other process has its pid.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Child { pid, pidfd })
    }

    fn spawn(&self) -> io::Result<Pid> {
        let program = text(self.program.as_os_str())?;
        let cwd = text(self.cwd.as_os_str())?;
        let argv = self
            .argv
            .iter()
            .map(|arg| text(arg))
            .collect::<io::Result<Vec<_>>>()?;
        let env = self
            .env
            .iter()
            .map(|(name, value)| pair(name, value))
            .collect::<io::Result<Vec<_>>>()?;
        let null = rustix::fs::open(
            "/dev/null",
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // Copies with higher numbers than all places, so that no placement overwrites one that is needed later.
        let places = 3 + self.inherit.len();
        let first_free = RawFd::try_from(places).map_err(io::Error::other)?;
        let mut sources: Vec<OwnedFd> = Vec::with_capacity(places);
        for feed in [self.stdin, self.stdout, self.stderr] {
            let fd = match feed {
                StdioTarget::Null => null.as_fd(),
                StdioTarget::Fd(fd) => fd,
            };
            sources.push(fcntl_dupfd_cloexec(fd, first_free)?);
        }
        for fd in &self.inherit {
            sources.push(fcntl_dupfd_cloexec(fd, first_free)?);
        }
        let places: Vec<RawFd> = sources.iter().map(AsRawFd::as_raw_fd).collect();
        raw_spawn(&program, &argv, &env, &cwd, &places)
    }
}

fn text(value: &OsStr) -> io::Result<CString> {
    CString::new(value.as_bytes()).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "a NUL in a path, argument or variable",
        )
    })
}

fn pair(name: &OsStr, value: &OsStr) -> io::Result<CString> {
    let mut whole = OsString::with_capacity(name.len() + value.len() + 1);
    whole.push(name);
    whole.push("=");
    whole.push(value);
    text(&whole)
}

fn pointers(texts: &[CString]) -> Vec<*mut c_char> {
    texts
        .iter()
        .map(|text| text.as_ptr().cast_mut())
        .chain([std::ptr::null_mut()])
        .collect()
}

fn check(code: c_int) -> io::Result<()> {
    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(code))
    }
}

/// Starts `program` with `places[n]` as its descriptor `n`, all signals as by default.
#[expect(
    unsafe_code,
    reason = "posix_spawn has no safe wrapper that sets the working directory and makes a session"
)]
fn raw_spawn(
    program: &CString,
    argv: &[CString],
    env: &[CString],
    cwd: &CString,
    places: &[RawFd],
) -> io::Result<Pid> {
    /// Frees what libc keeps behind the two opaque values.
    struct Plan {
        actions: MaybeUninit<libc::posix_spawn_file_actions_t>,
        attr: MaybeUninit<libc::posix_spawnattr_t>,
    }
    impl Drop for Plan {
        fn drop(&mut self) {
            // SAFETY: both were initialised before the value was made.
            unsafe {
                libc::posix_spawn_file_actions_destroy(self.actions.as_mut_ptr());
                libc::posix_spawnattr_destroy(self.attr.as_mut_ptr());
            }
        }
    }
    unsafe extern "C" {
        // In glibc 2.29, musl 1.1.24, macOS 10.15 and later; the libc crate has it for some only.
        fn posix_spawn_file_actions_addchdir_np(
            actions: *mut libc::posix_spawn_file_actions_t,
            path: *const c_char,
        ) -> c_int;
    }

    let (argv, env) = (pointers(argv), pointers(env));
    let mut pid: libc::pid_t = 0;
    // SAFETY: every pointer comes from a value that outlives the calls; the opaque values are
    // initialised before use and destroyed once; posix_spawn reads its arguments only.
    unsafe {
        let mut actions = MaybeUninit::uninit();
        check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
        let mut attr = MaybeUninit::uninit();
        if let Err(error) = check(libc::posix_spawnattr_init(attr.as_mut_ptr())) {
            libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
            return Err(error);
        }
        let mut plan = Plan { actions, attr };
        for (place, source) in (0..).zip(places) {
            check(libc::posix_spawn_file_actions_adddup2(
                plan.actions.as_mut_ptr(),
                *source,
                place,
            ))?;
        }
        check(posix_spawn_file_actions_addchdir_np(
            plan.actions.as_mut_ptr(),
            cwd.as_ptr(),
        ))?;
        let mut signals = MaybeUninit::uninit();
        libc::sigemptyset(signals.as_mut_ptr());
        check(libc::posix_spawnattr_setsigmask(
            plan.attr.as_mut_ptr(),
            signals.as_ptr(),
        ))?;
        for signal in 1..32 {
            if signal != libc::SIGKILL && signal != libc::SIGSTOP {
                libc::sigaddset(signals.as_mut_ptr(), signal);
            }
        }
        check(libc::posix_spawnattr_setsigdefault(
            plan.attr.as_mut_ptr(),
            signals.as_ptr(),
        ))?;
        let flags = c_int::from(libc::POSIX_SPAWN_SETSID)
            | c_int::from(libc::POSIX_SPAWN_SETSIGDEF)
            | c_int::from(libc::POSIX_SPAWN_SETSIGMASK);
        let flags = c_short::try_from(flags).map_err(io::Error::other)?;
        check(libc::posix_spawnattr_setflags(
            plan.attr.as_mut_ptr(),
            flags,
        ))?;
        check(libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            plan.actions.as_ptr(),
            plan.attr.as_ptr(),
            argv.as_ptr(),
            env.as_ptr(),
        ))?;
    }
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process id was returned"))
}
