//! The fence: a worker and everything that it starts can write only to its workspace, its own
//! temporary files and the state of its CLI. It is a mount namespace below a user namespace, in one
//! step with the PID namespace of [`super::containment`].
//!
//! ```text
//!  supervisor ── adj __fence            user, mount, IPC and PID namespace ([`entry`])
//!      │  └ writes its id maps  │
//!      │                        └ adj __init   pid 1: mounts ([`mounts`]), drops CAP_SYS_ADMIN permanently,
//!      │                              │        tests the fence ([`check`]), reports it, starts the worker
//!      └─ adopts init when adj __fence exits
//! ```
//! If a step or a test fails, nothing is started.
//!
//! The worker cannot undo it: the mounts belong to the user namespace, in which no process has
//! `CAP_SYS_ADMIN` after init has dropped it from its bounding set. If the worker creates a user
//! namespace, the kernel locks the inherited mounts there. Processes outside are not in its
//! `/proc`.
//!
//! [`landlock`] is the fence for machines without user namespaces. It enforces less, so only a run
//! with the fence `best-effort` uses it.

#[cfg(target_os = "linux")]
pub mod check;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
pub mod entry;
#[cfg(target_os = "linux")]
pub mod landlock;
#[cfg(target_os = "linux")]
pub mod mounts;
mod plan;

pub use plan::{FencePlan, PrivateDir};

/// The stored and shown name of a fence by mounts.
pub const MOUNT_NAMESPACE: &str = "mount_namespace";
/// The stored and shown name of a Landlock fence.
pub const LANDLOCK: &str = "landlock";
/// The directory of shared memory. A fenced worker has its own.
pub const SHARED_MEMORY_DIR: &str = "/dev/shm";
/// The directory of terminals.
#[cfg(target_os = "linux")]
const TERMINALS_DIR: &str = "/dev/pts";
/// The argument of init if a plan is on descriptor [`entry::PLAN_FD`].
pub(crate) const FENCED: &str = "--fenced";
