//! Hubs that are unreachable or killed: posts wait, and arrive once and in order.

use super::{Pair, arm, kill_hub};
use crate::support::TestHome;

const ALL: [(&str, &str); 4] = [
    ("person", "zero"),
    ("peer:lab/person", "one"),
    ("peer:lab/person", "two"),
    ("peer:lab/person", "three"),
];
const ALL_IN_LAB: [(&str, &str); 4] = [
    ("peer:office/person", "zero"),
    ("person", "one"),
    ("person", "two"),
    ("person", "three"),
];

#[test]
fn posts_wait_for_an_unreachable_hub() {
    let pair = Pair::new();
    pair.office.ok(&["chat", "post", "1", "zero"]);
    Pair::until_said(&pair.lab, &ALL_IN_LAB[..1]);
    kill_hub(&pair.office);
    for text in ["one", "two"] {
        let posted = pair.lab.adj(&["chat", "post", "1", text, "--wait", "10m"]);
        assert!(
            posted.code == 0 && posted.err.contains("waiting to be delivered to office"),
            "{posted:?}"
        );
        assert!(posted.err.contains("not waiting"), "{posted:?}");
    }
    kill_hub(&pair.lab);
    pair.lab.ok(&["chat", "post", "1", "three"]);
    let waiting = ["one", "two", "three"].map(|text| (text.to_owned(), "waiting".to_owned()));
    assert_eq!(pair.outgoing(), waiting);
    pair.lab.until("the problem is shown", || {
        let page = pair.lab.json(&["chat", "show", "1"]);
        page["chat"]["followed"]["problem"]
            .as_str()
            .filter(|problem| problem.contains("127.0.0.1"))
            .map(|_| ())
    });
    pair.office.ok(&["ps"]);
    Pair::until_said(&pair.office, &ALL);
    Pair::until_said(&pair.lab, &ALL_IN_LAB);
    pair.lab
        .until("nothing waits", || pair.outgoing().is_empty().then_some(()));
}

/// Kills one of the hubs at a failpoint while posts are sent in both directions.
fn survives(failpoint: &str, of: impl Fn(&Pair) -> &TestHome) {
    let pair = Pair::new();
    let mut dying = arm(of(&pair), failpoint);
    // Both hubs run, whichever was replaced.
    pair.office.ok(&["ps"]);
    pair.lab.ok(&["ps"]);
    pair.office.ok(&["chat", "post", "1", "zero"]);
    Pair::until_said(&pair.lab, &ALL_IN_LAB[..1]);
    for text in ["one", "two", "three"] {
        pair.lab.ok(&["chat", "post", "1", text]);
    }
    of(&pair).until("the hub dies at the failpoint", || {
        dying.try_wait().expect("a child").map(|_| ())
    });
    pair.office.ok(&["ps"]);
    pair.lab.ok(&["ps"]);
    Pair::until_said(&pair.office, &ALL);
    Pair::until_said(&pair.lab, &ALL_IN_LAB);
    pair.lab
        .until("nothing waits", || pair.outgoing().is_empty().then_some(()));
    // Nothing is posted or copied again by the next hubs.
    kill_hub(&pair.office);
    kill_hub(&pair.lab);
    pair.office.ok(&["chat", "post", "1", "end"]);
    pair.lab.ok(&["ps"]);
    let all: Vec<(&str, &str)> = ALL.into_iter().chain([("person", "end")]).collect();
    let in_lab: Vec<(&str, &str)> = ALL_IN_LAB
        .into_iter()
        .chain([("peer:office/person", "end")])
        .collect();
    Pair::until_said(&pair.lab, &in_lab);
    Pair::until_said(&pair.office, &all);
}

#[test]
fn receiver_dies_before_it_stores_a_post() {
    survives("peer.before_post", |pair| &pair.office);
}

#[test]
fn receiver_dies_after_it_has_stored_a_post() {
    survives("peer.after_post", |pair| &pair.office);
}

#[test]
fn sender_dies_before_it_records_a_delivery() {
    survives("peer.before_delivered", |pair| &pair.lab);
}

#[test]
fn follower_dies_before_it_stores_entries() {
    survives("peer.before_copy", |pair| &pair.lab);
}

#[test]
fn follower_dies_after_it_has_stored_entries() {
    survives("peer.after_copy", |pair| &pair.lab);
}

#[test]
fn restored_hub_ends_the_copy_instead_of_mixing_it() {
    let pair = Pair::new();
    pair.office.ok(&["chat", "post", "1", "zero"]);
    Pair::until_said(&pair.lab, &ALL_IN_LAB[..1]);
    pair.office.ok(&["stop"]);
    let backup = tempfile::tempdir().expect("a directory");
    let files = || {
        std::fs::read_dir(&pair.office.home.dir)
            .expect("a home")
            .map(|entry| entry.expect("an entry").path())
    };
    let is_database = |path: &std::path::Path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("adj.db"))
    };
    if !files().any(|path| is_database(&path)) {
        // On PostgreSQL, the backup is the server's.
        return;
    }
    for path in files().filter(|path| is_database(path)) {
        std::fs::copy(&path, backup.path().join(path.file_name().expect("a name")))
            .expect("copied");
    }
    pair.office.ok(&["chat", "post", "1", "lost"]);
    Pair::until_said(
        &pair.lab,
        &[
            ("peer:office/person", "zero"),
            ("peer:office/person", "lost"),
        ],
    );
    pair.office.ok(&["stop"]);
    for path in files().filter(|path| is_database(path)) {
        std::fs::remove_file(path).expect("removed");
    }
    for entry in std::fs::read_dir(backup.path()).expect("a backup") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), pair.office.home.dir.join(entry.file_name()))
            .expect("restored");
    }
    // The new entry has the number of the lost one.
    pair.office.ok(&["chat", "post", "1", "other"]);
    pair.lab.until("the copy ends", || {
        (pair.lab.json(&["chat", "show", "1"])["chat"]["followed"]["ended"] == true).then_some(())
    });
    assert_eq!(
        Pair::said(&pair.lab, "1").len(),
        2,
        "the copy stays as it is"
    );
    let refused = pair.lab.adj(&["chat", "post", "1", "hello?"]);
    assert!(
        refused.code != 0 && refused.err.contains("restored from a backup"),
        "{refused:?}"
    );
    assert_eq!(pair.lab.ok(&["chat", "follow", "office", "1"]).trim(), "2");
    pair.lab.until("the new copy is complete", || {
        (Pair::said(&pair.lab, "2").len() == 2).then_some(())
    });
}
