//! Delegating the conflicts of a merge to an agent, as a new run.

use super::target::Target;
use crate::git;
use crate::ops::runs::DispatchCall;
use crate::ops::settings::Settings;
use crate::ops::trees::Trees;
use crate::ops::{Caller, OpError, Ops};
use crate::store::Store;
use crate::view::{Dispatch, MergeView};
use adjutant_core::merge::{ConflictKind, ConflictText, MergeOutcome, resolution_task};
use adjutant_core::{AgentName, Denied, HarnessKind, Isolation, RunId};
use std::collections::BTreeMap;

/// Delegates the conflicts of merges.
#[derive(Debug, Clone)]
pub(super) struct Resolver {
    store: Store,
    settings: Settings,
    trees: Trees,
    dispatch: DispatchCall,
}

impl Resolver {
    pub(super) fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            settings: ops.settings.clone(),
            trees: ops.trees.clone(),
            dispatch: DispatchCall::of(ops),
        }
    }

    /// Starts an isolated run, based on the commit that the user has checked out, to resolve the
    /// conflicts. Merging that run also counts as merging this one. `changes`: a commit whose
    /// difference from its parent is what is merged.
    pub(super) async fn resolve(
        &self,
        caller: Caller,
        target: &Target,
        changes: &str,
        agent: &str,
        env: BTreeMap<String, String>,
        mut view: MergeView,
    ) -> Result<MergeView, OpError> {
        let config = self.settings.config_or_builtin();
        if AgentName::parse(agent)
            .ok()
            .and_then(|name| config.agents.get(&name).map(|entry| entry.spec.harness))
            == Some(HarnessKind::Echo)
        {
            let problem = format!(
                "{agent} is a scripted agent, which resolves no conflict: name another one, see adj agents"
            );
            return Err(Denied::invalid("resolve_with", problem).into());
        }
        let texts = view.conflicts.iter().map(|conflict| ConflictText {
            path: conflict.path.clone(),
            kind: conflict.kind.known().unwrap_or(ConflictKind::Other),
            hunks: conflict.hunks.clone(),
        });
        let prompt = resolution_task(
            &target.run.name,
            &target.run.task,
            changes,
            &texts.collect::<Vec<_>>(),
        );
        let dispatch = Dispatch {
            agent: agent.to_owned(),
            prompt,
            cwd: target.workspace.repository.clone(),
            isolation: Some(Isolation::Clone.into()),
            env,
            ..Dispatch::default()
        };
        let resolving = self.dispatch.dispatch(caller, dispatch).await?;
        let (run, resolves) = (
            RunId::parse(&resolving.identity.run_id)
                .map_err(|error| OpError::Io(error.to_string()))?,
            target.run.id,
        );
        git::pin_resolved(
            &self.trees.repo_of(&target.run).await?,
            resolves,
            run,
            changes,
        )
        .await?;
        self.store
            .write(move |tx| tx.set_resolved_run(run, resolves))
            .await?;
        view.outcome = MergeOutcome::Resolving.into();
        view.resolving = Some(Box::new(resolving));
        Ok(view)
    }
}
