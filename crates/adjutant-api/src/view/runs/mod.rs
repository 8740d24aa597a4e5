//! Runs: the calls about them, and their representation.

mod activity;
mod calls;
mod checkpoint;
mod logs;
mod messages;
mod report;
mod run;
mod statements;
mod workspace;

pub use activity::*;
pub use calls::*;
pub use checkpoint::*;
pub use logs::*;
pub use messages::*;
pub use report::*;
pub use run::*;
pub use statements::*;
pub use workspace::*;
