//! Restores a tree to the state of a commit, file by file. Each file is replaced with a rename, so that after a crash it has either
//! the old content or the new one. A file that no snapshot contains is never overwritten.

use super::call::{Call, error_text};
use super::diff::DiffEntry;
use super::line_ends::nul_terminated;
use super::{GitError, Scratch, Snapshot, TakenSnapshot};
use crate::failpoint::failpoint;
use crate::process::hygiene;
use adjutant_core::snapshot::SnapshotCause;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, RenameFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

pub(super) const GITLINK: &str = "160000";
const LINK: &str = "120000";
const PROGRAM: &str = "100755";

/// The result of a restore.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// Files that were written or removed, from the top of the tree.
    pub files: Vec<String>,
    /// Entries that are never restored: nested repositories, and files with a filter (such as those of Git LFS).
    pub skipped: Vec<String>,
    /// Files that changed meanwhile and were not restored.
    pub changed_meanwhile: Vec<String>,
}

/// A prepared restore, which needs no further git calls.
#[derive(Debug)]
pub struct Restore {
    tree: PathBuf,
    /// The directory that contains the new content of files.
    stage: PathBuf,
    /// The files to replace, each with its state when the restore was prepared.
    listed: Vec<(DiffEntry, Option<Stamp>)>,
    skipped: Vec<String>,
}

/// A prepared restore of the files that a run has changed, and the files that need attention.
#[derive(Debug)]
pub struct PreparedUndo {
    pub restore: Restore,
    /// Files to restore that were changed while no attempt was running.
    pub changed_since: Vec<String>,
    /// Files to restore that other runs changed at the same time.
    pub changed_beside: Vec<String>,
    /// Files that it does not remove because they were there before that snapshot, or can have been: it leaves them out, since they were
    /// ignored then, or too large.
    pub not_removed: Vec<String>,
    /// Files that the run has changed outside its directory. They are not restored.
    pub outside: Vec<String>,
}

/// Prepares to restore the files that a run has changed, below the directory from which the repository was found, to their state in the
/// snapshot `to`. `now`: a snapshot that was just taken; `own`: the snapshots of the run's own work; `beside`: the paths that other runs
/// changed at the same time. Does not change the tree.
///
/// # Errors
/// A file would be lost that is not in the snapshot `now`, or git or the disk failed.
pub async fn prepare_undo(
    scratch: &Scratch,
    now: &TakenSnapshot,
    to: &Snapshot,
    own: &[&Snapshot],
    beside: &BTreeSet<Vec<u8>>,
) -> Result<PreparedUndo, GitError> {
    let mut all = scratch.list(&now.snapshot.commit, &to.commit).await?;
    let mut changed = changed_by_run(scratch, own).await?;
    // Without a snapshot of the last attempt's end, its changes cannot be distinguished from later ones.
    if let Some(last) = own.last().filter(|last| last.cause != Some(SnapshotCause::End)) {
        changed.extend(paths_between(scratch, &last.commit, &now.snapshot.commit).await?);
        // This can revert an undo, after which the tree is as it was before those changes.
        changed.extend(paths_between(scratch, &last.commit, &to.commit).await?);
    }
    all.retain(|listed| changed.contains(&listed.path));
    // Files in a renamed directory keep their times. They are new at their path if the restore writes the same content elsewhere.
    let is_gone = |listed: &&DiffEntry| listed.from_mode.is_none();
    let moved: HashSet<_> = all.iter().filter(is_gone).map(|listed| (listed.to_object.clone(), listed.to_mode.clone())).collect();
    let was_there = |listed: &DiffEntry| {
        let now = (listed.from_object.clone(), listed.from_mode.clone());
        is_older(scratch.tree(), listed, to) && !moved.contains(&now)
    };
    // Nothing tells what an older snapshot has left out from what the run has created.
    let gone: Vec<&Vec<u8>> = all.iter().filter(|listed| listed.to_mode.is_none()).map(|listed| &listed.path).collect();
    let left_out = scratch.left_out_of(to, &gone).await?;
    let not_removed: Vec<DiffEntry> = all.extract_if(.., |listed| left_out.contains(&listed.path) || was_there(listed)).collect();
    let not_removed = not_removed.iter().map(|listed| lossy(&listed.path)).collect();
    // Files that differ only in line ends or encoding.
    let (before, exact) = (scratch.exact_files(now.snapshot.bytes.as_deref()).await?, scratch.exact_files(to.bytes.as_deref()).await?);
    let listed: HashSet<&[u8]> = all.iter().map(|listed| listed.path.as_slice()).collect();
    let others = before.iter().chain(&exact).filter(|(path, _)| before.get(*path) != exact.get(*path) && !listed.contains(path.as_slice()));
    let others: BTreeMap<_, _> = others.map(|(path, entry)| (path.clone(), entry.listed(path))).collect();
    all.extend(others.into_values());
    let (all, outside): (Vec<DiffEntry>, Vec<DiffEntry>) =
        all.into_iter().partition(|listed| as_path(&listed.path).starts_with(&scratch.repo().below));
    let filtered = scratch.find_filtered(&all, &[&now.snapshot.commit, &to.commit]).await?;
    let is_skipped = |listed: &DiffEntry| {
        let is_repository = |mode: &Option<String>| mode.as_deref() == Some(GITLINK);
        is_repository(&listed.from_mode) || is_repository(&listed.to_mode) || filtered.contains(&listed.path)
    };
    let (skipped, listed): (Vec<DiffEntry>, Vec<DiffEntry>) = all.into_iter().partition(is_skipped);
    refuse_unsaved(scratch.tree(), now, &listed)?;
    let mut since = only_in(scratch, &now.snapshot.tree, &distinct(own)).await?;
    for (start, edited) in edits_between_attempts(scratch, own).await? {
        since.extend(edited.into_iter().filter(|_| start.n > to.n));
    }
    let restored_of =
        |paths: &BTreeSet<Vec<u8>>| listed.iter().filter(|listed| paths.contains(&listed.path)).map(|listed| lossy(&listed.path)).collect();
    let (changed_since, changed_beside) = (restored_of(&since), restored_of(beside));
    let skipped = skipped.iter().map(|listed| lossy(&listed.path)).collect();
    let restore = Restore { skipped, ..Restore::of(scratch, listed, &to.commit, to.bytes.as_deref()).await? };
    Ok(PreparedUndo { restore, changed_since, changed_beside, not_removed, outside: outside.iter().map(|listed| lossy(&listed.path)).collect() })
}

/// Returns whether a file that is missing in a snapshot is older than the snapshot. Creating or renaming a file sets its change time;
/// renaming its directory does not.
fn is_older(tree: &Path, listed: &DiffEntry, to: &Snapshot) -> bool {
    let Ok(meta) = tree.join(as_path(&listed.path)).symlink_metadata() else { return false };
    listed.to_mode.is_none() && !meta.is_dir() && meta.ctime().saturating_mul(1000) + meta.ctime_nsec() / 1_000_000 < to.at_ms
}

/// Lists the paths that a run has changed during its attempts.
///
/// # Errors
/// git failed, or a snapshot is missing.
pub async fn changed_by_run(scratch: &Scratch, own: &[&Snapshot]) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let is_work = |at: &usize| !starts_attempt(own, *at) && own[*at].tree != own[*at - 1].tree;
    let pairs: Vec<(&str, &str)> = (1..own.len()).filter(is_work).map(|at| (own[at - 1].tree.as_str(), own[at].tree.as_str())).collect();
    Ok(scratch.paths_within(&pairs).await?.into_iter().flatten().collect())
}

/// Returns whether a snapshot starts an attempt and the previous one ended an attempt. Changes between the two are not the run's.
fn starts_attempt(own: &[&Snapshot], at: usize) -> bool {
    own[at].cause == Some(SnapshotCause::Start) && at > 0 && own[at - 1].cause == Some(SnapshotCause::End)
}

/// Lists the changes between the attempts of a run, which are not the run's: the start of the later attempt, and the paths. A path that
/// returned to an earlier state does not count.
///
/// # Errors
/// git failed, or a snapshot is missing.
pub async fn edits_between_attempts<'a>(scratch: &Scratch, own: &[&'a Snapshot]) -> Result<Vec<(&'a Snapshot, BTreeSet<Vec<u8>>)>, GitError> {
    let mut edits = Vec::new();
    for (at, start) in own.iter().enumerate() {
        if starts_attempt(own, at) {
            edits.push((*start, only_in(scratch, &start.tree, &distinct(&own[..at])).await?));
        }
    }
    Ok(edits)
}

/// Lists the paths at which two commits or trees differ.
///
/// # Errors
/// git failed, or one of them is missing.
pub async fn paths_between(scratch: &Scratch, from: &str, to: &str) -> Result<BTreeSet<Vec<u8>>, GitError> {
    Ok(scratch.list(from, to).await?.into_iter().map(|listed| listed.path).collect())
}

/// Lists the paths at which a tree differs from every one of the others.
///
/// # Errors
/// git failed, or one of them is missing.
pub async fn only_in(scratch: &Scratch, tree: &str, others: &[&str]) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let pairs: Vec<(&str, &str)> = others.iter().map(|other| (*other, tree)).collect();
    let differs = scratch.paths_within(&pairs).await?;
    Ok(differs.into_iter().reduce(|only, differs| only.intersection(&differs).cloned().collect()).unwrap_or_default())
}

/// Returns the trees of snapshots, each once, the newest first.
fn distinct<'a>(snapshots: &'a [&Snapshot]) -> Vec<&'a str> {
    let mut trees = HashSet::new();
    snapshots.iter().rev().map(|snapshot| snapshot.tree.as_str()).filter(|tree| trees.insert(*tree)).collect()
}

/// Identifies one state of a file without reading it. Does not follow a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp([i64; 6]);

impl Stamp {
    /// `None`: the file does not exist.
    fn of(path: &Path) -> Option<Self> {
        let meta = path.symlink_metadata().ok()?;
        Some(Self([meta.ino().cast_signed(), meta.size().cast_signed(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()]))
    }
}

impl Restore {
    /// Prepares to restore these files to their state in a commit or tree, as git would check it out. `bytes`: a commit with the exact
    /// bytes of files that git would check out differently.
    pub(super) async fn of(scratch: &Scratch, listed: Vec<DiffEntry>, to: &str, bytes: Option<&str>) -> Result<Self, GitError> {
        let stage = scratch.stage();
        let tree = scratch.tree().to_owned();
        // Before the export, to detect changes during it.
        let stamps: Vec<Option<Stamp>> = listed.iter().map(|listed| Stamp::of(&tree.join(as_path(&listed.path)))).collect();
        let wanted: Vec<&Vec<u8>> = listed.iter().filter(|listed| listed.to_mode.is_some()).map(|listed| &listed.path).collect();
        export(scratch, |args| scratch.text_call(args, to), to, &wanted, &stage).await?;
        if let Some(bytes) = bytes {
            let exact = scratch.exact_files(Some(bytes)).await?;
            let wanted: Vec<&Vec<u8>> = wanted.into_iter().filter(|path| exact.contains_key(*path)).collect();
            export(scratch, |args| scratch.call(args), bytes, &wanted, &stage).await?;
        }
        Ok(Self { tree, stage, listed: listed.into_iter().zip(stamps).collect(), skipped: Vec::new() })
    }

    /// Keeps only the files for which `is_kept` returns true.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&DiffEntry) -> bool) {
        self.listed.retain(|(listed, _)| is_kept(listed));
    }

    /// Lists the files that have changed since the restore was prepared.
    pub(super) fn changed_files(&self) -> Vec<String> {
        let is_changed = |(listed, stamp): &&(DiffEntry, Option<Stamp>)| Stamp::of(&self.tree.join(as_path(&listed.path))) != *stamp;
        self.listed.iter().filter(is_changed).map(|(listed, _)| lossy(&listed.path)).collect()
    }

    /// Returns how many files will be written or removed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.listed.len()
    }

    /// Changes the tree. Files that git ignores stay. After a failure or a crash, a restore can be prepared and applied again.
    ///
    /// # Errors
    /// The disk failed.
    pub fn apply_blocking(self) -> Result<RestoreOutcome, GitError> {
        let Self { tree, stage, listed, skipped } = self;
        let mut restored = RestoreOutcome { files: Vec::new(), skipped, changed_meanwhile: Vec::new() };
        let (top, tree) = (tree.clone(), Tree::open(&tree)?);
        let is_as_kept = |listed: &DiffEntry, stamp: &Option<Stamp>| {
            let path = top.join(as_path(&listed.path));
            let now = Stamp::of(&path);
            // A directory that replaces files, or is replaced by one, is checked when it is replaced.
            now == *stamp || (listed.from_mode.is_none() && now.is_none()) || path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
        };
        let (gone, written): (Vec<_>, Vec<_>) = listed.into_iter().partition(|(listed, _)| listed.to_mode.is_none());
        // Removals first, because a directory can replace a file, and a file a directory.
        for (listed, stamp) in gone.iter().chain(&written) {
            if !is_as_kept(listed, stamp) {
                restored.changed_meanwhile.push(lossy(&listed.path));
                continue;
            }
            match &listed.to_mode {
                None => tree.remove(&listed.path)?,
                Some(mode) => tree.write(&listed.path, mode, &stage)?,
            }
            restored.files.push(lossy(&listed.path));
            failpoint!("undo.applying");
        }
        restored.files.sort_unstable();
        Ok(restored)
    }
}

pub(super) fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

pub(super) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// Returns an error if the restore would overwrite or remove a file that is not in the snapshot.
fn refuse_unsaved(top: &Path, now: &TakenSnapshot, listed: &[DiffEntry]) -> Result<(), GitError> {
    let mut in_the_way = in_the_way(top, &now.unsaved, listed);
    if in_the_way.is_empty() {
        return Ok(());
    }
    in_the_way.truncate(10);
    let why = format!(
        "these files would be lost and are not kept anywhere (ignored by git, or too large): {}; move them away first",
        in_the_way.join(", ")
    );
    Err(GitError::unusable(top, why))
}

/// Lists the files that would be overwritten or removed although the older state does not contain them, or contains them without
/// their content (`unsaved`).
pub(super) fn in_the_way(top: &Path, unsaved: &BTreeSet<Vec<u8>>, listed: &[DiffEntry]) -> Vec<String> {
    let removed: HashSet<&Path> = listed.iter().filter(|listed| listed.to_mode.is_none()).map(|listed| as_path(&listed.path)).collect();
    let mut in_the_way: Vec<String> = Vec::new();
    for listed in listed {
        let path = as_path(&listed.path);
        let is_kept = listed.from_mode.is_some() && !unsaved.contains(&listed.path);
        // A file or link at a parent path is in the way unless it is removed, too.
        let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        let mut obstacles = above.filter(|above| top.join(above).symlink_metadata().is_ok_and(|meta| !meta.is_dir())).peekable();
        if obstacles.peek().is_some() {
            let kept = obstacles.filter(|above| !removed.contains(above)).map(|above| above.to_string_lossy().into_owned());
            in_the_way.extend(kept.filter(|_| listed.to_mode.is_some()));
            continue;
        }
        match top.join(path).symlink_metadata() {
            Ok(meta) if meta.is_dir() => in_the_way.extend(first_unlisted(top, path, &removed)),
            Ok(_) if !is_kept => in_the_way.push(lossy(&listed.path)),
            _ => {}
        }
    }
    in_the_way.dedup();
    in_the_way
}

/// Returns the first file below a directory that is not in `removed`.
fn first_unlisted(top: &Path, dir: &Path, removed: &HashSet<&Path>) -> Option<String> {
    let entries = match fs::read_dir(top.join(dir)) {
        Ok(entries) => entries,
        Err(_) => return Some(dir.to_string_lossy().into_owned()),
    };
    for entry in entries.flatten() {
        let path = dir.join(entry.file_name());
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let found = if is_dir {
            first_unlisted(top, &path, removed)
        } else {
            (!removed.contains(path.as_path())).then(|| path.to_string_lossy().into_owned())
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

impl Scratch {
    /// Returns which of these files a snapshot would not have even if they were there when it was taken: it names them as left out, or the
    /// patterns that it has ignore them.
    async fn left_out_of(&self, snapshot: &Snapshot, paths: &[&Vec<u8>]) -> Result<HashSet<Vec<u8>>, GitError> {
        let mut found = HashSet::new();
        if paths.is_empty() {
            return Ok(found);
        }
        for path in paths {
            // As the snapshot names it, before the reason.
            let named = format!("{:?} (", lossy(path));
            if snapshot.left_out.iter().any(|entry| entry.starts_with(&named)) {
                found.insert((*path).clone());
            }
        }
        // A work tree that has only the patterns of that time.
        let dir = self.dir().join("pattern-files");
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(GitError::File { path: dir, error }),
            _ => {}
        }
        fs::create_dir_all(&dir).map_err(GitError::file(&dir))?;
        let all = self.list_pattern_files(&snapshot.commit).await?;
        let is_pattern_file = |listed: &&DiffEntry| {
            let is_file = !matches!(listed.to_mode.as_deref(), Some(GITLINK | LINK));
            is_file && as_path(&listed.path).file_name().is_some_and(|name| name == ".gitignore")
        };
        let files: Vec<&Vec<u8>> = all.iter().filter(is_pattern_file).map(|listed| &listed.path).collect();
        export(self, |args| self.call(args), &snapshot.commit, &files, &dir).await?;
        // The name as given is the name in the reply.
        let given: Vec<Vec<u8>> = paths.iter().map(|path| [b"./".as_slice(), path].concat()).collect();
        let patterns = self.pattern_settings()?;
        let call = self.repo().git.call(&dir, &["check-ignore", "-z", "--stdin", "--no-index"]).settings(&self.repo().settings).settings(&patterns);
        let ran = call.env("GIT_DIR", self.dir()).env("GIT_WORK_TREE", &dir).input(nul_terminated(&given)).run().await?;
        // Exit code 1: none is ignored.
        if !matches!(ran.exit_code, Some(0 | 1)) {
            return Err(GitError::Failed { command: "check-ignore".to_owned(), why: error_text(&ran) });
        }
        found.extend(ran.output.split(|byte| *byte == 0).filter_map(|path| path.strip_prefix(b"./")).map(<[u8]>::to_vec));
        Ok(found)
    }

    /// Returns which of these files have a filter, by the attributes on disk or those of one of the commits: what declares it
    /// can be removed with the same change.
    pub(super) async fn find_filtered(&self, listed: &[DiffEntry], commits: &[&str]) -> Result<HashSet<Vec<u8>>, GitError> {
        let input = nul_terminated(listed.iter().map(|listed| &listed.path));
        let mut found = HashSet::new();
        let on_disk = self.call_with_attributes(&["check-attr", "-z", "--stdin", "filter"]).input(input.clone()).output().await?;
        add_filtered(&on_disk, &mut found);
        // In separate indexes, because git older than 2.41 reads no attributes from a tree.
        let index = self.index().with_extension("attributes");
        for commit in commits {
            self.call(&["read-tree", commit]).env("GIT_INDEX_FILE", &index).output().await?;
            let call = self.call_with_attributes(&["check-attr", "--cached", "-z", "--stdin", "filter"]).env("GIT_INDEX_FILE", &index);
            add_filtered(&call.input(input.clone()).output().await?, &mut found);
        }
        Ok(found)
    }
}

/// Adds the paths that have a filter, from the output of `check-attr -z`: path, attribute and value of each.
fn add_filtered(output: &[u8], found: &mut HashSet<Vec<u8>>) {
    let mut fields = output.split(|byte| *byte == 0);
    while let (Some(path), Some(_), Some(value)) = (fields.next(), fields.next(), fields.next()) {
        if value != b"unspecified" && value != b"unset" {
            found.insert(path.to_vec());
        }
    }
}

/// Writes files of a commit below `stage`.
async fn export<'a>(
    scratch: &'a Scratch,
    call: impl Fn(&[&str]) -> Call<'a>,
    commit: &str,
    wanted: &[&Vec<u8>],
    stage: &Path,
) -> Result<(), GitError> {
    if wanted.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(stage).map_err(GitError::file(stage))?;
    let index = scratch.index().with_extension("export");
    scratch.call(&["read-tree"]).arg(commit).env("GIT_INDEX_FILE", &index).output().await?;
    let mut prefix = OsString::from("--prefix=");
    prefix.push(stage);
    prefix.push("/");
    let links = [("core.symlinks".to_owned(), "true".to_owned())];
    let call = call(&["checkout-index", "--force", "-z", "--stdin"]).arg(prefix).settings(&links);
    call.env("GIT_INDEX_FILE", &index).input(nul_terminated(wanted.iter().copied())).output().await.map(drop)
}

/// An open tree, below which no symbolic link is followed.
struct Tree {
    path: PathBuf,
    top: OwnedFd,
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Tree {
    fn open(path: &Path) -> Result<Self, GitError> {
        let top = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from);
        Ok(Self { path: path.to_owned(), top: top.map_err(GitError::file(path))? })
    }

    fn remove(&self, path: &[u8]) -> Result<(), GitError> {
        let full = self.path.join(OsStr::from_bytes(path));
        match self.remove_entry(Path::new(OsStr::from_bytes(path))) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) | Ok(()) => Ok(()),
            Err(error) => Err(GitError::File { path: full, error: error.into() }),
        }
    }

    /// Removes a file, and its parent directories that become empty.
    fn remove_entry(&self, path: &Path) -> Result<(), Errno> {
        let (dirs, name) = parts(path).ok_or(Errno::INVAL)?;
        let mut open = vec![self.top.try_clone().map_err(|_| Errno::MFILE)?];
        for dir in &dirs {
            let above = open.last().ok_or(Errno::INVAL)?;
            let below = rustix::fs::openat(above, *dir, DIRECTORY, Mode::empty())?;
            open.push(below);
        }
        rustix::fs::unlinkat(open.last().ok_or(Errno::INVAL)?, &name, AtFlags::empty())?;
        for (dir, above) in dirs.iter().zip(&open).rev() {
            // The directory is not empty.
            if rustix::fs::unlinkat(above, *dir, AtFlags::REMOVEDIR).is_err() {
                break;
            }
        }
        Ok(())
    }

    fn write(&self, path: &[u8], mode: &str, stage: &Path) -> Result<(), GitError> {
        let path = Path::new(OsStr::from_bytes(path));
        self.write_entry(path, mode, &stage.join(path)).map_err(GitError::file(self.path.join(path)))
    }

    /// Replaces a file or link of the tree with the staged one.
    fn write_entry(&self, path: &Path, mode: &str, staged: &Path) -> io::Result<()> {
        let (dirs, name) = parts(path).ok_or(Errno::INVAL)?;
        let mut parent = self.top.try_clone()?;
        for dir in &dirs {
            let is_new = match rustix::fs::mkdirat(&parent, *dir, Mode::from_raw_mode(0o700)) {
                Ok(()) => true,
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            parent = rustix::fs::openat(&parent, *dir, DIRECTORY, Mode::empty())?;
            if is_new {
                rustix::fs::fchmod(&parent, Mode::from_raw_mode(new_mode(0o777)))?;
            }
        }
        let before = match rustix::fs::statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        // The same name for each attempt, so that an attempt after a crash replaces the file that the crash left.
        let temporary = format!(".adj-{:016x}", fnv(path.as_os_str().as_bytes()));
        match rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let made = put(&parent, &temporary, mode, staged, before.as_ref().map(|stat| stat.st_mode));
        let placed = made.and_then(|()| {
            // Removes an empty directory in the way; fails if it has files.
            if before.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
                rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR)?;
            }
            if before.is_none() {
                // Does not replace a file that was created meanwhile.
                match rustix::fs::renameat_with(&parent, &temporary, &parent, &name, RenameFlags::NOREPLACE) {
                    // The file system does not support this.
                    Err(Errno::INVAL | Errno::NOSYS) => {}
                    renamed => return Ok(renamed?),
                }
            }
            Ok(rustix::fs::renameat(&parent, &temporary, &parent, &name)?)
        });
        if placed.is_err()
            && let Err(error) = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty())
        {
            tracing::debug!(%error, "a temporary file was not made");
        }
        placed
    }
}

/// Returns the FNV-1a hash of a path.
fn fnv(path: &[u8]) -> u64 {
    path.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the mode that git would give a new directory or file.
fn new_mode(all: RawMode) -> RawMode {
    all & !hygiene::user_umask().as_raw_mode()
}

/// Creates a file or link with the staged content, under a temporary name. `before` is the mode of the file to replace.
fn put(parent: &OwnedFd, name: &str, mode: &str, staged: &Path, before: Option<RawMode>) -> io::Result<()> {
    if mode == LINK {
        let target = fs::read_link(staged)?.into_os_string().into_vec();
        return Ok(rustix::fs::symlinkat(OsStr::from_bytes(&target), parent, name)?);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut to = File::from(rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600))?);
    io::copy(&mut File::open(staged)?, &mut to)?;
    // An existing file keeps its permissions.
    let rights =
        before.filter(|before| FileType::from_raw_mode(*before) == FileType::RegularFile).map_or_else(|| new_mode(0o666), |before| before & 0o666);
    let programs = if mode == PROGRAM { (rights & 0o444) >> 2 } else { 0 };
    rustix::fs::fchmod(&to, Mode::from_raw_mode(rights | programs))?;
    to.sync_all()
}

/// Splits a path of git into its directories and its name. `None`: the path leaves the tree, or names a git directory.
pub(super) fn parts(path: &Path) -> Option<(Vec<&OsStr>, OsString)> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if !name.eq_ignore_ascii_case(".git") => names.push(name),
            _ => return None,
        }
    }
    let name = names.pop()?.to_owned();
    Some((names, name))
}
