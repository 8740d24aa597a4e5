//! Mapping store rows to the views of the contract: one for all interfaces.

mod attention;
mod event;
mod queue;
mod report;
mod request;
mod run;

pub(super) use attention::attention_with_causes;
pub(super) use event::{event, message};
pub(super) use queue::{add_queue, starts_at_once};
pub(super) use request::{add_room, content_hash, request, requests};
pub(super) use run::{announce_run, brief, run, with_report};
