//! Processes of the operating system. The only module that starts processes, and the only one with
//! `unsafe` code.
//!
//! - [`foreground`]: programs that the caller waits for.
//! - [`probe`]: short questions to a program, such as its version.
//! - [`spawn`]: starts an argv without a shell, in its own session, without leaked descriptors.
//! - [`start`]: starts this binary in the background.
//! - [`lock`], [`watch`]: liveness. A process is alive as long as it holds its lock; a pid proves
//!   nothing.
//! - [`tree`]: the descendants of a process: lists, signals and sweeps them.
//! - [`usage`]: the memory, CPU time and output that processes use.
//! - [`pressure`]: the load of the machine, and the kernel's reports of it.
//! - [`tool`]: runs a trusted tool of the system, such as git, to its end.
//! - [`launch_command`]: the command that starts a runner, which may outlive this process.
//! - [`properties`]: what the kernel states about one process. [`limit`]: a number that marks a
//!   process and its descendants.
//! - [`caller`]: identifies the process at the other end of a socket. [`sock_diag`]: finds the TCP
//!   socket at the other end of a connection. [`descriptors`]: what the descriptors of a process
//!   say about a socket.
//! - [`containment`], [`init`]: a PID namespace, if the kernel allows it. [`status`]: the messages
//!   of init.
//! - [`fence`]: mounts that restrict what a worker can see and write.
//! - `system`: what differs between systems; [`Unsupported`] is what one cannot do yet.
//! - [`hygiene`]: initialization of Adjutant's processes.
//!
//! The module knows no home and no run, and never decides to stop a process.

pub mod caller;
pub mod containment;
#[cfg(target_os = "linux")]
pub mod descriptors;
pub mod fence;
mod file_events;
pub mod foreground;
pub mod hygiene;
pub mod init;
pub mod launch_command;
mod left_launch;
pub mod limit;
pub mod lock;
pub mod named;
pub mod pressure;
pub mod probe;
pub mod properties;
#[cfg(target_os = "linux")]
pub mod sock_diag;
pub mod spawn;
pub mod start;
pub mod status;
mod system;
pub mod tool;
pub mod tree;
pub mod usage;
pub mod watch;
pub mod writers;

pub use file_events::FileEvents;
pub use launch_command::LaunchCommand;
pub use left_launch::LeftLaunch;
pub use lock::Lock;
pub use rustix::process::{Pid, Signal};
pub use spawn::{Child, Spawn, StdioTarget};
pub use start::{Detached, ReadyPipe, spawn_detached_self};
pub(crate) use system::peer_pid;
pub use system::{Unsupported, make_named_pipe, send_signal, set_oom_score};
#[cfg(not(target_os = "linux"))]
pub use system::{descriptors, sock_diag};

use std::io;
use std::os::fd::OwnedFd;

/// Makes a pipe, which no program inherits: its reading and its writing end.
///
/// # Errors
/// There are too many descriptors.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = io::pipe()?;
    Ok((read.into(), write.into()))
}
