//! Calls of a hub on another machine: by its runners, and by hubs that stand by.

mod address;
mod connection;

pub use address::HubAddress;
pub use connection::{Connections, Outgoing, Reply, Trust};
