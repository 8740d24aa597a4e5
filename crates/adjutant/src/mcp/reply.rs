//! What a tool call returns.

use super::show::Shown;
use crate::view::TaskView;

/// What a tool call returns.
#[derive(Debug)]
pub enum Reply {
    Result(Shown),
    /// The wait continues in the hub; the client polls it.
    Task(TaskView),
}
