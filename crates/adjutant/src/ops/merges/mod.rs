//! What becomes of an isolated run's changes: merged into the user's repository, or discarded.

mod discard;
mod journal;
mod merge;
mod resolve;
mod target;
