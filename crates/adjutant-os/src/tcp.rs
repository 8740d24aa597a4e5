//! Options of TCP connections to other machines.

use rustix::io::Result;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use std::os::fd::AsFd;
use std::time::Duration;

/// How many probes an idle connection sends within the silence.
const PROBES: u32 = 3;

/// Sends small messages at once, and makes a connection fail after `silence` without an
/// acknowledgement, also while it is idle: the other machine can vanish without closing it.
///
/// # Errors
/// The system refuses an option.
pub fn detect_loss(stream: &impl AsFd, silence: Duration) -> Result<()> {
    set_tcp_nodelay(stream, true)?;
    set_socket_keepalive(stream, true)?;
    // With a user timeout, the kernel gives an idle connection up at the first probe that is due
    // after it.
    let probe_interval = Duration::from_secs((silence / (PROBES + 1)).as_secs().max(1));
    set_tcp_keepidle(stream, probe_interval)?;
    set_tcp_keepintvl(stream, probe_interval)?;
    limit_silence(stream, silence)
}

#[cfg(target_os = "linux")]
fn limit_silence(stream: &impl AsFd, silence: Duration) -> Result<()> {
    rustix::net::sockopt::set_tcp_user_timeout(
        stream,
        u32::try_from(silence.as_millis()).unwrap_or(u32::MAX),
    )
}

/// Limits the probes instead: unacknowledged data is lost after the system's own time.
#[cfg(not(target_os = "linux"))]
fn limit_silence(stream: &impl AsFd, _silence: Duration) -> Result<()> {
    rustix::net::sockopt::set_tcp_keepcnt(stream, PROBES)
}
