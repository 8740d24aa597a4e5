//! Containment of an attempt's processes.
//!
//! `pid_namespace`: the worker runs in a PID namespace, below an init of Adjutant ([`super::init`]). When init exits, the
//! kernel kills all processes in the namespace. Init exits when its lifeline closes, which happens whenever the supervisor
//! ends.
//!
//! `subreaper`: orphans become children of the supervisor (or, after its death, of the guard), which sweeps until none is
//! left.
//!
//! A PID namespace requires `CAP_SYS_ADMIN`. A user namespace would provide it, but is used only for a requested fence
//! ([`super::fence`]): in a user namespace, `ssh` rejects the owner of its configuration, `sudo` and other setuid programs do
//! not work, and files of other users belong to nobody.

use super::fence::FencePlan;
use super::start::SELF_EXE;
use super::{Child, Spawn, StdioTarget};
use rustix::process::Pid;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The requested level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestedLevel {
    /// The best available level.
    Auto,
    PidNamespace,
    Subreaper,
}

impl RequestedLevel {
    /// Parses the word in an order.
    #[must_use]
    pub fn from_word(word: &str) -> Self {
        match word {
            "pid_namespace" => Self::PidNamespace,
            "subreaper" => Self::Subreaper,
            _ => Self::Auto,
        }
    }
}

/// A started worker, and its containment.
#[derive(Debug)]
pub enum ContainedWorker {
    /// The child is the worker itself.
    Subreaper(Child),
    Namespace(Namespace),
}

/// A worker below an init of Adjutant.
#[derive(Debug)]
pub struct Namespace {
    /// Init, by its id outside.
    pub init: Child,
    /// The worker, by its id outside. Init if the worker has already exited.
    pub worker: Pid,
    /// Closing it ends the namespace.
    pub lifeline: OwnedFd,
    /// Init writes [`super::status::Message`]s here.
    pub status: OwnedFd,
}

impl ContainedWorker {
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

/// Why no process was started.
#[derive(Debug)]
pub enum StartError {
    /// The requested fence is not available.
    Fence(String),
    /// The worker itself cannot be executed.
    Worker(io::Error),
    /// The requested level is not available.
    Containment(io::Error),
}

/// Starts a worker behind a fence, in a PID namespace.
///
/// # Errors
/// Nothing runs then.
pub fn start_fenced(spawn: &Spawn<'_>, plan: &FencePlan) -> Result<ContainedWorker, StartError> {
    start_behind_fence(spawn, plan).map(ContainedWorker::Namespace)
}

/// Checks that a fence can be set up: starts this program, which prints its version, in one without writable paths.
///
/// # Errors
/// Why a fence is not available here.
pub fn mount_fence_available() -> Result<(), String> {
    let plan = FencePlan {
        cwd: "/".into(),
        denied: vec!["/".into()],
        is_root: rustix::process::geteuid().is_root(),
        ..FencePlan::default()
    };
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
        // Init exits when its lifeline closes.
        Ok(_namespace) => Ok(()),
        Err(StartError::Fence(why)) => Err(why),
        Err(StartError::Worker(error) | StartError::Containment(error)) => Err(error.to_string()),
    }
}

/// Starts a worker with the requested containment. This process must be a subreaper and single-threaded.
///
/// # Errors
/// The worker could not be started, and no process is left.
pub fn start(spawn: Spawn<'_>, wanted: RequestedLevel) -> Result<ContainedWorker, StartError> {
    if wanted == RequestedLevel::Subreaper {
        return spawn
            .start()
            .map(ContainedWorker::Subreaper)
            .map_err(StartError::Worker);
    }
    match start_in_namespace(&spawn) {
        Ok(namespace) => Ok(ContainedWorker::Namespace(namespace)),
        Err(StartError::Containment(error)) if wanted == RequestedLevel::Auto => {
            tracing::debug!(%error, "no PID namespace here");
            spawn
                .start()
                .map(ContainedWorker::Subreaper)
                .map_err(StartError::Worker)
        }
        Err(error) => Err(error),
    }
}

#[cfg(target_os = "linux")]
fn start_in_namespace(spawn: &Spawn<'_>) -> Result<Namespace, StartError> {
    use super::status::Message;

    let (lifeline_theirs, lifeline) = pipe()?;
    let (status, status_theirs) = pipe()?;
    let mut argv = vec![OsString::from("adj"), OsString::from("__init")];
    if !spawn.inherit.is_empty() {
        argv.push(OsString::from(super::init::PASSED));
    }
    argv.push(spawn.program.as_os_str().to_owned());
    argv.extend(spawn.argv.iter().cloned());
    let as_init = Spawn {
        program: Path::new(SELF_EXE),
        argv,
        env: spawn.env.clone(),
        cwd: spawn.cwd,
        stdin: spawn.stdin,
        stdout: spawn.stdout,
        stderr: spawn.stderr,
        inherit: [lifeline_theirs.as_fd(), status_theirs.as_fd()]
            .into_iter()
            .chain(spawn.inherit.iter().copied())
            .collect(),
        umask: spawn.umask,
    };
    let init = in_new_pid_namespace(|| as_init.start()).map_err(StartError::Containment)?;
    drop((lifeline_theirs, status_theirs));

    let mut status = std::fs::File::from(status);
    let worker = match read_message(&mut status) {
        Ok(Message::Started) => super::tree::children(init.pid)
            .first()
            .copied()
            .unwrap_or(init.pid),
        Ok(Message::NotSetUp(errno)) => {
            return Err(StartError::Containment(reap_failed_init(
                &init,
                io::Error::from_raw_os_error(errno),
            )));
        }
        Ok(Message::NotStarted(errno)) => {
            return Err(StartError::Worker(reap_failed_init(
                &init,
                io::Error::from_raw_os_error(errno),
            )));
        }
        Ok(Message::Ended(_) | Message::Unshared | Message::NotFenced(_) | Message::Gaps(_)) => {
            return Err(StartError::Containment(reap_failed_init(
                &init,
                unknown_message(),
            )));
        }
        Err(error) => return Err(StartError::Containment(reap_failed_init(&init, error))),
    };
    Ok(Namespace {
        init,
        worker,
        lifeline,
        status: status.into(),
    })
}

fn read_message(status: &mut std::fs::File) -> io::Result<super::status::Message> {
    let mut bytes = [0; super::status::Message::BYTES];
    status.read_exact(&mut bytes)?;
    super::status::Message::decode(bytes).ok_or_else(unknown_message)
}

fn unknown_message() -> io::Error {
    io::Error::other("init sent an unknown message")
}

#[cfg(target_os = "linux")]
fn start_behind_fence(spawn: &Spawn<'_>, plan: &FencePlan) -> Result<Namespace, StartError> {
    use super::fence::entry::write_id_maps;
    use super::status::Message;
    use std::io::Write;

    let not_fenced = |error: io::Error| StartError::Fence(error.to_string());
    let (lifeline_theirs, lifeline) = pipe()?;
    let (status, status_theirs) = pipe()?;
    let (go_theirs, go) = pipe()?;
    let plan = super::start::unlinked_bytes(
        &serde_json::to_vec(plan).map_err(|error| StartError::Fence(error.to_string()))?,
    )
    .map_err(not_fenced)?;
    let mut argv = vec![
        OsString::from("adj"),
        OsString::from("__fence"),
        spawn.program.as_os_str().to_owned(),
    ];
    argv.extend(spawn.argv.iter().cloned());
    let entry = Spawn {
        program: Path::new(SELF_EXE),
        argv,
        env: spawn.env.clone(),
        cwd: Path::new("/"),
        stdin: spawn.stdin,
        stdout: spawn.stdout,
        stderr: spawn.stderr,
        inherit: vec![
            lifeline_theirs.as_fd(),
            status_theirs.as_fd(),
            plan.as_fd(),
            go_theirs.as_fd(),
        ],
        umask: spawn.umask,
    }
    .start()
    .map_err(not_fenced)?;
    drop((lifeline_theirs, status_theirs, go_theirs));

    let mut status = std::fs::File::from(status);
    let mut go = std::fs::File::from(go);
    let mut started = || -> Result<Child, StartError> {
        match read_message(&mut status).map_err(not_fenced)? {
            Message::Unshared => {}
            Message::NotFenced(bytes) => {
                return Err(StartError::Fence(
                    Message::read_why(&mut status, bytes).map_err(not_fenced)?,
                ));
            }
            _ => return Err(not_fenced(unknown_message())),
        }
        write_id_maps(entry.pid)
            .and_then(|()| go.write_all(b"1"))
            .map_err(not_fenced)?;
        let message = read_message(&mut status).map_err(not_fenced)?;
        let init = super::tree::children(entry.pid).first().copied();
        match message {
            Message::Started => {
                let pid = init.ok_or_else(|| StartError::Fence("init has exited".to_owned()))?;
                let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
                    .map_err(|error| not_fenced(error.into()))?;
                Ok(Child { pid, pidfd })
            }
            Message::NotFenced(bytes) => Err(StartError::Fence(
                Message::read_why(&mut status, bytes).map_err(not_fenced)?,
            )),
            Message::NotSetUp(errno) => Err(not_fenced(io::Error::from_raw_os_error(errno))),
            Message::NotStarted(errno) => {
                Err(StartError::Worker(io::Error::from_raw_os_error(errno)))
            }
            Message::Ended(_) | Message::Unshared | Message::Gaps(_) => {
                Err(not_fenced(unknown_message()))
            }
        }
    };
    let init = started();
    // The intermediate process exits, and init becomes a child of this process.
    drop(go);
    match init {
        Ok(init) => {
            entry.wait_blocking().map_err(not_fenced)?;
            let worker = super::tree::children(init.pid)
                .first()
                .copied()
                .unwrap_or(init.pid);
            Ok(Namespace {
                init,
                worker,
                lifeline,
                status: status.into(),
            })
        }
        Err(failed) => {
            // Init exits when its lifeline closes, and is reaped like any orphan.
            drop(lifeline);
            reap_failed_init(&entry, io::Error::other("fence"));
            Err(failed)
        }
    }
}

/// Starts a worker behind Landlock rules, with the requested containment. Also returns what the rules do not enforce.
///
/// # Errors
/// Nothing runs then.
#[cfg(target_os = "linux")]
pub fn start_with_landlock(
    spawn: &Spawn<'_>,
    plan: &FencePlan,
    wanted: RequestedLevel,
) -> Result<(ContainedWorker, Vec<String>), StartError> {
    use super::status::Message;

    let not_fenced = |error: io::Error| StartError::Fence(error.to_string());
    let (status, status_theirs) = pipe()?;
    let plan = super::start::unlinked_bytes(
        &serde_json::to_vec(plan).map_err(|error| StartError::Fence(error.to_string()))?,
    )
    .map_err(not_fenced)?;
    let mut argv = vec![
        OsString::from("adj"),
        OsString::from("__landlock"),
        spawn.program.as_os_str().to_owned(),
    ];
    argv.extend(spawn.argv.iter().cloned());
    let restricted = Spawn {
        program: Path::new(SELF_EXE),
        argv,
        env: spawn.env.clone(),
        cwd: spawn.cwd,
        stdin: spawn.stdin,
        stdout: spawn.stdout,
        stderr: spawn.stderr,
        inherit: vec![plan.as_fd(), status_theirs.as_fd()],
        umask: spawn.umask,
    };
    let contained = start(restricted, wanted)?;
    drop(status_theirs);
    let mut status = std::fs::File::from(status);
    let mut started = || -> Result<Vec<String>, StartError> {
        let gaps = match read_message(&mut status).map_err(not_fenced)? {
            Message::Gaps(bytes) => Message::read_why(&mut status, bytes).map_err(not_fenced)?,
            Message::NotFenced(bytes) => {
                return Err(StartError::Fence(
                    Message::read_why(&mut status, bytes).map_err(not_fenced)?,
                ));
            }
            _ => return Err(not_fenced(unknown_message())),
        };
        // The pipe closes when the program is executed.
        match read_message(&mut status) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Ok(gaps.lines().map(ToOwned::to_owned).collect())
            }
            Ok(Message::NotStarted(errno)) => {
                Err(StartError::Worker(io::Error::from_raw_os_error(errno)))
            }
            Ok(_) => Err(not_fenced(unknown_message())),
            Err(error) => Err(not_fenced(error)),
        }
    };
    match started() {
        Ok(gaps) => Ok((contained, gaps)),
        Err(failed) => {
            let first = match &contained {
                ContainedWorker::Subreaper(child) => child,
                ContainedWorker::Namespace(namespace) => &namespace.init,
            };
            reap_failed_init(first, io::Error::other("fence"));
            Err(failed)
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub fn start_with_landlock(
    _spawn: &Spawn<'_>,
    _plan: &FencePlan,
    _wanted: RequestedLevel,
) -> Result<(ContainedWorker, Vec<String>), StartError> {
    Err(StartError::Fence(
        "there is no Landlock on this system".to_owned(),
    ))
}

/// Checks that this machine supports a Landlock fence.
///
/// # Errors
/// Describes what is missing.
#[cfg(target_os = "linux")]
pub fn landlock_available() -> Result<(), String> {
    super::fence::landlock::available()
}

/// Fails: this platform has no Landlock.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn landlock_available() -> Result<(), String> {
    Err("there is no Landlock on this system".to_owned())
}

#[cfg(not(target_os = "linux"))]
fn start_behind_fence(_spawn: &Spawn<'_>, _plan: &FencePlan) -> Result<Namespace, StartError> {
    Err(StartError::Fence(
        "there are no mount namespaces on this system".to_owned(),
    ))
}

#[cfg(not(target_os = "linux"))]
fn start_in_namespace(_spawn: &Spawn<'_>) -> Result<Namespace, StartError> {
    Err(StartError::Containment(io::Error::new(
        io::ErrorKind::Unsupported,
        "no PID namespaces on this system",
    )))
}

/// Reaps an init that failed, and returns its error.
fn reap_failed_init(init: &Child, why: io::Error) -> io::Error {
    if let Err(error) =
        rustix::process::pidfd_send_signal(&init.pidfd, rustix::process::Signal::KILL)
    {
        tracing::debug!(%error, "init has already exited");
    }
    match init.wait_blocking() {
        Ok(_) => why,
        Err(error) => io::Error::other(format!("{why}; and it could not be reaped: {error}")),
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), StartError> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| StartError::Containment(error.into()))
}

/// Runs `start` so that the process it starts is pid 1 of a new namespace. Later children and threads of this process are
/// created in its own namespace again.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "unshare is unsafe where it unshares descriptors, which is not done here"
)]
fn in_new_pid_namespace(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
    let own = rustix::fs::open(
        "/proc/self/ns/pid",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    // Without the right to return, later children would be created there too.
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    // SAFETY: only CLONE_NEWPID, which affects only later children.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID)? };
    let started = start();
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    started
}
