//! The store: all durable state, as operations of the domain, in a file of SQLite or on a
//! PostgreSQL server.
//!
//! It may use the machine and the home. It decides nothing about runs that is not in
//! `adjutant-core`, and knows no process, call or program.

#![forbid(unsafe_code)]

pub mod store;

pub(crate) use adjutant_home::{clock, config, failpoint, files, sock, tcp, tls, trace};
