//! The tools of a worker: asking, reading answers, reading its own state, reporting.

mod answer;
mod ask;
mod messages;
mod report;
mod request;

pub(in crate::mcp) use answer::{CheckAnswerArgs, check_answer};
pub(in crate::mcp) use ask::{
    AskParentArgs, DelegateWorkArgs, RequestApprovalArgs, ask_parent, delegate_work,
    request_approval,
};
pub(in crate::mcp) use messages::with_unread;
pub(in crate::mcp) use report::{
    CheckSubagentStatusArgs, StopWorkArgs, UpdateSubagentStatusArgs, check_subagent_status,
    stop_work, update_subagent_status,
};
