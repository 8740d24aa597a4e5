//! Starting a hub on demand, and waiting for one.
//!
//! Starters take turns by a lock, so that two racing ones leave one hub; the hub says on its
//! readiness pipe that it accepts calls, so nobody sleeps and looks again.

use crate::config::{self, Home};
use crate::sock;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io::{self, BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Where nothing tells of a new socket, it is looked for this often.
const FALLBACK_LOOK: Duration = Duration::from_secs(5);

/// Makes sure that a hub accepts calls: returns at once when one does, else starts one and waits
/// until it is ready.
pub async fn ensure_hub(home: &Home) -> io::Result<()> {
    if sock::connect(&home.socket()).await.is_ok() {
        return Ok(());
    }
    home.ensure().map_err(io::Error::other)?;
    let home = home.clone();
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let lock = rustix::fs::open(home.start_lock(), OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
            .map_err(|error| at(&home.start_lock(), error.into()))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        if runtime.block_on(sock::connect(&home.socket())).is_ok() {
            return Ok(());
        }
        start(&home)
    })
    .await
    .map_err(io::Error::other)?
}

#[expect(clippy::disallowed_methods, reason = "the hub is no agent: it is this same binary in the background")]
fn start(home: &Home) -> io::Result<()> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(home.hub_log()).map_err(|error| at(&home.hub_log(), error))?;
    let mut child = Command::new("/proc/self/exe")
        .arg("__hub")
        .env_clear()
        .envs(config::hub_env())
        .env("ADJ_HOME", &home.dir)
        .env("ADJ_CONFIG", config::Config::path(home))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no readiness pipe"))?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    if line.trim() == "ready" {
        return Ok(());
    }
    let status = child.wait()?;
    let said = line.trim();
    Err(io::Error::other(if said.is_empty() { format!("it ended with {status} while starting") } else { said.to_owned() }))
}

fn at(path: &std::path::Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Waits until the home's hub accepts connections, for as long as it takes: woken by the kernel
/// when a socket appears in the home.
pub async fn wait_for_hub(home: &Home) {
    loop {
        let watch = watch_dir(home);
        if sock::connect(&home.socket()).await.is_ok() {
            return;
        }
        match &watch {
            Ok(watch) => {
                if tokio::time::timeout(FALLBACK_LOOK, watch.readable()).await.is_ok() {
                    // A socket appears with bind and accepts with listen, a moment later.
                    tokio::task::yield_now().await;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the home cannot be watched");
                tokio::time::sleep(FALLBACK_LOOK).await;
            }
        }
    }
}

#[cfg(target_os = "linux")]
#[expect(
    deprecated,
    reason = "the descriptor is owned and stays open for as long as the watch, which is what the replacement asks its caller to promise"
)]
fn watch_dir(home: &Home) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    use rustix::fs::inotify;
    let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&fd, &home.dir, inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO | inotify::WatchFlags::ATTRIB)?;
    tokio::io::unix::AsyncFd::new(fd)
}

#[cfg(not(target_os = "linux"))]
fn watch_dir(_home: &Home) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "no inotify"))
}
