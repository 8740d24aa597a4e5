//! The map of a log: how its stream is laid out in files.

use super::STREAM_BYTES_MAX;
use crate::files;
use crate::protocol::AttemptDir;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

const MAP_BYTES_MAX: u64 = 64 * 1024;

/// The layout of the stream in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// How much of the stream's beginning the log file contains at most, until it is merged.
    pub head_bytes_max: u64,
    /// Set once the segments were appended to the log file.
    pub merged: Option<Merged>,
}

/// The parts of a merged log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    pub head_bytes: u64,
    /// Bytes omitted after the head.
    pub omitted_bytes: u64,
    /// Length of the line in the file that reports them.
    pub marker_bytes: u64,
    /// Length of the stream.
    pub total_bytes: u64,
}

impl Map {
    /// Reads an attempt's map. `None`: there is no output yet.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn read(dir: &AttemptDir) -> io::Result<Option<Self>> {
        match files::read(dir.home(), &path(dir), MAP_BYTES_MAX) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)
                .ok()
                .filter(Self::is_plausible)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces an attempt's map.
    ///
    /// # Errors
    /// The map cannot be written; the old one then remains.
    pub fn write(&self, dir: &AttemptDir) -> io::Result<()> {
        files::write_atomically(dir.home(), &path(dir), &serde_json::to_vec(self)?)
    }

    /// Returns whether positions can be computed with the map, since the run's processes could have
    /// written it.
    pub(super) fn is_plausible(&self) -> bool {
        self.merged.is_none_or(
            |Merged {
                 head_bytes,
                 omitted_bytes,
                 marker_bytes,
                 total_bytes,
             }| {
                [head_bytes, omitted_bytes, marker_bytes, total_bytes]
                    .iter()
                    .all(|bytes| *bytes <= STREAM_BYTES_MAX)
            },
        )
    }
}

pub(super) fn path(dir: &AttemptDir) -> PathBuf {
    dir.0.join("log.json")
}

/// Returns the line that replaces the omitted bytes.
#[must_use]
pub fn marker(omitted_bytes: u64) -> String {
    format!("\n[adj: {omitted_bytes} bytes of output are left out here]\n")
}
