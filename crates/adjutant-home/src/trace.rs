//! Writes the processes' own log lines to stderr, which is a file for background processes. Decides
//! how often a failure that repeats is logged.

use crate::{config, files};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging at the level that `ADJ_LOG` names, or `default`.
pub fn start(default: &str) {
    let wanted = config::text_variable("ADJ_LOG");
    // This library logs each connection, which would fill the file.
    let default = format!("{default},rmcp=warn");
    let parse = |directives: &str| directives.parse::<Targets>();
    let wanted = wanted.map(|wanted| parse(&wanted).map_err(|error| (wanted, error)));
    let (filter, problem) = match wanted {
        Some(Ok(filter)) => (filter, None),
        Some(Err(problem)) => (
            parse(&default).expect("the default is a valid filter"),
            Some(problem),
        ),
        None => (
            parse(&default).expect("the default is a valid filter"),
            None,
        ),
    };
    // If the disk is full, lines are lost. Reporting that to stderr would end the process.
    let lines = fmt::layer()
        .log_internal_errors(false)
        .with_writer(Lines::default)
        .with_ansi(false)
        .compact();
    if tracing_subscriber::registry()
        .with(lines)
        .with(filter)
        .try_init()
        .is_err()
    {
        tracing::debug!("logging has already started");
    }
    if let Some((wanted, error)) = problem {
        tracing::warn!(%error, "ADJ_LOG={wanted:?} is not a valid filter: the default applies");
    }
}

/// How long a failure that repeats is not logged again.
const LOGGED_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How many different failures are remembered. They can alternate, such as those of several hubs.
const FAILURES_MAX: usize = 8;

/// The failures of something that is tried again and again. Each is logged once, and then at most
/// once a minute.
#[derive(Debug, Default)]
pub struct RepeatedFailures(Vec<RepeatedFailure>);

#[derive(Debug)]
struct RepeatedFailure {
    text: String,
    logged_at: Instant,
    /// How often it has occurred since.
    times: u32,
}

impl RepeatedFailures {
    /// Counts a failure. Returns how often it has occurred since it was last logged, if it is to be
    /// logged now.
    pub fn note(&mut self, text: &str, now: Instant) -> Option<u32> {
        let Self(known) = self;
        if let Some(failure) = known.iter_mut().find(|failure| failure.text == text) {
            failure.times = failure.times.saturating_add(1);
            if now.saturating_duration_since(failure.logged_at) < LOGGED_AGAIN_AFTER {
                return None;
            }
            failure.logged_at = now;
            return Some(std::mem::take(&mut failure.times));
        }
        if known.len() >= FAILURES_MAX
            && let Some(oldest) = (0..known.len()).min_by_key(|at| known[*at].logged_at)
        {
            known.remove(oldest);
        }
        known.push(RepeatedFailure {
            text: text.to_owned(),
            logged_at: now,
            times: 0,
        });
        Some(1)
    }

    /// Forgets the failures after a success. The next one is logged.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// The log file behind standard error, whose size is limited.
#[derive(Debug)]
struct LogFile {
    base: PathBuf,
    path: PathBuf,
    bytes: u64,
    bytes_max: u64,
}

static LOG_FILE: Mutex<Option<LogFile>> = Mutex::new(None);

/// Limits the log file at `path` below `base` to about `bytes_max`, if it is standard error. A full
/// file is renamed with the suffix `.1`.
pub fn limit_log_file(base: &Path, path: &Path, bytes_max: u64) {
    if !files::is_same(base, path, rustix::stdio::stderr()) {
        return;
    }
    let bytes = rustix::fs::fstat(rustix::stdio::stderr())
        .map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
    let mut file = LogFile {
        base: base.to_owned(),
        path: path.to_owned(),
        bytes,
        bytes_max,
    };
    file.rotate_if_long();
    *LOG_FILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
}

impl LogFile {
    fn rotate_if_long(&mut self) {
        if self.bytes < self.bytes_max {
            return;
        }
        self.bytes = 0;
        // There is no other place to report the error.
        if self.rotate().is_err() && rustix::fs::ftruncate(rustix::stdio::stderr(), 0).is_err() {
            self.bytes = self.bytes_max;
        }
    }

    fn rotate(&self) -> io::Result<()> {
        let name = self.path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let rotated: OsString = [name, ".1".as_ref()].into_iter().collect();
        files::rename(&self.base, &self.path, &rotated)?;
        let file = files::open_for_append(&self.base, &self.path)?;
        rustix::stdio::dup2_stderr(&file)?;
        Ok(())
    }
}

/// Standard error. Counts the bytes if it is a log file.
#[derive(Debug, Default)]
struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = io::stderr().write(bytes)?;
        if let Some(file) = LOG_FILE
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
        {
            file.bytes += written as u64;
            file.rotate_if_long();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failure_is_logged_once_a_minute_with_a_count() {
        let (mut failures, start) = (RepeatedFailures::default(), Instant::now());
        let mut logged = Vec::new();
        for tenth in 0..1_300 {
            let now = start + Duration::from_millis(100) * tenth;
            logged.extend(failures.note("refused", now).map(|times| (tenth, times)));
        }
        assert_eq!(logged, [(0, 1), (600, 600), (1_200, 600)]);
    }

    #[test]
    fn failure_is_logged_when_it_changes_and_after_a_success() {
        let (mut failures, now) = (RepeatedFailures::default(), Instant::now());
        assert_eq!(
            ["one", "two", "one", "two"].map(|text| failures.note(text, now)),
            [Some(1), Some(1), None, None]
        );
        failures.clear();
        assert_eq!(failures.note("one", now), Some(1));
    }

    #[test]
    fn many_different_failures_are_forgotten() {
        let (mut failures, now) = (RepeatedFailures::default(), Instant::now());
        for number in 0..1_000 {
            assert_eq!(
                failures.note(&number.to_string(), now + Duration::from_millis(number)),
                Some(1)
            );
        }
        assert_eq!(failures.0.len(), FAILURES_MAX);
    }
}
