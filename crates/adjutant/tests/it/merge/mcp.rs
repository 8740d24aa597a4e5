//! A parent agent reviews, merges and discards.

use super::{git_output, named_repository};
use crate::mcp::Session;
use serde_json::json;

#[test]
fn parent_reviews_merges_and_discards() {
    let home = named_repository();
    let work = home.work();
    let mut parent = Session::open(&home.home.dir, &work, &["--client", "alice"], true);
    for (name, script) in [
        (
            "first",
            "sed -i '5s/.*/first/' lines.txt; seq 5000 > long.txt",
        ),
        ("second", "sed -i '5s/.*/second/' lines.txt"),
    ] {
        parent.done("run_subagent", json!({"agent": "sh", "name": name, "prompt": format!("do {script}"), "isolation": "clone"}));
        home.finished(name);
    }
    home.until("the conflict", || {
        Some(()).filter(|()| !home.show("first")["conflicts"].is_null())
    });
    let shown = parent
        .tool(
            "review_changes",
            json!({"run_id": "first", "action": "stat"}),
        )
        .to_string();
    assert!(
        shown.contains("conflicts with a sibling; merge in the order "),
        "{shown}"
    );
    let stat = parent.done(
        "review_changes",
        json!({"run_id": "first", "action": "stat"}),
    );
    assert!(
        stat["text"]
            .as_str()
            .is_some_and(|text| text.contains("2 files changed")),
        "{stat}"
    );
    let pages = stat_pages(&mut parent);
    assert!(pages > 1, "{pages}");
    let one = parent.done(
        "review_changes",
        json!({"run_id": "first", "action": "diff", "path": "lines.txt"}),
    );
    assert!(
        one["text"]
            .as_str()
            .is_some_and(|text| text.contains("+first") && !text.contains("long.txt")),
        "{one}"
    );
    let merged = parent.done(
        "merge_changes",
        json!({"run_id": "first", "action": "merge"}),
    );
    assert_eq!(
        (&merged["outcome"], &merged["files"]),
        (&json!("merged"), &json!(["lines.txt", "long.txt"])),
        "{merged}"
    );
    let conflicts = parent.done(
        "merge_changes",
        json!({"run_id": "second", "action": "merge"}),
    );
    assert_eq!(
        (&conflicts["outcome"], &conflicts["conflicts"]),
        (
            &json!("conflicts"),
            &json!([{"path": "lines.txt", "kind": "content"}])
        ),
        "{conflicts}"
    );
    assert_eq!(git_output(&work, &["status", "--porcelain"]), "");
    let told = parent.tool(
        "merge_changes",
        json!({"run_id": "second", "action": "merge"}),
    )["content"][0]["text"]
        .to_string();
    assert!(
        told.contains("lines.txt: both sides changed the same lines")
            && told.contains("| <<<<<<< yours"),
        "{told}"
    );
    parent.done(
        "merge_changes",
        json!({"run_id": "second", "action": "discard"}),
    );
    assert_eq!(home.show("second")["workspace"]["state"], "discarded");
    let refused = parent
        .tool(
            "merge_changes",
            json!({"run_id": "second", "action": "discard", "agent": "sh"}),
        )
        .to_string();
    assert!(
        refused.contains("agent and mode belong to action=merge"),
        "{refused}"
    );
    // Another client sees nothing of it.
    let mut other = Session::open(&home.home.dir, &work, &["--client", "bob"], true);
    for (tool, action) in [
        ("review_changes", "stat"),
        ("review_changes", "diff"),
        ("merge_changes", "merge"),
        ("merge_changes", "discard"),
    ] {
        let refused = other
            .tool(tool, json!({"run_id": "first", "action": action}))
            .to_string();
        assert!(refused.contains("no such run"), "{action}: {refused}");
    }
}

#[test]
fn parent_is_shown_which_files_are_not_merged() {
    let home = named_repository();
    let mut parent = Session::open(&home.home.dir, &home.work(), &["--client", "alice"], true);
    parent.done(
        "run_subagent",
        json!({"agent": "sh", "name": "large", "prompt": "do truncate -s 65M big.bin; echo new > new.txt", "isolation": "clone"}),
    );
    let dir = home.finished("large")["cwd"]
        .as_str()
        .expect("a directory")
        .to_owned();
    let stat = parent
        .tool(
            "review_changes",
            json!({"run_id": "large", "action": "stat"}),
        )
        .to_string();
    assert!(
        stat.contains("not in the snapshot: ") && stat.contains("big.bin"),
        "{stat}"
    );
    let told = parent
        .tool(
            "merge_changes",
            json!({"run_id": "large", "action": "merge"}),
        )
        .to_string();
    assert!(
        told.contains("NOT merged") && told.contains("big.bin") && told.contains(&dir),
        "{told}"
    );
}

/// Reads all pages of a difference.
fn stat_pages(parent: &mut Session) -> u64 {
    let first = parent.done(
        "review_changes",
        json!({"run_id": "first", "action": "diff"}),
    );
    let pages = first["pages"].as_u64().expect("a number");
    let mut text = first["text"].as_str().expect("text").to_owned();
    for page in 2..=pages {
        let next = parent.done(
            "review_changes",
            json!({"run_id": "first", "action": "diff", "page": page}),
        );
        text.push_str(next["text"].as_str().expect("text"));
    }
    assert!((1..=5000).all(|n| text.contains(&format!("\n+{n}\n"))));
    let beyond = parent
        .tool(
            "review_changes",
            json!({"run_id": "first", "action": "diff", "page": pages + 1}),
        )
        .to_string();
    assert!(beyond.contains("there are"), "{beyond}");
    pages
}

/// The refusal names what happened, and the modes that a parent can choose.
#[test]
fn parent_chooses_a_mode_after_the_base_was_amended() {
    let home = named_repository();
    let work = home.work();
    let mut parent = Session::open(&home.home.dir, &work, &["--client", "alice"], true);
    parent.done("run_subagent", json!({"agent": "sh", "name": "based", "prompt": "do echo own > own.txt", "isolation": "clone"}));
    home.finished("based");
    git_output(&work, &["commit", "-q", "--amend", "-m", "amended"]);
    let what = "the run started from an earlier state of main, which was amended, rebased or reset since: a merge would restore 1 commit: ";
    let refused = home.adj(&["merge", "based"]);
    for text in [
        what,
        "lines",
        "adj merge based --rebase (its commits) or --squash (one commit)",
    ] {
        assert!(
            refused.code == 7 && refused.err.contains(text),
            "{text}: {refused:?}"
        );
    }
    let refused = parent
        .tool(
            "merge_changes",
            json!({"run_id": "based", "action": "merge"}),
        )
        .to_string();
    assert!(
        refused.contains(what)
            && refused.contains("mode=rebase (its commits) or mode=squash (one commit)"),
        "{refused}"
    );
    let refused = parent
        .tool(
            "merge_changes",
            json!({"run_id": "based", "action": "merge", "mode": "branch"}),
        )
        .to_string();
    assert!(
        refused.contains("one of merge, squash, rebase"),
        "{refused}"
    );
    let merged = parent.done(
        "merge_changes",
        json!({"run_id": "based", "action": "merge", "mode": "rebase"}),
    );
    assert_eq!(
        (&merged["outcome"], &merged["files"]),
        (&json!("merged"), &json!(["own.txt"])),
        "{merged}"
    );
    assert_eq!(
        git_output(&work, &["log", "--format=%s", "-2"])
            .lines()
            .nth(1),
        Some("amended")
    );
}
