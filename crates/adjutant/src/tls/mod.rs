//! TLS: connections to other machines, and the hub's own certificate for callers over HTTP.

mod client;
mod server;

pub use client::{connector, connector_for};
pub use server::TlsServer;
