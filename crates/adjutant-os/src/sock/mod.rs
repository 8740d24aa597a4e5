//! Unix sockets at paths of any length. A path beyond the kernel's limit of 108 bytes is addressed
//! through an open descriptor of its directory.

mod bound;
pub mod loopback;
mod stream;

pub use bound::bound_paths;
pub use stream::Stream;

#[cfg(target_os = "linux")]
use rustix::fs::{Mode, OFlags};
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// Longest path that fits into a socket address, with its terminator.
const PATH_BYTES_MAX: usize = 100;
/// How long no connection is accepted after a failure, such as a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// A path that fits into an address, with the descriptor that keeps it valid.
struct ShortPath {
    path: PathBuf,
    _dir: Option<OwnedFd>,
}

/// Returns a path that fits, through a descriptor of the directory if it is too long.
#[cfg(target_os = "linux")]
fn shorten(path: &Path) -> io::Result<ShortPath> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok(ShortPath {
            path: path.to_owned(),
            _dir: None,
        });
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{}: not a socket path", path.display()),
        ));
    };
    let dir = rustix::fs::open(
        parent,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    Ok(ShortPath {
        path,
        _dir: Some(dir),
    })
}

/// Returns the path, if it fits: directories have no paths through their descriptors here.
#[cfg(not(target_os = "linux"))]
fn shorten(path: &Path) -> io::Result<ShortPath> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return Ok(ShortPath {
            path: path.to_owned(),
            _dir: None,
        });
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{}: longer than {PATH_BYTES_MAX} bytes, which a socket on this system cannot be; use a home with a shorter path",
            path.display()
        ),
    ))
}

/// Connects to the socket at `path`.
///
/// # Errors
/// The kernel's error, with the path.
pub async fn connect(path: &Path) -> io::Result<Stream> {
    let short = shorten(path)?;
    Stream::new(UnixStream::connect(&short.path).await?)
}

/// Accepts the next connection. Failures are logged, repeated ones once.
pub async fn accept(listener: &UnixListener) -> Stream {
    let mut is_failing = false;
    loop {
        let accepted = match listener.accept().await {
            Ok((stream, _)) => Stream::new(stream),
            Err(error) => {
                if !is_of_peer(&error) {
                    if !std::mem::replace(&mut is_failing, true) {
                        tracing::error!(%error, "cannot accept connections");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        match accepted {
            Ok(stream) => return stream,
            Err(error) => tracing::error!(%error, "cannot accept a connection"),
        }
    }
}

/// Connects to the socket at `path`, for a caller without a runtime. The connection never blocks.
///
/// # Errors
/// The kernel's error; `WouldBlock`: too many connections wait for the server.
#[cfg(target_os = "linux")]
pub fn connect_without_blocking(path: &str) -> io::Result<std::os::unix::net::UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Connects to the socket at `path`, for a caller without a runtime. The connection never blocks;
/// connecting waits for the server.
///
/// # Errors
/// The kernel's error.
#[cfg(not(target_os = "linux"))]
pub fn connect_without_blocking(path: &str) -> io::Result<std::os::unix::net::UnixStream> {
    let stream = std::os::unix::net::UnixStream::connect(path)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Returns whether only this connection has failed, and not the listener.
fn is_of_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Opens a socket at `path` for its owner only, replacing an existing file. It accepts connections
/// as soon as it is visible. The caller must hold the lock that belongs to the path.
///
/// # Errors
/// The kernel's error.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let short = shorten(&new)?;
    let listener = UnixListener::bind(&short.path)?;
    std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    std::fs::rename(&new, path)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn visible_socket_accepts_connections() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for round in 0..50 {
            let path = dir.path().join(format!("{round}.sock"));
            let theirs = path.clone();
            let caller = std::thread::spawn(move || {
                while !theirs.exists() {
                    std::thread::yield_now();
                }
                std::os::unix::net::UnixStream::connect(&theirs).map(drop)
            });
            let listener = bind(&path).expect("binds");
            caller.join().expect("it ends").expect("connects");
            drop(listener);
        }
    }
}
