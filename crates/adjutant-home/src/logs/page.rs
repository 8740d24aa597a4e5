//! Pages of a run's log, for the hub and for a runner whose home has the log.

use super::watch::Watch;
use super::{
    Output, Query, RunFiles, STREAM_BYTES_MAX, log_path, log_paths, raw_dir, raw_path, read_run,
};
use crate::clock;
use crate::protocol::AttemptDir;
use crate::view::{LogPage, LogTime, ReadLogs};
use adjutant_core::Time;
use std::io;
use std::path::{Path, PathBuf};
use tokio::time::Instant;

/// Default size of a page, in bytes.
const PAGE_BYTES_DEFAULT: u64 = 32 * 1024;
const PAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How much longer than wanted the text of a page may be: a character, and lines about dropped
/// bytes.
const PAGE_BYTES_MORE: u64 = 4 * 1024;

/// The log of attempts of a run.
#[derive(Debug, Clone)]
pub struct RunLog {
    pub files: RunFiles,
    pub first: u32,
    /// The newest attempt.
    pub attempt: u32,
    /// No more output will be added.
    pub ended: bool,
}

/// Returns the time from which on output is wanted. `None`: it is not a time.
#[must_use]
pub fn since_of(call: &ReadLogs) -> Option<Option<Time>> {
    call.since
        .as_deref()
        .map_or(Some(None), |since| clock::parse_rfc3339(since).map(Some))
}

/// Returns whether a page has something new for a call.
#[must_use]
pub fn has_moved(page: &LogPage, call: &ReadLogs) -> bool {
    page.next > call.after.unwrap_or(0) || call.after.is_none()
}

/// Returns the limit of the text of a page, in bytes.
fn bytes_max(call: &ReadLogs) -> u64 {
    call.max_bytes
        .unwrap_or(PAGE_BYTES_DEFAULT)
        .clamp(4, PAGE_BYTES_MAX)
}

/// Returns whether a page of another machine can be the answer to a call.
#[must_use]
pub fn is_plausible(page: &LogPage, call: &ReadLogs) -> bool {
    let times = page.times.as_ref().map_or(0, |times| times.len() as u64);
    page.from <= page.next
        && page.next <= page.total
        && page.total < STREAM_BYTES_MAX
        && page.text.len() as u64 <= bytes_max(call) + PAGE_BYTES_MORE
        && times <= page.text.len() as u64
}

impl RunLog {
    /// Reads the page that a call wants, without its name. Blocks.
    ///
    /// # Errors
    /// A file exists but cannot be read, or `since` is not a time.
    pub fn page(&self, call: &ReadLogs) -> io::Result<LogPage> {
        let Self {
            files,
            first,
            attempt,
            ended,
        } = self;
        let RunFiles {
            home,
            run_id,
            stored,
        } = files;
        let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "since is not a time");
        let query = Query {
            output: if call.raw { Output::Raw } else { Output::Text },
            after: call.after,
            bytes_max: bytes_max(call),
            grep: call.grep.as_deref(),
            ended: *ended,
            times: call.times,
            since: since_of(call).ok_or_else(wrong)?,
        };
        let part = read_run(files, *first, *attempt, query)?;
        let path = self.path(call);
        let mut paths = if call.raw {
            vec![path.clone()]
        } else {
            log_paths(home, run_id, *attempt)
        };
        // Logs in the log store have no path.
        let is_stored = stored.contains_key(attempt);
        paths.retain(|named| !is_stored || *named != path);
        Ok(LogPage {
            run_id: run_id.clone(),
            name: String::new(),
            ended: *ended && part.next >= part.total,
            text: part.text,
            from: part.from,
            next: part.next,
            total: part.total,
            omitted: part.omitted,
            times: call.times.then(|| {
                part.times
                    .iter()
                    .map(|mark| LogTime {
                        line: mark.line,
                        time: mark.time.map(clock::rfc3339),
                    })
                    .collect()
            }),
            path: if is_stored {
                String::new()
            } else {
                path.display().to_string()
            },
            paths: paths
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
            missing: Vec::new(),
        })
    }

    /// Reads a page, waiting for output until the deadline if there is none yet. `None`: something
    /// else has changed before.
    ///
    /// # Errors
    /// As [`Self::page`].
    pub async fn next_page(
        &self,
        call: &ReadLogs,
        deadline: Instant,
        changed: impl Future<Output = ()>,
    ) -> io::Result<Option<LogPage>> {
        tokio::pin!(changed);
        let mut watch: Option<Watch> = None;
        loop {
            // Watch before reading, so that output written after the read is noticed.
            if let Some(watch) = &mut watch {
                self.watch(call, watch);
            }
            let admitted = self.files.admit_reader().await;
            let (reading, wanted) = (self.clone(), call.clone());
            let page = tokio::task::spawn_blocking(move || reading.page(&wanted))
                .await
                .map_err(io::Error::other)??;
            drop(admitted);
            if has_moved(&page, call) || self.ended || Instant::now() >= deadline {
                return Ok(Some(page));
            }
            let Some(watch) = &watch else {
                watch = Some(Watch::new());
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                () = &mut changed => return Ok(None),
                () = watch.changed() => {}
            }
        }
    }

    /// Returns the file of the newest attempt.
    #[must_use]
    pub fn path(&self, call: &ReadLogs) -> PathBuf {
        let path = if call.raw { raw_path } else { log_path };
        path(&self.files.home, &self.files.run_id, self.attempt)
    }

    /// Watches what a call reads.
    fn watch(&self, call: &ReadLogs, watch: &mut Watch) {
        let dir = AttemptDir::new(&self.files.home, &self.files.run_id, self.attempt);
        watch.watch_files(
            Path::new(&self.path(call)),
            &if call.raw { raw_dir(&dir) } else { dir },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_another_machine_fits_the_call() {
        let call = ReadLogs {
            max_bytes: Some(100),
            ..ReadLogs::default()
        };
        let page = LogPage {
            text: "x".repeat(100),
            from: 0,
            next: 100,
            total: 300,
            ..LogPage::default()
        };
        assert!(is_plausible(&page, &call));
        let times = Some(vec![LogTime::default(); 101]);
        let wrong = [
            LogPage {
                text: "x".repeat(100 + 4 * 1024 + 1),
                ..page.clone()
            },
            LogPage {
                from: 101,
                ..page.clone()
            },
            LogPage {
                next: 301,
                ..page.clone()
            },
            LogPage {
                total: u64::MAX,
                ..page.clone()
            },
            LogPage { times, ..page },
        ];
        assert!(wrong.iter().all(|page| !is_plausible(page, &call)));
    }
}
