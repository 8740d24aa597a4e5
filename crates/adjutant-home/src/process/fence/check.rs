//! Tests a fence from inside, with the worker's rights.

use super::{FencePlan, SHARED_MEMORY_DIR, TERMINALS_DIR, mounts};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Writable directories without files of others: the process's own state, terminals and memory.
const NO_FILES: [&str; 4] = ["/proc", TERMINALS_DIR, "/dev/ptmx", SHARED_MEMORY_DIR];

/// Tests the fence. This process has the worker's rights.
///
/// # Errors
/// The test that failed. The fence does not hold then.
pub fn run(plan: &FencePlan) -> Result<(), String> {
    for dir in &plan.denied {
        refuses_files(dir)?;
    }
    for path in &plan.absent {
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Ok(_) => return Err(format!("{} can be seen", path.display())),
            Err(error) => {
                return Err(format!(
                    "cannot verify that {} is hidden: {error}",
                    path.display()
                ));
            }
        }
    }
    for path in &plan.hidden_files {
        if rustix::fs::open(
            path,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .is_ok()
        {
            return Err(format!("{} can be opened", path.display()));
        }
    }
    for path in &plan.writable {
        // File permissions that forbid writing are not an error of the fence.
        if rustix::fs::access(path, rustix::fs::Access::WRITE_OK) == Err(Errno::ROFS) {
            return Err(format!("{} cannot be written", path.display()));
        }
    }
    only_allowed_mounts_are_writable(plan)?;
    cannot_be_undone(plan)?;
    match std::fs::read_link("/proc/self") {
        Ok(own) if own == Path::new("1") => Ok(()),
        other => Err(format!(
            "processes outside can be seen ({other:?} in /proc/self)"
        )),
    }
}

/// Tests a Landlock fence, and returns what it does not enforce. This process has the worker's rights.
///
/// # Errors
/// As [`run`].
pub fn run_for_landlock(plan: &FencePlan) -> Result<Vec<String>, String> {
    for dir in &plan.denied {
        refuses_files(dir)?;
    }
    for path in plan.absent.iter().chain(&plan.hidden_files) {
        refuses_reading(path)?;
    }
    for dir in plan.writable.iter().filter(|path| path.is_dir()) {
        let made = create_file(dir);
        // File permissions that forbid writing are not an error of the fence, except in the workspace.
        if made.is_err_and(|error| error == Errno::ACCESS) && plan.cwd.starts_with(dir) {
            return Err(format!("{} cannot be written", dir.display()));
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

fn refuses_reading(path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Ok(());
    }
    match rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Err(Errno::ACCESS | Errno::NOENT | Errno::NXIO) => Ok(()),
        Ok(_) => Err(format!("{} can be read", path.display())),
        Err(error) => Err(format!(
            "cannot verify that {} is hidden: {error}",
            path.display()
        )),
    }
}

/// Tries to create a file without a name, which leaves nothing behind. On a file system without such files, the file has a
/// name and is removed.
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

fn refuses_files(dir: &Path) -> Result<(), String> {
    match create_file(dir) {
        Err(Errno::ROFS | Errno::NOENT | Errno::ACCESS) => Ok(()),
        Ok(()) => Err(format!("files can be created in {}", dir.display())),
        Err(error) => Err(format!(
            "cannot verify that {} is protected: {error}",
            dir.display()
        )),
    }
}

fn only_allowed_mounts_are_writable(plan: &FencePlan) -> Result<(), String> {
    let text = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| format!("the mounts cannot be read: {error}"))?;
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
            return Err("the mounts cannot be understood".to_owned());
        };
        let is_writable = options.split(|byte| *byte == b',').next() == Some(b"rw");
        let at = unescape(at);
        if is_writable && !allowed.iter().any(|path| at.starts_with(path)) {
            return Err(format!("{} is mounted writable", at.display()));
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

fn cannot_be_undone(plan: &FencePlan) -> Result<(), String> {
    match capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN) {
        Ok(false) => {}
        other => return Err(format!("CAP_SYS_ADMIN can be regained ({other:?})")),
    }
    if let Ok(()) = mounts::try_to_make_writable(Path::new("/")) {
        return Err("the root can be made writable again".to_owned());
    }
    for path in plan.hidden.iter().filter(|path| path.is_dir()) {
        if unmount(path, UnmountFlags::DETACH).is_ok() {
            return Err(format!("what hides {} can be unmounted", path.display()));
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
        assert!(refuses_files(dir.path()).is_err_and(|why| why.contains("files can be created")));
        // These support no unnamed files, and refuse others.
        for path in ["/proc", "/sys"] {
            assert_eq!(refuses_files(Path::new(path)), Ok(()), "{path}");
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
