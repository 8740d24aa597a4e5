//! Merging an isolated run's changes into the user's repository, or discarding them.

mod discard;
mod journal;
mod merge;
mod resolve;
mod target;
