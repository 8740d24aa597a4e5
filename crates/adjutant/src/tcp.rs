//! Options of TCP connections to other machines.

use rustix::io::Result;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_nodelay, set_tcp_user_timeout};
use std::os::fd::AsFd;
use std::time::Duration;

/// Sends small messages at once, and makes a connection fail after `silence` without an acknowledgement: the other machine can vanish
/// without closing it.
///
/// # Errors
/// The system refuses an option.
pub fn detect_loss(stream: &impl AsFd, silence: Duration) -> Result<()> {
    set_tcp_nodelay(stream, true)?;
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, silence)?;
    set_tcp_user_timeout(stream, u32::try_from(silence.as_millis()).unwrap_or(u32::MAX))
}
