//! What the hub and a supervisor say to each other: the order that starts an attempt, the facts
//! that come back, the orders that follow. Additive changes only: both ends may be one version
//! apart.

mod attempt_dir;
mod calls;
mod evidence;
mod fact;
mod order;
mod usage;

pub use attempt_dir::*;
pub use calls::*;
pub use evidence::*;
pub use fact::*;
pub use order::*;
pub use usage::*;
