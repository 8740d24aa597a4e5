//! What a tool call returns.

use super::refusal::Refusal;
use super::show::Shown;
use crate::view::TaskView;

/// What a tool call returns.
#[derive(Debug)]
pub enum Reply {
    Result(Shown),
    /// The wait continues in the hub; the client polls it.
    Task(TaskView),
}

/// What a tool call comes to.
pub type ToolResult = Result<Reply, Refusal>;

/// Makes a result the reply of a call.
///
/// # Errors
/// Never: the type is that of a tool.
pub fn reply(result: Shown) -> ToolResult {
    Ok(Reply::Result(result))
}
