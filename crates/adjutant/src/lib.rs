//! Adjutant delegates tasks to CLI coding agents of any vendor, supervises them, and carries questions and answers.
//! `ARCHITECTURE.md` describes the crates and their modules. The modules of the other crates have the same paths here.

#![forbid(unsafe_code)]

pub mod cli;
pub mod echo;
pub mod program;

pub use adjutant_agent::{gate, guard, harness, runner, supervisor};
pub use adjutant_api::{link, present, preset, text, view};
pub use adjutant_git::git;
pub use adjutant_home::{
    clients, clock, config, connection_tasks, failpoint, files, leftovers, logs, named_locks,
    objects, ports, process, sock, spool, tcp, tls, trace, user_files, versions,
};
pub use adjutant_hub::{hub, ops};
pub use adjutant_mcp::mcp;
pub use adjutant_net::{client, peer, remote, webhook};
pub use adjutant_store::store;
pub use adjutant_stream::signal;
