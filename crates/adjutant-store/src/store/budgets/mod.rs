//! Budgets of runs and of the trees below them: transferring, charging, warning, stopping,
//! returning unused amounts.

mod raise;
mod read;
mod unknown;
mod usage;

pub use raise::raise_budgets;
pub use read::{
    BudgetRow, budgets_of, due_time_budgets, has_budgets, is_usage_awaited, next_time_budget,
    stated_budgets, unfinished_below, unfinished_runs_below,
};
pub(in crate::store) use unknown::{
    charge_minimum, exhaust_hard, stop_if_hard_unmetered, stop_if_kind_unknown,
};
pub use usage::{ModelTotals, announce_usage_stated, gate_usage_of, has_grown, is_usage_stated};
pub(in crate::store) use usage::{continue_usage, record_gate_usage, record_usage};

use super::{Run, StoreError, Tx, append_event};
use crate::store::db::params;
use crate::store::runs::notify_ancestors;
use adjutant_core::budget::{Account, TooLittleLeft, Unmetered, check_left};
use adjutant_core::cascade::{Cause, Step};
use adjutant_core::{Budget, BudgetKind, Denied, EventKind, RunId};
use read::{drawing_runs, own_budgets, run_and_ancestors, time_due};
use unknown::add_unknown;

/// A budget of a new run: the account, and the run from whose budget it is transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct PlannedBudget {
    kind: BudgetKind,
    account: Account,
    lender: Option<RunId>,
    is_hard: bool,
}

/// Refuses to resume a run while a budget on which it draws is used up.
///
/// # Errors
/// `Denied::Budget`.
pub fn check_budget_left(tx: &Tx<'_>, run: &Run) -> Result<(), StoreError> {
    let rows = budgets_of(tx.connection(), run.id, tx.steady())?;
    match check_left(rows.iter().map(|row| (row.kind, row.account))) {
        Ok(()) => Ok(()),
        Err(kind) => Err(used_up(tx, &rows, kind)?.into()),
    }
}

/// Checks that a new run below `parent` can have this budget, and that the budgets above are
/// not used up. `unmetered`: the kinds of usage that its agent does not report. Writes nothing.
///
/// # Errors
/// A budget above has less left, or a budget is hard and the agent does not report its usage.
pub(in crate::store) fn plan_budget(
    tx: &Tx<'_>,
    parent: Option<RunId>,
    budget: &Budget,
    agent: &str,
    unmetered: &[Unmetered],
) -> Result<Vec<PlannedBudget>, StoreError> {
    let above = match parent {
        Some(parent) => budgets_of(tx.connection(), parent, tx.steady())?,
        None => Vec::new(),
    };
    if let Err(kind) = check_left(above.iter().map(|row| (row.kind, row.account))) {
        return Err(used_up(tx, &above, kind)?.into());
    }
    for (kind, why) in unmetered {
        let is_hard_above = above.iter().any(|row| row.kind == *kind && row.is_hard);
        if is_hard_above || budget.is_hard && budget.amount(*kind).is_some() {
            return Err(Denied::Budget {
                problem: unmetered_text(*kind, agent, why),
                of: None,
            }
            .into());
        }
    }
    let mut planned = Vec::new();
    for (kind, amount) in budget.amounts() {
        let lender = above.iter().find(|row| row.kind == kind);
        let account = match lender {
            None => Account::new(amount),
            Some(row) => match row.account.transfer(amount) {
                Ok((_, below)) => below,
                Err(TooLittleLeft { left }) => {
                    let (asked, left) = (kind.text(amount), kind.text(left));
                    let name = tx.run(row.run)?.name;
                    return Err(Denied::Budget {
                        problem: format!(
                            "{asked} of {} is more than the budget of {name} has left ({left})",
                            kind.word()
                        ),
                        of: Some((name, kind)),
                    }
                    .into());
                }
            },
        };
        planned.push(PlannedBudget {
            kind,
            account,
            lender: lender.map(|row| row.run),
            is_hard: budget.is_hard,
        });
    }
    Ok(planned)
}

/// Returns the error for a used up budget.
fn used_up(tx: &Tx<'_>, rows: &[BudgetRow], kind: BudgetKind) -> Result<Denied, StoreError> {
    let Some(row) = rows.iter().find(|row| row.kind == kind) else {
        return Ok(Denied::Budget {
            problem: format!("the budget of {} is used up", kind.word()),
            of: None,
        });
    };
    let name = tx.run(row.run)?.name;
    Ok(Denied::Budget {
        problem: format!(
            "the budget of {} of {name} ({}) is used up",
            kind.word(),
            row.text()
        ),
        of: Some((name, kind)),
    })
}

/// Opens the budgets of a new run, and reserves their amounts in the budgets above.
pub(in crate::store) fn open_budgets(
    tx: &Tx<'_>,
    run: RunId,
    planned: &[PlannedBudget],
) -> Result<(), StoreError> {
    for PlannedBudget {
        kind,
        account,
        lender,
        is_hard,
    } in planned
    {
        tx.prepare(
            "INSERT INTO budgets (run, kind, amount, lender, is_hard) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .run(params![
            run.to_string(),
            kind.word(),
            account.limit,
            lender.map(|run| run.to_string()),
            is_hard
        ])?;
        if let Some(lender) = lender {
            adjust_reserved(tx, *lender, *kind, Account::default(), *account)?;
        }
    }
    Ok(())
}

/// Charges usage of a run to the budget on which it draws. That budget is to be checked then.
///
/// # Errors
/// A failure of the store.
pub(in crate::store) fn charge(
    tx: &mut Tx<'_>,
    run: RunId,
    kind: BudgetKind,
    amount: i64,
    except: Option<RunId>,
) -> Result<(), StoreError> {
    if amount <= 0 {
        return Ok(());
    }
    let rows = own_budgets(
        tx.connection(),
        &run_and_ancestors(tx.connection(), run)?,
        kind,
    )?;
    let Some(row) = rows.first() else {
        return Ok(());
    };
    set_account(tx, row, row.account.charge(amount))?;
    tx.then(Step::CheckBudgets {
        holder: row.run,
        kind,
        except,
    });
    Ok(())
}

/// Checks a budget. The one above it, which also pays for usage beyond the transferred amount,
/// is to be checked then.
pub(in crate::store) fn check_budget_and_next(
    tx: &mut Tx<'_>,
    holder: RunId,
    kind: BudgetKind,
    except: Option<RunId>,
) -> Result<(), StoreError> {
    if let Some(row) = check_own_budget(tx, holder, kind, except)?
        && let Some(holder) = row.lender
    {
        tx.then(Step::CheckBudgets {
            holder,
            kind,
            except,
        });
    }
    Ok(())
}

/// Changes the account of a budget, and the amount that the budget above reserves for it.
fn set_account(tx: &Tx<'_>, row: &BudgetRow, account: Account) -> Result<(), StoreError> {
    let Account {
        limit,
        used,
        reserved,
    } = account;
    tx.prepare(
        "UPDATE budgets SET amount = ?3, used = ?4, reserved = ?5 WHERE run = ?1 AND kind = ?2",
    )?
    .run(params![
        row.run.to_string(),
        row.kind.word(),
        limit,
        used,
        reserved
    ])?;
    match row.lender {
        Some(lender) => adjust_reserved(tx, lender, row.kind, row.account, account),
        None => Ok(()),
    }
}

/// Adjusts the reserved amount of a run's budget after an account below it has changed.
fn adjust_reserved(
    tx: &Tx<'_>,
    lender: RunId,
    kind: BudgetKind,
    before: Account,
    after: Account,
) -> Result<(), StoreError> {
    if before.claim() == after.claim() {
        return Ok(());
    }
    own_budgets(tx.connection(), &[lender], kind)?
        .iter()
        .try_for_each(|row| set_account(tx, row, row.account.adjust_reserved(before, after)))
}

/// Warns of a nearly used up budget, and names the runs to stop that draw on a used up one.
/// Returns the budget. `None`: it has none, or it was returned.
pub(in crate::store) fn check_own_budget(
    tx: &mut Tx<'_>,
    holder: RunId,
    kind: BudgetKind,
    except: Option<RunId>,
) -> Result<Option<BudgetRow>, StoreError> {
    let rows = budgets_of(tx.connection(), holder, tx.steady())?;
    let Some(row) = rows
        .into_iter()
        .find(|row| row.kind == kind && row.run == holder)
    else {
        return Ok(None);
    };
    if row.account.is_nearly_used() && !row.is_warned {
        let text = format!(
            "{} % of its budget of {} is used: {}",
            row.account.percent(),
            kind.word(),
            row.text()
        );
        warn_of_budget(tx, &row, &text)?;
    }
    if !row.account.has_left() {
        let text = format!("used up: {}", row.text());
        stop_drawing(tx, &row, &text, except)?;
    }
    Ok(Some(row))
}

/// Records that a budget is nearly used up. Called once for each budget and limit.
fn warn_of_budget(tx: &mut Tx<'_>, row: &BudgetRow, text: &str) -> Result<(), StoreError> {
    let run = tx.run(row.run)?;
    let seq = append_event(
        tx,
        EventKind::BudgetNearlyUsed,
        run.id,
        &run.owner.to_string(),
        None,
        "hub",
        text,
    )?;
    let (holder, kind) = (row.run.to_string(), row.kind.word());
    tx.prepare("UPDATE budgets SET is_warned = 1 WHERE run = ?1 AND kind = ?2")?
        .run(params![holder, kind])?;
    tx.prepare("UPDATE runs SET budget_seq = ?2 WHERE id = ?1")?
        .run(params![holder, seq.0])?;
    tx.touch(run.id, seq)?;
    notify_ancestors(tx, &run)
}

/// Names the runs to stop that draw on a budget.
fn stop_drawing(
    tx: &mut Tx<'_>,
    row: &BudgetRow,
    why: &str,
    except: Option<RunId>,
) -> Result<(), StoreError> {
    let of = tx.run(row.run)?.name;
    for id in drawing_runs(tx.connection(), row.run, row.kind)?
        .into_iter()
        .filter(|id| Some(*id) != except)
    {
        let of = if id == row.run {
            String::new()
        } else {
            format!(" of {of}")
        };
        tx.then(Step::StopForBudget {
            run: id,
            text: format!("budget of {}{of} {why}", row.kind.word()),
        });
    }
    Ok(())
}

/// Names a run to stop if a budget on which it draws is used up. Returns whether it is.
pub(in crate::store) fn stop_if_used_up(tx: &mut Tx<'_>, run: RunId) -> Result<bool, StoreError> {
    let rows = budgets_of(tx.connection(), run, tx.steady())?;
    let Err(kind) = check_left(rows.iter().map(|row| (row.kind, row.account))) else {
        return Ok(false);
    };
    let text = used_up(tx, &rows, kind)?.to_string();
    tx.then(Step::StopForBudget { run, text });
    Ok(true)
}

/// Returns whether no budget on which a run draws is used up.
pub(in crate::store) fn has_budget_left(tx: &Tx<'_>, run: RunId) -> Result<bool, StoreError> {
    let rows = budgets_of(tx.connection(), run, tx.steady())?;
    Ok(check_left(rows.iter().map(|row| (row.kind, row.account))).is_ok())
}

/// Reads the runs that were stopped because they draw on a used up budget.
pub(in crate::store) fn stopped_for_budget(
    tx: &Tx<'_>,
    holder: RunId,
) -> Result<Vec<RunId>, StoreError> {
    read::stopped_for_budget(tx.connection(), holder)
}

/// Schedules the next check of the time budget on which a run draws.
pub(in crate::store) fn schedule_budget_check(
    tx: &mut Tx<'_>,
    run: RunId,
) -> Result<(), StoreError> {
    if let Some(due) = time_due(tx.connection(), run, tx.steady())? {
        tx.wake_by(due);
    }
    Ok(())
}

/// Announces the reads of [`schedule_budget_check`].
pub(in crate::store) fn announce_budget_check(tx: &Tx<'_>, run: RunId) {
    tx.connection()
        .announce(|connection| time_due(connection, run, tx.steady()));
}

/// Charges the time of a finished run. Its budgets and those of the runs above it are to be
/// returned then, and a parent run that waited for it is to be stopped if its budget is used
/// up.
pub(in crate::store) fn settle_budgets(tx: &mut Tx<'_>, run: RunId) -> Result<(), StoreError> {
    let run = tx.run(run)?;
    charge(tx, run.id, BudgetKind::Time, run.active_ms, None)?;
    let runs = run_and_ancestors(tx.connection(), run.id)?;
    tx.then(Step::ReturnBudgets { runs });
    if let Some(parent) = run.parent {
        tx.then(Step::StopWithoutBudget { run: parent });
    }
    Ok(())
}

/// Names the budgets to return of the first of these runs that has any, if all runs below it
/// have finished.
pub(in crate::store) fn return_budgets(tx: &mut Tx<'_>, runs: &[RunId]) -> Result<(), StoreError> {
    for (at, id) in runs.iter().enumerate() {
        let mut open = Vec::new();
        for kind in BudgetKind::ALL {
            let rows = own_budgets(tx.connection(), &[*id], kind)?;
            open.extend(rows.into_iter().filter(|row| row.lender.is_some()));
        }
        if open.is_empty() {
            continue;
        }
        if unfinished_below(tx.connection(), *id)? > 0 {
            break;
        }
        for row in open {
            let (run, kind) = (*id, row.kind);
            tx.then(Step::ReturnBudget { run, kind });
        }
        let runs = runs[at + 1..].to_vec();
        tx.then(Step::ReturnBudgets { runs });
        break;
    }
    Ok(())
}

/// Returns what a budget has left to its lender, whose budget is to be checked then.
pub(in crate::store) fn return_budget(
    tx: &mut Tx<'_>,
    run: RunId,
    kind: BudgetKind,
) -> Result<(), StoreError> {
    let rows = own_budgets(tx.connection(), &[run], kind)?;
    let Some((below, lender)) = rows.first().and_then(|row| Some((row, row.lender?))) else {
        return Ok(());
    };
    tx.prepare("UPDATE budgets SET is_returned = 1 WHERE run = ?1 AND kind = ?2")?
        .run(params![run.to_string(), kind.word()])?;
    for row in own_budgets(tx.connection(), &[lender], kind)? {
        let had_left = row.account.has_left();
        set_account(tx, &row, row.account.reclaim(below.account))?;
        add_unknown(tx, lender, kind, below.unstated, below.unpriced)?;
        tx.then(Step::CheckBudgets {
            holder: row.run,
            kind,
            except: None,
        });
        // Amounts that were only reserved had stopped the runs.
        if !had_left {
            tx.then(Step::ResumeWithBudget {
                holder: lender,
                cause: Cause::hub("a run below returned what it did not use"),
            });
        }
    }
    Ok(())
}

/// Describes why an agent cannot work under a hard budget.
fn unmetered_text(kind: BudgetKind, agent: &str, why: &str) -> String {
    format!(
        "the budget is hard, but the {} of {agent} cannot be measured: {why}",
        kind.word()
    )
}
