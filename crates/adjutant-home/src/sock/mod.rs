//! Unix sockets at paths of any length. A path beyond the kernel's limit of 108 bytes is addressed through an open
//! descriptor of its directory.

pub mod loopback;
mod stream;

pub use stream::Stream;

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};

/// Longest path that fits into a socket address, with its terminator.
const PATH_BYTES_MAX: usize = 100;

/// A path that fits into an address, with the descriptor that keeps it valid.
struct ShortPath {
    path: PathBuf,
    _dir: Option<OwnedFd>,
}

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

/// Connects to the socket at `path`.
///
/// # Errors
/// The kernel's error, with the path.
pub async fn connect(path: &Path) -> io::Result<Stream> {
    let short = shorten(path)?;
    Stream::new(UnixStream::connect(&short.path).await?)
}

/// Accepts the next connection. Failures are logged.
pub async fn accept(listener: &mut UnixListener) -> Stream {
    loop {
        let (stream, _) = axum::serve::Listener::accept(listener).await;
        match Stream::new(stream) {
            Ok(stream) => return stream,
            Err(error) => tracing::error!(%error, "cannot accept a connection"),
        }
    }
}

/// Opens a socket at `path` for its owner only, replacing an existing file. It accepts connections as soon as it is
/// visible. The caller must hold the lock that belongs to the path.
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
