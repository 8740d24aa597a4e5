//! Finds one run.

use crate::store::StoreError;
use crate::store::db::{Connection, params};
use crate::store::records::run::{Run, list};
use adjutant_core::name::LAST_RUN;
use adjutant_core::{Denied, Principal, RunId};

/// Reads one run.
///
/// # Errors
/// A failure of the store.
pub fn run_by_id(connection: &Connection, id: RunId) -> Result<Option<Run>, StoreError> {
    Ok(list(connection, "WHERE id = ?1", [id.to_string()])?.pop())
}

/// Returns the newest names, of the runs of `owner` or of all.
///
/// # Errors
/// A failure of the store.
pub fn newest_run_names(
    connection: &Connection,
    owner: Option<&Principal>,
    count: i64,
) -> Result<Vec<String>, StoreError> {
    let mut statement = match owner {
        Some(_) => connection
            .prepare_cached("SELECT name FROM runs WHERE owner = ?2 ORDER BY no DESC LIMIT ?1")?,
        None => connection.prepare_cached("SELECT name FROM runs ORDER BY no DESC LIMIT ?1")?,
    };
    Ok(match owner {
        Some(owner) => statement.read_rows(params![count, owner.to_string()])?,
        None => statement.read_rows(params![count])?,
    })
}

/// Finds a run by id, name, unique prefix of either, or `@last`, among the runs of `owner` (`None`:
/// among all runs).
///
/// # Errors
/// `NotFound`, or `Ambiguous` with the candidates.
pub fn run_by_ref(
    connection: &Connection,
    given: &str,
    owner: Option<&Principal>,
) -> Result<Run, StoreError> {
    let visible = |run: &Run| owner.is_none_or(|owner| run.owner == *owner);
    let not_found = || StoreError::from(Denied::not_found("run", given));
    if let Ok(id) = RunId::parse(given) {
        return run_by_id(connection, id)?
            .filter(visible)
            .ok_or_else(not_found);
    }
    if given == LAST_RUN {
        let newest = match owner {
            Some(owner) => list(
                connection,
                "WHERE owner = ?1 ORDER BY no DESC LIMIT 1",
                [owner.to_string()],
            )?,
            None => list(connection, "ORDER BY no DESC LIMIT 1", [])?,
        };
        return newest.into_iter().next().ok_or_else(not_found);
    }
    let plausible = !given.is_empty()
        && given.len() <= 64
        && given
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !plausible {
        return Err(not_found());
    }
    if let Some(run) = list(connection, "WHERE name = ?1", [given])?
        .pop()
        .filter(visible)
    {
        return Ok(run);
    }
    // `{` is the character after `z`, so a prefix search is a range of the index instead of a scan.
    let upper = format!("{given}{{");
    let mut found = match owner {
        Some(owner) => list(
            connection,
            "WHERE owner = ?3 AND ((name >= ?1 AND name < ?2) OR (id >= ?1 AND id < ?2)) LIMIT 6",
            params![given, upper, owner.to_string()],
        )?,
        None => list(
            connection,
            "WHERE (name >= ?1 AND name < ?2) OR (id >= ?1 AND id < ?2) LIMIT 6",
            params![given, upper],
        )?,
    };
    match found.len() {
        0 => Err(not_found()),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<_> = found.iter().map(|run| run.name.as_str()).collect();
            Err(Denied::Ambiguous {
                given: given.to_owned(),
                candidates: names.join(", "),
            }
            .into())
        }
    }
}
