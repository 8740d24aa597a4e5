//! The machine and the home: files, processes, sockets, TLS, the configuration, the formats of logs, the files of MCP clients.
//!
//! It may use the contract. It knows no store, runs no git and makes no call of the hub. `process` has the only `unsafe`.

pub mod clients;
pub mod clock;
pub mod config;
pub mod connection_tasks;
pub mod failpoint;
pub mod files;
pub mod leftovers;
pub mod logs;
pub mod named_locks;
pub mod objects;
pub mod ports;
pub mod process;
pub mod sock;
pub mod spool;
pub mod tcp;
pub mod tls;
pub mod trace;
pub mod user_files;
pub mod versions;

pub(crate) use adjutant_api::{link, preset, view};
