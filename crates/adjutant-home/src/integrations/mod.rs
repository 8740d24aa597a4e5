//! Connects MCP clients to Adjutant: which there are, where their files are, and how an entry is
//! added to a file or removed from it; and the skill beside it. A file is only changed as a whole,
//! and only if its new content parses and differs by that entry.

mod diff;
mod entry;
mod file;
mod format;
mod installation;
mod place;
mod plan;
mod skill;
mod table;

pub use diff::{Line, hunk};
pub use entry::NAME;
pub use file::{ClientFile, FileError};
pub use format::FormatError;
pub use installation::{Installation, all_on_path, completion_lines};
pub use place::{OwnProgram, Scope, file_of, find_trace, is_program, on_path, skill_of};
pub use plan::{Change, Plan, PlanError, client_ids, has_entry, plan_install, plan_undo, snippet};
pub use skill::{SkillChange, SkillPlan, plan_skill, plan_skill_undo, skill_text};
pub use table::{CLIENTS, CallTimeout, Format, McpClient, Shape, SkillDirs, UserFile, find_client};
