//! Removes a directory regardless of the modes that an agent has set below it.

use super::SEARCH;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::ffi::OsString;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
#[cfg(not(target_os = "linux"))]
use std::os::unix::ffi::OsStringExt;
#[cfg(target_os = "linux")]
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::{fs, io};

/// Maximum depth of directories that are made writable.
const DEPTH_MAX: u32 = 256;

/// Removes a directory with its content. A missing directory is not an error.
pub fn remove(dir: &Path) -> io::Result<()> {
    let removed = match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            // Directories without write permission, such as those of Go's module cache.
            make_writable(dir)?;
            fs::remove_dir_all(dir)
        }
        removed => removed,
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn make_writable(dir: &Path) -> io::Result<()> {
    let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    make_writable_below(rustix::fs::open(dir, flags, Mode::empty())?, DEPTH_MAX)
}

/// Gives the owner all permissions on a directory and the directories below it. Does not follow
/// links.
fn make_writable_below(dir: OwnedFd, depth: u32) -> io::Result<()> {
    permit_all(&dir)?;
    if depth == 0 {
        return Ok(());
    }
    for name in names(&dir)? {
        let name = name?;
        let stat = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            make_writable_below(
                rustix::fs::openat(&dir, &name, flags, Mode::empty())?,
                depth - 1,
            )?;
        }
    }
    Ok(())
}

/// Gives the owner all permissions on an open directory.
#[cfg(target_os = "linux")]
fn permit_all(dir: &OwnedFd) -> io::Result<()> {
    let path = path_of(dir);
    let mode = path.metadata()?.permissions().mode();
    if mode & 0o700 != 0o700 {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o700))?;
    }
    Ok(())
}

/// Returns the names in an open directory.
#[cfg(target_os = "linux")]
fn names(dir: &OwnedFd) -> io::Result<impl Iterator<Item = io::Result<OsString>>> {
    Ok(fs::read_dir(path_of(dir))?.map(|entry| Ok(entry?.file_name())))
}

/// Returns a path of an open directory. One without read permission can be opened only as a path,
/// and has no other operations.
#[cfg(target_os = "linux")]
fn path_of(dir: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

/// Gives the owner all permissions on an open directory. One without read permission cannot be
/// opened here, and stays.
#[cfg(not(target_os = "linux"))]
fn permit_all(dir: &OwnedFd) -> io::Result<()> {
    let mode = Mode::from_raw_mode(rustix::fs::fstat(dir)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        rustix::fs::fchmod(dir, mode | Mode::RWXU)?;
    }
    Ok(())
}

/// Returns the names in an open directory.
#[cfg(not(target_os = "linux"))]
fn names(dir: &OwnedFd) -> io::Result<impl Iterator<Item = io::Result<OsString>>> {
    let entries = rustix::fs::Dir::read_from(dir)?;
    let name = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
        Ok(OsString::from_vec(entry?.file_name().to_bytes().to_vec()))
    };
    let is_named = |name: &io::Result<OsString>| {
        name.as_ref()
            .map_or(true, |name| name != "." && name != "..")
    };
    Ok(entries.map(name).filter(is_named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_become_writable_and_links_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        fs::create_dir_all(top.join("a/b")).expect("directories");
        fs::create_dir(&outside).expect("a directory");
        fs::write(top.join("a/b/file"), "x").expect("a file");
        std::os::unix::fs::symlink(&outside, top.join("a/link")).expect("a link");
        let close = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode")
        };
        close(&outside, 0o555);
        close(&top.join("a/b"), 0o000);
        close(&top.join("a"), 0o555);
        make_writable(&top).expect("it is made writable");
        for made in ["a", "a/b"] {
            assert_eq!(
                top.join(made)
                    .metadata()
                    .expect("a directory")
                    .permissions()
                    .mode()
                    & 0o700,
                0o700,
                "{made}"
            );
        }
        assert_eq!(
            outside
                .metadata()
                .expect("a directory")
                .permissions()
                .mode()
                & 0o777,
            0o555,
            "behind a link"
        );
        close(&top.join("a"), 0o555);
        remove(&top).expect("it is removed");
        assert!(!top.exists() && outside.exists());
        remove(&top).expect("again");
    }
}
