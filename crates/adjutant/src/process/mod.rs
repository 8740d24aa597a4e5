//! Everything about operating-system processes: the only module that starts any, and the only one
//! with `unsafe` code.
//!
//! - [`foreground`]: a program that a command waits for.
//! - [`probe`]: a program that is asked something short.
//! - [`spawn`]: an argv, no shell, a session of its own, no descriptor leaked.
//! - [`start`]: this binary again: a guard beside an attempt, a hub in the background.
//! - [`lock`], [`watch`]: liveness. A process lives for as long as it holds its lock; a pid is
//!   never trusted.
//! - [`tree`]: what a process has started, signalling it, sweeping it away.
//! - [`tool`]: a trusted tool of the system, such as git, run to its end.
//! - [`limit`]: recognising the processes of an attempt whose guard and supervisor are gone.
//! - [`peer`]: who is at the other end of a socket, and under which attempt it lives.
//! - [`containment`], [`init`]: a PID namespace where the kernel lets us. [`status`]: what init tells.
//! - [`fence`]: mounts that leave a worker little to write.
//! - [`hygiene`]: what a process of Adjutant does to itself first.
//!
//! It knows nothing of runs beyond the names of their directories, and never decides when to stop
//! anything.

pub mod containment;
pub mod fence;
pub mod foreground;
pub mod hygiene;
pub mod init;
pub mod limit;
pub mod lock;
pub mod peer;
pub mod probe;
pub mod spawn;
pub mod start;
pub mod status;
pub mod tool;
pub mod tree;
pub mod watch;

pub use lock::Lock;
pub use rustix::process::{Pid, Signal};
pub use spawn::{Child, Spawn, StdioTarget};
pub use start::{Detached, GuardChild, ReadyPipe, spawn_detached_self, spawn_guard};
pub use watch::attempt_over;

/// Exit status of a guard or supervisor that found its lock held by another.
pub const EXIT_LOCKED: u8 = 75;
/// Exit status of a supervisor whose attempt was started before: it must never start again.
pub const EXIT_BEGUN_BEFORE: u8 = 76;
