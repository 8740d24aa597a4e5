//! Calls of a hub on another machine: by its runners, and by standby hubs.

mod address;
mod connection;
mod reply;
mod shared;

pub use address::HubAddress;
pub use connection::{Connections, Outgoing, Trust};
pub use reply::Reply;
