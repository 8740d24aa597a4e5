//! Checks whether ports of this machine are free. They are not reserved.

use adjutant_core::PortRange;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

/// Returns the first port of a range on which something listens, at any address of this machine. A port that cannot be
/// tested counts as free.
#[must_use]
pub fn first_taken(range: PortRange) -> Option<u16> {
    range.ports().find(|port| is_taken(*port))
}

fn is_taken(port: u16) -> bool {
    match bind_v6(port) {
        Ok(()) => false,
        Err(Errno::ADDRINUSE) => true,
        // The machine has no IPv6.
        Err(_) => bind_v4(port) == Err(Errno::ADDRINUSE),
    }
}

/// Binds to all addresses, those of IPv4 included.
fn bind_v6(port: u16) -> Result<(), Errno> {
    let probe = socket(AddressFamily::INET6, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&probe, true)?;
    sockopt::set_ipv6_v6only(&probe, false)?;
    bind(&probe, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))
}

fn bind_v4(port: u16) -> Result<(), Errno> {
    let probe = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&probe, true)?;
    bind(&probe, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listener_on_loopback_takes_its_port() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine without IPv6 has no such listener.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().expect("an address").port();
            assert_eq!(first_taken(PortRange { base: port, count: 1 }), Some(port), "{address}");
            drop(listener);
            assert_eq!(first_taken(PortRange { base: port, count: 1 }), None, "{address}");
        }
    }
}
