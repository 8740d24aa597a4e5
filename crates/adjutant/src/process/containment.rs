//! Holding an attempt's processes together.
//!
//! `pid_namespace`: the worker lives in a PID namespace of its own, below an init of Adjutant
//! ([`super::init`]). When init ends, the kernel kills everything in the namespace at once, and init
//! ends when its lifeline closes, that is, when the supervisor ends or dies, however that happens.
//!
//! `subreaper`: orphans become children of the supervisor (or, after its death, of the guard), which
//! sweeps until none is left.
//!
//! A namespace takes `CAP_SYS_ADMIN`. A user namespace would give it to everybody, and is
//! deliberately not used, except for a fence that was asked for ([`super::fence`]): inside one, `ssh` refuses its configuration's owner, `sudo` and other
//! setuid programs stop working, and files of other users turn into those of nobody.

use super::fence::FencePlan;
use super::start::SELF_EXE;
use super::{Child, Spawn, StdioTarget};
use rustix::process::Pid;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The best that works here.
    Auto,
    PidNamespace,
    Subreaper,
}

impl Wanted {
    /// Reads the word of an order.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        match word {
            "pid_namespace" => Self::PidNamespace,
            "subreaper" => Self::Subreaper,
            _ => Self::Auto,
        }
    }
}

/// A worker that was started, and what holds it.
#[derive(Debug)]
pub enum Contained {
    /// The child is the worker itself.
    Subreaper(Child),
    Namespace(Namespace),
}

/// A worker below an init of Adjutant.
#[derive(Debug)]
pub struct Namespace {
    /// Init, as seen from outside.
    pub init: Child,
    /// The worker, as seen from outside. Init itself where the worker was gone too fast.
    pub worker: Pid,
    /// Closing it ends the namespace.
    pub lifeline: OwnedFd,
    /// Init writes [`super::status::Message`]s here.
    pub status: OwnedFd,
}

impl Contained {
    /// Returns the level's word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Subreaper(_) => "subreaper",
            Self::Namespace(_) => "pid_namespace",
        }
    }

    /// Returns the worker's pid, as seen from this process.
    #[must_use]
    pub fn worker(&self) -> Pid {
        match self {
            Self::Subreaper(child) => child.pid,
            Self::Namespace(namespace) => namespace.worker,
        }
    }
}

/// Why nothing was started.
#[derive(Debug)]
pub enum Failed {
    /// The fence that was asked for cannot be had.
    Fence(String),
    /// The worker itself cannot be executed.
    Worker(io::Error),
    /// The level that was asked for cannot be had.
    Containment(io::Error),
}

/// Starts a worker behind a fence, in a PID namespace.
///
/// # Errors
/// Nothing runs then.
pub fn start_fenced(spawn: &Spawn<'_>, plan: &FencePlan) -> Result<Contained, Failed> {
    start_behind_fence(spawn, plan).map(Contained::Namespace)
}

/// Makes a fence that leaves nothing to write, around this program, which prints its version.
///
/// # Errors
/// Says why a fence cannot be had here.
pub fn fence_here() -> Result<(), String> {
    let plan = FencePlan { cwd: "/".into(), denied: vec!["/".into()], is_root: rustix::process::geteuid().is_root(), ..FencePlan::default() };
    let spawn = Spawn {
        program: Path::new(SELF_EXE),
        argv: vec![OsString::from("adj"), OsString::from("--version")],
        env: Vec::new(),
        cwd: Path::new("/"),
        stdin: StdioTarget::Null,
        stdout: StdioTarget::Null,
        stderr: StdioTarget::Null,
        inherit: Vec::new(),
        umask: None,
    };
    match start_behind_fence(&spawn, &plan) {
        // Its end comes with that of its lifeline.
        Ok(_namespace) => Ok(()),
        Err(Failed::Fence(why)) => Err(why),
        Err(Failed::Worker(error) | Failed::Containment(error)) => Err(error.to_string()),
    }
}

/// Starts a worker, held as well as wanted and possible. This process must be a subreaper and
/// single-threaded.
///
/// # Errors
/// Nothing runs then.
pub fn start(spawn: Spawn<'_>, wanted: Wanted) -> Result<Contained, Failed> {
    if wanted == Wanted::Subreaper {
        return spawn.start().map(Contained::Subreaper).map_err(Failed::Worker);
    }
    match start_in_namespace(&spawn) {
        Ok(namespace) => Ok(Contained::Namespace(namespace)),
        Err(Failed::Containment(error)) if wanted == Wanted::Auto => {
            tracing::debug!(%error, "no PID namespace here");
            spawn.start().map(Contained::Subreaper).map_err(Failed::Worker)
        }
        Err(error) => Err(error),
    }
}

#[cfg(target_os = "linux")]
fn start_in_namespace(spawn: &Spawn<'_>) -> Result<Namespace, Failed> {
    use super::status::Message;

    let (lifeline_theirs, lifeline) = pipe()?;
    let (status, status_theirs) = pipe()?;
    let mut argv = vec![OsString::from("adj"), OsString::from("__init"), spawn.program.as_os_str().to_owned()];
    argv.extend(spawn.argv.iter().cloned());
    let as_init = Spawn {
        program: Path::new(SELF_EXE),
        argv,
        env: spawn.env.clone(),
        cwd: spawn.cwd,
        stdin: spawn.stdin,
        stdout: spawn.stdout,
        stderr: spawn.stderr,
        inherit: vec![lifeline_theirs.as_fd(), status_theirs.as_fd()],
        umask: spawn.umask,
    };
    let init = in_new_pid_namespace(|| as_init.start()).map_err(Failed::Containment)?;
    drop((lifeline_theirs, status_theirs));

    let mut status = std::fs::File::from(status);
    let worker = match read_message(&mut status) {
        Ok(Message::Started) => super::tree::children(init.pid).first().copied().unwrap_or(init.pid),
        Ok(Message::NotSetUp(errno)) => {
            return Err(Failed::Containment(reaped(&init, io::Error::from_raw_os_error(errno))));
        }
        Ok(Message::NotStarted(errno)) => {
            return Err(Failed::Worker(reaped(&init, io::Error::from_raw_os_error(errno))));
        }
        Ok(Message::Ended(_) | Message::Unshared | Message::NotFenced(_)) => return Err(Failed::Containment(reaped(&init, nonsense()))),
        Err(error) => return Err(Failed::Containment(reaped(&init, error))),
    };
    Ok(Namespace { init, worker, lifeline, status: status.into() })
}

fn read_message(status: &mut std::fs::File) -> io::Result<super::status::Message> {
    let mut bytes = [0; super::status::Message::BYTES];
    status.read_exact(&mut bytes)?;
    super::status::Message::decode(bytes).ok_or_else(nonsense)
}

fn nonsense() -> io::Error {
    io::Error::other("init speaks nonsense")
}

#[cfg(target_os = "linux")]
fn start_behind_fence(spawn: &Spawn<'_>, plan: &FencePlan) -> Result<Namespace, Failed> {
    use super::fence::entry::write_id_maps;
    use super::status::Message;
    use std::io::Write;

    let not_fenced = |error: io::Error| Failed::Fence(error.to_string());
    let (lifeline_theirs, lifeline) = pipe()?;
    let (status, status_theirs) = pipe()?;
    let (go_theirs, go) = pipe()?;
    let plan = super::start::unlinked_bytes(&serde_json::to_vec(plan).map_err(|error| Failed::Fence(error.to_string()))?).map_err(not_fenced)?;
    let mut argv = vec![OsString::from("adj"), OsString::from("__fence"), spawn.program.as_os_str().to_owned()];
    argv.extend(spawn.argv.iter().cloned());
    let entry = Spawn {
        program: Path::new(SELF_EXE),
        argv,
        env: spawn.env.clone(),
        cwd: Path::new("/"),
        stdin: spawn.stdin,
        stdout: spawn.stdout,
        stderr: spawn.stderr,
        inherit: vec![lifeline_theirs.as_fd(), status_theirs.as_fd(), plan.as_fd(), go_theirs.as_fd()],
        umask: spawn.umask,
    }
    .start()
    .map_err(not_fenced)?;
    drop((lifeline_theirs, status_theirs, go_theirs));

    let mut status = std::fs::File::from(status);
    let mut go = std::fs::File::from(go);
    let mut started = || -> Result<Child, Failed> {
        match read_message(&mut status).map_err(not_fenced)? {
            Message::Unshared => {}
            Message::NotFenced(bytes) => return Err(Failed::Fence(Message::read_why(&mut status, bytes).map_err(not_fenced)?)),
            _ => return Err(not_fenced(nonsense())),
        }
        write_id_maps(entry.pid).and_then(|()| go.write_all(b"1")).map_err(not_fenced)?;
        let message = read_message(&mut status).map_err(not_fenced)?;
        let init = super::tree::children(entry.pid).first().copied();
        match message {
            Message::Started => {
                let pid = init.ok_or_else(|| Failed::Fence("init is gone".to_owned()))?;
                let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).map_err(|error| not_fenced(error.into()))?;
                Ok(Child { pid, pidfd })
            }
            Message::NotFenced(bytes) => Err(Failed::Fence(Message::read_why(&mut status, bytes).map_err(not_fenced)?)),
            Message::NotSetUp(errno) => Err(not_fenced(io::Error::from_raw_os_error(errno))),
            Message::NotStarted(errno) => Err(Failed::Worker(io::Error::from_raw_os_error(errno))),
            Message::Ended(_) | Message::Unshared => Err(not_fenced(nonsense())),
        }
    };
    let init = started();
    // Its start is known or failed: what stands between us exits, and init becomes our child.
    drop(go);
    match init {
        Ok(init) => {
            entry.wait_blocking().map_err(not_fenced)?;
            let worker = super::tree::children(init.pid).first().copied().unwrap_or(init.pid);
            Ok(Namespace { init, worker, lifeline, status: status.into() })
        }
        Err(failed) => {
            // Init ends with its lifeline; it is reaped as any orphan.
            drop(lifeline);
            reaped(&entry, io::Error::other("fence"));
            Err(failed)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn start_behind_fence(_spawn: &Spawn<'_>, _plan: &FencePlan) -> Result<Namespace, Failed> {
    Err(Failed::Fence("there are no mount namespaces on this system".to_owned()))
}

#[cfg(not(target_os = "linux"))]
fn start_in_namespace(_spawn: &Spawn<'_>) -> Result<Namespace, Failed> {
    Err(Failed::Containment(io::Error::new(io::ErrorKind::Unsupported, "no PID namespaces on this system")))
}

/// Reaps an init that failed, and returns why it did.
fn reaped(init: &Child, why: io::Error) -> io::Error {
    if let Err(error) = rustix::process::pidfd_send_signal(&init.pidfd, rustix::process::Signal::KILL) {
        tracing::debug!(%error, "init has ended by itself");
    }
    match init.wait_blocking() {
        Ok(_) => why,
        Err(error) => io::Error::other(format!("{why}; and it could not be reaped: {error}")),
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Failed> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|error| Failed::Containment(error.into()))
}

/// Runs `start` so that the process it starts is pid 1 of a new namespace. Afterwards children of
/// ours are born into our own namespace again, threads included.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "unshare is unsafe where it unshares descriptors, which is not done here")]
fn in_new_pid_namespace(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
    let own = rustix::fs::open("/proc/self/ns/pid", rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    // SAFETY: only CLONE_NEWPID, which concerns the birth of later children.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID)? };
    let started = start();
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    started
}
