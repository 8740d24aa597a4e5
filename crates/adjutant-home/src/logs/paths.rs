//! The paths of the files of a run's logs.

use super::{Output, STREAM_BYTES_MAX};
use crate::files;
use crate::protocol::AttemptDir;
use rustix::fs::Dir;
use std::io;
use std::path::{Path, PathBuf};

/// Entries of an attempt's directory that are read. A log has at most three segments.
const ENTRIES_MAX: usize = 10_000;

/// Returns the path of an attempt's readable log.
#[must_use]
pub fn log_path(home: &Path, run_id: &str, attempt: u32) -> PathBuf {
    home.join("logs").join(file_name(run_id, attempt, "log"))
}

/// Maximum number of attempts, the newest ones, whose logs are listed.
const LOGS_NAMED_MAX: u32 = 50;

/// Returns the paths of a run's readable logs, oldest first: that of the newest attempt, and those
/// of earlier attempts with output.
#[must_use]
pub fn log_paths(home: &Path, run_id: &str, attempt: u32) -> Vec<PathBuf> {
    let newest = attempt.max(1);
    let all = newest.saturating_sub(LOGS_NAMED_MAX - 1).max(1)..=newest;
    all.filter_map(|n| Some(log_path(home, run_id, n)).filter(|path| n == newest || path.exists()))
        .collect()
}

/// Returns the path of an attempt's raw stream, for agents that write one.
#[must_use]
pub fn raw_path(home: &Path, run_id: &str, attempt: u32) -> PathBuf {
    home.join("logs").join(file_name(run_id, attempt, "jsonl"))
}

/// Returns the path of the times of an attempt's output.
#[must_use]
pub fn times_path(home: &Path, run_id: &str, attempt: u32, output: Output) -> PathBuf {
    let ending = match output {
        Output::Text => "times",
        Output::Raw => "jsonl-times",
    };
    home.join("logs").join(file_name(run_id, attempt, ending))
}

/// Returns the directory of the raw stream's segments.
#[must_use]
pub fn raw_dir(dir: &AttemptDir) -> AttemptDir {
    AttemptDir(dir.0.join("raw"))
}

/// Returns the path of an attempt's prompt, as it was sent.
#[must_use]
pub fn prompt_path(home: &Path, run_id: &str, attempt: u32) -> PathBuf {
    home.join("logs")
        .join(file_name(run_id, attempt, "prompt.md"))
}

fn file_name(run_id: &str, attempt: u32, ending: &str) -> String {
    if attempt <= 1 {
        format!("{run_id}.{ending}")
    } else {
        format!("{run_id}.{attempt}.{ending}")
    }
}

/// Returns the path of the segment that starts at `start` in the stream.
#[must_use]
pub fn segment_path(dir: &AttemptDir, start: u64) -> PathBuf {
    dir.0.join(format!("log.{start:020}"))
}

/// Returns the segments of an attempt: the start of each in the stream, and its path.
///
/// # Errors
/// The directory cannot be read.
pub fn segments(dir: &AttemptDir) -> io::Result<Vec<(u64, PathBuf)>> {
    let opened = match files::open_dir(dir.home(), &dir.0) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in Dir::new(opened)?.take(ENTRIES_MAX) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        let start = name
            .strip_prefix("log.")
            .and_then(|start| start.parse().ok());
        if let Some(start) = start.filter(|start| *start <= STREAM_BYTES_MAX) {
            found.push((start, dir.0.join(&*name)));
        }
    }
    found.sort_unstable();
    Ok(found)
}
