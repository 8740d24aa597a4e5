//! Showing and raising the budgets of a run.

use crate::config::Config;
use crate::ops::budgets::stated_budget;
use crate::ops::{Caller, OpError, Ops, lookup, render};
use crate::store::{StoreError, Tx, budgets_of};
use crate::view::{ChangeBudget, RunView};
use adjutant_core::{Action, AgentName, Denied, PoolName, Principal, RunId, RunState};

impl Ops {
    /// Shows the budgets on which a run draws, or raises them and resumes the runs that they stopped.
    ///
    /// # Errors
    /// Unknown, foreign or finished; the budget above has too little; more than the user has configured.
    pub async fn change_budget(&self, caller: Caller, call: ChangeBudget) -> Result<RunView, OpError> {
        let action = if call.add.is_some() { Action::Resume } else { Action::See };
        Self::check(&caller.who, action)?;
        let home = self.home.clone();
        let Some(add) = call.add else {
            return Ok(self.store.read(|connection| render::run(connection, &home, &lookup::run(connection, &caller.who, action, &call.run)?))?);
        };
        let add = stated_budget("add", Some(&add))?;
        let (config, retention) = (self.config_or_builtin(), self.retention());
        self.write(caller, move |tx, who| {
            let run = lookup::run(tx.connection(), who, action, &call.run)?;
            if let RunState::Finished(outcome) = run.state {
                return Err(Denied::RunFinished(outcome).into());
            }
            tx.may_refuse_late()?;
            let holders = tx.raise_budgets(&run, &add, &who.to_string())?;
            for holder in holders {
                if *who != Principal::Person {
                    check_raised(tx, &config, holder)?;
                }
                tx.resume_after_raise(holder, retention, &who.to_string())?;
            }
            render::run(tx.connection(), &home, &tx.run(run.id)?)
        })
        .await
    }
}

/// Refuses a budget beyond what the user has configured.
fn check_raised(tx: &Tx<'_>, config: &Config, holder: RunId) -> Result<(), StoreError> {
    let run = tx.run(holder)?;
    let (Ok(agent), Ok(pool)) = (AgentName::parse(&run.agent), PoolName::parse(&run.pool)) else { return Ok(()) };
    let configured = config.budget_of(&agent, &pool);
    for row in budgets_of(tx.connection(), holder, tx.steady())?.iter().filter(|row| row.run == holder) {
        if let Some(most) = configured.amount(row.kind).filter(|most| row.account.limit > *most) {
            let problem = format!("the user's configuration allows {} of {} at most: a person can raise it", row.kind.text(most), row.kind.word());
            return Err(Denied::invalid("add", problem).into());
        }
    }
    Ok(())
}
