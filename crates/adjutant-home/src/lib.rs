//! The home: the configuration, the processes and files of attempts, the formats of logs, TLS and
//! requests to other machines, the files of MCP clients.
//!
//! It may use the contract and the operating system. It knows no store, runs no git and makes no
//! call of the hub.

#![forbid(unsafe_code)]

pub mod attempt_processes;
pub mod config;
pub mod connection_tasks;
pub mod http_client;
pub mod integrations;
pub mod leftovers;
pub mod logs;
pub mod named_locks;
pub mod objects;
pub mod spool;
pub mod tls;
pub mod trace;
pub mod versions;

pub(crate) use adjutant_api::{preset, protocol, view};
pub use adjutant_os::{clock, failpoint, files, ports, process, sock, tcp, user_files};
