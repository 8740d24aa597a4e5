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

pub use budget::BudgetCall;
pub use clean::Cleaner;
pub use control::RunControl;
pub use dispatch::DispatchCall;
pub use keep::Cleaning;
pub use resume::ResumeCall;
pub use retry::RetryCall;
pub use show::RunReader;
