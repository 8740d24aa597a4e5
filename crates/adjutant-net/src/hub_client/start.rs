//! Starts a hub on demand, and waits for one.
//!
//! A lock serializes starters, so that concurrent starts leave one hub. The hub reports on its
//! readiness pipe that it accepts calls, so no starter polls.

use super::presence::is_hub_responding;
use crate::config::{self, Home};
use crate::process::FileEvents;
use crate::{files, process, sock};
use rustix::fs::FlockOperation;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

/// How often to look for a socket if the directory cannot be watched.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(5);

/// Ensures that a hub accepts calls: starts one if necessary, and waits until it is ready.
///
/// # Errors
/// The home cannot be used, or the hub cannot start.
pub async fn ensure_hub(home: &Home) -> io::Result<()> {
    if is_served(home).await {
        return Ok(());
    }
    start_if_missing(home, async |home| is_served(home).await).await
}

/// Returns whether a hub accepts connections. A socket of another process does not count: a hub
/// holds its lock before it opens its socket.
async fn is_served(home: &Home) -> bool {
    sock::connect(&home.socket()).await.is_ok() && has_hub(home)
}

/// Returns whether a process holds the lock of the home's hub. True if that cannot be determined.
pub(super) fn has_hub(home: &Home) -> bool {
    process::lock::is_held(&home.dir, &home.hub_lock()).unwrap_or_else(|error| {
        tracing::debug!(%error, "the lock of the hub cannot be examined");
        true
    })
}

/// Ensures that a hub responds, where one accepts connections without replying. A killed hub keeps
/// its socket while one of its threads is stuck in the kernel; the new hub waits until it has
/// exited.
pub(super) async fn replace_hub(home: &Home) -> io::Result<()> {
    if is_hub_responding(home).await {
        return Ok(());
    }
    start_if_missing(home, async |home| is_hub_responding(home).await).await
}

/// Takes the start lock, and starts a hub unless there is one by then.
async fn start_if_missing(
    home: &Home,
    is_there: impl AsyncFnOnce(&Home) -> bool + Send + 'static,
) -> io::Result<()> {
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
    let mut env = {
        // The hub itself reports a configuration that is invalid.
        let log_store = config::Config::log_store_of(home).ok().flatten();
        config::hub_env(
            log_store
                .as_ref()
                .map_or(&[], config::LogStoreAddress::variables),
        )
    };
    env.push(("ADJ_HOME".into(), home.dir.clone().into()));
    env.push(("ADJ_CONFIG".into(), config::Config::path(home).into()));
    let log = files::open_for_append(&home.dir, &home.hub_log())?;
    files::make_private(&home.dir, &home.hub_log())?;
    let message = process::spawn_detached_self(&["__hub".as_ref()], env, Some(log.as_fd()))?
        .ready_blocking()?;
    let message = String::from_utf8_lossy(&message);
    match message.trim() {
        "ready" => Ok(()),
        "" => Err(io::Error::other("it ended while starting")),
        problem => Err(io::Error::other(problem.to_owned())),
    }
}

/// Waits without a limit until the home's hub accepts connections. Never starts one. The kernel
/// wakes it when a socket appears in the home.
pub async fn wait_for_hub(home: &Home) {
    wait_for_hub_until(home, || false).await;
}

/// Waits as [`wait_for_hub`], until `is_over`, which is asked when the home changes or is removed,
/// and every five seconds. Returns `false` if it is over.
pub(super) async fn wait_for_hub_until(home: &Home, is_over: impl Fn() -> bool) -> bool {
    loop {
        let watch = watch_dir(home);
        if is_over() {
            return false;
        }
        if sock::connect(&home.socket()).await.is_ok() {
            return true;
        }
        match &watch {
            Ok(watch) => {
                if tokio::time::timeout(FALLBACK_INTERVAL, watch.changed())
                    .await
                    .is_err()
                {
                    tracing::debug!("waiting for a hub");
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the home cannot be watched");
                tokio::time::sleep(FALLBACK_INTERVAL).await;
            }
        }
    }
}

/// The pause before a hub that accepts connections without replying is checked again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Waits until the home's hub responds.
pub async fn wait_until_served(home: &Home) {
    loop {
        wait_for_hub(home).await;
        if is_hub_responding(home).await {
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn watch_dir(home: &Home) -> io::Result<FileEvents> {
    let events = FileEvents::new()?;
    events.watch_arrivals(&home.dir)?;
    Ok(events)
}
