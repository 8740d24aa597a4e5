//! The tools' functions, by role. They do not use the server or the catalog.

pub(in crate::mcp) mod chats;
pub(in crate::mcp) mod parent;
pub(in crate::mcp) mod worker;
