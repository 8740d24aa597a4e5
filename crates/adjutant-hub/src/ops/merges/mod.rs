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

pub(crate) use discard::Discards;
pub(crate) use journal::MergeJournal;
pub(crate) use merge::MergeCall;
