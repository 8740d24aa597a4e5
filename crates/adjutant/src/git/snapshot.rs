//! Snapshots: the state of a run's tree, stored as a commit under a hidden ref.
//!
//! ```text
//!  refs/adjutant/<run id>/<n>   n = 1, 2, …; the parent of 1 is the commit that was checked out, the parent of n + 1 is n
//! ```
//! The ref is the only record of a snapshot; the commit message gives the reason for it. Files have the content that git
//! itself would commit; see [`super::line_ends`] for their bytes.

use super::call::{Call, error_text};
use super::contents::{Contents, is_attributes};
use super::copied::pattern_of;
use super::line_ends::{TextFiles, nul_terminated};
use super::scratch::copy_index;
use super::{GitError, Repo, Scratch};
use crate::failpoint::failpoint;
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, RunId, Time};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum size of a file in a snapshot, in bytes. Larger files are left out.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum total size of the files that one snapshot adds, in bytes.
const ADDED_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Maximum number of left-out files that a snapshot names.
const LEFT_OUT_NAMED_MAX: usize = 20;
/// Maximum number of a snapshot. A ref with a larger number was not created by Adjutant.
const N_MAX: u32 = 1_000_000;
/// Maximum number of snapshot numbers to try if other processes create snapshots at the same time.
const TRIES_MAX: u32 = 20;
/// Maximum number of text files that are read one at a time.
const TEXTS_APART_MAX: usize = 200;
/// Maximum size of the list of changed tracked files, in bytes. Large enough for any index.
const TRACKED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum number of bytes read from the list of untracked files.
const UNTRACKED_BYTES_MAX: usize = if cfg!(test) { 64 * 1024 } else { 16 * 1024 * 1024 };
/// Timeout for listing untracked files.
const UNTRACKED_MAX: Duration = Duration::from_secs(20);
/// Timeout for listing changed files in a tree with nested repositories, and for reading their checked-out commits. A FIFO in the
/// git directory of a nested repository blocks git.
const WITH_REPOSITORIES_MAX: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// The reason for leaving out a nested repository that blocks git.
const BLOCKS_GIT: &str = "a nested repository that git took too long to read";
/// Maximum number of attempts to read a tree that changes meanwhile.
const READS_MAX: u32 = 3;

/// The run and the reason for which a snapshot is taken.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub run: RunId,
    pub run_name: String,
    pub attempt: AttemptNo,
    pub cause: SnapshotCause,
    /// The date of the snapshot.
    pub at: Time,
}

/// A stored state of a run's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Number within the run, from 1. 0: the state of a live run's tree, which the next snapshot replaces.
    pub n: u32,
    pub commit: String,
    pub tree: String,
    /// In milliseconds since the epoch.
    pub at_ms: i64,
    /// `None`: the commit message does not contain it.
    pub cause: Option<SnapshotCause>,
    pub attempt: Option<AttemptNo>,
    /// Files that the snapshot leaves out, quoted, each with the reason.
    pub left_out: Vec<String>,
    /// A commit with the exact bytes of the files that git would check out with different bytes.
    pub bytes: Option<String>,
}

/// The outcome of taking a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSnapshot {
    pub snapshot: Snapshot,
    /// Whether this call created the snapshot. Otherwise nothing has changed since this snapshot.
    pub is_new: bool,
    /// Paths of files that are not ignored and not in the snapshot.
    pub unsaved: BTreeSet<Vec<u8>>,
}

/// Lists the snapshots of a run, the oldest first.
///
/// # Errors
/// git failed.
pub async fn snapshots(repo: &Repo, run: RunId) -> Result<Vec<Snapshot>, GitError> {
    // No field is empty, so two NULs always end an entry.
    let format = "--format=%(refname)%00%(objectname)%00s%(symref)%00t%(tree)%00d%(committerdate:unix)%00m%(contents)%00%00";
    let below = format!("refs/adjutant/{run}/");
    let output = repo.of_refs(&["for-each-ref", format, &below]).output().await?;
    let text = String::from_utf8_lossy(&output);
    let mut found: Vec<Snapshot> = text.split("\0\0").filter_map(|entry| read_entry(&below, entry.trim_start_matches('\n'))).collect();
    found.sort_by_key(|snapshot| snapshot.n);
    Ok(found)
}

/// Reads one entry. `None`: it is not a snapshot of Adjutant.
fn read_entry(below: &str, entry: &str) -> Option<Snapshot> {
    let mut fields = entry.splitn(6, '\0');
    let n = fields.next()?.strip_prefix(below)?.parse().ok().filter(|n| (1..=N_MAX).contains(n))?;
    let commit = fields.next()?.to_owned();
    // Adjutant creates no symbolic refs.
    fields.next().filter(|symref| *symref == "s")?;
    let tree = fields.next()?.strip_prefix('t')?.to_owned();
    let at = fields.next()?.strip_prefix('d')?.parse::<i64>().ok()?;
    let message = fields.next()?.strip_prefix('m')?;
    let of = |name: &str| message.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned)).collect::<Vec<_>>();
    let cause = of(CAUSE).first().and_then(|word| SnapshotCause::from_word(word));
    let attempt = of(ATTEMPT).first().and_then(|n| n.parse().ok()).map(AttemptNo);
    // The date of a commit has no fractions.
    let exact = of(AT_MS).first().and_then(|at_ms| at_ms.parse::<i64>().ok()).filter(|at_ms| at_ms.div_euclid(1000) == at);
    let at_ms = exact.unwrap_or(at.saturating_mul(1000));
    let tree = Some(tree).filter(|tree| !tree.is_empty())?;
    Some(Snapshot { n, commit, tree, at_ms, cause, attempt, left_out: of(LEFT_OUT), bytes: of(BYTES).pop().filter(|bytes| is_object(bytes)) })
}

/// Returns whether a text is a full object id. It is not trusted, because a program that can write refs can write the message of a
/// snapshot.
fn is_object(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

const CAUSE: &str = "Adjutant-Cause";
const ATTEMPT: &str = "Adjutant-Attempt";
const LEFT_OUT: &str = "Adjutant-Left-Out";
const BYTES: &str = "Adjutant-Bytes";
const AT_MS: &str = "Adjutant-At-Ms";

/// Takes a snapshot of the tree. The snapshot is durable when this returns.
///
/// # Errors
/// git failed, or the disk is full; earlier snapshots are untouched.
pub async fn take(scratch: &Scratch, new: &NewSnapshot) -> Result<TakenSnapshot, GitError> {
    let taken = take_with_index(scratch, new).await;
    if taken.is_err() {
        // The index may name unreachable objects, which git can remove before the next attempt.
        scratch.discard_index()?;
    }
    taken
}

async fn take_with_index(scratch: &Scratch, new: &NewSnapshot) -> Result<TakenSnapshot, GitError> {
    let earlier = snapshots(scratch.repo(), new.run).await?;
    let last = earlier.last();
    let head = match last {
        Some(last) => Some(last.commit.clone()),
        None => scratch.base().await?,
    };
    scratch.check_tree()?;
    if !scratch.index_snapshot().is_some_and(|commit| earlier.iter().any(|snapshot| snapshot.commit == commit)) {
        scratch.discard_index()?;
    }
    scratch.prepare_index(head.as_deref()).await?;
    let first = earlier.first().map(|first| first.commit.as_str());
    let mut read = match read_tree(scratch, first).await {
        Ok(read) => read,
        Err(error @ GitError::Slow { .. }) => return Err(error),
        Err(error) => {
            // The copied index may depend on files beside the original.
            tracing::debug!(%error, "the index is built again");
            scratch.reset_index(head.as_deref()).await?;
            read_tree(scratch, first).await?
        }
    };
    let unsaved = scratch.unsaved_in_repositories().await?;
    read.left_out.extend(unsaved.into_iter().filter(|(path, _)| !read.left_out.iter().any(|(known, _)| known == path)).collect::<Vec<_>>());
    let unsaved = read.left_out.iter().map(|(path, _)| path.clone()).collect();
    let left_out = named(&read.left_out);
    failpoint!("snapshot.before_tree");
    let tree = write_tree(scratch).await?;
    let last_bytes = last.and_then(|last| last.bytes.as_deref());
    let mut known = scratch.exact_files(last_bytes).await?;
    known.retain(|path, _| !read.changed.contains(path));
    if earlier.is_empty() && scratch.workspace().is_none() {
        read.attributes = scratch.contents().await?.attributes;
        if let Some(attributes) = &read.attributes {
            read.texts.extend(scratch.unusual_texts(attributes, &read.changed).await?);
        }
    }
    let bytes = scratch.keep_exact(read.attributes.as_deref(), &read.texts, known).await?;
    let has_same_bytes = match (&bytes, last_bytes) {
        (Some(bytes), Some(last)) => *bytes == scratch.tree_of(last).await?,
        (bytes, last) => bytes.is_none() && last.is_none(),
    };
    let is_same = |last: &&Snapshot| last.tree == tree && last.left_out == left_out && has_same_bytes;
    if let Some(last) = last.filter(|last| is_same(last) && !new.cause.is_always_kept()) {
        scratch.keep_index(&last.commit)?;
        // The agent has reverted its changes since the last snapshot.
        let is_new = new.cause == SnapshotCause::Watch && forget_watched(scratch, new.run).await?;
        return Ok(TakenSnapshot { snapshot: last.clone(), is_new, unsaved });
    }
    let mut message = format!(
        "Adjutant: {}, {}\n\n{CAUSE}: {}\n{ATTEMPT}: {}\n{AT_MS}: {}\n",
        new.run_name,
        new.cause.label(),
        new.cause.word(),
        new.attempt,
        new.at.0
    );
    for file in &left_out {
        // Writing to a string cannot fail.
        let _ = writeln!(message, "{LEFT_OUT}: {file}");
    }
    if new.cause == SnapshotCause::Watch {
        // No snapshot ref keeps the objects in the index.
        scratch.discard_index()?;
        let commit = watch_commit(scratch, new.run, &tree, head.as_deref(), message).await?;
        let is_new = commit.is_some();
        let snapshot = match (commit, last) {
            (None, Some(last)) => last.clone(),
            (commit, _) => watched_snapshot(new, commit.unwrap_or_default(), tree, left_out),
        };
        return Ok(TakenSnapshot { snapshot, is_new, unsaved });
    }
    let date = new.at.0.div_euclid(1000);
    let bytes = match bytes {
        Some(tree) => Some(scratch.commit_own(&tree, &[], format!("Adjutant: {}, bytes of files\n", new.run_name), Some(date)).await?),
        None => None,
    };
    if let Some(bytes) = &bytes {
        let _ = writeln!(message, "{BYTES}: {bytes}");
    }
    let parents: Vec<&str> = head.iter().chain(&bytes).map(String::as_str).collect();
    let commit = scratch.commit_own(&tree, &parents, message, Some(date)).await?;
    let n = last.map_or(1, |last| last.n.saturating_add(1));
    failpoint!("snapshot.before_ref");
    // After a turn, the agent works while the tree is read: a snapshot taken meanwhile is newer.
    let tries = if new.cause == SnapshotCause::Turn { 1 } else { TRIES_MAX };
    let n = match name_commit(scratch.repo(), new.run, n, &commit, tries).await {
        Ok(n) => n,
        Err(error) => match snapshots(scratch.repo(), new.run).await?.pop().filter(|newest| tries == 1 && newest.n >= n) {
            Some(snapshot) => {
                // No ref keeps the objects in the index.
                scratch.discard_index()?;
                return Ok(TakenSnapshot { snapshot, is_new: false, unsaved });
            }
            None => return Err(error),
        },
    };
    // Only after the ref exists: it protects the objects in the index, on which the next snapshot relies, from garbage collection.
    scratch.keep_index(&commit)?;
    let snapshot = Snapshot { n, commit, tree, at_ms: new.at.0, cause: Some(new.cause), attempt: Some(new.attempt), left_out, bytes };
    Ok(TakenSnapshot { snapshot, is_new: true, unsaved })
}

/// Returns the ref of the last observed state of a live run's tree.
fn watch_ref(run: RunId) -> String {
    format!("refs/adjutant/{run}/now")
}

/// Stores the current state of a live run's tree as a commit on top of its newest snapshot. The next one replaces it. `None`: the state
/// is stored already.
async fn watch_commit(scratch: &Scratch, run: RunId, tree: &str, head: Option<&str>, message: String) -> Result<Option<String>, GitError> {
    let git_ref = watch_ref(run);
    if let Some(known) = scratch.repo().commit_of(&git_ref).await?
        && scratch.tree_of(&known).await? == tree
        && parent_of(scratch, &known).await?.as_deref() == head
    {
        return Ok(None);
    }
    let parents: Vec<&str> = head.into_iter().collect();
    let commit = scratch.commit_own(tree, &parents, message, None).await?;
    scratch.repo().of_refs(&["update-ref", "--no-deref", &git_ref, &commit]).output().await?;
    Ok(Some(commit))
}

/// Removes the last observed state of a live run's tree. Returns whether there was one.
async fn forget_watched(scratch: &Scratch, run: RunId) -> Result<bool, GitError> {
    let git_ref = watch_ref(run);
    let Some(known) = scratch.repo().commit_of(&git_ref).await? else { return Ok(false) };
    scratch.repo().of_refs(&["update-ref", "--no-deref", "-d", &git_ref, &known]).output().await?;
    Ok(true)
}

fn watched_snapshot(new: &NewSnapshot, commit: String, tree: String, left_out: Vec<String>) -> Snapshot {
    Snapshot { n: 0, commit, tree, at_ms: new.at.0, cause: Some(new.cause), attempt: Some(new.attempt), left_out, bytes: None }
}

/// Returns the commit that was checked out when the first snapshot of a run was taken.
///
/// # Errors
/// git failed.
pub async fn head_before(scratch: &Scratch, first: &Snapshot) -> Result<Option<String>, GitError> {
    Ok(parent_of(scratch, &first.commit).await?.filter(|parent| first.bytes.as_ref() != Some(parent)))
}

async fn parent_of(scratch: &Scratch, commit: &str) -> Result<Option<String>, GitError> {
    let line = scratch.call(&["rev-list", "--parents", "--max-count=1", "--end-of-options", commit]).line().await?;
    Ok(line.split(' ').nth(1).map(str::to_owned))
}

/// Returns the newest known state of a run's tree: its last snapshot, or a state observed since then while the agent works.
///
/// # Errors
/// git failed.
pub async fn newest_state(scratch: &Scratch, run: RunId) -> Result<Option<String>, GitError> {
    let Some(last) = snapshots(scratch.repo(), run).await?.pop() else { return Ok(None) };
    let watched = scratch.repo().commit_of(&watch_ref(run)).await?;
    if let Some(watched) = watched
        && parent_of(scratch, &watched).await?.as_deref() == Some(&last.commit)
    {
        return Ok(Some(watched));
    }
    Ok(Some(last.commit))
}

/// Returns the left-out paths, quoted, each with its reason. The last entry can be the number of further paths.
fn named(left_out: &LeftOut) -> Vec<String> {
    let quoted = |(path, why): &(Vec<u8>, String)| format!("{:?} ({why})", String::from_utf8_lossy(path));
    let mut named: Vec<String> = left_out.iter().take(LEFT_OUT_NAMED_MAX).map(quoted).collect();
    let more = left_out.len().checked_sub(LEFT_OUT_NAMED_MAX).filter(|more| *more > 0);
    named.extend(more.map(|more| format!("{more} more")));
    named
}

/// Creates the snapshot ref of a commit with the first free number.
async fn name_commit(repo: &Repo, run: RunId, first: u32, commit: &str, tries: u32) -> Result<u32, GitError> {
    let mut refused = None;
    let short_wait = [("core.filesRefLockTimeout".to_owned(), "100".to_owned())];
    for n in (first..).take(tries as usize) {
        let call = repo.of_refs(&["update-ref", "--no-deref", &format!("refs/adjutant/{run}/{n}"), commit, &repo.zero()]);
        match call.settings(&short_wait).output().await {
            Ok(_) => return Ok(n),
            // The number is taken, or a killed call left its lock.
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| GitError::Failed { command: "update-ref".to_owned(), why: "no number is free".to_owned() }))
}

/// The paths that a snapshot leaves out, each with the reason.
pub(super) type LeftOut = Vec<(Vec<u8>, String)>;

/// Writes the index as a tree. Leaves out unmerged entries whose files could not be read.
pub(super) async fn write_tree(scratch: &Scratch) -> Result<String, GitError> {
    let write = || scratch.call(&["write-tree", "--missing-ok"]).disposable_index().line();
    let refused = match write().await {
        Err(error @ GitError::Failed { .. }) => error,
        written => return written,
    };
    let listed = scratch.call(&["ls-files", "-z", "--unmerged"]).output().await?;
    // `<mode> <oid> <stage>`, tab, path.
    let unmerged = listed.split(|byte| *byte == 0).filter_map(|entry| Some(&entry[entry.iter().position(|byte| *byte == b'\t')? + 1..]));
    let paths = nul_terminated(&unmerged.map(<[u8]>::to_vec).collect::<Vec<_>>());
    if paths.is_empty() {
        return Err(refused);
    }
    scratch.cache_contents(None);
    scratch.call(&["update-index", "-z", "--force-remove", "--stdin"]).input(paths).output().await?;
    write().await
}

/// The outcome of reading a tree into an index.
#[derive(Debug, Default)]
pub(super) struct ReadTree {
    pub left_out: LeftOut,
    /// The paths that differed from the index.
    changed: HashSet<Vec<u8>>,
    /// The changed paths whose content attributes can change.
    texts: Vec<Vec<u8>>,
    /// A tree with the attribute files.
    attributes: Option<String>,
}

/// Updates the index to the state of the tree. `first`: the first snapshot of the run.
pub(super) async fn read_tree(scratch: &Scratch, first: Option<&str>) -> Result<ReadTree, GitError> {
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
    let links = scratch.contents().await?.links;
    // Concurrently, because each of them reads the whole tree.
    let (tracked, untracked, (forced, only_own)) = tokio::join!(list_tracked(scratch, &links), list_untracked(scratch), list_apart(scratch));
    let ((tracked, skipped), (untracked, missing)) = (tracked?, untracked?);
    let taken_out = list_taken_out(scratch, &only_own, first).await?;
    let listed: HashSet<&[u8]> = paths_of(&untracked).map(|path| path.strip_suffix(b"/").unwrap_or(path)).collect();
    let is_forced = |path: &Path| {
        let is_given = scratch.excluded().iter().any(|given| path.starts_with(given));
        !listed.contains(path.as_os_str().as_bytes()) && !is_given && scratch.tree().join(path).symlink_metadata().is_ok()
    };
    let forced = forced.iter().map(Vec::as_slice).filter(|path| is_forced(Path::new(OsStr::from_bytes(path))));
    let mut changes = Changes::default();
    changes.left_out.extend(skipped);
    if let Some(missing) = missing {
        changes.left_out.push((Vec::new(), missing.to_owned()));
    }
    let mut last: &[u8] = b"";
    // Tracked files first, so that untracked ones do not use up the size limit.
    for path in paths_of(&tracked).chain(paths_of(&untracked)).chain(forced).filter(|path| !taken_out.contains(*path)) {
        // git lists a deleted file twice.
        let is_home = scratch.home().is_some_and(|home| Path::new(OsStr::from_bytes(path)).starts_with(home));
        if path != last && !is_home {
            changes.add(scratch.tree(), path);
        }
        last = path;
    }
    let Changes { to_read, repositories, mut to_remove, mut left_out, has_repository, .. } = changes;
    to_remove.extend(taken_out);
    let changed: HashSet<Vec<u8>> = to_read.iter().chain(&repositories).chain(&to_remove).cloned().collect();
    let is_link_changed = |known: Contents| known.links.iter().any(|(path, _)| changed.contains(path));
    if has_repository || changed.iter().any(|path| is_attributes(path)) || scratch.cached_contents().is_some_and(is_link_changed) {
        scratch.cache_contents(None);
    }
    if !to_remove.is_empty() {
        let remove = scratch.call(&["update-index", "-z", "--force-remove", "--stdin"]).disposable_index();
        remove.input(nul_terminated(&to_remove)).output().await?;
    }
    // Attribute files first, because they determine how the others are read.
    let (attribute_files, to_read): (Vec<_>, Vec<_>) = to_read.into_iter().partition(|path| is_attributes(path));
    read_files(scratch.call(&READ), &attribute_files).await?;
    left_out.extend(read_repositories(scratch, &repositories).await?);
    let attributes = if to_read.is_empty() { None } else { scratch.contents().await?.attributes };
    let Some(tree) = &attributes else {
        read_files(scratch.call(&READ), &to_read).await?;
        return Ok(ReadTree { left_out, changed, ..ReadTree::default() });
    };
    let TextFiles { texts, others, .. } = scratch.text_files(tree, to_read).await?;
    read_files(scratch.call(&READ), &others).await?;
    match read_files(scratch.text_call(&READ, tree), &texts).await {
        Ok(()) => {}
        Err(error @ GitError::Slow { .. }) => return Err(error),
        Err(error) => {
            tracing::debug!(%error, "texts are kept one by one");
            read_texts_apart(scratch, tree, &texts).await?;
        }
    }
    Ok(ReadTree { left_out, changed, texts, attributes })
}

/// Lists the tracked files that differ from the index, each followed by a NUL, and the nested repositories that are left out because they
/// block git.
async fn list_tracked(scratch: &Scratch, links: &[(Vec<u8>, String)]) -> Result<(Vec<u8>, LeftOut), GitError> {
    let call = || scratch.call(&["ls-files", "-z", "--modified", "--deleted"]).output_bytes_max(TRACKED_BYTES_MAX);
    if links.is_empty() {
        return Ok((call().output().await?, LeftOut::new()));
    }
    match call().limit(WITH_REPOSITORIES_MAX).output().await {
        Err(GitError::Slow { .. }) => {}
        listed => return Ok((listed?, LeftOut::new())),
    }
    // git opens each repository that its index names, so this index names none.
    let index = scratch.index().with_extension("files");
    File::open(scratch.index()).and_then(|from| copy_index(from, &index)).map_err(GitError::file(&index))?;
    let paths = nul_terminated(links.iter().map(|(path, _)| path));
    let remove = scratch.call(&["update-index", "-z", "--force-remove", "--stdin"]).env("GIT_INDEX_FILE", &index);
    remove.input(paths).output().await?;
    Ok((call().env("GIT_INDEX_FILE", &index).output().await?, links.iter().map(|(path, _)| (path.clone(), BLOCKS_GIT.to_owned())).collect()))
}

/// Reads the checked-out commits of nested repositories. Returns the repositories that are left out because they block git; the index
/// keeps their previous commits.
pub(super) async fn read_repositories(scratch: &Scratch, repositories: &[Vec<u8>]) -> Result<LeftOut, GitError> {
    match read_files(scratch.call(&READ).limit(WITH_REPOSITORIES_MAX), repositories).await {
        Err(GitError::Slow { .. }) => Ok(repositories.iter().map(|path| (path.clone(), BLOCKS_GIT.to_owned())).collect()),
        read => read.map(|()| LeftOut::new()),
    }
}

/// Lists the untracked files that are not ignored, each followed by a NUL. If the list is incomplete, also returns the reason.
async fn list_untracked(scratch: &Scratch) -> Result<(Vec<u8>, Option<&'static str>), GitError> {
    let mut call = scratch.call(&["ls-files", "-z", "--others", "--exclude-standard"]).output_bytes_max(UNTRACKED_BYTES_MAX).limit(UNTRACKED_MAX);
    let own_excludes = scratch.repo().common.join("info/exclude");
    if super::repo::is_regular(&own_excludes) {
        let mut option = OsString::from("--exclude-from=");
        option.push(own_excludes);
        call = call.arg(option);
    }
    for path in scratch.home().into_iter().chain(scratch.excluded().iter().map(PathBuf::as_path)) {
        call = call.arg(exclude_option(path));
    }
    let mut listed = match call.run().await {
        // A FIFO in a nested repository blocks git. The tracked files are still stored.
        Err(GitError::Slow { .. }) => return Ok((Vec::new(), Some("untracked files, which git took too long to list"))),
        listed => listed?,
    };
    if listed.exit_code != Some(0) {
        return Err(GitError::Failed { command: "ls-files".to_owned(), why: error_text(&listed) });
    }
    // A truncated path does not end with a NUL.
    let whole = listed.output.iter().rposition(|byte| *byte == 0).map_or(0, |at| at + 1);
    listed.output.truncate(whole);
    Ok((listed.output, listed.is_cut.then_some("more files than are listed")))
}

/// Compares the index of an isolated run's agent with Adjutant's. Returns the files that are only in the agent's index, and those that are
/// only in Adjutant's. A file that the agent tracks is part of its work even if a pattern ignores it.
async fn list_apart(scratch: &Scratch) -> (BTreeSet<Vec<u8>>, BTreeSet<Vec<u8>>) {
    let listed = async {
        let Some(index) = scratch.agents_index().await? else { return Ok::<_, GitError>((BTreeSet::new(), BTreeSet::new())) };
        let call = || scratch.call(&["ls-files", "-z", "--cached"]).output_bytes_max(TRACKED_BYTES_MAX);
        let (theirs, own) = (call().env("GIT_INDEX_FILE", &index).output().await?, call().output().await?);
        let (theirs, own) = (paths_of(&theirs).collect::<HashSet<_>>(), paths_of(&own).collect::<HashSet<_>>());
        let only = |of: &HashSet<&[u8]>, other: &HashSet<&[u8]>| of.difference(other).map(|path| path.to_vec()).collect();
        Ok((only(&theirs, &own), only(&own, &theirs)))
    };
    listed.await.unwrap_or_else(|error| {
        tracing::debug!(%error, "the index of a workspace cannot be read");
        (BTreeSet::new(), BTreeSet::new())
    })
}

/// Returns the paths that a `.gitignore` of the tree ignores and that are not in the run's first snapshot: the agent tracked them and does
/// not any more. The user's other ignore patterns do not count, because they may be newer than the snapshot.
async fn list_taken_out(scratch: &Scratch, paths: &BTreeSet<Vec<u8>>, first: Option<&str>) -> Result<HashSet<Vec<u8>>, GitError> {
    let Some(first) = first.filter(|_| !paths.is_empty()) else { return Ok(HashSet::new()) };
    let input = nul_terminated(&paths.iter().cloned().collect::<Vec<_>>());
    let none = [("core.excludesfile".to_owned(), "/dev/null".to_owned())];
    // If git rejects a path, such as one behind a symbolic link, all of them stay.
    let ran = scratch.call(&["check-ignore", "-z", "--stdin", "--no-index"]).settings(&none).input(input).run().await?;
    let mut ignored: HashSet<Vec<u8>> = paths_of(&ran.output).filter(|_| ran.exit_code == Some(0)).map(<[u8]>::to_vec).collect();
    if !ignored.is_empty() {
        let before = scratch.call(&["ls-tree", "-r", "-z", "--name-only", "--full-tree", first]).output_bytes_max(TRACKED_BYTES_MAX).output().await?;
        for path in paths_of(&before) {
            ignored.remove(path);
        }
    }
    Ok(ignored)
}

/// Splits a list of NUL-terminated paths.
fn paths_of(listed: &[u8]) -> impl Iterator<Item = &[u8]> {
    listed.split(|byte| *byte == 0).filter(|path| !path.is_empty())
}

/// Reads text files one at a time, because one of them is not in its declared encoding. That file is stored unchanged.
async fn read_texts_apart(scratch: &Scratch, attributes: &str, texts: &[Vec<u8>]) -> Result<(), GitError> {
    let (few, rest) = texts.split_at(texts.len().min(TEXTS_APART_MAX));
    for text in few.chunks(1) {
        match read_files(scratch.text_call(&READ, attributes), text).await {
            Err(GitError::Failed { .. }) => read_files(scratch.call(&READ), text).await?,
            read => read?,
        }
    }
    read_files(scratch.call(&READ), rest).await
}

const READ: [&str; 6] = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];

async fn read_files(call: Call<'_>, paths: &[Vec<u8>]) -> Result<(), GitError> {
    if paths.is_empty() { Ok(()) } else { call.disposable_index().input(nul_terminated(paths)).output().await.map(drop) }
}

/// Returns the option that excludes a path from the top of the tree. Special characters in the path are escaped.
fn exclude_option(path: &Path) -> OsString {
    OsString::from_vec([b"--exclude=".as_slice(), &pattern_of(path.as_os_str().as_bytes())].concat())
}

/// The operations for the paths that differ from the index.
#[derive(Debug, Default)]
struct Changes {
    to_read: Vec<Vec<u8>>,
    /// Nested repositories that an index can name.
    repositories: Vec<Vec<u8>>,
    to_remove: Vec<Vec<u8>>,
    left_out: LeftOut,
    /// Whether a nested repository is among the paths.
    has_repository: bool,
    added_bytes: u64,
    /// Whether paths are directories, by their paths from the top. A cache.
    directories: HashMap<PathBuf, bool>,
}

impl Changes {
    fn add(&mut self, top: &Path, path: &[u8]) {
        let relative = Path::new(OsStr::from_bytes(path));
        // A path below a symbolic link, or below something that is no directory any more, is not in the tree.
        if !relative.parent().is_none_or(|parent| self.is_directory(top, parent)) {
            return self.to_remove.push(path.to_owned());
        }
        let full = top.join(relative);
        let meta = match full.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return self.to_remove.push(path.to_owned());
            }
            Err(_) => return self.leave_out(path, "unreadable"),
        };
        if meta.is_dir() {
            // A nested repository is not read, because its configuration is not trusted.
            if full.join(".git").symlink_metadata().is_ok() {
                self.has_repository = true;
                if path.ends_with(b"/") {
                    self.leave_out(path, "a nested repository");
                } else {
                    self.repositories.push(path.to_owned());
                }
                return;
            }
            return self.to_remove.push(path.to_owned());
        }
        if meta.is_symlink() {
            return self.to_read.push(path.to_owned());
        }
        if !meta.is_file() {
            return self.leave_out(path, "not a regular file");
        }
        if meta.size() > FILE_BYTES_MAX {
            return self.leave_out(path, &format!("{} bytes", meta.size()));
        }
        if self.added_bytes + meta.size() > ADDED_BYTES_MAX {
            return self.leave_out(path, "too much for one snapshot");
        }
        if rustix::fs::access(&full, rustix::fs::Access::READ_OK).is_err() {
            return self.leave_out(path, "unreadable");
        }
        self.added_bytes += meta.size();
        self.to_read.push(path.to_owned());
    }

    /// Returns whether a path and its parents up to the top are directories and not symbolic links. An unreadable one counts as a directory.
    fn is_directory(&mut self, top: &Path, path: &Path) -> bool {
        if path.as_os_str().is_empty() {
            return true;
        }
        if let Some(known) = self.directories.get(path) {
            return *known;
        }
        let is_directory = path.parent().is_none_or(|parent| self.is_directory(top, parent))
            && match top.join(path).symlink_metadata() {
                Ok(meta) => meta.is_dir(),
                Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
            };
        self.directories.insert(path.to_owned(), is_directory);
        is_directory
    }

    fn leave_out(&mut self, path: &[u8], why: &str) {
        self.left_out.push((path.to_owned(), why.to_owned()));
    }
}

/// Removes all refs of a run. git's next garbage collection removes their commits.
///
/// # Errors
/// git failed.
pub async fn remove_all(repo: &Repo, run: RunId) -> Result<(), GitError> {
    let listed = repo.of_refs(&["for-each-ref", "--format=%(refname) %(objectname) %(symref)", &format!("refs/adjutant/{run}/")]).output().await?;
    let listed = String::from_utf8_lossy(&listed);
    // The line of a symbolic ref ends with its target. Adjutant creates no symbolic refs.
    let own = listed.lines().filter_map(|line| line.strip_suffix(' '));
    let input: String = own.map(|name_and_object| format!("delete {name_and_object}\n")).collect();
    if input.is_empty() {
        return Ok(());
    }
    repo.of_refs(&["update-ref", "--no-deref", "--stdin"]).input(input.into_bytes()).output().await.map(drop)
}
