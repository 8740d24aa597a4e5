//! Adjutant: hands tasks to CLI coding agents of any vendor, supervises them, and stays in contact
//! with them. `ARCHITECTURE.md` is the map.

pub mod cli;
pub mod client;
pub mod config;
pub mod echo;
pub mod failpoint;
pub mod link;
pub mod mcp;
pub mod sock;
pub mod text;
pub mod view;
