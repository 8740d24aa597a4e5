//! The tools as data: one row each, in the order of the lists. A row names its authorization rule
//! ([`adjutant_core::Action`]), its arguments and its function.
//!
//! A list depends only on the role, never on a connection or on state. A description begins with
//! when to use the tool and ends with the next step. Budgets in tokens (o200k) for names,
//! descriptions and arguments, including the JSON that clients add: parent 1,800, worker 1,200.

mod chats;
mod compat;
mod list;
mod params;
mod parent;
mod row;
mod worker;

pub use compat::ALIASES;
pub(crate) use compat::RUN_PREFIX;
pub(crate) use list::is_of_chats;
pub use list::{find, list, tools};
pub use parent::PARENT;
pub use row::{Effect, Handler, Run, ToolRow};
