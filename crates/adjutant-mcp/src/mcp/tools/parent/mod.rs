//! The tools of a parent. Each makes a call to the hub and describes its result.

mod agents;
mod confirmation;
mod logs;
mod merge;
mod next_step;
mod questions;
mod review;
mod run;
mod status;
mod steer;
mod wait;
mod waited;

pub(in crate::mcp) use agents::{ListCodingAgentsArgs, list_agents};
pub(in crate::mcp) use confirmation::run_confirmation;
pub(in crate::mcp) use logs::{GetSubagentLogsArgs, get_subagent_logs, log_shown};
pub(in crate::mcp) use merge::{MergeChangesArgs, merge_changes};
pub(in crate::mcp) use questions::{
    GetPendingQuestionsArgs, ReplySubagentArgs, get_pending_questions, reply_subagent,
};
pub(in crate::mcp) use review::{ReviewChangesArgs, review_changes};
pub(in crate::mcp) use run::{RunSubagentArgs, directory as run_directory, project, run_subagent};
pub(in crate::mcp) use status::{
    CheckSubagentStatusArgs, UpdateSubagentStatusArgs, check_subagent_status, run_shown,
    update_subagent_status,
};
pub(in crate::mcp) use steer::{SteerSubagentArgs, steer_subagent};
pub(in crate::mcp) use wait::{WaitForSubagentsArgs, wait_for_subagents};
pub(in crate::mcp) use waited::{waited, waited_for_one};
