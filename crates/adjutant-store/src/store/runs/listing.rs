//! Lists of runs.

use super::counts::is_queue_longer;
use crate::store::StoreError;
use crate::store::db::{Connection, params};
#[cfg(test)]
use crate::store::records::run::list_statement;
use crate::store::records::run::{Run, list};
use adjutant_core::{Principal, RunId, SteadyTime};

/// A page of runs, and the number of further ones.
#[derive(Debug, Clone)]
pub struct Page {
    pub runs: Vec<Run>,
    /// At most the number that the read counts.
    pub more: u64,
}

/// Maximum number of runs beyond a page that are counted.
pub const MORE_COUNTED_MAX: u32 = 1_000;
/// Maximum number of queued runs that are sorted. If more are queued, they are searched from the
/// newest run on.
const SORTED_QUEUE_MAX: u32 = 1_000;
/// Maximum number of runs that such a search passes.
const SEARCHED_MAX: u32 = 20_000;

/// The states that a list has in this order: a page that is too small leaves out finished runs
/// first, then queued ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Live,
    Stopped,
    Queued,
    Finished,
}

impl Group {
    const ALL: [Self; 4] = [Self::Live, Self::Stopped, Self::Queued, Self::Finished];

    /// Reads the newest runs of the group that fulfil a condition.
    fn newest(
        self,
        connection: &Connection,
        owner: &str,
        condition: &str,
        limit: u32,
    ) -> Result<Vec<Run>, StoreError> {
        let values = params![owner, limit];
        match self {
            Self::Live => list(
                connection,
                &sorted(
                    "runs_live",
                    "state IN ('starting', 'running', 'stopping')",
                    condition,
                    owner,
                ),
                values,
            ),
            Self::Stopped => list(
                connection,
                &sorted("runs_stopped", "state = 'stopped'", condition, owner),
                values,
            ),
            Self::Queued if !owner.is_empty() => {
                list(connection, &queued_of_owner(condition), values)
            }
            Self::Queued => {
                if is_queue_longer(connection, SORTED_QUEUE_MAX)? {
                    let found = list(connection, &queued_of_newest(condition), values)?;
                    if found.len() >= limit as usize {
                        return Ok(found);
                    }
                }
                list(
                    connection,
                    &sorted("runs_queue", "state = 'queued'", condition, owner),
                    values,
                )
            }
            // Names the other states, so that it is read in the order of the runs and not by an
            // index of the times of their ends.
            Self::Finished => {
                let group = "state NOT IN ('starting', 'running', 'stopping', 'stopped', 'queued')";
                list(
                    connection,
                    &format!(
                        "WHERE {group} AND {condition} AND {} ORDER BY no DESC LIMIT ?2",
                        of_owner(owner)
                    ),
                    values,
                )
            }
        }
    }
}

/// Reads a group by its index. Only numbers are sorted, not whole rows.
fn sorted(index: &str, group: &str, condition: &str, owner: &str) -> String {
    let newest = format!(
        "SELECT no FROM runs INDEXED BY {index} WHERE {group} AND {condition} AND {} ORDER BY no DESC LIMIT ?2",
        of_owner(owner)
    );
    format!("WHERE no IN ({newest}) ORDER BY no DESC")
}

/// The expression keeps planners from reading and sorting the index of the whole queue.
const IS_QUEUED: &str = "state || '' = 'queued'";

/// Finds the queued runs of an owner among its unfinished ones, however many are queued.
fn queued_of_owner(condition: &str) -> String {
    format!(
        "INDEXED BY runs_unfinished WHERE state <> 'finished' AND owner = ?1 AND {IS_QUEUED} AND {condition} ORDER BY no DESC LIMIT ?2"
    )
}

/// Finds queued runs among the newest ones.
fn queued_of_newest(condition: &str) -> String {
    let of_all = of_owner("");
    format!(
        "WHERE no > (SELECT max(no) FROM runs) - {SEARCHED_MAX} AND {of_all} AND {IS_QUEUED} AND {condition} ORDER BY no DESC LIMIT ?2"
    )
}

/// Returns the statements that list queued runs.
#[cfg(test)]
pub(in crate::store) fn statements_of_queued() -> Vec<String> {
    let any = "TRUE";
    [
        queued_of_owner(any),
        queued_of_newest(any),
        sorted("runs_queue", "state = 'queued'", any, ""),
    ]
    .iter()
    .map(|rest| list_statement(rest))
    .collect()
}

/// Reads up to `limit` runs of an owner (`None`: of all owners): live ones, then stopped, queued
/// and, with `all`, finished ones, each newest first. Counts up to [`MORE_COUNTED_MAX`] further
/// runs.
///
/// # Errors
/// A failure of the store.
pub fn runs_newest(
    connection: &Connection,
    owner: Option<&Principal>,
    all: bool,
    limit: u32,
) -> Result<Page, StoreError> {
    let owner = owner.map(ToString::to_string).unwrap_or_default();
    let mut runs = Vec::new();
    for group in Group::ALL
        .into_iter()
        .filter(|group| all || *group != Group::Finished)
    {
        let left = limit.saturating_sub(u32::try_from(runs.len()).unwrap_or(u32::MAX));
        if left > 0 {
            runs.extend(group.newest(connection, &owner, "TRUE", left)?);
        }
    }
    let more = if runs.len() < limit as usize {
        0
    } else {
        counted(connection, &owner, all, i64::MAX, limit)?.saturating_sub(runs.len() as u64)
    };
    Ok(Page { runs, more })
}

/// Reads up to `limit` unfinished runs of an owner (`None`: of all owners): live ones, stopped ones
/// and queued ones that fulfil a condition, in this order, each newest first.
pub(in crate::store) fn unfinished_with(
    connection: &Connection,
    owner: Option<&Principal>,
    stopped: &str,
    queued: &str,
    limit: u32,
) -> Result<Vec<Run>, StoreError> {
    let owner = owner.map(ToString::to_string).unwrap_or_default();
    let mut runs = Vec::new();
    for (group, condition) in [
        (Group::Live, "TRUE"),
        (Group::Stopped, stopped),
        (Group::Queued, queued),
    ] {
        let left = limit.saturating_sub(u32::try_from(runs.len()).unwrap_or(u32::MAX));
        if left > 0 {
            runs.extend(group.newest(connection, &owner, condition, left)?);
        }
    }
    Ok(runs)
}

/// Reads up to `limit` runs of an owner (`None`: of all owners) that were dispatched before a run
/// (`None`: from the newest on), newest first. Without `all`, only unfinished ones. Counts up to
/// [`MORE_COUNTED_MAX`] further runs.
///
/// # Errors
/// A failure of the store.
pub fn runs_before(
    connection: &Connection,
    owner: Option<&Principal>,
    all: bool,
    before: Option<&Run>,
    limit: u32,
) -> Result<Page, StoreError> {
    let owner = owner.map(ToString::to_string).unwrap_or_default();
    let before = before.map_or(i64::MAX, |run| run.no);
    let state = if all { "TRUE" } else { "state <> 'finished'" };
    let condition = format!(
        "WHERE {state} AND {} AND no < ?3 ORDER BY no DESC LIMIT ?2",
        of_owner(&owner)
    );
    let runs = list(connection, &condition, params![owner, limit, before])?;
    let more = if runs.len() < limit as usize {
        0
    } else {
        counted(connection, &owner, all, before, limit)?.saturating_sub(runs.len() as u64)
    };
    Ok(Page { runs, more })
}

/// Returns the condition for the runs of the owner `?1`. Empty: of all owners.
fn of_owner(owner: &str) -> &'static str {
    if owner.is_empty() {
        "?1 = ''"
    } else {
        "owner = ?1"
    }
}

/// Counts the runs of an owner that were dispatched before a number, up to [`MORE_COUNTED_MAX`]
/// more than a limit.
fn counted(
    connection: &Connection,
    owner: &str,
    all: bool,
    before: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    let state = if all {
        "INDEXED BY runs_owner WHERE TRUE"
    } else {
        "INDEXED BY runs_unfinished WHERE state <> 'finished'"
    };
    // `no + 0`, so that no planner reads the runs in the order of their numbers, finished ones too.
    let sql = format!(
        "SELECT count(*) FROM (SELECT 1 FROM runs {state} AND {} AND no + 0 < ?3 LIMIT ?2) AS counted",
        of_owner(owner)
    );
    let count: i64 = connection.prepare_cached(&sql)?.read_row(params![
        owner,
        limit.saturating_add(MORE_COUNTED_MAX),
        before
    ])?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Reads every run that may have a live attempt.
///
/// # Errors
/// A failure of the store.
pub fn live_runs(connection: &Connection) -> Result<Vec<Run>, StoreError> {
    list(
        connection,
        "WHERE state IN ('starting', 'running', 'stopping') ORDER BY no",
        [],
    )
}

/// A position in the list of finished runs, which stays valid when runs are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedPosition {
    settled_at: i64,
    id: RunId,
}

/// Reads up to `limit` runs that finished before `before`, oldest first, after a position. Returns
/// the position after them.
///
/// # Errors
/// A failure of the store.
pub fn old_finished(
    connection: &Connection,
    before: SteadyTime,
    after: Option<FinishedPosition>,
    limit: u32,
) -> Result<(Vec<Run>, Option<FinishedPosition>), StoreError> {
    // The first condition on the time limits the part of the index that is read.
    let rest = "WHERE state = 'finished' AND settled_at < ?1 AND settled_at >= ?2 AND (settled_at > ?2 OR id > ?3) ORDER BY settled_at, id LIMIT ?4";
    let (at, id) = after.map_or((i64::MIN, String::new()), |after| {
        (after.settled_at, after.id.to_string())
    });
    let runs = list(connection, rest, params![before.0, at, id, limit])?;
    let Some(last) = runs.last().map(|run| run.id) else {
        return Ok((runs, after));
    };
    let settled_at = connection
        .prepare_cached("SELECT settled_at FROM runs WHERE id = ?1")?
        .read_row::<i64>([last.to_string()])?;
    Ok((
        runs,
        Some(FinishedPosition {
            settled_at,
            id: last,
        }),
    ))
}
