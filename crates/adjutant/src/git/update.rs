//! Bringing the user's branch, index and tree from one commit to another, in one step: it happens wholly or not at all,
//! also when the process dies in between.
//!
//! ```text
//!  look      nothing is changed: what is in the way is named
//!            (the caller records the update)
//!  lock      the new index becomes index.lock; whatever changed since the look ends it here
//!  files     each is replaced by a rename
//!  index     index.lock becomes the index
//!  ref       compare and set
//!            (the caller records the end)
//! ```
//! The new index is a second name of `index.lock`, so that a later process recognises a lock that a dead one left. From there it
//! continues, or goes back if the user's branch has moved on.

use super::diff::Listed;
use super::new_commit::Identity;
use super::refusal::Refusal;
use super::restore::{GITLINK, Restore, as_path, in_the_way, lossy, parts};
use super::{GitError, Repo, Scratch};
use crate::failpoint::failpoint;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Files of the git directory that say that the user is in the middle of something.
const UNDER_WAY: [(&str, &str); 5] = [
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
];

/// What is checked out in a work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The branch's ref. `None`: a commit is checked out.
    pub branch: Option<String>,
    pub commit: String,
}

/// An update of the user's repository. Its fields are all that is needed to finish it after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// Tells it from other updates of the same repository: an id.
    pub name: String,
    /// The ref to move: the branch, or `HEAD`. `None`: only the tree and the index change.
    pub git_ref: Option<String>,
    /// The commit that is checked out.
    pub before: String,
    /// The new commit, or a tree if no ref is moved.
    pub after: String,
    /// For the reflog: who moves the ref, as git writes a person, and why.
    pub who: Identity,
    pub reason: String,
}

/// How an update that was interrupted ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// It is complete.
    Finished,
    /// The repository is as it was before it.
    Undone,
}

/// An update with everything that was looked at.
#[derive(Debug)]
pub struct PreparedUpdate {
    scratch: Scratch,
    update: Update,
    head: Head,
    listed: Vec<Listed>,
    restore: Restore,
    index: IndexStamp,
}

/// Tells one state of the index file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexStamp(Option<[i64; 5]>);

impl IndexStamp {
    fn of(path: &Path) -> Self {
        let meta = path.symlink_metadata().ok();
        Self(meta.map(|meta| [meta.ino().cast_signed(), meta.size().cast_signed(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec()]))
    }
}

impl Repo {
    /// Returns what is checked out. `None`: there is no commit yet.
    ///
    /// # Errors
    /// git failed.
    pub async fn checked_out(&self) -> Result<Option<Head>, GitError> {
        let Some(commit) = self.head().await? else { return Ok(None) };
        let ran = self.of_refs(&["symbolic-ref", "--quiet", "HEAD"]).run().await?;
        let branch = (ran.exit_code == Some(0)).then(|| String::from_utf8_lossy(&ran.output).trim_end().to_owned());
        Ok(Some(Head { branch, commit }))
    }

    /// Returns the commit that a ref names.
    pub async fn commit_of(&self, git_ref: &str) -> Result<Option<String>, GitError> {
        let ran = self.of_refs(&["rev-parse", "--verify", "--quiet", "--end-of-options"]).arg(format!("{git_ref}^{{commit}}")).run().await?;
        Ok((ran.exit_code == Some(0)).then(|| String::from_utf8_lossy(&ran.output).trim_end().to_owned()))
    }

    /// Names what the user is in the middle of.
    fn under_way(&self) -> Option<&'static str> {
        UNDER_WAY.iter().find(|(file, _)| self.dir.join(file).symlink_metadata().is_ok()).map(|(_, what)| *what)
    }

    fn lock(&self) -> PathBuf {
        self.dir.join("index.lock")
    }

    /// The second name of an update's new index.
    fn new_index(&self, update: &Update) -> PathBuf {
        self.dir.join(format!("adjutant-{}.index", update.name))
    }
}

impl PreparedUpdate {
    /// Looks whether the update can be made. Nothing of the user's is changed.
    ///
    /// # Errors
    /// A [`Refusal`], or git or the disk failed.
    pub async fn look(scratch: Scratch, head: Head, update: Update) -> Result<Self, GitError> {
        let repo = scratch.repo();
        if let Some(what) = repo.under_way() {
            return Err(Refusal::UnderWay(what).into());
        }
        if repo.lock().symlink_metadata().is_ok() {
            return Err(Refusal::Locked(repo.lock().display().to_string()).into());
        }
        let all = scratch.list(&update.before, &update.after).await?;
        refuse_names(&scratch, &update, &all).await?;
        let is_repository = |mode: &Option<String>| mode.as_deref() == Some(GITLINK);
        let (links, listed): (Vec<Listed>, Vec<Listed>) =
            all.iter().cloned().partition(|listed| is_repository(&listed.from_mode) || is_repository(&listed.to_mode));
        // Only another commit of the same repository is like a file; git does not check it out either.
        let replaced = links.iter().filter(|listed| !is_repository(&listed.from_mode) || !is_repository(&listed.to_mode));
        Refusal::files(Refusal::Submodules, replaced.map(|listed| lossy(&listed.path)))?;
        let filtered = scratch.filtered(listed.iter().map(|listed| listed.path.as_slice())).await?;
        Refusal::files(Refusal::Filtered, filtered.iter().map(|path| lossy(path)))?;
        let index = IndexStamp::of(&repo.dir.join("index"));
        scratch.refuse_staged(&update, &all).await?;
        // Before the files are compared: what changes after this is noticed when it is applied.
        let restore = Restore::of(&scratch, listed.clone(), &update.after).await?;
        let dirty = scratch.differing(&listed).await?;
        Refusal::files(Refusal::Dirty, dirty.iter().map(|path| lossy(path)))?;
        Refusal::files(Refusal::InTheWay, in_the_way(scratch.tree(), &BTreeSet::new(), &listed))?;
        Ok(Self { scratch, update, head, listed: all, restore, index })
    }

    /// Names the files that change, from the top of the tree.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        self.listed.iter().map(|listed| lossy(&listed.path)).collect()
    }

    /// Gives the update the name under which it was recorded.
    #[must_use]
    pub fn named(self, update: Update) -> Self {
        Self { update, ..self }
    }

    /// Makes the update. After an error, everything is as before, except after [`GitError::HalfDone`].
    ///
    /// # Errors
    /// Something changed since the look ([`Refusal::Changed`]), or git or the disk failed.
    pub async fn apply(self) -> Result<(), GitError> {
        let Self { scratch, update, head, listed, restore, index } = self;
        let repo = scratch.repo();
        failpoint!("merge.after_journal");
        let new_index = repo.new_index(&update);
        if let Err(error) = lock(&scratch, &update, &listed).await {
            remove_file(&new_index)?;
            return Err(error);
        }
        failpoint!("merge.after_lock");
        let done = async {
            if IndexStamp::of(&repo.dir.join("index")) != index {
                return Err(Refusal::Changed("the index".to_owned()).into());
            }
            if repo.checked_out().await?.as_ref() != Some(&head) {
                return Err(Refusal::Changed("the checked-out commit".to_owned()).into());
            }
            Refusal::files(Refusal::Changed, restore.changed_files())?;
            Ok(())
        };
        if let Err(error) = done.await {
            unlock(repo, &update)?;
            return Err(error);
        }
        let applied = match restore.apply_blocking() {
            Ok(restored) => Refusal::files(Refusal::Changed, restored.changed_meanwhile),
            Err(error) => Err(error),
        };
        if let Err(error) = applied {
            return Err(go_back(&scratch, &update, error).await);
        }
        failpoint!("merge.after_files");
        finish(&scratch, &update).await
    }
}

/// Finishes or undoes an update during which the process died. It can be repeated.
///
/// # Errors
/// git or the disk failed.
pub async fn recover(scratch: &Scratch, update: &Update) -> Result<Recovered, GitError> {
    let repo = scratch.repo();
    let new_index = repo.new_index(update);
    let mark = new_index.symlink_metadata().ok().map(|meta| meta.ino());
    let now = match &update.git_ref {
        Some(git_ref) => repo.commit_of(git_ref).await?,
        None => None,
    };
    let is_at_after = match (&update.git_ref, &now) {
        (Some(_), Some(now)) => *now == update.after || scratch.is_ancestor(&update.after, now).await?,
        _ => false,
    };
    let listed = scratch.list(&update.before, &update.after).await?;
    let Some(mark) = mark else {
        // It had not begun, or only its end was not recorded.
        let is_done = is_at_after || (update.git_ref.is_none() && scratch.is_index_at(&update.after, &listed).await?);
        return Ok(if is_done { Recovered::Finished } else { Recovered::Undone });
    };
    let is_locked = repo.lock().symlink_metadata().is_ok_and(|meta| meta.ino() == mark);
    let is_index_done = !is_locked && scratch.is_index_at(&update.after, &listed).await?;
    // The branch was moved meanwhile: the update is no longer what was looked at.
    let is_moved = update.git_ref.is_some() && !is_at_after && now.as_deref() != Some(update.before.as_str());
    if is_locked && !is_moved {
        replace_files(scratch, &listed, &update.before, &update.after).await?;
        finish(scratch, update).await?;
        return Ok(Recovered::Finished);
    }
    if is_index_done && !is_moved {
        move_ref(scratch, update).await?;
        remove_file(&new_index)?;
        return Ok(Recovered::Finished);
    }
    // Without its lock: the user removed that. Files that it had replaced go back.
    if !is_index_done {
        replace_files(scratch, &listed, &update.after, &update.before).await?;
    }
    unlock(repo, update)?;
    Ok(if is_at_after { Recovered::Finished } else { Recovered::Undone })
}

/// Refuses names that cannot be in a work tree, and those that are the same in one that ignores case.
async fn refuse_names(scratch: &Scratch, update: &Update, all: &[Listed]) -> Result<(), GitError> {
    let added = || all.iter().filter(|listed| listed.to_mode.is_some());
    Refusal::files(Refusal::Names, all.iter().filter(|listed| parts(as_path(&listed.path)).is_none()).map(|listed| lossy(&listed.path)))?;
    if !scratch.repo().ignores_case() || added().next().is_none() {
        return Ok(());
    }
    let listed = scratch.call(&["ls-tree", "-r", "-z", "--name-only"]).arg(&update.after).output().await?;
    let mut seen: HashSet<String> = HashSet::new();
    let folded = |path: &[u8]| lossy(path).to_lowercase();
    let twice: HashSet<String> = listed.split(|byte| *byte == 0).map(folded).filter(|path| !seen.insert(path.clone())).collect();
    Refusal::files(Refusal::Names, added().filter(|listed| twice.contains(&folded(&listed.path))).map(|listed| lossy(&listed.path)))
}

/// Makes the new index, and the lock of the index from it.
async fn lock(scratch: &Scratch, update: &Update, listed: &[Listed]) -> Result<(), GitError> {
    let (repo, new_index) = (scratch.repo(), scratch.repo().new_index(update));
    remove_file(&new_index)?;
    let index = repo.dir.join("index");
    match fs::copy(&index, &new_index) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        copied => drop(copied.map_err(GitError::file(&index))?),
    }
    let entries = index_info(repo, listed, true);
    let call = scratch.call(&["update-index", "-z", "--index-info"]).env("GIT_INDEX_FILE", &new_index);
    call.input(entries).output().await?;
    match fs::hard_link(&new_index, repo.lock()) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Refusal::Locked(repo.lock().display().to_string()).into()),
        linked => linked.map_err(GitError::file(repo.lock())),
    }
}

/// Removes the lock, if it is the update's, and the new index.
fn unlock(repo: &Repo, update: &Update) -> Result<(), GitError> {
    let (new_index, lock) = (repo.new_index(update), repo.lock());
    let ino = |path: &Path| path.symlink_metadata().ok().map(|meta| meta.ino());
    if ino(&lock).is_some() && ino(&lock) == ino(&new_index) {
        remove_file(&lock)?;
    }
    remove_file(&new_index)
}

/// Makes the new index the index, and moves the ref.
async fn finish(scratch: &Scratch, update: &Update) -> Result<(), GitError> {
    let repo = scratch.repo();
    fs::rename(repo.lock(), repo.dir.join("index")).map_err(GitError::file(repo.lock()))?;
    failpoint!("merge.after_index");
    move_ref(scratch, update).await?;
    failpoint!("merge.after_ref");
    remove_file(&repo.new_index(update))
}

async fn move_ref(scratch: &Scratch, update: &Update) -> Result<(), GitError> {
    let (Some(git_ref), repo) = (&update.git_ref, scratch.repo()) else { return Ok(()) };
    if repo.commit_of(git_ref).await?.as_deref() == Some(&update.after) {
        return Ok(());
    }
    let call = repo.of_refs(&["update-ref", "--no-deref", "-m", &update.reason, "--end-of-options", git_ref, &update.after, &update.before]);
    update.who.as_committer(call).output().await.map(drop)
}

/// Brings back the files, after something failed.
async fn go_back(scratch: &Scratch, update: &Update, cause: GitError) -> GitError {
    let back = async {
        let listed = scratch.list(&update.before, &update.after).await?;
        replace_files(scratch, &listed, &update.after, &update.before).await?;
        unlock(scratch.repo(), update)
    };
    match back.await {
        Ok(()) => cause,
        Err(error) => {
            tracing::error!(%error, "the files of an interrupted merge cannot be brought back yet");
            GitError::HalfDone { cause: cause.to_string(), error: error.to_string() }
        }
    }
}

/// Brings those of the listed files to their state in `to` that are as in `from`. Any other has been changed by the user and stays.
async fn replace_files(scratch: &Scratch, listed: &[Listed], from: &str, to: &str) -> Result<(), GitError> {
    let wanted = scratch.list(from, to).await?;
    let is_file = |listed: &&Listed| [&listed.from_mode, &listed.to_mode].iter().all(|mode| mode.as_deref() != Some(GITLINK));
    let paths: HashSet<&[u8]> = listed.iter().map(|listed| listed.path.as_slice()).collect();
    let wanted: Vec<Listed> = wanted.iter().filter(is_file).filter(|listed| paths.contains(listed.path.as_slice())).cloned().collect();
    let mut restore = Restore::of(scratch, wanted.clone(), to).await?;
    let differing = scratch.differing(&wanted).await?;
    let top = scratch.tree();
    let is_as_from = |listed: &Listed| match &listed.from_mode {
        Some(_) => !differing.contains(&listed.path),
        None => top.join(as_path(&listed.path)).symlink_metadata().map_or(true, |meta| meta.is_dir()),
    };
    restore.retain(is_as_from);
    restore.apply_blocking().map(drop)
}

fn remove_file(path: &Path) -> Result<(), GitError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GitError::File { path: path.to_owned(), error }),
        _ => Ok(()),
    }
}

impl Scratch {
    /// Refuses changes that the user has staged in the listed files.
    async fn refuse_staged(&self, update: &Update, listed: &[Listed]) -> Result<(), GitError> {
        let copy = self.index().with_extension("user");
        let index = self.repo().dir.join("index");
        match fs::copy(&index, &copy) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied.map_err(GitError::file(&index))?),
        }
        let call = |args: &[&str]| self.call(args).env("GIT_INDEX_FILE", &copy);
        let marked = call(&["ls-files", "-z", "-v"]).run().await?;
        if marked.exit_code != Some(0) {
            let is_split = fs::read_dir(&self.repo().dir)
                .is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name().as_bytes().starts_with(b"sharedindex.")));
            let failed = GitError::Failed { command: "ls-files".to_owned(), why: super::call::complaint(&marked) };
            return Err(if is_split { Refusal::SplitIndex.into() } else { failed });
        }
        let changed: HashSet<&[u8]> = listed.iter().map(|listed| listed.path.as_slice()).collect();
        let skipped = marked.output.split(|byte| *byte == 0).filter_map(|entry| entry.strip_prefix(b"S ")).filter(|path| changed.contains(path));
        Refusal::files(Refusal::Sparse, skipped.map(lossy))?;
        let staged = call(&["diff-index", "--cached", "-z", "--name-only", "--no-renames", &update.before, "--"]).output().await?;
        let dirty = staged.split(|byte| *byte == 0).filter(|path| changed.contains(path));
        Refusal::files(Refusal::Dirty, dirty.map(lossy))
    }

    /// Returns those of the listed files whose content in the tree is not that of their older state, if they have one.
    async fn differing(&self, listed: &[Listed]) -> Result<HashSet<Vec<u8>>, GitError> {
        let index = self.index().with_extension("compare");
        remove_file(&index)?;
        let there: Vec<Listed> = listed.iter().filter(|listed| listed.from_mode.is_some()).cloned().collect();
        let input = index_info(self.repo(), &there, false);
        let call = |args: &[&str]| self.call(args).env("GIT_INDEX_FILE", &index);
        call(&["update-index", "-z", "--add", "--index-info"]).input(input).output().await?;
        // Its exit code says whether a file differs.
        call(&["update-index", "-q", "--refresh"]).run().await?;
        let output = call(&["diff-files", "-z", "--name-only", "--no-renames"]).output().await?;
        Ok(output.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// Tells whether the user's index has the listed files as a commit or tree does.
    async fn is_index_at(&self, commit: &str, listed: &[Listed]) -> Result<bool, GitError> {
        let copy = self.index().with_extension("user");
        let index = self.repo().dir.join("index");
        match fs::copy(&index, &copy) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            copied => drop(copied.map_err(GitError::file(&index))?),
        }
        let call = self.call(&["diff-index", "--cached", "-z", "--name-only", "--no-renames", commit, "--"]).env("GIT_INDEX_FILE", &copy);
        let differing = call.output().await?;
        let differing: HashSet<&[u8]> = differing.split(|byte| *byte == 0).collect();
        Ok(!listed.iter().any(|listed| differing.contains(listed.path.as_slice())))
    }

    /// Tells whether a commit is an ancestor of another one, or the same.
    pub(super) async fn is_ancestor(&self, older: &str, newer: &str) -> Result<bool, GitError> {
        let ran = self.call(&["merge-base", "--is-ancestor", older, newer]).run().await?;
        match ran.exit_code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(GitError::Failed { command: "merge-base".to_owned(), why: super::call::complaint(&ran) }),
        }
    }
}

/// Returns files as `update-index --index-info` reads them, in the older state or the newer one. Those that are not there are
/// removed, first: a directory can take the place of a file.
fn index_info(repo: &Repo, listed: &[Listed], is_newer: bool) -> Vec<u8> {
    let side = |listed: &Listed| match is_newer {
        true => listed.to_mode.clone().map(|mode| (mode, listed.to_object.clone())),
        false => listed.from_mode.clone().map(|mode| (mode, listed.from_object.clone())),
    };
    let (there, gone): (Vec<_>, Vec<_>) = listed.iter().map(|listed| (&listed.path, side(listed))).partition(|(_, entry)| entry.is_some());
    let mut info = Vec::new();
    for (path, entry) in gone.into_iter().chain(there) {
        let (mode, object) = entry.unwrap_or_else(|| ("0".to_owned(), repo.zero()));
        for part in [mode.as_bytes(), b" ", object.as_bytes(), b"\t", path, b"\0"] {
            info.extend_from_slice(part);
        }
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::tests::{commit, commit_on, in_repository, scratch};
    use crate::git::{MadeMerge, MergeInput};
    use adjutant_core::merge::MergeMode;

    const NAME: &str = "refs/heads/main";

    fn who() -> Identity {
        Identity { name: "U".to_owned(), email: "u@u".to_owned() }
    }

    /// Checks a commit out on `main`.
    async fn check_out(scratch: &Scratch, commit: &str) {
        let repo = scratch.repo();
        repo.of_refs(&["update-ref", NAME, commit]).output().await.expect("a branch");
        let call = repo.git.call(&repo.top, &["reset", "--quiet", "--hard", commit]);
        call.output().await.expect("a tree");
    }

    async fn head(scratch: &Scratch) -> Head {
        scratch.repo().checked_out().await.expect("it is read").expect("a commit")
    }

    /// Everything of the user's that a refused merge must leave alone.
    async fn state(scratch: &Scratch) -> (Head, Vec<u8>, Vec<(String, Vec<u8>)>) {
        let repo = scratch.repo();
        let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(&repo.top)
            .expect("a tree")
            .flatten()
            .filter(|entry| entry.path().is_file())
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file")))
            .collect();
        files.sort();
        (head(scratch).await, fs::read(repo.dir.join("index")).expect("an index"), files)
    }

    fn input(head: Head, base: &str, snapshot: &str, mode: MergeMode) -> MergeInput {
        MergeInput {
            head,
            base: base.to_owned(),
            is_base_public: true,
            snapshot: snapshot.to_owned(),
            own_head: None,
            mode,
            no_ff: false,
            who: who(),
            message: "the task\n\nAdjutant-Run: r\n".to_owned(),
            merge_message: "Merge run r\n".to_owned(),
            run_name: "r".to_owned(),
        }
    }

    async fn update(scratch: &Scratch, after: &str) -> Update {
        let before = head(scratch).await;
        Update {
            name: "test".to_owned(),
            git_ref: before.branch,
            before: before.commit,
            after: after.to_owned(),
            who: who(),
            reason: "adj merge r".to_owned(),
        }
    }

    async fn look(on: &Scratch, after: &str) -> Result<PreparedUpdate, GitError> {
        let again = scratch(&on.repo().top, "again").await;
        PreparedUpdate::look(again, head(on).await, update(on, after).await).await
    }

    const BASE: &[(&str, &[u8])] = &[("a", b"1\n"), ("b", b"1\n"), ("c", b"1\n")];

    #[test]
    fn merge_modes_make_their_commits() {
        in_repository(async |scratch| {
            let base = commit(scratch, BASE).await;
            let theirs = commit(scratch, &[("a", b"2\n"), ("b", b"1\n"), ("new", b"n\n")]).await;
            check_out(scratch, &base).await;
            let made = async |mode, head| match input(head, &base, &theirs, mode).make(scratch).await.expect("it is made") {
                MadeMerge::Made(made) => made,
                other => panic!("{other:?}"),
            };
            let parents = async |commit: &str| {
                scratch
                    .call(&["rev-list", "--parents", "-1", commit])
                    .line()
                    .await
                    .expect("a commit")
                    .split(' ')
                    .skip(1)
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            let forward = made(MergeMode::Merge, head(scratch).await).await;
            assert_eq!(parents(&forward).await, std::slice::from_ref(&base), "the branch is moved forward");
            let mine = commit_on(scratch, &[&base], &[("a", b"1\n"), ("b", b"mine\n"), ("c", b"1\n")]).await;
            check_out(scratch, &mine).await;
            let joined = made(MergeMode::Merge, head(scratch).await).await;
            assert_eq!(parents(&joined).await[0], mine);
            assert_eq!(parents(&joined).await.len(), 2);
            for mode in [MergeMode::Squash, MergeMode::Rebase] {
                assert_eq!(parents(&made(mode, head(scratch).await).await).await, std::slice::from_ref(&mine));
            }
            let apart = made(MergeMode::Branch, head(scratch).await).await;
            assert_eq!(parents(&apart).await, std::slice::from_ref(&base));
            let nothing = input(head(scratch).await, &base, &base, MergeMode::Merge).make(scratch).await.expect("it is made");
            assert_eq!(nothing, MadeMerge::Nothing);
            let prepared = look(scratch, &joined).await.expect("nothing is in the way");
            assert_eq!(prepared.files(), ["a", "c", "new"]);
            prepared.apply().await.expect("it is applied");
            let (now, _, files) = state(scratch).await;
            assert_eq!((now.commit, now.branch.as_deref()), (joined, Some(NAME)));
            let expected = [("a", "2\n"), ("b", "mine\n"), ("new", "n\n")].map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
            assert_eq!(files, expected);
            let repo = scratch.repo();
            let status = repo.git.call(&repo.top, &["status", "--porcelain"]).line().await.expect("a status");
            assert_eq!(status, "");
            let log = fs::read_to_string(repo.dir.join("logs/HEAD")).unwrap_or_default();
            assert!(log.is_empty() || log.contains("adj merge r"), "{log}");
        });
    }

    #[test]
    fn update_refuses_what_would_be_lost() {
        in_repository(async |scratch| {
            let base = commit(scratch, BASE).await;
            let after = commit_on(scratch, &[&base], &[("a", b"2\n"), ("b", b"1\n"), ("c", b"1\n"), ("new", b"n\n")]).await;
            check_out(scratch, &base).await;
            let top = scratch.repo().top.clone();
            let refused = async || match look(scratch, &after).await {
                Err(GitError::Refused(refusal)) => refusal,
                other => panic!("{other:?}"),
            };
            fs::write(top.join("a"), "mine\n").expect("a file");
            assert_eq!(refused().await, Refusal::Dirty("a".to_owned()));
            scratch.repo().git.call(&top, &["add", "a"]).output().await.expect("it is staged");
            fs::write(top.join("a"), "1\n").expect("a file");
            assert_eq!(refused().await, Refusal::Dirty("a".to_owned()), "the index has it");
            check_out(scratch, &base).await;
            fs::write(top.join("new"), "mine\n").expect("a file");
            assert_eq!(refused().await, Refusal::InTheWay("new".to_owned()));
            fs::remove_file(top.join("new")).expect("it goes");
            fs::write(scratch.repo().dir.join("MERGE_HEAD"), &base).expect("a file");
            assert_eq!(refused().await, Refusal::UnderWay("a merge"));
            fs::remove_file(scratch.repo().dir.join("MERGE_HEAD")).expect("it goes");
            // A change of another file stays.
            fs::write(top.join("b"), "mine\n").expect("a file");
            look(scratch, &after).await.expect("nothing is in the way").apply().await.expect("it is applied");
            assert_eq!(fs::read(top.join("b")).expect("a file"), b"mine\n");
            assert_eq!(fs::read(top.join("a")).expect("a file"), b"2\n");
        });
    }

    #[test]
    fn change_after_the_look_leaves_everything() {
        in_repository(async |scratch| {
            let base = commit(scratch, BASE).await;
            let after = commit_on(scratch, &[&base], &[("a", b"2\n"), ("b", b"2\n"), ("new", b"n\n")]).await;
            check_out(scratch, &base).await;
            let repo = scratch.repo();
            let changes: [(&str, &dyn Fn()); 4] = [
                ("b", &|| fs::write(repo.top.join("b"), "mine\n").expect("a file")),
                ("new", &|| fs::write(repo.top.join("new"), "mine\n").expect("a file")),
                ("index.lock", &|| fs::write(repo.lock(), "").expect("a file")),
                ("the checked-out commit", &|| {
                    let other = format!("{}\n", "0".repeat(40));
                    fs::write(repo.dir.join("refs/heads/main"), other).expect("a ref");
                }),
            ];
            for (what, change) in changes {
                let prepared = look(scratch, &after).await.expect("nothing is in the way");
                change();
                let left = (fs::read(repo.dir.join("index")).expect("an index"), fs::read(repo.top.join("a")).expect("a file"));
                let error = prepared.apply().await.expect_err("it changed").to_string();
                assert!(error.contains(what) || what == "the checked-out commit", "{error}");
                assert_eq!((fs::read(repo.dir.join("index")).expect("an index"), fs::read(repo.top.join("a")).expect("a file")), left);
                assert!(!repo.new_index(&update_named("test")).exists());
                let _ = fs::remove_file(repo.lock());
                let _ = fs::remove_file(repo.top.join("new"));
                check_out(scratch, &base).await;
            }
        });
    }

    fn update_named(name: &str) -> Update {
        Update { name: name.to_owned(), git_ref: None, before: String::new(), after: String::new(), who: who(), reason: String::new() }
    }

    #[test]
    fn interrupted_update_is_finished_or_undone() {
        in_repository(async |scratch| {
            let base = commit(scratch, BASE).await;
            let after = commit_on(scratch, &[&base], &[("a", b"2\n"), ("b/deep", b"2\n"), ("c", b"1\n")]).await;
            let other = commit_on(scratch, &[&base], &[("c", b"other\n")]).await;
            let repo = scratch.repo();
            for step in ["nothing", "index prepared", "locked", "file", "lock removed", "branch moved", "index", "ref"] {
                check_out(scratch, &base).await;
                let before = state(scratch).await;
                let update = update(scratch, &after).await;
                let listed = scratch.list(&base, &after).await.expect("a list");
                let reached = |wanted: &str| ["index prepared", "locked", "file", "index", "ref"].iter().position(|step| *step == wanted);
                let at = reached(match step {
                    "lock removed" | "branch moved" => "file",
                    step => step,
                });
                if at.is_some() {
                    lock(scratch, &update, &listed).await.expect("it is locked");
                }
                if at == Some(0) {
                    fs::remove_file(repo.lock()).expect("it was locked");
                }
                if at == Some(2) {
                    fs::write(repo.top.join("a"), "2\n").expect("a file");
                }
                if at >= Some(3) {
                    replace_files(scratch, &listed, &base, &after).await.expect("files");
                    fs::rename(repo.lock(), repo.dir.join("index")).expect("an index");
                }
                if at >= Some(4) {
                    move_ref(scratch, &update).await.expect("a ref");
                }
                match step {
                    "lock removed" => fs::remove_file(repo.lock()).expect("a lock"),
                    "branch moved" => repo.of_refs(&["update-ref", NAME, &other]).output().await.map(drop).expect("a branch"),
                    _ => {}
                }
                let recovered = recover(scratch, &update).await.expect("it is recovered");
                let is_finished = matches!(step, "locked" | "file" | "index" | "ref");
                assert_eq!(recovered, if is_finished { Recovered::Finished } else { Recovered::Undone }, "{step}");
                assert!(!repo.lock().exists() && !repo.new_index(&update).exists(), "{step}");
                let now = state(scratch).await;
                if is_finished {
                    assert_eq!(now.0.commit, after, "{step}");
                    assert_eq!(fs::read(repo.top.join("b/deep")).expect("a file"), b"2\n", "{step}");
                    let status = repo.git.call(&repo.top, &["status", "--porcelain"]).line().await.expect("a status");
                    assert_eq!(status, "", "{step}");
                } else {
                    assert_eq!((now.1, now.2), (before.1, before.2), "{step}");
                }
                assert_eq!(recover(scratch, &update).await.expect("again"), recovered, "{step}");
            }
        });
    }
}
