//! Calls from this machine: of the hub, of a hub on another machine, of other hubs, and the
//! delivery of webhooks.
//!
//! It may use the operating system and the home (`adjutant-home`). It serves nothing.

#![forbid(unsafe_code)]

pub mod hub_client;
pub mod peer;
pub mod remote;
pub mod webhook;

pub(crate) use adjutant_api::{protocol, text, view};
pub(crate) use adjutant_home::{
    clock, config, connection_tasks, files, http_client, process, sock, spool, tcp, tls,
};
