//! Finds every process that was started by one test, even if the process hides its origin.
//!
//! A child inherits its parent's resource limits, and any user can read `/proc/<pid>/limits` of any
//! process, even of one that is not dumpable (whose environment and working directory only root can
//! read), has left its session, or has cleared its environment. The mark is the limit on real-time
//! CPU time, which no test needs.
//!
//! `xtask` includes this file too.

use rustix::process::{Pid, Resource, Rlimit};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a process that must exist may take to become visible.
const DETECTION_MAX: Duration = Duration::from_secs(10);

/// The limit's value that marks the processes of one home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

/// One living process.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: u32,
    pub arguments: Vec<String>,
}

impl Process {
    /// Returns the command line in one piece.
    pub fn line(&self) -> String {
        self.arguments.join(" ")
    }
}

impl Mark {
    /// Returns the mark of a directory, which depends only on its path.
    pub fn of(dir: &Path) -> Self {
        // A permitted value that is far higher than any test needs.
        let most = rustix::process::getrlimit(Resource::Rttime)
            .maximum
            .unwrap_or(u64::MAX / 2);
        let least = most / 2;
        let mut hasher = DefaultHasher::new();
        dir.hash(&mut hasher);
        Self(least + hasher.finish() % (most - least).max(1))
    }

    /// Marks the process of a command and all its descendants.
    #[expect(
        unsafe_code,
        reason = "between fork and exec only a system call is made"
    )]
    pub fn put_on(self, command: &mut Command) {
        let limit = Rlimit {
            current: Some(self.0),
            maximum: Some(self.0),
        };
        // SAFETY: setrlimit is one system call on values copied into the closure.
        unsafe {
            command.pre_exec(move || Ok(rustix::process::setrlimit(Resource::Rttime, limit)?))
        };
    }

    /// Returns the live processes with this mark. Panics if such processes cannot be seen here.
    pub fn processes(self) -> Vec<Process> {
        static CHECKED: OnceLock<()> = OnceLock::new();
        CHECKED.get_or_init(check_sight_once);
        self.find()
    }

    fn find(self) -> Vec<Process> {
        pids()
            .into_iter()
            .filter(|pid| limit(*pid) == Some(self.0))
            .filter_map(process)
            .collect()
    }
}

/// Reads a process. `None`: it does not exist, or it is a zombie.
pub fn process(pid: u32) -> Option<Process> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let arguments: Vec<String> = text
        .trim_end_matches('\0')
        .split('\0')
        .map(str::to_owned)
        .collect();
    (!bytes.is_empty()).then_some(Process { pid, arguments })
}

/// Returns the ids of all processes.
pub fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("there is a /proc");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns the parent of each process.
pub fn parents() -> BTreeMap<u32, u32> {
    let parent = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything.
        let parent = stat
            .rsplit_once(')')?
            .1
            .split_ascii_whitespace()
            .nth(1)?
            .parse()
            .ok()?;
        Some((*pid, parent))
    };
    pids().iter().filter_map(parent).collect()
}

fn limit(pid: u32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Checks once in a run of nextest, which starts a process for each test.
fn check_sight_once() {
    let Some(run) = std::env::var_os("NEXTEST_RUN_ID") else {
        return check_sight();
    };
    let checked = std::env::temp_dir().join(format!("adj-sight-{}", run.to_string_lossy()));
    if !checked.exists() {
        check_sight();
        std::fs::write(&checked, "").expect("a temporary file");
    }
}

/// Starts a process that is hard to find, an orphan in its own session that is not dumpable and has
/// an empty environment, and panics unless it is found.
fn check_sight() {
    let dir = tempfile::Builder::new()
        .prefix("adj-plant-")
        .tempdir()
        .expect("a temporary directory");
    let program = dir.path().join("sleep");
    // A program that its user cannot read runs as a process that is not dumpable. It is copied by
    // another program, because a descriptor open for writing in this process could be inherited by
    // another thread's child.
    let source = ["/usr/bin/sleep", "/bin/sleep"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("sleep is installed");
    let copied = Command::new("install")
        .args(["-m", "0111", source])
        .arg(&program)
        .status();
    assert!(
        copied.is_ok_and(|status| status.success()),
        "{source} cannot be copied to {}",
        program.display()
    );
    let mark = Mark::of(dir.path());
    let name = format!("planted-{}", mark.0);
    let mut command = Command::new("/bin/bash");
    let script = "(setsid bash -c 'exec -c -a \"$1\" \"$0\" 60' \"$0\" \"$1\" > /dev/null 2>&1 &)";
    command
        .args(["-c", script])
        .arg(&program)
        .arg(&name)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::null());
    mark.put_on(&mut command);
    assert!(
        command.status().is_ok_and(|status| status.success()),
        "nothing can be planted"
    );
    let start = Instant::now();
    let planted = loop {
        let found = mark.find();
        if let Some(planted) = found
            .iter()
            .find(|process| process.arguments.first() == Some(&name))
        {
            break planted.pid;
        }
        assert!(
            start.elapsed() < DETECTION_MAX,
            "processes cannot be seen here: a planted one was not found (found: {found:?})"
        );
        std::thread::sleep(Duration::from_millis(5));
    };
    let is_ordinary = !rustix::process::geteuid().is_root();
    assert!(
        !is_ordinary || std::fs::read(format!("/proc/{planted}/environ")).is_err(),
        "the planted process can be read: it proves nothing"
    );
    kill(planted);
}

/// SIGKILL.
pub fn kill(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .expect("a pid");
    match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("kill {pid:?}: {error}"),
    }
}
