//! Making the workspace of a run: a repository of its own, over the objects of the user's.
//!
//! ```text
//!  <workspaces>/<run>/.new     while it is made
//!                    /<name>   the workspace, renamed into place
//!                    /.index   Adjutant's index of it
//! ```
//! Its configuration is written by Adjutant. Nothing that the user's repository configures is run or copied, except
//! settings that are data.

use super::call::Call;
use super::repo::is_regular;
use super::scratch::{index_of, save_index};
use super::{GitError, Repo, pin_base};
use crate::failpoint::failpoint;
use crate::files;
use adjutant_core::RunId;
use rustix::fs::Mode;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long writing the files of a workspace may take.
const CHECKOUT_MAX: Duration = Duration::from_secs(600);
/// Most of a file that is copied from the git directory of the repository, in bytes.
const COPIED_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Settings of the repository that the workspace has too. Their values are data.
const COPIED_SETTINGS: &str =
    r"^(user\.(name|email)|core\.(autocrlf|eol|filemode|ignorecase|precomposeunicode|symlinks|sparsecheckout|sparsecheckoutcone)|index\.sparse)$";

/// A workspace to be made.
#[derive(Debug, Clone)]
pub struct NewClone<'a> {
    pub run: RunId,
    pub run_name: &'a str,
    pub base: &'a str,
    /// The branch of the user's that the commit is on.
    pub branch: Option<&'a str>,
    /// The top of the workspace, below `home`.
    pub path: &'a Path,
    pub home: &'a Path,
    /// The directory in it that the run works in.
    pub cwd: &'a Path,
    /// Of its files and directories.
    pub umask: Mode,
}

/// Makes a clone of the repository as a workspace, with the base checked out on a branch of its own. A whole one that is
/// there is kept; the rest of one that was not finished is removed.
///
/// # Errors
/// The base is gone, git or the disk failed. There is no workspace then.
pub async fn make_clone(repo: &Repo, new: &NewClone<'_>) -> Result<(), GitError> {
    let NewClone { home, path, .. } = *new;
    pin_base(repo, new.run, new.base).await?;
    if files::open_dir(home, path).is_ok() {
        return Ok(());
    }
    let parent = path.parent().unwrap_or(path);
    let unfinished = parent.join(".new");
    files::make_dirs(home, parent).map_err(GitError::file(parent))?;
    remove(&unfinished).map_err(GitError::file(&unfinished))?;
    failpoint!("workspace.before_clone");
    let clone = Clone { repo, new, top: &unfinished, dir: unfinished.join(".git") };
    clone.init().await?;
    clone.check_out().await?;
    let below = new.cwd.strip_prefix(path).unwrap_or("".as_ref());
    files::make_dirs(home, &unfinished.join(below)).map_err(GitError::file(new.cwd))?;
    save_index(home, &clone.dir.join("index"), &index_of(path)).map_err(GitError::file(path))?;
    failpoint!("workspace.before_rename");
    fs::rename(&unfinished, path).map_err(GitError::file(path))?;
    files::sync_dirs(home, parent).map_err(GitError::file(parent))?;
    failpoint!("workspace.after_rename");
    Ok(())
}

/// Removes a workspace. It is moved away first, so that no snapshot is taken of a part.
///
/// # Errors
/// The disk failed; the rest is removed by the next call.
pub fn remove_clone(home: &Path, path: &Path) -> Result<(), GitError> {
    let parent = path.parent().unwrap_or(path);
    let gone = parent.join(".gone");
    let failed = |error| GitError::File { path: path.to_owned(), error };
    remove(&gone).map_err(failed)?;
    match files::rename(home, path, ".gone".as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    remove(parent).map_err(failed)
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A clone that is being made.
struct Clone<'a> {
    repo: &'a Repo,
    new: &'a NewClone<'a>,
    top: &'a Path,
    /// Its git directory.
    dir: PathBuf,
}

impl Clone<'_> {
    /// Starts a call on it.
    fn call<'a>(&'a self, args: &[&str]) -> Call<'a> {
        let call = self.repo.git.call(self.top, args).env("GIT_DIR", &self.dir).env("GIT_WORK_TREE", self.top);
        call.settings(&self.repo.settings).umask(Some(self.new.umask))
    }

    /// Makes the repository: its objects are the user's, its configuration is ours.
    async fn init(&self) -> Result<(), GitError> {
        let branch = format!("adj/{}", self.new.run_name);
        fs::create_dir(self.top).map_err(GitError::file(self.top))?;
        let format = format!("--object-format={}", self.repo.object_format);
        let first = format!("--initial-branch={branch}");
        self.repo.git.call(self.top, &["init", "--quiet", "--template=", &format, &first]).umask(Some(self.new.umask)).output().await?;
        let write = |name: &str, text: &[u8]| {
            let path = self.dir.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&path)).and_then(|()| fs::write(&path, text)).map_err(GitError::file(path))
        };
        write("objects/info/alternates", format!("{}\n", self.repo.common.join("objects").display()).as_bytes())?;
        let config = self.dir.join("config");
        let mut text = fs::read_to_string(&config).map_err(GitError::file(&config))?;
        text.push_str(&self.configuration(&branch).await?);
        write("config", text.as_bytes())?;
        // What is ignored, which files are there, and where history ends, is as in the user's work tree.
        for (from, name) in [(&self.repo.common, "info/exclude"), (&self.repo.dir, "info/sparse-checkout"), (&self.repo.common, "shallow")] {
            let from = from.join(name);
            if is_regular(&from) {
                write(name, &files::read_named(&from, COPIED_BYTES_MAX).map_err(GitError::file(&from))?)?;
            }
        }
        let mut refs = format!("create refs/heads/{branch} {}\n", self.new.base);
        if let Some(theirs) = self.new.branch {
            refs.push_str(&format!("create refs/remotes/origin/{theirs} {}\n", self.new.base));
        }
        self.call(&["update-ref", "--stdin"]).input(refs.into_bytes()).output().await.map(drop)
    }

    /// Returns what is added to the configuration of a new repository.
    async fn configuration(&self, branch: &str) -> Result<String, GitError> {
        let mut text =
            format!("[remote \"origin\"]\n\turl = {}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", quoted(&self.repo.top.display().to_string()));
        if let Some(theirs) = self.new.branch {
            let theirs = quoted(&format!("refs/heads/{theirs}"));
            text.push_str(&format!("[branch {}]\n\tremote = origin\n\tmerge = {theirs}\n", quoted(branch)));
        }
        let ran = self.repo.of_refs(&["config", "--get-regexp", "-z", COPIED_SETTINGS]).run().await?;
        let listed = String::from_utf8_lossy(&ran.output);
        for entry in listed.split('\0').filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            if let Some((section, key)) = name.split_once('.') {
                text.push_str(&format!("[{section}]\n\t{key} = {}\n", quoted(value)));
            }
        }
        Ok(text)
    }

    /// Writes the files of the base. Attributes of the tree count as data; a filter that they name is not run.
    async fn check_out(&self) -> Result<(), GitError> {
        self.call(&["read-tree", "--reset", "-u", "--end-of-options", self.new.base]).limit(CHECKOUT_MAX).output().await.map(drop)
    }
}

/// Quotes a value for a configuration file.
fn quoted(value: &str) -> String {
    let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_a_configuration() {
        assert_eq!(quoted("/a b/\"c\"\\d;#"), "\"/a b/\\\"c\\\"\\\\d;#\"");
        assert_eq!(quoted("x\n[core]"), "\"x\\n[core]\"");
    }
}
