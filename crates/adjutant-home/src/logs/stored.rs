//! The logs of an ended attempt that were moved to the log store.
//!
//! The names of their objects contain their hashes, so that an upload continues after a crash and
//! never changes what readers read. The last object is the index ([`INDEX`]): it exists only if all
//! others do. `moved.json` in the attempt's directory is a copy of it.
//!
//! ```text
//!  <run-id>/<attempt>/text-<hash>   raw-<hash>   text-times-<hash>   …   index.json
//! ```

use super::kept::{AttemptLogs, is_plausible};
use super::{Map, raw_dir};
use crate::files;
use crate::objects::{ObjectError, Objects};
use crate::protocol::{LogFileDigest, LogFileName};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::{Mutex, PoisonError};

/// The name of the last object.
pub const INDEX: &str = "index.json";
/// Largest index, in bytes.
pub const INDEX_BYTES_MAX: u64 = 64 * 1024;
/// The format of the index and of the record in the home.
const FORMAT: u32 = 1;
/// How many digits of a hash are part of a name.
const HASH_DIGITS: usize = 32;
/// How much of an object is read at once, at first and at most. Each read that continues the last
/// one is larger.
const READ_BYTES_MIN: usize = 256 * 1024;
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The logs of an attempt in the log store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLogs {
    /// The version of this format.
    pub format: u32,
    /// The files, without the maps. Those without bytes have no object.
    pub files: Vec<LogFileDigest>,
    pub text_map: Option<Map>,
    pub raw_map: Option<Map>,
}

/// The record in the home of logs that were moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedLogs {
    /// The log store.
    pub address: String,
    #[serde(flatten)]
    pub logs: StoredLogs,
}

/// Returns the prefix of the objects of an attempt.
#[must_use]
pub fn place(run_id: &str, attempt: u32) -> String {
    format!("{run_id}/{attempt}")
}

/// Returns the name of a file's object, without its place.
#[must_use]
pub fn object_name(file: &LogFileDigest) -> String {
    let kind = match file.name {
        LogFileName::Text => "text".to_owned(),
        LogFileName::TextTimes => "text-times".to_owned(),
        LogFileName::TextMap => "text-map".to_owned(),
        LogFileName::TextSegment(start) => format!("text-from-{start}"),
        LogFileName::Raw => "raw".to_owned(),
        LogFileName::RawTimes => "raw-times".to_owned(),
        LogFileName::RawMap => "raw-map".to_owned(),
        LogFileName::RawSegment(start) => format!("raw-from-{start}"),
        LogFileName::Answer => "answer".to_owned(),
    };
    format!(
        "{kind}-{}",
        file.sha256.get(..HASH_DIGITS).unwrap_or(&file.sha256)
    )
}

impl StoredLogs {
    /// Lists the logs of an ended attempt as they will be stored. Blocks.
    ///
    /// # Errors
    /// A file cannot be read, or they are too large.
    pub fn of(logs: &AttemptLogs) -> io::Result<Self> {
        let is_map =
            |file: &LogFileDigest| matches!(file.name, LogFileName::TextMap | LogFileName::RawMap);
        let files = logs
            .list()?
            .into_iter()
            .filter(|file| !is_map(file))
            .collect();
        Ok(Self {
            format: FORMAT,
            files,
            text_map: Map::read(&logs.dir())?,
            raw_map: Map::read(&raw_dir(&logs.dir()))?,
        })
    }

    /// Parses an index, which another party may have written. `None`: it is invalid.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(bytes)
            .ok()
            .filter(Self::is_usable)
    }

    fn is_usable(&self) -> bool {
        let is_hash = |file: &LogFileDigest| {
            file.sha256.len() == 64 && file.sha256.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        let are_maps = [self.text_map, self.raw_map]
            .iter()
            .flatten()
            .all(Map::is_plausible);
        self.format == FORMAT
            && is_plausible(&self.files)
            && self.files.iter().all(is_hash)
            && are_maps
    }

    /// Returns the files that have objects.
    pub fn with_objects(&self) -> impl Iterator<Item = &LogFileDigest> {
        self.files.iter().filter(|file| file.bytes > 0)
    }

    #[must_use]
    pub fn file(&self, name: LogFileName) -> Option<&LogFileDigest> {
        self.files.iter().find(|file| file.name == name)
    }
}

impl AttemptLogs {
    fn moved_path(&self) -> std::path::PathBuf {
        self.dir().0.join("moved.json")
    }

    /// Reads which logs of the attempt were moved to the log store. `None`: none, as far as this
    /// home knows.
    ///
    /// # Errors
    /// The record cannot be read, or a later version of Adjutant has written it.
    pub fn moved(&self) -> io::Result<Option<MovedLogs>> {
        match files::read(&self.home, &self.moved_path(), INDEX_BYTES_MAX) {
            Ok(bytes) => match serde_json::from_slice::<MovedLogs>(&bytes) {
                Ok(moved) if moved.logs.format > FORMAT => {
                    let path = self.moved_path();
                    Err(io::Error::other(format!(
                        "{} was written by a later version of adj: update this one",
                        path.display()
                    )))
                }
                Ok(moved) => Ok(Some(moved).filter(|moved| moved.logs.is_usable())),
                // The machine may have failed before it was complete.
                Err(_) => Ok(None),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records that the logs are in the log store. Blocks until it is durable.
    ///
    /// # Errors
    /// The disk failed.
    pub fn set_moved(&self, moved: &MovedLogs) -> io::Result<()> {
        files::write_atomically(&self.home, &self.moved_path(), &serde_json::to_vec(moved)?)?;
        files::open(&self.home, &self.moved_path())?.sync_all()?;
        files::sync_dirs(&self.home, &self.dir().0)
    }

    /// Removes the files of logs that are in the log store. The readable log is last, because the
    /// others are found by it. The result stays.
    ///
    /// # Errors
    /// A file remains.
    pub fn remove_moved(&self, stored: &StoredLogs) -> io::Result<()> {
        let maps = [LogFileName::TextMap, LogFileName::RawMap];
        let others = stored
            .files
            .iter()
            .map(|file| file.name)
            .filter(|name| !matches!(name, LogFileName::Text | LogFileName::Answer));
        for name in others.chain(maps).chain([LogFileName::Text]) {
            self.remove_file(name)?;
        }
        Ok(())
    }
}

/// The logs of an attempt, to be read from the log store.
#[derive(Debug, Clone)]
pub struct StoredAttempt {
    pub objects: Objects,
    /// The prefix of its objects.
    pub place: String,
    /// The log store that they were moved to, if this home knows.
    pub moved_to: Option<String>,
    pub logs: StoredLogs,
}

impl StoredAttempt {
    /// Opens a file of the logs. `None`: there is none.
    #[must_use]
    pub fn open(&self, name: LogFileName) -> Option<ObjectFile> {
        let file = self.logs.file(name)?;
        let name = format!("{}/{}", self.place, object_name(file));
        let elsewhere = self
            .moved_to
            .clone()
            .filter(|address| *address != self.objects.address().to_string());
        Some(ObjectFile {
            objects: self.objects.clone(),
            name,
            bytes: file.bytes,
            elsewhere,
            ahead: Mutex::default(),
        })
    }

    /// Reads a whole file of at most `bytes_max` bytes. `None`: it does not exist. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or is larger.
    pub fn read(&self, name: LogFileName, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.open(name) else {
            return Ok(None);
        };
        if file.bytes > bytes_max {
            return Err(io::Error::other(format!(
                "{} is larger than {bytes_max} bytes",
                file.name
            )));
        }
        let mut bytes = vec![0; usize::try_from(file.bytes).map_err(io::Error::other)?];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += file.read_at(&mut bytes[filled..], filled as u64)?;
        }
        Ok(Some(bytes))
    }
}

/// An object that is read in ranges.
#[derive(Debug)]
pub struct ObjectFile {
    objects: Objects,
    name: String,
    pub bytes: u64,
    /// The log store to which it was moved, if that had another address.
    elsewhere: Option<String>,
    /// The last range that was read.
    ahead: Mutex<Ahead>,
}

#[derive(Debug, Default)]
struct Ahead {
    start: u64,
    bytes: Vec<u8>,
}

impl ObjectFile {
    /// Reads bytes at a position, at least one unless it is at the end. Blocks: call it on a thread
    /// of the runtime that may.
    ///
    /// # Errors
    /// The object cannot be read.
    pub fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        if into.is_empty() || at >= self.bytes {
            return Ok(0);
        }
        // Held while the range is read: a stream has one reader.
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there =
            |ahead: &Ahead| at >= ahead.start && at < ahead.start + ahead.bytes.len() as u64;
        if !is_there(&ahead) {
            let continues = !ahead.bytes.is_empty() && at == ahead.start + ahead.bytes.len() as u64;
            let wanted = if continues {
                ahead.bytes.len() * 2
            } else {
                into.len().max(READ_BYTES_MIN)
            };
            let end = self.bytes.min(at + wanted.min(READ_BYTES_MAX) as u64);
            let read = tokio::runtime::Handle::current()
                .block_on(self.objects.get_range(&self.name, at..end));
            *ahead = Ahead {
                start: at,
                bytes: read.map_err(|error| self.unreadable(&error))?,
            };
        }
        let found = &ahead.bytes[usize::try_from(at - ahead.start).map_err(io::Error::other)?..];
        let read = found.len().min(into.len());
        into[..read].copy_from_slice(&found[..read]);
        Ok(read)
    }

    fn unreadable(&self, error: &ObjectError) -> io::Error {
        let elsewhere = self.elsewhere.as_ref().map_or_else(String::new, |address| {
            format!("; the logs were moved to {address}")
        });
        io::Error::other(Unreadable {
            address: self.objects.address().to_string(),
            problem: format!("{error}{elsewhere}"),
        })
    }
}

/// Why an object cannot be read, for the layers between it and the caller.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {problem}")]
pub struct Unreadable {
    pub address: String,
    pub problem: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: LogFileName, bytes: u64) -> LogFileDigest {
        LogFileDigest {
            name,
            bytes,
            sha256: "0123456789abcdef".repeat(4),
        }
    }

    #[test]
    fn names_of_objects_are_different_and_contain_the_hash() {
        let all = [
            LogFileName::Text,
            LogFileName::TextTimes,
            LogFileName::TextSegment(7),
            LogFileName::Raw,
            LogFileName::RawTimes,
            LogFileName::RawSegment(7),
            LogFileName::Answer,
        ];
        let mut names: Vec<String> = all
            .iter()
            .map(|name| object_name(&file(*name, 1)))
            .collect();
        assert_eq!(names[2], "text-from-7-0123456789abcdef0123456789abcdef");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn implausible_index_is_refused() {
        let good = StoredLogs {
            format: FORMAT,
            files: vec![file(LogFileName::Text, 5)],
            text_map: None,
            raw_map: None,
        };
        let parse = |logs: &StoredLogs| StoredLogs::parse(&serde_json::to_vec(logs).expect("JSON"));
        assert_eq!(parse(&good), Some(good.clone()));
        let mut wrong = [good.clone(), good.clone(), good.clone(), good.clone()];
        wrong[0].files[0].sha256 = "../../other".to_owned();
        wrong[1].files[0].bytes = u64::MAX;
        wrong[2].files.push(file(LogFileName::Text, 5));
        wrong[3].format = FORMAT + 1;
        assert!(wrong.iter().all(|logs| parse(logs).is_none()));
        assert_eq!(StoredLogs::parse(b"{}"), None);
    }

    #[test]
    fn record_without_format_and_address_is_read() {
        let home = tempfile::tempdir().expect("a home");
        let logs = AttemptLogs {
            home: home.path().to_owned(),
            run_id: "run".to_owned(),
            attempt: 1,
        };
        files::make_dirs(home.path(), &logs.dir().0).expect("a directory");
        let write = |text: &str| std::fs::write(logs.moved_path(), text).expect("written");
        let hash = "0123456789abcdef".repeat(4);
        let files = format!(
            "\"files\":[{{\"name\":\"text\",\"bytes\":5,\"sha256\":\"{hash}\"}}],\"text_map\":null,\"raw_map\":null"
        );
        write(&format!(
            "{{\"address\":\"file:///logs\",\"format\":1,{files}}}"
        ));
        let stored = StoredLogs {
            format: FORMAT,
            files: vec![file(LogFileName::Text, 5)],
            text_map: None,
            raw_map: None,
        };
        assert_eq!(
            logs.moved().expect("read"),
            Some(MovedLogs {
                address: "file:///logs".to_owned(),
                logs: stored.clone()
            })
        );
        let record = MovedLogs {
            address: "s3://logs".to_owned(),
            logs: stored,
        };
        logs.set_moved(&record).expect("written");
        assert_eq!(logs.moved().expect("read"), Some(record));
        write(&format!(
            "{{\"address\":\"file:///logs\",\"format\":2,{files}}}"
        ));
        assert!(
            logs.moved()
                .is_err_and(|error| error.to_string().contains("later version"))
        );
        write("{");
        assert_eq!(logs.moved().expect("read"), None);
    }
}
