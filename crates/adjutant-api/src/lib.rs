//! The contract: the calls of the hub with their arguments and replies, the messages between hub,
//! supervisors and runners, vendors' CLIs as data, and how all interfaces present them.
//!
//! It may use the pure crates. It does no I/O, starts nothing and decides nothing.

#![forbid(unsafe_code)]

pub mod present;
pub mod preset;
pub mod protocol;
pub mod text;
pub mod view;
