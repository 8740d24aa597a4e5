//! Containment of an attempt's processes.
//!
//! `pid_namespace`: the worker runs in a PID namespace, below an init of Adjutant
//! ([`super::init`]). When init exits, the kernel kills all processes in the namespace. Init exits
//! when its lifeline closes, which happens whenever the supervisor ends.
//!
//! `subreaper`: orphans become children of the supervisor (or, after its death, of the guard),
//! which sweeps until none is left.
//!
//! A PID namespace requires `CAP_SYS_ADMIN`. A user namespace would provide it, but is used only
//! for a requested fence ([`super::fence`]): in a user namespace, `ssh` rejects the owner of its
//! configuration, `sudo` and other setuid programs do not work, and files of other users belong to
//! nobody.

use super::fence::FencePlan;
use super::start::SELF_EXE;
use super::{Child, Spawn, StdioTarget};
use rustix::process::Pid;
use std::ffi::OsString;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
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
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The requested fence is not available.
    #[error("{0}")]
    Fence(String),
    /// The worker itself cannot be executed.
    #[error(transparent)]
    Worker(io::Error),
    /// The requested level is not available.
    #[error(transparent)]
    Containment(io::Error),
}

/// Starts a worker behind a fence, in a PID namespace.
///
/// # Errors
/// Nothing runs then.
pub fn start_fenced(spawn: &Spawn<'_>, plan: &FencePlan) -> Result<ContainedWorker, StartError> {
    start_behind_fence(spawn, plan).map(ContainedWorker::Namespace)
}

/// Checks that a fence can be set up: starts this program, which prints its version, in one without
/// writable paths.
///
/// # Errors
/// Why a fence is not available here.
pub fn mount_fence_available() -> Result<(), StartError> {
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
    // Init exits when its lifeline closes.
    start_behind_fence(&spawn, &plan).map(drop)
}

/// Starts a worker with the requested containment. This process must be a subreaper and
/// single-threaded.
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
    // With a copy of the writing end here, reading would wait forever for an init that has died.
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

#[cfg(target_os = "linux")]
fn read_message(status: &mut std::fs::File) -> io::Result<super::status::Message> {
    use std::io::Read;
    let mut bytes = [0; super::status::Message::BYTES];
    status.read_exact(&mut bytes)?;
    super::status::Message::decode(bytes).ok_or_else(unknown_message)
}

#[cfg(target_os = "linux")]
fn unknown_message() -> io::Error {
    io::Error::other("init sent an unknown message")
}

#[cfg(target_os = "linux")]
fn start_behind_fence(spawn: &Spawn<'_>, plan: &FencePlan) -> Result<Namespace, StartError> {
    let mut entry = FenceEntry::start(spawn, plan)?;
    match entry.start_init() {
        Ok(init) => entry.adopt(init),
        Err(failed) => {
            entry.abandon();
            Err(failed)
        }
    }
}

/// The intermediate process that creates the namespaces of a fence.
#[cfg(target_os = "linux")]
struct FenceEntry {
    child: Child,
    /// Closing it ends the namespace.
    lifeline: OwnedFd,
    status: std::fs::File,
    /// A byte lets the process continue. When it closes, the process exits.
    go: std::fs::File,
}

#[cfg(target_os = "linux")]
impl FenceEntry {
    fn start(spawn: &Spawn<'_>, plan: &FencePlan) -> Result<Self, StartError> {
        let (lifeline_theirs, lifeline) = pipe()?;
        let (status, status_theirs) = pipe()?;
        let (go_theirs, go) = pipe()?;
        let plan = plan_file(plan)?;
        let mut argv = vec![
            OsString::from("adj"),
            OsString::from("__fence"),
            spawn.program.as_os_str().to_owned(),
        ];
        argv.extend(spawn.argv.iter().cloned());
        let child = Spawn {
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
        Ok(Self {
            child,
            lifeline,
            status: status.into(),
            go: go.into(),
        })
    }

    /// Lets the process start init, and returns init once it has started the worker.
    fn start_init(&mut self) -> Result<Child, StartError> {
        use super::fence::entry::write_id_maps;
        use super::status::Message;
        use std::io::Write;

        match read_message(&mut self.status).map_err(not_fenced)? {
            Message::Unshared => {}
            Message::NotFenced(bytes) => return Err(read_refusal(&mut self.status, bytes)),
            _ => return Err(not_fenced(unknown_message())),
        }
        write_id_maps(self.child.pid)
            .and_then(|()| self.go.write_all(b"1"))
            .map_err(not_fenced)?;
        let message = read_message(&mut self.status).map_err(not_fenced)?;
        // Init is an unreaped child of the intermediate process, which still waits, so its id is
        // not used again before it is opened.
        let init = super::tree::children(self.child.pid).first().copied();
        match message {
            Message::Started => {
                let pid = init.ok_or_else(|| StartError::Fence("init has exited".to_owned()))?;
                let pidfd = super::system::open_process(pid).map_err(not_fenced)?;
                Ok(Child { pid, pidfd })
            }
            Message::NotFenced(bytes) => Err(read_refusal(&mut self.status, bytes)),
            Message::NotSetUp(errno) => Err(not_fenced(io::Error::from_raw_os_error(errno))),
            Message::NotStarted(errno) => {
                Err(StartError::Worker(io::Error::from_raw_os_error(errno)))
            }
            Message::Ended(_) | Message::Unshared | Message::Gaps(_) => {
                Err(not_fenced(unknown_message()))
            }
        }
    }

    /// Waits until the process has exited, after which init is a child of this process.
    fn adopt(self, init: Child) -> Result<Namespace, StartError> {
        drop(self.go);
        self.child.wait_blocking().map_err(not_fenced)?;
        let worker = super::tree::children(init.pid)
            .first()
            .copied()
            .unwrap_or(init.pid);
        Ok(Namespace {
            init,
            worker,
            lifeline: self.lifeline,
            status: self.status.into(),
        })
    }

    /// Ends the process. Init exits when its lifeline closes, and is reaped like any orphan.
    fn abandon(self) {
        drop(self.go);
        drop(self.lifeline);
        reap_failed_init(&self.child, io::Error::other("fence"));
    }
}

#[cfg(target_os = "linux")]
fn not_fenced(error: io::Error) -> StartError {
    StartError::Fence(error.to_string())
}

/// Reads why the fence was refused.
#[cfg(target_os = "linux")]
fn read_refusal(status: &mut std::fs::File, bytes: i32) -> StartError {
    match super::status::Message::read_why(status, bytes) {
        Ok(why) => StartError::Fence(why),
        Err(error) => not_fenced(error),
    }
}

/// Writes a plan to a file without a name.
#[cfg(target_os = "linux")]
fn plan_file(plan: &FencePlan) -> Result<OwnedFd, StartError> {
    let plan = serde_json::to_vec(plan).map_err(|error| StartError::Fence(error.to_string()))?;
    super::start::unlinked_bytes(&plan).map_err(not_fenced)
}

/// Starts a worker behind Landlock rules, with the requested containment. Also returns what the
/// rules do not enforce.
///
/// # Errors
/// Nothing runs then.
#[cfg(target_os = "linux")]
pub fn start_with_landlock(
    spawn: &Spawn<'_>,
    plan: &FencePlan,
    wanted: RequestedLevel,
) -> Result<(ContainedWorker, Vec<String>), StartError> {
    let (status, status_theirs) = pipe()?;
    let plan = plan_file(plan)?;
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
    // As above: only the child may keep the pipe open, until it executes the program.
    drop(status_theirs);
    let mut status = std::fs::File::from(status);
    match read_gaps(&mut status) {
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

/// Waits until a worker behind Landlock rules is executed, and reads what they do not enforce.
#[cfg(target_os = "linux")]
fn read_gaps(status: &mut std::fs::File) -> Result<Vec<String>, StartError> {
    use super::status::Message;

    let gaps = match read_message(status).map_err(not_fenced)? {
        Message::Gaps(bytes) => Message::read_why(status, bytes).map_err(not_fenced)?,
        Message::NotFenced(bytes) => return Err(read_refusal(status, bytes)),
        _ => return Err(not_fenced(unknown_message())),
    };
    // The pipe closes when the program is executed.
    match read_message(status) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(gaps.lines().map(ToOwned::to_owned).collect())
        }
        Ok(Message::NotStarted(errno)) => {
            Err(StartError::Worker(io::Error::from_raw_os_error(errno)))
        }
        Ok(_) => Err(not_fenced(unknown_message())),
        Err(error) => Err(not_fenced(error)),
    }
}

#[cfg(not(target_os = "linux"))]
pub fn start_with_landlock(
    _spawn: &Spawn<'_>,
    _plan: &FencePlan,
    _wanted: RequestedLevel,
) -> Result<(ContainedWorker, Vec<String>), StartError> {
    Err(StartError::Fence(
        super::system::Unsupported::Fence.to_string(),
    ))
}

/// Returns whether this process may create a PID namespace.
///
/// # Errors
/// The kernel does not say so.
#[cfg(target_os = "linux")]
pub fn pid_namespace_permitted() -> io::Result<bool> {
    const CAP_SYS_ADMIN: u32 = 21;
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| io::Error::other(format!("cannot read /proc/self/status: {error}")))?;
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .ok_or_else(|| io::Error::other("/proc/self/status does not list the capabilities"))?;
    Ok(capabilities >> CAP_SYS_ADMIN & 1 == 1)
}

/// Fails: the processes of an agent cannot be contained here yet.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn pid_namespace_permitted() -> io::Result<bool> {
    Err(super::system::Unsupported::Containment.into())
}

/// Checks that this machine supports a Landlock fence.
///
/// # Errors
/// What is missing.
#[cfg(target_os = "linux")]
pub fn landlock_available() -> Result<(), super::fence::landlock::LandlockError> {
    super::fence::landlock::available()
}

/// Fails: this platform has no Landlock.
///
/// # Errors
/// Always.
#[cfg(not(target_os = "linux"))]
pub fn landlock_available() -> Result<(), super::system::Unsupported> {
    Err(super::system::Unsupported::Fence)
}

#[cfg(not(target_os = "linux"))]
fn start_behind_fence(_spawn: &Spawn<'_>, _plan: &FencePlan) -> Result<Namespace, StartError> {
    Err(StartError::Fence(
        super::system::Unsupported::Fence.to_string(),
    ))
}

#[cfg(not(target_os = "linux"))]
fn start_in_namespace(_spawn: &Spawn<'_>) -> Result<Namespace, StartError> {
    Err(StartError::Containment(
        super::system::Unsupported::Containment.into(),
    ))
}

/// Reaps an init that failed, and returns its error.
#[cfg(target_os = "linux")]
fn reap_failed_init(init: &Child, why: io::Error) -> io::Error {
    if let Err(error) = super::system::send_signal(&init.pidfd, rustix::process::Signal::KILL) {
        tracing::debug!(%error, "init has already exited");
    }
    match init.wait_blocking() {
        Ok(_) => why,
        Err(error) => io::Error::other(format!("{why}; and it could not be reaped: {error}")),
    }
}

#[cfg(target_os = "linux")]
fn pipe() -> Result<(OwnedFd, OwnedFd), StartError> {
    super::pipe().map_err(StartError::Containment)
}

/// Runs `start` so that the process it starts is pid 1 of a new namespace. Later children and
/// threads of this process are created in its own namespace again.
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
