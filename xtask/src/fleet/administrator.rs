//! What an administrator does to PostgreSQL, while the hubs use it.

use super::plan::{Fault, Kind};
use super::site::{DATABASE, Site};
use crate::lab::Result;
use std::process::{Child, Stdio};

/// The settings of a role that end statements and sessions.
const TIMEOUTS: [&str; 4] = [
    "statement_timeout",
    "lock_timeout",
    "idle_session_timeout",
    "idle_in_transaction_session_timeout",
];

/// The hubs' sessions.
const SESSIONS: &str = "FROM pg_stat_activity WHERE datname = 'fleet' AND pid <> pg_backend_pid()";

/// Statements that run as long as a fault lasts, if there are such.
pub struct Ongoing(Option<Child>);

/// Begins a fault.
pub fn begin(site: &Site, fault: &Fault) -> Result<Ongoing> {
    let terminate = format!("SELECT count(pg_terminate_backend(pid)) {SESSIONS}");
    let seconds = fault.length.as_secs_f64();
    let running = match fault.kind {
        Kind::ServerReadOnly => {
            run(
                site,
                &[
                    "ALTER SYSTEM SET default_transaction_read_only = on",
                    "SELECT pg_reload_conf()",
                    &terminate,
                ],
            )?;
            None
        }
        Kind::CommitsHang => {
            run(
                site,
                &[
                    "ALTER SYSTEM SET synchronous_standby_names = 'nobody'",
                    "SELECT pg_reload_conf()",
                ],
            )?;
            None
        }
        Kind::TimeoutsSet => {
            let set = TIMEOUTS.map(|name| format!("ALTER ROLE adj SET {name} = '150ms'"));
            let mut statements: Vec<&str> = set.iter().map(String::as_str).collect();
            statements.push(&terminate);
            run(site, &statements)?;
            None
        }
        Kind::ConnectionsRefused => {
            run(
                site,
                &[
                    &format!("ALTER DATABASE {DATABASE} ALLOW_CONNECTIONS false"),
                    &terminate,
                ],
            )?;
            None
        }
        Kind::SessionsTerminated | Kind::StatementsCancelled => {
            let (what, pause) = if fault.kind == Kind::SessionsTerminated {
                ("terminate", 0.3)
            } else {
                ("cancel", 0.02)
            };
            let storm = format!(
                "DO $$ DECLARE over TIMESTAMPTZ := clock_timestamp() + {seconds} * interval '1 second'; BEGIN
                   WHILE clock_timestamp() < over LOOP
                     PERFORM pg_stat_clear_snapshot(), pg_{what}_backend(pid) {SESSIONS};
                     PERFORM pg_sleep({pause});
                   END LOOP; END $$"
            );
            Some(start(site, &[&storm])?)
        }
        // One table, because the hubs lock several in another order.
        Kind::TableLocked => Some(start(
            site,
            &[&format!(
                "BEGIN; LOCK runs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({seconds}); COMMIT"
            )],
        )?),
        Kind::TablesRewritten => Some(start(site, &["VACUUM FULL"])?),
        _ => return Err("it is no fault of an administrator".into()),
    };
    Ok(Ongoing(running))
}

/// Ends a fault.
pub fn end(site: &Site, fault: &Fault, ongoing: Ongoing) -> Result<()> {
    match (fault.kind, ongoing.0) {
        (_, Some(running)) => finish(running),
        (Kind::ServerReadOnly, None) => run(
            site,
            &[
                "ALTER SYSTEM RESET default_transaction_read_only",
                "SELECT pg_reload_conf()",
            ],
        ),
        (Kind::CommitsHang, None) => run(
            site,
            &[
                "ALTER SYSTEM RESET synchronous_standby_names",
                "SELECT pg_reload_conf()",
            ],
        ),
        (Kind::TimeoutsSet, None) => run(site, &["ALTER ROLE adj RESET ALL"]),
        (Kind::ConnectionsRefused, None) => run(
            site,
            &[&format!("ALTER DATABASE {DATABASE} ALLOW_CONNECTIONS true")],
        ),
        _ => Ok(()),
    }
}

fn run(site: &Site, statements: &[&str]) -> Result<()> {
    finish(start(site, statements)?)
}

fn start(site: &Site, statements: &[&str]) -> Result<Child> {
    // Of this database, one that can be used also while the hubs' refuses connections.
    let is_own = statements
        .iter()
        .any(|sql| sql.contains("LOCK ") || sql.starts_with("VACUUM"));
    let mut psql = site.server.psql(if is_own { DATABASE } else { "postgres" });
    for setting in [
        "default_transaction_read_only = off",
        "statement_timeout = 0",
        "lock_timeout = 0",
        "synchronous_commit = local",
    ] {
        psql.args(["-c", &format!("SET {setting}")]);
    }
    for sql in statements {
        psql.args(["-c", sql]);
    }
    Ok(psql
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?)
}

fn finish(process: Child) -> Result<()> {
    let ended = process.wait_with_output()?;
    let printed = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() {
        Ok(())
    } else {
        Err(format!("psql: {printed}").into())
    }
}
