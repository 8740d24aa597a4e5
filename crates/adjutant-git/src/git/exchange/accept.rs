//! Adds what a run has made on a runner to the user's repository: objects, and refs of this run.
//!
//! ```text
//!  pack ─> <scratch>/incoming (checked, every object is complete) ─> the objects of the new refs only ─> repository ─> refs, at once
//! ```
//! The runner is not trusted: it can name only refs of the run, no snapshot is replaced, and no
//! commit that a ref has named is lost.

use super::pack::{PACK_MAX, commits_among, pack};
use super::{RunRefs, carried_refs, is_object_id};
use crate::failpoint::failpoint;
use crate::git::paths::quote_path;
use crate::git::{GitError, Scratch};
use adjutant_core::RunId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};

/// Maximum number of refs of a run.
const REFS_MAX: usize = 20_000;
/// Maximum number of a snapshot.
const SNAPSHOT_MAX: u32 = 1_000_000;
/// Maximum length of the name of a ref, in bytes.
const NAME_BYTES_MAX: usize = 512;

/// How the work of a runner is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptAs {
    /// Under the names of its refs: it is the newest work of the run.
    Refs,
    /// Each commit under its own name: the run has newer work.
    Commits,
}

/// Adds the refs that a runner has for a run, with the objects in `work`, which is read from its
/// current position. `None`: no objects are needed. A branch or stash that the runner does not have
/// any more is kept under its commit. May be repeated.
///
/// # Errors
/// The refs or the objects are not those of a run, or git failed. The refs of the repository are
/// untouched then.
pub async fn accept_work(
    scratch: &Scratch,
    run: RunId,
    refs: &RunRefs,
    kept: KeptAs,
    work: Option<File>,
    bytes_max: u64,
) -> Result<(), GitError> {
    let known = carried_refs(scratch.repo(), run).await?;
    let changes = match kept {
        KeptAs::Refs => changed_refs(&known, refs)?,
        KeptAs::Commits => new_commits(&known, refs)?,
    };
    if changes.is_empty() {
        return Ok(());
    }
    let have: BTreeSet<&String> = known.values().collect();
    let new: BTreeSet<String> = changes
        .values()
        .flatten()
        .filter(|commit| !have.contains(commit))
        .cloned()
        .collect();
    let new: Vec<String> = new.into_iter().collect();
    let have: Vec<String> = have.into_iter().cloned().collect();
    if !new.is_empty() {
        store_objects(scratch, &new, &have, work, bytes_max).await?;
    }
    let name_of = |name: &str| format!("refs/adjutant/{run}/{name}");
    let mut input = BTreeMap::new();
    for (name, commit) in &changes {
        input.insert(name_of(name), commit.clone());
        let Some(before) = known.get(name) else {
            continue;
        };
        let is_kept = match commit {
            Some(commit) => scratch.is_ancestor(before, commit).await?,
            None => false,
        };
        // Without a ref, git's garbage collection would remove the work that a branch no longer
        // contains.
        if !is_kept {
            input.insert(name_of(&format!("reflog/{before}")), Some(before.clone()));
        }
    }
    let names: Vec<String> = input.keys().cloned().collect();
    let line = |(name, commit): (String, Option<String>)| match commit {
        Some(commit) => format!("update {name} {commit}\n"),
        None => format!("delete {name}\n"),
    };
    let input: String = input.into_iter().map(line).collect();
    failpoint!("bundle.before_refs");
    scratch
        .repo()
        .of_refs(&["update-ref", "--no-deref", "--stdin"])
        .input(input.into_bytes())
        .output()
        .await
        .map_err(of_disk)?;
    scratch.repo().sync_refs(names.iter().map(String::as_str))?;
    failpoint!("bundle.after_refs");
    Ok(())
}

/// Returns the refs to change. `None`: to delete.
fn changed_refs(
    known: &RunRefs,
    theirs: &RunRefs,
) -> Result<BTreeMap<String, Option<String>>, GitError> {
    if theirs.len() > REFS_MAX {
        return Err(GitError::NotAccepted(format!(
            "it has {} refs, more than {REFS_MAX}",
            theirs.len()
        )));
    }
    let mut changes = BTreeMap::new();
    for (name, commit) in theirs {
        let kind = checked_kind(name, commit)?;
        match (kind, known.get(name)) {
            (_, Some(before)) if before == commit => {}
            (RefKind::Fixed, _) => {
                return Err(GitError::NotAccepted(format!("{name} is the hub's")));
            }
            (RefKind::Snapshot, Some(_)) => {
                return Err(GitError::NotAccepted(format!(
                    "snapshot {name} is another one here"
                )));
            }
            (RefKind::Reflog, _) if name.strip_prefix("reflog/") != Some(commit) => {
                return Err(GitError::NotAccepted(format!(
                    "{name} names another commit"
                )));
            }
            _ => drop(changes.insert(name.clone(), Some(commit.clone()))),
        }
    }
    let is_gone =
        |name: &&String| kind_of(name) == Some(RefKind::Tip) && !theirs.contains_key(*name);
    changes.extend(
        known
            .keys()
            .filter(is_gone)
            .map(|name| (name.clone(), None)),
    );
    Ok(changes)
}

/// Returns a ref for each commit that no ref names yet.
fn new_commits(
    known: &RunRefs,
    theirs: &RunRefs,
) -> Result<BTreeMap<String, Option<String>>, GitError> {
    let named: BTreeSet<&String> = known.values().collect();
    let mut all = known.clone();
    for (name, commit) in theirs {
        if checked_kind(name, commit)? != RefKind::Fixed && !named.contains(commit) {
            all.insert(format!("reflog/{commit}"), commit.clone());
        }
    }
    changed_refs(known, &all)
}

fn checked_kind(name: &str, commit: &str) -> Result<RefKind, GitError> {
    let kind = kind_of(name)
        .ok_or_else(|| GitError::NotAccepted(format!("{name:?} is not the name of a run's ref")))?;
    if is_object_id(commit) {
        Ok(kind)
    } else {
        Err(GitError::NotAccepted(format!("{name} names no commit")))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefKind {
    /// Only the hub writes it.
    Fixed,
    Snapshot,
    /// A branch, the checked-out commit or the stash.
    Tip,
    Reflog,
}

fn kind_of(name: &str) -> Option<RefKind> {
    if name.len() > NAME_BYTES_MAX || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return None;
    }
    match name {
        "base" | "changes" => Some(RefKind::Fixed),
        "head" | "stash" => Some(RefKind::Tip),
        _ => match name.split_once('/') {
            // Adjutant encodes the slashes of a branch (`a%2Fb`), so a plain one comes from
            // elsewhere.
            Some(("heads", branch)) if !branch.is_empty() && !branch.contains('/') => {
                Some(RefKind::Tip)
            }
            Some(("reflog", commit)) if is_object_id(commit) => Some(RefKind::Reflog),
            Some(_) => None,
            None => name
                .parse()
                .ok()
                // `01` and `+1` would be further names of the same snapshot.
                .filter(|n: &u32| (1..=SNAPSHOT_MAX).contains(n) && n.to_string() == name)
                .map(|_| RefKind::Snapshot),
        },
    }
}

/// Checks the objects of new commits apart from the repository, then adds those that the commits
/// need.
async fn store_objects(
    scratch: &Scratch,
    new: &[String],
    have: &[String],
    work: Option<File>,
    bytes_max: u64,
) -> Result<(), GitError> {
    let incoming = scratch.dir().join("incoming");
    crate::files::remove_dir(&incoming).map_err(GitError::file(&incoming))?;
    let objects = incoming.join("objects");
    fs::create_dir_all(objects.join("pack")).map_err(GitError::file(&objects))?;
    let theirs = scratch.repo().common.join("objects");
    let apart = |args: &[&str]| {
        let call = scratch
            .tree_less_call(args, true)
            .env("GIT_OBJECT_DIRECTORY", &objects);
        call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quote_path(&theirs))
    };
    if let Some(work) = work {
        // `--strict` refuses trees that are dangerous to check out, such as one with a file `.git`.
        // A pack can also have objects that no new ref needs, which must not get into the
        // repository.
        let read = apart(&["index-pack", "--stdin", "--fix-thin", "--strict"])
            .input_file(work)
            .limit(PACK_MAX)
            .output()
            .await;
        read.map_err(|error| refused(of_disk(error)))?;
    }
    let found = commits_among(&apart, new).await?;
    if let Some(missing) = new.iter().find(|commit| !found.contains(commit)) {
        return Err(GitError::NotAccepted(format!(
            "the commit {missing} is missing"
        )));
    }
    let path = incoming.join("work.pack");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(GitError::file(&path))?;
    let to = file.try_clone().map_err(GitError::file(&path))?;
    // This also fails if an object is missing.
    if pack(apart, new, have, None, to, bytes_max)
        .await
        .map_err(|error| refused(of_disk(error)))?
    {
        file.seek(SeekFrom::Start(0))
            .map_err(GitError::file(&path))?;
        // The objects were checked above.
        let stored = scratch
            .tree_less_call(&["index-pack", "--stdin"], true)
            .input_file(file)
            .limit(PACK_MAX)
            .output()
            .await;
        stored.map_err(of_disk)?;
    }
    crate::files::remove_dir(&incoming).map_err(GitError::file(&incoming))
}

/// Tells a full disk, after which the same call can succeed, from other failures.
fn of_disk(error: GitError) -> GitError {
    match error {
        GitError::Failed { command, why } if why.contains("No space left on device") => {
            GitError::File {
                path: format!("git {command}").into(),
                error: std::io::ErrorKind::StorageFull.into(),
            }
        }
        error => error,
    }
}

fn refused(error: GitError) -> GitError {
    match error {
        GitError::Failed { command, why } => GitError::NotAccepted(format!("git {command}: {why}")),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::exchange::{read_pack, write_pack};
    use crate::git::tests::{commit_on, in_repository, scratch};
    use std::os::unix::ffi::OsStrExt;

    const BYTES_MAX: u64 = 1 << 20;

    fn run() -> RunId {
        RunId::new(adjutant_core::Time(1), [1; 10])
    }

    fn file() -> File {
        tempfile::tempfile().expect("a file")
    }

    fn rewound(file: &File) -> Option<File> {
        let mut file = file.try_clone().expect("the same file");
        file.seek(SeekFrom::Start(0)).expect("a start");
        (file.metadata().expect("its size").len() > 0).then_some(file)
    }

    async fn all_refs(scratch: &Scratch) -> String {
        let listed = scratch
            .repo()
            .of_refs(&["for-each-ref", "--format=%(refname) %(objectname)"])
            .output()
            .await
            .expect("a list");
        String::from_utf8(listed).expect("text")
    }

    fn refs(all: &[(&str, &str)]) -> RunRefs {
        all.iter()
            .map(|(name, commit)| ((*name).to_owned(), (*commit).to_owned()))
            .collect()
    }

    #[test]
    fn work_of_another_repository_becomes_refs_of_its_run() {
        in_repository(async |here| {
            let base = commit_on(here, &[], &[("a", b"old\n"), ("same", b"same\n")]).await;
            crate::git::pin_base(here.repo(), run(), &base, None)
                .await
                .expect("pinned");
            // The other repository has the base only.
            let work = here.tree().parent().expect("a parent").join("there");
            std::fs::create_dir(&work).expect("a directory");
            let git = crate::git::tests::git(&work);
            git.call(&work, &["init", "--quiet"])
                .output()
                .await
                .expect("a repository");
            let there = scratch(&work, "there-scratch").await;
            let sent = file();
            write_pack(
                here,
                std::slice::from_ref(&base),
                &[],
                sent.try_clone().expect("a file"),
                BYTES_MAX,
            )
            .await
            .expect("a pack");
            read_pack(&there, rewound(&sent).expect("not empty"))
                .await
                .expect("it is read");
            let one = commit_on(&there, &[&base], &[("a", b"new\n"), ("same", b"same\n")]).await;
            let made = file();
            write_pack(
                &there,
                std::slice::from_ref(&one),
                std::slice::from_ref(&base),
                made.try_clone().expect("a file"),
                BYTES_MAX,
            )
            .await
            .expect("a pack");
            let before = all_refs(here).await;
            let theirs = refs(&[
                ("base", &base),
                ("1", &one),
                ("head", &one),
                ("heads/a%2Fb", &one),
            ]);
            assert!(
                accept_work(here, run(), &theirs, KeptAs::Refs, None, BYTES_MAX)
                    .await
                    .is_err(),
                "the objects are missing"
            );
            assert_eq!(all_refs(here).await, before);
            accept_work(
                here,
                run(),
                &theirs,
                KeptAs::Refs,
                rewound(&made),
                BYTES_MAX,
            )
            .await
            .expect("accepted");
            accept_work(
                here,
                run(),
                &theirs,
                KeptAs::Refs,
                rewound(&made),
                BYTES_MAX,
            )
            .await
            .expect("a repetition changes nothing");
            assert_eq!(
                carried_refs(here.repo(), run()).await.expect("refs"),
                theirs
            );
            assert_eq!(
                here.file_of(&one, "a").await.expect("read").as_deref(),
                Some("new\n")
            );
            // A branch that is gone leaves its commit; a snapshot and the base stay what they are.
            accept_work(
                here,
                run(),
                &refs(&[("1", &one)]),
                KeptAs::Refs,
                None,
                BYTES_MAX,
            )
            .await
            .expect("accepted");
            let left = refs(&[
                ("base", &base),
                ("1", &one),
                (&format!("reflog/{one}"), &one),
            ]);
            assert_eq!(carried_refs(here.repo(), run()).await.expect("refs"), left);
            // What is late is kept under its commit, and replaces nothing.
            accept_work(
                here,
                run(),
                &refs(&[("1", &base), ("2", &one), ("head", &one)]),
                KeptAs::Commits,
                None,
                BYTES_MAX,
            )
            .await
            .expect("accepted");
            assert_eq!(carried_refs(here.repo(), run()).await.expect("refs"), left);
            let late = commit_on(
                &there,
                &[&base],
                &[(
                    "a", b"late
",
                )],
            )
            .await;
            let made = file();
            write_pack(
                &there,
                std::slice::from_ref(&late),
                std::slice::from_ref(&base),
                made.try_clone().expect("a file"),
                BYTES_MAX,
            )
            .await
            .expect("a pack");
            let theirs = refs(&[("base", &one), ("1", &late), ("head", &late)]);
            accept_work(
                here,
                run(),
                &theirs,
                KeptAs::Commits,
                rewound(&made),
                BYTES_MAX,
            )
            .await
            .expect("accepted");
            let mut left = left;
            left.insert(format!("reflog/{late}"), late);
            assert_eq!(carried_refs(here.repo(), run()).await.expect("refs"), left);
            for wrong in [
                ("1", base.as_str()),
                ("base", &one),
                ("../../heads/main", &one),
                ("x/../../../heads/main", &one),
                ("2\n", &one),
            ] {
                let error =
                    accept_work(here, run(), &refs(&[wrong]), KeptAs::Refs, None, BYTES_MAX)
                        .await
                        .expect_err(wrong.0);
                assert!(matches!(error, GitError::NotAccepted(_)), "{error}");
            }
            for wrong in [
                ("../../heads/main", one.as_str()),
                ("2", "main"),
                ("3", &"0".repeat(40)),
            ] {
                let error = accept_work(
                    here,
                    run(),
                    &refs(&[wrong]),
                    KeptAs::Commits,
                    None,
                    BYTES_MAX,
                )
                .await
                .expect_err(wrong.0);
                assert!(matches!(error, GitError::NotAccepted(_)), "{error}");
            }
            assert_eq!(carried_refs(here.repo(), run()).await.expect("refs"), left);
            assert!(
                all_refs(here)
                    .await
                    .lines()
                    .all(|line| line.starts_with(&format!("refs/adjutant/{}/", run())))
            );
        });
    }

    #[test]
    fn damaged_or_dangerous_objects_are_not_stored() {
        in_repository(async |here| {
            let base = commit_on(here, &[], &[("a", b"old\n")]).await;
            crate::git::pin_base(here.repo(), run(), &base, None)
                .await
                .expect("pinned");
            let work = here.tree().parent().expect("a parent").join("there");
            std::fs::create_dir(&work).expect("a directory");
            crate::git::tests::git(&work)
                .call(&work, &["init", "--quiet"])
                .output()
                .await
                .expect("a repository");
            let there = scratch(&work, "there-scratch").await;
            // A tree whose files would be written into the git directory.
            let blob = there
                .call(&["hash-object", "-w", "--stdin"])
                .input(b"bad".to_vec())
                .line()
                .await
                .expect("a blob");
            let raw: Vec<u8> = (0..blob.len() / 2)
                .map(|at| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).expect("hex"))
                .collect();
            let mut tree = b"100644 .git\0".to_vec();
            tree.extend_from_slice(&raw);
            let tree = there
                .call(&["hash-object", "-t", "tree", "-w", "--literally", "--stdin"])
                .input(tree)
                .line()
                .await
                .expect("a tree");
            let bad = there.wrap_tree(&tree, &[]).await.expect("a commit");
            let sent = file();
            write_pack(
                &there,
                std::slice::from_ref(&bad),
                &[],
                sent.try_clone().expect("a file"),
                BYTES_MAX,
            )
            .await
            .expect("a pack");
            let error = accept_work(
                here,
                run(),
                &refs(&[("1", &bad)]),
                KeptAs::Refs,
                rewound(&sent),
                BYTES_MAX,
            )
            .await
            .expect_err("refused");
            assert!(error.to_string().contains("hasDotgit"), "{error}");
            let mut noise = file();
            std::io::Write::write_all(
                &mut noise,
                std::ffi::OsStr::new("PACK of nothing").as_bytes(),
            )
            .expect("written");
            accept_work(
                here,
                run(),
                &refs(&[("1", &bad)]),
                KeptAs::Refs,
                rewound(&noise),
                BYTES_MAX,
            )
            .await
            .expect_err("refused");
            let found = commits_among(&|args: &[&str]| here.tree_less_call(args, true), &[bad])
                .await
                .expect("asked");
            assert!(found.is_empty(), "no object of it is in the repository");
            assert_eq!(
                carried_refs(here.repo(), run()).await.expect("refs"),
                refs(&[("base", &base)])
            );
        });
    }
}
