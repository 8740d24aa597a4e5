//! Requests: asking, answering, reading, expiring.

mod listing;
mod lookup;
mod row;
mod write;

pub use listing::{
    RequestsOf, WaitingRequest, newest_approvals, newest_of, open_below, requests_of,
    requests_page, undelivered_of, unread_of, unsettled_of, waiting_requests,
};
pub(super) use listing::{due_requests, has_settled_since_stop, open_approvals_of_tree};
pub(super) use lookup::request_by_child;
pub use lookup::{has_requests, request_by_id, request_by_no, requests_together};
pub use write::NewRequest;
pub(in crate::store) use write::{withdraw_requests, write_states};
