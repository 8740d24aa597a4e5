//! Copies files of the user's work tree that git does not contain, such as `.env`, into a
//! workspace.
//!
//! The files can be secrets and must not get into a commit, so only files that git ignores in the
//! workspace are copied. A clone excludes them first, which a `.gitignore` of the repository can
//! override. A work tree shares the exclusions of the user's repository.

use super::{NewWorkTree, NewWorkspace};
use crate::files;
use crate::git::GitError;
use crate::git::copied::{CopiedFiles, NotCopied, record_of};
use crate::git::paths::pattern_of;
use adjutant_core::Isolation;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Maximum size of one copied file, and of all of them, in bytes.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const ALL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Copies the configured files into a workspace that is being created.
pub(super) async fn copy(made: &NewWorkTree<'_>, new: &NewWorkspace<'_>) -> Result<(), GitError> {
    if new.copy.is_empty() {
        return Ok(());
    }
    let is_clone = new.isolation == Isolation::Clone;
    let mut done = CopiedFiles::default();
    let mut left = ALL_BYTES_MAX;
    let mut paths: Vec<&String> = new.copy.iter().collect();
    // `.gitignore` first, because it determines whether the others are ignored.
    paths.sort_by_key(|path| !path.ends_with(".gitignore"));
    for path in paths {
        let fail = |error: io::Error| GitError::NotCopied {
            path: made.repo.top.join(path),
            why: error.to_string(),
        };
        let why = match read(&made.repo.top, path, FILE_BYTES_MAX.min(left)).map_err(fail)? {
            None => "it is not in the repository",
            Some(_) if is_there(&made.top, path).map_err(fail)? => "the workspace has it already",
            Some(file) => {
                if is_clone {
                    exclude(&made.dir.join("info/exclude"), path)?;
                }
                if is_ignored(made, path).await? {
                    left -= file.bytes.len() as u64;
                    write(&made.top, path, &file).map_err(fail)?;
                    done.copied.push(path.clone());
                    continue;
                }
                if is_clone {
                    "git does not ignore it, so the agent could commit it: a pattern with ! in a .gitignore includes it"
                } else {
                    "git does not ignore it, so a work tree could commit it: add it to .gitignore, or use a clone"
                }
            }
        };
        done.not_copied.push(NotCopied {
            path: path.clone(),
            why: why.to_owned(),
        });
    }
    let record = record_of(new.path);
    let text = serde_json::to_vec(&done).map_err(|error| GitError::File {
        path: record.clone(),
        error: error.into(),
    })?;
    files::write_atomically(new.home, &record, &text).map_err(GitError::file(record))
}

/// Returns whether git ignores a path in the workspace. It never ignores a tracked file.
async fn is_ignored(made: &NewWorkTree<'_>, path: &str) -> Result<bool, GitError> {
    let input: Vec<u8> = path.bytes().chain([0]).collect();
    let ran = made
        .call(&["check-ignore", "-z", "--stdin"])
        .input(input)
        .run()
        .await?;
    match ran.exit_code {
        Some(code @ (0 | 1)) => Ok(code == 0),
        _ => Err(GitError::Failed {
            command: "check-ignore".to_owned(),
            why: crate::git::call::error_text(&ran),
        }),
    }
}

struct ReadFile {
    bytes: Vec<u8>,
    is_executable: bool,
}

/// Reads a regular file below `top`. Follows no symbolic link below it. `None`: the file does not
/// exist.
fn read(top: &Path, path: &str, bytes_max: u64) -> io::Result<Option<ReadFile>> {
    let full = top.join(path);
    let file = match files::open(top, &full) {
        Ok(file) => file,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let is_executable = file.metadata()?.permissions().mode() & 0o100 != 0;
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!(
            "it is larger than {bytes_max} bytes, which is too much to copy"
        )));
    }
    Ok(Some(ReadFile {
        bytes,
        is_executable,
    }))
}

fn is_there(top: &Path, path: &str) -> io::Result<bool> {
    match files::look(top, &top.join(path)) {
        Ok(found) => Ok(found.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(error) => Err(error),
    }
}

/// Writes a new file that only this user can read.
fn write(top: &Path, path: &str, file: &ReadFile) -> io::Result<()> {
    let full = top.join(path);
    files::make_dirs(top, full.parent().unwrap_or(top))?;
    let mut to = files::create_new(top, &full)?;
    to.write_all(&file.bytes)?;
    if file.is_executable {
        to.set_permissions(fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Excludes a file from the commits of a clone, unless a `.gitignore` there includes it.
fn exclude(list: &Path, path: &str) -> Result<(), GitError> {
    let line = [b"\n".to_vec(), pattern_of(path.as_bytes()), b"\n".to_vec()].concat();
    let append = || {
        fs::create_dir_all(list.parent().unwrap_or(list))?;
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(list)?
            .write_all(&line)
    };
    append().map_err(GitError::file(list))
}
