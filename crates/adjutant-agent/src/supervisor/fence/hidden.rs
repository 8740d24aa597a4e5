//! What a fence hides, and which hidden paths a run needs nevertheless.

use super::places::{Places, PlanError};
use super::secrets::{browser_profiles, sockets};
use crate::process::fence::PrivateDir;
use crate::protocol::FenceOrder;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Directories in which the machine's services listen. Paths needed to resolve names and find
/// programs stay visible.
const SERVICES: [&str; 2] = ["/run", "/var/run"];

/// The hidden directories and files.
#[derive(Debug)]
pub(super) struct Hidden {
    pub dirs: Vec<PathBuf>,
    pub files: Vec<PathBuf>,
}

impl Hidden {
    /// Finds what is hidden from a run that can write `writable`.
    ///
    /// # Errors
    /// The sockets of the user's services cannot be listed.
    pub(super) fn find(
        fence: &FenceOrder,
        places: &Places,
        writable: &BTreeSet<PathBuf>,
    ) -> Result<Self, PlanError> {
        let services = SERVICES
            .map(PathBuf::from)
            .into_iter()
            .filter(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir()));
        let (hidden_dirs, hidden_files): (Vec<_>, Vec<_>) = fence
            .hidden
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .partition(|path| path.is_dir());
        let user_home = || places.user_home.iter();
        let profiles = user_home()
            .flat_map(|user_home| browser_profiles(user_home))
            .filter(|path| !is_worked_in(path, writable));
        let dirs: Vec<PathBuf> = services
            .chain([places.home.clone()])
            .chain(hidden_dirs)
            .chain(profiles)
            .filter(|path| path.is_dir())
            .collect();
        let sockets = user_home()
            .map(|user_home| sockets(user_home))
            .collect::<io::Result<Vec<_>>>()?;
        let sockets = sockets
            .into_iter()
            .flatten()
            .filter(|path| !is_worked_in(path, writable));
        let files = hidden_files
            .into_iter()
            .chain(sockets)
            .filter(|path| !is_below_any(path, &dirs))
            .collect();
        Ok(Self { dirs, files })
    }
}

/// Returns whether the run works in a directory, which is then not hidden from it.
fn is_worked_in(path: &Path, writable: &BTreeSet<PathBuf>) -> bool {
    writable
        .iter()
        .any(|dir| dir.starts_with(path) || path.starts_with(dir))
}

/// Returns whether a path is one of `dirs` or below one.
pub(super) fn is_below_any<'a>(path: &Path, dirs: impl IntoIterator<Item = &'a PathBuf>) -> bool {
    dirs.into_iter().any(|dir| path.starts_with(dir))
}

/// The directories that appear empty or replaced to a run, and what it can write below them.
#[derive(Debug)]
pub(super) struct Covers<'a> {
    pub hidden: &'a [PathBuf],
    pub private: &'a [PrivateDir],
    pub shared_memory: &'a Path,
    pub writable: &'a BTreeSet<PathBuf>,
    pub home: &'a Path,
}

impl Covers<'_> {
    /// Returns the path without links that has to be made visible, so that a run can read `path`.
    pub(super) fn needed(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize()
            .ok()
            .filter(|real| self.needs(path, real))
    }

    /// Returns whether a run needs `real`, to which `path` leads.
    fn needs(&self, path: &Path, real: &Path) -> bool {
        let is_covered = self
            .dirs()
            .any(|cover| real != cover && real.starts_with(cover));
        // A link that the agent has made must not lead to something that is hidden.
        let is_below_one_cover = self
            .dirs()
            .any(|cover| path.starts_with(cover) && real.starts_with(cover));
        is_covered
            && is_below_one_cover
            && !is_below_any(real, self.writable)
            && !real.starts_with(self.home)
    }

    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.hidden
            .iter()
            .map(PathBuf::as_path)
            .chain(self.private.iter().map(|private| private.at.as_path()))
            .chain([self.shared_memory])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hidden_paths_are_made_visible_and_never_by_a_link_of_the_agent() {
        let hidden = ["/run", "/home/u/.mozilla", "/home/u/state"].map(PathBuf::from);
        let private = [PrivateDir {
            at: "/tmp".into(),
            source: "/home/u/state/runs/r/tmp".into(),
        }];
        let writable = BTreeSet::from([PathBuf::from("/tmp/build/workspace")]);
        let covers = Covers {
            hidden: &hidden,
            private: &private,
            shared_memory: Path::new("/dev/shm"),
            writable: &writable,
            home: Path::new("/home/u/state"),
        };
        let needs = |path: &str, real: &str| covers.needs(Path::new(path), Path::new(real));
        assert!(needs("/run/nscd", "/run/nscd"));
        assert!(needs("/tmp/tools/bin", "/tmp/tools/bin"));
        assert!(needs("/dev/shm/tools", "/dev/shm/tools"));
        // Not covered, or the cover itself.
        assert!(!needs("/usr/bin", "/usr/bin"));
        assert!(!needs("/run", "/run"));
        // Visible already, because the run can write it.
        assert!(!needs(
            "/tmp/build/workspace/bin",
            "/tmp/build/workspace/bin"
        ));
        // Adjutant's home.
        assert!(!needs("/home/u/state/runs", "/home/u/state/runs"));
        // From a writable directory, or from one cover into another.
        assert!(!needs("/home/u/p/bin", "/home/u/.mozilla/profile"));
        assert!(!needs("/tmp/bin", "/home/u/.mozilla/profile"));
    }

    #[test]
    fn directories_around_and_below_what_is_written_are_worked_in() {
        let writable = BTreeSet::from([PathBuf::from("/home/u/p/work")]);
        for worked_in in ["/home/u/p", "/home/u/p/work", "/home/u/p/work/.zen"] {
            assert!(is_worked_in(Path::new(worked_in), &writable), "{worked_in}");
        }
        assert!(!is_worked_in(Path::new("/home/u/.mozilla"), &writable));
    }
}
