//! The versions of the schema. `schema.sql` of each engine is the newest one, and makes new stores.
//! A migration makes the next version from the one before, in one transaction.

/// The version of the first release.
const FIRST: i64 = 1;
/// One entry for each later version, oldest first. Entries of a release never change.
pub(super) const MIGRATIONS: [Migration; 0] = [];

/// The statements that make the next version.
pub(super) struct Migration {
    pub(super) sqlite: &'static str,
    pub(super) postgres: &'static str,
}

/// The schema is newer than those that this version knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NewerSchema {
    pub(super) found: i64,
    pub(super) known: i64,
}

/// Returns the newest version.
pub(super) fn newest(migrations: &[Migration]) -> i64 {
    FIRST + migrations.len() as i64
}

/// Returns the migrations that a store of a version needs, and the version that each one makes.
pub(super) fn missing(
    found: i64,
    migrations: &[Migration],
) -> Result<impl Iterator<Item = (&Migration, i64)>, NewerSchema> {
    let known = newest(migrations);
    if found > known {
        return Err(NewerSchema { found, known });
    }
    Ok(migrations
        .iter()
        .zip(FIRST + 1..)
        .filter(move |(_, makes)| *makes > found))
}
