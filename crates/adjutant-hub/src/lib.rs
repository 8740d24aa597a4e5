//! The hub: the use cases over the store, and the process that serves them.
//!
//! It may use git and calls of other hubs. The program gives it its MCP server. It starts and ends
//! the processes beside an agent, and receives their calls (`process`, `protocol`, `leftovers`),
//! without their code, and knows nothing of the command line.

#![forbid(unsafe_code)]

pub mod hub;
pub mod ops;

pub(crate) use adjutant_api::{present, preset, protocol, text, view};
pub(crate) use adjutant_git::git;
pub(crate) use adjutant_home::{
    attempt_processes, clock, config, connection_tasks, failpoint, files, leftovers, logs,
    named_locks, objects, ports, process, sock, spool, tls, trace, user_files, versions,
};
pub(crate) use adjutant_net::{hub_client, peer, remote, webhook};
pub(crate) use adjutant_store::store;
pub(crate) use adjutant_stream::signal;
