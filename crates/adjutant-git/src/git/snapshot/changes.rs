//! The operations that bring an index to the state of a tree, and the files that a snapshot leaves
//! out.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum size of a file in a snapshot, in bytes. Larger files are left out.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum total size of the files that one snapshot adds, in bytes.
const ADDED_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Maximum number of left-out files that a snapshot names.
const LEFT_OUT_NAMED_MAX: usize = 20;

/// The paths that a snapshot leaves out, each with the reason.
pub(in crate::git) type LeftOut = Vec<(Vec<u8>, String)>;

/// Returns the left-out paths, quoted, each with its reason. The last entry can be the number of
/// further paths.
pub(in crate::git) fn named(left_out: &LeftOut) -> Vec<String> {
    let quoted =
        |(path, why): &(Vec<u8>, String)| format!("{:?} ({why})", String::from_utf8_lossy(path));
    let mut named: Vec<String> = left_out
        .iter()
        .take(LEFT_OUT_NAMED_MAX)
        .map(quoted)
        .collect();
    let more = left_out
        .len()
        .checked_sub(LEFT_OUT_NAMED_MAX)
        .filter(|more| *more > 0);
    named.extend(more.map(|more| format!("{more} more")));
    named
}

/// The operations for the paths that differ from the index.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) to_read: Vec<Vec<u8>>,
    /// Nested repositories that an index can name.
    pub(super) repositories: Vec<Vec<u8>>,
    pub(super) to_remove: Vec<Vec<u8>>,
    pub(super) left_out: LeftOut,
    /// Those of `left_out` that are directories with too many untracked files.
    pub(super) crowded: LeftOut,
    /// Whether a nested repository is among the paths.
    pub(super) has_repository: bool,
    added_bytes: u64,
    /// Whether paths are directories, by their paths from the top. A cache.
    directories: HashMap<PathBuf, bool>,
}

impl Changes {
    /// Returns all paths whose entries in the index change.
    pub(super) fn paths(&self) -> HashSet<Vec<u8>> {
        self.to_read
            .iter()
            .chain(&self.repositories)
            .chain(&self.to_remove)
            .cloned()
            .collect()
    }

    pub(super) fn add(&mut self, top: &Path, path: &[u8]) {
        let relative = Path::new(OsStr::from_bytes(path));
        // A path below a symbolic link, or below something that is not a directory any more, is not
        // in the tree.
        if !relative
            .parent()
            .is_none_or(|parent| self.is_directory(top, parent))
        {
            return self.to_remove.push(path.to_owned());
        }
        let full = top.join(relative);
        let meta = match full.symlink_metadata() {
            Ok(meta) => meta,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return self.to_remove.push(path.to_owned());
            }
            Err(_) => return self.leave_out(path, "unreadable"),
        };
        if meta.is_dir() {
            // A nested repository is not read, because its configuration is not trusted.
            if full.join(".git").symlink_metadata().is_ok() {
                self.has_repository = true;
                if path.ends_with(b"/") {
                    self.leave_out(path, "a nested repository");
                } else {
                    self.repositories.push(path.to_owned());
                }
                return;
            }
            return self.to_remove.push(path.to_owned());
        }
        if meta.is_symlink() {
            return self.to_read.push(path.to_owned());
        }
        if !meta.is_file() {
            return self.leave_out(path, "not a regular file");
        }
        if meta.size() > FILE_BYTES_MAX {
            return self.leave_out(path, &format!("{} bytes", meta.size()));
        }
        if self.added_bytes + meta.size() > ADDED_BYTES_MAX {
            return self.leave_out(path, "too much for one snapshot");
        }
        if rustix::fs::access(&full, rustix::fs::Access::READ_OK).is_err() {
            return self.leave_out(path, "unreadable");
        }
        self.added_bytes += meta.size();
        self.to_read.push(path.to_owned());
    }

    /// Returns whether a path and its parents up to the top are directories and not symbolic links.
    /// An unreadable one counts as a directory.
    fn is_directory(&mut self, top: &Path, path: &Path) -> bool {
        if path.as_os_str().is_empty() {
            return true;
        }
        if let Some(known) = self.directories.get(path) {
            return *known;
        }
        let is_directory = path
            .parent()
            .is_none_or(|parent| self.is_directory(top, parent))
            && match top.join(path).symlink_metadata() {
                Ok(meta) => meta.is_dir(),
                Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
            };
        self.directories.insert(path.to_owned(), is_directory);
        is_directory
    }

    fn leave_out(&mut self, path: &[u8], why: &str) {
        self.left_out.push((path.to_owned(), why.to_owned()));
    }
}
