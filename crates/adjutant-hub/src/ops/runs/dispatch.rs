//! Dispatching runs.

use crate::clock;
use crate::ops::checks::checked_env;
use crate::ops::profiles::check_again;
use crate::ops::runs::plan::NewIds;
use crate::ops::{Caller, OpError, Ops, lookup, programs, random};
use crate::store::{KeptCredentials, NewWorkspace, StoreError, run_input};
use crate::view::{Dispatch, RunView};
use adjutant_core::{Action, Principal, RunId};
use std::collections::BTreeMap;

impl Ops {
    /// Queues a run. Durable when it returns; the hub starts it as soon as a slot is free.
    ///
    /// # Errors
    /// The agent, its program, the directory, the name or the prompt is unusable.
    pub async fn dispatch(&self, caller: Caller, call: Dispatch) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Dispatch)?;
        let config = self.settings.config()?;
        let mut plan = self.plan_dispatch(&caller.who, call, config).await?;
        let kept = self.store.save_credentials(plan.take_env()).await?;
        let variables = self.store.save_variables(plan.take_variables()).await?;
        let new = NewIds {
            id: RunId::new(clock::now(), random()),
            name_seed: random(),
            env: kept.env.clone(),
            variables: variables.id().map(ToOwned::to_owned),
        };
        let (id, workspace, home) = (new.id, plan.workspace(), self.home.clone());
        let dispatched = caller
            .write(&self.store, move |tx, who| plan.commit(tx, who, new, &home))
            .await;
        self.resolve_credentials(kept).await;
        self.resolve_credentials(variables).await;
        self.pin_dispatched(id, workspace, dispatched).await
    }

    /// Pins the base of a dispatched run. A repeated call has dispatched none.
    pub(super) async fn pin_dispatched(
        &self,
        id: RunId,
        planned: Option<NewWorkspace>,
        dispatched: Result<RunView, OpError>,
    ) -> Result<RunView, OpError> {
        let view = dispatched?;
        if let Some(planned) = planned.filter(|_| view.run_id == id.to_string()) {
            self.workspaces.pin_base(id, &planned).await;
        }
        Ok(view)
    }

    /// Stores the credentials for a run's next attempt, after checking that its agent still
    /// supports the run's profile. An unknown run has none; it is refused later.
    pub(super) async fn credentials_for(
        &self,
        who: &Principal,
        action: Action,
        run: &str,
        env: BTreeMap<String, String>,
    ) -> Result<KeptCredentials, OpError> {
        checked_env(&env)?;
        let agent =
            self.store.read(
                |connection| match lookup::run(connection, who, action, run) {
                    Ok(run) => Ok(Some(run_input(connection, run.id)?.agent)),
                    Err(StoreError::Denied(_)) => Ok(None),
                    Err(error) => Err(error),
                },
            )?;
        if let Some(agent) = &agent {
            check_again(&self.settings.config_or_builtin(), agent)?;
        }
        let own = agent.map_or_else(BTreeMap::new, |agent| programs::stored_env(&agent, env));
        Ok(self.store.save_credentials(own).await?)
    }

    /// Releases stored credentials that nothing refers to. The next sweep repeats what fails.
    pub(in crate::ops) async fn resolve_credentials(&self, kept: KeptCredentials) {
        if let Err(error) = self.store.resolve_credentials(kept).await {
            tracing::warn!(%error, "stored credentials cannot be released yet");
        }
    }
}
