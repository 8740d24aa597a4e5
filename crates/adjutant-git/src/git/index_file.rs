//! The file of an index: copies of it, and its state.

use crate::files;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies one state of an index file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IndexStamp(Option<[i64; 5]>);

impl IndexStamp {
    pub(super) fn of(path: &Path) -> Self {
        let meta = path.symlink_metadata().ok();
        Self(meta.map(|meta| {
            [
                meta.ino().cast_signed(),
                meta.size().cast_signed(),
                meta.mtime(),
                meta.mtime_nsec(),
                meta.ctime_nsec(),
            ]
        }))
    }
}

/// Replaces `to`, below `home`, with a copy of an index atomically.
pub(super) fn save_index(home: &Path, from: &Path, to: &Path) -> io::Result<()> {
    // Two snapshots of one workspace may be taken at the same time, as by a merge after a turn.
    static SAVED: AtomicU64 = AtomicU64::new(0);
    let new = to.with_extension(format!(
        "new-{}-{}",
        std::process::id(),
        SAVED.fetch_add(1, Ordering::Relaxed)
    ));
    let saved = || {
        let mut copy = files::replace(home, &new)?;
        let mut from = File::open(from)?;
        io::copy(&mut from, &mut copy)?;
        copy.set_times(fs::FileTimes::new().set_modified(from.metadata()?.modified()?))?;
        fs::rename(&new, to)
    };
    saved().inspect_err(|error| {
        // The disk may be full.
        if let Err(left) = fs::remove_file(&new) {
            tracing::debug!(%error, %left, path = %new.display(), "a part of an index is left");
        }
    })
}

/// Copies an index with its modification time. git compares it with the times of files to find
/// those that it must read.
pub(super) fn copy_index(mut from: File, to: &Path) -> io::Result<()> {
    let mut to = File::create(to)?;
    io::copy(&mut from, &mut to)?;
    let modified = from.metadata()?.modified()?;
    to.set_times(fs::FileTimes::new().set_modified(modified))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_saved_at_the_same_time_are_whole() {
        let home = tempfile::tempdir().expect("a directory");
        let to = home.path().join(".index");
        let whole = |writer: u8| vec![writer; 64 * 1024];
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (home, to) = (home.path(), &to);
                let from = home.join(format!("from-{writer}"));
                fs::write(&from, whole(writer)).expect("written");
                scope.spawn(move || {
                    for _ in 0..100 {
                        save_index(home, &from, to).expect("it is saved");
                        let read = fs::read(to).expect("it is there");
                        assert!(read == whole(read[0]), "it is torn");
                    }
                });
            }
        });
        let missing = home.path().join("missing");
        assert!(
            save_index(home.path(), &missing, &to)
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        );
        let left = fs::read_dir(home.path())
            .expect("the directory")
            .filter_map(Result::ok)
            .map(|entry| entry.file_name());
        assert!(
            !left
                .into_iter()
                .any(|name| name.to_string_lossy().contains("new-")),
            "a temporary file is left"
        );
    }
}
