//! Which processes belong to an attempt of a home.
//!
//! - [`spawn_guard`]: starts the guard of an attempt, below which all its processes are.
//! - [`attempt_over`], [`is_over`]: liveness of guard and supervisor, by their locks.
//! - [`mark`]: what marks the processes of an attempt. [`kill_stragglers`]: kills those whose guard
//!   and supervisor are dead.
//! - [`place`]: the attempt in which a process runs. [`tcp_caller`]: the same for the other end of a
//!   TCP connection. `exclusion`: proves that no process of an attempt has a socket.
//!
//! The module speaks to the system through [`crate::process`], and never decides to end an attempt.

mod exclusion;
mod guard;
mod left;
pub mod mark;
mod over;
pub mod place;
pub mod tcp_caller;

pub use guard::{spawn_guard, spawn_guard_of};
pub use left::{kill_stragglers, of_run};
pub use over::{attempt_over, is_over};
pub use place::Place;

/// Exit status of a guard or supervisor that found its lock held by another.
pub const EXIT_LOCKED: u8 = 75;
/// Exit status of a supervisor whose attempt was started before: it must never start again.
pub const EXIT_BEGUN_BEFORE: u8 = 76;
