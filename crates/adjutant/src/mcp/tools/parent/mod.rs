//! The tools of a parent: each is one call of the hub, and a short text about its result.

mod agents;
mod confirmation;
mod logs;
mod next_step;
mod questions;
mod run;
mod status;
mod steer;
mod wait;

pub(in crate::mcp) use agents::list_agents;
pub(in crate::mcp) use logs::get_subagent_logs;
pub(in crate::mcp) use questions::{get_pending_questions, reply_subagent};
pub(in crate::mcp) use run::{project, run_subagent};
pub(in crate::mcp) use status::{check_subagent_status, update_subagent_status};
pub(in crate::mcp) use steer::steer_subagent;
pub(in crate::mcp) use wait::{wait_for_subagents, waited};
