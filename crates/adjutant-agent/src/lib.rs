//! The processes beside an agent: guard, supervisor, the drivers of CLIs, the gate to its model,
//! the runner on another machine.
//!
//! They work without a hub, and never decide the state of a run. They may use git and calls of the
//! hub, and know no store. The program gives the supervisor a run's tools.

#![forbid(unsafe_code)]

pub mod gate;
pub mod guard;
pub mod harness;
pub mod runner;
pub mod supervisor;

pub(crate) use adjutant_api::{preset, protocol, text, view};
pub(crate) use adjutant_git::git;
pub(crate) use adjutant_home::{
    attempt_processes, clock, config, failpoint, files, http_client, leftovers, logs, named_locks,
    process, sock, spool, tls, trace, versions,
};
pub(crate) use adjutant_net::{hub_client, remote};
pub(crate) use adjutant_stream::signal;
