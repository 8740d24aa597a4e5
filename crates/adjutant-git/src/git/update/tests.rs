//! Updates, and their recovery.

use super::lock::{lock, move_ref};
use super::recovery::replace_files;
use super::{PreparedUpdate, RecoveryOutcome, Update, recover};
use crate::git::refusal::MergeRefusal;
use crate::git::tests::{commit, commit_on, in_repository, scratch};
use crate::git::{BuiltMerge, GitError, Head, Identity, MergeInput, Scratch};
use adjutant_core::merge::MergeMode;
use std::fs;

const NAME: &str = "refs/heads/main";

fn who() -> Identity {
    Identity {
        name: "U".to_owned(),
        email: "u@u".to_owned(),
    }
}

/// Checks a commit out on `main`.
async fn check_out(scratch: &Scratch, commit: &str) {
    let repo = scratch.repo();
    repo.of_refs(&["update-ref", NAME, commit])
        .output()
        .await
        .expect("a branch");
    let call = repo
        .git
        .call(&repo.top, &["reset", "--quiet", "--hard", commit]);
    call.output().await.expect("a tree");
}

async fn head(scratch: &Scratch) -> Head {
    scratch
        .repo()
        .checked_out()
        .await
        .expect("it is read")
        .expect("a commit")
}

/// Returns the state of the user's repository that a refused merge must not change.
async fn state(scratch: &Scratch) -> (Head, Vec<u8>, Vec<(String, Vec<u8>)>) {
    let repo = scratch.repo();
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(&repo.top)
        .expect("a tree")
        .flatten()
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                fs::read(entry.path()).expect("a file"),
            )
        })
        .collect();
    files.sort();
    (
        head(scratch).await,
        fs::read(repo.dir.join("index")).expect("an index"),
        files,
    )
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

async fn prepare(on: &Scratch, after: &str) -> Result<PreparedUpdate, GitError> {
    let again = scratch(&on.repo().top, "again").await;
    PreparedUpdate::prepare(again, head(on).await, update(on, after).await).await
}

const BASE: &[(&str, &[u8])] = &[("a", b"1\n"), ("b", b"1\n"), ("c", b"1\n")];

#[test]
fn merge_modes_make_their_commits() {
    in_repository(async |scratch| {
        let base = commit(scratch, BASE).await;
        let theirs = commit(scratch, &[("a", b"2\n"), ("b", b"1\n"), ("new", b"n\n")]).await;
        check_out(scratch, &base).await;
        let made = async |mode, head| match input(head, &base, &theirs, mode)
            .make(scratch)
            .await
            .expect("it is made")
        {
            BuiltMerge::Commit(made) => made,
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
        assert_eq!(
            parents(&forward).await,
            std::slice::from_ref(&base),
            "the branch is moved forward"
        );
        let mine = commit_on(
            scratch,
            &[&base],
            &[("a", b"1\n"), ("b", b"mine\n"), ("c", b"1\n")],
        )
        .await;
        check_out(scratch, &mine).await;
        let joined = made(MergeMode::Merge, head(scratch).await).await;
        assert_eq!(parents(&joined).await[0], mine);
        assert_eq!(parents(&joined).await.len(), 2);
        for mode in [MergeMode::Squash, MergeMode::Rebase] {
            assert_eq!(
                parents(&made(mode, head(scratch).await).await).await,
                std::slice::from_ref(&mine)
            );
        }
        let apart = made(MergeMode::Branch, head(scratch).await).await;
        assert_eq!(parents(&apart).await, std::slice::from_ref(&base));
        let nothing = input(head(scratch).await, &base, &base, MergeMode::Merge)
            .make(scratch)
            .await
            .expect("it is made");
        assert_eq!(nothing, BuiltMerge::Nothing);
        let prepared = prepare(scratch, &joined)
            .await
            .expect("nothing is in the way");
        assert_eq!(prepared.files(), ["a", "c", "new"]);
        prepared.apply().await.expect("it is applied");
        let (now, _, files) = state(scratch).await;
        assert_eq!((now.commit, now.branch.as_deref()), (joined, Some(NAME)));
        let expected = [("a", "2\n"), ("b", "mine\n"), ("new", "n\n")]
            .map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
        assert_eq!(files, expected);
        let repo = scratch.repo();
        let status = repo
            .git
            .call(&repo.top, &["status", "--porcelain"])
            .line()
            .await
            .expect("a status");
        assert_eq!(status, "");
        let log = fs::read_to_string(repo.dir.join("logs/HEAD")).unwrap_or_default();
        assert!(log.is_empty() || log.contains("adj merge r"), "{log}");
    });
}

#[test]
fn update_refuses_to_lose_changes() {
    in_repository(async |scratch| {
        let base = commit(scratch, BASE).await;
        let after = commit_on(
            scratch,
            &[&base],
            &[("a", b"2\n"), ("b", b"1\n"), ("c", b"1\n"), ("new", b"n\n")],
        )
        .await;
        check_out(scratch, &base).await;
        let top = scratch.repo().top.clone();
        let refused = async || match prepare(scratch, &after).await {
            Err(GitError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        };
        fs::write(top.join("a"), "mine\n").expect("a file");
        assert_eq!(refused().await, MergeRefusal::Dirty("a".to_owned()));
        scratch
            .repo()
            .git
            .call(&top, &["add", "a"])
            .output()
            .await
            .expect("it is staged");
        fs::write(top.join("a"), "1\n").expect("a file");
        assert_eq!(
            refused().await,
            MergeRefusal::Dirty("a".to_owned()),
            "the index has it"
        );
        check_out(scratch, &base).await;
        fs::write(top.join("new"), "mine\n").expect("a file");
        assert_eq!(refused().await, MergeRefusal::InTheWay("new".to_owned()));
        fs::remove_file(top.join("new")).expect("it goes");
        fs::write(scratch.repo().dir.join("MERGE_HEAD"), &base).expect("a file");
        assert_eq!(refused().await, MergeRefusal::UnderWay("a merge"));
        fs::remove_file(scratch.repo().dir.join("MERGE_HEAD")).expect("it goes");
        // A change of another file stays.
        fs::write(top.join("b"), "mine\n").expect("a file");
        prepare(scratch, &after)
            .await
            .expect("nothing is in the way")
            .apply()
            .await
            .expect("it is applied");
        assert_eq!(fs::read(top.join("b")).expect("a file"), b"mine\n");
        assert_eq!(fs::read(top.join("a")).expect("a file"), b"2\n");
    });
}

#[test]
fn change_after_the_preparation_is_refused() {
    in_repository(async |scratch| {
        let base = commit(scratch, BASE).await;
        let after = commit_on(
            scratch,
            &[&base],
            &[("a", b"2\n"), ("b", b"2\n"), ("new", b"n\n")],
        )
        .await;
        check_out(scratch, &base).await;
        let repo = scratch.repo();
        let changes: [(&str, &dyn Fn()); 4] = [
            ("b", &|| {
                fs::write(repo.top.join("b"), "mine\n").expect("a file")
            }),
            ("new", &|| {
                fs::write(repo.top.join("new"), "mine\n").expect("a file")
            }),
            ("index.lock", &|| {
                fs::write(repo.lock(), "").expect("a file")
            }),
            ("the checked-out commit", &|| {
                let other = format!("{}\n", "0".repeat(40));
                fs::write(repo.dir.join("refs/heads/main"), other).expect("a ref");
            }),
        ];
        for (what, change) in changes {
            let prepared = prepare(scratch, &after)
                .await
                .expect("nothing is in the way");
            change();
            let left = (
                fs::read(repo.dir.join("index")).expect("an index"),
                fs::read(repo.top.join("a")).expect("a file"),
            );
            let error = prepared.apply().await.expect_err("it changed").to_string();
            assert!(
                error.contains(what) || what == "the checked-out commit",
                "{error}"
            );
            assert_eq!(
                (
                    fs::read(repo.dir.join("index")).expect("an index"),
                    fs::read(repo.top.join("a")).expect("a file")
                ),
                left
            );
            assert!(!repo.new_index(&update_named("test")).exists());
            let _ = fs::remove_file(repo.lock());
            let _ = fs::remove_file(repo.top.join("new"));
            check_out(scratch, &base).await;
        }
    });
}

fn update_named(name: &str) -> Update {
    Update {
        name: name.to_owned(),
        git_ref: None,
        before: String::new(),
        after: String::new(),
        who: who(),
        reason: String::new(),
    }
}

#[test]
fn interrupted_update_is_finished_or_rolled_back() {
    in_repository(async |scratch| {
        let base = commit(scratch, BASE).await;
        let after = commit_on(
            scratch,
            &[&base],
            &[("a", b"2\n"), ("b/deep", b"2\n"), ("c", b"1\n")],
        )
        .await;
        let other = commit_on(scratch, &[&base], &[("c", b"other\n")]).await;
        let repo = scratch.repo();
        for step in [
            "nothing",
            "index prepared",
            "locked",
            "file",
            "lock removed",
            "branch moved",
            "ref",
            "lock removed after ref",
            "index",
        ] {
            check_out(scratch, &base).await;
            let before = state(scratch).await;
            let update = update(scratch, &after).await;
            let listed = scratch.list(&base, &after).await.expect("a list");
            let reached = |wanted: &str| {
                ["index prepared", "locked", "file", "ref", "index"]
                    .iter()
                    .position(|step| *step == wanted)
            };
            let at = reached(match step {
                "lock removed" | "branch moved" => "file",
                "lock removed after ref" => "ref",
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
                replace_files(scratch, &listed, &base, &after)
                    .await
                    .expect("files");
                move_ref(scratch, &update).await.expect("a ref");
            }
            if at >= Some(4) {
                fs::rename(repo.lock(), repo.dir.join("index")).expect("an index");
            }
            match step {
                "lock removed" | "lock removed after ref" => {
                    fs::remove_file(repo.lock()).expect("a lock")
                }
                "branch moved" => repo
                    .of_refs(&["update-ref", NAME, &other])
                    .output()
                    .await
                    .map(drop)
                    .expect("a branch"),
                _ => {}
            }
            let recovered = recover(scratch, &update).await.expect("it is recovered");
            let is_finished = matches!(
                step,
                "locked" | "file" | "ref" | "lock removed after ref" | "index"
            );
            assert_eq!(
                recovered,
                if is_finished {
                    RecoveryOutcome::Finished
                } else {
                    RecoveryOutcome::Undone
                },
                "{step}"
            );
            assert!(
                !repo.lock().exists() && !repo.new_index(&update).exists(),
                "{step}"
            );
            let now = state(scratch).await;
            if is_finished {
                assert_eq!(now.0.commit, after, "{step}");
                assert_eq!(
                    fs::read(repo.top.join("b/deep")).expect("a file"),
                    b"2\n",
                    "{step}"
                );
                let status = repo
                    .git
                    .call(&repo.top, &["status", "--porcelain"])
                    .line()
                    .await
                    .expect("a status");
                assert_eq!(status, "", "{step}");
            } else {
                assert_eq!((now.1, now.2), (before.1, before.2), "{step}");
            }
            assert_eq!(
                recover(scratch, &update).await.expect("again"),
                recovered,
                "{step}"
            );
        }
    });
}

#[test]
fn recovery_keeps_later_changes_of_the_user() {
    in_repository(async |scratch| {
        let base = commit(scratch, BASE).await;
        let after = commit_on(
            scratch,
            &[&base],
            &[("a", b"2\n"), ("b", b"1\n"), ("c", b"2\n")],
        )
        .await;
        let repo = scratch.repo();
        let calls: [(&[&str], RecoveryOutcome); 4] = [
            (
                &[
                    "-c",
                    "user.name=U",
                    "-c",
                    "user.email=u@u",
                    "revert",
                    "--no-edit",
                    "HEAD",
                ],
                RecoveryOutcome::Finished,
            ),
            (
                &["checkout", "--quiet", &base, "--", "a"],
                RecoveryOutcome::Finished,
            ),
            (
                &["checkout", "--quiet", &base, "--", "a", "c"],
                RecoveryOutcome::Finished,
            ),
            (
                &["reset", "--quiet", "--soft", &base],
                RecoveryOutcome::Undone,
            ),
        ];
        for (call, expected) in calls {
            check_out(scratch, &base).await;
            let update = update(scratch, &after).await;
            let listed = scratch.list(&base, &after).await.expect("a list");
            lock(scratch, &update, &listed).await.expect("it is locked");
            replace_files(scratch, &listed, &base, &after)
                .await
                .expect("files");
            move_ref(scratch, &update).await.expect("a ref");
            fs::rename(repo.lock(), repo.dir.join("index")).expect("an index");
            repo.git
                .call(&repo.top, call)
                .output()
                .await
                .expect("the user's call");
            let left = state(scratch).await;
            for _ in 0..2 {
                assert_eq!(
                    recover(scratch, &update).await.expect("it is recovered"),
                    expected,
                    "{call:?}"
                );
                assert_eq!(state(scratch).await, left, "{call:?}");
                assert!(
                    !repo.lock().exists() && !repo.new_index(&update).exists(),
                    "{call:?}"
                );
            }
        }
        // Another branch is checked out before the ref was moved.
        check_out(scratch, &base).await;
        let update = update(scratch, &after).await;
        let listed = scratch.list(&base, &after).await.expect("a list");
        let before = state(scratch).await;
        lock(scratch, &update, &listed).await.expect("it is locked");
        replace_files(scratch, &listed, &base, &after)
            .await
            .expect("files");
        repo.of_refs(&["update-ref", "refs/heads/other", &base])
            .output()
            .await
            .expect("a branch");
        repo.of_refs(&["symbolic-ref", "HEAD", "refs/heads/other"])
            .output()
            .await
            .expect("another HEAD");
        assert_eq!(
            recover(scratch, &update).await.expect("it is recovered"),
            RecoveryOutcome::Undone
        );
        let now = state(scratch).await;
        assert_eq!((now.1, now.2), (before.1, before.2));
        assert_eq!(repo.commit_of(NAME).await.expect("it is read"), Some(base));
    });
}
