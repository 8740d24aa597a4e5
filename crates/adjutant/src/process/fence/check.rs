//! Tests from inside, with the worker's rights, that a fence holds.

use super::{FencePlan, SHARED_MEMORY_DIR, TERMINALS_DIR, mounts};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where a process writes to itself, its terminals, and memory of its own.
const NO_FILES: [&str; 4] = ["/proc", TERMINALS_DIR, "/dev/ptmx", SHARED_MEMORY_DIR];

/// Tests the fence. This process has the worker's rights.
///
/// # Errors
/// Says which test failed: the fence does not hold.
pub fn run(plan: &FencePlan) -> Result<(), String> {
    for dir in &plan.denied {
        refuses_files(dir)?;
    }
    for path in &plan.absent {
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Ok(_) => return Err(format!("{} can be seen", path.display())),
            Err(error) => return Err(format!("{} is not known to be hidden: {error}", path.display())),
        }
    }
    for path in &plan.writable {
        // That its owner forbids writing is no matter of the fence.
        if rustix::fs::access(path, rustix::fs::Access::WRITE_OK) == Err(Errno::ROFS) {
            return Err(format!("{} cannot be written", path.display()));
        }
    }
    only_allowed_mounts_are_writable(plan)?;
    cannot_be_undone(plan)?;
    match std::fs::read_link("/proc/self") {
        Ok(own) if own == Path::new("1") => Ok(()),
        other => Err(format!("processes outside can be seen ({other:?} in /proc/self)")),
    }
}

/// Tries to create a file that has no name, so it leaves nothing behind should it succeed.
fn refuses_files(dir: &Path) -> Result<(), String> {
    match rustix::fs::openat(CWD, dir, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR) {
        Err(Errno::ROFS | Errno::NOENT | Errno::ACCESS) => Ok(()),
        Ok(_) => Err(format!("files can be created in {}", dir.display())),
        Err(error) => Err(format!("{} is not known to be protected: {error}", dir.display())),
    }
}

fn only_allowed_mounts_are_writable(plan: &FencePlan) -> Result<(), String> {
    let text = std::fs::read("/proc/self/mountinfo").map_err(|error| format!("the mounts cannot be read: {error}"))?;
    let private = plan.private.iter().map(|private| &private.at);
    let allowed: Vec<&Path> = plan.writable.iter().chain(private).map(PathBuf::as_path).chain(NO_FILES.map(Path::new)).collect();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut fields = line.split(|byte| *byte == b' ');
        let (Some(at), Some(options)) = (fields.nth(4), fields.next()) else { return Err("the mounts cannot be understood".to_owned()) };
        let is_writable = options.split(|byte| *byte == b',').next() == Some(b"rw");
        let at = unescaped(at);
        if is_writable && !allowed.iter().any(|path| at.starts_with(path)) {
            return Err(format!("{} is mounted writable", at.display()));
        }
    }
    Ok(())
}

/// Reads a path of `mountinfo`, which has `\040` for a blank.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
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
    fn escaped_paths_of_mounts_are_read() {
        for (field, path) in [("/a", "/a"), (r"/a\040b\011c", "/a b\tc"), (r"/a\134", r"/a\"), (r"/a\x", r"/a\x"), (r"/a\04", r"/a\04")] {
            assert_eq!(unescaped(field.as_bytes()), Path::new(path), "{field}");
        }
    }
}
