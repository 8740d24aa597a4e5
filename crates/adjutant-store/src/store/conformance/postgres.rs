//! Runs the conformance tests on PostgreSQL: this test starts a server and runs the others again in
//! a process whose fixtures use it.

use crate::store::testing::{self, address_of_this_run, is_run_on_server};
use crate::store::{Store, StoreLocation};
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

/// Part of the names of these tests.
const TESTS: [&str; 1] = ["store::conformance::"];

/// Reads table, column and type from a query.
fn columns(store: &Store, sql: &str) -> BTreeSet<(String, String, String)> {
    let columns = store.read(|connection| {
        let mut statement = connection.prepare_cached(sql)?;
        Ok(statement.read_rows([])?)
    });
    columns.expect("the columns")
}

#[tokio::test(flavor = "multi_thread")]
async fn both_engines_have_the_same_columns() {
    if !is_run_on_server() {
        return;
    }
    let server = crate::store::testing::fixture::fixture();
    let file = Store::open(&server.home).expect("a store");
    let in_file = columns(
        &file,
        "SELECT t.name, c.name, CASE c.type WHEN 'INTEGER' THEN 'bigint' WHEN 'TEXT' THEN 'text' WHEN 'BLOB' THEN 'bytea' ELSE c.type END
         FROM sqlite_schema t JOIN pragma_table_info(t.name) c
         WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name NOT LIKE '%\\_fts%' ESCAPE '\\'",
    );
    let on_server = columns(
        &server.store,
        "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns
         WHERE table_schema = current_schema() AND table_name NOT LIKE 'sqlite%' AND table_name NOT LIKE '%\\_fts%' AND table_name NOT IN ('hub', 'hubs', 'leads')",
    );
    let differences: Vec<_> = in_file.symmetric_difference(&on_server).collect();
    assert!(
        differences.is_empty() && in_file.len() > 300,
        "{} columns, {differences:?}",
        in_file.len()
    );
}

#[test]
fn task_that_reads_an_abandoned_store_ends() {
    const LIMIT: Duration = Duration::from_secs(60);
    let Some((address, _)) = address_of_this_run() else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let home = crate::config::Home {
        dir: dir.path().to_owned(),
    };
    let store = Store::open_at(&home, StoreLocation::Postgres(address)).expect("a store");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let (begin, begun) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let (go_on, gone_on) = mpsc::channel();
    let reader = store.clone();
    runtime.spawn(async move {
        let read = reader.read(|_| {
            begin.send(()).expect("the test waits");
            released.recv().expect("the test releases it");
            Ok(())
        });
        go_on.send(read).expect("the test waits");
        // Panics in a runtime that has ended.
        tokio::time::sleep(Duration::from_millis(1)).await;
    });
    begun.recv_timeout(LIMIT).expect("it reads");
    store.abandon();
    runtime.shutdown_background();
    release.send(()).expect("it waits");
    let end = gone_on.recv_timeout(LIMIT);
    assert!(
        matches!(end, Err(mpsc::RecvTimeoutError::Disconnected)),
        "{end:?}"
    );
}

#[test]
fn conformance_holds_on_postgresql() {
    testing::run_on_server(&TESTS);
}

#[test]
fn conformance_holds_on_the_newest_version_on_postgresql() {
    testing::run_on_newest_server(&TESTS);
}
