//! Snapshots: the state of a run's tree, kept as a commit under a hidden ref.
//!
//! ```text
//!  refs/adjutant/<run id>/<n>   n = 1, 2, …; the parent of 1 is the commit that was checked out, of n + 1 it is n
//! ```
//! The ref is the only record of a snapshot: what it was taken for stands in the commit's message.

use super::call::complaint;
use super::{GitError, Repo, Scratch};
use crate::failpoint::failpoint;
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, RunId};
use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A larger file is left out, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The files that one snapshot adds have no more than this together, in bytes.
const ADDED_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Most files that are named as left out.
const LEFT_OUT_NAMED_MAX: usize = 20;
/// A ref with a larger number is not ours.
const N_MAX: u32 = 1_000_000;
/// How often a number is tried that another process has just taken.
const TRIES_MAX: u32 = 20;
/// How often a tree is read that changes meanwhile.
const READS_MAX: u32 = 3;

/// What a snapshot is taken for.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub run: RunId,
    pub run_name: String,
    pub attempt: AttemptNo,
    pub cause: SnapshotCause,
}

/// A kept state of a run's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// From 1 within its run.
    pub n: u32,
    pub commit: String,
    pub tree: String,
    /// In milliseconds since the epoch, to the second.
    pub at_ms: i64,
    /// `None`: the commit does not say.
    pub cause: Option<SnapshotCause>,
    pub attempt: Option<AttemptNo>,
    /// Files that it leaves out, with the reason, quoted.
    pub left_out: Vec<String>,
}

/// The outcome of taking a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSnapshot {
    pub snapshot: Snapshot,
    /// It was taken now. Otherwise nothing has changed since this one.
    pub is_new: bool,
    /// Paths of files that are not in it although they are not ignored.
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

/// Reads one entry. `None`: it is no snapshot of Adjutant.
fn read_entry(below: &str, entry: &str) -> Option<Snapshot> {
    let mut fields = entry.splitn(6, '\0');
    let n = fields.next()?.strip_prefix(below)?.parse().ok().filter(|n| (1..=N_MAX).contains(n))?;
    let commit = fields.next()?.to_owned();
    // A ref that stands for another one is not ours.
    fields.next().filter(|symref| *symref == "s")?;
    let tree = fields.next()?.strip_prefix('t')?.to_owned();
    let at_ms = fields.next()?.strip_prefix('d')?.parse::<i64>().ok()?.saturating_mul(1000);
    let message = fields.next()?.strip_prefix('m')?;
    let of = |name: &str| message.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned)).collect::<Vec<_>>();
    let cause = of(CAUSE).first().and_then(|word| SnapshotCause::from_word(word));
    let attempt = of(ATTEMPT).first().and_then(|n| n.parse().ok()).map(AttemptNo);
    let tree = Some(tree).filter(|tree| !tree.is_empty())?;
    Some(Snapshot { n, commit, tree, at_ms, cause, attempt, left_out: of(LEFT_OUT) })
}

const CAUSE: &str = "Adjutant-Cause";
const ATTEMPT: &str = "Adjutant-Attempt";
const LEFT_OUT: &str = "Adjutant-Left-Out";

/// Takes a snapshot of the tree. Durable when it returns.
///
/// # Errors
/// git failed, or the disk is full; earlier snapshots are untouched.
pub async fn take(scratch: &Scratch, new: &NewSnapshot) -> Result<TakenSnapshot, GitError> {
    let earlier = snapshots(scratch.repo(), new.run).await?;
    let last = earlier.last();
    let head = match last {
        Some(last) => Some(last.commit.clone()),
        None => scratch.base().await?,
    };
    scratch.check_tree()?;
    scratch.prepare_index(head.as_deref()).await?;
    let left_out = match read_tree(scratch).await {
        Ok(left_out) => left_out,
        Err(error @ GitError::Slow { .. }) => return Err(error),
        Err(error) => {
            // The copied index may depend on files beside the original.
            tracing::debug!(%error, "the index is built again");
            scratch.reset_index(head.as_deref()).await?;
            read_tree(scratch).await?
        }
    };
    let unsaved = left_out.iter().map(|(path, _)| path.clone()).collect();
    let left_out: Vec<String> = left_out.iter().map(|(path, why)| format!("{:?} ({why})", String::from_utf8_lossy(path))).collect();
    failpoint!("snapshot.before_tree");
    let tree = write_tree(scratch).await?;
    scratch.keep_index()?;
    if let Some(last) = last.filter(|last| last.tree == tree && !new.cause.is_always_kept()) {
        return Ok(TakenSnapshot { snapshot: last.clone(), is_new: false, unsaved });
    }
    let mut message = format!("Adjutant: {}, {}\n\n{CAUSE}: {}\n{ATTEMPT}: {}\n", new.run_name, new.cause.label(), new.cause.word(), new.attempt);
    for file in left_out.iter().take(LEFT_OUT_NAMED_MAX) {
        // Writing to a text cannot fail.
        let _ = writeln!(message, "{LEFT_OUT}: {file}");
    }
    if let Some(more) = left_out.len().checked_sub(LEFT_OUT_NAMED_MAX).filter(|more| *more > 0) {
        let _ = writeln!(message, "{LEFT_OUT}: {more} more");
    }
    let commit = scratch.commit_own(&tree, head.as_deref(), message).await?;
    let first = last.map_or(1, |last| last.n.saturating_add(1));
    failpoint!("snapshot.before_ref");
    // After a turn the tree is read beside the agent: one that was taken meanwhile is newer.
    let tries = if new.cause == SnapshotCause::Turn { 1 } else { TRIES_MAX };
    let n = match name_commit(scratch.repo(), new.run, first, &commit, tries).await {
        Ok(n) => n,
        Err(error) => match snapshots(scratch.repo(), new.run).await?.pop().filter(|newest| tries == 1 && newest.n >= first) {
            Some(snapshot) => return Ok(TakenSnapshot { snapshot, is_new: false, unsaved }),
            None => return Err(error),
        },
    };
    let found = snapshots(scratch.repo(), new.run).await?.into_iter().find(|snapshot| snapshot.n == n);
    let snapshot = found.ok_or_else(|| GitError::Failed { command: "update-ref".to_owned(), why: "the new ref is gone again".to_owned() })?;
    Ok(TakenSnapshot { snapshot, is_new: true, unsaved })
}

/// Names a commit by the first free number.
async fn name_commit(repo: &Repo, run: RunId, first: u32, commit: &str, tries: u32) -> Result<u32, GitError> {
    let mut refused = None;
    for n in (first..).take(tries as usize) {
        let made = repo.of_refs(&["update-ref", "--no-deref", &format!("refs/adjutant/{run}/{n}"), commit, &repo.zero()]).output().await;
        match made {
            Ok(_) => return Ok(n),
            // Taken, or locked by a call that was killed.
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| GitError::Failed { command: "update-ref".to_owned(), why: "no number is free".to_owned() }))
}

/// Paths that a snapshot leaves out, with the reason.
pub(super) type LeftOut = Vec<(Vec<u8>, String)>;

/// Writes the index as a tree. Conflicts that could not be read from the tree are left out.
pub(super) async fn write_tree(scratch: &Scratch) -> Result<String, GitError> {
    let write = || scratch.call(&["write-tree", "--missing-ok"]).line();
    let refused = match write().await {
        Err(error @ GitError::Failed { .. }) => error,
        written => return written,
    };
    let listed = scratch.call(&["ls-files", "-z", "--unmerged"]).output().await?;
    // `<mode> <oid> <stage>`, tab, path.
    let unmerged = listed.split(|byte| *byte == 0).filter_map(|entry| Some(&entry[entry.iter().position(|byte| *byte == b'\t')? + 1..]));
    let mut paths = Vec::new();
    unmerged.for_each(|path| push(&mut paths, path));
    if paths.is_empty() {
        return Err(refused);
    }
    scratch.call(&["update-index", "-z", "--force-remove", "--stdin"]).input(paths).output().await?;
    write().await
}

/// Brings the index up to the state of the tree.
pub(super) async fn read_tree(scratch: &Scratch) -> Result<LeftOut, GitError> {
    let mut tries = 1;
    loop {
        match read_tree_once(scratch).await {
            // A file that came or went between the two calls.
            Err(error) if tries < READS_MAX && !matches!(error, GitError::Slow { .. }) => {
                tracing::debug!(%error, "the tree is read again");
                tries += 1;
            }
            read => return read,
        }
    }
}

async fn read_tree_once(scratch: &Scratch) -> Result<LeftOut, GitError> {
    let mut call = scratch.call(&["ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"]);
    let own_excludes = scratch.repo().common.join("info/exclude");
    if super::repo::is_regular(&own_excludes) {
        let mut option = OsString::from("--exclude-from=");
        option.push(own_excludes);
        call = call.arg(option);
    }
    if let Some(home) = scratch.home() {
        call = call.arg(exclude_option(home));
    }
    let listed = call.run().await?;
    if listed.exit_code != Some(0) {
        return Err(GitError::Failed { command: "ls-files".to_owned(), why: complaint(&listed) });
    }
    let mut changes = Changes::default();
    // What is cut off does not end with a NUL.
    let whole = listed.output.iter().rposition(|byte| *byte == 0).map_or(0, |at| at + 1);
    if listed.is_cut {
        changes.left_out.push((Vec::new(), "more files than are listed".to_owned()));
    }
    let mut last: &[u8] = b"";
    for path in listed.output[..whole].split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
        // A deleted file is listed twice.
        let is_home = scratch.home().is_some_and(|home| Path::new(OsStr::from_bytes(path)).starts_with(home));
        if path != last && !is_home {
            changes.add(scratch.tree(), path);
        }
        last = path;
    }
    let Changes { to_read, to_remove, left_out, .. } = changes;
    if !to_remove.is_empty() {
        scratch.call(&["update-index", "-z", "--force-remove", "--stdin"]).input(to_remove).output().await?;
    }
    if !to_read.is_empty() {
        scratch.call(&["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]).input(to_read).output().await?;
    }
    Ok(left_out)
}

/// Excludes a path from the top of the tree, whatever characters are in it.
fn exclude_option(path: &Path) -> OsString {
    let mut option = b"--exclude=/".to_vec();
    for byte in path.as_os_str().as_bytes() {
        if b"\\*?[! #".contains(byte) {
            option.push(b'\\');
        }
        option.push(*byte);
    }
    OsString::from_vec(option)
}

/// What has to be done about the paths that differ from the index.
#[derive(Debug, Default)]
struct Changes {
    /// Paths, each followed by a NUL.
    to_read: Vec<u8>,
    to_remove: Vec<u8>,
    left_out: LeftOut,
    added_bytes: u64,
    /// What is known of directories, by their paths from the top.
    directories: HashMap<PathBuf, bool>,
}

impl Changes {
    fn add(&mut self, top: &Path, path: &[u8]) {
        let relative = Path::new(OsStr::from_bytes(path));
        // Behind a link, or what is no directory any more, there is nothing of the tree.
        if !relative.parent().is_none_or(|parent| self.is_directory(top, parent)) {
            return push(&mut self.to_remove, path);
        }
        let full = top.join(relative);
        let meta = match full.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return push(&mut self.to_remove, path);
            }
            Err(_) => return self.leave_out(path, "unreadable"),
        };
        if meta.is_dir() {
            // A repository within the repository is not read: its configuration is another party's.
            if full.join(".git").symlink_metadata().is_ok() {
                if path.ends_with(b"/") {
                    self.leave_out(path, "a repository of its own");
                } else {
                    push(&mut self.to_read, path);
                }
                return;
            }
            return push(&mut self.to_remove, path);
        }
        if meta.is_symlink() {
            return push(&mut self.to_read, path);
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
        push(&mut self.to_read, path);
    }

    /// Tells whether a path and all above it, up to the top, are directories and not links. What cannot be read counts as one.
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

fn push(list: &mut Vec<u8>, path: &[u8]) {
    list.extend_from_slice(path);
    list.push(0);
}

/// Removes all refs of a run. Their commits go with git's next garbage collection.
///
/// # Errors
/// git failed.
pub async fn remove_all(repo: &Repo, run: RunId) -> Result<(), GitError> {
    let listed = repo.of_refs(&["for-each-ref", "--format=%(refname) %(objectname) %(symref)", &format!("refs/adjutant/{run}/")]).output().await?;
    let listed = String::from_utf8_lossy(&listed);
    // A ref that stands for another one is not ours: its line ends with that one.
    let own = listed.lines().filter_map(|line| line.strip_suffix(' '));
    let input: String = own.map(|name_and_object| format!("delete {name_and_object}\n")).collect();
    if input.is_empty() {
        return Ok(());
    }
    repo.of_refs(&["update-ref", "--no-deref", "--stdin"]).input(input.into_bytes()).output().await.map(drop)
}
