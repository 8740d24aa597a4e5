//! Asks the kernel for a TCP socket of this machine by its ends.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// From the kernel's `linux/sock_diag.h`, `linux/netlink.h` and `linux/tcp.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const IPPROTO_TCP: u8 = 6;
/// The sizes of a message's header and of the two ends of a socket (`inet_diag_sockid`), without
/// its cookie.
const HEADER_BYTES: usize = 16;
const ENDS_BYTES: usize = 36;
const PORTS_BYTES: usize = 4;
/// The positions of the ends, of the user and of the inode in a reply (`inet_diag_msg`).
const ENDS_AT: usize = HEADER_BYTES + 4;
const UID_AT: usize = ENDS_AT + ENDS_BYTES + 12 + 12;
const INODE_AT: usize = UID_AT + 4;

/// A socket, as the kernel knows it.
#[derive(Debug, Clone, Copy)]
pub struct KnownSocket {
    pub inode: u32,
    /// The user that has opened it.
    pub uid: u32,
}

/// Returns the socket that is bound to `own` and connected to `other`. (`/proc/net/tcp` can miss a
/// socket while others are opened and closed.)
pub fn find_socket(own: SocketAddr, other: SocketAddr) -> io::Result<KnownSocket> {
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    let ends = ends(own, other);
    let family = if own.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let mut request = Vec::new();
    request.extend(0_u32.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([
        u8::try_from(family.as_raw()).map_err(io::Error::other)?,
        IPPROTO_TCP,
        0,
        0,
    ]);
    // In any state, on any interface, with any cookie.
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(ends);
    request.extend([0; 4]);
    request.extend([0xff; 8]);
    let length = u32::try_from(request.len()).map_err(io::Error::other)?;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    send(&kernel, &request, SendFlags::empty())?;
    let mut reply = [0; 512];
    let (length, _) = recv(&kernel, &mut reply, RecvFlags::empty())?;
    let reply = &reply[..length];
    let word = |at: usize| {
        reply
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_ne_bytes)
    };
    let kind = reply
        .get(4..6)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u16::from_ne_bytes);
    match (kind, word(INODE_AT).zip(word(UID_AT))) {
        (Some(SOCK_DIAG_BY_FAMILY), Some((inode, uid))) => {
            // A socket that no process holds any more has none. Without a connection, the kernel
            // returns a listener at its address, which has no other port. The addresses can be
            // those of IPv6 for a connection of IPv4.
            let is_it =
                inode != 0 && reply.get(ENDS_AT..ENDS_AT + PORTS_BYTES) == ends.get(..PORTS_BYTES);
            if is_it {
                Ok(KnownSocket { inode, uid })
            } else {
                Err(closed())
            }
        }
        (Some(NLMSG_ERROR), _) => {
            let code = word(HEADER_BYTES).map_or(0, |code| code.wrapping_neg());
            if code == libc::ENOENT.unsigned_abs() {
                Err(closed())
            } else {
                Err(io::Error::from_raw_os_error(code.cast_signed()))
            }
        }
        _ => Err(io::Error::other(
            "the kernel's reply about a socket is too short",
        )),
    }
}

/// Writes the ends of a socket as the kernel does: both ports, then both addresses.
fn ends(own: SocketAddr, other: SocketAddr) -> [u8; ENDS_BYTES] {
    let mut ends = [0; ENDS_BYTES];
    ends[..2].copy_from_slice(&own.port().to_be_bytes());
    ends[2..4].copy_from_slice(&other.port().to_be_bytes());
    for (at, address) in [(4, own), (20, other)] {
        match address.ip() {
            IpAddr::V4(address) => ends[at..at + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => ends[at..at + 16].copy_from_slice(&address.octets()),
        }
    }
    ends
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "the caller has closed the connection",
    )
}
