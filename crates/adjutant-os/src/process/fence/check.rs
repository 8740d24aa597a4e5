//! Tests a fence from inside, with the worker's rights.

use super::{FencePlan, SHARED_MEMORY_DIR, TERMINALS_DIR, mounts};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Writable directories without files of others: the process's own state, terminals and memory.
const NO_FILES: [&str; 4] = ["/proc", TERMINALS_DIR, "/dev/ptmx", SHARED_MEMORY_DIR];

/// The test of a fence that failed.
#[derive(Debug, thiserror::Error)]
pub enum FailedCheck {
    #[error("{0} can be seen")]
    Seen(PathBuf),
    #[error("cannot verify that {path} is hidden: {source}")]
    NotSeenHidden { path: PathBuf, source: io::Error },
    #[error("{0} can be opened")]
    Opened(PathBuf),
    #[error("{0} can be read")]
    Read(PathBuf),
    #[error("{0} cannot be written")]
    NotWritable(PathBuf),
    #[error("files can be created in {0}")]
    Created(PathBuf),
    #[error("cannot verify that {path} is protected: {source}")]
    NotSeenProtected { path: PathBuf, source: io::Error },
    #[error("the mounts cannot be read: {0}")]
    MountsUnreadable(#[source] io::Error),
    #[error("the mounts cannot be understood")]
    MountsUnknown,
    #[error("{0} is mounted writable")]
    WritableMount(PathBuf),
    #[error("CAP_SYS_ADMIN can be regained ({0:?})")]
    Capability(Result<bool, Errno>),
    #[error("the root can be made writable again")]
    WritableRoot,
    #[error("what hides {0} can be unmounted")]
    Unmountable(PathBuf),
    #[error("processes outside can be seen ({0:?} in /proc/self)")]
    Processes(io::Result<PathBuf>),
}

/// Tests the fence. This process has the worker's rights.
///
/// # Errors
/// The test that failed. The fence does not hold then.
pub fn run(plan: &FencePlan) -> Result<(), FailedCheck> {
    for dir in &plan.denied {
        refuses_files(dir)?;
    }
    for path in &plan.absent {
        is_absent(path)?;
    }
    for path in &plan.hidden_files {
        if rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .is_ok()
        {
            return Err(FailedCheck::Opened(path.clone()));
        }
    }
    for path in &plan.writable {
        // File permissions that forbid writing are not an error of the fence.
        if rustix::fs::access(path, rustix::fs::Access::WRITE_OK) == Err(Errno::ROFS) {
            return Err(FailedCheck::NotWritable(path.clone()));
        }
    }
    only_allowed_mounts_are_writable(plan)?;
    cannot_be_undone(plan)?;
    match std::fs::read_link("/proc/self") {
        Ok(own) if own == Path::new("1") => Ok(()),
        other => Err(FailedCheck::Processes(other)),
    }
}

fn is_absent(path: &Path) -> Result<(), FailedCheck> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(FailedCheck::Seen(path.to_owned())),
        Err(source) => Err(FailedCheck::NotSeenHidden {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Tests a Landlock fence, and returns what it does not enforce. This process has the worker's
/// rights.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_for_landlock(plan: &FencePlan) -> Result<Vec<String>, FailedCheck> {
    for dir in &plan.denied {
        refuses_files(dir)?;
    }
    for path in plan.absent.iter().chain(&plan.hidden_files) {
        refuses_reading(path)?;
    }
    for dir in plan.writable.iter().filter(|path| path.is_dir()) {
        let made = create_file(dir);
        // File permissions that forbid writing are not an error of the fence, except in the
        // workspace.
        if made.is_err_and(|error| error == Errno::ACCESS) && plan.cwd.starts_with(dir) {
            return Err(FailedCheck::NotWritable(dir.clone()));
        }
    }
    // No version of Landlock has rules for them.
    let mut gaps =
        vec!["modes, owners, times and extended attributes of files can be changed".to_owned()];
    let lists =
        |path: &PathBuf| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if plan.hidden.iter().any(lists) {
        gaps.push("the names of hidden files can be listed".to_owned());
    }
    let parent = rustix::process::getppid();
    // Init is the parent in a PID namespace.
    if parent.is_none_or(|parent| !parent.is_init()) {
        gaps.push("other processes can be seen".to_owned());
        if parent.is_some_and(|parent| rustix::process::test_kill_process(parent).is_ok()) {
            gaps.push("your other processes can be sent signals".to_owned());
        }
    }
    let is_reachable = |path: &PathBuf| {
        !std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
    };
    if plan
        .absent
        .iter()
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .any(is_reachable)
    {
        gaps.push("services that listen on a Unix socket can be called, and may write files on behalf of the run".to_owned());
    }
    Ok(gaps)
}

fn refuses_reading(path: &Path) -> Result<(), FailedCheck> {
    if path.is_dir() {
        return Ok(());
    }
    match rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Err(Errno::ACCESS | Errno::NOENT | Errno::NXIO) => Ok(()),
        Ok(_) => Err(FailedCheck::Read(path.to_owned())),
        Err(error) => Err(FailedCheck::NotSeenHidden {
            path: path.to_owned(),
            source: error.into(),
        }),
    }
}

/// Tries to create a file without a name, which leaves nothing behind. On a file system without
/// such files, the file has a name and is removed.
fn create_file(dir: &Path) -> Result<(), Errno> {
    match rustix::fs::openat(
        CWD,
        dir,
        OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::RUSR,
    ) {
        // Kernels and file systems without this flag refuse to open a directory for writing.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        made => return made.map(drop),
    }
    let path = dir.join(format!(
        ".adj-fence-{}",
        rustix::process::getpid().as_raw_nonzero()
    ));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, &path, flags, Mode::RUSR) {
        // It exists already, so it could be created.
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => rustix::fs::unlink(&path),
    }
}

fn refuses_files(dir: &Path) -> Result<(), FailedCheck> {
    match create_file(dir) {
        Err(Errno::ROFS | Errno::NOENT | Errno::ACCESS) => Ok(()),
        Ok(()) => Err(FailedCheck::Created(dir.to_owned())),
        Err(error) => Err(FailedCheck::NotSeenProtected {
            path: dir.to_owned(),
            source: error.into(),
        }),
    }
}

fn only_allowed_mounts_are_writable(plan: &FencePlan) -> Result<(), FailedCheck> {
    let text = std::fs::read("/proc/self/mountinfo").map_err(FailedCheck::MountsUnreadable)?;
    let private = plan.private.iter().map(|private| &private.at);
    let allowed: Vec<&Path> = plan
        .writable
        .iter()
        .chain(private)
        .map(PathBuf::as_path)
        .chain(NO_FILES.map(Path::new))
        .collect();
    for line in text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let mut fields = line.split(|byte| *byte == b' ');
        let (Some(at), Some(options)) = (fields.nth(4), fields.next()) else {
            return Err(FailedCheck::MountsUnknown);
        };
        let is_writable = options.split(|byte| *byte == b',').next() == Some(b"rw");
        let at = unescape(at);
        if is_writable && !allowed.iter().any(|path| at.starts_with(path)) {
            return Err(FailedCheck::WritableMount(at));
        }
    }
    Ok(())
}

/// Decodes a path of `mountinfo`, where a blank is `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        path.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(OsString::from_vec(path))
}

fn cannot_be_undone(plan: &FencePlan) -> Result<(), FailedCheck> {
    match capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN) {
        Ok(false) => {}
        other => return Err(FailedCheck::Capability(other)),
    }
    if let Ok(()) = mounts::try_to_make_writable(Path::new("/")) {
        return Err(FailedCheck::WritableRoot);
    }
    for path in plan.hidden.iter().filter(|path| path.is_dir()) {
        if unmount(path, UnmountFlags::DETACH).is_ok() {
            return Err(FailedCheck::Unmountable(path.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_without_unnamed_files_is_tested_too() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(create_file(dir.path()), Ok(()));
        assert_eq!(
            std::fs::read_dir(dir.path()).expect("a directory").count(),
            0
        );
        assert!(matches!(
            refuses_files(dir.path()),
            Err(FailedCheck::Created(_))
        ));
        // These support no unnamed files, and refuse others.
        for path in ["/proc", "/sys"] {
            assert!(refuses_files(Path::new(path)).is_ok(), "{path}");
        }
    }

    #[test]
    fn escaped_paths_of_mounts_are_read() {
        for (field, path) in [
            ("/a", "/a"),
            (r"/a\040b\011c", "/a b\tc"),
            (r"/a\134", r"/a\"),
            (r"/a\x", r"/a\x"),
            (r"/a\04", r"/a\04"),
        ] {
            assert_eq!(unescape(field.as_bytes()), Path::new(path), "{field}");
        }
    }
}
