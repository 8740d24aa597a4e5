//! Requests: questions, approvals and delegations; asking, answering, reading answers.

mod answer;
mod approvals;
mod ask;
mod delegations;
mod messages;
mod read;
mod receipts;
mod rules;

pub(crate) use answer::AnswerCall;
pub(crate) use approvals::request_approval;
pub(crate) use ask::{ask, ask_and_wait, ask_together, withdraw_request};
pub(crate) use delegations::delegate;
pub(in crate::ops) use messages::deliver_queued_messages;
pub(crate) use read::{list_requests, read_request, read_together};
pub(in crate::ops) use rules::{ask_approval, deciding_policy, passed_by, stated_operation};
