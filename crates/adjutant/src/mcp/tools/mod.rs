//! What the tools do, by role. No tool refers to the server or to the catalog.

pub(in crate::mcp) mod chats;
pub(in crate::mcp) mod parent;
pub(in crate::mcp) mod worker;
