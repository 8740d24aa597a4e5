//! MCP: the tools of parents and workers, over standard input and output (`adj mcp`) and Streamable
//! HTTP (the endpoint of a run's supervisor). A thin layer: each tool is data and one function that
//! calls the hub. It keeps no state that matters, opens no store, and decides about no right.
//!
//! Both eras of the protocol are served: 2024-11-05 to 2025-11-25 by `initialize`, 2026-07-28 by
//! `server/discover` and self-contained requests. Refusals are results marked as errors, with what
//! to do about them; protocol errors are for broken calls.
//!
//! How long a call may block, and why, is in [`caps`].

mod args;
mod caller;
pub mod caps;
pub mod catalog;

pub mod command;
mod cursor;
mod gate;
mod http;
mod lines;

mod refusal;
mod reply;
mod server;
mod session;
mod show;
mod stdio;
mod tasks;
mod text;
mod tools;

pub use args::Param;
pub use command::main;
pub use http::http_router;
pub use server::Server;
pub use session::{Role, Setup};
pub use stdio::{StdioArgs, stdio};
