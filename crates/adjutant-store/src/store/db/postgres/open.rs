//! Opening the store on a server: the schema, and the session lock of the hub that uses it.

use super::address::Address;
use super::history::{LEADS_KEPT, check, history, lead_id};
use super::session::PgSession;
use super::{PgConnection, State};
use crate::config::PostgresAddress;
use crate::store::confirmed::ConfirmedNote;
use crate::store::db::{Error, Result};
use crate::store::migrations::{MIGRATIONS, Migration, missing, newest};
use crate::trace::RepeatedFailures;
use adjutant_core::confirmed::History;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The newest schema.
pub(in crate::store) const SCHEMA: &str = include_str!("schema.sql");
/// The oldest supported version of the server.
const SERVER_MIN: i64 = 150_000;
/// `adjt`, the class of the session lock. Its object is the schema.
pub(super) const LOCK_CLASS: i32 = 0x6164_6a74;
/// The schema, as the object of the lock.
pub(super) const SCHEMA_ID: &str =
    "(SELECT oid::bigint::int FROM pg_namespace WHERE nspname = current_schema())";
/// How long opening waits until another session has released the lock: that of a hub that was
/// killed ends within it.
const LOCK_TIMEOUT_MS: u32 = 5_000;
/// The problem of a hub whose store another hub uses since.
const TAKEN_OVER: &str = "another hub has used the store meanwhile; stop this one";
/// How long calls wait for a server that cannot be reached.
const UNREACHABLE_MAX: Duration = Duration::from_secs(60);
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// A session that a new one of the same hub replaces.
#[derive(Debug, Clone)]
pub(in crate::store) struct Replaced {
    backend: i32,
    epoch: i64,
    lead: String,
    pub(in crate::store) transaction: i64,
}

impl PgConnection {
    /// Returns what a new session needs to replace this one. `None`: it does not write.
    pub(in crate::store) fn replaced(&self) -> Option<Replaced> {
        Some(Replaced {
            backend: self.backend,
            epoch: self.epoch?,
            lead: self.lead.clone(),
            transaction: self.transaction.get(),
        })
    }
}

/// Opens the session that writes, creates the schema and takes the session lock. Waits for a server
/// that cannot be reached.
pub(in crate::store) fn writable(
    address: &PostgresAddress,
    replaced: Option<&Replaced>,
    note: &Arc<ConfirmedNote>,
) -> Result<PgConnection> {
    until_reached(|| lead(address, replaced, note))
}

/// Makes a session that holds the lock the one that writes. `leader`: how this hub describes itself
/// to others that share the store, as JSON.
pub(in crate::store) fn begin_lead(
    connection: PgConnection,
    leader: Option<&str>,
    note: &Arc<ConfirmedNote>,
) -> Result<PgConnection> {
    prepare_schema(&connection, &MIGRATIONS)?;
    // All parts of this statement see the rows from before it, so `ended` stores the transaction
    // number that `begun` sets to 0.
    let epoch = connection
        .prepare(&format!(
            "WITH ended AS (UPDATE leads SET last = hub.transaction FROM hub WHERE leads.epoch = hub.epoch),
                  forgotten AS (DELETE FROM leads WHERE epoch <= (SELECT epoch FROM hub) - {LEADS_KEPT}),
                  begun AS (UPDATE hub SET epoch = epoch + 1, transaction = 0, leader = ?1 RETURNING epoch)
             INSERT INTO leads (epoch, id) SELECT epoch, random_id() FROM begun"
        ))
        .insert("epoch", [leader])?;
    let lead = lead_id(&connection, epoch)?;
    ready(connection, epoch, lead, note)
}

/// Returns the history of the store, and its secret.
pub(in crate::store) fn history_of(connection: &PgConnection) -> Result<(History, String)> {
    history(connection)
}

/// Opens a session that reads. Waits for a server that cannot be reached.
pub(in crate::store) fn read_only(
    address: &PostgresAddress,
    note: Option<&ConfirmedNote>,
) -> Result<PgConnection> {
    until_reached(|| {
        let connection = connect(address)?;
        if let Some(note) = note {
            // Before `check`: a replica that lags behind would look like a database that was set
            // back.
            if connection.number("SELECT pg_is_in_recovery()::int")? != 0 {
                return Err(Error::Lost("the server follows another server".to_owned()));
            }
            check(&connection, note)?;
        }
        connection.run("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")?;
        Ok(connection)
    })
}

/// Returns whether the database has a store.
pub(in crate::store) fn has_store(address: &PostgresAddress) -> Result<bool> {
    let connection = until_reached(|| connect(address))?;
    Ok(connection.number(
        "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'hub'",
    )? > 0)
}

/// Tries until the server is reached, or for a limited time.
pub(super) fn until_reached<T>(mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let until = Instant::now() + UNREACHABLE_MAX;
    let mut pause = RETRY_FIRST;
    let (mut failures, mut has_failed) = (RepeatedFailures::default(), false);
    loop {
        match open() {
            Ok(connection) => {
                if has_failed {
                    tracing::info!("PostgreSQL can be used again");
                }
                return Ok(connection);
            }
            Err(Error::Lost(problem)) if Instant::now() < until => {
                has_failed = true;
                if let Some(times) = failures.note(&problem, Instant::now()) {
                    tracing::warn!(problem, times, "PostgreSQL cannot be used; trying again");
                }
                // There is no notification of a server that accepts connections again.
                std::thread::park_timeout(pause);
                pause = (pause * 2).min(RETRY_MAX);
            }
            Err(error) => return Err(error),
        }
    }
}

pub(super) fn connect(address: &PostgresAddress) -> Result<PgConnection> {
    let name = format!(
        "adj on {} (pid {})",
        rustix::system::uname().nodename().to_string_lossy(),
        std::process::id()
    );
    let address = address.clone().with_password();
    let address = address.map_err(|error| Error::Other(error.to_string()))?;
    let connection = PgConnection::new(PgSession::connect(&Address::new(&address, &name))?)?;
    let version = connection.number("SELECT current_setting('server_version_num')::bigint")?;
    if version < SERVER_MIN {
        return Err(Error::Other(format!(
            "PostgreSQL {} is too old: 15 or newer is needed",
            version / 10_000
        )));
    }
    if connection.number("SELECT (current_setting('server_encoding') = 'UTF8')::int")? == 0 {
        return Err(Error::Other(
            "the database is not encoded in UTF8".to_owned(),
        ));
    }
    // The server notices a hub whose machine or network has failed, or that is suspended in a
    // transaction: its locks would delay others for hours. A stronger setting of the server, such
    // as remote_apply, stays. Statements are planned once, as for SQLite: they name the constants
    // that matter to partial indexes. Many are planned while their tables are small, so indexes are
    // preferred whatever the server knows of sizes.
    connection.run(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local');
         SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off;
         SET client_min_messages = warning; SET idle_session_timeout = 0; SET idle_in_transaction_session_timeout = '2min';
         SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = '30s';
         SET statement_timeout = 0; SET lock_timeout = 0;
         SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'",
    )?;
    Ok(connection)
}

/// Connects for writing.
pub(super) fn connect_to_write(address: &PostgresAddress) -> Result<PgConnection> {
    let connection = connect(address)?;
    if connection.number(
        "SELECT (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::int",
    )? == 0
    {
        return Ok(connection);
    }
    Err(Error::Lost("the server is read-only: it follows another server, or default_transaction_read_only is on".to_owned()))
}

fn lead(
    address: &PostgresAddress,
    replaced: Option<&Replaced>,
    note: &Arc<ConfirmedNote>,
) -> Result<PgConnection> {
    let connection = connect_to_write(address)?;
    if let Some(replaced) = replaced {
        // The server may not have noticed that the old connection is gone. It may also have given
        // the process id to another session, so the name is compared, which contains the id of this
        // process.
        connection.run(&format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
             WHERE pid = {} AND datname = current_database() AND usename = current_user AND application_name = current_setting('application_name')",
            replaced.backend
        ))?;
    }
    let Some(replaced) = replaced else {
        lock(&connection)?;
        return begin_lead(connection, None, note);
    };
    // The lock was free for a moment: another hub may use the store since. One that does so in a
    // database that was set back may have the same epoch.
    let is_same = |connection: &PgConnection| {
        check(connection, note)?;
        let sql = format!(
            "SELECT epoch FROM hub JOIN leads USING (epoch) WHERE epoch = {} AND id = '{}'",
            replaced.epoch, replaced.lead
        );
        match connection.number(&sql) {
            Err(Error::NoRows) => Err(taken_over()),
            found => found.map(|_| ()),
        }
    };
    if crate::failpoint::is_unfenced() {
        let epoch = connection.number("SELECT epoch FROM hub")?;
        return ready(connection, epoch, replaced.lead.clone(), note);
    }
    // Before the lock, so that a hub that was replaced need not wait for the lock of the next
    // leader. After it, because another hub may have led in between.
    is_same(&connection)?;
    lock(&connection).map_err(|error| {
        if let Error::Other(holder) = error {
            Error::TakenOver(holder)
        } else {
            error
        }
    })?;
    is_same(&connection)?;
    ready(connection, replaced.epoch, replaced.lead.clone(), note)
}

/// The error of a hub whose store another hub uses since.
pub(in crate::store) fn taken_over() -> Error {
    Error::TakenOver(TAKEN_OVER.to_owned())
}

/// Returns a session that writes in an epoch, as a lead.
fn ready(
    mut connection: PgConnection,
    epoch: i64,
    lead: String,
    note: &Arc<ConfirmedNote>,
) -> Result<PgConnection> {
    connection.epoch = Some(epoch);
    connection.lead = lead;
    connection.note = Some(Arc::clone(note));
    connection
        .transaction
        .set(connection.number("SELECT transaction FROM hub")?);
    connection.state.set(State::Idle);
    Ok(connection)
}

/// Takes the session lock of the schema, which the server releases when this session ends.
fn lock(connection: &PgConnection) -> Result<()> {
    let Err(error) = lock_within(connection, LOCK_TIMEOUT_MS) else {
        return Ok(());
    };
    if let Error::Lost(_) = error {
        return Err(error);
    }
    let mut holders = connection.prepare(&format!(
        "SELECT coalesce(a.application_name, '?'), coalesce(host(a.client_addr), 'this machine'), to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS TZ')
         FROM pg_locks l JOIN pg_stat_activity a USING (pid)
         WHERE l.locktype = 'advisory' AND l.granted AND l.classid = {LOCK_CLASS} AND l.objid = {SCHEMA_ID}::bigint"
    ));
    let mut rows = holders.query([])?;
    let holder = match rows.next() {
        Some(row) => {
            let text = |column| {
                row.value(column).map(|value| {
                    if let crate::store::db::ValueRef::Text(text) = value {
                        String::from_utf8_lossy(text).into_owned()
                    } else {
                        String::new()
                    }
                })
            };
            format!(
                "{}, connected from {} since {}",
                text(0)?,
                text(1)?,
                text(2)?
            )
        }
        None => error.to_string(),
    };
    Err(Error::Other(format!(
        "another hub uses this store: {holder}; stop it first, or let both share the store (store_shared = true)"
    )))
}

/// Takes the session lock within a time.
pub(super) fn lock_within(connection: &PgConnection, limit_ms: u32) -> Result<()> {
    connection.run(&format!("SET lock_timeout = {limit_ms}"))?;
    let locked = connection.run(&format!(
        "SELECT pg_advisory_lock({LOCK_CLASS}, {SCHEMA_ID})"
    ));
    // Also after a failure: the session is used further, and its later statements have no such
    // limit.
    connection.run("SET lock_timeout = 0")?;
    locked.map(|_| ())
}

/// Creates the schema in an empty database, migrates an older one, and refuses a foreign or newer
/// one.
pub(in crate::store) fn prepare_schema(
    connection: &PgConnection,
    migrations: &[Migration],
) -> Result<()> {
    let tables =
        connection.number("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()")?;
    if tables == 0 {
        let makes = newest(migrations);
        // In one transaction: a hub that is killed here leaves no tables, and the next one starts
        // again.
        return connection.execute_batch(&format!(
            "BEGIN; {SCHEMA} INSERT INTO hub (one, schema_version, epoch, transaction) VALUES (1, {makes}, 0, 0); COMMIT"
        ));
    }
    let is_ours =
        connection.number("SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename IN ('hub', 'runs', 'events')")?;
    if is_ours != 3 {
        return Err(Error::Other(
            "the database contains other tables: give Adjutant a database of its own".to_owned(),
        ));
    }
    refuse_unreleased(connection)?;
    let found = connection.number("SELECT schema_version FROM hub")?;
    let needed = missing(found, migrations).map_err(|newer| {
        Error::Other(format!(
            "the database was written by a newer version of adj (schema {}, this one knows {}): use that version",
            newer.found, newer.known
        ))
    })?;
    for (migration, makes) in needed {
        connection.execute_batch(&format!(
            "BEGIN; {} UPDATE hub SET schema_version = {makes}; COMMIT",
            migration.postgres
        ))?;
    }
    Ok(())
}

/// Refuses a database with tables of a version before the first release.
///
/// # Errors
/// It is one.
pub(super) fn refuse_unreleased(connection: &PgConnection) -> Result<()> {
    let versions = connection.number(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('hub') AND attname = 'schema_version'",
    )?;
    if versions == 0 {
        return Err(Error::Other(
            "the database was written by an unreleased version of adj, whose stores this version cannot open: use another database".to_owned(),
        ));
    }
    Ok(())
}

/// Connects without a schema and a lock.
#[cfg(any(test, feature = "testing"))]
pub(in crate::store) fn unmanaged(address: &PostgresAddress) -> Result<PgConnection> {
    connect(address)
}
