//! Merging an isolated run's changes into the user's repository, or discarding them.

mod apply;
mod decision;
mod discard;
mod facts;
mod journal;
mod merge;
mod message;
mod resolve;
mod target;

pub use discard::Discards;
pub use journal::MergeJournal;
pub use merge::MergeCall;
