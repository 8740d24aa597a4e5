//! Opening the database: versions, pragmas, migrations, and the reserved space for a full disk.

use crate::config::Home;
use crate::files;
use crate::store::StoreError;
use crate::store::db::sqlite::{Mode, SCHEMA, SqliteConnection as Engine, log};
use crate::store::db::{self, Connection, Error};
use crate::store::error::Problem;
use crate::store::migrations::{MIGRATIONS, Migration, missing, newest};
use crate::store::search::TEXT_FUNCTIONS;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// `adj1`, which identifies a database of Adjutant.
pub(super) const APPLICATION_ID: i64 = 0x6164_6a31;
/// `adjt`, which identified databases before the first release.
const UNRELEASED_ID: i64 = 0x6164_6a74;
/// Number of prepared statements that the connection for writes keeps, and a connection for reads.
const STATEMENTS_MAX: usize = 256;
const STATEMENTS_MAX_READER: usize = 128;
/// Free pages that the database keeps for its next rows.
const FREE_PAGES_KEPT: u32 = 256;
/// Pages that one transaction returns to the file system: about 20 ms.
const RELEASED_PAGES_MAX: u32 = 500;
/// The reserved space. It is released when the disk is so full that the wal-index cannot grow or a
/// run cannot be stopped.
const RESERVED_BYTES: u64 = 4 * 1024 * 1024;
/// How much of the reserved space is given to the write-ahead log at once, before another writer
/// fills the disk.
const LOG_SPACE_BYTES: u64 = 1024 * 1024;

/// Opens the only writable connection, and creates or migrates the schema.
pub(super) fn writable(home: &Home) -> Result<Connection, StoreError> {
    match open(home, &MIGRATIONS) {
        Err(StoreError::Full) => {
            tracing::error!("the disk is full: releasing the reserved space to open the store");
            match std::fs::remove_file(home.reserved_space()) {
                Ok(()) => open(home, &MIGRATIONS),
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

pub(super) fn open(home: &Home, migrations: &[Migration]) -> Result<Connection, StoreError> {
    create_files(home)?;
    let path = home.database();
    let mut engine =
        Engine::open(&path, Mode::ReadWrite, STATEMENTS_MAX, &TEXT_FUNCTIONS).map_err(opening)?;
    engine.watch_log().map_err(opening)?;
    let connection = Connection::from(engine);
    let content = Content::read(&connection).map_err(opening)?;
    let needed = content.check(path, migrations)?;
    if content.is_empty {
        // Takes effect before the first table only.
        connection
            .execute_batch("PRAGMA auto_vacuum = INCREMENTAL")
            .map_err(opening)?;
    }
    connection
        .read_row::<String>("PRAGMA journal_mode = WAL", [])
        .map_err(opening)?;
    connection
        .execute_batch(
            "PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF;
             PRAGMA cache_size = -2000; PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;",
        )
        .map_err(opening)?;
    let commit = |sql: &str, makes: i64| {
        connection
            .execute_batch(&format!(
                "BEGIN IMMEDIATE; {sql} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {makes}; COMMIT"
            ))
            .map_err(opening)
    };
    if content.is_empty {
        commit(SCHEMA, newest(migrations))?;
    }
    for (migration, makes) in needed {
        commit(migration.sqlite, makes)?;
    }
    Ok(connection)
}

/// Creates the file of the database with private permissions, before SQLite opens it. Files that
/// another user may have prepared are rejected. An existing file is not opened, because closing any
/// descriptor of it would release SQLite's locks.
fn create_files(home: &Home) -> Result<(), StoreError> {
    for file in [
        home.database(),
        home.database_log(),
        home.dir.join("adj.db-shm"),
        home.dir.join("adj.db-journal"),
    ] {
        files::make_private(&home.dir, &file)
            .map_err(|error| StoreError::Unusable(Problem::of(error)))?;
    }
    let path = home.database();
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Err(StoreError::Full),
        Err(error) => {
            let text = format!("{}: {error}", path.display());
            Err(StoreError::Sql(Problem::new(text, error)))
        }
    }
}

/// What a database contains.
#[derive(Debug, Clone, Copy)]
struct Content {
    application: i64,
    version: i64,
    is_empty: bool,
}

impl Content {
    fn read(connection: &Connection) -> db::Result<Self> {
        Ok(Self {
            application: connection.read_row("PRAGMA application_id", [])?,
            version: connection.read_row("PRAGMA user_version", [])?,
            is_empty: connection.read_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [])?,
        })
    }

    /// Returns the migrations that the database needs.
    fn check(
        self,
        path: PathBuf,
        migrations: &[Migration],
    ) -> Result<Vec<(&Migration, i64)>, StoreError> {
        if !self.is_empty && self.application == UNRELEASED_ID {
            return Err(StoreError::Unreleased { path });
        }
        if !self.is_empty && self.application != APPLICATION_ID {
            return Err(StoreError::NotAStore { path });
        }
        let version = if self.is_empty {
            newest(migrations)
        } else {
            self.version
        };
        let needed = missing(version, migrations).map_err(|newer| StoreError::Newer {
            path,
            found: newer.found,
            known: newer.known,
        })?;
        Ok(needed.collect())
    }
}

/// Returns some free pages of the database to the file system. Returns whether there are more.
pub(super) fn release_free_pages(connection: &Connection) -> Result<bool, StoreError> {
    let count = |pragma: &str| -> Result<u32, StoreError> {
        Ok(connection
            .prepare_cached(&format!("SELECT * FROM pragma_{pragma}"))?
            .read_row::<u32>([])?)
    };
    let free = count("freelist_count")?;
    if free <= FREE_PAGES_KEPT {
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
        error => StoreError::Sql(Problem::of(error)),
    }
}

/// Reserves space if it is missing and the disk has room.
pub(super) fn reserve_space(home: &Home) {
    if let Err(error) = allocate_reserved_space(home) {
        tracing::warn!(%error, "space cannot be reserved");
    }
}

/// Releases the reserved space to the write-ahead log, which allocates it before another process
/// can. After a crash in between, either the space is free or the log has blocks beyond its end;
/// the next hub reserves the space again.
pub(super) fn release_reserved_space(home: &Home) -> std::io::Result<()> {
    // Opened first, so that the space is allocated right after the removal. SQLite's locks are on
    // other files.
    let log = files::open_writable(&home.dir, &home.database_log());
    std::fs::remove_file(home.reserved_space())?;
    files::allocate_beyond_end(&log?, LOG_SPACE_BYTES)
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
