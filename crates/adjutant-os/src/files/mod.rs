//! Opens files that another party could have replaced: a run's processes can write below the home,
//! and another user can prepare a home.
//!
//! A path below a base directory is opened without following a symbolic link in any of its parts,
//! without blocking, and only as a regular file of this user. Reads are bounded. The path of the
//! base itself may contain links, because the user has named it.
//!
//! ```text
//!  base (followed) / directories (never followed) / name (never followed) → regular, ours, bounded
//! ```

mod file_system;
mod inside;
mod removal;

pub use file_system::FileSystem;
pub use inside::{for_reading, open_inside};
pub use removal::remove as remove_dir;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// How often a step is repeated if a concurrent rename or new file interferes.
const TRIES_MAX: usize = 32;

/// Why a path cannot be used. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("{path} is {found}, not a regular file")]
    NotRegular { path: PathBuf, found: &'static str },
    #[error("{path} is {found}, not a directory")]
    NotADirectory { path: PathBuf, found: &'static str },
    #[error("{path} belongs to another user (uid {uid})")]
    Foreign { path: PathBuf, uid: u32 },
    #[error("{path} is larger than {bytes_max} bytes")]
    TooLarge { path: PathBuf, bytes_max: u64 },
    #[error("{path} cannot be opened: permission denied")]
    Denied { path: PathBuf },
}

impl From<Unusable> for io::Error {
    fn from(unusable: Unusable) -> Self {
        Self::new(io::ErrorKind::InvalidData, unusable)
    }
}

/// Returns the [`Unusable`] in an error, if that is its cause.
#[must_use]
pub fn unusable(error: &io::Error) -> Option<&Unusable> {
    error.get_ref()?.downcast_ref()
}

/// Opens a file below `base` for reading.
///
/// # Errors
/// The file does not exist, it is [`Unusable`], or the kernel refuses.
pub fn open(base: &Path, path: &Path) -> io::Result<File> {
    PathBelow::of(base, path)?.open(OFlags::RDONLY)
}

/// Opens a file below `base` for reading and writing, and creates it if missing (0600).
///
/// # Errors
/// As [`open`].
pub fn open_or_create(base: &Path, path: &Path) -> io::Result<File> {
    PathBelow::of(base, path)?.open(OFlags::RDWR | OFlags::CREATE)
}

/// Opens a file below `base` for reading and writing.
///
/// # Errors
/// As [`open`].
pub fn open_writable(base: &Path, path: &Path) -> io::Result<File> {
    PathBelow::of(base, path)?.open(OFlags::RDWR)
}

/// Opens a file below `base` for appending, and creates it if missing (0600).
///
/// # Errors
/// As [`open`].
pub fn open_for_append(base: &Path, path: &Path) -> io::Result<File> {
    PathBelow::of(base, path)?.open(OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
}

/// Creates a new file below `base` (0600), for reading and writing.
///
/// # Errors
/// `AlreadyExists`, or as [`open`].
pub fn create_new(base: &Path, path: &Path) -> io::Result<File> {
    PathBelow::of(base, path)?.open(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
}

/// Creates a new, empty file below `base` (0600), for reading and writing. An existing file is
/// removed first; a directory is not.
///
/// # Errors
/// As [`open`].
pub fn replace(base: &Path, path: &Path) -> io::Result<File> {
    PathBelow::of(base, path)?.replace()
}

/// Replaces the content of a file below `base` atomically: a reader sees either the old or the new
/// content.
///
/// # Errors
/// As [`open`]; the old file then remains.
pub fn write_atomically(base: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let place = PathBelow::of(base, path)?;
    let with_ending =
        |name: &OsStr| -> OsString { [name, OsStr::new(".new")].into_iter().collect() };
    let new = PathBelow {
        name: with_ending(&place.name),
        path: with_ending(path.as_os_str()).into(),
        dir: place.dir.try_clone()?,
    };
    new.replace()?.write_all(bytes)?;
    rustix::fs::renameat(&new.dir, &new.name, &place.dir, &place.name)
        .map_err(|error| place.explain(error))
}

/// Reads a whole file below `base`, of at most `bytes_max` bytes.
///
/// # Errors
/// As [`open`].
pub fn read(base: &Path, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_bounded(open(base, path)?, path, bytes_max)
}

/// Reads a whole file that the user has named. Links are followed. It must be a regular file of
/// this user or root, of at most `bytes_max` bytes.
///
/// # Errors
/// As [`open`].
pub fn read_named(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open_named(path)?;
    let uid = rustix::fs::fstat(&file)?.st_uid;
    if uid != 0 && uid != own_uid() {
        return Err(Unusable::Foreign {
            path: path.to_owned(),
            uid,
        }
        .into());
    }
    read_bounded(file, path, bytes_max)
}

/// Opens a regular file that the user, or a user's directory, names. Links are followed.
///
/// # Errors
/// As [`open`], but the file may belong to any user.
pub fn open_named(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| at(path, error))?;
    let mode = rustix::fs::fstat(&fd)?.st_mode;
    if !is_regular(mode) {
        return Err(Unusable::NotRegular {
            path: path.to_owned(),
            found: kind(mode),
        }
        .into());
    }
    Ok(fd.into())
}

fn read_bounded(file: File, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Unusable::TooLarge {
            path: path.to_owned(),
            bytes_max,
        }
        .into());
    }
    Ok(bytes)
}

/// Metadata of the entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub is_regular: bool,
    pub bytes: u64,
}

/// Returns the metadata of a path below `base`, without opening it. `None`: it does not exist.
///
/// # Errors
/// A directory in the path is [`Unusable`], or the kernel refuses.
pub fn look(base: &Path, path: &Path) -> io::Result<Option<Found>> {
    let place = match PathBelow::of(base, path) {
        Ok(place) => place,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(Found {
            is_regular: is_regular(stat.st_mode),
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
        })),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(place.explain(error)),
    }
}

/// Removes the permissions of other users from a file below `base`, without opening it.
///
/// # Errors
/// The file is [`Unusable`], or the kernel refuses. A missing file is not an error.
pub fn make_private(base: &Path, path: &Path) -> io::Result<()> {
    let place = PathBelow::of(base, path)?;
    let stat = match rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(at(path, error)),
    };
    place.check(stat.st_mode, stat.st_uid)?;
    if stat.st_mode & 0o077 != 0 {
        rustix::fs::chmodat(
            &place.dir,
            &place.name,
            Mode::RUSR | Mode::WUSR,
            AtFlags::empty(),
        )
        .map_err(|error| at(path, error))?;
    }
    Ok(())
}

/// Renames a file below `base` within its directory, replacing an existing file.
///
/// # Errors
/// As [`open`].
pub fn rename(base: &Path, path: &Path, name: &OsStr) -> io::Result<()> {
    let place = PathBelow::of(base, path)?;
    rustix::fs::renameat(&place.dir, &place.name, &place.dir, name)
        .map_err(|error| place.explain(error))
}

/// Returns whether a path below `base` names the open file `file`.
#[must_use]
pub fn is_same(base: &Path, path: &Path, file: impl AsFd) -> bool {
    let named = PathBelow::of(base, path).ok().and_then(|place| {
        rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW).ok()
    });
    match (named, rustix::fs::fstat(file)) {
        (Some(named), Ok(opened)) => (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino),
        _ => false,
    }
}

/// Opens a directory below `base`.
///
/// # Errors
/// As [`open`], for a directory.
pub fn open_dir(base: &Path, path: &Path) -> io::Result<OwnedFd> {
    open_dir_as(base, path, OFlags::RDONLY)
}

/// Creates a directory below `base` (0700) and its missing parents.
///
/// # Errors
/// As [`open`], for a directory.
pub fn make_dirs(base: &Path, path: &Path) -> io::Result<()> {
    let mut dir = open_base(base)?;
    let mut at = base.to_owned();
    for part in below(base, path)?.components() {
        let Component::Normal(name) = part else {
            return Err(outside(base, path));
        };
        at.push(name);
        match rustix::fs::mkdirat(&dir, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(explain(&dir, name, &at, error)),
        }
        dir = open_step(&dir, name, DIR_FLAGS)
            .map_err(|error| explain_dir(&dir, name, &at, error))?;
    }
    Ok(())
}

/// Syncs a directory below `base` and all directories between them.
///
/// # Errors
/// As [`open`], for a directory.
pub fn sync_dirs(base: &Path, path: &Path) -> io::Result<()> {
    for dir in path
        .ancestors()
        .take_while(|dir| dir.starts_with(base) && *dir != base)
    {
        rustix::fs::fsync(open_dir(base, dir)?).map_err(|error| at(dir, error))?;
    }
    Ok(())
}

/// Syncs everything that was written to the file system of an open file or directory. It can take
/// seconds.
///
/// # Errors
/// The kernel refuses, or something could not be written.
pub fn sync_file_system(on_it: impl AsFd) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::fs::syncfs(on_it)?);
    #[cfg(not(target_os = "linux"))]
    {
        rustix::fs::sync();
        Ok(rustix::fs::fsync(on_it)?)
    }
}

/// Allocates space beyond the end of a file, whose size does not change.
///
/// # Errors
/// The disk is full, or its file system cannot allocate space.
#[cfg(target_os = "linux")]
pub fn allocate_beyond_end(file: &File, bytes: u64) -> io::Result<()> {
    let end = file.metadata()?.len();
    Ok(rustix::fs::fallocate(
        file,
        rustix::fs::FallocateFlags::KEEP_SIZE,
        end,
        bytes,
    )?)
}

/// Does nothing: another file can take the space here.
///
/// # Errors
/// Never.
#[cfg(not(target_os = "linux"))]
pub fn allocate_beyond_end(_file: &File, _bytes: u64) -> io::Result<()> {
    Ok(())
}

/// Returns the mode with these bits.
#[cfg(target_os = "linux")]
#[must_use]
pub fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// Returns the mode with these bits, which are fewer here.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(RawMode::try_from(bits & 0o7777).unwrap_or_default())
}

/// A name in a directory that was opened without following a link.
#[derive(Debug)]
struct PathBelow {
    dir: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl PathBelow {
    fn of(base: &Path, path: &Path) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(outside(base, path));
        };
        Ok(Self {
            dir: open_dir_as(base, parent, SEARCH)?,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    fn open(&self, how: OFlags) -> io::Result<File> {
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, &self.name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| self.explain(error))?;
        let stat = rustix::fs::fstat(&fd)?;
        self.check(stat.st_mode, stat.st_uid)?;
        Ok(fd.into())
    }

    fn check(&self, mode: RawMode, uid: u32) -> io::Result<()> {
        if !is_regular(mode) {
            return Err(Unusable::NotRegular {
                path: self.path.clone(),
                found: kind(mode),
            }
            .into());
        }
        if uid != own_uid() {
            return Err(Unusable::Foreign {
                path: self.path.clone(),
                uid,
            }
            .into());
        }
        Ok(())
    }

    fn replace(&self) -> io::Result<File> {
        for _ in 0..TRIES_MAX {
            match self.open(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(error) => return Err(self.explain(error)),
                    }
                }
                opened => return opened,
            }
        }
        Err(io::Error::other(format!(
            "{}: it reappears whenever it is removed",
            self.path.display()
        )))
    }

    fn explain(&self, error: Errno) -> io::Error {
        explain(&self.dir, &self.name, &self.path, error)
    }
}

#[cfg(target_os = "linux")]
pub(crate) const SEARCH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
pub(crate) const SEARCH: OFlags = OFlags::RDONLY;
const DIR_FLAGS: OFlags = SEARCH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_base(base: &Path) -> io::Result<OwnedFd> {
    rustix::fs::open(base, DIR_FLAGS, Mode::empty()).map_err(|error| at(base, error))
}

fn open_dir_as(base: &Path, path: &Path, access: OFlags) -> io::Result<OwnedFd> {
    let relative = below(base, path)?;
    let dir = open_base(base)?;
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if relative.as_os_str().is_empty() {
        return if access == SEARCH {
            Ok(dir)
        } else {
            open_step(&dir, OsStr::new("."), flags).map_err(|error| at(path, error))
        };
    }
    match open_below(&dir, relative, flags) {
        // The kernel has no `openat2`, or a sandbox forbids it.
        Err(Errno::NOSYS | Errno::PERM) => {}
        opened => return opened.map_err(|error| explain_open_error(&dir, base, relative, error)),
    }
    open_by_steps(&dir, relative, flags)
        .map_err(|error| explain_open_error(&dir, base, relative, error))
}

/// Opens a path in one system call that follows no link and stays below the directory.
#[cfg(target_os = "linux")]
fn open_below(dir: &OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    for _ in 0..TRIES_MAX {
        match rustix::fs::openat2(dir, relative, flags, Mode::empty(), resolve) {
            // A concurrent rename.
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

#[cfg(not(target_os = "linux"))]
fn open_below(_dir: &OwnedFd, _relative: &Path, _flags: OFlags) -> Result<OwnedFd, Errno> {
    Err(Errno::NOSYS)
}

/// Opens a path part by part, without following links.
fn open_by_steps(dir: &OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut at: Option<OwnedFd> = None;
    for part in relative.components() {
        let Component::Normal(name) = part else {
            return Err(Errno::XDEV);
        };
        at = Some(open_step(at.as_ref().unwrap_or(dir), name, flags)?);
    }
    at.ok_or(Errno::INVAL)
}

fn open_step(dir: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty())
}

fn below<'a>(base: &Path, path: &'a Path) -> io::Result<&'a Path> {
    path.strip_prefix(base).map_err(|_| outside(base, path))
}

fn outside(base: &Path, path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{} is not below {}", path.display(), base.display()),
    )
}

/// Returns an error that names the offending part of a directory's path.
fn explain_open_error(dir: &OwnedFd, base: &Path, relative: &Path, error: Errno) -> io::Error {
    let mut at: Option<OwnedFd> = None;
    let mut path = base.to_owned();
    for part in relative.components() {
        let Component::Normal(name) = part else {
            return outside(base, &base.join(relative));
        };
        path.push(name);
        let above = at.as_ref().unwrap_or(dir);
        match open_step(above, name, DIR_FLAGS) {
            Ok(opened) => at = Some(opened),
            Err(error) => return explain_dir(above, name, &path, error),
        }
    }
    explain_dir(dir, relative.as_os_str(), &path, error)
}

fn explain_dir(dir: &OwnedFd, name: &OsStr, path: &Path, error: Errno) -> io::Error {
    match (error, found_at(dir, name)) {
        (Errno::LOOP | Errno::NOTDIR, Some(found)) => Unusable::NotADirectory {
            path: path.to_owned(),
            found,
        }
        .into(),
        _ => at(path, error),
    }
}

/// Returns an error that names the type of a file, if the type is why it could not be opened.
fn explain(dir: &OwnedFd, name: &OsStr, path: &Path, error: Errno) -> io::Error {
    match (error, found_at(dir, name)) {
        (Errno::LOOP | Errno::NXIO | Errno::ISDIR | Errno::NOTDIR, Some(found)) => {
            Unusable::NotRegular {
                path: path.to_owned(),
                found,
            }
            .into()
        }
        _ => at(path, error),
    }
}

fn found_at(dir: &OwnedFd, name: &OsStr) -> Option<&'static str> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .ok()
        .map(|stat| kind(stat.st_mode))
}

fn at(path: &Path, error: Errno) -> io::Error {
    if error == Errno::ACCESS {
        return Unusable::Denied {
            path: path.to_owned(),
        }
        .into();
    }
    // Callers recognize a shortage by its error number, which an error with a message would lose.
    if is_shortage(&error.into()) {
        return error.into();
    }
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Resolves the links of the part of a path that exists. Returns it with the part itself.
#[must_use]
pub fn existing_part(file: &Path) -> Option<(PathBuf, &Path)> {
    let mut there = file;
    loop {
        match (there.canonicalize(), there.parent()) {
            (Ok(real), _) => return Some((real, there)),
            (Err(_), Some(above)) if !there.is_symlink() => there = above,
            _ => return None,
        }
    }
}

/// Returns a path with its links resolved. Its last parts need not exist.
#[must_use]
pub fn real_path(file: &Path) -> Option<String> {
    let (real, there) = existing_part(file)?;
    let rest = file.strip_prefix(there).ok()?;
    let is_plain = rest
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    is_plain
        .then(|| {
            real.join(rest)
                .to_str()
                .map(|path| path.trim_end_matches('/').to_owned())
        })
        .flatten()
}

/// Returns whether the machine is temporarily short of descriptors, memory, processes or disk
/// space.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    const SHORTAGES: [Errno; 6] = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::AGAIN,
        Errno::NOMEM,
        Errno::NOSPC,
        Errno::DQUOT,
    ];
    Errno::from_io_error(error).is_some_and(|errno| SHORTAGES.contains(&errno))
}

/// Returns whether an error means that the disk is full or read-only.
#[must_use]
pub fn is_unwritable(error: &io::Error) -> bool {
    const CAUSES: [Errno; 3] = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS];
    Errno::from_io_error(error).is_some_and(|errno| CAUSES.contains(&errno))
}

/// Returns whether the message of a program such as git names a full disk. It reports no error
/// number.
#[must_use]
pub fn names_full_disk(message: &str) -> bool {
    [
        "No space left on device",
        "Disk quota exceeded",
        "Read-only file system",
    ]
    .iter()
    .any(|text| message.contains(text))
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_regular(mode: RawMode) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile
}

fn kind(mode: RawMode) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    }

    /// A base with a regular file and entries of every other kind.
    fn base() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let base = dir.path().join("base");
        std::fs::create_dir_all(base.join("runs/a")).expect("directories");
        std::fs::write(base.join("runs/a/good"), "text").expect("a file");
        std::fs::write(dir.path().join("outside"), "secret").expect("a file");
        fifo(&base.join("runs/a/fifo"));
        std::fs::create_dir(base.join("runs/a/directory")).expect("a directory");
        symlink("good", base.join("runs/a/link")).expect("a link");
        symlink("loop", base.join("runs/a/loop")).expect("a link");
        symlink("/dev/zero", base.join("runs/a/zero")).expect("a link");
        symlink("a", base.join("runs/b")).expect("a link");
        (dir, base)
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (_dir, base) = base();
        assert_eq!(
            read(&base, &base.join("runs/a/good"), 4).expect("read"),
            b"text"
        );
        for (name, description) in [
            ("fifo", "a FIFO"),
            ("directory", "a directory"),
            ("link", "a symbolic link"),
            ("loop", "a symbolic link"),
            ("zero", "a symbolic link"),
        ] {
            let path = base.join("runs/a").join(name);
            let refusals = [
                open(&base, &path),
                open_or_create(&base, &path),
                open_for_append(&base, &path),
            ];
            for error in refusals.map(|opened| opened.expect_err("refused")) {
                assert!(
                    unusable(&error).is_some()
                        && error
                            .to_string()
                            .contains(&format!("{name} is {description}")),
                    "{name}: {error}"
                );
            }
        }
        assert!(matches!(
            unusable(&read(&base, &base.join("runs/a/good"), 3).expect_err("refused")),
            Some(Unusable::TooLarge { .. })
        ));
        assert_eq!(
            open(&base, &base.join("runs/a/none"))
                .expect_err("none")
                .kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            open(&base, &base.join("none/none"))
                .expect_err("none")
                .kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn links_in_the_path_are_not_followed() {
        let (dir, base) = base();
        let error = open(&base, &base.join("runs/b/good")).expect_err("refused");
        assert!(
            error
                .to_string()
                .ends_with("runs/b is a symbolic link, not a directory"),
            "{error}"
        );
        let error = open(&base, &base.join("runs/a/good/x")).expect_err("refused");
        assert!(
            error
                .to_string()
                .ends_with("runs/a/good is a file, not a directory"),
            "{error}"
        );
        assert!(open(&base, &base.join("runs/../../outside")).is_err());
        assert!(open(&base, &dir.path().join("outside")).is_err());
        let error = make_dirs(&base, &base.join("runs/b/2")).expect_err("refused");
        assert!(
            error
                .to_string()
                .ends_with("runs/b is a symbolic link, not a directory"),
            "{error}"
        );
    }

    #[test]
    fn stepwise_open_agrees_with_openat2() {
        let (_dir, base) = base();
        let dir = open_base(&base).expect("opens");
        for relative in [
            "runs",
            "runs/a",
            "runs/b",
            "runs/a/good",
            "runs/a/loop",
            "runs/..",
            "none",
            "runs/none",
        ] {
            let relative = Path::new(relative);
            let (at_once, by_steps) = (
                open_below(&dir, relative, DIR_FLAGS),
                open_by_steps(&dir, relative, DIR_FLAGS),
            );
            assert!(
                at_once.is_ok() == by_steps.is_ok() || relative == Path::new("runs/.."),
                "{relative:?}: {at_once:?} {by_steps:?}"
            );
        }
        assert!(open_by_steps(&dir, Path::new("runs/.."), DIR_FLAGS).is_err());
    }

    #[test]
    fn replacing_a_file_removes_a_planted_one() {
        let (dir, base) = base();
        symlink(dir.path().join("outside"), base.join("runs/a/planted")).expect("a link");
        for name in ["planted", "fifo", "zero", "good", "new"] {
            let path = base.join("runs/a").join(name);
            replace(&base, &path)
                .expect("replaced")
                .write_all(b"ours")
                .expect("written");
            let meta = path.symlink_metadata().expect("is there");
            assert!(
                meta.is_file() && meta.permissions().mode() & 0o777 == 0o600,
                "{name}"
            );
            write_atomically(&base, &path, b"again").expect("written");
            assert_eq!(read(&base, &path, 10).expect("read"), b"again");
        }
        assert_eq!(
            std::fs::read(dir.path().join("outside")).expect("read"),
            b"secret"
        );
        assert!(replace(&base, &base.join("runs/a/directory")).is_err());
    }

    #[test]
    fn open_file_is_made_private() {
        let (_dir, base) = base();
        let good = base.join("runs/a/good");
        std::fs::set_permissions(&good, std::fs::Permissions::from_mode(0o666)).expect("opened");
        make_private(&base, &good).expect("made");
        assert_eq!(
            good.metadata().expect("is there").permissions().mode() & 0o777,
            0o600
        );
        make_private(&base, &base.join("runs/a/none")).expect("nothing to do");
        assert!(
            unusable(&make_private(&base, &base.join("runs/a/fifo")).expect_err("refused"))
                .is_some()
        );
    }

    #[test]
    fn directories_are_created_private() {
        let (_dir, base) = base();
        let path = base.join("runs/c/1");
        make_dirs(&base, &path).expect("made");
        make_dirs(&base, &path).expect("made before");
        sync_dirs(&base, &path).expect("synced");
        assert_eq!(
            path.metadata().expect("is there").permissions().mode() & 0o777,
            0o700
        );
    }
}
