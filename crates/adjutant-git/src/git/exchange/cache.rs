//! A runner's copy of a repository: its objects, and the refs of runs. Workspaces are clones of it.

use crate::files;
use crate::git::call::Git;
use crate::git::config_text::quote;
use crate::git::{GitError, Repo};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Settings of the user and the repository that are carried. Their values are data.
const CARRIED: &str = r"^(user\.(name|email)|core\.(autocrlf|eol))$";
/// Maximum size of the list of commits at which a shallow history ends, in bytes.
const SHALLOW_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What a clone of a repository needs besides objects and refs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CarriedSettings {
    /// `sha1` or `sha256`.
    pub object_format: String,
    /// Names and values of settings.
    pub settings: Vec<(String, String)>,
    /// The ignore patterns of the user and of the repository.
    pub patterns: String,
    /// The commits at which a shallow history ends.
    pub shallow: Vec<String>,
}

impl Repo {
    /// Reads what a clone of the repository on another machine needs.
    ///
    /// # Errors
    /// git or the disk failed.
    pub async fn carried_settings(&self) -> Result<CarriedSettings, GitError> {
        let ran = self
            .of_refs(&["config", "--get-regexp", "-z", CARRIED])
            .for_user()
            .run()
            .await?;
        let listed = String::from_utf8_lossy(&ran.output).into_owned();
        let settings = listed
            .split('\0')
            .filter_map(|entry| entry.split_once('\n'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let shallow = self.common.join("shallow");
        let ends = if shallow.is_file() {
            files::read_named(&shallow, SHALLOW_BYTES_MAX).map_err(GitError::file(&shallow))?
        } else {
            Vec::new()
        };
        Ok(CarriedSettings {
            object_format: self.object_format.clone(),
            settings: settings.collect(),
            patterns: String::from_utf8_lossy(&self.own_patterns()).into_owned(),
            shallow: String::from_utf8_lossy(&ends)
                .lines()
                .map(str::to_owned)
                .collect(),
        })
    }
}

/// Creates the copy of a repository at `top`, below `home`, or updates its settings.
///
/// # Errors
/// git or the disk failed.
pub async fn make_cache(
    git: &Git,
    home: &Path,
    top: &Path,
    carried: &CarriedSettings,
) -> Result<Repo, GitError> {
    let dir = top.join(".git");
    if !dir.join("HEAD").is_file() {
        let new = top.with_extension("new");
        files::remove_dir(&new).map_err(GitError::file(&new))?;
        files::make_dirs(home, &new).map_err(GitError::file(&new))?;
        let format = format!("--object-format={}", carried.object_format);
        git.call(&new, &["init", "--quiet", "--template=", &format])
            .output()
            .await?;
        files::remove_dir(top).map_err(GitError::file(top))?;
        fs::rename(&new, top).map_err(GitError::file(top))?;
    }
    let mut config = if carried.object_format == "sha256" {
        "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = sha256\n".to_owned()
    } else {
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n".to_owned()
    };
    for (name, value) in &carried.settings {
        if let Some((section, key)) = name.split_once('.')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        {
            config.push_str(&format!("[{section}]\n\t{key} = {}\n", quote(value)));
        }
    }
    let shallow = dir.join("shallow");
    let known = if shallow.is_file() {
        files::read_named(&shallow, SHALLOW_BYTES_MAX).map_err(GitError::file(&shallow))?
    } else {
        Vec::new()
    };
    let known = String::from_utf8_lossy(&known).into_owned();
    // A commit whose parents arrived once stays in the list, which is harmless.
    let ends: BTreeSet<&str> = known
        .lines()
        .chain(carried.shallow.iter().map(String::as_str))
        .collect();
    let write = |name: &str, text: &str| {
        let to = dir.join(name);
        files::make_dirs(home, to.parent().unwrap_or(&dir))
            .and_then(|()| files::write_atomically(home, &to, text.as_bytes()))
            .map_err(GitError::file(to))
    };
    write("config", &config)?;
    write("info/exclude", &carried.patterns)?;
    if !ends.is_empty() {
        write(
            "shallow",
            &ends
                .into_iter()
                .map(|end| format!("{end}\n"))
                .collect::<String>(),
        )?;
    }
    Repo::find(git, top).await
}
