//! Mapping store rows to the views of the contract: one for all interfaces.

mod attention;
mod brief;
mod event;
mod policy;
mod queue;
mod report;
mod request;
mod run;

pub(super) use attention::attention_with_causes;
pub(super) use brief::brief;
pub(super) use event::{event, message};
pub(super) use policy::policy;
pub(super) use request::{add_room, content_hash, request, requests};
pub(super) use run::{RunViews, announce_run, run, with_report};
