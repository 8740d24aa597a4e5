//! Restores a tree to the state of a commit, file by file. Each file is exchanged with its new
//! content, so that after a crash it has either the old content or the new one. A file that no
//! snapshot contains is never overwritten.

use super::call::Call;
use super::diff::{DiffEntry, GITLINK};
use super::paths::{as_path, lossy, nul_terminated};
use super::repo::is_regular;
use super::work_tree::WorkTree;
use super::{GitError, Scratch, Snapshot, TakenSnapshot};
use crate::failpoint::failpoint;
use crate::user_files::{Content, FileOutcome, LeftAlone, Settled, Stamp};
use adjutant_core::snapshot::SnapshotCause;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The result of a restore.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// Files that were written or removed, from the top of the tree.
    pub files: Vec<String>,
    /// Entries that are never restored: nested repositories, and files with a filter (such as those
    /// of Git LFS).
    pub skipped: Vec<String>,
    /// Files that changed meanwhile and were not restored.
    pub left_alone: Vec<(String, LeftAlone)>,
    /// Files were replaced without an exchange, which the file system does not support.
    pub is_unguarded: bool,
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

/// Lists the paths that a run has changed during its attempts.
///
/// # Errors
/// git failed, or a snapshot is missing.
pub async fn changed_by_run(
    scratch: &Scratch,
    own: &[&Snapshot],
) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let is_work = |at: &usize| !starts_attempt(own, *at) && own[*at].tree != own[*at - 1].tree;
    let pairs: Vec<(&str, &str)> = (1..own.len())
        .filter(is_work)
        .map(|at| (own[at - 1].tree.as_str(), own[at].tree.as_str()))
        .collect();
    Ok(scratch
        .paths_within(&pairs)
        .await?
        .into_iter()
        .flatten()
        .collect())
}

/// Returns whether a snapshot starts an attempt and the previous one ended an attempt. Changes
/// between the two are not the run's.
fn starts_attempt(own: &[&Snapshot], at: usize) -> bool {
    own[at].cause == Some(SnapshotCause::Start)
        && at > 0
        && own[at - 1].cause == Some(SnapshotCause::End)
}

/// Lists the changes between the attempts of a run, which are not the run's: the start of the later
/// attempt, and the paths. A path that returned to an earlier state does not count.
///
/// # Errors
/// git failed, or a snapshot is missing.
pub async fn edits_between_attempts<'a>(
    scratch: &Scratch,
    own: &[&'a Snapshot],
) -> Result<Vec<(&'a Snapshot, BTreeSet<Vec<u8>>)>, GitError> {
    let mut edits = Vec::new();
    for (at, start) in own.iter().enumerate() {
        if starts_attempt(own, at) {
            edits.push((
                *start,
                only_in(scratch, &start.tree, &distinct(&own[..at])).await?,
            ));
        }
    }
    Ok(edits)
}

/// Lists the paths at which two commits or trees differ.
///
/// # Errors
/// git failed, or one of them is missing.
pub async fn paths_between(
    scratch: &Scratch,
    from: &str,
    to: &str,
) -> Result<BTreeSet<Vec<u8>>, GitError> {
    Ok(scratch
        .list(from, to)
        .await?
        .into_iter()
        .map(|listed| listed.path)
        .collect())
}

/// Lists the paths at which a tree differs from every one of the others.
///
/// # Errors
/// git failed, or one of them is missing.
pub async fn only_in(
    scratch: &Scratch,
    tree: &str,
    others: &[&str],
) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let pairs: Vec<(&str, &str)> = others.iter().map(|other| (*other, tree)).collect();
    let differs = scratch.paths_within(&pairs).await?;
    Ok(differs
        .into_iter()
        .reduce(|only, differs| only.intersection(&differs).cloned().collect())
        .unwrap_or_default())
}

/// Returns the trees of snapshots, each once, the newest first.
pub(super) fn distinct<'a>(snapshots: &'a [&Snapshot]) -> Vec<&'a str> {
    let mut trees = HashSet::new();
    snapshots
        .iter()
        .rev()
        .map(|snapshot| snapshot.tree.as_str())
        .filter(|tree| trees.insert(*tree))
        .collect()
}

impl Restore {
    /// Prepares to restore these files to their state in a commit or tree, as git would check it
    /// out. `bytes`: a commit with the exact bytes of files that git would check out differently.
    /// `stamps`: states of files that were seen before.
    pub(super) async fn of(
        scratch: &Scratch,
        listed: Vec<DiffEntry>,
        to: &str,
        bytes: Option<&str>,
        stamps: &Stamps,
    ) -> Result<Self, GitError> {
        let stage = scratch.stage();
        let tree = scratch.tree().to_owned();
        // Before the export, to detect changes during it.
        let stamped = |listed: DiffEntry| -> Result<_, GitError> {
            let stamp = stamps.of(&tree, &listed.path)?;
            Ok((listed, stamp))
        };
        let listed: Vec<(DiffEntry, Option<Stamp>)> =
            listed.into_iter().map(stamped).collect::<Result<_, _>>()?;
        let wanted: Vec<&Vec<u8>> = listed
            .iter()
            .filter(|(listed, _)| listed.to_mode.is_some())
            .map(|(listed, _)| &listed.path)
            .collect();
        export_exact(scratch, to, bytes, wanted, &stage).await?;
        Ok(Self {
            tree,
            stage,
            listed,
            skipped: Vec::new(),
        })
    }

    /// Names the entries that it does not restore.
    pub(super) fn with_skipped(self, skipped: Vec<String>) -> Self {
        Self { skipped, ..self }
    }

    /// Keeps only the files for which `is_kept` returns true.
    pub(super) fn retain(&mut self, mut is_kept: impl FnMut(&DiffEntry) -> bool) {
        self.listed.retain(|(listed, _)| is_kept(listed));
    }

    /// Lists the files that have changed since the restore was prepared.
    pub(super) fn changed_files(&self) -> Result<Vec<String>, GitError> {
        let mut changed = Vec::new();
        for (listed, stamp) in &self.listed {
            if Stamps::now(&self.tree, &listed.path)? != *stamp {
                changed.push(lossy(&listed.path));
            }
        }
        Ok(changed)
    }

    /// Lists the files that differ from the snapshot that was just taken into the index, if their
    /// state before it is not known.
    pub(super) async fn changed_after(
        &self,
        scratch: &Scratch,
        before: &Stamps,
    ) -> Result<BTreeSet<Vec<u8>>, GitError> {
        let unknown = |(listed, _): &&(DiffEntry, Option<Stamp>)| !before.has(&listed.path);
        let unknown: BTreeSet<&Vec<u8>> = self
            .listed
            .iter()
            .filter(unknown)
            .map(|(listed, _)| &listed.path)
            .collect();
        if unknown.is_empty() {
            return Ok(BTreeSet::new());
        }
        let differing = scratch
            .call(&["diff-files", "-z", "--name-only", "--no-renames"])
            .output()
            .await?;
        let differing: HashSet<&[u8]> = differing.split(|byte| *byte == 0).collect();
        let appeared = |(listed, stamp): &&(DiffEntry, Option<Stamp>)| {
            listed.from_mode.is_none()
                && stamp.is_some_and(|stamp| !stamp.is_directory())
                && unknown.contains(&listed.path)
        };
        let appeared = self
            .listed
            .iter()
            .filter(appeared)
            .map(|(listed, _)| &listed.path);
        Ok(unknown
            .iter()
            .copied()
            .filter(|path| differing.contains(path.as_slice()))
            .chain(appeared)
            .cloned()
            .collect())
    }

    /// Returns how many files will be written or removed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.listed.len()
    }

    /// Changes the tree, and syncs it. Files that git ignores stay. After a failure or a crash, a
    /// restore can be prepared and applied again.
    ///
    /// # Errors
    /// The disk failed.
    pub fn apply_blocking(self) -> Result<RestoreOutcome, GitError> {
        let Self {
            tree,
            stage,
            listed,
            skipped,
        } = self;
        let mut restored = RestoreOutcome {
            skipped,
            ..RestoreOutcome::default()
        };
        let mut tree = WorkTree::open(&tree)?;
        let (gone, written): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .partition(|(listed, _)| listed.to_mode.is_none());
        // Removals first, because a directory can replace a file, and a file a directory.
        for (listed, stamp) in gone.iter().chain(&written) {
            let outcome = match &listed.to_mode {
                None => tree.remove(&listed.path, *stamp)?,
                Some(mode) => tree.write(&listed.path, mode, &stage, *stamp)?,
            };
            match outcome {
                FileOutcome::Done => restored.files.push(lossy(&listed.path)),
                FileOutcome::Unguarded => {
                    restored.files.push(lossy(&listed.path));
                    restored.is_unguarded = true;
                }
                FileOutcome::LeftAlone(left) => {
                    restored.left_alone.push((lossy(&listed.path), left))
                }
            }
            failpoint!("undo.applying");
        }
        tree.sync()?;
        restored.files.sort_unstable();
        Ok(restored)
    }
}

/// States of files, by their paths in the tree.
#[derive(Debug, Default)]
pub(crate) struct Stamps(BTreeMap<Vec<u8>, Option<Stamp>>);

impl Stamps {
    /// Reads the states of these files.
    ///
    /// # Errors
    /// The disk failed.
    pub(super) fn read(tree: &Path, paths: BTreeSet<Vec<u8>>) -> Result<Self, GitError> {
        let read = |path: Vec<u8>| Self::now(tree, &path).map(|stamp| (path, stamp));
        Ok(Self(paths.into_iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Returns the known state of a file, else its state now.
    fn of(&self, tree: &Path, path: &[u8]) -> Result<Option<Stamp>, GitError> {
        match self.0.get(path) {
            Some(known) => Ok(*known),
            None => Self::now(tree, path),
        }
    }

    fn now(tree: &Path, path: &[u8]) -> Result<Option<Stamp>, GitError> {
        let path = tree.join(as_path(path));
        // Below a link there is no file of the tree.
        let mut above = path.ancestors().skip(1).take_while(|above| *above != tree);
        if above.any(Path::is_symlink) {
            return Ok(None);
        }
        Stamp::of(&path).map_err(GitError::file(path))
    }

    fn has(&self, path: &[u8]) -> bool {
        self.0.contains_key(path)
    }
}

/// Settles what a killed process has left beside the listed files, whose states are those in the
/// commits or trees `from` and `to`, each with the commit that has exact bytes. Returns the files
/// of the user that were found, and where they are now.
///
/// # Errors
/// git or the disk failed.
pub async fn settle_strays(
    scratch: &Scratch,
    listed: &[DiffEntry],
    from: (&str, Option<&str>),
    to: (&str, Option<&str>),
) -> Result<Vec<(String, Settled)>, GitError> {
    let mut tree = WorkTree::open(scratch.tree())?;
    let mut strays = Vec::new();
    for listed in listed {
        if tree.has_stray(&listed.path)? {
            strays.push(listed);
        } else {
            // What is unfinished is never the user's.
            tree.settle(&listed.path, &[])?;
        }
    }
    let mut known: BTreeMap<&[u8], Vec<Content>> = BTreeMap::new();
    for ((commit, bytes), name, is_newer) in [(from, "stray-from", false), (to, "stray-to", true)] {
        let stage = scratch.dir().join(name);
        let mode = |listed: &DiffEntry| {
            if is_newer {
                listed.to_mode.clone()
            } else {
                listed.from_mode.clone()
            }
        };
        let is_file = |listed: &&&DiffEntry| mode(listed).is_some_and(|mode| mode != GITLINK);
        let wanted: Vec<&Vec<u8>> = strays
            .iter()
            .filter(is_file)
            .map(|listed| &listed.path)
            .collect();
        export_exact(scratch, commit, bytes, wanted.clone(), &stage).await?;
        for path in wanted {
            let staged = stage.join(as_path(path));
            known
                .entry(path)
                .or_default()
                .push(Content::of(&staged).map_err(GitError::file(staged))?);
        }
    }
    let mut found = Vec::new();
    for listed in strays {
        let settled = tree.settle(
            &listed.path,
            known.get(listed.path.as_slice()).map_or(&[], Vec::as_slice),
        )?;
        if settled != Settled::Clean {
            tracing::warn!(
                path = lossy(&listed.path),
                ?settled,
                "a save of the user was found beside an interrupted change"
            );
            found.push((lossy(&listed.path), settled));
        }
    }
    tree.sync()?;
    Ok(found)
}

/// Writes files of a commit or tree below `stage`, those in `bytes` with the bytes there.
async fn export_exact(
    scratch: &Scratch,
    commit: &str,
    bytes: Option<&str>,
    wanted: Vec<&Vec<u8>>,
    stage: &Path,
) -> Result<(), GitError> {
    export(
        scratch,
        |args| scratch.text_call(args, commit),
        commit,
        &wanted,
        stage,
    )
    .await?;
    if let Some(bytes) = bytes {
        let exact = scratch.exact_files(Some(bytes)).await?;
        let wanted: Vec<&Vec<u8>> = wanted
            .into_iter()
            .filter(|path| exact.contains_key(*path))
            .collect();
        export(scratch, |args| scratch.call(args), bytes, &wanted, stage).await?;
    }
    Ok(())
}

/// Returns an error if the restore would overwrite or remove a file that is not in the snapshot.
pub(super) fn refuse_unsaved(
    top: &Path,
    now: &TakenSnapshot,
    listed: &[DiffEntry],
) -> Result<(), GitError> {
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

/// Lists the files that would be overwritten or removed although the older state does not contain
/// them, or contains them without their content (`unsaved`).
pub(super) fn in_the_way(
    top: &Path,
    unsaved: &BTreeSet<Vec<u8>>,
    listed: &[DiffEntry],
) -> Vec<String> {
    let removed: HashSet<&Path> = listed
        .iter()
        .filter(|listed| listed.to_mode.is_none())
        .map(|listed| as_path(&listed.path))
        .collect();
    let mut in_the_way: Vec<String> = Vec::new();
    for listed in listed {
        let path = as_path(&listed.path);
        let is_kept = listed.from_mode.is_some() && !unsaved.contains(&listed.path);
        // A file or link at a parent path is in the way unless it is removed, too.
        let above = path
            .ancestors()
            .skip(1)
            .filter(|above| !above.as_os_str().is_empty());
        let mut obstacles = above
            .filter(|above| {
                top.join(above)
                    .symlink_metadata()
                    .is_ok_and(|meta| !meta.is_dir())
            })
            .peekable();
        if obstacles.peek().is_some() {
            let kept = obstacles
                .filter(|above| !removed.contains(above))
                .map(|above| above.to_string_lossy().into_owned());
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
    /// Returns which of these files have a filter, by the attributes on disk or those of one of the
    /// commits: what declares it can be removed with the same change.
    pub(super) async fn find_filtered(
        &self,
        listed: &[DiffEntry],
        commits: &[&str],
    ) -> Result<HashSet<Vec<u8>>, GitError> {
        let input = nul_terminated(listed.iter().map(|listed| &listed.path));
        let mut found = HashSet::new();
        let on_disk = self
            .call_with_attributes(&["check-attr", "-z", "--stdin", "filter"])
            .input(input.clone())
            .output()
            .await?;
        add_filtered(&on_disk, &mut found);
        // In separate indexes, because git older than 2.41 reads no attributes from a tree.
        let index = self.index().with_extension("attributes");
        for commit in commits {
            self.call(&["read-tree", commit])
                .env("GIT_INDEX_FILE", &index)
                .output()
                .await?;
            let call = self
                .call_with_attributes(&["check-attr", "--cached", "-z", "--stdin", "filter"])
                .env("GIT_INDEX_FILE", &index);
            add_filtered(&call.input(input.clone()).output().await?, &mut found);
        }
        Ok(found)
    }
}

impl Scratch {
    /// Lists what git itself has stored for files with a filter, by path: in the checked-out
    /// commit, in the one before the run, and in the user's or the agent's index. The files have
    /// other content.
    pub(super) async fn cleaned_blobs(
        &self,
        paths: &HashSet<Vec<u8>>,
        first: Option<&Snapshot>,
    ) -> Result<HashSet<(Vec<u8>, String)>, GitError> {
        let mut commits: Vec<String> = self.repo().head().await?.into_iter().collect();
        commits.extend(self.base().await?);
        if let Some(first) = first {
            let before = self
                .call(&[
                    "rev-parse",
                    "--verify",
                    "--quiet",
                    "--end-of-options",
                    &format!("{}^1", first.commit),
                ])
                .run()
                .await?;
            commits.extend((before.exit_code == Some(0)).then(|| {
                String::from_utf8_lossy(&before.output)
                    .trim_end()
                    .to_owned()
            }));
        }
        let indexes = [
            Some(self.repo().dir.join("index")),
            self.agents_index().await?,
        ];
        let mut cleaned = HashSet::new();
        let paths: Vec<&Vec<u8>> = paths.iter().collect();
        for paths in paths.chunks(PATHS_MAX) {
            let mut listed = Vec::new();
            for commit in &commits {
                let call = self.call(&[
                    "--literal-pathspecs",
                    "ls-tree",
                    "-r",
                    "-z",
                    "--full-tree",
                    commit,
                    "--",
                ]);
                listed.extend(
                    paths
                        .iter()
                        .fold(call, |call, path| call.arg(OsStr::from_bytes(path)))
                        .output()
                        .await?,
                );
            }
            for index in indexes.iter().flatten().filter(|index| is_regular(index)) {
                let call = self
                    .call(&["--literal-pathspecs", "ls-files", "-z", "--stage", "--"])
                    .env("GIT_INDEX_FILE", index);
                listed.extend(
                    paths
                        .iter()
                        .fold(call, |call, path| call.arg(OsStr::from_bytes(path)))
                        .output()
                        .await?,
                );
            }
            // `<mode> blob <oid>` or `<mode> <oid> <stage>`, tab, path.
            for entry in listed.split(|byte| *byte == 0) {
                let Some(tab) = entry.iter().position(|byte| *byte == b'\t') else {
                    continue;
                };
                let described = String::from_utf8_lossy(&entry[..tab]).into_owned();
                let object = described.split(' ').find(|word| word.len() >= 40);
                cleaned.extend(object.map(|object| (entry[tab + 1..].to_vec(), object.to_owned())));
            }
        }
        Ok(cleaned)
    }
}

/// Maximum number of paths that one call names.
const PATHS_MAX: usize = 200;

/// Adds the paths that have a filter, from the output of `check-attr -z`: path, attribute and value
/// of each.
fn add_filtered(output: &[u8], found: &mut HashSet<Vec<u8>>) {
    let mut fields = output.split(|byte| *byte == 0);
    while let (Some(path), Some(_), Some(value)) = (fields.next(), fields.next(), fields.next()) {
        if value != b"unspecified" && value != b"unset" {
            found.insert(path.to_vec());
        }
    }
}

/// Writes files of a commit below `stage`.
pub(super) async fn export<'a>(
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
    scratch
        .call(&["read-tree"])
        .arg(commit)
        .env("GIT_INDEX_FILE", &index)
        .output()
        .await?;
    let mut prefix = OsString::from("--prefix=");
    prefix.push(stage);
    prefix.push("/");
    // A repository can switch links off. git would then write files with the targets, from which no
    // link can be made.
    let links = [("core.symlinks".to_owned(), "true".to_owned())];
    let call = call(&["checkout-index", "--force", "-z", "--stdin"])
        .arg(prefix)
        .settings(&links);
    call.env("GIT_INDEX_FILE", &index)
        .input(nul_terminated(wanted.iter().copied()))
        .output()
        .await
        .map(drop)
}
