//! Lists the paths of a tree that differ from an index.

use super::changes::LeftOut;
use crate::git::call::error_text;
use crate::git::index_file::copy_index;
use crate::git::paths::{nul_terminated, pattern_of};
use crate::git::{GitError, Scratch};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum size of the list of changed tracked files, in bytes. Large enough for any index.
const TRACKED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum number of bytes read from the list of untracked files.
const UNTRACKED_BYTES_MAX: usize = if cfg!(test) {
    64 * 1024
} else {
    16 * 1024 * 1024
};
/// Timeout for listing untracked files.
const UNTRACKED_MAX: Duration = Duration::from_secs(20);
/// Timeout for listing changed files in a tree with nested repositories, and for reading their
/// checked-out commits. A FIFO in the git directory of a nested repository blocks git.
pub(super) const WITH_REPOSITORIES_MAX: Duration =
    Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// The reason for leaving out a nested repository that blocks git.
pub(super) const BLOCKS_GIT: &str = "a nested repository that git took too long to read";

/// Lists the tracked files that differ from the index, each followed by a NUL, and the nested
/// repositories that are left out because they block git.
pub(super) async fn list_tracked(
    scratch: &Scratch,
    links: &[(Vec<u8>, String)],
) -> Result<(Vec<u8>, LeftOut), GitError> {
    let call = || {
        scratch
            .call(&["ls-files", "-z", "--modified", "--deleted"])
            .output_bytes_max(TRACKED_BYTES_MAX)
    };
    if links.is_empty() {
        return Ok((call().output().await?, LeftOut::new()));
    }
    match call().limit(WITH_REPOSITORIES_MAX).output().await {
        Err(GitError::Slow { .. }) => {}
        listed => return Ok((listed?, LeftOut::new())),
    }
    // git opens each repository that its index names, so this index names none.
    let index = scratch.index().with_extension("files");
    File::open(scratch.index())
        .and_then(|from| copy_index(from, &index))
        .map_err(GitError::file(&index))?;
    let paths = nul_terminated(links.iter().map(|(path, _)| path));
    let remove = scratch
        .call(&["update-index", "-z", "--force-remove", "--stdin"])
        .env("GIT_INDEX_FILE", &index);
    remove.input(paths).output().await?;
    Ok((
        call().env("GIT_INDEX_FILE", &index).output().await?,
        links
            .iter()
            .map(|(path, _)| (path.clone(), BLOCKS_GIT.to_owned()))
            .collect(),
    ))
}

/// Lists the untracked files that are not ignored, each followed by a NUL, and what the list lacks.
pub(super) async fn list_untracked(scratch: &Scratch) -> Result<(Vec<u8>, LeftOut), GitError> {
    let call = scratch
        .call(&["ls-files", "-z", "--others", "--exclude-standard"])
        .settings(&scratch.pattern_settings()?);
    let mut call = call
        .output_bytes_max(UNTRACKED_BYTES_MAX)
        .limit(UNTRACKED_MAX);
    for path in scratch
        .home()
        .into_iter()
        .chain(scratch.excluded().iter().map(PathBuf::as_path))
    {
        call = call.arg(exclude_option(path));
    }
    let mut listed = match call.run().await {
        // A FIFO in a nested repository blocks git. The tracked files are still stored.
        Err(GitError::Slow { .. }) => {
            return Ok((
                Vec::new(),
                vec![(
                    Vec::new(),
                    "untracked files, which git took too long to list".to_owned(),
                )],
            ));
        }
        listed => listed?,
    };
    if listed.exit_code != Some(0) {
        return Err(GitError::Failed {
            command: "ls-files".to_owned(),
            why: error_text(&listed),
        });
    }
    // A truncated path does not end with a NUL.
    let whole = listed
        .output
        .iter()
        .rposition(|byte| *byte == 0)
        .map_or(0, |at| at + 1);
    listed.output.truncate(whole);
    let mut missing: LeftOut = unreadable_directories(&listed.errors);
    missing.extend(
        listed
            .is_cut
            .then(|| (Vec::new(), "more files than are listed".to_owned())),
    );
    Ok((listed.output, missing))
}

/// Returns the directories that git could not list, from its warnings.
fn unreadable_directories(warnings: &str) -> LeftOut {
    let of_line = |line: &str| {
        let (path, _) = line
            .strip_prefix("warning: could not open directory '")?
            .rsplit_once("': ")?;
        Some((path.as_bytes().to_vec(), "unreadable".to_owned()))
    };
    warnings.lines().filter_map(of_line).collect()
}

/// Compares the index of an isolated run's agent with Adjutant's. Returns the files that are only
/// in the agent's index, and those that are only in Adjutant's. A file that the agent tracks is
/// part of its work even if a pattern ignores it.
pub(super) async fn list_apart(scratch: &Scratch) -> (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) {
    let listed = async {
        let Some(index) = scratch.agents_index().await? else {
            return Ok::<_, GitError>((BTreeSet::new(), BTreeSet::new()));
        };
        let call = || {
            scratch
                .call(&["ls-files", "-z", "--cached"])
                .output_bytes_max(TRACKED_BYTES_MAX)
        };
        let (theirs, own) = (
            call().env("GIT_INDEX_FILE", &index).output().await?,
            call().output().await?,
        );
        let (theirs, own) = (
            paths_of(&theirs).collect::<HashSet<_>>(),
            paths_of(&own).collect::<HashSet<_>>(),
        );
        let only = |of: &HashSet<&[u8]>, other: &HashSet<&[u8]>| {
            of.difference(other).map(|path| path.to_vec()).collect()
        };
        Ok((only(&theirs, &own), only(&own, &theirs)))
    };
    listed.await.unwrap_or_else(|error| {
        tracing::debug!(%error, "the index of a workspace cannot be read");
        (BTreeSet::new(), BTreeSet::new())
    })
}

/// Returns the paths that a `.gitignore` of the tree ignores and that are not in the run's first
/// snapshot: the agent tracked them and does not any more. The user's other ignore patterns do not
/// count, because they may be newer than the snapshot.
pub(super) async fn list_taken_out(
    scratch: &Scratch,
    paths: &BTreeSet<Vec<u8>>,
    first: Option<&str>,
) -> Result<HashSet<Vec<u8>>, GitError> {
    let Some(first) = first.filter(|_| !paths.is_empty()) else {
        return Ok(HashSet::new());
    };
    let input = nul_terminated(&paths.iter().cloned().collect::<Vec<_>>());
    // If git rejects a path, such as one behind a symbolic link, all of them stay.
    let ran = scratch
        .call(&["check-ignore", "-z", "--stdin", "--no-index"])
        .input(input)
        .run()
        .await?;
    let mut ignored: HashSet<Vec<u8>> = paths_of(&ran.output)
        .filter(|_| ran.exit_code == Some(0))
        .map(<[u8]>::to_vec)
        .collect();
    if !ignored.is_empty() {
        let before = scratch
            .call(&["ls-tree", "-r", "-z", "--name-only", "--full-tree", first])
            .output_bytes_max(TRACKED_BYTES_MAX)
            .output()
            .await?;
        for path in paths_of(&before) {
            ignored.remove(path);
        }
    }
    Ok(ignored)
}

/// Splits a list of NUL-terminated paths.
pub(super) fn paths_of(listed: &[u8]) -> impl Iterator<Item = &[u8]> {
    listed
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
}

/// Returns the option that excludes a path from the top of the tree. Special characters in the path
/// are escaped.
fn exclude_option(path: &Path) -> OsString {
    OsString::from_vec(
        [
            b"--exclude=".as_slice(),
            &pattern_of(path.as_os_str().as_bytes()),
        ]
        .concat(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_directory_is_named() {
        let warnings = "warning: could not open directory 'a/it's mine/': Permission denied\nwarning: something else\n";
        assert_eq!(
            unreadable_directories(warnings),
            [(b"a/it's mine/".to_vec(), "unreadable".to_owned())]
        );
    }
}
