//! Dispatching runs again: retries, and follow-up runs.

use crate::clock;
use crate::config::{Config, Home};
use crate::ops::budgets::{budget_again, unmetered};
use crate::ops::checks::checked_prompt;
use crate::ops::credentials::{credentials_for, resolve_credentials};
use crate::ops::pools::{HubPools, PoolSettings};
use crate::ops::runs::dispatch::pin_dispatched;
use crate::ops::runs::plan::refuse_shared_directory;
use crate::ops::settings::Settings;
use crate::ops::workspaces::{Workspaces, runner_of};
use crate::ops::{Caller, OpError, Ops, lookup, random, render};
use crate::store::{
    NewRun, NewWorkspace, Run, Store, StoreError, Tx, after_for_retry, newest_follower, run_input,
    workspace_of,
};
use crate::view::{FollowUp, Retry, RunView};
use adjutant_core::merge::continued_task;
use adjutant_core::run::Retention;
use adjutant_core::{Action, Denied, PoolName, Principal, RunEvent, RunId, RunState};
use std::path::Path;
use std::sync::Arc;

/// A run that is dispatched again.
struct RetryPlan {
    id: RunId,
    name_seed: [u8; 4],
    /// The earlier run.
    run: String,
    /// Its new prompt. `None`: that of the earlier run.
    prompt: Option<String>,
    /// The run continues the earlier run's session, and this is its prompt if that session is gone.
    new_session_prompt: Option<String>,
    workspace: Option<NewWorkspace>,
    config: Arc<Config>,
    settings: PoolSettings,
    retention: Retention,
    /// The name of the file with the credentials.
    credentials: Option<String>,
}

/// Dispatches runs again.
#[derive(Debug, Clone)]
pub struct RetryCall {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
    workspaces: Workspaces,
    pools: HubPools,
}

impl RetryCall {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
            workspaces: Workspaces::of(ops),
            pools: HubPools::of(ops),
        }
    }

    /// Dispatches a finished or stopped run again as a new run, in a new workspace if it had one.
    /// This finishes a stopped run.
    ///
    /// # Errors
    /// Unknown, foreign, or still live.
    pub async fn retry(&self, caller: Caller, call: Retry) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Retry)?;
        let workspace = self.plan_workspace_of_retry(&caller.who, &call.run).await?;
        self.retry_in(caller, call, workspace, None).await
    }

    /// Starts a run that follows an ended one, in its directory and in its session.
    ///
    /// # Errors
    /// Unknown, foreign, or still live; its directory is gone.
    pub async fn follow_up(&self, caller: Caller, call: FollowUp) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Retry)?;
        let run = self.store.read(|connection| {
            newest_follower(
                connection,
                lookup::run(connection, &caller.who, Action::Retry, &call.run)?,
            )
        })?;
        if let Some(runner) = runner_of(&self.store, &run)? {
            return Err(Denied::conflict(
                "run",
                format!(
                    "the directory of {} is on the runner {runner}: start another run",
                    run.name
                ),
            )
            .into());
        }
        if !Path::new(&run.cwd).is_dir() {
            return Err(Denied::conflict(
                "run",
                format!(
                    "the directory of {} is removed: start another run",
                    run.name
                ),
            )
            .into());
        }
        let new_session_prompt =
            continued_task(&run.name, &run.task, run.result.as_deref(), &call.prompt);
        let retry = Retry {
            run: run.id.to_string(),
            prompt: Some(call.prompt),
            env: call.env,
        };
        self.retry_in(caller, retry, None, Some(new_session_prompt))
            .await
    }

    /// The same as [`Self::retry`] in this workspace. `None`: in the directory of the earlier run,
    /// also where that is its workspace. `new_session_prompt`: the run continues the earlier run's
    /// session, and this is its prompt if that session is gone.
    pub(in crate::ops) async fn retry_in(
        &self,
        caller: Caller,
        call: Retry,
        workspace: Option<NewWorkspace>,
        new_session_prompt: Option<String>,
    ) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Retry)?;
        let config = self.settings.config_or_builtin();
        let (planned, home) = (workspace.clone(), self.home.clone());
        let kept = credentials_for(
            &self.store,
            &self.settings,
            &caller.who,
            Action::Retry,
            &call.run,
            call.env,
        )
        .await?;
        let plan = RetryPlan {
            id: RunId::new(clock::now(), random()),
            name_seed: random(),
            run: call.run,
            prompt: call.prompt,
            new_session_prompt,
            workspace,
            settings: self.pools.configured(&config),
            config,
            retention: self.settings.retention(),
            credentials: kept.id().map(ToOwned::to_owned),
        };
        let id = plan.id;
        let retried = caller
            .write(&self.store, move |tx, who| plan.commit(tx, who, &home))
            .await;
        resolve_credentials(&self.store, kept).await;
        pin_dispatched(&self.workspaces, id, planned, retried).await
    }

    /// Resolves the base of the workspace of a run that is dispatched again. `None`: the run was
    /// not isolated, or is unknown; an unknown one is refused later.
    async fn plan_workspace_of_retry(
        &self,
        who: &Principal,
        run: &str,
    ) -> Result<Option<NewWorkspace>, OpError> {
        let old = self.store.read(|connection| {
            match lookup::run(connection, who, Action::Retry, run) {
                Ok(run) => {
                    Ok(workspace_of(connection, run.id)?.map(|workspace| (workspace, run.cwd)))
                }
                Err(StoreError::Denied(_)) => Ok(None),
                Err(error) => Err(error),
            }
        })?;
        let Some((old, cwd)) = old else {
            return Ok(None);
        };
        let below = Path::new(&cwd)
            .strip_prefix(&old.path)
            .unwrap_or("".as_ref());
        let new = self
            .workspaces
            .plan(&old.repository, old.isolation, old.changes.is_some())
            .await?;
        Ok(new.map(|new| NewWorkspace {
            below: below.to_owned(),
            ..new
        }))
    }
}

impl RetryPlan {
    /// Queues the run. This finishes a stopped one.
    fn commit(self, tx: &mut Tx<'_>, who: &Principal, home: &Home) -> Result<RunView, StoreError> {
        let run = lookup::run(tx.connection(), who, Action::Retry, &self.run)?;
        tx.wait_for_retry(&run, self.id)?;
        let old = retire(tx, run, who, self.retention)?;
        if old.owner == *who {
            // An owner who retries a run knows how it ended.
            tx.set_notified(who, &[(old.id, old.last_seq)])?;
        }
        if self.config.refuse_shared_directory && self.workspace.is_none() {
            refuse_shared_directory(tx.connection(), &old.cwd, old.id)?;
        }
        let continues_session = self.new_session_prompt.is_some();
        let (settings, credentials) = (self.settings.clone(), self.credentials.clone());
        let new = self.new_run(tx, who, &old)?;
        let run = tx.dispatch(&new)?;
        tx.copy_alternatives(old.id, &run)?;
        if continues_session {
            tx.continue_session(run.id, &old)?;
        }
        tx.set_credentials(run.id, credentials.as_deref())?;
        let mut views = render::RunViews::new(tx.connection(), home);
        let mut view = views.run(&run)?;
        views.starts_at_once(&settings.in_effect(tx.connection())?, &run, &mut view)?;
        Ok(view)
    }

    /// Returns the run to queue: as the earlier one, with another prompt if there is one.
    fn new_run(self, tx: &Tx<'_>, who: &Principal, old: &Run) -> Result<NewRun, StoreError> {
        let mut input = run_input(tx.connection(), old.id)?;
        if let Some(prompt) = &self.prompt {
            checked_prompt(prompt, input.agent.prompt)?;
            input.prompt = self.new_session_prompt.unwrap_or_else(|| prompt.clone());
        }
        let budget = budget_again(tx, &self.config, who, old)?;
        let pool = PoolName::parse(&old.pool)
            .map_err(|error| StoreError::Corrupt(format!("the pool of {}: {error}", old.id)))?;
        Ok(NewRun {
            id: self.id,
            name: None,
            name_seed: self.name_seed,
            cwd: old.cwd.clone(),
            workspace: self.workspace,
            fence_workspace: old.fence.as_ref().and_then(|fence| fence.workspace.clone()),
            owner: old.owner.clone(),
            retry_of: Some(old.id),
            under: old.parent.map(|parent| (parent, self.config.tree)),
            rank: old.rank,
            pool,
            after: after_for_retry(tx.connection(), old.id)?,
            after_failed: old.after_failed,
            agent_why: None,
            estimate_ms: None,
            budget,
            unmetered: unmetered(&self.config, &input.agent),
            task: self.prompt.unwrap_or_else(|| old.task.clone()),
            by: who.clone(),
            input,
        })
    }
}

/// Returns a run that has ended, which a stopped run does now.
fn retire(
    tx: &mut Tx<'_>,
    run: Run,
    who: &Principal,
    retention: Retention,
) -> Result<Run, StoreError> {
    match run.state {
        RunState::Finished(_) => Ok(run),
        RunState::Stopped { .. } => tx.advance(
            &run,
            RunEvent::Retired,
            retention,
            &who.to_string(),
            "retried",
        ),
        RunState::Queued | RunState::Starting | RunState::Running | RunState::Stopping(_) => {
            Err(Denied::WrongState {
                run: run.name.clone(),
                state: run.state.word(),
                wanted: "retried; cancel it first",
            }
            .into())
        }
    }
}
