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

pub(crate) use budget::BudgetCall;
pub(crate) use clean::Cleaner;
pub(crate) use control::RunControl;
pub(crate) use dispatch::DispatchCall;
pub use keep::Cleaning;
pub(crate) use resume::ResumeCall;
pub(crate) use retry::RetryCall;
pub(crate) use show::RunReader;
