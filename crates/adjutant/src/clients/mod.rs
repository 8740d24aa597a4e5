//! Connects MCP clients to Adjutant: which there are, where their files are, and how an entry is added to a file or removed
//! from it. A file is only changed as a whole, and only if its new content parses and differs by that entry.

mod diff;
mod entry;
mod file;
mod format;
mod place;
mod plan;
mod table;

pub use diff::{Line, hunk};
pub use entry::NAME;
pub use file::{ClientFile, FileError};
pub use format::FormatError;
pub use place::{OwnProgram, Scope, file_of, find_trace, on_path};
pub use plan::{Change, Plan, PlanError, client_ids, plan_install, plan_undo, snippet};
pub use table::{CLIENTS, CallTimeout, Format, McpClient, Shape, UserFile, find_client};
