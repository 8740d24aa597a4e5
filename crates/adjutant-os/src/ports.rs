//! Checks whether ports of this machine are free. They are not reserved.

use adjutant_core::PortRange;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

/// An agent that starts meanwhile must not inherit the port.
#[cfg(target_os = "linux")]
const FLAGS: SocketFlags = SocketFlags::CLOEXEC;
#[cfg(not(target_os = "linux"))]
const FLAGS: SocketFlags = SocketFlags::empty();

/// Returns the first port of a range on which something listens, at any address of this machine. A
/// port that cannot be tested counts as free.
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
    let probe = open_socket(AddressFamily::INET6)?;
    sockopt::set_ipv6_v6only(&probe, false)?;
    bind(
        &probe,
        &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0),
    )
}

fn bind_v4(port: u16) -> Result<(), Errno> {
    let probe = open_socket(AddressFamily::INET)?;
    bind(&probe, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
}

/// Opens a socket whose port can be bound again as long as nothing listens on it.
fn open_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{getsockname, listen};
    use std::net::SocketAddr;

    #[test]
    fn listener_on_loopback_takes_its_port() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = address.parse().expect("an address");
            let family = if address.is_ipv4() {
                AddressFamily::INET
            } else {
                AddressFamily::INET6
            };
            // A machine without IPv6 has no such address.
            let Ok(reserved) = open_socket(family) else {
                continue;
            };
            let Ok(()) = bind(&reserved, &address) else {
                continue;
            };
            let port = SocketAddr::try_from(getsockname(&reserved).expect("an address"))
                .expect("of the internet")
                .port();
            assert_eq!(
                first_taken(PortRange {
                    base: port,
                    count: 1
                }),
                None,
                "{address}"
            );
            listen(&reserved, 1).expect("a listener");
            assert_eq!(
                first_taken(PortRange {
                    base: port,
                    count: 1
                }),
                Some(port),
                "{address}"
            );
        }
    }
}
