//! Reading budgets.

use crate::store::StoreError;
use crate::store::db::{Connection, params, row, select};
use crate::store::ids::run_id;
use adjutant_core::budget::{AMOUNT_MAX, Account, WARN_PERCENT};
use adjutant_core::{Budget, BudgetKind, RunId, SteadyTime, StopReason};
use std::collections::BTreeSet;

/// One budget of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetRow {
    /// The run that has the budget.
    pub run: RunId,
    pub kind: BudgetKind,
    pub account: Account,
    /// The run from whose budget the amount was transferred.
    pub lender: Option<RunId>,
    /// Whether this budget or one above it is hard.
    pub is_hard: bool,
    pub is_warned: bool,
    /// Attempts and requests that were charged the minimum because their usage was not reported.
    pub unstated: i64,
    /// Tokens whose cost is not known.
    pub unpriced: i64,
}

impl BudgetRow {
    /// Formats the used amount for people.
    #[must_use]
    pub fn text(&self) -> String {
        let Self {
            kind,
            account:
                Account {
                    limit,
                    used,
                    reserved,
                },
            ..
        } = *self;
        let reserved = if reserved > 0 {
            format!(", {} reserved below", kind.text(reserved))
        } else {
            String::new()
        };
        format!("{} of {}{reserved}", kind.text(used), kind.text(limit))
    }
}

row! {
    /// The columns of a budget.
    struct Columns {
        run: String,
        kind: String,
        amount: i64,
        used: i64,
        reserved: i64,
        lender: Option<RunId>,
        is_hard: bool,
        is_warned: bool,
        unstated: i64,
        unpriced: i64,
    }
}

impl Columns {
    fn budget(self) -> Result<BudgetRow, StoreError> {
        let Self {
            run,
            kind,
            amount,
            used,
            reserved,
            lender,
            is_hard,
            is_warned,
            unstated,
            unpriced,
        } = self;
        let kind = BudgetKind::from_word(&kind)
            .ok_or_else(|| StoreError::Corrupt(format!("budget {kind} of run {run}")))?;
        Ok(BudgetRow {
            run: run_id(&run)?,
            kind,
            account: Account {
                limit: amount,
                used,
                reserved,
            },
            lender,
            is_hard,
            is_warned,
            unstated,
            unpriced,
        })
    }
}

/// Returns a run and the runs above it, nearest first.
pub(super) fn run_and_ancestors(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<RunId>, StoreError> {
    let sql =
        "WITH RECURSIVE up (id, parent, depth) AS (SELECT id, parent, 0 FROM runs WHERE id = ?1
         UNION ALL SELECT r.id, r.parent, up.depth + 1 FROM up JOIN runs r ON r.id = up.parent)
         SELECT id FROM up ORDER BY depth";
    Ok(connection
        .prepare_cached(sql)?
        .read_rows([run.to_string()])?)
}

/// Reads the open budgets of a kind of these runs as they are stored, in this order.
pub(super) fn own_budgets(
    connection: &Connection,
    runs: &[RunId],
    kind: BudgetKind,
) -> Result<Vec<BudgetRow>, StoreError> {
    let mut statement = connection.prepare_cached(select!(
        Columns,
        "FROM budgets WHERE run = ?1 AND kind = ?2 AND is_returned = 0"
    ))?;
    let mut found = Vec::new();
    for run in runs {
        let rows: Vec<Columns> = statement.read_rows(params![run.to_string(), kind.word()])?;
        for row in rows {
            found.push(row.budget()?);
        }
    }
    Ok(found)
}

/// Returns whether any run has a budget. Most stores have none.
///
/// # Errors
/// A failure of the store.
pub fn has_budgets(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM budgets)")?
        .read_row([])?)
}

/// Reads the budgets on which a run draws: of each kind, its own or the nearest above it. Includes
/// the time that live runs have used so far.
///
/// # Errors
/// A failure of the store.
pub fn budgets_of(
    connection: &Connection,
    run: RunId,
    now: SteadyTime,
) -> Result<Vec<BudgetRow>, StoreError> {
    if !has_budgets(connection)? {
        return Ok(Vec::new());
    }
    let chain = run_and_ancestors(connection, run)?;
    let mut found = Vec::new();
    for kind in BudgetKind::ALL {
        let rows = own_budgets(connection, &chain, kind)?;
        let Some(mut row) = rows.first().copied() else {
            continue;
        };
        row.is_hard = rows.iter().any(|row| row.is_hard);
        if kind == BudgetKind::Time {
            row.account = row
                .account
                .charge(active_below(connection, row.run, kind, now)?.0);
        }
        found.push(row);
    }
    Ok(found)
}

/// The runs that draw on a budget of the run `?1` of the kind `?2`.
const DRAWING: &str = "WITH RECURSIVE down (id) AS (SELECT ?1 UNION ALL SELECT r.id FROM down JOIN runs r ON r.parent = down.id
     WHERE NOT EXISTS (SELECT 1 FROM budgets b WHERE b.run = r.id AND b.kind = ?2 AND b.is_returned = 0))";

/// Returns the active time of the unfinished runs that draw on a budget, and the number of active
/// ones.
pub(super) fn active_below(
    connection: &Connection,
    run: RunId,
    kind: BudgetKind,
    now: SteadyTime,
) -> Result<(i64, i64), StoreError> {
    let sql = format!(
        "{DRAWING} SELECT coalesce(sum(active_ms + larger(0, ?3 - coalesce(active_since, ?3))), 0),
         count(*) FILTER (WHERE active_since IS NOT NULL AND state IN ('starting', 'running'))
         FROM down CROSS JOIN runs r WHERE r.id = down.id AND r.state <> 'finished'"
    );
    let (sum, active): (i64, i64) =
        connection
            .prepare_cached(&sql)?
            .read_row(params![run.to_string(), kind.word(), now.0])?;
    Ok((sum.clamp(0, AMOUNT_MAX), active))
}

/// Returns the runs that draw on a budget and could use more of it: queued or live, and not waiting
/// for a child run.
pub(super) fn drawing_runs(
    connection: &Connection,
    run: RunId,
    kind: BudgetKind,
) -> Result<Vec<RunId>, StoreError> {
    let sql = format!(
        "{DRAWING} SELECT r.id FROM down JOIN runs r ON r.id = down.id
         WHERE r.state IN ('queued', 'starting', 'running') AND r.holding = 0 ORDER BY r.no"
    );
    Ok(connection
        .prepare_cached(&sql)?
        .read_rows(params![run.to_string(), kind.word()])?)
}

/// The run `?1` and all runs below it. `CROSS JOIN` after it, so that SQLite looks these few up,
/// and does not read all unfinished runs of the store.
const BELOW: &str = "WITH RECURSIVE down (id) AS (SELECT ?1 UNION ALL SELECT r.id FROM down JOIN runs r ON r.parent = down.id)";

/// Counts the unfinished runs among a run and the runs below it.
///
/// # Errors
/// A failure of the store.
pub fn unfinished_below(connection: &Connection, run: RunId) -> Result<u64, StoreError> {
    let sql = format!(
        "{BELOW} SELECT count(*) FROM down CROSS JOIN runs r WHERE r.id = down.id AND r.state <> 'finished'"
    );
    let count: i64 = connection
        .prepare_cached(&sql)?
        .read_row([run.to_string()])?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Lists the unfinished runs among a run and the runs below it.
///
/// # Errors
/// A failure of the store.
pub fn unfinished_runs_below(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<RunId>, StoreError> {
    let sql = format!(
        "{BELOW} SELECT r.id FROM down CROSS JOIN runs r WHERE r.id = down.id AND r.state <> 'finished' ORDER BY r.no"
    );
    Ok(connection
        .prepare_cached(&sql)?
        .read_rows([run.to_string()])?)
}

/// Returns the runs of a tree that a used up budget has stopped.
pub(super) fn stopped_for_budget(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<RunId>, StoreError> {
    let sql = format!(
        "{BELOW} SELECT r.id FROM down CROSS JOIN runs r WHERE r.id = down.id AND r.state = 'stopped' AND r.stop_reason = ?2 ORDER BY r.no"
    );
    Ok(connection
        .prepare_cached(&sql)?
        .read_rows(params![run.to_string(), StopReason::Budget.word()])?)
}

/// Returns the active runs. There are at most as many as slots.
fn active_runs(connection: &Connection) -> Result<Vec<RunId>, StoreError> {
    let sql = "SELECT id FROM runs INDEXED BY runs_live WHERE state IN ('starting', 'running', 'stopping') AND state <> 'stopping'
        AND active_since IS NOT NULL";
    Ok(connection.prepare_cached(sql)?.read_rows([])?)
}

/// Returns when the time budget on which a run draws reaches its next threshold, if nothing
/// changes.
pub(super) fn time_due(
    connection: &Connection,
    run: RunId,
    now: SteadyTime,
) -> Result<Option<SteadyTime>, StoreError> {
    let rows = budgets_of(connection, run, now)?;
    let Some(row) = rows.iter().find(|row| row.kind == BudgetKind::Time) else {
        return Ok(None);
    };
    let (_, active) = active_below(connection, row.run, row.kind, now)?;
    if active == 0 {
        return Ok(None);
    }
    let Account {
        limit,
        used,
        reserved,
    } = row.account;
    let warned_at = limit
        .saturating_mul(i64::from(WARN_PERCENT))
        .div_euclid(100)
        + 1;
    let threshold = if row.is_warned {
        limit - reserved
    } else {
        warned_at.min(limit - reserved)
    };
    let left = threshold.saturating_sub(used).max(0);
    Ok(Some(now.plus_ms((left + active - 1) / active)))
}

/// Returns the earliest time at which a time budget reaches its next threshold.
///
/// # Errors
/// A failure of the store.
pub fn next_time_budget(
    connection: &Connection,
    now: SteadyTime,
    unreported: &BTreeSet<RunId>,
) -> Result<Option<SteadyTime>, StoreError> {
    let mut next = None;
    for (run, _) in judged_runs(connection, now, unreported)? {
        next = [next, time_due(connection, run, now)?]
            .into_iter()
            .flatten()
            .min();
    }
    Ok(next)
}

/// Returns the holder of the time budget on which a run draws.
fn time_holder(
    connection: &Connection,
    run: RunId,
    now: SteadyTime,
) -> Result<Option<RunId>, StoreError> {
    Ok(budgets_of(connection, run, now)?
        .iter()
        .find(|row| row.kind == BudgetKind::Time)
        .map(|row| row.run))
}

/// Returns the active runs that draw on time budgets, with the holders, except budgets on which a
/// run of `unreported` draws: only its supervisor knows how long it was active.
fn judged_runs(
    connection: &Connection,
    now: SteadyTime,
    unreported: &BTreeSet<RunId>,
) -> Result<Vec<(RunId, RunId)>, StoreError> {
    let mut unknown = BTreeSet::new();
    for run in unreported {
        unknown.extend(time_holder(connection, *run, now)?);
    }
    let mut judged = Vec::new();
    for run in active_runs(connection)? {
        judged.extend(
            time_holder(connection, run, now)?
                .filter(|holder| !unknown.contains(holder))
                .map(|holder| (run, holder)),
        );
    }
    Ok(judged)
}

/// Returns the holders of time budgets that have reached their next threshold.
///
/// # Errors
/// A failure of the store.
pub fn due_time_budgets(
    connection: &Connection,
    now: SteadyTime,
    unreported: &BTreeSet<RunId>,
) -> Result<Vec<RunId>, StoreError> {
    let mut holders = Vec::new();
    for (run, holder) in judged_runs(connection, now, unreported)? {
        if !holders.contains(&holder)
            && time_due(connection, run, now)?.is_some_and(|due| due <= now)
        {
            holders.push(holder);
        }
    }
    Ok(holders)
}

/// Reads the budgets of a run with all raises, whether or not they were returned.
///
/// # Errors
/// A failure of the store.
pub fn stated_budgets(connection: &Connection, run: RunId) -> Result<Budget, StoreError> {
    let mut budget = Budget::default();
    let rows: Vec<Columns> = connection
        .prepare_cached(select!(Columns, "FROM budgets WHERE run = ?1"))?
        .read_rows([run.to_string()])?;
    for row in rows {
        let read = row.budget()?;
        budget = budget.with(read.kind, read.account.limit);
        budget.is_hard |= read.is_hard;
    }
    Ok(budget)
}

/// Returns whether a live run that draws on a budget has reported no usage so far.
///
/// # Errors
/// A failure of the store.
pub fn is_usage_awaited(
    connection: &Connection,
    holder: RunId,
    kind: BudgetKind,
) -> Result<bool, StoreError> {
    let sql = format!(
        "{DRAWING} SELECT EXISTS (SELECT 1 FROM down JOIN runs r ON r.id = down.id
         WHERE r.input_tokens IS NULL AND r.started_at IS NOT NULL AND r.state IN ('starting', 'running', 'stopping'))"
    );
    Ok(connection
        .prepare_cached(&sql)?
        .read_row(params![holder.to_string(), kind.word()])?)
}
