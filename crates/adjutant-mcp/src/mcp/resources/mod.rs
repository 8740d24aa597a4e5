//! Resources of a parent: its runs, their logs and its chats, with the text that the tools show. A
//! resource that the caller may not see does not differ from one that does not exist. Reading
//! confirms nothing and marks nothing as read.

mod list;
mod read;
mod refusal;
mod subscriptions;
mod target;
mod watch;

pub(super) use list::{complete, list, templates};
pub(super) use read::read;
pub(super) use subscriptions::{Subscriptions, accepted, listen};
pub use target::TEMPLATES;
