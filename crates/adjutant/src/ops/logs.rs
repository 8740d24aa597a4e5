//! Reading a run's log through the hub.

use super::{OpError, Ops};
use crate::logs::{self, Want};
use crate::store::{Run, Topic, run_by_id};
use crate::view::{LogPage, ReadLogs};
use std::time::Duration;
use tokio::time::Instant;

/// Text in one page when the caller says no number, in bytes.
const PAGE_BYTES_DEFAULT: u64 = 32 * 1024;
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Output of a live run is looked for at least this often where its file cannot be watched.
const FALLBACK_LOOK: Duration = Duration::from_secs(1);

/// Reads one page, waiting for more when there is none yet.
pub(super) async fn page(ops: &Ops, run: &Run, call: &ReadLogs) -> Result<LogPage, OpError> {
    let deadline = super::end_of_wait(call.wait_ms);
    let listener = ops.store().bells().listen(vec![Topic::Run(run.id)]);
    let bytes_max = call.max_bytes.unwrap_or(PAGE_BYTES_DEFAULT).clamp(4, PAGE_BYTES_MAX);
    let id = run.id.to_string();
    let path = logs::log_path(&ops.home().dir, &id, run.attempt.0.max(1));
    loop {
        // What is written after this look makes the watch ring, so none of it is missed.
        let watch = Watch::new(&path);
        let ended = ops.store().read(|connection| run_by_id(connection, run.id))?.is_none_or(|run| run.end_seq.is_some());
        let home = ops.home().dir.clone();
        let (run_id, attempt, grep, after) = (id.clone(), run.attempt.0.max(1), call.grep.clone(), call.after);
        let part = tokio::task::spawn_blocking(move || logs::read(&home, &run_id, attempt, Want { after, bytes_max, grep: grep.as_deref(), ended }))
            .await
            .map_err(|error| OpError::Io(error.to_string()))?
            .map_err(|error| OpError::Io(error.to_string()))?;
        let moved = part.next > call.after.unwrap_or(0) || call.after.is_none();
        if moved || ended || Instant::now() >= deadline {
            return Ok(LogPage {
                run_id: id,
                name: run.name.clone(),
                ended: ended && part.next >= part.total,
                text: part.text,
                from: part.from,
                next: part.next,
                total: part.total,
                omitted: part.omitted,
                path: path.display().to_string(),
            });
        }
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => {}
            () = listener.heard() => {}
            () = watch.changed() => {}
        }
    }
}

/// Tells when a log grows.
struct Watch {
    #[cfg(target_os = "linux")]
    fd: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl Watch {
    #[cfg(target_os = "linux")]
    #[expect(
        deprecated,
        reason = "the descriptor is owned and stays open for as long as the watch, which is what the replacement asks its caller to promise"
    )]
    fn new(path: &std::path::Path) -> Self {
        use rustix::fs::inotify;
        let open = || -> std::io::Result<_> {
            let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            inotify::add_watch(&fd, path, inotify::WatchFlags::MODIFY | inotify::WatchFlags::MOVE_SELF | inotify::WatchFlags::DELETE_SELF)?;
            tokio::io::unix::AsyncFd::new(fd)
        };
        Self { fd: open().ok() }
    }

    #[cfg(target_os = "linux")]
    async fn changed(&self) {
        match &self.fd {
            // Beyond the head of a long log the segments grow, which nobody watches.
            Some(fd) => drop(tokio::time::timeout(FALLBACK_LOOK, fd.readable()).await),
            None => tokio::time::sleep(FALLBACK_LOOK).await,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn new(_path: &std::path::Path) -> Self {
        Self {}
    }

    #[cfg(not(target_os = "linux"))]
    async fn changed(&self) {
        tokio::time::sleep(FALLBACK_LOOK).await;
    }
}
