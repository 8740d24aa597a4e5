//! Helpers for the tests of this module.

use super::snapshot::{read_repositories, read_tree};
use super::{Git, NewSnapshot, Repo, Scratch, TakenSnapshot, remove_all, take};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, RunId, Time};
use std::path::Path;

/// Runs a test in a new repository. Its path has characters that must be quoted in lists of paths.
pub(super) fn in_repository(test: impl AsyncFnOnce(&Scratch)) {
    let dir = tempfile::tempdir().expect("a directory");
    let (work, home) = (dir.path().join("wo:rk \"x\""), dir.path().join("home"));
    for made in [&work, &home] {
        std::fs::create_dir(made).expect("a directory");
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(async {
            git(&work)
                .call(&work, &["init", "--quiet", "--initial-branch=main"])
                .output()
                .await
                .expect("a repository");
            test(&scratch(&work, "scratch").await).await;
        });
}

pub(super) fn git(work: &Path) -> Git {
    let path = ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
    Git::find([(&path.0, &path.1)], work).expect("git is installed")
}

/// Creates another scratch directory for the repository.
pub(super) async fn scratch(work: &Path, name: &str) -> Scratch {
    let home = work.parent().expect("a parent").join("home");
    let repo = Repo::find(&git(work), work).await.expect("a repository");
    Scratch::new(repo, &home, &home.join(name))
        .await
        .expect("a scratch directory")
}

/// Creates a commit of these files.
pub(super) async fn commit(scratch: &Scratch, files: &[(&str, &[u8])]) -> String {
    commit_on(scratch, &[], files).await
}

/// Creates a commit of these files with parents.
pub(super) async fn commit_on(
    scratch: &Scratch,
    parents: &[&str],
    files: &[(&str, &[u8])],
) -> String {
    scratch.reset_index(None).await.expect("an empty index");
    let mut entries = Vec::new();
    for (path, content) in files {
        let oid = scratch
            .call(&["hash-object", "-w", "--stdin"])
            .input(content.to_vec())
            .line()
            .await
            .expect("a blob");
        entries.extend_from_slice(format!("100644 {oid}\t{path}\0").as_bytes());
    }
    scratch
        .call(&["update-index", "-z", "--add", "--index-info"])
        .input(entries)
        .output()
        .await
        .expect("an index");
    let tree = scratch.call(&["write-tree"]).line().await.expect("a tree");
    scratch.wrap_tree(&tree, parents).await.expect("a commit")
}

#[test]
fn modified_file_is_read_despite_many_untracked_files() {
    in_repository(async |scratch| {
        commit(scratch, &[("z", b"old\n")]).await;
        std::fs::write(scratch.tree().join("z"), "new\n").expect("a file");
        for n in 0..300 {
            std::fs::write(scratch.tree().join(format!("{n:0>250}")), "").expect("a file");
        }
        let read = read_tree(scratch, None).await.expect("it is read");
        assert_eq!(
            read.left_out,
            [(Vec::<u8>::new(), "more files than are listed".to_owned())]
        );
        let kept = scratch
            .call(&["cat-file", "blob", ":z"])
            .line()
            .await
            .expect("a file");
        assert_eq!(kept, "new");
    });
}

fn run() -> RunId {
    RunId::new(Time(1), [7; 10])
}

async fn taken(scratch: &Scratch) -> TakenSnapshot {
    let new = NewSnapshot {
        run: run(),
        run_name: "r".to_owned(),
        attempt: AttemptNo(1),
        cause: SnapshotCause::Turn,
        at: Time(1),
    };
    take(scratch, &new).await.expect("it is taken")
}

#[test]
fn index_is_rebuilt_when_its_snapshot_is_missing() {
    in_repository(async |scratch| {
        let write = |name: &str, text: &str| {
            std::fs::write(scratch.tree().join(name), text).expect("a file")
        };
        write("a", "1\n");
        let first = taken(scratch).await;
        write("b", "2\n");
        let second = taken(scratch).await;
        assert!(second.is_new && second.snapshot.tree != first.snapshot.tree);
        let repo = scratch.repo();
        remove_all(repo, run()).await.expect("they are removed");
        repo.git
            .call(&repo.top, &["prune", "--expire=now"])
            .output()
            .await
            .expect("objects are removed");
        let third = taken(scratch).await;
        assert_eq!(
            (third.snapshot.n, &third.snapshot.tree),
            (1, &second.snapshot.tree)
        );
        for name in ["a", "b"] {
            scratch
                .call(&[
                    "cat-file",
                    "-e",
                    &format!("{}:{name}", third.snapshot.commit),
                ])
                .output()
                .await
                .expect("it is kept");
        }
    });
}

#[test]
fn scratch_is_current_until_the_repository_changes() {
    in_repository(async |scratch| {
        let (git, top) = (git(scratch.tree()), scratch.tree().to_owned());
        std::fs::write(top.join("a"), "1\n").expect("a file");
        taken(scratch).await;
        let is_current =
            async || scratch.is_current(&Repo::find(&git, &top).await.expect("a repository"), None);
        assert!(is_current().await);
        std::fs::write(top.join("a"), "2\n").expect("a file");
        assert!(is_current().await, "files are read each time");
        git.call(&top, &["config", "core.autocrlf", "input"])
            .output()
            .await
            .expect("it is set");
        assert!(!is_current().await, "its settings have changed");
        git.call(&top, &["config", "--unset", "core.autocrlf"])
            .output()
            .await
            .expect("it is unset");
        assert!(is_current().await);
        git.call(&top, &["add", "a"])
            .output()
            .await
            .expect("it is staged");
        assert!(!is_current().await, "the user's index has changed");
    });
}

#[test]
fn nested_repository_that_blocks_git_is_left_out() {
    in_repository(async |scratch| {
        let inner = scratch.tree().join("inner");
        for dir in ["objects", "refs/heads"] {
            std::fs::create_dir_all(inner.join(".git").join(dir)).expect("a directory");
        }
        std::fs::write(inner.join(".git/HEAD"), "ref: refs/heads/x\n").expect("a file");
        let entry = format!("160000 {}\tinner\0", "1".repeat(40));
        scratch
            .call(&["update-index", "-z", "--add", "--index-info"])
            .input(entry.into_bytes())
            .output()
            .await
            .expect("an index");
        let read = async || {
            read_repositories(scratch, &[b"inner".to_vec()])
                .await
                .expect("it ends")
        };
        assert_eq!(read().await, []);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            inner.join(".git/config"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("a FIFO");
        assert_eq!(
            read().await,
            [(
                b"inner".to_vec(),
                "a nested repository that git took too long to read".to_owned()
            )]
        );
        let listed = scratch
            .call(&["ls-files", "--stage"])
            .line()
            .await
            .expect("an index");
        assert!(listed.starts_with("160000 1111"), "{listed}");
    });
}
