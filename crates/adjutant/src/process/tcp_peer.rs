//! Identifies the process at the other end of a TCP connection on this machine, and its attempt.
//!
//! The kernel knows the sockets of this network namespace by their ends, and the descriptors of processes name the sockets
//! that they hold. The process is then placed like a peer on the hub's socket. A process that this user cannot
//! inspect (of another user, or one that forbids it) is not found.

use super::peer::{Place, place_of};
#[cfg(target_os = "linux")]
use super::sock_diag::find_socket;
use super::tree;
use rustix::process::Pid;
use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

/// The program at the other end of a connection.
#[derive(Debug)]
pub struct TcpPeer {
    /// `Outside`: it belongs to no attempt, or no process is found that holds the connection.
    pub place: Place,
    pub user: PeerUser,
}

/// The user at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerUser {
    /// The user of this process.
    Own,
    /// Another user of this machine.
    Other,
    /// A user of another machine, or of another network namespace.
    Elsewhere,
}

/// Finds the program that has connected from `peer` to `local`.
///
/// # Errors
/// The process has closed the connection, or the kernel does not report it.
pub fn find_tcp_peer(local: SocketAddr, peer: SocketAddr, home: &Path) -> io::Result<TcpPeer> {
    if !is_own_address(peer) {
        return Ok(TcpPeer { place: Place::Outside, user: PeerUser::Elsewhere });
    }
    let socket = find_socket(peer, local)?;
    let user = if socket.uid == rustix::process::getuid().as_raw() { PeerUser::Own } else { PeerUser::Other };
    Ok(TcpPeer { place: place_of_holder(&format!("socket:[{}]", socket.inode), home)?, user })
}

/// Returns whether an address is one of this machine: only such an address can be bound.
fn is_own_address(mut address: SocketAddr) -> bool {
    address.set_port(0);
    match UdpSocket::bind(address) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

/// Places the process that holds a socket.
fn place_of_holder(link: &str, home: &Path) -> io::Result<Place> {
    let mut pids = tree::all();
    // The newest first: a caller has often just been started.
    pids.sort_by_key(|pid| std::cmp::Reverse(pid.as_raw_nonzero()));
    let mut gone = None;
    for pid in pids {
        if !holds(pid, link) {
            continue;
        }
        match place_of(pid, home) {
            // Otherwise the pid may belong to another process by now.
            Ok(place) if holds(pid, link) => return Ok(place),
            // A copy that its parent has just forked: it loses the descriptor when it executes a program.
            Ok(_) => gone = Some(io::Error::new(io::ErrorKind::NotConnected, "the caller has ended")),
            Err(error) => gone = Some(error),
        }
    }
    if let Some(gone) = gone {
        return Err(gone);
    }
    Ok(Place::Outside)
}

#[cfg(not(target_os = "linux"))]
fn find_socket(_own: SocketAddr, _other: SocketAddr) -> io::Result<super::sock_diag::KnownSocket> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns whether a process has a descriptor of the socket.
fn holds(pid: Pid, link: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())) else { return false };
    descriptors.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connection_is_held_by_this_process() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Without IPv6, there is nothing to find.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let local = listener.local_addr().expect("an address");
            let caller = TcpStream::connect(local).expect("connected");
            let (mut accepted, peer) = listener.accept().expect("accepted");
            let socket = find_socket(peer, local).expect("it is connected");
            assert_eq!(socket.uid, rustix::process::getuid().as_raw());
            let link = format!("socket:[{}]", socket.inode);
            assert!(holds(rustix::process::getpid(), &link), "{link}");
            drop(caller);
            // A process that another test has just forked holds the connection until it executes its program.
            assert_eq!(accepted.read(&mut [0]).expect("it is closed"), 0);
            assert_eq!(find_socket(peer, local).expect_err("closed").kind(), io::ErrorKind::NotConnected);
        }
    }

    #[test]
    fn connection_of_an_ipv6_socket_to_ipv4_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let local = listener.local_addr().expect("an address");
        let mapped = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        // Without IPv6, there is nothing to find.
        let Ok(_caller) = TcpStream::connect((mapped, local.port())) else { return };
        let peer = listener.accept().expect("accepted").1;
        assert!(find_socket(peer, local).is_ok_and(|socket| holds(rustix::process::getpid(), &format!("socket:[{}]", socket.inode))));
    }

    #[test]
    fn address_of_another_machine_is_elsewhere() {
        let local = "127.0.0.1:9".parse().expect("an address");
        // Addresses for documentation.
        for other in ["203.0.113.7:9", "[2001:db8::7]:9"] {
            let peer = find_tcp_peer(local, other.parse().expect("an address"), Path::new("/")).expect("found");
            assert!(peer.user == PeerUser::Elsewhere && matches!(peer.place, Place::Outside), "{other}: {peer:?}");
        }
        assert!(is_own_address(local) && is_own_address("127.8.8.8:9".parse().expect("an address")));
    }

    #[test]
    fn listener_is_no_caller() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let local = listener.local_addr().expect("an address");
        assert_eq!(find_socket(local, "127.0.0.1:9".parse().expect("an address")).expect_err("no connection").kind(), io::ErrorKind::NotConnected);
    }
}
