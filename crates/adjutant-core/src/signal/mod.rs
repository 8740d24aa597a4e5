//! Signals: structured statements of a run about itself. A signal can ask; it can never approve,
//! answer or start anything.
//!
//! This module recognizes markers, defines the fields, and decides what a block says and whose it
//! is. Finding blocks in streamed output and parsing YAML or JSON is done elsewhere.

mod content;
mod field;
mod flat;
mod kind;
mod marker;
mod read;
mod shape;
#[cfg(test)]
mod tests;
mod unreadable;

pub use content::{Clarification, Delegation, Independence, Priority, Question, Signal, StopCause};
pub use field::Field;
pub use kind::{SignalKind, Source};
pub(crate) use marker::without_blocks;
pub use marker::{MARKER_BYTES_MAX, Opening, closes, indentation, mentioned, opening};
pub use read::{Own, Reading, SignalError, read, read_block, read_broken, read_json};
pub use unreadable::{
    Notice, RECORDED_MAX, UnreadableBlock, UnreadableEnd, end_of, first_open, is_notified,
    is_repeated, notice_text, problem,
};

pub use crate::checkpoint::Checkpoint;
pub use crate::report::{Report, ReportStatus};
