//! Network namespaces without names: the kernel removes each with its last process and descriptor,
//! whatever ends this program.

use crate::lab::Result;
use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// Creates a namespace, with its loopback interface up. Requires root.
    pub fn new() -> Result<Self> {
        let opened = on_a_thread(|| {
            // SAFETY: only the namespace of this short-lived thread changes; memory and descriptors
            // stay shared.
            #[expect(unsafe_code, reason = "the call is unsafe for other flags")]
            unsafe {
                unshare_unsafe(UnshareFlags::NEWNET)?;
            }
            File::open("/proc/thread-self/ns/net")
        });
        let namespace =
            Self(opened.map_err(|error| format!("no network namespace can be made: {error}"))?);
        namespace.run("ip", &["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Does some work on a thread in this namespace. Sockets that it opens and processes that it
    /// starts stay in the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root can enter a namespace");
            work()
        })
    }

    /// Runs a program in this namespace and returns its output.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        self.feed(program, args, "")
    }

    /// Runs a program in this namespace with an input and returns its output.
    pub fn feed(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        self.inside(|| {
            let started = Command::new(program)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut process = started.map_err(|error| format!("{program}: {error}"))?;
            process
                .stdin
                .take()
                .ok_or("no input")?
                .write_all(input.as_bytes())?;
            let output = process.wait_with_output()?;
            if !output.status.success() {
                return Err(format!(
                    "{program} {}: {}",
                    args.join(" "),
                    String::from_utf8_lossy(&output.stderr)
                )
                .into());
            }
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        })
    }

    /// Returns a path under which other programs can open it while this program runs.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Returns the processes in it.
    pub fn processes(&self) -> Result<Vec<Pid>> {
        let own = self.0.metadata()?.ino();
        let is_inside = |pid: &u32| {
            std::fs::metadata(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|namespace| namespace.ino() == own)
        };
        let found = crate::processes::pids().into_iter().filter(is_inside);
        Ok(found
            .filter_map(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
            .collect())
    }
}

/// A thread's namespace cannot be reset without the right to the old one, so each change has its
/// own thread.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
