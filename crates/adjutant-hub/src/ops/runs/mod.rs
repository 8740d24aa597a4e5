//! Runs: dispatching, showing and ending them.

mod budget;
mod caches;
mod choice;
mod clean;
mod control;
mod dispatch;
mod fence;
mod keep;
mod overrides;
mod plan;
mod resume;
mod retry;
mod show;

pub(crate) use clean::Cleaner;
pub use keep::Cleaning;
