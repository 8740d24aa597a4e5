//! Runs.

use super::brief::{brief, checkpoint};
use super::queue::QueueReads;
use super::report::command_view;
use super::request::requests;
use crate::config::Home;
use crate::ops::workspaces::cache_dirs;
use crate::protocol::{CommandEvidence, NotCopiedText, PreparationText};
use crate::store::{
    Connection, LiveInDir, Pools, Run, RunParts, RunTerms, StoreError, Undo, Workspace,
    children_of, current_host, interrupted_undo as interrupted_undo_of, is_usage_of_last_call,
    live_in_dir, ports_of, requests_of, run_by_id, run_parts, run_terms, runner_name, workspace_of,
};
use crate::view::{InterruptedUndoView, NotCopiedView, PortsView, RunView, WorkspaceView};
use adjutant_core::agent::AgentOverrides;
use adjutant_core::{Permissions, PortRange, RunId, RunState};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Maximum number of children named in a run's view.
const CHILDREN_SHOWN_MAX: usize = 50;
/// Maximum number of open requests in a run's view.
const PENDING_SHOWN_MAX: u32 = 200;
/// Of how many runs of a list the reads are announced together.
const ANNOUNCED_AT_ONCE: usize = 12;

/// Describes an undo of a run that was interrupted.
fn interrupted_undo(run: &Run, undo: &Undo) -> InterruptedUndoView {
    let Undo {
        run: _,
        to,
        before,
        is_forced: _,
    } = *undo;
    InterruptedUndoView {
        to,
        before,
        complete_with: undo.completing_command(&run.name),
        reverse_with: format!("adj undo {} {before}", run.name),
    }
}

/// Announces the reads of [`run`] that need only the id.
pub(in crate::ops) fn announce_run(connection: &Connection, run: RunId) {
    connection.announce(|connection| run_parts(connection, run));
    connection.announce(|connection| run_terms(connection, run));
    connection.announce(|connection| current_host(connection, run));
    connection.announce(|connection| live_in_dir(connection, run));
}

/// Describes one run.
pub(in crate::ops) fn run(
    connection: &Connection,
    home: &Home,
    run: &Run,
) -> Result<RunView, StoreError> {
    RunViews::new(connection, home).run(run)
}

/// Describes runs. Reads what the descriptions of several have in common once.
pub(in crate::ops) struct RunViews<'a> {
    connection: &'a Connection,
    home: &'a Home,
    queue: QueueReads<'a>,
    /// By directory.
    live: HashMap<String, LiveInDir>,
}

impl<'a> RunViews<'a> {
    pub(in crate::ops) fn new(connection: &'a Connection, home: &'a Home) -> Self {
        Self {
            connection,
            home,
            queue: QueueReads::new(connection),
            live: HashMap::new(),
        }
    }

    /// Describes one run.
    pub(in crate::ops) fn run(&mut self, run: &Run) -> Result<RunView, StoreError> {
        let mut view = of_one(self.connection, self.home, run)?;
        if run.state == RunState::Queued {
            self.queue.add_place(run, &mut view)?;
        }
        if !run.state.is_finished() && view.place.log_runner.is_none() {
            (
                view.place.shares_directory_with,
                view.place.shares_directory_more,
            ) = self.live_in_dir_of(run)?.others(run.id);
        }
        Ok(view)
    }

    /// Describes the runs of a list, each with why it is queued.
    pub(in crate::ops) fn list(
        &mut self,
        pools: &Pools,
        runs: &[Run],
    ) -> Result<Vec<RunView>, StoreError> {
        let mut views = Vec::with_capacity(runs.len());
        for part in runs.chunks(ANNOUNCED_AT_ONCE) {
            part.iter()
                .for_each(|run| announce_run(self.connection, run.id));
            for run in part {
                let mut view = self.run(run)?;
                self.add_queue(pools, run, &mut view)?;
                views.push(view);
            }
        }
        Ok(views)
    }

    /// Adds why a run is queued.
    pub(in crate::ops) fn add_queue(
        &mut self,
        pools: &Pools,
        run: &Run,
        view: &mut RunView,
    ) -> Result<(), StoreError> {
        self.queue.add_queue(pools, run, view)
    }

    /// Shows a newly queued run as starting when a slot is free: it starts within milliseconds.
    pub(in crate::ops) fn starts_at_once(
        &mut self,
        pools: &Pools,
        run: &Run,
        view: &mut RunView,
    ) -> Result<(), StoreError> {
        self.queue.starts_at_once(pools, run, view)
    }

    fn live_in_dir_of(&mut self, run: &Run) -> Result<&LiveInDir, StoreError> {
        Ok(match self.live.entry(run.cwd.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(live_in_dir(self.connection, run.id)?),
        })
    }
}

/// Describes a run without its place in the queue and the other runs in its directory.
fn of_one(connection: &Connection, home: &Home, run: &Run) -> Result<RunView, StoreError> {
    let mut view = brief(home, run);
    let has_no_log = view.place.log_path.is_empty() || run.state == RunState::Starting;
    announce_run(connection, run.id);
    if view.cost.usage.is_some() {
        connection.announce(|connection| is_usage_of_last_call(connection, run.id));
    }
    add_requests(connection, run, &mut view)?;
    let parts = run_parts(connection, run.id)?;
    let terms = run_terms(connection, run.id)?;
    if parts.has_report {
        super::report::add_report(connection, run, &terms.accept, &mut view)?;
    }
    add_terms(&mut view, terms);
    crate::ops::conflicts::add_conflicts(connection, run, &mut view)?;
    crate::ops::ledger::add_overlaps(connection, run, &mut view)?;
    if parts.has_announcements {
        crate::ops::ledger::add_announced(connection, run, &mut view)?;
    }
    add_place(connection, home, run, &parts, &mut view)?;
    if let Some(usage) = &mut view.cost.usage {
        usage.of_last_call = is_usage_of_last_call(connection, run.id)?;
    }
    add_relatives(connection, run, parts.has_children, &mut view)?;
    if has_no_log && let Some(host) = current_host(connection, run.id)? {
        let expected = std::mem::take(&mut view.place.log_path);
        view.place.log_paths.retain(|path| *path != expected);
        view.place.log_runner = Some(runner_name(&host).to_owned());
    }
    if parts.has_interrupted_undo {
        view.changes.undo_interrupted =
            interrupted_undo_of(connection, run.id)?.map(|undo| interrupted_undo(run, &undo));
    }
    if parts.are_there_budgets {
        view.cost.budgets = crate::ops::budgets::views(connection, run)?;
    }
    if parts.starts_after_others {
        view.in_queue.after = super::queue::after(connection, run)?;
    }
    if let (true, Some(attention)) = (run.is_held(), &mut view.condition.attention) {
        super::attention::name_causes(attention, run, &view.in_queue.after);
    }
    Ok(view)
}

/// Its open requests, and its newest checkpoint.
fn add_requests(connection: &Connection, run: &Run, view: &mut RunView) -> Result<(), StoreError> {
    let pending = if run.pending > 0 {
        requests_of(connection, run.id, false, PENDING_SHOWN_MAX)?
    } else {
        Vec::new()
    };
    view.requests.pending = requests(&pending);
    view.activity.checkpoint = crate::ops::evidence::checkpoint(connection, run)?
        .as_ref()
        .map(checkpoint);
    Ok(())
}

/// What it was started with.
fn add_terms(view: &mut RunView, terms: RunTerms) {
    view.terms.criteria = terms.criteria;
    AgentOverrides {
        model: view.terms.model,
        args: view.terms.args,
        env: view.terms.set_env,
    } = terms.overrides;
    if let Some((permissions, is_plain)) = terms.permissions {
        view.terms.permissions = Some(permissions.into());
        view.terms.permissions_not_enforced = is_plain && permissions != Permissions::Full;
    }
}

/// Its workspace and its ports.
fn add_place(
    connection: &Connection,
    home: &Home,
    run: &Run,
    parts: &RunParts,
    view: &mut RunView,
) -> Result<(), StoreError> {
    if parts.has_workspace {
        view.place.workspace = workspace_of(connection, run.id)?
            .map(|found| workspace(home, found))
            .transpose()?;
    }
    if parts.has_ports && run.state.is_live() {
        view.place.ports = ports_of(connection, run.id)?
            .map(|PortRange { base, count }| PortsView { base, count });
    }
    Ok(())
}

/// The names of its parent and its children.
fn add_relatives(
    connection: &Connection,
    run: &Run,
    has_children: bool,
    view: &mut RunView,
) -> Result<(), StoreError> {
    if let Some(parent) = run.parent {
        view.identity.parent_name = run_by_id(connection, parent)?.map(|parent| parent.name);
    }
    if has_children {
        for child in children_of(connection, run.id)?
            .into_iter()
            .take(CHILDREN_SHOWN_MAX)
        {
            view.identity
                .children
                .extend(run_by_id(connection, child)?.map(|child| child.name));
        }
    }
    Ok(())
}

/// Returns the parts of a run's view that need only its row and its report.
pub(in crate::ops) fn with_report(
    connection: &Connection,
    home: &Home,
    run: &Run,
) -> Result<RunView, StoreError> {
    let mut view = brief(home, run);
    if run_parts(connection, run.id)?.has_report {
        super::report::add_report(
            connection,
            run,
            &run_terms(connection, run.id)?.accept,
            &mut view,
        )?;
    }
    Ok(view)
}

fn workspace(home: &Home, of: Workspace) -> Result<WorkspaceView, StoreError> {
    let caches = cache_dirs(home, &of)
        .into_iter()
        .map(|(variable, dir)| (variable, dir.display().to_string()))
        .collect();
    let Workspace {
        run,
        isolation,
        repository,
        base,
        branch,
        changes,
        path,
        state,
        spec,
        preparation,
    } = of;
    let read = |text: String| serde_json::from_slice::<PreparationText>(text.as_bytes());
    let preparation = preparation
        .map(read)
        .transpose()
        .map_err(|error| StoreError::Corrupt(format!("the workspace of run {run}: {error}")))?;
    let PreparationText {
        copied,
        not_copied,
        empty_submodules,
        setup,
    } = preparation.unwrap_or_default();
    let not_run = || CommandEvidence {
        not_known: Some("it has not run to its end".to_owned()),
        ..CommandEvidence::default()
    };
    let setup =
        (!spec.setup.is_empty()).then(|| command_view(&setup.unwrap_or_else(not_run), &spec.setup));
    let not_copied = not_copied
        .into_iter()
        .map(|NotCopiedText { path, why }| NotCopiedView { path, why })
        .collect();
    let (isolation, state) = (isolation.into(), state.into());
    Ok(WorkspaceView {
        isolation,
        state,
        path,
        repository,
        base,
        branch,
        behind: None,
        changes,
        copied,
        not_copied,
        empty_submodules,
        caches,
        setup,
    })
}
