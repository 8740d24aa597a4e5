//! The fence: a worker and everything that it starts can write only to its workspace, its own temporary files and the
//! state of its CLI. It is a mount namespace below a user namespace, in one step with the PID namespace of
//! [`super::containment`].
//!
//! ```text
//!  supervisor ── adj __fence            user, mount, IPC and PID namespace ([`entry`])
//!      │  └ writes its id maps  │
//!      │                        └ adj __init   pid 1: mounts ([`mounts`]), drops CAP_SYS_ADMIN for good,
//!      │                              │        tests what holds ([`check`]), says so, starts the worker
//!      └─ adopts init when adj __fence exits
//! ```
//! Nothing is started when a step fails or a test finds a hole.
//!
//! Why the worker cannot undo it: the mounts belong to the user namespace, in which nobody has `CAP_SYS_ADMIN` after
//! init has dropped it from its bounding set. In a user namespace of the worker's own, the kernel locks every mount
//! that it takes over. Processes outside are not in its `/proc`.
//!
//! [`landlock`] is the fence for a machine where no user namespace can be made. It enforces less, so only a run with the fence
//! `best-effort` gets it.

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

/// What a fence by mounts is called where it is stored and shown.
pub const MOUNT_NAMESPACE: &str = "mount_namespace";
/// What a fence by Landlock rules is called.
pub const LANDLOCK: &str = "landlock";
/// Where programs keep shared memory: a fenced worker has its own.
pub const SHARED_MEMORY_DIR: &str = "/dev/shm";
/// Where terminals are.
const TERMINALS_DIR: &str = "/dev/pts";
/// The argument of init that says that a plan lies on descriptor [`entry::PLAN_FD`].
pub const FENCED: &str = "--fenced";
