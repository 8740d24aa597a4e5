//! The MCP server for parents and workers: the protocol, the catalog of tools, what they show.
//!
//! Each tool is a call of the hub through a client. It knows no store and no use case.

#![forbid(unsafe_code)]

pub mod mcp;

pub(crate) use adjutant_api::{link, present, text, view};
pub(crate) use adjutant_home::{clock, config, failpoint, sock};
pub(crate) use adjutant_net::client;
