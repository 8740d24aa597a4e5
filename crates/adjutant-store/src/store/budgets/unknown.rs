//! Usage that is not reported. It is charged a minimum and counted; under a hard budget, the run is
//! stopped.

use super::read::{budgets_of, has_budgets, own_budgets, run_and_ancestors};
use super::{charge, set_account, stop_drawing, unmetered_text, warn_of_budget};
use crate::store::db::params;
use crate::store::{Run, StoreError, Tx};
use adjutant_core::budget::{Price, Tokens, UNSTATED_TOKENS, Unmetered};
use adjutant_core::cascade::Step;
use adjutant_core::{BudgetKind, RunId};

/// Counts unknown usage in the budget on which a run draws.
pub(super) fn count_unknown(
    tx: &Tx<'_>,
    run: RunId,
    kind: BudgetKind,
    unstated: i64,
    unpriced: i64,
) -> Result<(), StoreError> {
    if unstated == 0 && unpriced == 0 {
        return Ok(());
    }
    let rows = own_budgets(
        tx.connection(),
        &run_and_ancestors(tx.connection(), run)?,
        kind,
    )?;
    rows.first().map_or(Ok(()), |row| {
        add_unknown(tx, row.run, kind, unstated, unpriced)
    })
}

pub(super) fn add_unknown(
    tx: &Tx<'_>,
    holder: RunId,
    kind: BudgetKind,
    unstated: i64,
    unpriced: i64,
) -> Result<(), StoreError> {
    tx.prepare(
        "UPDATE budgets SET unstated = unstated + ?3, unpriced = larger(0, unpriced + ?4) WHERE run = ?1 AND kind = ?2 AND is_returned = 0",
    )?
    .run(params![holder.to_string(), kind.word(), unstated, unpriced])?;
    Ok(())
}

/// Charges the minimum for attempts or requests of a run without reported usage.
pub(in crate::store) fn charge_minimum(
    tx: &mut Tx<'_>,
    run: RunId,
    count: u64,
    price: Option<Price>,
    except: Option<RunId>,
) -> Result<(), StoreError> {
    if !has_budgets(tx.connection())? {
        return Ok(());
    }
    let floor = Tokens {
        input: count.saturating_mul(UNSTATED_TOKENS),
        ..Tokens::default()
    };
    let cost = price.map_or(0, |price| price.cost_micros(&floor));
    for (kind, amount) in [
        (BudgetKind::Tokens, floor.charged()),
        (BudgetKind::Cost, cost),
    ] {
        count_unknown(tx, run, kind, i64::try_from(count).unwrap_or(i64::MAX), 0)?;
        charge(tx, run, kind, amount, except)?;
    }
    Ok(())
}

/// Counts the whole rest of a hard budget as used, because an agent that draws on it does not
/// report its usage.
pub(in crate::store) fn exhaust_hard(
    tx: &mut Tx<'_>,
    run: RunId,
    kind: BudgetKind,
    why: &str,
    except: Option<RunId>,
) -> Result<(), StoreError> {
    let rows = budgets_of(tx.connection(), run, tx.steady())?;
    let Some(row) = rows
        .into_iter()
        .find(|row| row.kind == kind && row.is_hard && row.account.has_left())
    else {
        return Ok(());
    };
    set_account(tx, &row, row.account.exhaust())?;
    let text = format!("is hard, and {why}: all of it counts as used");
    warn_of_budget(tx, &row, &format!("its budget of {} {text}", kind.word()))?;
    stop_drawing(tx, &row, &text, except)
}

/// Names a live run to stop whose hard budget of a kind cannot be enforced.
pub(in crate::store) fn stop_if_kind_unknown(
    tx: &mut Tx<'_>,
    run: RunId,
    kind: BudgetKind,
    why: &str,
) -> Result<(), StoreError> {
    let rows = budgets_of(tx.connection(), run, tx.steady())?;
    let is_hard = rows.iter().any(|row| row.is_hard && row.kind == kind);
    if is_hard && tx.run(run)?.state.is_live() {
        let text = format!("its budget is hard, and {why}");
        tx.then(Step::StopForBudget { run, text });
    }
    Ok(())
}

/// Names a queued run to stop, instead of starting it, if a budget on which it draws is hard and
/// its agent does not report its usage. Returns whether it is to stop.
pub(in crate::store) fn stop_if_hard_unmetered<'a>(
    tx: &mut Tx<'a>,
    run: &Run,
    unmetered: impl FnOnce(&Tx<'a>) -> Result<Vec<Unmetered>, StoreError>,
) -> Result<bool, StoreError> {
    let rows = budgets_of(tx.connection(), run.id, tx.steady())?;
    if !rows.iter().any(|row| row.is_hard) {
        return Ok(false);
    }
    let is_hard = |kind: BudgetKind| rows.iter().any(|row| row.is_hard && row.kind == kind);
    let Some((kind, why)) = unmetered(tx)?.into_iter().find(|(kind, _)| is_hard(*kind)) else {
        return Ok(false);
    };
    let text = unmetered_text(kind, &run.agent, why);
    tx.then(Step::StopForBudget { run: run.id, text });
    Ok(true)
}
