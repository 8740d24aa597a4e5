//! Mapping store rows to the views of the contract: one for all interfaces.

mod attention;
mod event;
mod report;
mod request;
mod run;

pub(super) use event::{event, message};
pub(super) use request::{add_room, content_hash, request, requests};
pub(super) use run::{brief, run, starts_at_once};
