//! Agent configuration in a working directory (servers, hooks, settings): used only while its hash
//! is trusted.

use super::OpError;
use crate::files;
use crate::preset::Preset;
use crate::store::{Store, is_trusted};
use adjutant_core::{Denied, hex};
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum number of files, and their total size in bytes, that can be reviewed and trusted.
const FILES_MAX: usize = 1_000;
const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How many parent directories are searched for the repository's root.
const ABOVE_MAX: usize = 32;
/// Maximum number of files named in messages.
const NAMED_MAX: usize = 5;

/// The agent configuration found in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The hash of the names and contents of all files.
    pub hash: String,
    /// The files, those of the working directory first.
    files: Vec<PathBuf>,
}

impl Found {
    fn names(&self) -> String {
        let some: Vec<String> = self
            .files
            .iter()
            .take(NAMED_MAX)
            .map(|file| file.display().to_string())
            .collect();
        let more = self.files.len().saturating_sub(NAMED_MAX);
        if more == 0 {
            some.join(", ")
        } else {
            format!("{} and {more} more", some.join(", "))
        }
    }
}

/// Why the configuration of agents in a directory cannot be examined.
#[derive(Debug, thiserror::Error)]
enum TrustError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} exceeds the limit of {FILES_MAX} files", path.display())]
    TooManyFiles { path: PathBuf },
    #[error("{} and others have more than {BYTES_MAX} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("{} is a link to a directory, which can change unnoticed", path.display())]
    LinkToDirectory { path: PathBuf },
}

impl TrustError {
    fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::File {
            path: path.to_owned(),
            source,
        }
    }
}

/// Collects files with these names in a directory and its parents up to the repository's root.
/// `None`: there are none.
fn collect(cwd: &Path, names: &[String]) -> Result<Option<Found>, TrustError> {
    let levels: Vec<&Path> = cwd.ancestors().take(ABOVE_MAX).collect();
    let above = levels
        .iter()
        .position(|dir| dir.join(".git").exists())
        .unwrap_or(0);
    let mut files = Vec::new();
    for dir in &levels[..=above] {
        for name in names {
            add_files(&dir.join(name.trim_end_matches('/')), &mut files)?;
        }
    }
    let mut hash = Sha256::new();
    let mut left = BYTES_MAX;
    for file in &files {
        let failed = TrustError::of(file);
        let name = file.as_os_str().as_encoded_bytes();
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(name);
        let mut content = Vec::new();
        files::open_named(file)
            .map_err(&failed)?
            .take(left + 1)
            .read_to_end(&mut content)
            .map_err(&failed)?;
        left = left
            .checked_sub(content.len() as u64)
            .ok_or_else(|| TrustError::TooLarge { path: file.clone() })?;
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    let hash = hex(hash.finalize());
    Ok((!files.is_empty()).then_some(Found { hash, files }))
}

/// Adds the regular files at and below a path, sorted by name. Links to files are followed, links
/// to directories are refused.
fn add_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), TrustError> {
    let failed = TrustError::of(path);
    let meta = match std::fs::metadata(path) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(());
        }
        found => found.map_err(&failed)?,
    };
    if meta.is_file() {
        if files.len() == FILES_MAX {
            return Err(TrustError::TooManyFiles {
                path: path.to_owned(),
            });
        }
        files.push(path.to_owned());
    } else if meta.is_dir() {
        let entries = std::fs::read_dir(path).map_err(&failed)?;
        let mut below = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<PathBuf>>>()
            .map_err(failed)?;
        below.sort();
        for entry in below {
            let is_link_to_directory = entry.is_symlink() && entry.is_dir();
            if is_link_to_directory {
                return Err(TrustError::LinkToDirectory { path: entry });
            }
            add_files(&entry, files)?;
        }
    }
    Ok(())
}

/// Whether an attempt uses the agent configuration of its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrustDecision {
    /// Whether the configuration is honoured.
    pub trust: bool,
    /// A note for the user.
    pub note: Option<String>,
}

/// Collects a directory's configuration for an agent, on a blocking thread.
pub(super) async fn collect_configuration(
    cwd: &str,
    preset: &Preset,
) -> Result<Option<Found>, OpError> {
    let (cwd, names) = (PathBuf::from(cwd), preset.about.directory_files.clone());
    let collected = tokio::task::spawn_blocking(move || collect(&cwd, &names))
        .await
        .map_err(|error| OpError::Io(error.to_string()))?;
    collected.map_err(|problem| {
        Denied::invalid(
            "trust_repo",
            format!("{problem}: cannot determine what would be trusted"),
        )
        .into()
    })
}

/// Checks that a directory's agent configuration is trusted.
///
/// # Errors
/// It is not trusted in its current state.
pub(super) fn check_trusted(store: &Store, cwd: &str, found: &Found) -> Result<(), OpError> {
    if store.read(|connection| is_trusted(connection, cwd, &found.hash))? {
        return Ok(());
    }
    let problem = format!(
        "{} is not trusted in its current state: review it, then start the run once with --trust-repo, or remove trust_repo from the agent's configuration",
        found.names()
    );
    Err(Denied::invalid("trust_repo", problem).into())
}

/// Decides whether an attempt uses the agent configuration of its directory.
pub(super) async fn decide_trust(
    store: &Store,
    cwd: &str,
    preset: &Preset,
    wants: bool,
) -> TrustDecision {
    let found = match collect_configuration(cwd, preset).await {
        Ok(found) => found,
        Err(error) => {
            return TrustDecision {
                trust: false,
                note: wants.then(|| error.to_string()),
            };
        }
    };
    let Some(found) = found else {
        return TrustDecision {
            trust: wants,
            note: None,
        };
    };
    let is_trusted = wants && check_trusted(store, cwd, &found).is_ok();
    let names = found.names();
    let note = match (is_trusted, wants, preset.about.kept_out) {
        (true, _, _) => Some(format!("uses {names}, trusted with sha256 {}", found.hash)),
        (false, true, true) => Some(format!(
            "ignores {names}: changed since it was trusted; adj run --trust-repo trusts the current state"
        )),
        (false, false, true) => None,
        (false, _, false) => Some(format!(
            "{} uses {names}, which is not trusted; this CLI cannot ignore it",
            preset.title
        )),
    };
    TrustDecision {
        trust: is_trusted,
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn hash_covers_names_and_contents_up_to_the_repository_root() {
        let root = tempfile::tempdir().expect("a directory");
        let repo = root.path().join("repo");
        let cwd = repo.join("a/b");
        std::fs::create_dir_all(&cwd).expect("made");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let names = [".mcp.json".to_owned(), ".claude/".to_owned()];
        let now = || collect(&cwd, &names).expect("it can be read");
        write(".mcp.json", "of nobody's repository");
        assert_eq!(
            now(),
            None,
            "without a repository only the directory itself counts"
        );
        write("repo/.git/HEAD", "");
        assert_eq!(now(), None);
        write("repo/.mcp.json", "{}");
        let first = now().expect("found");
        assert_eq!(first.files, [repo.join(".mcp.json")]);
        write("repo/.mcp.json", "{ }");
        let second = now().expect("found");
        assert_ne!(first.hash, second.hash, "the content counts");
        write("repo/a/b/.claude/hooks/x.sh", "echo");
        let third = now().expect("found");
        assert_eq!(
            third.files,
            [cwd.join(".claude/hooks/x.sh"), repo.join(".mcp.json")]
        );
        write("repo/.mcp.json", "{}");
        std::fs::remove_dir_all(cwd.join(".claude")).expect("removed");
        assert_eq!(now(), Some(first), "and nothing else does");
    }

    #[test]
    fn unreadable_files_are_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let names = [".claude".to_owned()];
        let dir = root.path().join(".claude");
        std::fs::create_dir(&dir).expect("made");
        std::os::unix::fs::symlink("/etc", dir.join("etc")).expect("made");
        assert!(
            collect(root.path(), &names)
                .is_err_and(|problem| matches!(problem, TrustError::LinkToDirectory { .. }))
        );
        std::fs::remove_file(dir.join("etc")).expect("removed");
        File::create(dir.join("large"))
            .and_then(|file| file.set_len(BYTES_MAX + 1))
            .expect("made");
        assert!(
            collect(root.path(), &names)
                .is_err_and(|problem| matches!(problem, TrustError::TooLarge { .. }))
        );
        std::fs::remove_file(dir.join("large")).expect("removed");
        for n in 0..=FILES_MAX {
            File::create(dir.join(n.to_string())).expect("made");
        }
        assert!(
            collect(root.path(), &names)
                .is_err_and(|problem| matches!(problem, TrustError::TooManyFiles { .. }))
        );
    }
}
