//! Stores for tests, here and of the use cases: a fresh one for each test, in a file or on a
//! PostgreSQL server.

pub mod fixture;
pub mod server;

use crate::config::PostgresAddress;
use crate::store::StoreLocation;
use server::Server;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that names the server's socket directory to the process.
const SERVER: &str = "ADJ_TEST_POSTGRES";
const REQUIRE_ALL: &str = "ADJ_REQUIRE_ALL";

#[expect(clippy::disallowed_methods, reason = "a variable of the tests")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Returns whether this process runs the tests again, on a server.
#[must_use]
pub(crate) fn is_run_on_server() -> bool {
    variable(SERVER).is_some()
}

/// Creates a database for a fixture. `None`: the fixtures of this process use SQLite.
pub(crate) fn place_of_this_run() -> Option<StoreLocation> {
    address_of_this_run().map(|(address, _)| StoreLocation::Postgres(address))
}

/// Creates a database. Also returns the server's socket.
pub(crate) fn address_of_this_run() -> Option<(PostgresAddress, PathBuf)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let socket_dir = variable(SERVER)?.into_string().expect("a path");
    let name = format!(
        "t{}_{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    let address = |database: &str| {
        format!("postgres://adj@/{database}?host={socket_dir}")
            .parse::<PostgresAddress>()
            .expect("an address")
    };
    crate::store::db::postgres_batch(&address("postgres"), &format!("CREATE DATABASE {name}"))
        .expect("a database");
    Some((address(&name), Path::new(&socket_dir).join(".s.PGSQL.5432")))
}

/// Runs the tests whose names contain one of these texts again, in a process whose fixtures use a
/// server.
pub fn run_on_server(tests: &[&str]) {
    if is_run_on_server() {
        return;
    }
    match Server::start() {
        Some(server) => run_on(&server, tests),
        None => skip("it is not installed (apt-get install postgresql)"),
    }
}

/// The same with the newest of several installed versions.
pub fn run_on_newest_server(tests: &[&str]) {
    if is_run_on_server() {
        return;
    }
    match server::versions()[..] {
        [_, .., newest] => run_on(
            &Server::start_version(newest).expect("it is installed"),
            tests,
        ),
        _ => skip("there are no two versions of it"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the tests run again in another process"
)]
fn run_on(server: &Server, tests: &[&str]) {
    let tests = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(tests)
        .arg("--test-threads=4")
        .env(SERVER, server.socket_dir())
        .output()
        .expect("the tests start");
    let printed = String::from_utf8_lossy(&tests.stdout);
    assert!(
        tests.status.success(),
        "{printed}\n{}",
        String::from_utf8_lossy(&tests.stderr)
    );
    assert!(!printed.contains("running 0 tests"), "{printed}");
}

fn skip(what: &str) {
    assert!(variable(REQUIRE_ALL).is_none(), "{what}");
    eprintln!("SKIPPED: tests on PostgreSQL, because {what}");
}
