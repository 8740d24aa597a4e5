//! Resuming stopped runs.

use crate::config::{Config, Home};
use crate::ops::budgets::{raise, stated_budget};
use crate::ops::checks::check_size;
use crate::ops::credentials::{credentials_for, resolve_credentials};
use crate::ops::settings::Settings;
use crate::ops::{Caller, OpError, Ops, lookup, render};
use crate::store::{Run, Store, StoreError, Tx, check_budget_left};
use crate::view::{Resume, RunView, Word};
use adjutant_core::checkpoint::{Checkpoint, Choice, choices};
use adjutant_core::run::Retention;
use adjutant_core::{Action, Budget, Denied, Principal, RunEvent, RunState, StopReason, limits};
use std::sync::Arc;

/// A checked call that resumes a run.
struct ResumePlan {
    run: String,
    resolution: Option<String>,
    next_step: Option<String>,
    choice: Option<Choice>,
    /// What is added to the budget.
    add: Option<Budget>,
    config: Arc<Config>,
    retention: Retention,
    /// The name of the file with the credentials of the next attempt.
    credentials: Option<String>,
}

/// Resumes runs.
#[derive(Debug, Clone)]
pub struct ResumeCall {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
}

impl ResumeCall {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
        }
    }

    /// Starts a new attempt of a stopped run.
    ///
    /// # Errors
    /// Unknown, foreign, or not stopped.
    pub async fn resume(&self, caller: Caller, call: Resume) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Resume)?;
        check_size(
            "resolution",
            call.resolution.as_deref().unwrap_or(""),
            limits::TEXT_BYTES_MAX,
        )?;
        check_size(
            "next_step",
            call.next_step.as_deref().unwrap_or(""),
            limits::TEXT_BYTES_MAX,
        )?;
        let (choice, add) = (stated_choice(&call)?, stated_raise(&call)?);
        let kept = credentials_for(
            &self.store,
            &self.settings,
            &caller.who,
            Action::Resume,
            &call.run,
            call.env,
        )
        .await?;
        let plan = ResumePlan {
            run: call.run,
            resolution: call.resolution,
            next_step: call.next_step,
            choice,
            add,
            config: self.settings.config_or_builtin(),
            retention: self.settings.retention(),
            credentials: kept.id().map(ToOwned::to_owned),
        };
        let home = self.home.clone();
        let resumed = caller
            .write(&self.store, move |tx, who| plan.commit(tx, who, &home))
            .await;
        resolve_credentials(&self.store, kept).await;
        resumed
    }
}

impl ResumePlan {
    /// Raises the budget of the run, and queues it again.
    fn commit(self, tx: &mut Tx<'_>, who: &Principal, home: &Home) -> Result<RunView, StoreError> {
        let run = lookup::run(tx.connection(), who, Action::Resume, &self.run)?;
        check_choice(self.choice, run.state, run.checkpoint.as_ref())?;
        if let RunState::Finished(outcome) = run.state {
            return Err(Denied::RunFinished {
                run: run.name.clone(),
                outcome,
            }
            .into());
        }
        let raised = match &self.add {
            Some(add) => raise(tx, who, &self.config, &run, add)?,
            None => Vec::new(),
        };
        let is_released = run.state == RunState::Queued && tx.release_held(&run, who)?;
        if !is_released && !self.only_raises(run.state) {
            let text = self.resolution.as_deref();
            let text = text.or(self.choice.map(Choice::about)).unwrap_or("");
            let credentials = self.credentials.as_deref();
            resume_stopped(tx, &run, who, self.retention, credentials, text)?;
            tx.set_resolution(
                run.id,
                self.resolution.as_deref(),
                self.next_step.as_deref(),
                self.choice,
            )?;
        }
        for holder in raised {
            tx.resume_after_raise(holder, self.retention, &who.to_string())?;
        }
        render::run(tx.connection(), home, &tx.run(run.id)?)
    }

    /// Returns whether the call raises the budget of a run that needs no resume, and says nothing
    /// to it.
    fn only_raises(&self, state: RunState) -> bool {
        let says_nothing =
            self.resolution.is_none() && self.next_step.is_none() && self.choice.is_none();
        self.add.is_some() && says_nothing && !matches!(state, RunState::Stopped { .. })
    }
}

fn stated_choice(call: &Resume) -> Result<Option<Choice>, Denied> {
    let known = |choice: &Word<Choice>| {
        choice
            .known()
            .ok_or_else(|| Denied::invalid("choice", "use skip, retry, delegate or reduce"))
    };
    call.choice.as_ref().map(known).transpose()
}

/// Returns what the call adds to the budget.
fn stated_raise(call: &Resume) -> Result<Option<Budget>, Denied> {
    call.budget
        .as_deref()
        .map(|text| stated_budget("budget", Some(text)))
        .transpose()
}

/// Refuses a choice for a stopped run that has none.
fn check_choice(
    choice: Option<Choice>,
    state: RunState,
    checkpoint: Option<&Checkpoint>,
) -> Result<(), Denied> {
    if choice.is_some()
        && matches!(state, RunState::Stopped { .. })
        && choices(state, checkpoint).is_empty()
    {
        return Err(Denied::invalid(
            "choice",
            "this run was not stopped by an error or a limit: omit choice",
        ));
    }
    Ok(())
}

/// Resumes a stopped run.
pub(super) fn resume_stopped(
    tx: &mut Tx<'_>,
    run: &Run,
    who: &Principal,
    retention: Retention,
    credentials: Option<&str>,
    text: &str,
) -> Result<(), StoreError> {
    tx.may_refuse_late()?;
    if matches!(
        run.state,
        RunState::Stopped {
            reason: StopReason::ResourceLimit,
            ..
        }
    ) {
        // Resuming grants the time limit again; otherwise the run would be stopped at once.
        // Reset first, because charged time must not count as the run's time too.
        tx.forget_active_time(run.id)?;
        tx.charge_active_time(run, retention)?;
    }
    if matches!(
        run.state,
        RunState::Stopped {
            reason: StopReason::UnreadableBlock,
            ..
        }
    ) {
        // Who resumes it has looked at its output.
        tx.settle_unreadable_blocks(run.id)?;
        tx.clear_detail(run.id)?;
    }
    if matches!(
        run.state,
        RunState::Stopped {
            reason: StopReason::RateLimited,
            ..
        }
    ) {
        // Resuming a run by hand tries the agent at once.
        tx.clear_usage_limit(&run.agent, tx.now())?;
    }
    check_budget_left(tx, run)?;
    tx.set_credentials(run.id, credentials)?;
    tx.advance(run, RunEvent::Resumed, retention, &who.to_string(), text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use adjutant_core::{Outcome, SteadyTime};

    fn stopped(reason: StopReason) -> RunState {
        RunState::Stopped {
            reason,
            until: SteadyTime(0),
        }
    }

    #[test]
    fn choice_needs_a_stop_by_an_error_or_a_limit() {
        let choice = Some(Choice::Retry);
        assert!(check_choice(choice, stopped(StopReason::Paused), None).is_err());
        assert!(check_choice(choice, stopped(StopReason::ResourceLimit), None).is_ok());
        assert!(check_choice(None, stopped(StopReason::Paused), None).is_ok());
        // The state itself is refused, with its own words.
        let finished = RunState::Finished(Outcome::Succeeded);
        assert!(check_choice(choice, finished, None).is_ok());
    }
}
