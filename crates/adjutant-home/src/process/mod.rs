//! Processes of the operating system. The only module that starts processes, and the only one with `unsafe` code.
//!
//! - [`foreground`]: programs that the caller waits for.
//! - [`probe`]: short questions to a program, such as its version.
//! - [`spawn`]: starts an argv without a shell, in its own session, without leaked descriptors.
//! - [`start`]: starts this binary: a guard of an attempt, a hub in the background.
//! - [`lock`], [`watch`]: liveness. A process is alive as long as it holds its lock; a pid proves nothing.
//! - [`tree`]: the descendants of a process: lists, signals and sweeps them.
//! - [`usage`]: the memory, CPU time and output that processes use.
//! - [`pressure`]: the load of the machine, and the kernel's reports of it.
//! - [`tool`]: runs a trusted tool of the system, such as git, to its end.
//! - [`launch_command`]: the command that starts a runner, which may outlive this process.
//! - [`limit`]: identifies the processes of an attempt whose guard and supervisor are dead.
//! - [`peer`], [`tcp_peer`]: identify the process at the other end of a socket or a TCP connection, and its attempt.
//! - `descriptors`: what the descriptors of a process say about a socket. `exclusion`: proves that no process of an attempt has a socket.
//! - [`containment`], [`init`]: a PID namespace, if the kernel allows it. [`status`]: the messages of init.
//! - [`fence`]: mounts that restrict what a worker can see and write.
//! - [`hygiene`]: initialization of Adjutant's processes.
//!
//! The module knows nothing of runs but the names of their directories, and never decides to stop a process.

pub mod containment;
#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
mod exclusion;
pub mod fence;
pub mod foreground;
pub mod hygiene;
pub mod init;
pub mod launch_command;
mod left_launch;
pub mod limit;
pub mod lock;
pub mod named;
pub mod peer;
pub mod pressure;
pub mod probe;
#[cfg(target_os = "linux")]
mod sock_diag;
pub mod spawn;
pub mod start;
pub mod status;
pub mod tcp_peer;
pub mod tool;
pub mod tree;
pub mod usage;
pub mod watch;
pub mod writers;

pub use launch_command::LaunchCommand;
pub use left_launch::LeftLaunch;
pub use lock::Lock;
pub use rustix::process::{Pid, Signal};
pub use spawn::{Child, Spawn, StdioTarget};
pub use start::{Detached, GuardChild, ReadyPipe, spawn_detached_self, spawn_guard};
pub use watch::attempt_over;

/// Exit status of a guard or supervisor that found its lock held by another.
pub const EXIT_LOCKED: u8 = 75;
/// Exit status of a supervisor whose attempt was started before: it must never start again.
pub const EXIT_BEGUN_BEFORE: u8 = 76;
