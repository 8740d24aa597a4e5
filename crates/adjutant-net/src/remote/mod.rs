//! Calls of a hub on another machine: by its runners, and by standby hubs.

mod address;
mod connection;
mod error;
mod reply;
mod shared;

pub use crate::tls::Trust;
pub use address::{HubAddress, NotHubAddress};
pub use connection::{Connections, Outgoing};
pub use error::CallError;
pub use reply::HubReply;
