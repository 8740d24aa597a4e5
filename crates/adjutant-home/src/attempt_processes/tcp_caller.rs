//! Identifies the process at the other end of a TCP connection on this machine, and its attempt.
//!
//! The kernel knows the sockets of this network namespace by their ends, and the descriptors of
//! processes name the sockets that they hold. The process is then placed like a peer on the hub's
//! socket. If no process is seen to hold the socket, the holder is outside only if `exclusion`
//! proves it; otherwise the caller is not identified.

use super::exclusion::require_outside;
use super::place::{Place, place_of};
use crate::process::sock_diag::find_socket;
use crate::process::{Pid, descriptors, lock, tree};
use crate::protocol::AttemptDir;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it counts that a process that cannot be seen is outside: an examination of all attempts
/// takes much longer than a call.
const PROOF_VALID: Duration = Duration::from_secs(1);
/// How many processes are remembered that have held a connection.
const RECENT_MAX: usize = 16;

/// The program at the other end of a connection.
#[derive(Debug, Clone)]
pub struct TcpCaller {
    pub place: Place,
    pub user: CallerUser,
    /// Names the program of the process, for as long as it runs: the outermost ancestor with the
    /// same program file, so that the processes of a browser have one name. `None`: the process
    /// cannot be seen.
    pub program: Option<String>,
    holder: Option<Holder>,
    found_at: Instant,
}

/// The process that holds the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    pid: Pid,
    started: u64,
    descriptor: u32,
    socket: String,
}

/// The user at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerUser {
    /// The user of this process.
    Own,
    /// Another user of this machine.
    Other,
    /// A user of another machine, or of another network namespace.
    Elsewhere,
}

impl TcpCaller {
    /// Returns whether the connection is still held by the same process as before. `false`: it must
    /// be looked up again.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        match &self.holder {
            None => self.user == CallerUser::Elsewhere || self.found_at.elapsed() < PROOF_VALID,
            Some(Holder {
                pid,
                started,
                descriptor,
                socket,
            }) => {
                descriptors::is_of(*pid, *descriptor, socket)
                    && tree::status(*pid).is_some_and(|status| status.started == *started)
            }
        }
    }
}

/// Finds the program that has connected from `peer` to `local`.
///
/// # Errors
/// The process has closed the connection, it may be a process of an attempt that hides the
/// connection, or the kernel does not report it.
pub fn find_tcp_caller(local: SocketAddr, peer: SocketAddr, home: &Path) -> io::Result<TcpCaller> {
    TcpCallers::default().find(local, peer, home, || Ok(Vec::new()))
}

/// Finds the programs at the other ends of connections, faster those that connect again: to read
/// the descriptors of all processes takes long.
#[derive(Debug, Default)]
pub struct TcpCallers {
    /// Pids and start times of processes outside of all attempts that have held a connection, the
    /// newest last.
    recent: Mutex<Vec<(Pid, u64)>>,
}

impl TcpCallers {
    /// Finds the program that has connected from `peer` to `local`. `live`: the attempts that may
    /// have processes here.
    ///
    /// # Errors
    /// The process has closed the connection, it may be a process of an attempt that hides the
    /// connection, or the kernel does not report it.
    pub fn find(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        home: &Path,
        live: impl FnOnce() -> io::Result<Vec<AttemptDir>>,
    ) -> io::Result<TcpCaller> {
        if !is_own_address(peer) {
            return Ok(TcpCaller {
                place: Place::Outside,
                user: CallerUser::Elsewhere,
                program: None,
                holder: None,
                found_at: Instant::now(),
            });
        }
        let known = find_socket(peer, local)?;
        let user = if known.uid == rustix::process::getuid().as_raw() {
            CallerUser::Own
        } else {
            CallerUser::Other
        };
        let socket = format!("socket:[{}]", known.inode);
        // A process of an attempt can share its socket with one that is remembered.
        let remembered = find_holder(self.recent(), &socket, home)?
            .filter(|(place, _)| *place == Place::Outside);
        let found = match remembered {
            Some(remembered) if is_in_no_attempt(&socket, home, &live()?)? => Some(remembered),
            _ => find_holder(newest_first(), &socket, home)?,
        };
        if let Some((place, holder)) = found {
            if place == Place::Outside {
                self.remember((holder.pid, holder.started));
            }
            return Ok(TcpCaller {
                place,
                user,
                program: tree::program(holder.pid),
                holder: Some(holder),
                found_at: Instant::now(),
            });
        }
        require_outside(&socket, known.uid, home)?;
        // A socket that was closed meanwhile has not been held by any process.
        find_socket(peer, local)?;
        Ok(TcpCaller {
            place: Place::Outside,
            user,
            program: None,
            holder: None,
            found_at: Instant::now(),
        })
    }

    /// Returns the remembered processes that live, the newest first.
    fn recent(&self) -> Vec<Pid> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|(pid, started)| {
            tree::status(*pid).is_some_and(|status| status.started == *started)
        });
        recent.iter().rev().map(|(pid, _)| *pid).collect()
    }

    fn remember(&self, process: (Pid, u64)) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|other| *other != process);
        if recent.len() == RECENT_MAX {
            recent.remove(0);
        }
        recent.push(process);
    }
}

/// Finds and places the first of these processes that holds a socket. `None`: none is seen.
fn find_holder(pids: Vec<Pid>, socket: &str, home: &Path) -> io::Result<Option<(Place, Holder)>> {
    let mut gone = None;
    for pid in pids {
        let Some(descriptor) = descriptors::find(pid, socket) else {
            continue;
        };
        let Some(started) = tree::status(pid).map(|status| status.started) else {
            continue;
        };
        match place_of(pid, home) {
            // Otherwise the pid may belong to another process by now.
            Ok(place) if descriptors::is_of(pid, descriptor, socket) => {
                return Ok(Some((
                    place,
                    Holder {
                        pid,
                        started,
                        descriptor,
                        socket: socket.to_owned(),
                    },
                )));
            }
            // A copy that its parent has just forked: it loses the descriptor when it executes a
            // program.
            Ok(_) => {
                gone = Some(io::Error::new(
                    io::ErrorKind::NotConnected,
                    "the caller has ended",
                ))
            }
            Err(error) => gone = Some(error),
        }
    }
    gone.map_or(Ok(None), Err)
}

/// Returns whether no process of these attempts is seen to hold a socket. `false` also if one of
/// them has no guard, below which all its processes are.
fn is_in_no_attempt(socket: &str, home: &Path, live: &[AttemptDir]) -> io::Result<bool> {
    for attempt in live {
        let Some(guard) = lock::holder_pid(home, &attempt.guard_lock())? else {
            return Ok(false);
        };
        if tree::descendants(guard)
            .into_iter()
            .any(|pid| descriptors::find(pid, socket).is_some())
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns all processes. A caller has often just been started.
fn newest_first() -> Vec<Pid> {
    let mut pids = tree::all();
    pids.sort_by_key(|pid| std::cmp::Reverse(pid.as_raw_nonzero()));
    pids
}

/// Returns whether an address is one of this machine: only such an address can be bound.
fn is_own_address(mut address: SocketAddr) -> bool {
    address.set_port(0);
    match UdpSocket::bind(address) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
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
            let Ok(listener) = TcpListener::bind(address) else {
                continue;
            };
            let local = listener.local_addr().expect("an address");
            let caller = TcpStream::connect(local).expect("connected");
            let (mut accepted, peer) = listener.accept().expect("accepted");
            let socket = find_socket(peer, local).expect("it is connected");
            assert_eq!(socket.uid, rustix::process::getuid().as_raw());
            let link = format!("socket:[{}]", socket.inode);
            assert!(
                descriptors::find(rustix::process::getpid(), &link).is_some(),
                "{link}"
            );
            drop(caller);
            // A process that another test has just forked holds the connection until it executes
            // its program.
            assert_eq!(accepted.read(&mut [0]).expect("it is closed"), 0);
            assert_eq!(
                find_socket(peer, local).expect_err("closed").kind(),
                io::ErrorKind::NotConnected
            );
        }
    }

    #[test]
    fn connection_of_an_ipv6_socket_to_ipv4_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let local = listener.local_addr().expect("an address");
        let mapped = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        // Without IPv6, there is nothing to find.
        let Ok(_caller) = TcpStream::connect((mapped, local.port())) else {
            return;
        };
        let peer = listener.accept().expect("accepted").1;
        let socket = find_socket(peer, local).expect("it is connected");
        assert!(
            descriptors::find(
                rustix::process::getpid(),
                &format!("socket:[{}]", socket.inode)
            )
            .is_some()
        );
    }

    #[test]
    fn address_of_another_machine_is_elsewhere() {
        let local = "127.0.0.1:9".parse().expect("an address");
        // Addresses for documentation.
        for other in ["203.0.113.7:9", "[2001:db8::7]:9"] {
            let peer = find_tcp_caller(local, other.parse().expect("an address"), Path::new("/"))
                .expect("found");
            assert!(
                peer.user == CallerUser::Elsewhere && matches!(peer.place, Place::Outside),
                "{other}: {peer:?}"
            );
        }
        assert!(
            is_own_address(local) && is_own_address("127.8.8.8:9".parse().expect("an address"))
        );
    }

    #[test]
    fn process_that_connects_again_is_found_first() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let local = listener.local_addr().expect("an address");
        let peers = TcpCallers::default();
        let own = rustix::process::getpid();
        for _ in 0..2 {
            let caller = TcpStream::connect(local).expect("connected");
            let found = peers
                .find(
                    local,
                    caller.local_addr().expect("an address"),
                    Path::new("/"),
                    || Ok(Vec::new()),
                )
                .expect("found");
            assert!(
                found.user == CallerUser::Own && found.is_unchanged(),
                "{found:?}"
            );
            assert_eq!(peers.recent(), [own]);
        }
        // An attempt without a guard may have processes anywhere.
        let dir = tempfile::tempdir().expect("a directory");
        let attempt = AttemptDir::new(dir.path(), "run", 1);
        assert!(!is_in_no_attempt("socket:[0]", dir.path(), &[attempt]).expect("examined"));
        // A process that has the pid of another one is not the one that was remembered.
        for number in 0..2 * RECENT_MAX as u64 {
            peers.remember((own, number));
        }
        assert_eq!(peers.recent.lock().expect("no panic").len(), RECENT_MAX);
        assert_eq!(peers.recent(), []);
    }

    #[test]
    fn listener_is_no_caller() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let local = listener.local_addr().expect("an address");
        assert_eq!(
            find_socket(local, "127.0.0.1:9".parse().expect("an address"))
                .expect_err("no connection")
                .kind(),
            io::ErrorKind::NotConnected
        );
    }
}
