//! The write-ahead log of the database: its preallocation and its checkpoints.

use super::SqliteConnection;
use crate::config::Home;
use crate::files;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A checkpoint is due when the log has this many pages and no call waits.
const CHECKPOINT_PAGES: u32 = 1000;
/// A checkpoint is due at this many pages even if calls wait. They wait for it, so under load it is
/// rare.
const CHECKPOINT_PAGES_BUSY: u32 = 4000;
/// The preallocated size of the log: the pages before a checkpoint without load, plus those of the
/// commit that makes it due. Under load the log grows once, and keeps its size.
pub(in crate::store) const PREALLOCATED_BYTES: u64 =
    32 + (CHECKPOINT_PAGES as u64 + 100) * (24 + 4096);

/// The log as the writer uses it. Checkpoints run between transactions, after the replies: SQLite's
/// own ones run within a commit, so its callers would wait for them.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The number of pages in the log after the last commit.
    pages: Arc<AtomicU32>,
}

impl Log {
    /// Returns the counter, which the connection sets after each commit.
    pub(super) fn pages(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.pages)
    }

    /// Runs a checkpoint if one is due. A failure, such as a full disk, leaves the log as it is.
    pub(super) fn checkpoint(&self, connection: &SqliteConnection, is_idle: bool) {
        if !is_checkpoint_due(self.pages.load(Ordering::Relaxed), is_idle) {
            return;
        }
        // Counted again by the next commit, which overwrites the log or, if a reader needs it,
        // appends to it.
        self.pages.store(0, Ordering::Relaxed);
        let checkpoint = connection
            .prepare("PRAGMA wal_checkpoint(PASSIVE)")
            .and_then(|mut run| run.query([])?.next().map(|_| ()));
        if let Err(error) = checkpoint {
            tracing::debug!(%error, "the checkpoint failed; a later one follows");
        }
    }
}

fn is_checkpoint_due(pages: u32, is_idle: bool) -> bool {
    pages
        >= if is_idle {
            CHECKPOINT_PAGES
        } else {
            CHECKPOINT_PAGES_BUSY
        }
}

/// Extends the write-ahead log to its full size, so that a commit overwrites existing blocks and
/// the file system need not record a new size. SQLite ignores the zeros after the last frame.
pub(in crate::store) fn preallocate(home: &Home) {
    if let Err(error) = lengthen(home) {
        tracing::warn!(%error, "the write-ahead log cannot be preallocated");
    }
}

fn lengthen(home: &Home) -> std::io::Result<()> {
    // SQLite's locks are on other files.
    let mut log = files::open_writable(&home.dir, &home.database_log())?;
    let end = log.seek(SeekFrom::End(0))?;
    let zeros = vec![0; usize::try_from(PREALLOCATED_BYTES.saturating_sub(end)).unwrap_or(0)];
    let written = log.write_all(&zeros);
    if written.is_err() {
        log.set_len(end)?;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::open::writable;

    #[test]
    fn checkpoint_waits_for_an_idle_writer_up_to_a_limit() {
        assert!(
            !is_checkpoint_due(CHECKPOINT_PAGES - 1, true)
                && is_checkpoint_due(CHECKPOINT_PAGES, true)
        );
        assert!(
            !is_checkpoint_due(CHECKPOINT_PAGES_BUSY - 1, false)
                && is_checkpoint_due(CHECKPOINT_PAGES_BUSY, false)
        );
    }

    #[test]
    fn log_is_overwritten_after_a_checkpoint() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(&dir.path().join("home")).expect("a home");
        home.ensure().expect("a home");
        let connection = writable(&home).expect("it opens");
        connection
            .execute_batch("CREATE TABLE filler (text TEXT)")
            .expect("a table");
        let length = || {
            std::fs::metadata(home.database_log())
                .expect("there is a log")
                .len()
        };
        let fill = |pages: u32| {
            connection
                .execute(
                    "INSERT INTO filler VALUES (?1)",
                    [".".repeat(pages as usize * 4096)],
                )
                .expect("a commit");
        };
        // Without load, the log stays within its preallocated size.
        for _ in 0..40 {
            fill(90);
            connection.maintain(true);
        }
        assert_eq!(length(), PREALLOCATED_BYTES);
        // Under load it grows to a limit.
        for _ in 0..100 {
            fill(90);
            connection.maintain(false);
        }
        let limit = u64::from(CHECKPOINT_PAGES_BUSY + 100) * (24 + 4096);
        assert!(
            length() > PREALLOCATED_BYTES && length() <= limit,
            "{}",
            length()
        );
        let intact: String = connection
            .read_row("PRAGMA integrity_check", [])
            .expect("a check");
        assert_eq!(intact, "ok");
    }
}
