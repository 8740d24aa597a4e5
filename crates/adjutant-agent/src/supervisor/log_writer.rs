//! Writes the log. Beyond its limit, the beginning and the end are kept, and the text between them
//! is dropped. The layout is described in [`crate::logs`].

use super::log_times::TimesFile;
use crate::files;
use crate::logs::{self, Map, Merged, Output};
use crate::protocol::{AttemptDir, Order};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// Half of the limit is for the head, the other half for this many segments.
const SEGMENTS_MAX: u64 = 2;

/// The log of a running attempt.
#[derive(Debug)]
pub(crate) struct LogWriter {
    dir: AttemptDir,
    path: PathBuf,
    head: File,
    head_bytes: u64,
    head_bytes_max: u64,
    /// The head is complete, even if another character would fit.
    head_full: bool,
    segments: VecDeque<Segment>,
    segment_bytes_max: u64,
    total_bytes: u64,
    /// The last failure to write, which is logged once.
    failing: bool,
    times: TimesFile,
}

#[derive(Debug)]
struct Segment {
    start: u64,
    bytes: u64,
    /// The following text could not be written, so the segment ends here.
    is_cut: bool,
    file: File,
    path: PathBuf,
}

impl LogWriter {
    /// Creates the log of an attempt.
    ///
    /// # Errors
    /// A file cannot be made.
    pub(super) fn create(order: &Order, dir: &AttemptDir) -> io::Result<Self> {
        Self::create_at(
            logs::log_path(&order.home, &order.run_id, order.attempt),
            Output::Text,
            order,
            dir,
        )
    }

    /// Creates the file of an attempt's raw stream, with the layout of a log.
    ///
    /// # Errors
    /// A file cannot be made.
    pub(crate) fn create_raw(order: &Order, dir: &AttemptDir) -> io::Result<Self> {
        let dir = logs::raw_dir(dir);
        files::make_dirs(dir.home(), &dir.0)?;
        Self::create_at(
            logs::raw_path(&order.home, &order.run_id, order.attempt),
            Output::Raw,
            order,
            &dir,
        )
    }

    fn create_at(
        path: PathBuf,
        output: Output,
        order: &Order,
        dir: &AttemptDir,
    ) -> io::Result<Self> {
        let head_bytes_max = order.log_bytes_max / 2;
        Map {
            head_bytes_max,
            merged: None,
        }
        .write(dir)?;
        Ok(Self {
            dir: dir.clone(),
            head: files::replace(dir.home(), &path)?,
            path,
            head_bytes: 0,
            head_bytes_max,
            head_full: false,
            segments: VecDeque::new(),
            segment_bytes_max: (order.log_bytes_max / 2 / SEGMENTS_MAX).max(4096),
            total_bytes: 0,
            failing: false,
            times: TimesFile::create(
                dir.home(),
                logs::times_path(&order.home, &order.run_id, order.attempt, output),
            )?,
        })
    }

    /// Returns the length of the stream so far.
    #[must_use]
    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Appends text. Text that cannot be written counts as dropped.
    pub(super) fn append(&mut self, text: &[u8]) {
        let mut rest = text;
        if !text.is_empty() {
            self.times.record(self.total_bytes);
        }
        if !self.head_full {
            let room = self.head_bytes_max - self.head_bytes;
            let fits = cut(rest, room);
            self.head_full = fits < rest.len();
            if self.keep(|log| log.head.write_all(&rest[..fits])) {
                self.head_bytes += fits as u64;
                self.total_bytes += fits as u64;
                rest = &rest[fits..];
            } else {
                // The part that was written does not belong to the stream.
                self.head_full = true;
                if let Err(error) = self.head.set_len(self.head_bytes) {
                    tracing::warn!(%error, "the log could not be cut back");
                }
            }
        }
        while !rest.is_empty() {
            let used = self.append_to_segment(rest);
            self.total_bytes += used as u64;
            rest = &rest[used..];
        }
    }

    /// Appends the beginning of `text` to the last segment. Returns how much of it was handled.
    fn append_to_segment(&mut self, text: &[u8]) -> usize {
        let is_full = self
            .segments
            .back()
            .is_none_or(|segment| segment.is_cut || segment.bytes >= self.segment_bytes_max);
        if is_full {
            let start = self.total_bytes;
            let path = logs::segment_path(&self.dir, start);
            match files::create_new(self.dir.home(), &path) {
                Ok(file) => self.segments.push_back(Segment {
                    start,
                    bytes: 0,
                    is_cut: false,
                    file,
                    path,
                }),
                Err(error) => {
                    self.keep(|_| Err(error));
                    return text.len();
                }
            }
            if self.segments.len() as u64 > SEGMENTS_MAX {
                self.drop_oldest();
            }
        }
        let Some(segment) = self.segments.back_mut() else {
            return text.len();
        };
        let room = self.segment_bytes_max - segment.bytes;
        let mut fits = cut(text, room);
        if fits == 0 {
            // The next character is longer than the free space, and still belongs to this segment.
            fits = cut(text, 4);
        }
        let bytes = segment.bytes;
        if self.keep(|log| {
            log.segments
                .back_mut()
                .map_or(Ok(()), |segment| segment.file.write_all(&text[..fits]))
        }) {
            if let Some(segment) = self.segments.back_mut() {
                segment.bytes += fits as u64;
            }
            return fits;
        }
        // The segment ends here. The next one begins when text can be written again.
        if let Some(segment) = self.segments.back_mut() {
            if let Err(error) = segment.file.set_len(bytes) {
                tracing::warn!(%error, "the log could not be cut back");
            }
            segment.is_cut = true;
        }
        text.len()
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.segments.pop_front()
            && let Err(error) = fs::remove_file(&oldest.path)
        {
            tracing::warn!(%error, path = %oldest.path.display(), "a part of the log could not be dropped");
        }
    }

    /// Writes once. A failure is logged once, until a write succeeds again.
    fn keep(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) -> bool {
        match write(self) {
            Ok(()) => {
                self.failing = false;
                true
            }
            Err(error) => {
                if !self.failing {
                    tracing::warn!(%error, path = %self.path.display(), "output is dropped");
                }
                self.failing = true;
                false
            }
        }
    }

    /// Appends the segments to the log file, after a line about the missing text. If a full disk
    /// caused more than this gap, the segments remain separate files, and only their end is marked.
    ///
    /// # Errors
    /// The write failed. The log remains readable, and the write can be retried.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        // A failed write may have written a part and moved the position.
        self.head.set_len(self.head_bytes)?;
        self.head.seek(SeekFrom::Start(self.head_bytes))?;
        let tail_start = self
            .segments
            .front()
            .map_or(self.total_bytes, |segment| segment.start);
        let mut end = tail_start;
        let is_whole = self.segments.iter().all(|segment| {
            segment.start == std::mem::replace(&mut end, segment.start + segment.bytes)
        });
        if !is_whole || end < self.total_bytes {
            return self.mark_end();
        }
        let omitted_bytes = tail_start - self.head_bytes;
        let marker = if omitted_bytes > 0 {
            logs::marker(omitted_bytes)
        } else {
            String::new()
        };
        self.head.write_all(marker.as_bytes())?;
        for segment in &mut self.segments {
            segment.file.seek(SeekFrom::Start(0))?;
            io::copy(&mut (&mut segment.file).take(segment.bytes), &mut self.head)?;
            // A retry writes nothing to this file, but must leave its end unchanged.
            segment.file.seek(SeekFrom::Start(segment.bytes))?;
        }
        let merged = Merged {
            head_bytes: self.head_bytes,
            omitted_bytes,
            marker_bytes: marker.len() as u64,
            total_bytes: self.total_bytes,
        };
        Map {
            head_bytes_max: self.head_bytes_max,
            merged: Some(merged),
        }
        .write(&self.dir)?;
        while !self.segments.is_empty() {
            self.drop_oldest();
        }
        Ok(())
    }

    /// Records the length of the stream in an empty segment.
    fn mark_end(&self) -> io::Result<()> {
        match files::create_new(
            self.dir.home(),
            &logs::segment_path(&self.dir, self.total_bytes),
        ) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Finishes logs, and keeps those for which this failed.
pub(super) fn finish(logs: &mut Vec<LogWriter>) {
    logs.retain_mut(|log| match log.finish() {
        Ok(()) => false,
        Err(error) => {
            tracing::warn!(%error, path = %log.path.display(), "the log remains in parts");
            true
        }
    });
}

/// Returns how many bytes of `text` (whole characters) fit into `room` as whole characters.
fn cut(text: &[u8], room: u64) -> usize {
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if text.len() <= room {
        return text.len();
    }
    let mut at = room;
    while at > 0 && text[at] & 0xc0 == 0x80 {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::{Part, Query};
    use std::collections::BTreeMap;
    use std::path::Path;

    const RUN: &str = "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11";

    fn order(home: &Path, log_bytes_max: u64) -> Order {
        Order {
            home: home.to_owned(),
            run_id: RUN.to_owned(),
            run_name: "brave-otter".to_owned(),
            attempt: 1,
            agent: "x".to_owned(),
            harness: "plain".to_owned(),
            preset: None,
            permissions: "edit".to_owned(),
            trust_repo: false,
            session: None,
            has_tools: true,
            new_session_prompt: None,
            argv: Vec::new(),
            args: Vec::new(),
            model: None,
            last_args: Vec::new(),
            prompt_via: "stdin".to_owned(),
            prompt: String::new(),
            cwd: PathBuf::from("/"),
            workspace: None,
            env: BTreeMap::new(),
            timeout_ms: None,
            active_ms_before: 0,
            patience_ms: 0,
            stall_ms: None,
            memory_bytes_max: None,
            grace_ms: 0,
            report_grace_ms: None,
            ends_after_report: false,
            accept: Vec::new(),
            answer_bytes_max: 0,
            log_bytes_max,
            token: String::new(),
            containment: "auto".to_owned(),
            fence: None,
            gate: None,
            lease_ms: None,
        }
    }

    struct Case {
        home: tempfile::TempDir,
        log: LogWriter,
        dir: AttemptDir,
    }

    fn case(log_bytes_max: u64) -> Case {
        let home = tempfile::tempdir().expect("a temporary directory");
        let dir = AttemptDir::new(home.path(), RUN, 1);
        fs::create_dir_all(&dir.0).expect("makes");
        fs::create_dir_all(home.path().join("logs")).expect("makes");
        let log = LogWriter::create(&order(home.path(), log_bytes_max), &dir).expect("creates");
        Case { home, log, dir }
    }

    impl Case {
        fn read(&self, after: Option<u64>, bytes_max: u64, grep: Option<&str>) -> Part {
            logs::read(
                self.home.path(),
                RUN,
                1,
                Query {
                    output: logs::Output::Text,
                    after,
                    bytes_max,
                    grep,
                    ended: true,
                    times: false,
                    since: None,
                },
            )
            .expect("reads")
        }

        /// The whole stream, page by page, with the number of bytes that are missing.
        fn all(&self, page: u64) -> (String, u64) {
            let (mut text, mut omitted, mut at) = (String::new(), 0, 0);
            loop {
                let part = self.read(Some(at), page, None);
                assert_eq!(part.from, at);
                if part.next == at {
                    return (text, omitted);
                }
                (text, omitted, at) = (text + &part.text, omitted + part.omitted, part.next);
            }
        }
    }

    #[test]
    fn log_below_its_cap_is_whole() {
        let mut case = case(64 * 1024);
        let text: String = (0..5_000).map(|n| format!("zeile {n} ä€😀\n")).collect();
        let text = &text[..60_000];
        for piece in text
            .as_bytes()
            .chunk_by(|_, next| next & 0xc0 == 0x80)
            .collect::<Vec<_>>()
            .chunks(333)
        {
            case.log.append(&piece.concat());
        }
        assert_eq!(case.all(999), (text.to_owned(), 0));
        let path = logs::log_path(case.home.path(), RUN, 1);
        let Case { home, mut log, dir } = case;
        log.finish().expect("merges");
        assert_eq!(fs::read_to_string(&path).expect("is text"), text);
        assert!(logs::segments(&dir).expect("lists").is_empty());
        drop(home);
    }

    #[test]
    fn long_log_keeps_both_ends_and_marks_the_gap() {
        let mut case = case(64 * 1024);
        let text: String = (0..200_000).map(|n| format!("{n} é\n")).collect();
        for piece in text
            .as_bytes()
            .chunk_by(|_, next| next & 0xc0 == 0x80)
            .collect::<Vec<_>>()
            .chunks(7_777)
        {
            case.log.append(&piece.concat());
        }
        let (running, omitted) = case.all(5_000);
        assert!(running.starts_with("0 é\n1 é\n") && running.ends_with("199999 é\n"));
        assert!(omitted > 1_000_000);
        let (end, last) = (
            case.read(None, 20, None),
            case.read(Some(text.len() as u64), 20, None),
        );
        assert!(text.ends_with(&end.text) && end.next == text.len() as u64 && end.text.len() <= 20);
        assert_eq!((last.text.as_str(), last.next), ("", text.len() as u64));

        let Case { home, mut log, dir } = case;
        log.finish().expect("merges");
        assert!(logs::segments(&dir).expect("lists").is_empty());
        let path = logs::log_path(home.path(), RUN, 1);
        assert!(fs::metadata(&path).expect("is there").len() <= 64 * 1024 + 100);
        assert_eq!(fs::read_to_string(&path).expect("is text"), running);
        let part = logs::read(
            home.path(),
            RUN,
            1,
            Query {
                output: logs::Output::Text,
                after: Some(0),
                bytes_max: 1 << 20,
                grep: None,
                ended: true,
                times: false,
                since: None,
            },
        )
        .expect("reads");
        assert_eq!(
            (part.text, part.omitted, part.total),
            (running, omitted, text.len() as u64)
        );
    }

    #[test]
    fn bytes_lost_to_a_full_disk_are_marked() {
        for (gaps, text) in [
            (
                &[10][..],
                "abc\n[adj: 10 bytes of output are left out here]\n",
            ),
            (
                &[10, 7],
                "abc\n[adj: 10 bytes of output are left out here]\nabc\n[adj: 7 bytes of output are left out here]\n",
            ),
        ] {
            let mut case = case(64 * 1024);
            for gap in gaps {
                case.log.append(b"abc");
                case.log.head_full = true;
                case.log.total_bytes += gap;
                if let Some(segment) = case.log.segments.back_mut() {
                    segment.is_cut = true;
                }
            }
            case.log.finish().expect("marks");
            case.log.finish().expect("can be done again");
            assert_eq!(
                case.all(1000),
                (text.to_owned(), gaps.iter().sum()),
                "{gaps:?}"
            );
            let expected = if gaps.len() == 1 { text } else { "abc" };
            assert_eq!(
                fs::read_to_string(&case.log.path).expect("is text"),
                expected
            );
        }
    }

    #[test]
    fn log_search_returns_whole_lines_and_a_cursor() {
        let mut case = case(64 * 1024);
        for n in 0..3_000 {
            case.log.append(format!("line {n}\n").as_bytes());
        }
        case.log.append(b"line 77 without an end");
        let first = case.read(None, 10, Some("77\n"));
        assert_eq!(first.text, "line 77\nline 177\n");
        assert_eq!(
            case.read(Some(first.next), 1, Some("77\n")).text,
            "line 277\n"
        );
        let last = case.read(Some(0), 1000, Some("without"));
        assert_eq!(
            (last.text.as_str(), last.next),
            ("line 77 without an end\n", last.total)
        );
        let running = logs::read(
            case.home.path(),
            RUN,
            1,
            Query {
                output: logs::Output::Text,
                after: Some(0),
                bytes_max: 9,
                grep: Some("without"),
                ended: false,
                times: false,
                since: None,
            },
        );
        assert_eq!(running.expect("reads").text, "");
    }
}
