//! Opening the database: versions, pragmas, migrations, and the reserved space for a full disk.

use crate::config::Home;
use crate::files;
use crate::store::db::sqlite::{Connection as Engine, Mode, log};
use crate::store::db::{Connection, Error};
use crate::store::search::TEXT_FUNCTIONS;
use crate::store::{StoreError, credentials};
use std::os::unix::fs::OpenOptionsExt;

/// `adjt`, which identifies a database of Adjutant.
const APPLICATION_ID: i64 = 0x6164_6a74;
/// One entry for each schema version, oldest first. Entries are never changed, only added.
const MIGRATIONS: [&str; 24] = [
    include_str!("../db/sqlite/migrations/0001.sql"),
    include_str!("../db/sqlite/migrations/0002.sql"),
    include_str!("../db/sqlite/migrations/0003.sql"),
    include_str!("../db/sqlite/migrations/0004.sql"),
    include_str!("../db/sqlite/migrations/0005.sql"),
    include_str!("../db/sqlite/migrations/0006.sql"),
    include_str!("../db/sqlite/migrations/0007.sql"),
    include_str!("../db/sqlite/migrations/0008.sql"),
    include_str!("../db/sqlite/migrations/0009.sql"),
    include_str!("../db/sqlite/migrations/0010.sql"),
    include_str!("../db/sqlite/migrations/0011.sql"),
    include_str!("../db/sqlite/migrations/0012.sql"),
    include_str!("../db/sqlite/migrations/0013.sql"),
    include_str!("../db/sqlite/migrations/0014.sql"),
    include_str!("../db/sqlite/migrations/0015.sql"),
    include_str!("../db/sqlite/migrations/0016.sql"),
    include_str!("../db/sqlite/migrations/0017.sql"),
    include_str!("../db/sqlite/migrations/0018.sql"),
    include_str!("../db/sqlite/migrations/0019.sql"),
    include_str!("../db/sqlite/migrations/0020.sql"),
    include_str!("../db/sqlite/migrations/0021.sql"),
    include_str!("../db/sqlite/migrations/0022.sql"),
    include_str!("../db/sqlite/migrations/0023.sql"),
    include_str!("../db/sqlite/migrations/0024.sql"),
];
/// The schema version that removed credentials from the database.
const CREDENTIALS_MOVED: usize = 5;
/// Number of prepared statements that the connection for writes keeps, and a connection for reads.
const STATEMENTS_MAX: usize = 256;
const STATEMENTS_MAX_READER: usize = 128;
/// Free pages that the database keeps for its next rows.
const FREE_PAGES_KEPT: u32 = 256;
/// Pages that one transaction returns to the file system: about 20 ms.
const RELEASED_PAGES_MAX: u32 = 500;
/// The reserved space. It is released when the disk is so full that the wal-index cannot grow or a run cannot be
/// stopped.
const RESERVED_BYTES: u64 = 4 * 1024 * 1024;
/// How much of the reserved space is given to the write-ahead log at once, before another writer fills the disk.
#[cfg(target_os = "linux")]
const LOG_SPACE_BYTES: u64 = 1024 * 1024;

/// Opens the only writable connection and migrates the schema.
pub(super) fn writable(home: &Home) -> Result<Connection, StoreError> {
    match open(home) {
        Err(StoreError::Full) => {
            tracing::error!("the disk is full: releasing the reserved space to open the store");
            match std::fs::remove_file(home.reserved_space()) {
                Ok(()) => open(home),
                Err(_) => Err(StoreError::Full),
            }
        }
        Ok(connection) => {
            reserve_space(home);
            log::preallocate(home);
            Ok(connection)
        }
        Err(error) => Err(error),
    }
}

fn open(home: &Home) -> Result<Connection, StoreError> {
    let path = home.database();
    // A file that another user may have prepared is rejected.
    for file in [
        home.database(),
        home.database_log(),
        home.dir.join("adj.db-shm"),
        home.dir.join("adj.db-journal"),
    ] {
        files::make_private(&home.dir, &file)
            .map_err(|error| StoreError::Unusable(error.to_string()))?;
    }
    // Created here with private permissions, before SQLite opens it. An existing file is not opened, because
    // closing any descriptor of it would release SQLite's locks.
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    if let Err(error) = made.map(drop)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(if error.kind() == std::io::ErrorKind::StorageFull {
            StoreError::Full
        } else {
            StoreError::Sql(format!("{}: {error}", path.display()))
        });
    }
    let mut engine =
        Engine::open(&path, Mode::ReadWrite, STATEMENTS_MAX, &TEXT_FUNCTIONS).map_err(opening)?;
    engine.watch_log().map_err(opening)?;
    let connection = Connection::from(engine);
    let found: i64 = connection
        .query_row("PRAGMA application_id", [], |row| row.get(0))
        .map_err(opening)?;
    let version: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(opening)?;
    let empty: bool = connection
        .query_row(
            "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)",
            [],
            |row| row.get(0),
        )
        .map_err(opening)?;
    if !empty && found != APPLICATION_ID {
        return Err(StoreError::NotAStore { path });
    }
    let known = MIGRATIONS.len() as i64;
    if version > known {
        return Err(StoreError::Newer {
            path,
            found: version,
            known,
        });
    }
    if empty {
        // Takes effect before the first table only.
        connection
            .execute_batch("PRAGMA auto_vacuum = INCREMENTAL")
            .map_err(opening)?;
    }
    connection
        .query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        .map_err(opening)?;
    connection
        .execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;
             PRAGMA cache_size = -2000; PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;",
        )
        .map_err(opening)?;
    for (index, migration) in MIGRATIONS
        .iter()
        .enumerate()
        .skip(usize::try_from(version).unwrap_or(0))
    {
        let next = index + 1;
        connection
            .execute_batch(&format!("BEGIN IMMEDIATE; {migration} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {next};"))
            .map_err(opening)?;
        if next == CREDENTIALS_MOVED {
            credentials::move_to_files(&connection, home)?;
        }
        connection.execute_batch("COMMIT").map_err(opening)?;
    }
    wipe(&connection)?;
    Ok(connection)
}

/// Rewrites the database after a migration removed secrets, so that its free pages and log do not retain them. If
/// the disk is too full, the next opening retries.
fn wipe(connection: &Connection) -> Result<(), StoreError> {
    let is_due: bool = connection
        .query_row("SELECT EXISTS (SELECT 1 FROM wipes)", [], |row| row.get(0))
        .map_err(opening)?;
    if !is_due {
        return Ok(());
    }
    match connection.execute_batch("VACUUM; DELETE FROM wipes; PRAGMA wal_checkpoint(TRUNCATE);") {
        Err(error) => {
            tracing::warn!(%error, "keys stored by an earlier version cannot be wiped from free pages of the database yet")
        }
        Ok(()) => tracing::info!("keys stored by an earlier version were wiped from the database"),
    }
    Ok(())
}

/// Returns some free pages of the database to the file system. Returns whether there are more.
pub(super) fn release_free_pages(connection: &Connection) -> Result<bool, StoreError> {
    let count = |pragma: &str| -> Result<u32, StoreError> {
        Ok(connection
            .prepare_cached(&format!("SELECT * FROM pragma_{pragma}"))?
            .query_row([], |row| row.get::<u32>(0))?)
    };
    let free = count("freelist_count")?;
    // The database of an earlier version cannot release them.
    if count("auto_vacuum")? == 0 || free <= FREE_PAGES_KEPT {
        return Ok(false);
    }
    let released = (free - FREE_PAGES_KEPT).min(RELEASED_PAGES_MAX);
    let mut statement =
        connection.prepare_cached(&format!("PRAGMA incremental_vacuum({released})"))?;
    let mut steps = statement.query([])?;
    // Each step releases a page.
    while steps.next()?.is_some() {}
    Ok(free - FREE_PAGES_KEPT > released)
}

/// Opens a read-only connection.
pub(super) fn read_only(home: &Home) -> Result<Connection, StoreError> {
    let connection = Connection::from(
        Engine::open(
            &home.database(),
            Mode::ReadOnly,
            STATEMENTS_MAX_READER,
            &TEXT_FUNCTIONS,
        )
        .map_err(opening)?,
    );
    connection
        .execute_batch(
            "PRAGMA trusted_schema = OFF; PRAGMA cache_size = -1000; PRAGMA query_only = ON;",
        )
        .map_err(opening)?;
    Ok(connection)
}

/// Converts an error of opening. An I/O error of the wal-index then means a full disk.
fn opening(error: Error) -> StoreError {
    match error {
        Error::Full | Error::SharedMemory(_) => StoreError::Full,
        error => StoreError::Sql(error.to_string()),
    }
}

/// Reserves space if it is missing and the disk has room.
pub(super) fn reserve_space(home: &Home) {
    if let Err(error) = allocate_reserved_space(home) {
        tracing::warn!(%error, "space cannot be reserved");
    }
}

/// Releases the reserved space to the write-ahead log, which allocates it before another process can. After a crash
/// in between, either the space is free or the log has blocks beyond its end; the next hub reserves the space
/// again.
pub(super) fn release_reserved_space(home: &Home) -> std::io::Result<()> {
    // Opened first, so that the space is allocated right after the removal. SQLite's locks are on other files.
    let log = files::open_writable(&home.dir, &home.database_log());
    std::fs::remove_file(home.reserved_space())?;
    preallocate_log_space(&log?)
}

/// Allocates blocks beyond the end of a file.
#[cfg(target_os = "linux")]
fn preallocate_log_space(file: &std::fs::File) -> std::io::Result<()> {
    let end = file.metadata()?.len();
    Ok(rustix::fs::fallocate(
        file,
        rustix::fs::FallocateFlags::KEEP_SIZE,
        end,
        LOG_SPACE_BYTES,
    )?)
}

#[cfg(not(target_os = "linux"))]
fn preallocate_log_space(_file: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

fn allocate_reserved_space(home: &Home) -> std::io::Result<()> {
    let file = files::open_or_create(&home.dir, &home.reserved_space())?;
    files::make_private(&home.dir, &home.reserved_space())?;
    if file.metadata()?.len() < RESERVED_BYTES {
        rustix::fs::fallocate(
            &file,
            rustix::fs::FallocateFlags::empty(),
            0,
            RESERVED_BYTES,
        )?;
    }
    Ok(())
}

/// Opens the file of a home without its schema and settings.
#[cfg(test)]
pub(super) fn unmanaged(home: &Home) -> Connection {
    Engine::open(
        &home.database(),
        Mode::ReadWrite,
        STATEMENTS_MAX,
        &TEXT_FUNCTIONS,
    )
    .expect("a database")
    .into()
}

#[cfg(test)]
mod tests;
