//! Showing and raising the budgets of a run.

use crate::config::Home;
use crate::ops::budgets::{raise, stated_budget};
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, Ops, lookup, render};
use crate::store::{Store, unfinished_below};
use crate::view::{ChangeBudget, RunView};
use adjutant_core::{Action, Denied, RunState};
use std::sync::Arc;

/// Changes the budgets of runs.
#[derive(Debug, Clone)]
pub struct BudgetCall {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
}

impl BudgetCall {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
        }
    }

    /// Shows the budgets on which a run draws, or raises them and resumes the runs that they
    /// stopped.
    ///
    /// # Errors
    /// Unknown, foreign, or finished with all runs below it; the budget above has too little; more
    /// than the user has configured.
    pub async fn change_budget(
        &self,
        caller: Caller,
        call: ChangeBudget,
    ) -> Result<RunView, OpError> {
        let action = if call.add.is_some() {
            Action::Resume
        } else {
            Action::See
        };
        lookup::check(&caller.who, action)?;
        let home = self.home.clone();
        let Some(add) = call.add else {
            return Ok(self.store.read(|connection| {
                render::run(
                    connection,
                    &home,
                    &lookup::run(connection, &caller.who, action, &call.run)?,
                )
            })?);
        };
        let add = stated_budget("add", Some(&add))?;
        let (config, retention) = (self.settings.config_or_builtin(), self.settings.retention());
        caller
            .write(&self.store, move |tx, who| {
                let run = lookup::run(tx.connection(), who, action, &call.run)?;
                // The runs below a finished one still draw on its budget.
                if let RunState::Finished(outcome) = run.state
                    && unfinished_below(tx.connection(), run.id)? == 0
                {
                    return Err(Denied::RunFinished {
                        run: run.name.clone(),
                        outcome,
                    }
                    .into());
                }
                for holder in raise(tx, who, &config, &run, &add)? {
                    tx.resume_after_raise(holder, retention, &who.to_string())?;
                }
                render::run(tx.connection(), &home, &tx.run(run.id)?)
            })
            .await
    }
}
