use super::*;
use crate::store::db::Value;
use crate::store::{MARK_BEGIN, MARK_END, Query, Store, Tx, request_by_no, search};
use adjutant_core::chat::{Scope, Viewer};
use adjutant_core::{Decision, Principal, RequestEvent, RequestNo, RequestState};

/// A home with a database of schema 1: a live run with an open question, an answered one, and one whose answer
/// was read.
fn first_schema() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::at(&dir.path().join("home")).expect("a home");
    home.ensure().expect("a home");
    let connection = unmanaged(&home);
    let run = "01a1ff99-4460-7000-8000-000000000001";
    let rows = format!(
        "INSERT INTO runs (id, name, agent, task, cwd, patience_ms, prompt_via, owner, root, state, attempt, created_at, updated_at, pending,
           blocking_pending, unread, last_seq)
         VALUES ('{run}', 'old-hen', 'echo', 't', '/tmp', 1000, 'stdin', 'person', '{run}', 'running', 1, 1, 1, 1, 1, 1, 3);
         INSERT INTO requests (id, run, kind, question, blocking, patience_ms, status, answer, answered_by, asked_at, expires_at, answered_at, retrieved_at)
         VALUES ('01a1ff99-4460-7000-8000-000000000002', '{run}', 'question', 'open?', 1, 1, 'pending', NULL, NULL, 1, 9000000000000, NULL, NULL),
           ('01a1ff99-4460-7000-8000-000000000003', '{run}', 'question', 'answered?', 1, 1, 'answered', 'yes', 'person', 1, 9000000000000, 2, NULL),
           ('01a1ff99-4460-7000-8000-000000000004', '{run}', 'question', 'read?', 1, 1, 'retrieved', 'yes', 'person', 1, 9000000000000, 2, 3);
         INSERT INTO events (at, kind, run, by, text) VALUES (1, 'run.queued', '{run}', 'person', ''), (1, 'run.started', '{run}', 'supervisor', ''),
           (1, 'request.asked', '{run}', 'run:{run}', 'Q1 open?');"
    );
    let made = format!(
        "PRAGMA journal_mode = WAL; BEGIN; {} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1; {rows} COMMIT;",
        MIGRATIONS[0]
    );
    connection.execute_batch(&made).expect("the first schema");
    (dir, home)
}

#[test]
fn every_commit_waits_for_the_disk() {
    let (_dir, home) = first_schema();
    let connection = writable(&home).expect("it opens");
    let word = |pragma: &str| {
        connection
            .query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<Value>(0))
            .expect("a value")
    };
    // 2 is FULL: acknowledged writes survive a power failure.
    assert_eq!(word("synchronous"), Value::Integer(2));
    assert_eq!(word("journal_mode"), Value::Text("wal".to_owned()));
}

#[test]
fn store_of_schema_1_migrates_and_works() {
    let (_dir, home) = first_schema();
    let connection = writable(&home).expect("it opens");
    let version: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .expect("a version");
    assert_eq!(
        version,
        i64::try_from(MIGRATIONS.len()).expect("few migrations")
    );
    let intact: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("a check");
    assert_eq!(intact, "ok");

    let read = |no| {
        request_by_no(&connection, RequestNo(no))
            .expect("a read")
            .expect("a request")
    };
    assert!(
        matches!(read(2).state, RequestState::Answered(_))
            && matches!(read(3).state, RequestState::Retrieved { .. })
    );
    let mut tx = Tx::new(&connection, crate::clock::moment(), true);
    let answer = RequestEvent::Answer {
        by: Principal::Person,
        decision: Decision::Text("no".to_owned()),
    };
    let unsettled = read(1);
    let taken = tx
        .answer_waiting_call(&unsettled, answer)
        .expect("answered and read at once");
    assert_eq!(read(1).state, taken.state);
    assert!(matches!(taken.state, RequestState::Retrieved { .. }));
    let events: Vec<String> = {
        let mut events = connection
            .prepare_cached("SELECT kind FROM events WHERE seq > 3 ORDER BY seq")
            .expect("a statement");
        events
            .query_map([], |row| row.get(0))
            .expect("rows")
            .collect::<Result<_, _>>()
            .expect("kinds")
    };
    assert_eq!(events, ["request.answered", "request.retrieved"]);
    let left: (i64, i64, i64, i64) = connection
        .query_row(
            "SELECT pending, blocking_pending, unread, last_seq FROM runs",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .expect("the run");
    assert_eq!(left, (0, 0, 1, 5));
    // A request read before it was settled cannot be settled again.
    let mut tx = Tx::new(&connection, crate::clock::moment(), true);
    let again = RequestEvent::Answer {
        by: Principal::Person,
        decision: Decision::Text("yes".to_owned()),
    };
    assert!(
        tx.advance_request(&unsettled, again)
            .expect_err("refused")
            .to_string()
            .contains("changed within its transaction")
    );
    assert_eq!(read(1).state, taken.state);
    // Opening it again changes nothing.
    drop(connection);
    drop(writable(&home).expect("it opens again"));
}

#[test]
fn ends_before_the_migration_count_as_notified() {
    let (_dir, home) = first_schema();
    let connection = unmanaged(&home);
    let ended = "UPDATE runs SET state = 'finished', outcome = 'lost', ended_at = 2, end_seq = 3, last_seq = 3, pending = 0, blocking_pending = 0";
    connection.execute(ended, []).expect("an end");
    drop(connection);
    let connection = writable(&home).expect("it opens");
    let runs = crate::store::unnotified_bad_ends(&connection, &Principal::Person, 10)
        .expect("a list")
        .runs;
    assert!(runs.is_empty(), "{runs:?}");
    let run = crate::store::run_by_ref(&connection, "old-hen", None).expect("the run");
    assert!(run.is_owner_notified && run.need().is_none(), "{run:?}");
}

/// Schema 1 stored the keys of a run.
#[test]
fn migrating_schema_1_removes_stored_keys() {
    let (dir, home) = first_schema();
    let connection = unmanaged(&home);
    let (live, ended) = (
        "01a1ff99-4460-7000-8000-000000000001",
        "01a1ff99-4460-7000-8000-000000000009",
    );
    let spec = |key: &str| {
        serde_json::json!({
            "name": "echo", "harness": "echo", "preset": "", "permissions": "edit", "trust_repo": false, "command": ["x"], "args": [],
            "prompt": "stdin", "agent_env": {"OPENAI_API_KEY": "canary-config", "A": "1"}, "description": "", "timeout_ms": null,
            "patience_ms": 1, "grace_ms": 1, "dispatch_env": {"PATH": "/bin", "ANTHROPIC_API_KEY": key}
        })
    };
    let rows = format!(
        "INSERT INTO runs (id, name, agent, task, cwd, patience_ms, prompt_via, owner, root, state, outcome, attempt, created_at, updated_at, ended_at)
           VALUES ('{ended}', 'old-cat', 'echo', 't', '/tmp', 1000, 'stdin', 'person', '{ended}', 'finished', 'succeeded', 1, 1, 1, 1);
         INSERT INTO run_inputs (run, prompt, spec) VALUES ('{ended}', 'p', '{}');
         DELETE FROM run_inputs;
         INSERT INTO run_inputs (run, prompt, spec) VALUES ('{live}', 'p', '{}'), ('{ended}', 'p', '{}');",
        spec("canary-removed"),
        spec("canary-live"),
        spec("canary-ended")
    );
    connection.execute_batch(&rows).expect("rows");
    drop(connection);

    drop(writable(&home).expect("it opens"));
    let connection = writable(&home).expect("it opens again");
    let holding = |text: &str| -> Vec<String> {
        let files = [home.dir.clone(), home.credentials_dir()]
            .map(|dir| std::fs::read_dir(dir).expect("a directory"));
        let files = files
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().is_file());
        let holds = |path: &std::path::Path| {
            std::fs::read(path)
                .expect("a file")
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        };
        files
            .filter(|entry| holds(&entry.path()))
            .map(|entry| entry.path().display().to_string())
            .collect()
    };
    for removed in ["canary-ended", "canary-removed", "canary-config"] {
        assert_eq!(holding(removed), Vec::<String>::new(), "{removed}");
    }
    let kept = holding("canary-live");
    assert!(
        kept.len() == 1 && kept[0].contains("/credentials/"),
        "{kept:?}"
    );
    let input = crate::store::run_input(
        &connection,
        adjutant_core::RunId::parse(live).expect("an id"),
    )
    .expect("its input");
    assert_eq!(
        (
            input.env.path(),
            input.agent.env.get("A").map(String::as_str)
        ),
        ("/bin", Some("1"))
    );
    let credentials = crate::store::credentials::CredentialFiles::new(&home)
        .read(&input.env)
        .expect("its key");
    assert_eq!(
        credentials.get("ANTHROPIC_API_KEY").map(String::as_str),
        Some("canary-live")
    );
    assert!(dir.path().is_dir());
}

/// Schema 2 did not index words within text written without spaces.
#[test]
fn store_of_schema_2_finds_words_in_unspaced_text() {
    let (_dir, home) = first_schema();
    let connection = unmanaged(&home);
    let text = "把数据库迁移完";
    let rows = format!(
        "INSERT INTO chats (kind, title, owner, window_chars, turns_max, started_by, started_name, started_at, last_at, last_seq, said)
           VALUES ('chat', 't', 'person', 10, 2, 'person', 'person', 1, 1, 2, 2);
         INSERT INTO chat_messages (chat, seq, kind, author, name, text, at)
           VALUES (1, 1, 'message', 'person', 'person', '{text}', 1), (1, 2, 'message', 'person', 'person', 'migrate it', 1);
         INSERT INTO chat_fts (rowid, tags, text) SELECT id, tags, text FROM chat_search;
         INSERT INTO search_docs (kind, ref, run, at) SELECT 'report', id, id, 1 FROM runs;
         INSERT INTO search_fts (rowid, tags, text) SELECT id, 'k2', '{text}' FROM search_docs;
         UPDATE search_seen SET seq = 1000;"
    );
    connection
        .execute_batch(&format!(
            "BEGIN; {} PRAGMA user_version = 2; {rows} COMMIT;",
            MIGRATIONS[1]
        ))
        .expect("the second schema");
    drop(connection);

    let connection = writable(&home).expect("it opens");
    for index in ["chat_fts", "search_fts"] {
        let check = format!("INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)");
        connection
            .execute(&check, [])
            .expect("the index holds what it should");
    }
    let person = Viewer {
        who: Principal::Person,
        scope: Scope {
            owner: Principal::Person,
            root: None,
        },
    };
    let found = |text: &str| {
        let query = Query {
            text: text.to_owned(),
            limit: 10,
            ..Query::default()
        };
        let (hits, _) = search(&connection, &person, &query).expect("searched");
        hits.into_iter()
            .map(|hit| hit.snippet.replace([MARK_BEGIN, MARK_END], "|"))
            .collect::<Vec<_>>()
    };
    assert_eq!(found("数据库"), ["把|数据库|迁移完", "把|数据库|迁移完"]);
    assert_eq!(found("migrate"), ["|migrate| it"]);
}

/// Schema 4 indexed decomposed characters as they were.
#[test]
fn store_of_schema_4_finds_nfc_and_nfd_words() {
    use unicode_normalization::UnicodeNormalization;
    let (_dir, home) = first_schema();
    let connection = unmanaged(&home);
    let text: String = "й 데이터".nfd().collect();
    let run = "01a1ff99-4460-7000-8000-000000000001";
    let rows = format!(
        "INSERT INTO chats (kind, title, owner, root, private, pair, window_chars, turns_max, started_by, started_name, started_at, last_at, last_seq, said)
           VALUES ('chat', 't', 'person', NULL, 0, NULL, 10, 2, 'person', 'person', 1, 1, 3, 3),
             ('direct', 'd', 'person', '{run}', 1, 'person|{run}|person|run:{run}', 10, 2, 'person', 'person', 1, 1, 0, 0),
             ('board', 'Board', 'person', '{run}', 0, 'board|person|{run}', 10, 2, 'person', 'person', 1, 1, 0, 0);
         INSERT INTO chat_messages (chat, seq, kind, author, name, text, at)
           VALUES (1, 1, 'message', 'person', 'person', '{text}', 1), (1, 2, 'message', 'person', 'person', 'plain', 1);
         INSERT INTO chat_fts (rowid, tags, text) SELECT id, tags, text FROM chat_search;
         UPDATE chat_seen SET entry = 2;
         INSERT INTO chat_messages (chat, seq, kind, author, name, text, at) VALUES (1, 3, 'message', 'person', 'person', 'new {text}', 1);
         INSERT INTO search_docs (kind, ref, run, at) SELECT 'report', id, id, 1 FROM runs;
         INSERT INTO search_fts (rowid, tags, text) SELECT id, 'k2', set_apart('{text}') FROM search_docs;
         UPDATE search_seen SET seq = 1000;"
    );
    let schema = MIGRATIONS[1..4].concat();
    connection
        .execute_batch(&format!(
            "BEGIN; {schema} PRAGMA user_version = 4; {rows} COMMIT;"
        ))
        .expect("the fourth schema");
    drop(connection);

    let connection = writable(&home).expect("it opens");
    Tx::new(&connection, crate::clock::moment(), true)
        .index_entries()
        .expect("indexed");
    for index in ["chat_fts", "search_fts"] {
        let check = format!("INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)");
        connection
            .execute(&check, [])
            .expect("the index holds what it should");
    }
    let person = Viewer {
        who: Principal::Person,
        scope: Scope {
            owner: Principal::Person,
            root: None,
        },
    };
    for word in ["й", "데이터", "이터"] {
        for word in [word.to_owned(), word.nfd().collect()] {
            let query = Query {
                text: word.clone(),
                limit: 10,
                ..Query::default()
            };
            assert_eq!(
                search(&connection, &person, &query)
                    .expect("searched")
                    .0
                    .len(),
                3,
                "{word}"
            );
        }
    }
    let pairs = |id: i64| -> (String, String) {
        connection
            .query_row("SELECT pair, title FROM chats WHERE id = ?1", [id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .expect("a chat")
    };
    assert_eq!(
        pairs(2),
        (format!("person||person|run:{run}"), "d".to_owned()),
        "one direct chat for two"
    );
    assert_eq!(
        pairs(3),
        (format!("board|person|{run}"), "Board of old-hen".to_owned())
    );
}

#[test]
fn store_of_schema_5_opens_with_its_live_run() {
    let (_dir, home) = first_schema();
    let connection = unmanaged(&home);
    connection
        .execute_batch(&format!(
            "BEGIN; {} PRAGMA user_version = 5; COMMIT;",
            MIGRATIONS[1..5].concat()
        ))
        .expect("the fifth schema");
    drop(connection);
    let connection = writable(&home).expect("it opens");
    let run = adjutant_core::RunId::parse("01a1ff99-4460-7000-8000-000000000001").expect("an id");
    let retrying = adjutant_core::condition::Retrying {
        cause: adjutant_core::Cause::Network,
        for_ms: 10_000,
        tries: 2,
        words: "reset".to_owned(),
    };
    let state = |retrying: Option<&adjutant_core::condition::Retrying>| {
        let mut tx = Tx::new(&connection, crate::clock::moment(), true);
        let found = tx.run(run).expect("the run");
        match retrying {
            Some(retrying) => tx.set_retrying(&found, retrying, "supervisor"),
            None => tx.set_recovered(&found, "supervisor"),
        }
        .expect("stated");
        tx.run(run).expect("the run")
    };
    let first = state(Some(&retrying));
    let (since, seq) = (
        first.retrying.as_ref().map(|retrying| retrying.since),
        first.retrying_seq,
    );
    let again = state(Some(&adjutant_core::condition::Retrying {
        for_ms: 70_000,
        tries: 9,
        ..retrying
    }));
    let known = again.retrying.as_ref().expect("it retries");
    assert_eq!(
        (Some(known.since), known.tries, again.retrying_seq),
        (since, 9, seq),
        "a repeated statement is no new event"
    );
    assert!(again.noticed_seq() == seq && state(None).noticed_seq().is_none());
}

#[test]
fn commit_overwrites_the_preallocated_log() {
    let (dir, home) = first_schema();
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
        .query_row("SELECT task FROM runs", [], |row| row.get(0))
        .expect("the run");
    assert_eq!(task, "renamed");
    found
        .execute("UPDATE runs SET task = 'again'", [])
        .expect("it can be written");
    let intact: String = found
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
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
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("a check");
    assert_eq!(intact, "ok");
}
