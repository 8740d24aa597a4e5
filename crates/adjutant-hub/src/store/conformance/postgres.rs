//! Runs the conformance tests on PostgreSQL: this test starts a server and runs the others again in a process whose
//! fixtures use it.

use super::server::{self, Server};
use crate::config::PostgresAddress;
use crate::store::{Place, Store};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The variable that names the server's socket directory to the process.
const SERVER: &str = "ADJ_TEST_POSTGRES";
const REQUIRE_ALL: &str = "ADJ_REQUIRE_ALL";

#[expect(clippy::disallowed_methods, reason = "a variable of the tests")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Creates a database for a fixture. `None`: the fixtures of this process use SQLite.
pub(super) fn place_of_this_run() -> Option<Place> {
    address_of_this_run().map(|(address, _)| Place::Postgres(address))
}

/// Creates a database. Also returns the server's socket.
pub(super) fn address_of_this_run() -> Option<(PostgresAddress, PathBuf)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let socket_dir = variable(SERVER)?.into_string().expect("a path");
    let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let address = |database: &str| format!("postgres://adj@/{database}?host={socket_dir}").parse::<PostgresAddress>().expect("an address");
    crate::store::db::postgres_batch(&address("postgres"), &format!("CREATE DATABASE {name}")).expect("a database");
    Some((address(&name), Path::new(&socket_dir).join(".s.PGSQL.5432")))
}

/// Reads table, column and type from a query.
fn columns(store: &Store, sql: &str) -> BTreeSet<[String; 3]> {
    let columns = store.read(|connection| {
        let mut statement = connection.prepare_cached(sql)?;
        let columns = statement.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))?;
        Ok(columns.collect::<Result<_, _>>()?)
    });
    columns.expect("the columns")
}

#[tokio::test(flavor = "multi_thread")]
async fn both_engines_have_the_same_columns() {
    if variable(SERVER).is_none() {
        return;
    }
    let server = super::fixture::fixture();
    let file = Store::open(&server.home).expect("a store");
    let in_file = columns(
        &file,
        "SELECT t.name, c.name, CASE c.type WHEN 'INTEGER' THEN 'bigint' WHEN 'TEXT' THEN 'text' WHEN 'BLOB' THEN 'bytea' ELSE c.type END
         FROM sqlite_schema t JOIN pragma_table_info(t.name) c
         WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name <> 'wipes' AND t.name NOT LIKE '%\\_fts%' ESCAPE '\\'",
    );
    let on_server = columns(
        &server.store,
        "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns
         WHERE table_schema = current_schema() AND table_name NOT LIKE 'sqlite%' AND table_name NOT LIKE '%\\_fts%' AND table_name NOT IN ('hub', 'hubs', 'leads')",
    );
    let differences: Vec<_> = in_file.symmetric_difference(&on_server).collect();
    assert!(differences.is_empty() && in_file.len() > 300, "{} columns, {differences:?}", in_file.len());
}

#[test]
fn first_version_on_a_server_is_migrated() {
    let Some((address, _)) = address_of_this_run() else { return };
    crate::store::db::postgres_first_version(&address).expect("a database");
    let dir = tempfile::tempdir().expect("a directory");
    let home = crate::config::Home { dir: dir.path().to_owned() };
    for _ in 0..2 {
        let store = Store::open_at(&home, Place::Postgres(address.clone())).expect("a migrated store");
        let count = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename IN ('chats', 'peers')";
        let count: i64 = store.read(|connection| Ok(connection.prepare_cached(count)?.query_row([], |row| row.get(0))?)).expect("a count");
        assert_eq!(count, 2);
        store.close();
    }
}

#[test]
fn task_that_reads_an_abandoned_store_ends() {
    const LIMIT: Duration = Duration::from_secs(60);
    let Some((address, _)) = address_of_this_run() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let home = crate::config::Home { dir: dir.path().to_owned() };
    let store = Store::open_at(&home, Place::Postgres(address)).expect("a store");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
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
    assert!(matches!(end, Err(mpsc::RecvTimeoutError::Disconnected)), "{end:?}");
}

/// Runs the tests again, on a server.
#[expect(clippy::disallowed_methods, reason = "the tests run again in another process")]
fn holds_on(server: &Server) {
    let tests = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["store::conformance::", "ops::round_trips::", "--test-threads=4"])
        .env(SERVER, server.socket_dir())
        .output()
        .expect("the tests start");
    let printed = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success(), "{printed}\n{}", String::from_utf8_lossy(&tests.stderr));
    assert!(!printed.contains("running 0 tests"), "{printed}");
}

fn skip(what: &str) {
    assert!(variable(REQUIRE_ALL).is_none(), "{what}");
    eprintln!("SKIPPED: the store's conformance tests on PostgreSQL, because {what}");
}

#[test]
fn conformance_holds_on_postgresql() {
    if variable(SERVER).is_some() {
        return;
    }
    match Server::start() {
        Some(server) => holds_on(&server),
        None => skip("it is not installed (apt-get install postgresql)"),
    }
}

#[test]
fn conformance_holds_on_the_newest_version_on_postgresql() {
    if variable(SERVER).is_some() {
        return;
    }
    match server::versions()[..] {
        [_, .., newest] => holds_on(&Server::start_version(newest).expect("it is installed")),
        _ => skip("there are no two versions of it"),
    }
}
