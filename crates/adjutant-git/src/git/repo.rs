//! Finds the repository of a directory.

use super::call::{Call, error_text, nearest_repository};
use super::{Git, GitError};
use crate::files;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A repository with a work tree, and one directory in the work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    pub(super) git: Git,
    /// The top of the work tree.
    pub top: PathBuf,
    /// The path from the top to the directory from which the repository was found.
    pub below: PathBuf,
    /// The git directory of this work tree: its HEAD and index.
    pub dir: PathBuf,
    /// The git directory that all work trees of the repository share: refs and objects.
    pub common: PathBuf,
    /// `sha1` or `sha256`.
    pub(super) object_format: String,
    /// Settings of the user and the repository that change how content is stored.
    pub(super) settings: Vec<(String, String)>,
    /// The user's file of ignore patterns for all repositories.
    user_patterns: Option<PathBuf>,
}

/// Settings that change how content is stored or which files are ignored. Their values are data.
const CONTENT_SETTINGS: &str = r"^core\.(autocrlf|eol|filemode|ignorecase|precomposeunicode|symlinks|sparsecheckout|sparsecheckoutcone|sharedrepository|bigfilethreshold|excludesfile)$";

/// Maximum number of bytes read from a file of ignore patterns.
const PATTERN_BYTES_MAX: u64 = 1024 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Repo {
    /// Finds the repository around a directory.
    ///
    /// # Errors
    /// There is no repository, or git refuses to use it.
    pub async fn find(git: &Git, cwd: &Path) -> Result<Self, GitError> {
        let cwd = cwd.canonicalize().map_err(GitError::file(cwd))?;
        let Some(nearest) = nearest_repository(&cwd).map(Path::to_owned) else {
            return Err(GitError::NotARepository(cwd));
        };
        let args = [
            "rev-parse",
            "--path-format=absolute",
            "--show-toplevel",
            "--git-dir",
            "--git-common-dir",
            "--show-object-format",
        ];
        // The user's own configuration lists the safe repositories of other users.
        let ran = git.call(&cwd, &args).for_user().run().await?;
        if ran.exit_code != Some(0) {
            let why = error_text(&ran);
            // The container of a bare repository and its work trees.
            return Err(match why.contains("must be run in a work tree") {
                true => GitError::NoWorkTree {
                    work_trees: work_trees(git, &cwd).await?,
                    dir: cwd,
                },
                false => GitError::unusable(cwd, why),
            });
        }
        let text = String::from_utf8(ran.output)
            .map_err(|_| GitError::unusable(&cwd, "its path is not UTF-8"))?;
        let lines: Vec<&str> = text.lines().collect();
        let [top, dir, common, object_format] = lines[..] else {
            return Err(GitError::unusable(cwd, "its path has a line break"));
        };
        let top = PathBuf::from(top);
        // A repository's configuration can name any directory as its work tree.
        if top != nearest {
            return Err(GitError::unusable(
                cwd,
                format!(
                    "its configuration puts the work tree at {} (core.worktree)",
                    top.display()
                ),
            ));
        }
        let below = cwd
            .strip_prefix(&top)
            .map_err(|_| GitError::unusable(&cwd, "it is not below the top of its repository"))?
            .to_owned();
        let (dir, common, object_format) = (
            PathBuf::from(dir),
            PathBuf::from(common),
            object_format.to_owned(),
        );
        let mut repo = Self {
            git: git.clone(),
            top,
            below,
            dir,
            common,
            object_format,
            settings: Vec::new(),
            user_patterns: None,
        };
        repo.settings = vec![repo.object_mode()];
        repo.read_settings().await?;
        Ok(repo)
    }

    /// Sets the directory, from the top.
    #[must_use]
    pub fn below(self, below: &Path) -> Self {
        Self {
            below: below.to_owned(),
            ..self
        }
    }

    /// Returns the setting that gives new objects and refs the permissions of existing objects,
    /// because the hub's umask is stricter.
    fn object_mode(&self) -> (String, String) {
        let mode = self
            .common
            .join("objects")
            .metadata()
            .map_or(0, |meta| meta.permissions().mode());
        let readable = match (mode & 0o004 != 0, mode & 0o040 != 0) {
            (true, _) => "0644",
            (false, true) => "0640",
            (false, false) => "0600",
        };
        ("core.sharedrepository".to_owned(), readable.to_owned())
    }

    /// Reads the settings of the repository and the user that change how content is stored, or
    /// which files are ignored.
    async fn read_settings(&mut self) -> Result<(), GitError> {
        let ran = self
            .of_refs(&["config", "--get-regexp", "-z", CONTENT_SETTINGS])
            .for_user()
            .run()
            .await?;
        // Exit code 1 means that none is set.
        if !matches!(ran.exit_code, Some(0 | 1)) {
            return Err(GitError::unusable(&self.top, error_text(&ran)));
        }
        let text = String::from_utf8_lossy(&ran.output).into_owned();
        let user_home = self.git.user_dir("HOME");
        let config_dir = self
            .git
            .user_dir("XDG_CONFIG_HOME")
            .or_else(|| user_home.as_ref().map(|home| home.join(".config")));
        self.user_patterns = config_dir.map(|dir| dir.join("git/ignore"));
        for entry in text.split('\0').filter(|entry| !entry.is_empty()) {
            // A name without a value means `true`.
            let (name, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            if name == "core.sharedrepository" && value == self.settings[0].1 {
                continue;
            }
            if name != "core.excludesfile" {
                self.settings.push((name.to_owned(), value.to_owned()));
                continue;
            }
            // An empty value means no file.
            self.user_patterns =
                (!value.is_empty()).then(|| match (value.strip_prefix("~/"), &user_home) {
                    (Some(rest), Some(home)) => home.join(rest),
                    _ => self.top.join(value),
                });
        }
        Ok(())
    }

    /// Builds a call on the repository's own git directory. It may read and write refs only.
    pub(super) fn of_refs<'a>(&'a self, args: &[&str]) -> Call<'a> {
        // The common directory would suffice for hidden refs, but each work tree has its own HEAD.
        self.git
            .call(&self.top, args)
            .env("GIT_DIR", &self.dir)
            .settings(&self.settings)
    }

    /// Returns the checked-out commit. `None`: there is no commit yet.
    ///
    /// # Errors
    /// git failed.
    pub async fn head(&self) -> Result<Option<String>, GitError> {
        let ran = self
            .of_refs(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])
            .run()
            .await?;
        let text = String::from_utf8_lossy(&ran.output).trim().to_owned();
        match ran.exit_code {
            Some(0) => Ok(Some(text)),
            Some(1) => Ok(None),
            _ => Err(GitError::Failed {
                command: "rev-parse".to_owned(),
                why: error_text(&ran),
            }),
        }
    }

    /// Returns the ignore patterns that are in no tree: those of the user, then those of the
    /// repository, which take precedence as in git. Like git, skips a file that cannot be read.
    pub(super) fn own_patterns(&self) -> Vec<u8> {
        self.patterns_in(&self.common)
    }

    /// Returns the patterns of the user and of a repository with this git directory.
    pub(super) fn patterns_in(&self, common: &Path) -> Vec<u8> {
        let own = common.join("info/exclude");
        let mut patterns = Vec::new();
        for path in self.user_patterns.iter().chain([&own]) {
            match read_patterns(path) {
                Ok(read) => patterns.extend(read),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::debug!(%error, path = %path.display(), "ignore patterns cannot be read")
                }
            }
        }
        patterns
    }

    /// Returns the oid of the tree without entries, which git knows everywhere.
    pub(super) fn empty_tree(&self) -> &'static str {
        match self.object_format.as_str() {
            "sha256" => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
            _ => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        }
    }

    /// Returns whether settings convert line ends of files without attributes.
    pub(super) fn converts_line_ends(&self) -> bool {
        self.settings
            .iter()
            .rev()
            .find(|(name, _)| name == "core.autocrlf")
            .is_some_and(|(_, value)| !matches!(value.as_str(), "false" | "no" | "off" | "0"))
    }

    /// Returns whether the work tree's file system ignores case, according to `core.ignorecase`.
    pub(super) fn ignores_case(&self) -> bool {
        self.settings
            .iter()
            .rev()
            .find(|(name, _)| name == "core.ignorecase")
            .is_some_and(|(_, value)| value == "true")
    }

    /// Returns the null oid.
    pub(super) fn zero(&self) -> String {
        "0".repeat(if self.object_format == "sha256" {
            64
        } else {
            40
        })
    }
}

/// Lists the work trees of the repository around a directory, without a bare one.
async fn work_trees(git: &Git, cwd: &Path) -> Result<Vec<PathBuf>, GitError> {
    let listed = git
        .call(cwd, &["worktree", "list", "--porcelain", "-z"])
        .for_user()
        .output()
        .await?;
    let listed = String::from_utf8_lossy(&listed);
    // An empty field ends the entry of a work tree.
    let entries = listed
        .split("\0\0")
        .filter(|entry| !entry.split('\0').any(|field| field == "bare"));
    Ok(entries
        .filter_map(|entry| {
            entry
                .split('\0')
                .find_map(|field| field.strip_prefix("worktree "))
        })
        .map(PathBuf::from)
        .collect())
}

/// Reads the complete lines of a file of ignore patterns, up to a maximum size. Part of a pattern
/// could ignore other files.
fn read_patterns(path: &Path) -> io::Result<Vec<u8>> {
    let mut patterns = Vec::new();
    files::open_named(path)?
        .take(PATTERN_BYTES_MAX)
        .read_to_end(&mut patterns)?;
    if patterns.len() as u64 == PATTERN_BYTES_MAX {
        patterns.truncate(
            patterns
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1),
        );
    }
    // git skips the byte order mark only at the beginning of a file.
    let mark = if patterns.starts_with(BYTE_ORDER_MARK) {
        BYTE_ORDER_MARK.len()
    } else {
        0
    };
    patterns.drain(..mark);
    patterns.push(b'\n');
    Ok(patterns)
}

/// Returns whether a path is a regular file. A FIFO would block git.
pub(super) fn is_regular(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file())
}
