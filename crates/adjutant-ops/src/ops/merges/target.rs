//! The run whose changes are merged or discarded, and its workspace.

use crate::git::nearest_repository;
use crate::ops::{OpError, lookup};
use crate::store::{
    Run, Store, StoreError, Workspace, live_around, run_by_id, workspace_around, workspace_of,
};
use adjutant_core::{Action, Denied, Principal, RunState, WorkspaceState};
use std::path::Path;

/// Maximum number of runs that an error names.
const NAMED_MAX: usize = 5;

/// An isolated run that has stopped or ended.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub run: Run,
    pub workspace: Workspace,
}

/// Returns the name of the run in whose workspace another one works.
fn workspace_owner(store: &Store, run: &Run) -> Result<Option<String>, OpError> {
    Ok(store.read(|connection| {
        let Some(around) = workspace_around(connection, &run.cwd)? else {
            return Ok(None);
        };
        Ok::<_, StoreError>(run_by_id(connection, around.run)?.map(|owner| owner.name))
    })?)
}

/// Finds an isolated run whose workspace is not in use. `wanted` names the action in errors.
pub(super) fn target(
    store: &Store,
    who: &Principal,
    action: Action,
    given: &str,
    wanted: &'static str,
) -> Result<Target, OpError> {
    let (run, workspace, others) = store.read(|connection| {
        let run = lookup::run(connection, who, action, given)?;
        let workspace = workspace_of(connection, run.id)?;
        let others = live_around(connection, &run.cwd, run.id)?;
        Ok((run, workspace, others))
    })?;
    let Some(workspace) = workspace else {
        if let Some(owner) = workspace_owner(store, &run)? {
            let problem = format!(
                "{} works in the workspace of {owner}: name that run",
                run.name
            );
            return Err(Denied::invalid("run", problem).into());
        }
        // Without a repository there are no snapshots to compare or to restore.
        let review = nearest_repository(Path::new(&run.cwd))
            .map_or("", |_| "; see adj diff, and adj undo to take them back");
        let problem = format!(
            "{} has no workspace of its own: its changes are in {} already{review}",
            run.name, run.cwd
        );
        return Err(Denied::invalid("run", problem).into());
    };
    if run.state.is_live() || run.state == RunState::Queued {
        return Err(Denied::WrongState {
            run: run.name.clone(),
            state: run.state.word(),
            wanted,
        }
        .into());
    }
    if !others.is_empty() {
        let names = others
            .iter()
            .take(NAMED_MAX)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        return Err(Denied::conflict(
            "run",
            format!("{names} works in its workspace: wait for it, or pause it"),
        )
        .into());
    }
    if matches!(
        workspace.state,
        WorkspaceState::Planned | WorkspaceState::Starting
    ) {
        return Err(Denied::conflict(
            "run",
            format!("{} has not worked yet, so it has changed nothing", run.name),
        )
        .into());
    }
    Ok(Target { run, workspace })
}
