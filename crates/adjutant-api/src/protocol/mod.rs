//! The messages between the hub and a supervisor (the order that starts an attempt, the
//! supervisor's facts, and later orders), and those between hubs. Changes only add, because the
//! versions of both ends may differ.

mod attempt_dir;
mod calls;
mod evidence;
mod fact;
mod order;
pub mod peer;
mod runner;
mod standby;
mod usage;

pub use attempt_dir::*;
pub use calls::*;
pub use evidence::*;
pub use fact::*;
pub use order::*;
pub use runner::*;
pub use standby::*;
pub use usage::*;
