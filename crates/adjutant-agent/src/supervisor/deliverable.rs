//! Examines a file that a report names: its existence, size and hash. Only files in the run's
//! directory are opened, regardless of the name or a link, and only regular files are read.

use crate::files;
use crate::protocol::FileEvidence;
use adjutant_core::hex;
use rustix::fs::{FileType, fstat};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Largest file that is hashed, and the limit of all of them together, in bytes.
const HASHED_BYTES_MAX: u64 = 64 * 1024 * 1024;
pub(crate) const HASHED_BYTES_TOTAL_MAX: u64 = 256 * 1024 * 1024;
/// How much is read before other tasks run, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;

/// Examines one path. `budget` is the number of bytes that may still be hashed.
pub(super) async fn examine(cwd: &Path, named: &str, budget: &mut u64) -> FileEvidence {
    let made = |seen: &str| FileEvidence {
        path: named.to_owned(),
        seen: seen.to_owned(),
        ..FileEvidence::default()
    };
    let unreadable = |error: &io::Error| FileEvidence {
        problem: Some(error.to_string()),
        ..made("unreadable")
    };
    let Some(relative) = below(cwd, named) else {
        return made("outside");
    };
    let found = match files::open_inside(cwd, &relative) {
        Ok(found) => found,
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => made("missing"),
                Some(libc::EXDEV | libc::ELOOP) => made("outside"),
                _ => unreadable(&error),
            };
        }
    };
    let stat = match fstat(&found) {
        Ok(stat) => stat,
        Err(error) => return unreadable(&error.into()),
    };
    let bytes = u64::try_from(stat.st_size).unwrap_or(0);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return made("directory"),
        _ => {
            return FileEvidence {
                problem: Some("neither a file nor a directory".to_owned()),
                ..made("unreadable")
            };
        }
    }
    let mut seen = FileEvidence {
        bytes,
        ..made("file")
    };
    if bytes <= HASHED_BYTES_MAX.min(*budget) {
        *budget -= bytes;
        match hash(&found, bytes).await {
            Ok(hash) => seen.sha256 = Some(hash),
            Err(error) => return unreadable(&error),
        }
    }
    seen
}

/// Returns a path relative to the directory. `None`: it is outside.
fn below(cwd: &Path, named: &str) -> Option<PathBuf> {
    let given = Path::new(named);
    let relative = if given.is_absolute() {
        given.strip_prefix(cwd).ok()?
    } else {
        given
    };
    let relative: PathBuf = relative
        .components()
        .filter(|part| !matches!(part, Component::CurDir))
        .collect();
    Some(if relative.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        relative
    })
}

/// Hashes a regular file up to the size that it had when it was examined.
async fn hash(found: &OwnedFd, bytes: u64) -> io::Result<String> {
    let mut rest = files::for_reading(found)?.take(bytes);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match rest.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
        tokio::task::yield_now().await;
    }
    Ok(hex(hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use std::fs::File;
    use std::os::unix::fs::symlink;

    async fn seen(cwd: &Path, named: &str) -> FileEvidence {
        examine(cwd, named, &mut HASHED_BYTES_TOTAL_MAX.clone()).await
    }

    #[tokio::test]
    async fn deliverables_outside_the_directory_are_not_opened() {
        let dir = tempfile::tempdir().expect("a directory");
        let cwd = dir.path().join("work");
        std::fs::create_dir_all(cwd.join("out")).expect("a directory");
        std::fs::write(dir.path().join("secret"), "x").expect("a file");
        std::fs::write(cwd.join("out/a.md"), "abc").expect("a file");
        symlink(cwd.join("out/a.md"), cwd.join("absolute")).expect("a link");
        symlink("out/a.md", cwd.join("relative")).expect("a link");
        symlink("../secret", cwd.join("escape")).expect("a link");
        let found = seen(&cwd, "out/a.md").await;
        assert_eq!((found.seen.as_str(), found.bytes), ("file", 3));
        assert_eq!(
            found.sha256.as_deref(),
            Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        );
        let absolute = cwd.join("out/a.md").display().to_string();
        for (named, expected) in [
            (absolute.as_str(), "file"),
            ("./out/../out/a.md", "file"),
            ("relative", "file"),
            ("out/", "directory"),
            (".", "directory"),
            ("nowhere.md", "missing"),
            ("out/a.md/x", "missing"),
            ("../secret", "outside"),
            ("out/../../secret", "outside"),
            ("escape", "outside"),
            ("/etc/passwd", "outside"),
        ] {
            assert_eq!(seen(&cwd, named).await.seen, expected, "{named}");
        }
        rustix::fs::mknodat(
            rustix::fs::CWD,
            cwd.join("pipe"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("a FIFO");
        assert_eq!(seen(&cwd, "pipe").await.seen, "unreadable");
    }

    #[tokio::test]
    async fn oversized_file_is_not_hashed() {
        let dir = tempfile::tempdir().expect("a directory");
        File::create(dir.path().join("large"))
            .and_then(|file| file.set_len(HASHED_BYTES_MAX + 1))
            .expect("a sparse file");
        let found = seen(dir.path(), "large").await;
        assert_eq!(
            (found.seen.as_str(), found.bytes, found.sha256),
            ("file", HASHED_BYTES_MAX + 1, None)
        );
    }
}
