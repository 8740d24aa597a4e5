//! The tools of a worker: ask and get the answer, look at itself, report.

mod answer;
mod ask;
mod messages;
mod report;
mod request;

pub(in crate::mcp) use answer::check_answer;
pub(in crate::mcp) use ask::{ask_parent, delegate_work, request_approval};
pub(in crate::mcp) use messages::with_unread;
pub(in crate::mcp) use report::{check_subagent_status, stop_work, update_subagent_status};
