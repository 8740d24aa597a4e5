//! Requests: questions, approvals and delegations; asking, answering, reading answers.

mod answer;
mod approvals;
mod ask;
mod delegations;
mod messages;
mod read;
mod receipts;
mod rules;

pub use answer::AnswerCall;
pub use approvals::request_approval;
pub use ask::ask;
pub use ask::ask_and_wait;
pub use ask::ask_together;
pub use ask::withdraw_request;
pub use delegations::delegate;
pub(in crate::ops) use messages::deliver_queued_messages;
pub use read::list_requests;
pub use read::read_request;
pub use read::read_together;
pub(in crate::ops) use rules::{ask_approval, deciding_policy, passed_by, stated_operation};
