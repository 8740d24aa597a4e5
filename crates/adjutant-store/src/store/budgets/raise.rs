//! Raises budgets, and resumes the runs that they had stopped.

use super::read::{self, BudgetRow, budgets_of, own_budgets};
use super::{PlannedBudget, open_budgets, schedule_budget_check, set_account};
use crate::store::db::params;
use crate::store::{Run, StoreError, Tx, append_event};
use adjutant_core::budget::Account;
use adjutant_core::{Budget, BudgetKind, Denied, EventKind, RunId};

/// What a raise does with a kind of budget.
enum Raise {
    /// The run draws on none of this kind.
    Open(PlannedBudget),
    Change(RaisedBudget),
}

struct RaisedBudget {
    stored: BudgetRow,
    account: Account,
    is_warned: bool,
}

fn too_large(kind: BudgetKind) -> Denied {
    Denied::invalid(
        "add",
        format!("the budget of {} would be too large", kind.word()),
    )
}

/// Says why the budget above cannot lend what a raise of `amount` takes from it. `None`: it can.
fn lacks(above: &BudgetRow, amount: i64, taken: i64) -> Option<String> {
    let left = above.account.left();
    (taken > left).then(|| {
        let (amount, left) = (above.kind.text(amount), above.kind.text(left));
        format!("{amount} is more than the budget above it has left ({left})")
    })
}

/// Raises the budgets on which a run draws, or creates one for it. Returns the runs whose
/// budgets have changed.
///
/// # Errors
/// The budget above has less left, or the amount is too large.
pub fn raise_budgets(
    tx: &mut Tx<'_>,
    run: &Run,
    add: &Budget,
    by: &str,
) -> Result<Vec<RunId>, StoreError> {
    let raises = plan_raises(tx, run, add)?;
    let mut holders = Vec::new();
    for raise in raises {
        holders.push(match raise {
            Raise::Open(planned) => {
                open_budgets(tx, run.id, &[planned])?;
                run.id
            }
            Raise::Change(raised) => change_budget(tx, &raised, add.is_hard)?,
        });
    }
    holders.sort_unstable_by_key(ToString::to_string);
    holders.dedup();
    for holder in &holders {
        append_raise(tx, *holder, add, by)?;
    }
    schedule_budget_check(tx, run.id)?;
    Ok(holders)
}

fn plan_raises(tx: &Tx<'_>, run: &Run, add: &Budget) -> Result<Vec<Raise>, StoreError> {
    let rows = budgets_of(tx.connection(), run.id, tx.steady())?;
    let mut raises = Vec::new();
    for (kind, amount) in add.amounts() {
        match rows.iter().find(|row| row.kind == kind) {
            Some(row) => raises.extend(plan_change(tx, row, amount)?.map(Raise::Change)),
            None => {
                raises.push(Raise::Open(PlannedBudget {
                    kind,
                    account: new_account(tx, run.id, kind, amount)?,
                    lender: None,
                    is_hard: add.is_hard,
                }));
            }
        }
    }
    Ok(raises)
}

/// Returns the account of a new budget, which does not include earlier usage.
fn new_account(
    tx: &Tx<'_>,
    run: RunId,
    kind: BudgetKind,
    amount: i64,
) -> Result<Account, StoreError> {
    let before = match kind {
        BudgetKind::Time => read::active_below(tx.connection(), run, kind, tx.steady())?.0,
        BudgetKind::Tokens | BudgetKind::Cost => 0,
    };
    Ok(Account::new(before)
        .raise(amount)
        .ok_or_else(|| too_large(kind))?)
}

/// `None`: the budget was returned.
fn plan_change(
    tx: &Tx<'_>,
    row: &BudgetRow,
    amount: i64,
) -> Result<Option<RaisedBudget>, StoreError> {
    let own = own_budgets(tx.connection(), &[row.run], row.kind)?;
    let Some(stored) = own.into_iter().next() else {
        return Ok(None);
    };
    let account = stored
        .account
        .raise(amount)
        .ok_or_else(|| too_large(row.kind))?;
    if let Some(lender) = row.lender {
        let above = budgets_of(tx.connection(), lender, tx.steady())?;
        let above = above
            .iter()
            .find(|above| above.kind == row.kind && above.run == lender);
        let taken = account.claim().saturating_sub(stored.account.claim());
        if let Some(problem) = above.and_then(|above| lacks(above, amount, taken)) {
            return Err(Denied::Budget {
                problem,
                of: Some((tx.run(lender)?.name, row.kind)),
            }
            .into());
        }
    }
    let is_warned = Account {
        limit: account.limit,
        ..row.account
    }
    .is_nearly_used();
    Ok(Some(RaisedBudget {
        stored,
        account,
        is_warned,
    }))
}

/// Returns the run that has the budget.
fn change_budget(
    tx: &mut Tx<'_>,
    raised: &RaisedBudget,
    is_hard: bool,
) -> Result<RunId, StoreError> {
    let RaisedBudget {
        stored,
        account,
        is_warned,
    } = raised;
    set_account(tx, stored, *account)?;
    tx.prepare("UPDATE budgets SET is_warned = ?3, is_hard = larger(is_hard, ?4) WHERE run = ?1 AND kind = ?2")?.run(params![
        stored.run.to_string(),
        stored.kind.word(),
        is_warned,
        is_hard
    ])?;
    Ok(stored.run)
}

fn append_raise(tx: &mut Tx<'_>, holder: RunId, add: &Budget, by: &str) -> Result<(), StoreError> {
    let of = tx.run(holder)?;
    let seq = append_event(
        tx,
        EventKind::BudgetChanged,
        of.id,
        &of.owner.to_string(),
        None,
        by,
        &format!("raised by {add}"),
    )?;
    tx.touch(of.id, seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::Time;

    #[test]
    fn budget_above_lends_what_it_has_left() {
        let above = BudgetRow {
            run: RunId::new(Time(0), [0; 10]),
            kind: BudgetKind::Tokens,
            account: Account {
                limit: 1_000,
                used: 300,
                reserved: 200,
            },
            lender: None,
            is_hard: false,
            is_warned: false,
            unstated: 0,
            unpriced: 0,
        };
        assert_eq!(lacks(&above, 500, 500), None);
        // A raise takes less than its amount from a budget that was exceeded.
        assert_eq!(lacks(&above, 600, 400), None);
        let problem = lacks(&above, 501, 501).expect("too much");
        assert!(
            problem.starts_with(&BudgetKind::Tokens.text(501))
                && problem.ends_with(&format!("has left ({})", BudgetKind::Tokens.text(500))),
            "{problem}"
        );
    }
}
