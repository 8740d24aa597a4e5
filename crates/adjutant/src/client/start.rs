//! Starting a hub on demand, and waiting for one.
//!
//! Starters take turns by a lock, so that two racing ones leave one hub; the hub says on its
//! readiness pipe that it accepts calls, so nobody sleeps and looks again.

use crate::config::{self, Home};
use crate::files;
use crate::process;
use crate::sock;
use rustix::fs::FlockOperation;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// Where new sockets cannot be watched for, they are looked for this often.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(5);

/// Makes sure that a hub accepts calls: returns at once when one does, else starts one and waits
/// until it is ready.
///
/// # Errors
/// The home cannot be used, or the hub says why it cannot run.
pub async fn ensure_hub(home: &Home) -> io::Result<()> {
    if sock::connect(&home.socket()).await.is_ok() {
        return Ok(());
    }
    start_unless(home, async |home| sock::connect(&home.socket()).await.is_ok()).await
}

/// The same where a hub takes connections and does not answer. One that was killed keeps its socket
/// for as long as one of its threads is stuck in the kernel; the next one waits until it has gone.
pub(super) async fn replace_hub(home: &Home) -> io::Result<()> {
    if super::Client::is_hub_responding(home).await {
        return Ok(());
    }
    start_unless(home, async |home| super::Client::is_hub_responding(home).await).await
}

/// Starts a hub, unless there is one when it is our turn.
async fn start_unless(home: &Home, is_there: impl AsyncFnOnce(&Home) -> bool + Send + 'static) -> io::Result<()> {
    home.ensure().map_err(io::Error::other)?;
    let home = home.clone();
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let lock = files::open_or_create(&home.dir, &home.start_lock())?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        if runtime.block_on(is_there(&home)) {
            return Ok(());
        }
        start(&home)
    })
    .await
    .map_err(io::Error::other)?
}

fn start(home: &Home) -> io::Result<()> {
    let mut env = config::hub_env();
    env.push(("ADJ_HOME".into(), home.dir.clone().into()));
    env.push(("ADJ_CONFIG".into(), config::Config::path(home).into()));
    let log = files::open_for_append(&home.dir, &home.hub_log())?;
    files::make_private(&home.dir, &home.hub_log())?;
    let said = process::spawn_detached_self(&["__hub".as_ref()], env, Some(log.as_fd()))?.ready_blocking()?;
    let said = String::from_utf8_lossy(&said);
    match said.trim() {
        "ready" => Ok(()),
        "" => Err(io::Error::other("it ended while starting")),
        problem => Err(io::Error::other(problem.to_owned())),
    }
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
                if tokio::time::timeout(FALLBACK_INTERVAL, watch.readable()).await.is_err() {
                    tracing::debug!("no hub has come yet");
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the home cannot be watched");
                tokio::time::sleep(FALLBACK_INTERVAL).await;
            }
        }
    }
}

/// How long to wait before a hub is asked again that takes connections and does not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Returns when the home's hub answers.
pub async fn wait_until_served(home: &Home) {
    loop {
        wait_for_hub(home).await;
        if super::Client::is_hub_responding(home).await {
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
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
    inotify::add_watch(&fd, &home.dir, inotify::WatchFlags::MOVED_TO)?;
    tokio::io::unix::AsyncFd::new(fd)
}

#[cfg(not(target_os = "linux"))]
fn watch_dir(_home: &Home) -> io::Result<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "no inotify"))
}
