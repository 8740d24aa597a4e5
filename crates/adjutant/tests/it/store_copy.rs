//! `adj store copy`: between the file in a home and a real PostgreSQL server.

use crate::postgres::server::Server;
use crate::support::{TestHome, kill};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

/// What a user reads of a store.
const SHOWN: &[&[&str]] = &[
    &["ps", "-a"],
    &["show", "asker"],
    &["inbox", "--all"],
    &["events"],
    &["chat", "ls"],
    &["chat", "show", "1"],
    &["board"],
    &["token", "list"],
    &["pools"],
    &["budget", "asker"],
];

/// A home with finished and waiting runs, requests, chats, a budget and tokens. Its hub is stopped.
fn home_with_work() -> TestHome {
    let home = TestHome::new();
    home.start("asker", "progress 50 half\nask \"Which?\"\ndone yes");
    home.until_status("asker", "waiting_parent_reply");
    home.ok(&["reply", "asker", "the first"]);
    home.finished("asker");
    home.start("waiting", "ask \"Still there?\"\ndone yes");
    home.until_status("waiting", "waiting_parent_reply");
    home.ok(&["chat", "start", "plans"]);
    home.ok(&[
        "chat",
        "post",
        "1",
        "remember the migration \u{65e5}\u{672c}\u{8a9e}",
    ]);
    home.ok(&["board", "--post", "on the board"]);
    home.ok(&["token", "new", "ci"]);
    home.ok(&["token", "new", "old"]);
    home.ok(&["token", "revoke", "old"]);
    home.ok(&["pools", "pause", "default"]);
    home.ok(&["pools", "resume", "default"]);
    home.ok(&[
        "run",
        "--detach",
        "--agent",
        "echo",
        "--name",
        "thrifty",
        "--budget",
        "tokens=1000",
        "done yes\n",
    ]);
    home.finished("thrifty");
    home.ok(&["send", "waiting", "hurry"]);
    assert!(home.ok(&["search", "migration"]).contains("migration"));
    home.ok(&["stop"]);
    home
}

/// Removes what changes while a run is live.
fn without_usage(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for field in ["resources", "active_ms", "tree"] {
                fields.remove(field);
            }
            fields
                .values_mut()
                .for_each(|field| *field = without_usage(field.take()));
        }
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| *value = without_usage(value.take())),
        _ => {}
    }
    value
}

fn shown(home: &TestHome) -> Vec<Value> {
    let shown = SHOWN
        .iter()
        .map(|command| without_usage(home.json(command)))
        .collect();
    assert!(home.ok(&["search", "MIGRATION"]).contains("migration"));
    home.ok(&["stop"]);
    shown
}

fn same(found: &[Value], expected: &[Value]) {
    for ((found, expected), command) in found.iter().zip(expected).zip(SHOWN) {
        assert_eq!(found, expected, "{command:?}");
    }
}

/// Copies and returns the hash of each table with its rows.
fn copied(home: &TestHome, from: &str, to: &str) -> BTreeMap<String, (u64, String)> {
    let copy = home.json(&["store", "copy", from, to]);
    let tables = copy["tables"].as_array().expect("tables");
    let table = |table: &Value| {
        let text = |field: &str| table[field].as_str().expect("a text").to_owned();
        (
            text("name"),
            (table["rows"].as_u64().expect("a number"), text("hash")),
        )
    };
    tables.iter().map(table).collect()
}

fn move_file_away(home: &TestHome) {
    let file = home.home.database();
    std::fs::rename(&file, file.with_extension("old")).expect("renamed");
}

/// Adds a row to every table that has none.
fn fill(file: &Connection) {
    let texts = |sql: &str| -> Vec<String> {
        let mut statement = file.prepare(sql).expect("a statement");
        statement
            .query_map([], |row| row.get(0))
            .expect("rows")
            .collect::<Result<_, _>>()
            .expect("texts")
    };
    let tables = texts(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT LIKE '%\\_fts%' ESCAPE '\\'",
    );
    for table in tables {
        let is_empty: bool = file
            .query_row(
                &format!("SELECT NOT EXISTS (SELECT 1 FROM {table:?})"),
                [],
                |row| row.get(0),
            )
            .expect("a count");
        if !is_empty {
            continue;
        }
        let mut columns = Vec::new();
        let mut values = Vec::new();
        for column in texts(&format!(
            "SELECT name FROM pragma_table_info('{table}') WHERE pk > 0 OR (\"notnull\" = 1 AND dflt_value IS NULL)"
        )) {
            let parents = texts(&format!(
                "SELECT printf('(SELECT \"%s\" FROM \"%s\" LIMIT 1)', \"to\", \"table\") FROM pragma_foreign_key_list('{table}') WHERE \"from\" = '{column}'"
            ));
            let of = texts(&format!(
                "SELECT type FROM pragma_table_info('{table}') WHERE name = '{column}'"
            ));
            let other = match (table.as_str(), column.as_str(), of[0].as_str()) {
                ("chat_turns", "purpose", _) => "'answer'",
                ("eras", "gaps", _) => "'{}'",
                ("tasks", "status", _) => "'working'",
                ("search_docs", "kind", _) => "'report'",
                (_, _, "INTEGER") => "1",
                (_, _, "BLOB") => "x'00ff'",
                _ => "'\u{e9} \u{1f600}'",
            };
            values.push(parents.first().cloned().unwrap_or_else(|| other.to_owned()));
            columns.push(format!("{column:?}"));
        }
        let insert = format!(
            "INSERT INTO {table:?} ({}) VALUES ({})",
            columns.join(", "),
            values.join(", ")
        );
        file.execute(&insert, [])
            .unwrap_or_else(|error| panic!("{insert}: {error}"));
    }
}

#[test]
fn copied_home_shows_the_same_on_both_engines() {
    let Some(server) = crate::postgres::server() else {
        return;
    };
    server.create_database("there");
    let home = home_with_work();
    let before = shown(&home);
    let url = server.url("there");
    let there = copied(&home, "home", &url);
    assert!(
        there["runs"].0 == 3 && there["events"].0 > 10 && there["search_fts"].0 > 0,
        "{there:?}"
    );
    home.ok(&["config", "set", "store", &url]);
    same(&shown(&home), &before);
    // The question that was open is answered on the server.
    home.ok(&["reply", "waiting", "yes"]);
    home.finished("waiting");
    let later = shown(&home);
    move_file_away(&home);
    copied(&home, &url, "home");
    home.ok(&["config", "unset", "store"]);
    same(&shown(&home), &later);
    home.start("next", "done yes");
    let runs: Vec<_> = home
        .json(&["ps", "-a"])
        .as_array()
        .expect("runs")
        .iter()
        .map(|run| run["name"].clone())
        .collect();
    assert!(runs.len() == 4 && runs.contains(&"next".into()), "{runs:?}");
}

#[test]
fn every_table_survives_the_round_trip() {
    let Some(server) = crate::postgres::server() else {
        return;
    };
    server.create_database("there");
    let home = home_with_work();
    let file = Connection::open(home.home.database()).expect("the file");
    fill(&file);
    // The newest rows are gone, and their numbers are not used again.
    file.execute(
        "UPDATE sqlite_sequence SET seq = seq + 100 WHERE name = 'outbox'",
        [],
    )
    .expect("changed");
    let counters = |file: &Connection| -> Vec<(String, i64)> {
        let mut statement = file
            .prepare("SELECT name, seq FROM sqlite_sequence ORDER BY name")
            .expect("a statement");
        statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("rows")
            .collect::<Result<_, _>>()
            .expect("counters")
    };
    let before = counters(&file);
    drop(file);
    let there = copied(&home, "home", &server.url("there"));
    let empty: Vec<_> = there
        .iter()
        .filter(|(_, (rows, _))| *rows == 0)
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(
        empty.is_empty(),
        "no rows of {empty:?}: make some in home_with_work or fill"
    );
    server.create_database("again");
    assert_eq!(
        copied(&home, &server.url("there"), &server.url("again")),
        there,
        "a copy of the copy"
    );
    move_file_away(&home);
    assert_eq!(copied(&home, &server.url("there"), "home"), there);
    let file = Connection::open(home.home.database()).expect("the file");
    assert_eq!(counters(&file), before);
    let intact: String = file
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("a check");
    assert_eq!(intact, "ok");
}

#[test]
fn nul_characters_are_replaced_and_counted() {
    let Some(server) = crate::postgres::server() else {
        return;
    };
    server.create_database("there");
    let home = home_with_work();
    let file = Connection::open(home.home.database()).expect("the file");
    let changed = file
        .execute(
            "UPDATE events SET text = 'a' || char(0) || 'b' WHERE seq <= 2",
            [],
        )
        .expect("changed");
    drop(file);
    let copy = home.json(&["store", "copy", "home", &server.url("there")]);
    assert_eq!((changed, &copy["replaced_texts"]), (2, &Value::from(2)));
    assert_eq!(
        server.sql(
            "there",
            "SELECT count(*) FROM events WHERE text = 'a' || U&'\\FFFD' || 'b'"
        ),
        "2"
    );
}

#[test]
fn stores_in_use_and_targets_with_rows_are_refused() {
    let Some(server) = crate::postgres::server() else {
        return;
    };
    server.create_database("there");
    let url = server.url("there");
    let home = home_with_work();
    home.ok(&["ps"]);
    let refused = |home: &TestHome, from: &str, to: &str, words: &[&str]| {
        let ran = home.adj(&["store", "copy", from, to]);
        assert!(
            ran.code != 0 && words.iter().all(|word| ran.err.contains(word)),
            "{from} {to}: {ran:?}"
        );
    };
    refused(&home, "home", &url, &["a hub (pid", "adj stop"]);
    home.ok(&["stop"]);
    refused(&home, "home", "home", &["the same store"]);
    refused(&home, &url, "home", &["no store to copy"]);
    refused(
        &home,
        "home",
        "postgres://adj:canary@/x?host=/tmp",
        &["TO cannot be used: leave the password out"],
    );
    refused(
        &home,
        "hmoe",
        "home",
        &["FROM is neither home nor an address"],
    );
    assert!(
        !home
            .adj(&[
                "store",
                "copy",
                "home",
                "postgres://adj:canary@/x?host=/tmp"
            ])
            .err
            .contains("canary")
    );
    // Another home's hub uses the database.
    let other = TestHome::with_config(&format!("store = \"{url}\"\n"));
    other.ok(&["ps"]);
    refused(&home, "home", &url, &["another hub uses this store"]);
    other.ok(&["stop"]);
    // It has left no rows.
    home.ok(&["store", "copy", "home", &url]);
    refused(&home, "home", &url, &["not empty", "runs"]);
    refused(&home, &url, "home", &["not empty", "mv "]);
    assert_eq!(
        home.json(&["ps", "-a"]).as_array().map(Vec::len),
        Some(3),
        "the source is as before"
    );
}

/// Blocks writes to a table until it is dropped.
struct LockedTable(std::process::Child);

impl LockedTable {
    fn new(server: &Server, database: &str, table: &str) -> Self {
        let mut psql = server
            .psql(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql starts");
        let mut input = psql.stdin.as_ref().expect("piped");
        writeln!(input, "BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE;").expect("written");
        let mut output = BufReader::new(psql.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("LOCK TABLE") {
            line.clear();
            assert_ne!(output.read_line(&mut line).expect("read"), 0, "psql ended");
        }
        Self(psql)
    }
}

impl Drop for LockedTable {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("psql ends");
    }
}

#[test]
fn killed_copy_leaves_the_target_empty_and_is_repeatable() {
    let Some(server) = crate::postgres::server() else {
        return;
    };
    server.create_database("there");
    let url = server.url("there");
    let home = home_with_work();
    let other = TestHome::with_config(&format!("store = \"{url}\"\n"));
    other.ok(&["ps"]);
    other.ok(&["stop"]);
    let rows = || {
        server.sql(
            "there",
            "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM sqlite_sequence)",
        )
    };
    // In the middle: the runs are inserted, the requests are not.
    let locked = LockedTable::new(&server, "there", "requests");
    let mut copy = home
        .command(&["store", "copy", "home", &url])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("adj starts");
    let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = 'there' WHERE NOT granted AND relation IS NOT NULL";
    home.until("the copy waits", || {
        (server.sql("there", waiting) == "1").then_some(())
    });
    kill(copy.id());
    copy.wait().expect("reaped");
    drop(locked);
    assert_eq!(rows(), "0");
    // Everything is written and compared, and nothing committed.
    let dies_before_commit = |from: &str, to: &str, name: &str| {
        let armed = format!("store.before_commit={}", home.work().join(name).display());
        let ran = home
            .command(&["store", "copy", from, to])
            .env("ADJ_FAILPOINT", armed)
            .output()
            .expect("adj starts");
        assert!(
            ran.status.code().is_none() && home.work().join(name).exists(),
            "{ran:?}"
        );
    };
    dies_before_commit("home", &url, "there");
    home.until("the server has noticed", || (rows() == "0").then_some(()));
    let there = copied(&home, "home", &url);
    move_file_away(&home);
    dies_before_commit(&url, "home", "back");
    assert_eq!(copied(&home, &url, "home"), there);
    assert_eq!(home.json(&["ps", "-a"]).as_array().map(Vec::len), Some(3));
}
