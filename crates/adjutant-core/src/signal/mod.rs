//! Signals: what a run says about itself in a form that a machine can act on. A signal can ask; it
//! can never approve, answer or start anything.
//!
//! This module knows the fields and what makes a block count. Finding blocks in output and reading
//! their YAML or JSON is done outside.

mod content;
mod field;
mod kind;
mod read;
#[cfg(test)]
mod tests;

pub use content::{Clarification, Delegation, Independence, Priority, Question, Signal, StopCause};
pub use field::Field;
pub use kind::{SignalKind, Source};
pub use read::{SignalError, is_iso_8601, read};

pub use crate::checkpoint::Checkpoint;
pub use crate::report::{Report, ReportStatus};
