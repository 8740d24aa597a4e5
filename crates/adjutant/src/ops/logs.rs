//! Reading a run's log through the hub.

use super::{OpError, Ops, lookup};
use crate::clock;
use crate::link::AttemptDir;
use crate::logs::{self, Output, Query};
use crate::store::{Run, Topic, attempt_row, run_by_id, runner_name};
use crate::view::{LogPage, LogTime, ReadLogs};
use adjutant_core::{Action, AttemptNo, Denied, Principal};
#[cfg(target_os = "linux")]
use rustix::fs::inotify;
#[cfg(target_os = "linux")]
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Default size of a page, in bytes.
const PAGE_BYTES_DEFAULT: u64 = 32 * 1024;
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How often to check for new output if files cannot be watched.
const FALLBACK_LOOK: Duration = Duration::from_secs(1);
/// Size of the buffer for file change notifications, in bytes.
const NEWS_BYTES: usize = 4096;

impl Ops {
    /// Reads a part of a run's log, optionally waiting for output.
    ///
    /// # Errors
    /// Unknown or foreign, or the file cannot be read.
    pub async fn logs(&self, who: &Principal, call: &ReadLogs) -> Result<LogPage, OpError> {
        let run = self.store.read(|connection| lookup::run(connection, who, Action::Logs, &call.run))?;
        page(self, &run, call).await
    }
}

/// Reads one page, waiting for output if there is none yet.
async fn page(ops: &Ops, run: &Run, call: &ReadLogs) -> Result<LogPage, OpError> {
    let deadline = super::end_of_wait(call.wait_ms);
    let subscription = ops.store().wake_ups().subscribe(vec![Topic::Run(run.id)]);
    let bytes_max = call.max_bytes.unwrap_or(PAGE_BYTES_DEFAULT).clamp(4, PAGE_BYTES_MAX);
    let wrong = || Denied::invalid("since", "use a time such as 2026-11-21T04:00:00Z");
    let since = call.since.as_deref().map(|since| clock::parse_rfc3339(since).ok_or_else(wrong)).transpose()?;
    let times = call.times;
    let id = run.id.to_string();
    let mut watch: Option<Watch> = None;
    loop {
        let now = ops.store().read(|connection| run_by_id(connection, run.id))?;
        let ended = now.as_ref().is_none_or(|run| run.end_seq.is_some() && !run.is_held());
        // A resumed run has a new attempt.
        let attempt = now.as_ref().unwrap_or(run).attempt.0.max(1);
        let attempt_dir = AttemptDir::new(&ops.home().dir, &id, attempt);
        let (output, path, attempt_dir) = match call.raw {
            false => (Output::Text, logs::log_path(&ops.home().dir, &id, attempt), attempt_dir),
            true => (Output::Raw, logs::raw_path(&ops.home().dir, &id, attempt), logs::raw_dir(&attempt_dir)),
        };
        if let Some(host) = host_of(ops, run, attempt)? {
            let page = page_on_runner(&host, run, &path, ended, call);
            if page.next > call.after.unwrap_or(0) || ended || Instant::now() >= deadline {
                return Ok(page);
            }
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                () = subscription.wait() => {}
            }
            continue;
        }
        // Watch before reading, so that output written after the read is noticed.
        if let Some(watch) = &mut watch {
            watch.watch_files(&path, &attempt_dir);
        }
        let home = ops.home().dir.clone();
        let (run_id, grep, after) = (id.clone(), call.grep.clone(), call.after);
        let part = tokio::task::spawn_blocking(move || {
            logs::read_run(&home, &run_id, attempt, Query { output, after, bytes_max, grep: grep.as_deref(), ended, times, since })
        })
        .await
        .map_err(|error| OpError::Io(error.to_string()))?
        .map_err(|error| OpError::Io(error.to_string()))?;
        let moved = part.next > call.after.unwrap_or(0) || call.after.is_none();
        if moved || ended || Instant::now() >= deadline {
            let paths = if call.raw { vec![path.clone()] } else { logs::log_paths(&ops.home().dir, &id, attempt) };
            return Ok(LogPage {
                run_id: id,
                name: run.name.clone(),
                ended: ended && part.next >= part.total,
                text: part.text,
                from: part.from,
                next: part.next,
                total: part.total,
                omitted: part.omitted,
                times: times.then(|| part.times.iter().map(|mark| LogTime { line: mark.line, time: mark.time.map(clock::rfc3339) }).collect()),
                path: path.display().to_string(),
                paths: paths.iter().map(|path| path.display().to_string()).collect(),
            });
        }
        let Some(watch) = &watch else {
            watch = Some(Watch::new());
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => {}
            () = subscription.wait() => {}
            () = watch.changed() => {}
        }
    }
}

/// Returns the runner that has an attempt. `None`: the hub's own machine.
fn host_of(ops: &Ops, run: &Run, attempt: u32) -> Result<Option<String>, OpError> {
    Ok(ops.store().read(|connection| attempt_row(connection, run.id, AttemptNo(attempt)))?.and_then(|row| row.host))
}

/// Returns a page that says where the log is: the hub does not read files of other machines.
fn page_on_runner(host: &str, run: &Run, path: &Path, ended: bool, call: &ReadLogs) -> LogPage {
    let file = path.file_name().unwrap_or_default().display();
    let text = format!("the log is on the runner {}: logs/{file} in its home\n", runner_name(host));
    let total = text.len() as u64;
    let from = call.after.unwrap_or(0).min(total);
    LogPage {
        run_id: run.id.to_string(),
        name: run.name.clone(),
        ended,
        text: text[usize::try_from(from).unwrap_or(0)..].to_owned(),
        from,
        next: total,
        total,
        omitted: 0,
        times: call.times.then(Vec::new),
        path: String::new(),
        paths: Vec::new(),
    }
}

/// Watches a log for growth: the log file, and the segments in the attempt's directory.
struct Watch {
    #[cfg(target_os = "linux")]
    fd: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

#[cfg(target_os = "linux")]
impl Watch {
    #[expect(
        deprecated,
        reason = "the descriptor is owned and stays open for as long as the watch, which is what the replacement asks its caller to promise"
    )]
    fn new() -> Self {
        let open = || {
            let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            tokio::io::unix::AsyncFd::new(fd)
        };
        let fd = open().inspect_err(|error| tracing::debug!(%error, "logs cannot be watched"));
        Self { fd: fd.ok() }
    }

    /// Watches the files that exist; files already watched stay watched.
    fn watch_files(&mut self, log: &Path, attempt: &AttemptDir) {
        let Some(fd) = &self.fd else { return };
        let comes = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        let watched =
            [(Some(log), inotify::WatchFlags::MODIFY), (Some(attempt.0.as_path()), comes | inotify::WatchFlags::MODIFY), (log.parent(), comes)];
        let covers = |(path, flags): (Option<&Path>, _)| match path.map_or(Ok(()), |path| inotify::add_watch(fd.get_ref(), path, flags).map(drop)) {
            Ok(()) | Err(Errno::NOENT) => true,
            Err(error) => {
                tracing::debug!(%error, log = %log.display(), "a log cannot be watched");
                false
            }
        };
        if !watched.into_iter().all(covers) {
            self.fd = None;
        }
    }

    async fn changed(&self) {
        let Some(fd) = &self.fd else { return tokio::time::sleep(FALLBACK_LOOK).await };
        match fd.readable().await {
            Ok(mut ready) => {
                let mut news = [MaybeUninit::uninit(); NEWS_BYTES];
                let mut news = inotify::Reader::new(fd.get_ref(), &mut news);
                while news.next().is_ok() {}
                ready.clear_ready();
            }
            Err(error) => {
                tracing::debug!(%error, "logs cannot be watched");
                tokio::time::sleep(FALLBACK_LOOK).await;
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Watch {
    fn new() -> Self {
        Self {}
    }

    fn watch_files(&mut self, _log: &Path, _attempt: &AttemptDir) {}

    async fn changed(&self) {
        tokio::time::sleep(FALLBACK_LOOK).await;
    }
}
