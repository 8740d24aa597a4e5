//! Dispatching runs.

use crate::clock;
use crate::config::Home;
use crate::ops::credentials::resolve_credentials;
use crate::ops::pools::HubPools;
use crate::ops::runs::plan::{DispatchPlanner, NewIds};
use crate::ops::settings::Settings;
use crate::ops::workspaces::Workspaces;
use crate::ops::{Caller, OpError, Ops, lookup, random};
use crate::store::{NewWorkspace, Store};
use crate::view::{Dispatch, RunView};
use adjutant_core::{Action, RunId};
use std::sync::Arc;

/// Dispatches runs.
#[derive(Debug, Clone)]
pub struct DispatchCall {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
    workspaces: Workspaces,
    planner: DispatchPlanner,
}

impl DispatchCall {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            home: Arc::clone(&ops.home),
            settings: ops.settings.clone(),
            workspaces: Workspaces::of(ops),
            planner: DispatchPlanner::new(
                ops.store.clone(),
                Arc::clone(&ops.home),
                Workspaces::of(ops),
                HubPools::of(ops),
            ),
        }
    }

    /// Queues a run. Durable when it returns; the hub starts it as soon as a slot is free.
    ///
    /// # Errors
    /// The agent, its program, the directory, the name or the prompt is unusable.
    pub async fn dispatch(&self, caller: Caller, call: Dispatch) -> Result<RunView, OpError> {
        lookup::check(&caller.who, Action::Dispatch)?;
        let config = self.settings.config()?;
        let mut plan = self.planner.plan(&caller.who, call, config).await?;
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
        resolve_credentials(&self.store, kept).await;
        resolve_credentials(&self.store, variables).await;
        pin_dispatched(&self.workspaces, id, workspace, dispatched).await
    }
}

/// Pins the base of a dispatched run. A repeated call has dispatched none.
pub(super) async fn pin_dispatched(
    workspaces: &Workspaces,
    id: RunId,
    planned: Option<NewWorkspace>,
    dispatched: Result<RunView, OpError>,
) -> Result<RunView, OpError> {
    let view = dispatched?;
    if let Some(planned) = planned.filter(|_| view.identity.run_id == id.to_string()) {
        workspaces.pin_base(id, &planned).await;
    }
    Ok(view)
}
