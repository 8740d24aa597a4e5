//! Starts one process: an argv without a shell, in a new session, with the given environment,
//! working directory and descriptors.
//!
//! It uses `posix_spawn` instead of fork: the parent's memory is not copied, no code of Adjutant
//! runs in the child, and the call returns a failure to execute. Every descriptor of Adjutant is
//! close-on-exec (see [`super::hygiene`]), so the child inherits only the ones named here.

use super::{system, watch};
use rustix::fs::Mode;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, WaitIdStatus};
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
    /// Waits for the end and reaps.
    ///
    /// # Errors
    /// It cannot be watched, or was reaped by another process.
    pub async fn wait(self) -> io::Result<WaitIdStatus> {
        watch::ended(self.pidfd.try_clone()?).await?;
        let status = system::reap_process(&self.pidfd)?;
        status.ok_or_else(|| io::Error::other("the process ended without a status"))
    }

    /// Waits for the end, blocking the thread, and reaps.
    ///
    /// # Errors
    /// The kernel's error; interruptions are retried.
    pub(crate) fn wait_blocking(&self) -> io::Result<WaitIdStatus> {
        loop {
            match system::reap_process(&self.pidfd) {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
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
        // Before the start: a process that cannot be watched could not be ended safely either.
        system::require_process_descriptors()?;
        // posix_spawn has no attribute for it, and a child inherits that of its parent.
        let before = self.umask.map(rustix::process::umask);
        let started = self.spawn();
        if let Some(before) = before {
            rustix::process::umask(before);
        }
        let pid = started?;
        // It is an unreaped child of this process, so no other process has its pid.
        let pidfd = system::open_process(pid)?;
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
        // Copies with higher numbers than all places, so that no placement overwrites one that is
        // needed later.
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
fn raw_spawn(
    program: &CString,
    argv: &[CString],
    env: &[CString],
    cwd: &CString,
    places: &[RawFd],
) -> io::Result<Pid> {
    let mut plan = SpawnPlan::new()?;
    plan.place(places)?;
    plan.change_directory(cwd)?;
    plan.reset_signals()?;
    plan.set_flags()?;
    plan.spawn(program, argv, env)
}

#[expect(
    unsafe_code,
    reason = "the libc crate has no declaration for all systems"
)]
unsafe extern "C" {
    // In glibc 2.29, musl 1.1.24, macOS 10.15 and later; the libc crate has it for some only.
    fn posix_spawn_file_actions_addchdir_np(
        actions: *mut libc::posix_spawn_file_actions_t,
        path: *const c_char,
    ) -> c_int;
}

/// What libc does in the child before the program. Both values are initialised.
struct SpawnPlan {
    actions: MaybeUninit<libc::posix_spawn_file_actions_t>,
    attr: MaybeUninit<libc::posix_spawnattr_t>,
}

#[expect(
    unsafe_code,
    reason = "posix_spawn has no safe wrapper that sets the working directory and makes a session"
)]
impl SpawnPlan {
    fn new() -> io::Result<Self> {
        let mut actions = MaybeUninit::uninit();
        let mut attr = MaybeUninit::uninit();
        // SAFETY: both functions initialise what they get; the first value is destroyed once if
        // there is no second one.
        unsafe {
            check(libc::posix_spawn_file_actions_init(actions.as_mut_ptr()))?;
            if let Err(error) = check(libc::posix_spawnattr_init(attr.as_mut_ptr())) {
                libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
                return Err(error);
            }
        }
        Ok(Self { actions, attr })
    }

    fn place(&mut self, places: &[RawFd]) -> io::Result<()> {
        for (place, source) in (0..).zip(places) {
            // SAFETY: the actions are initialised.
            check(unsafe {
                libc::posix_spawn_file_actions_adddup2(self.actions.as_mut_ptr(), *source, place)
            })?;
        }
        Ok(())
    }

    fn change_directory(&mut self, cwd: &CString) -> io::Result<()> {
        // SAFETY: the actions are initialised, and the path is copied.
        check(unsafe {
            posix_spawn_file_actions_addchdir_np(self.actions.as_mut_ptr(), cwd.as_ptr())
        })
    }

    /// A mask and ignored signals survive an exec. Init blocks SIGCHLD, and background processes
    /// ignore SIGPIPE, SIGINT and others: a program would not react to them.
    fn reset_signals(&mut self) -> io::Result<()> {
        let mut signals = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set, which is read only; the attributes are
        // initialised.
        unsafe {
            libc::sigemptyset(signals.as_mut_ptr());
            check(libc::posix_spawnattr_setsigmask(
                self.attr.as_mut_ptr(),
                signals.as_ptr(),
            ))?;
            for signal in 1..32 {
                if signal != libc::SIGKILL && signal != libc::SIGSTOP {
                    libc::sigaddset(signals.as_mut_ptr(), signal);
                }
            }
            check(libc::posix_spawnattr_setsigdefault(
                self.attr.as_mut_ptr(),
                signals.as_ptr(),
            ))
        }
    }

    fn set_flags(&mut self) -> io::Result<()> {
        let flags = c_int::from(system::SPAWN_SETSID)
            | c_int::from(libc::POSIX_SPAWN_SETSIGDEF)
            | c_int::from(libc::POSIX_SPAWN_SETSIGMASK);
        let flags = c_short::try_from(flags).map_err(io::Error::other)?;
        // SAFETY: the attributes are initialised.
        check(unsafe { libc::posix_spawnattr_setflags(self.attr.as_mut_ptr(), flags) })
    }

    fn spawn(&self, program: &CString, argv: &[CString], env: &[CString]) -> io::Result<Pid> {
        let (argv, env) = (pointers(argv), pointers(env));
        let mut pid: libc::pid_t = 0;
        // SAFETY: every pointer comes from a value that outlives the call, and the lists end with
        // null; posix_spawn reads its arguments only.
        check(unsafe {
            libc::posix_spawn(
                &raw mut pid,
                program.as_ptr(),
                self.actions.as_ptr(),
                self.attr.as_ptr(),
                argv.as_ptr(),
                env.as_ptr(),
            )
        })?;
        Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process id was returned"))
    }
}

/// Frees what libc keeps behind the two values.
#[expect(unsafe_code, reason = "posix_spawn has no safe wrapper")]
impl Drop for SpawnPlan {
    fn drop(&mut self) {
        // SAFETY: both were initialised before the value was made, and are destroyed once.
        unsafe {
            libc::posix_spawn_file_actions_destroy(self.actions.as_mut_ptr());
            libc::posix_spawnattr_destroy(self.attr.as_mut_ptr());
        }
    }
}
