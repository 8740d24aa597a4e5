use super::*;
use crate::store::Store;
use crate::store::db::Value;

/// A home with a store that has a run.
fn home_with_run() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    let run = "INSERT INTO runs (id, name, agent, task, cwd, patience_ms, prompt_via, owner, root, state, created_at, updated_at)
        VALUES ('01a1ff99-4460-7000-8000-000000000001', 'hen', 'echo', 't', '/tmp', 1, 'stdin', 'person', '01a1ff99-4460-7000-8000-000000000001', 'queued', 1, 1)";
    writable(&home)
        .expect("it opens")
        .execute(run, [])
        .expect("a run");
    (dir, home)
}

#[test]
fn every_commit_waits_for_the_disk() {
    let (_dir, home) = home_with_run();
    let connection = writable(&home).expect("it opens");
    let word = |pragma: &str| {
        connection
            .read_row::<Value>(&format!("PRAGMA {pragma}"), [])
            .expect("a value")
    };
    // 2 is FULL: acknowledged writes survive a power failure.
    assert_eq!(word("synchronous"), Value::Integer(2));
    assert_eq!(word("journal_mode"), Value::Text("wal".to_owned()));
}

#[test]
fn commit_overwrites_the_preallocated_log() {
    let (dir, home) = home_with_run();
    let connection = writable(&home).expect("it opens");
    let log = || {
        std::fs::metadata(home.database_log())
            .expect("there is a log")
            .len()
    };
    assert_eq!(log(), log::PREALLOCATED_BYTES);
    connection
        .execute("UPDATE runs SET task = 'renamed'", [])
        .expect("a commit");
    assert_eq!(log(), log::PREALLOCATED_BYTES);
    // The files as a kill leaves them, including the zeros.
    let copy = Home {
        dir: dir.path().join("copy"),
    };
    copy.ensure().expect("a home");
    for (from, to) in [
        (home.database(), copy.database()),
        (home.database_log(), copy.database_log()),
    ] {
        std::fs::copy(from, to).expect("copied");
    }
    let found = writable(&copy).expect("it opens");
    let task: String = found
        .read_row("SELECT task FROM runs", [])
        .expect("the run");
    assert_eq!(task, "renamed");
    found
        .execute("UPDATE runs SET task = 'again'", [])
        .expect("it can be written");
    let intact: String = found
        .read_row("PRAGMA integrity_check", [])
        .expect("a check");
    assert_eq!(intact, "ok");
}

/// Without SQLite's lock, another program would consider the database abandoned and delete its log.
#[cfg(target_os = "linux")]
#[test]
fn database_stays_locked_for_other_programs() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home {
        dir: dir.path().to_owned(),
    };
    for _ in 0..2 {
        let store = Store::open(&home).expect("opens");
        store.read(|_| Ok(())).expect("reads");
        let inode = format!(
            ":{} ",
            std::fs::metadata(home.database()).expect("is there").ino()
        );
        let pid = format!(" {} ", std::process::id());
        let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's list of locks");
        assert!(
            locks
                .lines()
                .any(|lock| lock.contains("POSIX") && lock.contains(&pid) && lock.contains(&inode)),
            "{inode}: {locks}"
        );
        store.close();
    }
}

#[test]
fn database_shrinks_after_rows_were_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    let connection = writable(&home).expect("it opens");
    let bytes = || std::fs::metadata(home.database()).expect("a file").len();
    let checkpoint = || {
        connection
            .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
            .expect("a checkpoint")
    };
    let empty = bytes();
    let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
        INSERT INTO keys (key, principal, body_hash, reply, at) SELECT 'k' || i, 'person', x'00', printf('%.500c', 'x'), i FROM n";
    connection.execute_batch(fill).expect("filled");
    checkpoint();
    let full = bytes();
    assert!(full > empty + 8_000_000, "{empty} {full}");
    connection
        .execute_batch("DELETE FROM keys")
        .expect("removed");
    let mut steps = 0;
    while release_free_pages(&connection).expect("released") {
        steps += 1;
    }
    checkpoint();
    assert!(steps >= 3, "in bounded steps: {steps}");
    assert!(bytes() < empty + 2_000_000, "from {full} to {}", bytes());
    assert!(!release_free_pages(&connection).expect("nothing more to do"));
    let intact: String = connection
        .read_row("PRAGMA integrity_check", [])
        .expect("a check");
    assert_eq!(intact, "ok");
}
