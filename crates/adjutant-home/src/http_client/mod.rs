//! Requests to other machines over HTTP/1.1, one at a time on each connection. They go to the given
//! host only: no proxy from the environment is used, and no redirect is followed.
//!
//! Callers set the limits, check addresses, describe errors, and choose whom TLS trusts.

mod endpoint;
mod exchange;
mod link;

pub use endpoint::{Endpoint, InvalidTlsName};
pub use exchange::{ExchangeError, Limits, exchange};
pub use link::{AnyStream, IdleLinks, Link};
