//! MCP: the tools of parents and workers, over standard input and output (`adj mcp`) and Streamable
//! HTTP (the endpoint of a run's supervisor, and the hub's for parents). A thin layer: each tool is
//! a row of data and one function that calls the hub. It keeps no essential state, does not open
//! the store, and makes no authorization decisions.
//!
//! Both generations of the protocol are supported: 2024-11-05 to 2025-11-25 with `initialize`,
//! 2026-07-28 with `server/discover` and self-contained requests. A refusal is a result marked as
//! an error, with a hint; protocol errors are for malformed calls.
//!
//! [`caps`] defines how long a call may block, and why.

mod args;
mod caller;
pub mod caps;
pub mod catalog;

pub mod command;
mod cursor;
mod elicit;
mod facade;
#[cfg(debug_assertions)]
mod fixtures;
mod gate;
mod http;
mod labels;
mod lines;

mod refusal;
mod reply;
mod resources;
mod server;
mod session;
mod sessions;
mod show;
mod stdio;
mod tasks;
mod text;
mod tools;

pub use args::Param;
pub use command::main;
#[cfg(debug_assertions)]
pub use http::conformance_endpoint;
pub use http::{ParentEndpoint, http_router, parent_endpoint};
pub use resources::TEMPLATES;
pub use server::Server;
pub use session::{ConnectionNumber, Facade, Role, Setup};
pub use stdio::{StdioArgs, stdio};
