//! When the output of an attempt was written: records of a position in the stream and a time, in a
//! file beside the log.
//!
//! There is at most one record a second, added when there is output. If the file is full, every
//! second record is removed, so that its size is bounded and both ends are covered. What can be
//! read of a torn or replaced file is used.

use crate::files;
use adjutant_core::Time;
use std::io;
use std::path::Path;

/// Size of a record: the position and the time in milliseconds, both little-endian.
pub const RECORD_BYTES: usize = 16;
/// Maximum number of records in a file: nine hours of output without a pause at one record a
/// second.
pub const RECORDS_MAX: usize = 32 * 1024;
/// Largest file of times, in bytes.
pub const FILE_BYTES_MAX: u64 = (RECORDS_MAX * RECORD_BYTES) as u64;
/// Minimum time between two records, until the file is full for the first time.
pub const SPACING_MS: i64 = 1_000;
/// The last millisecond of the year 9999.
const TIME_MAX_MS: i64 = 253_402_300_799_999;

/// When the output from a position on was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    pub position: u64,
    pub time: Time,
}

impl Record {
    /// Encodes a record.
    #[must_use]
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        (u128::from(self.position) | u128::from(self.time.0.cast_unsigned()) << 64).to_le_bytes()
    }

    fn decode(bytes: [u8; RECORD_BYTES]) -> Self {
        let both = u128::from_le_bytes(bytes);
        let low = |half: u128| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(u64::MAX);
        Self {
            position: low(both),
            time: Time(low(both >> 64).cast_signed()),
        }
    }
}

/// Decodes the plausible records of a file: whole ones, with rising positions. A run's processes
/// could have written it.
#[must_use]
pub fn decode(bytes: &[u8], position_max: u64) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for bytes in bytes.as_chunks().0 {
        let record = Record::decode(*bytes);
        let is_later = records
            .last()
            .is_none_or(|last| last.position < record.position);
        if is_later && record.position <= position_max && (0..=TIME_MAX_MS).contains(&record.time.0)
        {
            records.push(record);
        }
    }
    records
}

/// The times of an attempt's output.
#[derive(Debug)]
pub struct Times(Vec<Record>);

impl Times {
    /// Reads the times of an attempt. `None`: they are not known.
    #[must_use]
    pub fn read(home: &Path, path: &Path, position_max: u64) -> Option<Self> {
        Self::decode(
            files::read(home, path, FILE_BYTES_MAX).map(Some),
            &path.display().to_string(),
            position_max,
        )
    }

    /// Decodes the times of an attempt that were read from a place. `None`: they are not known.
    #[must_use]
    pub(super) fn decode(
        read: io::Result<Option<Vec<u8>>>,
        place: &str,
        position_max: u64,
    ) -> Option<Self> {
        match read {
            Ok(bytes) => {
                Some(Self(decode(&bytes?, position_max))).filter(|times| !times.0.is_empty())
            }
            Err(error) => {
                // The log can be read without them.
                tracing::debug!(%error, place, "the times of a log are not known");
                None
            }
        }
    }

    /// Returns when the output at a position was written.
    #[must_use]
    pub fn at(&self, position: u64) -> Option<Time> {
        let after = self.0.partition_point(|record| record.position <= position);
        after.checked_sub(1).map(|last| self.0[last].time)
    }

    /// Returns the position of the first output that can have been written at or after a time.
    /// `None`: there is none.
    #[must_use]
    pub(crate) fn first_since(&self, time: Time) -> Option<u64> {
        let next = self.0.iter().position(|record| record.time >= time);
        // The output after a record is of the time until the next record would have been due.
        let can_reach = |record: &&Record| record.time.0.saturating_add(self.spacing_ms()) > time.0;
        let before = next
            .unwrap_or(self.0.len())
            .checked_sub(1)
            .map(|before| &self.0[before])
            .filter(can_reach);
        before
            .or(next.map(|next| &self.0[next]))
            .map(|record| record.position)
    }

    /// Returns the greatest possible time between writes that share a record.
    fn spacing_ms(&self) -> i64 {
        if self.0.len() < RECORDS_MAX / 2 {
            return SPACING_MS;
        }
        // Records were removed. What remains is no closer than later records.
        let gaps = self
            .0
            .windows(2)
            .map(|two| two[1].time.0.saturating_sub(two[0].time.0));
        gaps.filter(|gap| *gap >= SPACING_MS)
            .min()
            .unwrap_or(SPACING_MS)
    }
}

/// When the lines of a part were written: the time applies from a line on, until the next mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeMark {
    /// The number of the line in the part, from 0.
    pub line: u64,
    /// `None`: it is not known.
    pub time: Option<Time>,
}

/// Appends a mark, unless the previous one says the same.
pub(crate) fn push_mark(marks: &mut Vec<TimeMark>, mark: TimeMark) {
    if marks.last().is_some_and(|last| last.line == mark.line) {
        marks.pop();
    }
    if marks.last().is_none_or(|last| last.time != mark.time) {
        marks.push(mark);
    }
}

/// Collects the times of lines.
#[derive(Debug)]
pub(crate) struct LineTimes<'a> {
    times: Option<&'a Times>,
    marks: Vec<TimeMark>,
    line: u64,
    is_line_open: bool,
}

impl<'a> LineTimes<'a> {
    #[must_use]
    pub(crate) fn new(times: Option<&'a Times>) -> Self {
        Self {
            times,
            marks: Vec::new(),
            line: 0,
            is_line_open: false,
        }
    }

    /// Adds the text at a position of the stream.
    pub(crate) fn add(&mut self, position: u64, text: &[u8]) {
        let mut at = position;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_line_open {
                push_mark(
                    &mut self.marks,
                    TimeMark {
                        line: self.line,
                        time: self.times.and_then(|times| times.at(at)),
                    },
                );
            }
            at += line.len() as u64;
            self.end_piece(line);
        }
    }

    /// Adds text that is not part of the stream.
    pub(crate) fn skip(&mut self, text: &str) {
        text.as_bytes()
            .split_inclusive(|byte| *byte == b'\n')
            .for_each(|line| self.end_piece(line));
    }

    fn end_piece(&mut self, line: &[u8]) {
        self.is_line_open = !line.ends_with(b"\n");
        self.line += u64::from(!self.is_line_open);
    }

    #[must_use]
    pub(crate) fn finish(self) -> Vec<TimeMark> {
        self.marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(records: &[(u64, i64)]) -> Vec<u8> {
        records
            .iter()
            .flat_map(|(position, time)| {
                Record {
                    position: *position,
                    time: Time(*time),
                }
                .encode()
            })
            .collect()
    }

    #[test]
    fn implausible_records_are_ignored() {
        let mut bytes = file(&[
            (0, 5),
            (10, i64::MIN),
            (10, i64::MAX),
            (u64::MAX, 7),
            (10, 9),
            (3, 10),
            (20, 4),
        ]);
        bytes.extend([1; RECORD_BYTES - 1]);
        let times: Vec<_> = decode(&bytes, 1 << 52)
            .iter()
            .map(|record| (record.position, record.time.0))
            .collect();
        assert_eq!(times, [(0, 5), (10, 9), (20, 4)]);
        let times = Times(decode(&bytes, 1 << 52));
        assert_eq!(
            (times.at(0), times.at(9), times.at(10), times.at(u64::MAX)),
            (Some(Time(5)), Some(Time(5)), Some(Time(9)), Some(Time(4)))
        );
        assert_eq!(
            (times.first_since(Time(6)), times.first_since(Time(1010))),
            (Some(0), None)
        );
    }

    #[test]
    fn output_that_shares_a_record_counts_until_the_next_is_due() {
        let times = Times(decode(
            &file(&[(0, 10_000), (5, 11_000), (9, 60_000)]),
            1 << 52,
        ));
        for (since, position) in [
            (9_000, Some(0)),
            (10_000, Some(0)),
            (10_999, Some(0)),
            (11_000, Some(5)),
            (11_001, Some(5)),
            (12_000, Some(9)),
            (60_500, Some(9)),
        ] {
            assert_eq!(times.first_since(Time(since)), position, "{since}");
        }
        assert_eq!(times.first_since(Time(61_000)), None);
        // After records were removed, one covers two seconds.
        let records: Vec<(u64, i64)> = (0..20_000)
            .map(|n| (n, i64::try_from(n).expect("small") * 2_000))
            .collect();
        assert_eq!(
            Times(decode(&file(&records), 1 << 52)).first_since(Time(5_500)),
            Some(2)
        );
    }

    #[test]
    fn line_has_the_time_of_its_beginning() {
        let times = Times(decode(&file(&[(0, 1), (4, 2), (9, 3)]), 1 << 52));
        let mut lines = LineTimes::new(Some(&times));
        // The second line is written in two parts. A gap follows the third.
        lines.add(0, b"a\nbc");
        lines.add(4, b"de\nf\n");
        lines.skip("\n[left out]\n");
        lines.add(20, b"g\nh");
        let marks = [(0, 1), (2, 2), (5, 3)].map(|(line, time)| TimeMark {
            line,
            time: Some(Time(time)),
        });
        assert_eq!(lines.finish(), marks);
    }
}
