//! Signals: structured statements of a run about itself. A signal can ask; it can never approve, answer or start
//! anything.
//!
//! This module defines the fields and decides which blocks count. Finding blocks in output and parsing YAML or JSON is
//! done elsewhere.

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
