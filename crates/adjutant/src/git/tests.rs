//! What the tests of this module share.

use super::snapshot::read_tree;
use super::{Git, Repo, Scratch};
use std::path::Path;

/// Runs a test in a new repository, whose path has characters that lists of paths must quote.
pub(super) fn in_repository(test: impl AsyncFnOnce(&Scratch)) {
    let dir = tempfile::tempdir().expect("a directory");
    let (work, home) = (dir.path().join("wo:rk \"x\""), dir.path().join("home"));
    for made in [&work, &home] {
        std::fs::create_dir(made).expect("a directory");
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(async {
        git(&work).call(&work, &["init", "--quiet", "--initial-branch=main"]).output().await.expect("a repository");
        test(&scratch(&work, "scratch").await).await;
    });
}

pub(super) fn git(work: &Path) -> Git {
    let path = ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned());
    Git::find([(&path.0, &path.1)], work).expect("git is installed")
}

/// Makes another scratch directory for the repository.
pub(super) async fn scratch(work: &Path, name: &str) -> Scratch {
    let home = work.parent().expect("a parent").join("home");
    let repo = Repo::find(&git(work), work).await.expect("a repository");
    Scratch::new(repo, &home, &home.join(name)).await.expect("a scratch directory")
}

/// Makes a commit of these files.
pub(super) async fn commit(scratch: &Scratch, files: &[(&str, &[u8])]) -> String {
    commit_on(scratch, &[], files).await
}

/// The same, with parents.
pub(super) async fn commit_on(scratch: &Scratch, parents: &[&str], files: &[(&str, &[u8])]) -> String {
    scratch.reset_index(None).await.expect("an empty index");
    let mut entries = Vec::new();
    for (path, content) in files {
        let oid = scratch.call(&["hash-object", "-w", "--stdin"]).input(content.to_vec()).line().await.expect("a blob");
        entries.extend_from_slice(format!("100644 {oid}\t{path}\0").as_bytes());
    }
    scratch.call(&["update-index", "-z", "--add", "--index-info"]).input(entries).output().await.expect("an index");
    let tree = scratch.call(&["write-tree"]).line().await.expect("a tree");
    scratch.wrap_tree(&tree, parents).await.expect("a commit")
}

#[test]
fn many_untracked_files_hide_no_modified_file() {
    in_repository(async |scratch| {
        commit(scratch, &[("z", b"old\n")]).await;
        std::fs::write(scratch.tree().join("z"), "new\n").expect("a file");
        for n in 0..300 {
            std::fs::write(scratch.tree().join(format!("{n:0>250}")), "").expect("a file");
        }
        let read = read_tree(scratch).await.expect("it is read");
        assert_eq!(read.left_out, [(Vec::<u8>::new(), "more files than are listed".to_owned())]);
        let kept = scratch.call(&["cat-file", "blob", ":z"]).line().await.expect("a file");
        assert_eq!(kept, "new");
    });
}
