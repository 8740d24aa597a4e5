//! Records when output is written. The file is described in [`crate::logs::times`].

use crate::logs::STREAM_BYTES_MAX;
use crate::logs::times::{RECORD_BYTES, RECORDS_MAX, Record, SPACING_MS, decode};
use crate::{clock, files};
use adjutant_core::Time;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The times of an attempt's output.
#[derive(Debug)]
pub(crate) struct TimesFile {
    home: PathBuf,
    path: PathBuf,
    file: File,
    records: usize,
    last: Option<Time>,
    spacing_ms: i64,
    /// The last failure to write, which is logged once.
    failing: bool,
}

impl TimesFile {
    /// Creates the file.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn create(home: &Path, path: PathBuf) -> io::Result<Self> {
        let file = files::replace(home, &path)?;
        Ok(Self {
            home: home.to_owned(),
            path,
            file,
            records: 0,
            last: None,
            spacing_ms: SPACING_MS,
            failing: false,
        })
    }

    /// Records that the output from a position on is written now, unless the last record is recent.
    pub(super) fn record(&mut self, position: u64) {
        self.record_at(position, clock::now());
    }

    fn record_at(&mut self, position: u64, time: Time) {
        let is_recent = |last: Time| (0..self.spacing_ms).contains(&time.0.saturating_sub(last.0));
        if self.last.is_some_and(is_recent) {
            return;
        }
        self.last = Some(time);
        match self.write(Record { position, time }) {
            Ok(()) => self.failing = false,
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, path = %self.path.display(), "the times of the output are not recorded");
                }
            }
        }
    }

    fn write(&mut self, record: Record) -> io::Result<()> {
        if self.records >= RECORDS_MAX {
            self.thin_out()?;
        }
        // A failed write may have written a part.
        self.file
            .seek(SeekFrom::Start((self.records * RECORD_BYTES) as u64))?;
        self.file.write_all(&record.encode())?;
        self.records += 1;
        Ok(())
    }

    /// Removes every second record.
    fn thin_out(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        (&mut self.file)
            .take((RECORDS_MAX * RECORD_BYTES) as u64)
            .read_to_end(&mut bytes)?;
        let kept: Vec<u8> = decode(&bytes, STREAM_BYTES_MAX)
            .into_iter()
            .step_by(2)
            .flat_map(Record::encode)
            .collect();
        files::write_atomically(&self.home, &self.path, &kept)?;
        self.file = files::open_writable(&self.home, &self.path)?;
        self.records = kept.len() / RECORD_BYTES;
        self.spacing_ms = self.spacing_ms.saturating_mul(2);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::times::Times;

    #[test]
    fn file_of_times_is_bounded_and_covers_both_ends() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("times");
        let mut times = TimesFile::create(home.path(), path.clone()).expect("a file");
        let seconds = 3 * RECORDS_MAX as u64;
        for tenth in 0..seconds * 10 {
            times.record_at(tenth, Time((tenth * 100).cast_signed()));
        }
        let length = std::fs::metadata(&path).expect("is there").len();
        assert!(
            length <= (RECORDS_MAX * RECORD_BYTES) as u64
                && length > (RECORDS_MAX * RECORD_BYTES / 2) as u64,
            "{length}"
        );
        let read = Times::read(home.path(), &path, STREAM_BYTES_MAX).expect("times");
        for position in [0, seconds, seconds * 5, seconds * 10 - 1] {
            let error_ms = (position * 100).cast_signed() - read.at(position).expect("a time").0;
            assert!((0..8_000).contains(&error_ms), "{position}: {error_ms}");
        }
    }

    #[test]
    fn clock_that_is_set_back_still_adds_records() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("times");
        let mut times = TimesFile::create(home.path(), path.clone()).expect("a file");
        for (position, time) in [(0, 10_000), (5, 10_500), (7, 3_000), (9, 3_999)] {
            times.record_at(position, Time(time));
        }
        let read = Times::read(home.path(), &path, STREAM_BYTES_MAX).expect("times");
        assert_eq!(
            (read.at(6), read.at(9)),
            (Some(Time(10_000)), Some(Time(3_000)))
        );
    }
}
