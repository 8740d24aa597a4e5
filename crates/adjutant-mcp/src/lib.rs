//! The MCP server for parents and workers: the protocol, the catalog of tools, what they show.
//!
//! Each tool is a call of the hub through a client. It knows no store and no use case.

#![forbid(unsafe_code)]

pub mod mcp;

pub(crate) use adjutant_api::{present, protocol, text, view};
// Only the fixtures of the conformance suite, which are in builds for tests, use it.
#[cfg(debug_assertions)]
pub(crate) use adjutant_home::clock;
pub(crate) use adjutant_home::{config, failpoint, sock};
pub(crate) use adjutant_net::hub_client;
