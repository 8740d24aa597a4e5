//! The tools as data: one row each, in the order of the lists. A row names its rule
//! ([`adjutant_core::Action`]), its arguments, and the one function that it is.
//!
//! The two lists depend on the role alone, never on a connection or on state. Descriptions begin
//! with when to use the tool and end with what comes next. Budgets in tokens (o200k) over names,
//! descriptions and arguments, with the JSON that clients put around them: parent 1,800, worker 1,200.

mod chats;
mod compat;
mod list;
mod params;
mod parent;
mod row;
mod worker;

pub use compat::{ALIASES, RUN_PREFIX, UNLISTED};
pub use list::{find, is_of_chats, list, tools};
pub use parent::PARENT;
pub use row::{Effect, Handler, Run, ToolRow};
pub use worker::WORKER;
