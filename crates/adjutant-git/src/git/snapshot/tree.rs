//! Reads a tree into an index, and writes the index as a tree.

use super::changes::{Changes, LeftOut};
use super::crowded::{UNTRACKED_FILES_MAX, crowded};
use super::listing::{
    BLOCKS_GIT, WITH_REPOSITORIES_MAX, list_apart, list_taken_out, list_tracked, list_untracked,
    paths_of,
};
use crate::git::call::Call;
use crate::git::contents::is_attributes;
use crate::git::line_ends::TextFiles;
use crate::git::paths::nul_terminated;
use crate::git::scratch::Contents;
use crate::git::{GitError, Scratch};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of text files that are read one at a time.
const TEXTS_APART_MAX: usize = 200;
/// Minimum number of files that are stored in packs, and maximum number of files of one pack.
const PACKED_FILES_MIN: usize = 1_000;
const PACK_FILES_MAX: usize = 10_000;
/// Maximum number of attempts to read a tree that changes meanwhile.
const READS_MAX: u32 = 3;

/// Writes the index as a tree. Leaves out unmerged entries whose files could not be read.
pub(in crate::git) async fn write_tree(scratch: &Scratch) -> Result<String, GitError> {
    let write = || {
        scratch
            .call(&["write-tree", "--missing-ok"])
            .disposable_index()
            .line()
    };
    let refused = match write().await {
        Err(error @ GitError::Failed { .. }) => error,
        written => return written,
    };
    let listed = scratch
        .call(&["ls-files", "-z", "--unmerged"])
        .output()
        .await?;
    // `<mode> <oid> <stage>`, tab, path.
    let unmerged = listed
        .split(|byte| *byte == 0)
        .filter_map(|entry| Some(&entry[entry.iter().position(|byte| *byte == b'\t')? + 1..]));
    let paths = nul_terminated(&unmerged.map(<[u8]>::to_vec).collect::<Vec<_>>());
    if paths.is_empty() {
        return Err(refused);
    }
    scratch.cache_contents(None);
    scratch
        .call(&["update-index", "-z", "--force-remove", "--stdin"])
        .input(paths)
        .output()
        .await?;
    write().await
}

/// The outcome of reading a tree into an index.
#[derive(Debug, Default)]
pub(in crate::git) struct ReadTree {
    pub left_out: LeftOut,
    /// Those of `left_out` that are directories with too many untracked files.
    pub(super) crowded: LeftOut,
    /// The paths that differed from the index.
    pub(super) changed: HashSet<Vec<u8>>,
    /// The changed paths whose content attributes can change.
    pub(super) texts: Vec<Vec<u8>>,
    /// A tree with the attribute files.
    pub(super) attributes: Option<String>,
}

/// Updates the index to the state of the tree. `first`: the first snapshot of the run.
pub(in crate::git) async fn read_tree(
    scratch: &Scratch,
    first: Option<&str>,
) -> Result<ReadTree, GitError> {
    let mut tries = 1;
    loop {
        let read = read_tree_once(scratch, first).await;
        if read.is_err() {
            // A failed call may have updated part of the index.
            scratch.cache_contents(None);
        }
        match read {
            // A file was created or removed between the two calls.
            Err(error) if tries < READS_MAX && !matches!(error, GitError::Slow { .. }) => {
                tracing::debug!(%error, "the tree is read again");
                tries += 1;
            }
            read => return read,
        }
    }
}

async fn read_tree_once(scratch: &Scratch, first: Option<&str>) -> Result<ReadTree, GitError> {
    let listed = Listed::of(scratch, first).await?;
    apply(scratch, listed.changes(scratch)).await
}

/// The paths of a tree that can differ from an index.
struct Listed {
    /// Each followed by a NUL.
    tracked: Vec<u8>,
    untracked: Vec<u8>,
    /// Tracked by the agent of a workspace.
    forced: BTreeSet<Vec<u8>>,
    /// The agent does not track them any more.
    taken_out: HashSet<Vec<u8>>,
    /// What these lists lack.
    left_out: LeftOut,
}

impl Listed {
    async fn of(scratch: &Scratch, first: Option<&str>) -> Result<Self, GitError> {
        let links = scratch.contents().await?.links;
        // Concurrently, because each of them reads the whole tree.
        let (tracked, untracked, (forced, only_own)) = tokio::join!(
            list_tracked(scratch, &links),
            list_untracked(scratch),
            list_apart(scratch)
        );
        let ((tracked, skipped), (untracked, missing)) = (tracked?, untracked?);
        Ok(Self {
            tracked,
            untracked,
            forced,
            taken_out: list_taken_out(scratch, &only_own, first).await?,
            left_out: [skipped, missing].concat(),
        })
    }

    /// Returns the operations for these paths.
    fn changes(self, scratch: &Scratch) -> Changes {
        let untracked: Vec<&[u8]> = paths_of(&self.untracked).collect();
        let left_out_whole = crowded(&untracked, UNTRACKED_FILES_MAX);
        let mut changes = Changes::default();
        changes.crowded = left_out_whole
            .iter()
            .map(|directory| (directory.path.clone(), directory.why()))
            .collect();
        // First, because a snapshot names only some.
        changes.left_out = [changes.crowded.clone(), self.left_out].concat();
        let listed: HashSet<&[u8]> = untracked
            .iter()
            .map(|path| path.strip_suffix(b"/").unwrap_or(path))
            .collect();
        let untracked = untracked.iter().copied().filter(|path| {
            !left_out_whole
                .iter()
                .any(|directory| directory.contains(path))
        });
        let forced = self.forced.iter().map(Vec::as_slice);
        let forced = forced.filter(|path| !listed.contains(path) && is_forced(scratch, path));
        let mut last: &[u8] = b"";
        // Tracked files first, so that untracked ones do not use up the size limit.
        for path in paths_of(&self.tracked)
            .chain(untracked)
            .chain(forced)
            .filter(|path| !self.taken_out.contains(*path))
        {
            // git lists a deleted file twice.
            let is_home = scratch
                .home()
                .is_some_and(|home| Path::new(OsStr::from_bytes(path)).starts_with(home));
            if path != last && !is_home {
                changes.add(scratch.tree(), path);
            }
            last = path;
        }
        changes.to_remove.extend(self.taken_out);
        changes
    }
}

/// Returns whether a file that the agent tracks is in the tree, and is not excluded.
fn is_forced(scratch: &Scratch, path: &[u8]) -> bool {
    let path = Path::new(OsStr::from_bytes(path));
    let is_given = scratch
        .excluded()
        .iter()
        .any(|given| path.starts_with(given));
    !is_given && scratch.tree().join(path).symlink_metadata().is_ok()
}

/// Brings the index to the state of the tree.
async fn apply(scratch: &Scratch, changes: Changes) -> Result<ReadTree, GitError> {
    let changed = changes.paths();
    let Changes {
        to_read,
        repositories,
        to_remove,
        mut left_out,
        crowded,
        has_repository,
        ..
    } = changes;
    let is_link_changed =
        |known: Contents| known.links.iter().any(|(path, _)| changed.contains(path));
    if has_repository
        || changed.iter().any(|path| is_attributes(path))
        || scratch.cached_contents().is_some_and(is_link_changed)
    {
        scratch.cache_contents(None);
    }
    if !to_remove.is_empty() {
        let remove = scratch
            .call(&["update-index", "-z", "--force-remove", "--stdin"])
            .disposable_index();
        remove.input(nul_terminated(&to_remove)).output().await?;
    }
    // Attribute files first, because they determine how the others are read.
    let (attribute_files, to_read): (Vec<_>, Vec<_>) =
        to_read.into_iter().partition(|path| is_attributes(path));
    read_files(scratch.call(&READ), &attribute_files).await?;
    left_out.extend(read_repositories(scratch, &repositories).await?);
    let attributes = if to_read.is_empty() {
        None
    } else {
        scratch.contents().await?.attributes
    };
    let texts = match &attributes {
        Some(attributes) => read_with_attributes(scratch, attributes, to_read).await?,
        None => {
            read_plain_files(scratch, &to_read).await?;
            Vec::new()
        }
    };
    Ok(ReadTree {
        left_out,
        crowded,
        changed,
        texts,
        attributes,
    })
}

/// Reads files of which attributes can change the content. Returns those that they can change.
async fn read_with_attributes(
    scratch: &Scratch,
    attributes: &str,
    to_read: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, GitError> {
    let TextFiles { texts, others, .. } = scratch.text_files(attributes, to_read).await?;
    read_plain_files(scratch, &others).await?;
    match read_files(scratch.text_call(&READ, attributes), &texts).await {
        Ok(()) => {}
        Err(error @ GitError::Slow { .. }) => return Err(error),
        Err(error) => {
            tracing::debug!(%error, "texts are kept one by one");
            read_texts_apart(scratch, attributes, &texts).await?;
        }
    }
    Ok(texts)
}

/// Reads the checked-out commits of nested repositories. Returns the repositories that are left out
/// because they block git; the index keeps their previous commits.
pub(in crate::git) async fn read_repositories(
    scratch: &Scratch,
    repositories: &[Vec<u8>],
) -> Result<LeftOut, GitError> {
    match read_files(
        scratch.call(&READ).limit(WITH_REPOSITORIES_MAX),
        repositories,
    )
    .await
    {
        Err(GitError::Slow { .. }) => Ok(repositories
            .iter()
            .map(|path| (path.clone(), BLOCKS_GIT.to_owned()))
            .collect()),
        read => read.map(|()| LeftOut::new()),
    }
}

/// Reads text files one at a time, because one of them is not in its declared encoding. That file
/// is stored unchanged.
async fn read_texts_apart(
    scratch: &Scratch,
    attributes: &str,
    texts: &[Vec<u8>],
) -> Result<(), GitError> {
    let (few, rest) = texts.split_at(texts.len().min(TEXTS_APART_MAX));
    for text in few.chunks(1) {
        match read_files(scratch.text_call(&READ, attributes), text).await {
            Err(GitError::Failed { .. }) => read_files(scratch.call(&READ), text).await?,
            read => read?,
        }
    }
    read_files(scratch.call(&READ), rest).await
}

const READ: [&str; 6] = [
    "update-index",
    "-z",
    "--add",
    "--remove",
    "--replace",
    "--stdin",
];

async fn read_files(call: Call<'_>, paths: &[Vec<u8>]) -> Result<(), GitError> {
    if paths.is_empty() {
        Ok(())
    } else {
        call.disposable_index()
            .input(nul_terminated(paths))
            .output()
            .await
            .map(drop)
    }
}

/// Reads files whose content nothing converts. Many of them become packs, which is twice as fast as
/// a file for each object: git writes the content of files over this size to a pack. Its search in
/// a new pack is quadratic, so a pack has a limited number of files.
async fn read_plain_files(scratch: &Scratch, paths: &[Vec<u8>]) -> Result<(), GitError> {
    if paths.len() < PACKED_FILES_MIN {
        return read_files(scratch.call(&READ), paths).await;
    }
    let packed = [("core.bigfilethreshold".to_owned(), "1".to_owned())];
    for paths in paths.chunks(PACK_FILES_MAX) {
        read_files(scratch.call(&READ).settings(&packed), paths).await?;
    }
    Ok(())
}
