//! Giving a workspace files of the user's work tree that git does not have, such as `.env`.
//!
//! They can be secrets, so they must not get into a commit: a workspace is only given what git ignores there. A clone
//! excludes them first, which a `.gitignore` of the repository can revoke; the exclusions of another work tree are those of
//! the user's repository.

use super::{NewWorkTree, NewWorkspace};
use crate::files;
use crate::git::GitError;
use crate::git::copied::{CopiedFiles, NotCopied, pattern_of, record_of};
use adjutant_core::Isolation;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Largest file that is copied, and all of them together, in bytes.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
const ALL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Gives a workspace, while it is made, the files that the configuration names.
pub(super) async fn copy(made: &NewWorkTree<'_>, new: &NewWorkspace<'_>) -> Result<(), GitError> {
    if new.copy.is_empty() {
        return Ok(());
    }
    let is_clone = new.isolation == Isolation::Clone;
    let mut done = CopiedFiles::default();
    let mut left = ALL_BYTES_MAX;
    let mut paths: Vec<&String> = new.copy.iter().collect();
    // A `.gitignore` first: it decides for the others too.
    paths.sort_by_key(|path| !path.ends_with(".gitignore"));
    for path in paths {
        let fail = |error: io::Error| GitError::NotCopied { path: made.repo.top.join(path), why: error.to_string() };
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
        done.not_copied.push(NotCopied { path: path.clone(), why: why.to_owned() });
    }
    let record = record_of(new.path);
    let text = serde_json::to_vec(&done).map_err(|error| GitError::File { path: record.clone(), error: error.into() })?;
    files::write_atomically(new.home, &record, &text).map_err(GitError::file(record))
}

/// Tells whether git ignores a path in the workspace. It does not ignore a file that it tracks.
async fn is_ignored(made: &NewWorkTree<'_>, path: &str) -> Result<bool, GitError> {
    let input: Vec<u8> = path.bytes().chain([0]).collect();
    let ran = made.call(&["check-ignore", "-z", "--stdin"]).input(input).run().await?;
    match ran.exit_code {
        Some(code @ (0 | 1)) => Ok(code == 0),
        _ => Err(GitError::Failed { command: "check-ignore".to_owned(), why: crate::git::call::error_text(&ran) }),
    }
}

struct ReadFile {
    bytes: Vec<u8>,
    is_executable: bool,
}

/// Reads a regular file below a top. No link below it is followed. `None`: it is not there.
fn read(top: &Path, path: &str, bytes_max: u64) -> io::Result<Option<ReadFile>> {
    let full = top.join(path);
    let file = match files::open(top, &full) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_executable = file.metadata()?.permissions().mode() & 0o100 != 0;
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is larger than {bytes_max} bytes, which is too much to copy")));
    }
    Ok(Some(ReadFile { bytes, is_executable }))
}

fn is_there(top: &Path, path: &str) -> io::Result<bool> {
    match files::look(top, &top.join(path)) {
        Ok(found) => Ok(found.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(true),
        Err(error) => Err(error),
    }
}

/// Writes a file that is not there yet, only for this user.
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

/// Keeps a file out of the commits of a clone, unless a `.gitignore` there includes it.
fn exclude(list: &Path, path: &str) -> Result<(), GitError> {
    let line = [b"\n".to_vec(), pattern_of(path.as_bytes()), b"\n".to_vec()].concat();
    let append = || {
        fs::create_dir_all(list.parent().unwrap_or(list))?;
        OpenOptions::new().create(true).append(true).open(list)?.write_all(&line)
    };
    append().map_err(GitError::file(list))
}
