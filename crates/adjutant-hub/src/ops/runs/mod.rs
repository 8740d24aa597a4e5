//! Runs: dispatching, showing and ending them.

mod budget;
mod caches;
mod choice;
mod clean;
mod control;
mod dispatch;
mod fence;
mod overrides;
mod show;

pub use clean::Cleaning;
