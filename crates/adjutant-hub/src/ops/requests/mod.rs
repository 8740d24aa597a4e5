//! Requests: questions, approvals and delegations; asking, answering, reading answers.

mod answer;
mod approvals;
mod ask;
mod delegations;
mod messages;
mod read;
mod receipts;
mod rules;

pub(in crate::ops) use rules::{ask_approval, deciding_policy, passed_by, stated_operation};
