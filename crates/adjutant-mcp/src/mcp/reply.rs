//! Replies to tool calls.

use super::refusal::ToolRefusal;
use super::show::Shown;
use crate::view::TaskView;
use rmcp::model::InputRequiredResult;

/// The reply to a tool call.
#[derive(Debug)]
pub enum ToolReply {
    Result(Shown),
    /// The wait continues in the hub, and the client polls it.
    Task(Box<TaskView>),
    /// The client asks its person, and repeats the call.
    Input(Box<InputRequiredResult>),
}

/// The result of a tool call.
pub(super) type ToolResult = Result<ToolReply, ToolRefusal>;

/// Wraps a result as the reply to a call.
///
/// # Errors
/// Never. The type matches that of other tools.
pub(super) fn reply(result: Shown) -> ToolResult {
    Ok(ToolReply::Result(result))
}
