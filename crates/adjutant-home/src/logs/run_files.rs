//! Reads the output of a run, whose attempts' logs are files of a home or objects of a log store.

use super::stored::StoredAttempt;
use super::stream::Stream;
use super::times::{self, Times};
use super::{Output, Part, Query, STREAM_BYTES_MAX, times_path};
use crate::protocol::LogFileName;
use adjutant_core::Time;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Reads a part of an attempt's log from the files of a home.
///
/// # Errors
/// A file exists but cannot be read.
pub fn read(home: &Path, run_id: &str, attempt: u32, query: Query<'_>) -> io::Result<Part> {
    RunFiles::in_home(home, run_id).read(attempt, query)
}

/// Where the logs of a run's attempts are read.
#[derive(Debug, Clone)]
pub struct RunFiles {
    pub home: PathBuf,
    pub run_id: String,
    /// The attempts whose logs were moved from the home to the log store.
    pub stored: BTreeMap<u32, Arc<StoredAttempt>>,
}

impl RunFiles {
    /// Returns the files of a home.
    #[must_use]
    pub fn in_home(home: &Path, run_id: &str) -> Self {
        Self {
            home: home.to_owned(),
            run_id: run_id.to_owned(),
            stored: BTreeMap::new(),
        }
    }

    /// Waits until a thread may read these files. Keep the permit until it has.
    pub async fn admit_reader(&self) -> Option<OwnedSemaphorePermit> {
        match self.stored.values().next() {
            Some(stored) => stored.objects.admit_reader().await,
            None => None,
        }
    }

    fn read(&self, attempt: u32, query: Query<'_>) -> io::Result<Part> {
        let mut stream = self.open(attempt, query.output)?;
        if query.times {
            stream.times = self.read_times(attempt, query.output);
        }
        match query.grep {
            Some(needle) if !needle.is_empty() => stream.search(needle, query),
            _ => stream.page(query),
        }
    }

    fn read_times(&self, attempt: u32, output: Output) -> Option<Times> {
        let Some(stored) = self.stored.get(&attempt) else {
            return Times::read(
                &self.home,
                &times_path(&self.home, &self.run_id, attempt, output),
                STREAM_BYTES_MAX,
            );
        };
        let name = match output {
            Output::Text => LogFileName::TextTimes,
            Output::Raw => LogFileName::RawTimes,
        };
        Times::decode(
            stored.read(name, times::FILE_BYTES_MAX),
            &stored.place,
            STREAM_BYTES_MAX,
        )
    }

    /// Returns the length of an attempt's output so far, in bytes.
    fn total_bytes(&self, attempt: u32, output: Output) -> io::Result<u64> {
        Ok(self.open(attempt, output)?.total)
    }

    fn open(&self, attempt: u32, output: Output) -> io::Result<Stream> {
        match self.stored.get(&attempt) {
            Some(stored) => Ok(Stream::of_stored(stored, output)),
            None => Stream::open(&self.home, &self.run_id, attempt, output),
        }
    }

    /// Returns the position of a run's first output since a time. The times of some attempts may be
    /// unknown.
    fn start_since(
        &self,
        earlier: &[u64],
        (first, newest): (u32, u32),
        output: Output,
        since: Time,
    ) -> io::Result<u64> {
        let mut start: u64 = earlier.iter().sum();
        let mut bytes = self.total_bytes(newest, output)?;
        for attempt in (first..=newest).rev() {
            if let Some(times) = self.read_times(attempt, output) {
                match times.first_since(since) {
                    None => return Ok(start + bytes),
                    Some(0) => {}
                    Some(position) => return Ok(start + position),
                }
            }
            if let Some(length) = (attempt - first)
                .checked_sub(1)
                .and_then(|n| earlier.get(n as usize))
            {
                bytes = *length;
                start -= bytes;
            }
        }
        Ok(start)
    }
}

/// Reads a part of a run's output: the joined output of its attempts from `first` to `newest`.
///
/// # Errors
/// A file exists but cannot be read.
pub(crate) fn read_run(
    files: &RunFiles,
    first: u32,
    newest: u32,
    query: Query<'_>,
) -> io::Result<Part> {
    let mut earlier = Vec::new();
    for attempt in first..newest {
        earlier.push(files.total_bytes(attempt, query.output)?);
    }
    let before: u64 = earlier.iter().sum();
    let start = match query.since {
        Some(since) => files.start_since(&earlier, (first, newest), query.output, since)?,
        None => 0,
    };
    let at = match query.after {
        Some(after) => after.max(start),
        None => {
            let last = files.read(newest, query)?;
            let room = query.bytes_max.saturating_sub(last.next - last.from);
            if before + last.from < start {
                start
            } else if last.from > 0 || before == 0 || room == 0 {
                return Ok(last.shifted(before));
            } else {
                before.saturating_sub(room).max(start)
            }
        }
    };
    let mut part = Part {
        from: at,
        next: at,
        ..Part::default()
    };
    let (mut start, mut left) = (0, query.bytes_max);
    for (attempt, bytes) in (first..).zip(earlier) {
        let end = start + bytes;
        if part.next < end {
            let query = Query {
                after: Some(part.next - start),
                bytes_max: left,
                ended: true,
                ..query
            };
            part.append(files.read(attempt, query)?.shifted(start));
            left = query.bytes_max.saturating_sub(part.next - part.from);
            if part.next < end || left == 0 {
                part.total = before + files.total_bytes(newest, query.output)?;
                return Ok(part);
            }
        }
        start = end;
    }
    let query = Query {
        after: Some(part.next.saturating_sub(before)),
        bytes_max: left,
        ..query
    };
    part.append(files.read(newest, query)?.shifted(before));
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::log_path;
    use times::Record;

    const RUN: &str = "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11";

    /// Writes the log of an attempt. The times are in seconds, as for `read_since`.
    fn attempt(home: &Path, attempt: u32, text: &str, records: &[(u64, i64)]) {
        std::fs::create_dir_all(home.join("logs")).expect("a directory");
        std::fs::write(log_path(home, RUN, attempt), text).expect("a log");
        let bytes = records.iter().flat_map(|(position, time)| {
            Record {
                position: *position,
                time: Time(*time * 1000),
            }
            .encode()
        });
        if !records.is_empty() {
            std::fs::write(
                times_path(home, RUN, attempt, Output::Text),
                bytes.collect::<Vec<_>>(),
            )
            .expect("times");
        }
    }

    fn read_since(
        home: &Path,
        since: i64,
        after: Option<u64>,
    ) -> (String, Vec<(u64, Option<i64>)>) {
        let since = Some(Time(since * 1000));
        let query = Query {
            output: Output::Text,
            after,
            bytes_max: 1000,
            grep: None,
            ended: true,
            times: true,
            since,
        };
        let part = read_run(&RunFiles::in_home(home, RUN), 1, 3, query).expect("reads");
        (
            part.text,
            part.times
                .into_iter()
                .map(|mark| (mark.line, mark.time.map(|time| time.0 / 1000)))
                .collect(),
        )
    }

    #[test]
    fn output_since_a_time_spans_attempts() {
        let home = tempfile::tempdir().expect("a directory");
        // Nothing is known of the first attempt. The second ends within a line.
        attempt(home.path(), 1, "a\n", &[]);
        attempt(home.path(), 2, "b\nc\nd", &[(0, 10), (2, 20)]);
        attempt(home.path(), 3, "e\nf\n", &[(0, 30), (2, 40)]);
        for after in [None, Some(0)] {
            let read = |since| read_since(home.path(), since, after);
            assert_eq!(
                read(0),
                (
                    "a\nb\nc\nde\nf\n".to_owned(),
                    vec![(0, None), (1, Some(10)), (2, Some(20)), (4, Some(40))]
                )
            );
            assert_eq!(
                read(10).0,
                "a\nb\nc\nde\nf\n",
                "nothing earlier is known to follow the first attempt"
            );
            assert_eq!(
                read(11),
                ("c\nde\nf\n".to_owned(), vec![(0, Some(20)), (2, Some(40))])
            );
            assert_eq!(
                read(21),
                ("e\nf\n".to_owned(), vec![(0, Some(30)), (1, Some(40))])
            );
            assert_eq!(read(40).0, "f\n");
            assert_eq!(read(41), (String::new(), vec![]));
        }
    }
}
