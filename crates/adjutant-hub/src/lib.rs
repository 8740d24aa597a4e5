//! The hub: the process that serves the use cases, on its socket and over HTTP.
//!
//! The program gives it its MCP server. It starts and ends the processes beside an agent, and
//! receives their calls (`process`, `protocol`), without their code, and knows nothing of the command
//! line.

#![forbid(unsafe_code)]

pub mod hub;

pub(crate) use adjutant_api::{present, protocol, text, view};
pub(crate) use adjutant_home::{
    attempt_processes, clock, config, connection_tasks, failpoint, files, logs, objects, process,
    sock, spool, tls, trace, versions,
};
pub(crate) use adjutant_net::{hub_client, peer, remote, webhook};
pub(crate) use adjutant_ops::ops;
pub(crate) use adjutant_store::store;
