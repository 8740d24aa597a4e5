//! The hub with its store on a real PostgreSQL server.

#[path = "../../../adjutant-store/src/store/testing/server.rs"]
pub mod server;

use crate::support::{TestHome, kill, skip, tls_fixture};
use server::Server;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The variable that names the server's socket directory to a process whose homes are on it.
const SERVER: &str = "ADJ_TEST_POSTGRES";

/// Creates a database for a home and returns the setting. `None`: the homes of this process use
/// SQLite.
pub fn store_of_this_run() -> Option<String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let socket_dir = std::env::var(SERVER).ok()?;
    let name = format!(
        "t{}_{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    server::create_database(Path::new(&socket_dir), &name);
    Some(format!(
        "store = \"{}\"\n",
        server::url(Path::new(&socket_dir), &name)
    ))
}

/// Starts a server. `None`: PostgreSQL is not installed.
pub fn server() -> Option<Server> {
    let server = Server::start();
    if server.is_none() {
        skip("PostgreSQL is not installed (apt-get install postgresql)");
    }
    server
}

/// Starts a server, and a home whose store is on it. `None`: PostgreSQL is not installed.
fn home_on_a_server() -> Option<(TestHome, Server)> {
    let server = server()?;
    server.create_database("hub");
    Some((
        TestHome::with_config(&format!("store = \"{}\"\n", server.url("hub"))),
        server,
    ))
}

#[test]
fn questions_signals_and_chats_survive_a_hub_kill_on_postgresql() {
    let Some((home, _server)) = home_on_a_server() else {
        return;
    };
    home.start(
        "asker",
        "progress 50 half\nask \"Still there?\"\nask \"And now?\"\ndone yes",
    );
    home.until_status("asker", "waiting_parent_reply");
    assert_eq!(home.show("asker")["percent"], 50);
    home.ok(&["chat", "start", "plans"]);
    home.ok(&["chat", "post", "1", "remember the migration"]);
    let first = home.hub_pid();
    kill(first);
    home.until("the hub is gone", || {
        (!TestHome::is_alive(first)).then_some(())
    });
    home.ok(&["reply", "asker", "yes"]);
    home.until("the second question is open", || {
        (home.inbox(&[])[0]["question"] == "And now?").then_some(())
    });
    kill(home.hub_pid());
    home.ok(&["reply", "asker", "also"]);
    assert_eq!(home.finished("asker")["outcome"], "succeeded");
    assert_eq!(home.log("asker").matches("answer: ").count(), 2);
    assert_eq!(
        home.inbox(&["--all"]).as_array().map(Vec::len),
        Some(2),
        "no question was asked twice"
    );
    assert!(
        home.ok(&["chat", "show", "1"])
            .contains("remember the migration")
    );
    assert!(
        home.ok(&["chat", "search", "MIGRATION"])
            .contains("migration")
    );
    assert!(!home.home.database().exists(), "nothing is in a file");
    assert!(home.adj(&["doctor"]).out.contains("OK (PostgreSQL)"));
}

/// A store that a person dumps and restores moves up through all versions of the server.
#[test]
fn store_moves_up_through_all_versions_on_postgresql() {
    let versions = server::versions();
    if versions.len() < 2 {
        return skip(
            "there are no two versions of PostgreSQL (ADJ_POSTGRES names a directory with more of them)",
        );
    }
    let mut dump: Option<Vec<u8>> = None;
    for (n, version) in versions.iter().enumerate() {
        let server = Server::start_version(*version).expect("it is installed");
        match &dump {
            None => server.create_database("hub"),
            Some(dump) => server.restore("hub", dump),
        }
        let home = TestHome::with_config(&format!("store = \"{}\"\n", server.url("hub")));
        let name = format!("on-{version}");
        home.start(&name, "ask \"Which?\"\nprogress 50 half\ndone yes");
        home.until_status(&name, "waiting_parent_reply");
        home.ok(&["reply", &name, "this one"]);
        assert_eq!(
            home.finished(&name)["outcome"],
            "succeeded",
            "PostgreSQL {version}"
        );
        home.ok(&["chat", "start", &name]);
        home.ok(&[
            "chat",
            "post",
            &(n + 1).to_string(),
            &format!("written on {version}"),
        ]);
        let runs = home.json(&["ps", "-a"]);
        assert_eq!(
            runs.as_array().map(Vec::len),
            Some(n + 1),
            "PostgreSQL {version}: {runs}"
        );
        for earlier in &versions[..=n] {
            let found = home.ok(&["chat", "search", &format!("written {earlier}")]);
            assert!(
                found.contains("written") && found.contains(&format!("on-{earlier}")),
                "PostgreSQL {version}: {found}"
            );
        }
        assert!(home.json(&["stats"]).is_object());
        home.ok(&["stop"]);
        dump = Some(server.dump("hub"));
    }
}

/// Runs the tests of these modules again, with their homes on a server.
fn work_alike(modules: &[&str]) {
    if std::env::var_os(SERVER).is_some() {
        return;
    }
    let Some(server) = server() else { return };
    let mut tests = std::process::Command::new(std::env::current_exe().expect("this program"));
    // PostgreSQL stores no NUL in a text.
    tests.args(modules).args([
        "--test-threads=4",
        "--skip",
        "exported_chat_is_imported_without_loss",
    ]);
    let tests = tests
        .env(SERVER, server.socket_dir())
        .output()
        .expect("the tests start");
    let printed = String::from_utf8_lossy(&tests.stdout);
    assert!(
        tests.status.success() && !printed.contains("running 0 tests"),
        "{printed}\n{}",
        String::from_utf8_lossy(&tests.stderr)
    );
}

#[test]
fn approvals_work_alike_on_postgresql() {
    work_alike(&["approvals::", "attention::"]);
}

#[test]
fn chats_work_alike_on_postgresql() {
    work_alike(&["chats::keep", "chats::open", "chats::reading"]);
}

#[test]
fn delegations_work_alike_on_postgresql() {
    work_alike(&["delegation::", "signals::"]);
}

#[test]
fn peers_work_alike_on_postgresql() {
    work_alike(&["peers::"]);
}

#[test]
fn password_is_read_from_the_environment_or_a_private_file() {
    use std::os::unix::fs::PermissionsExt;
    let Some((home, mut server)) = home_on_a_server() else {
        return;
    };
    server.require_password("s3cret");
    let refused = home.adj(&["ps"]);
    assert!(
        refused.code != 0 && refused.err.contains("asks for a password: set PGPASSWORD"),
        "{refused:?}"
    );
    let named = home
        .command(&["ps"])
        .env("PGPASSWORD", "s3cret")
        .output()
        .expect("adj starts");
    assert!(named.status.success(), "{named:?}");
    home.ok(&["stop"]);
    let file = home.work().parent().expect("a directory").join(".pgpass");
    std::fs::write(&file, "localhost:5432:hub:adj:s3cret\n").expect("written");
    let readable = home.adj(&["ps"]);
    assert!(
        readable.code != 0 && readable.err.contains("chmod 600"),
        "{readable:?}"
    );
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("private");
    home.ok(&["ps"]);
    let log = std::fs::read_to_string(home.home.hub_log()).expect("a log");
    assert!(
        !log.contains("s3cret") && !home.ok(&["config"]).contains("s3cret"),
        "{log}"
    );
}

#[test]
fn certificate_of_the_server_is_verified() {
    let Some(mut server) = server() else { return };
    server.create_database("hub");
    let trusting = |authority: &str| format!("&sslrootcert={}", tls_fixture(authority).display());
    let home = |host: &str, port: u16, options: &str| {
        TestHome::with_config(&format!(
            "store = \"postgres://adj@{host}:{port}/hub?sslmode=verify-full{options}\"\n"
        ))
    };
    let is_refused = |home: &TestHome, problem: &str| {
        let started = Instant::now();
        let refused = home.adj(&["ps"]);
        assert!(
            refused.code != 0 && refused.err.contains(problem),
            "{problem}: {refused:?}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "{problem}: trying again does not help"
        );
    };
    let plain = server.listen(None);
    is_refused(
        &home("localhost", plain, &trusting("authority.pem")),
        "server does not support TLS",
    );

    let port = server.listen(Some([
        &tls_fixture("server.pem"),
        &tls_fixture("server.key"),
    ]));
    let mine = home("localhost", port, &trusting("authority.pem"));
    mine.ok(&["ps"]);
    let sessions = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let sessions = server.sql("hub", sessions);
    assert!(
        sessions.ends_with("|0") && sessions != "0|0",
        "sessions with and without TLS: {sessions}"
    );
    mine.ok(&["stop"]);
    is_refused(
        &home("127.0.0.1", port, &trusting("authority.pem")),
        "not valid for name",
    );
    is_refused(
        &home("localhost", port, &trusting("hub-authority.pem")),
        "UnknownIssuer",
    );
    is_refused(&home("localhost", port, ""), "UnknownIssuer");
    let port = server.listen(Some([
        &tls_fixture("expired.pem"),
        &tls_fixture("server.key"),
    ]));
    is_refused(
        &home("localhost", port, &trusting("authority.pem")),
        "expired",
    );
}

#[test]
fn calls_wait_while_postgresql_restarts() {
    let Some((home, mut server)) = home_on_a_server() else {
        return;
    };
    home.start("asker", "ask \"Which?\"\ndone yes");
    home.until_status("asker", "waiting_parent_reply");
    server.kill();
    std::thread::scope(|scope| {
        let replying = scope.spawn(|| home.ok(&["reply", "asker", "this one"]));
        server.resume();
        replying.join().expect("the reply is accepted");
    });
    assert_eq!(home.finished("asker")["outcome"], "succeeded");
    assert_eq!(home.inbox(&["--all"]).as_array().map(Vec::len), Some(1));
}

/// Makes the whole server read-only or writable again, also for the sessions that are open.
pub fn set_read_only(server: &Server, is_read_only: bool) {
    let change = if is_read_only {
        "ALTER SYSTEM SET default_transaction_read_only = on"
    } else {
        "ALTER SYSTEM RESET default_transaction_read_only"
    };
    let made = server
        .psql("postgres")
        .args([
            "-c",
            "SET default_transaction_read_only = off",
            "-c",
            change,
            "-c",
            "SELECT pg_reload_conf()",
        ])
        .output()
        .expect("psql starts");
    assert!(made.status.success(), "{made:?}");
}

/// Waits until the hub of a home has logged a text.
pub fn until_logged(home: &TestHome, text: &str) {
    let log = || std::fs::read_to_string(home.home.hub_log()).unwrap_or_default();
    home.until(&format!("{text:?} is logged"), || {
        log().contains(text).then_some(())
    });
}

/// A question of an agent is asked when the server can be used again, however long that takes.
#[test]
fn agent_waits_for_a_read_only_server() {
    let Some((home, server)) = home_on_a_server() else {
        return;
    };
    home.start(
        "asker",
        "write begun yes\nsleep 1\nask \"Meanwhile?\"\ndone yes",
    );
    home.until("it works", || {
        home.work().join("begun").exists().then_some(())
    });
    set_read_only(&server, true);
    std::thread::scope(|scope| {
        let posting = scope.spawn(|| home.adj(&["chat", "start", "meanwhile"]));
        until_logged(&home, "the server is read-only");
        assert!(!posting.is_finished(), "nothing can be acknowledged");
        set_read_only(&server, false);
        let posted = posting.join().expect("adj ends");
        assert_eq!(posted.code, 0, "{posted:?}");
    });
    home.until_status("asker", "waiting_parent_reply");
    home.ok(&["reply", "asker", "yes"]);
    assert_eq!(home.finished("asker")["outcome"], "succeeded");
}

#[test]
fn calls_wait_for_a_free_connection() {
    let Some(server) = server() else { return };
    // PostgreSQL checks the limit of a role only without superuser.
    server.sql("postgres", "CREATE ROLE few LOGIN CONNECTION LIMIT 0");
    server.sql("postgres", "CREATE DATABASE few OWNER few");
    let home = TestHome::with_config(&format!(
        "store = \"{}\"\n",
        server.url("few").replace("//adj@", "//few@")
    ));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| home.adj(&["ps"]));
        home.until("the hub has tried", || {
            let log = std::fs::read_to_string(home.home.hub_log()).unwrap_or_default();
            log.contains("too many connections")
                .then_some(())
                .or_else(|| call.is_finished().then_some(()))
        });
        server.sql("postgres", "ALTER ROLE few CONNECTION LIMIT -1");
        let called = call.join().expect("adj ends");
        assert_eq!(called.code, 0, "{called:?}");
    });
    let log = std::fs::read_to_string(home.home.hub_log()).expect("a log");
    assert!(log.contains("too many connections"), "{log}");
}

#[test]
fn connection_pooler_is_refused() {
    let Some(server) = server() else { return };
    server.create_database("hub");
    for mode in ["transaction", "session"] {
        let Some(pooler) = server::Pooler::start(&server, "hub", mode) else {
            return skip("PgBouncer is not installed (apt-get install pgbouncer)");
        };
        let home = TestHome::with_config(&format!(
            "store = \"{}&port=6432\"\n",
            server::url(pooler.socket_dir(), "hub")
        ));
        let started = Instant::now();
        let refused = home.adj(&["ps"]);
        assert!(
            refused.code != 0
                && refused
                    .err
                    .contains("a connection pooler (such as PgBouncer) answers"),
            "{mode}: {refused:?}"
        );
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "trying again does not help"
        );
    }
    let direct = TestHome::with_config(&format!("store = \"{}\"\n", server.url("hub")));
    direct.ok(&["ps"]);
}

/// Puts a dump in the place of a database that is in use.
pub fn set_back(server: &Server, database: &str, dump: &[u8]) {
    server.restore("earlier", dump);
    server.sql(
        "postgres",
        &format!("DROP DATABASE {database} WITH (FORCE)"),
    );
    server.sql(
        "postgres",
        &format!("ALTER DATABASE earlier RENAME TO {database}"),
    );
}

/// A run that has ended is live in the dump, another one is not in it, and a third one continues.
#[test]
fn hub_starts_again_when_its_database_is_set_back() {
    let Some((home, server)) = home_on_a_server() else {
        return;
    };
    home.start("ended", "ask \"Go on?\"\nsay over\ndone yes");
    home.start("working", "ask \"And this?\"\nsay over\ndone yes");
    for run in ["ended", "working"] {
        home.until_status(run, "waiting_parent_reply");
    }
    let dump = server.dump("hub");
    home.ok(&["reply", "ended", "yes"]);
    assert_eq!(home.finished("ended")["outcome"], "succeeded");
    home.start("lost", "say ready\nhang");
    home.until("it works", || {
        home.log("lost").contains("ready").then_some(())
    });
    let (pid, lost) = (home.hub_pid(), home.run_id("lost"));
    assert!(!home.processes_of(&lost).is_empty());
    set_back(&server, "hub", &dump);
    home.until("the inbox says so", || {
        home.adj(&["inbox"])
            .err
            .contains("was set back")
            .then_some(())
    });
    assert_eq!(home.hub_pid(), pid, "it starts again in its process");
    // Its supervisor has gone, and its facts are in its home.
    home.until("it has ended", || {
        Some(home.show("ended")).filter(|view| {
            !["running", "waiting_parent_reply"]
                .contains(&view["status"].as_str().unwrap_or_default())
        })
    });
    home.ok(&["reply", "working", "yes"]);
    assert_eq!(
        home.finished("working")["outcome"],
        "succeeded",
        "{}",
        home.log("working")
    );
    assert!(home.adj(&["show", "lost"]).code != 0);
    home.until("the agent of the lost run has ended", || {
        home.processes_of(&lost).is_empty().then_some(())
    });
    home.start("next", "done yes");
    assert_eq!(home.finished("next")["outcome"], "succeeded");
}

#[test]
fn uninstall_removes_the_home_and_keeps_the_database() {
    let Some((home, server)) = home_on_a_server() else {
        return;
    };
    home.start("one", "say hello");
    home.finished("one");
    home.ok(&["uninstall", "--home", "--yes"]);
    let left: Vec<_> = std::fs::read_dir(&home.home.dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["config.toml"]);
    let other = TestHome::with_config(&format!("store = \"{}\"\n", server.url("hub")));
    assert_eq!(other.json(&["ps", "-a"])[0]["name"], "one");
}

#[test]
fn unusable_configuration_opens_no_other_store() {
    let invalid =
        TestHome::with_config("store = \"postgres://adj@/hub?host=/nowhere\"\nnonsense = 1\n");
    assert_ne!(invalid.adj(&["ps"]).code, 0);
    assert!(!invalid.home.database().exists());
    let replace_by_directory = |home: &TestHome| {
        let config = home.home.dir.join("config.toml");
        std::fs::remove_file(&config)
            .and_then(|()| std::fs::create_dir(&config))
            .expect("a directory");
    };
    replace_by_directory(&invalid);
    assert_ne!(invalid.adj(&["ps"]).code, 0);
    assert!(!invalid.home.database().exists());
    let own = TestHome::new();
    own.ok(&["ps"]);
    own.ok(&["stop"]);
    replace_by_directory(&own);
    own.ok(&["ps"]);
}

#[test]
fn second_hub_on_a_database_is_refused_with_the_holder() {
    let Some((home, server)) = home_on_a_server() else {
        return;
    };
    home.ok(&["ps"]);
    let other = TestHome::with_config(&format!("store = \"{}\"\n", server.url("hub")));
    let refused = other.adj(&["ps"]);
    let holder = format!("(pid {})", home.hub_pid());
    assert!(
        refused.code != 0
            && refused.err.contains("another hub uses this store")
            && refused.err.contains(&holder),
        "{refused:?}"
    );
    home.ok(&["stop"]);
    other.ok(&["ps"]);
}
