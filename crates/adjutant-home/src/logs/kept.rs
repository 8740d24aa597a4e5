//! The logs of an attempt on a runner, which the runner sends to the hub after the attempt's end.
//!
//! They have the same paths below both homes, so that they are read like those of an attempt on the
//! hub's own machine. The record beside them (`kept.json` in the attempt's directory) lists them
//! with their lengths and hashes, and says whether they are complete.

use super::{Map, Output, log_path, raw_dir, raw_path, segment_path, segments, times_path};
use crate::files;
use crate::protocol::{AttemptDir, LogFileDigest, LogFileName};
use adjutant_core::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum number of files of an attempt.
pub const FILES_MAX: usize = 32;
/// Largest total of the files of an attempt, in bytes.
pub(crate) const FILES_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Largest record, in bytes.
const RECORD_BYTES_MAX: u64 = 64 * 1024;

/// Which logs of an attempt on a runner the hub has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLogs {
    pub files: Vec<LogFileDigest>,
    /// The hub has all of them.
    pub is_complete: bool,
}

/// The logs of an attempt below a home.
#[derive(Debug, Clone)]
pub struct AttemptLogs {
    pub home: PathBuf,
    pub run_id: String,
    pub attempt: u32,
}

impl AttemptLogs {
    pub(super) fn dir(&self) -> AttemptDir {
        AttemptDir::new(&self.home, &self.run_id, self.attempt)
    }

    fn record_path(&self) -> PathBuf {
        self.dir().0.join("kept.json")
    }

    fn path(&self, name: LogFileName) -> PathBuf {
        let Self {
            home,
            run_id,
            attempt,
        } = self;
        let (dir, raw) = (self.dir(), raw_dir(&self.dir()));
        match name {
            LogFileName::Text => log_path(home, run_id, *attempt),
            LogFileName::TextTimes => times_path(home, run_id, *attempt, Output::Text),
            LogFileName::TextMap => super::map::path(&dir),
            LogFileName::TextSegment(start) => segment_path(&dir, start),
            LogFileName::Raw => raw_path(home, run_id, *attempt),
            LogFileName::RawTimes => times_path(home, run_id, *attempt, Output::Raw),
            LogFileName::RawMap => super::map::path(&raw),
            LogFileName::RawSegment(start) => segment_path(&raw, start),
            LogFileName::Answer => dir.answer(),
        }
    }

    pub(super) fn remove_file(&self, name: LogFileName) -> io::Result<()> {
        remove(&self.path(name))
    }

    /// Reads the record. `None`: there is none, as for an attempt on the hub's own machine.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn record(&self) -> io::Result<Option<KeptLogs>> {
        match files::read(&self.home, &self.record_path(), RECORD_BYTES_MAX) {
            // A power failure can leave it empty, before it was acknowledged.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the hub has all logs of an attempt on a runner.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn are_kept(&self) -> io::Result<bool> {
        Ok(self.record()?.is_some_and(|record| record.is_complete))
    }

    /// Returns whether the supervisor has written the logs to their end. Otherwise they can still
    /// change while it lives.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn are_finished(&self) -> io::Result<bool> {
        let is_merged =
            |dir: &AttemptDir| Ok::<_, io::Error>(Map::read(dir)?.map(|map| map.merged.is_some()));
        Ok(is_merged(&self.dir())? == Some(true)
            && is_merged(&raw_dir(&self.dir()))? != Some(false))
    }

    /// Lists the files, with lengths and hashes. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or they are too large.
    pub fn list(&self) -> io::Result<Vec<LogFileDigest>> {
        let mut names = vec![
            LogFileName::Text,
            LogFileName::TextTimes,
            LogFileName::TextMap,
            LogFileName::Raw,
            LogFileName::RawTimes,
            LogFileName::RawMap,
            LogFileName::Answer,
        ];
        names.extend(
            segments(&self.dir())?
                .iter()
                .map(|(start, _)| LogFileName::TextSegment(*start)),
        );
        names.extend(
            segments(&raw_dir(&self.dir()))?
                .iter()
                .map(|(start, _)| LogFileName::RawSegment(*start)),
        );
        let mut found = Vec::new();
        for name in names {
            let file = match files::open(&self.home, &self.path(name)) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let (bytes, sha256) = hash(file)?;
            found.push(LogFileDigest {
                name,
                bytes,
                sha256,
            });
        }
        if is_plausible(&found) {
            Ok(found)
        } else {
            Err(io::Error::other("the logs are too large to be sent"))
        }
    }

    /// Reads up to `bytes_max` bytes of a file. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter.
    pub fn read(&self, file: &LogFileDigest, at: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes =
            vec![0; usize::try_from(bytes_max.min(file.bytes.saturating_sub(at))).unwrap_or(0)];
        files::open(&self.home, &self.path(file.name))?.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Begins to store these files, or continues. If all are there, records that they are complete.
    /// Returns the record and how many bytes of each file are there. Blocks until it is durable.
    ///
    /// # Errors
    /// The disk failed.
    pub fn accept(&self, listed: Vec<LogFileDigest>) -> io::Result<(KeptLogs, Vec<u64>)> {
        let known = self.record()?;
        if let Some(known) = known.as_ref().filter(|known| known.is_complete) {
            return Ok((
                known.clone(),
                known.files.iter().map(|file| file.bytes).collect(),
            ));
        }
        if known.as_ref().is_none_or(|known| known.files != listed) {
            for old in known
                .unwrap_or_default()
                .files
                .iter()
                .filter(|old| listed.iter().all(|file| file.name != old.name))
            {
                remove(&self.path(old.name))?;
            }
            files::make_dirs(&self.home, &raw_dir(&self.dir()).0)?;
            self.write_record(&KeptLogs {
                files: listed.clone(),
                is_complete: false,
            })?;
        }
        let mut stored = Vec::new();
        for file in &listed {
            stored.push(self.stored(file)?);
        }
        let lengths_fit = listed
            .iter()
            .zip(&stored)
            .all(|(file, stored)| file.bytes == *stored);
        if !lengths_fit {
            return Ok((
                KeptLogs {
                    files: listed,
                    is_complete: false,
                },
                stored,
            ));
        }
        let mut is_complete = true;
        for (file, stored) in listed.iter().zip(&mut stored) {
            let opened = files::open_or_create(&self.home, &self.path(file.name))?;
            opened.sync_all()?;
            if hash(opened)?.1 != file.sha256 {
                // A power failure can leave the right length without the bytes.
                remove(&self.path(file.name))?;
                (*stored, is_complete) = (0, false);
            }
        }
        let record = KeptLogs {
            files: listed,
            is_complete,
        };
        if is_complete {
            files::sync_dirs(&self.home, &raw_dir(&self.dir()).0)?;
            files::sync_dirs(&self.home, &self.home.join("logs"))?;
            self.write_record(&record)?;
        }
        Ok((record, stored))
    }

    /// Writes bytes of a listed file at its end, and returns its length then. Bytes for another
    /// position are not written. Blocks until they are durable. `None`: the file is not listed, or
    /// would be longer than listed.
    ///
    /// # Errors
    /// The disk failed.
    pub fn append(&self, name: LogFileName, at: u64, bytes: &[u8]) -> io::Result<Option<u64>> {
        let Some(record) = self.record()? else {
            return Ok(None);
        };
        let Some(file) = record.files.iter().find(|file| file.name == name) else {
            return Ok(None);
        };
        if record.is_complete {
            return Ok(Some(file.bytes));
        }
        if at
            .checked_add(bytes.len() as u64)
            .is_none_or(|end| end > file.bytes)
        {
            return Ok(None);
        }
        let stored = self.stored(file)?;
        if at != stored {
            return Ok(Some(stored));
        }
        let to = files::open_or_create(&self.home, &self.path(name))?;
        to.write_all_at(bytes, at)?;
        to.sync_data()?;
        Ok(Some(at + bytes.len() as u64))
    }

    /// Returns how many bytes of a listed file are there. A longer file is another one, and
    /// removed.
    fn stored(&self, file: &LogFileDigest) -> io::Result<u64> {
        let path = self.path(file.name);
        match files::look(&self.home, &path)? {
            None => Ok(0),
            Some(found) if found.is_regular && found.bytes <= file.bytes => Ok(found.bytes),
            Some(_) => {
                remove(&path)?;
                Ok(0)
            }
        }
    }

    fn write_record(&self, record: &KeptLogs) -> io::Result<()> {
        files::write_atomically(
            &self.home,
            &self.record_path(),
            &serde_json::to_vec(record)?,
        )?;
        files::open(&self.home, &self.record_path())?.sync_all()?;
        files::sync_dirs(&self.home, &self.dir().0)
    }
}

/// Returns whether a list of another machine can be that of an attempt.
#[must_use]
pub fn is_plausible(listed: &[LogFileDigest]) -> bool {
    let total = listed
        .iter()
        .try_fold(0_u64, |sum, file| sum.checked_add(file.bytes));
    listed.len() <= FILES_MAX
        && total.is_some_and(|total| total <= FILES_BYTES_MAX)
        && listed
            .iter()
            .enumerate()
            .all(|(n, file)| listed[..n].iter().all(|other| other.name != file.name))
}

/// Returns the length of a file and its hash.
fn hash(mut file: File) -> io::Result<(u64, String)> {
    let (mut hash, mut bytes, mut part) = (Sha256::new(), 0, vec![0; super::READ_BYTES]);
    loop {
        let read = file.read(&mut part)?;
        if read == 0 || bytes > FILES_BYTES_MAX {
            return Ok((bytes, hex(hash.finalize())));
        }
        hash.update(&part[..read]);
        bytes += read as u64;
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(home: &Path) -> AttemptLogs {
        std::fs::create_dir_all(home.join("logs")).expect("a directory");
        AttemptLogs {
            home: home.to_owned(),
            run_id: "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11".to_owned(),
            attempt: 2,
        }
    }

    #[test]
    fn files_are_stored_in_parts_and_complete_only_with_all_bytes() {
        let homes = [
            tempfile::tempdir().expect("a directory"),
            tempfile::tempdir().expect("a directory"),
        ];
        let (there, here) = (logs(homes[0].path()), logs(homes[1].path()));
        std::fs::create_dir_all(raw_dir(&there.dir()).0).expect("a directory");
        for (name, text) in [
            (LogFileName::Text, "hello"),
            (LogFileName::RawSegment(7), "raw"),
            (LogFileName::Answer, ""),
        ] {
            std::fs::write(there.path(name), text).expect("a file");
        }
        let listed = there.list().expect("a list");
        assert_eq!(listed.len(), 3);
        assert_eq!(
            here.append(LogFileName::Text, 0, b"x").expect("no failure"),
            None,
            "it is not listed yet"
        );
        assert_eq!(here.accept(listed.clone()).expect("begins").1, [0, 0, 0]);
        assert_eq!(
            here.append(LogFileName::Text, 0, b"hel").expect("writes"),
            Some(3)
        );
        assert_eq!(
            here.append(LogFileName::Text, 0, b"hel").expect("repeated"),
            Some(3)
        );
        assert_eq!(
            here.append(LogFileName::Text, 4, b"o")
                .expect("not at the end"),
            Some(3)
        );
        assert_eq!(
            here.append(LogFileName::Text, 3, b"lo!")
                .expect("no failure"),
            None,
            "it is longer than listed"
        );
        assert_eq!(
            here.append(LogFileName::Text, 3, b"LO").expect("writes"),
            Some(5)
        );
        assert_eq!(
            here.append(LogFileName::RawSegment(7), 0, b"raw")
                .expect("writes"),
            Some(3)
        );
        let stored = |name| std::fs::read_to_string(here.path(name)).expect("a file");
        let (record, bytes) = here.accept(listed.clone()).expect("checks");
        let text = listed
            .iter()
            .position(|file| file.name == LogFileName::Text)
            .expect("it is listed");
        assert!(
            !record.is_complete && bytes[text] == 0 && !here.are_kept().expect("a record"),
            "other bytes are not the file"
        );
        assert_eq!(
            here.append(LogFileName::Text, 0, b"hello").expect("writes"),
            Some(5)
        );
        assert!(
            here.accept(listed.clone())
                .expect("completes")
                .0
                .is_complete
                && here.are_kept().expect("a record")
        );
        assert_eq!(
            (
                stored(LogFileName::Text).as_str(),
                stored(LogFileName::RawSegment(7)).as_str(),
                stored(LogFileName::Answer).as_str()
            ),
            ("hello", "raw", "")
        );
        // Nothing changes afterwards.
        assert_eq!(
            here.append(LogFileName::Text, 0, b"other")
                .expect("no failure"),
            Some(5)
        );
        assert!(here.accept(Vec::new()).expect("no failure").0.is_complete);
        assert_eq!(stored(LogFileName::Text), "hello");
    }

    #[test]
    fn attempt_without_logs_is_complete() {
        let home = tempfile::tempdir().expect("a directory");
        let logs = logs(home.path());
        assert_eq!(logs.list().expect("a list"), []);
        assert!(
            logs.accept(Vec::new()).expect("completes").0.is_complete
                && logs.are_kept().expect("a record")
        );
    }

    #[test]
    fn list_of_another_machine_is_limited() {
        let file = |start, bytes| LogFileDigest {
            name: LogFileName::TextSegment(start),
            bytes,
            sha256: String::new(),
        };
        assert!(is_plausible(&[file(0, 1), file(1, 1)]));
        assert!(
            !is_plausible(&[file(0, 1), file(0, 1)]),
            "a file is listed once"
        );
        assert!(
            !is_plausible(&[file(0, u64::MAX), file(1, 1)])
                && !is_plausible(&[file(0, FILES_BYTES_MAX + 1)])
        );
        assert!(!is_plausible(
            &(0..=FILES_MAX as u64)
                .map(|start| file(start, 0))
                .collect::<Vec<_>>()
        ));
    }
}
