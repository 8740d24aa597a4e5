//! Runs.

use super::queue::QueueReads;
use super::report::command_view;
use super::request::requests;
use crate::clock::{self, rfc3339};
use crate::config::Home;
use crate::link::{CommandEvidence, NotCopiedText, PreparationText, SubagentsText};
use crate::logs::{self, kept::AttemptLogs};
use crate::ops::workspaces::cache_dirs;
use crate::store::{
    Connection, FenceState, LiveInDir, Pools, RetryingSince, Run, StoreError, Undo, Usage,
    Workspace, children_of, current_host, interrupted_undo as interrupted_undo_of,
    is_usage_of_last_call, live_in_dir, ports_of, requests_of, run_by_id, run_parts, run_terms,
    runner_name, workspace_of,
};
use crate::view::{
    CheckpointView, FenceView, IgnoredView, InterruptedUndoView, NotCopiedView, PortsView,
    ReportedView, RetryingView, RunView, SubagentView, UsageView, WorkspaceView,
};
use adjutant_core::agent::AgentOverrides;
use adjutant_core::report::{Claim, ReportStatus};
use adjutant_core::result::end_reason;
use adjutant_core::run;
use adjutant_core::signal::Checkpoint;
use adjutant_core::{
    Exit, Failure, Outcome, Permissions, PortRange, RunId, RunState, Time, subagent,
};
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
        if !run.state.is_finished() && view.log_runner.is_none() {
            (view.shares_directory_with, view.shares_directory_more) =
                self.live_in_dir_of(run)?.others(run.id);
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
    let has_no_log = view.log_path.is_empty() || run.state == RunState::Starting;
    announce_run(connection, run.id);
    if view.usage.is_some() {
        connection.announce(|connection| is_usage_of_last_call(connection, run.id));
    }
    let pending = if run.pending > 0 {
        requests_of(connection, run.id, false, PENDING_SHOWN_MAX)?
    } else {
        Vec::new()
    };
    view.pending = requests(&pending);
    view.checkpoint = crate::ops::evidence::checkpoint(connection, run)?
        .as_ref()
        .map(checkpoint);
    let parts = run_parts(connection, run.id)?;
    let terms = run_terms(connection, run.id)?;
    view.criteria = terms.criteria;
    AgentOverrides {
        model: view.model,
        args: view.args,
        env: view.set_env,
    } = terms.overrides;
    if parts.has_report {
        super::report::add_report(connection, run, &terms.accept, &mut view)?;
    }
    crate::ops::conflicts::add_conflicts(connection, run, &mut view)?;
    crate::ops::ledger::add_overlaps(connection, run, &mut view)?;
    if parts.has_announcements {
        crate::ops::ledger::add_announced(connection, run, &mut view)?;
    }
    if let Some((permissions, is_plain)) = terms.permissions {
        view.permissions = Some(permissions.into());
        view.permissions_not_enforced = is_plain && permissions != Permissions::Full;
    }
    if parts.has_workspace {
        view.workspace = workspace_of(connection, run.id)?
            .map(|found| workspace(home, found))
            .transpose()?;
    }
    if parts.has_ports && run.state.is_live() {
        view.ports = ports_of(connection, run.id)?
            .map(|PortRange { base, count }| PortsView { base, count });
    }
    if let Some(usage) = &mut view.usage {
        usage.of_last_call = is_usage_of_last_call(connection, run.id)?;
    }
    if let Some(parent) = run.parent {
        view.parent_name = run_by_id(connection, parent)?.map(|parent| parent.name);
    }
    if parts.has_children {
        for child in children_of(connection, run.id)?
            .into_iter()
            .take(CHILDREN_SHOWN_MAX)
        {
            view.children
                .extend(run_by_id(connection, child)?.map(|child| child.name));
        }
    }
    if has_no_log && let Some(host) = current_host(connection, run.id)? {
        let expected = std::mem::take(&mut view.log_path);
        view.log_paths.retain(|path| *path != expected);
        view.log_runner = Some(runner_name(&host).to_owned());
    }
    if parts.has_interrupted_undo {
        view.undo_interrupted =
            interrupted_undo_of(connection, run.id)?.map(|undo| interrupted_undo(run, &undo));
    }
    if parts.are_there_budgets {
        view.budgets = crate::ops::budgets::views(connection, run)?;
    }
    if parts.starts_after_others {
        view.after = super::queue::after(connection, run)?;
    }
    if let (true, Some(attention)) = (run.is_held(), &mut view.attention) {
        super::attention::name_causes(attention, run, &view.after);
    }
    Ok(view)
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

/// Returns the parts of a run's view that need only its row.
pub(in crate::ops) fn brief(home: &Home, run: &Run) -> RunView {
    let time = |time: Option<Time>| time.map(rfc3339);
    let reason = match run.state {
        RunState::Stopped { reason, until } if reason.waits_for_model() => Some(format!(
            "{}, resumes at {}",
            reason.word(),
            rfc3339(clock::expected_wall_time(until))
        )),
        RunState::Stopping(reason) | RunState::Stopped { reason, .. } => {
            Some(reason.word().to_owned())
        }
        RunState::Finished(Outcome::Failed(failure)) => Some(failure.to_string()),
        RunState::Finished(
            Outcome::SpawnFailed | Outcome::Cancelled | Outcome::Lost | Outcome::Succeeded,
        )
        | RunState::Queued
        | RunState::Starting
        | RunState::Running => match (run.is_retrying(), run.silent_since()) {
            (
                Some(RetryingSince {
                    cause,
                    since,
                    tries,
                    words,
                }),
                _,
            ) => {
                let tries = if *tries == 1 {
                    "1 failed try".to_owned()
                } else {
                    format!("{tries} failed tries")
                };
                Some(format!(
                    "retrying ({}, {tries} since {}): {words}",
                    cause.word(),
                    rfc3339(*since)
                ))
            }
            (None, Some(since)) => {
                let alive = if run.standing_report().is_some() {
                    "still alive after its report: "
                } else {
                    ""
                };
                Some(format!(
                    "{alive}no output and no call since {}",
                    rfc3339(since)
                ))
            }
            (None, None) => None,
        },
    };
    let reason = match (reason, &run.detail) {
        // The detail of an earlier stop says nothing about a run that is queued again.
        (None, Some(_)) if run.state == RunState::Queued && run.started_at.is_some() => None,
        (Some(reason), Some(detail)) => Some(format!("{reason}: {detail}")),
        (reason, detail) => reason.or_else(|| detail.clone()),
    };
    let subagents = run
        .subagents
        .as_deref()
        .map_or_else(SubagentsText::default, |kept| {
            serde_json::from_slice(kept.as_bytes()).unwrap_or_else(|error| {
                tracing::error!(run = %run.id, %error, "the stored sub-agents cannot be read");
                SubagentsText::default()
            })
        });
    let logs = logs::log_paths(&home.dir, &run.id.to_string(), run.attempt.0);
    // The hub can lack the log of a run on a runner, or have a part. Before an attempt starts, there is none.
    let is_expected = matches!(run.state, RunState::Queued | RunState::Starting);
    let newest = AttemptLogs {
        home: home.dir.clone(),
        run_id: run.id.to_string(),
        attempt: run.attempt.0,
    };
    let is_part = newest
        .record()
        .is_ok_and(|record| record.is_some_and(|record| !record.is_complete));
    let log_path = logs
        .last()
        .filter(|path| is_expected || path.exists() && !is_part)
        .cloned();
    let log_paths = logs
        .iter()
        .filter(|path| logs.last() != Some(path) || log_path.is_some());
    let log_paths: Vec<String> = log_paths.map(|path| path.display().to_string()).collect();
    RunView {
        run_id: run.id.to_string(),
        name: run.name.clone(),
        agent: run.agent.clone(),
        status: run::status(run.state, run.open_requests(), run.claim).into(),
        state: run.state.kind().into(),
        outcome: if let RunState::Finished(outcome) = run.state {
            Some(outcome.kind().into())
        } else {
            None
        },
        reason,
        cause: match run.state {
            RunState::Finished(Outcome::Failed(Failure::Agent(cause))) => Some(cause.into()),
            _ => None,
        },
        attention: super::attention::attention(run),
        resumes_by_itself: super::attention::resumes_by_itself(run),
        resumes_at: match run.state {
            RunState::Stopped { reason, until } if reason.waits_for_model() => {
                Some(rfc3339(clock::expected_wall_time(until)))
            }
            _ => None,
        },
        reported: run.standing_report().map(|report| ReportedView {
            at: rfc3339(report.at),
            status: run
                .claim
                .map_or(ReportStatus::Success, Claim::status)
                .into(),
            is_new: !report.is_owner_notified,
        }),
        silent_since: time(run.silent_since()),
        retrying: run.is_retrying().map(retrying),
        subagents: subagents
            .all
            .into_iter()
            .map(|one| subagent(one, run.state.is_live()))
            .collect(),
        subagents_more: subagents.more,
        note: run.note.clone(),
        snapshot_problem: run.snapshot_problem.clone(),
        undo_interrupted: None,
        gone: None,
        conflicts: Vec::new(),
        merge_order: Vec::new(),
        announced: None,
        overlaps: Vec::new(),
        unannounced_files: Vec::new(),
        exit_code: match run.exit {
            Some(Exit::Code(code)) => Some(code),
            Some(Exit::Signal(signal)) => Some(128 + signal),
            None => None,
        },
        task: run.task.clone(),
        cwd: run.cwd.clone(),
        workspace: None,
        ports: None,
        permissions: None,
        permissions_not_enforced: false,
        model: None,
        args: Vec::new(),
        set_env: Vec::new(),
        owner: run.owner.to_string(),
        parent: run.parent.map(|id| id.to_string()),
        root: run.root.to_string(),
        retry_of: run.retry_of.map(|id| id.to_string()),
        attempt: run.attempt.0,
        created_at: rfc3339(run.created_at),
        started_at: time(run.started_at),
        ended_at: time(run.ended_at),
        updated_at: rfc3339(run.updated_at),
        summary: run.summary.clone(),
        end_reason: end_reason(run.state, run.claim).map(Into::into),
        result: run.reconstructed.clone().or_else(|| run.result.clone()),
        result_bytes: run
            .result_bytes
            .filter(|bytes| *bytes > run.result.as_ref().map_or(0, String::len) as u64),
        reconstructed: run.reconstructed.is_some(),
        result_gap: run.result_gap.map(Into::into),
        last_message: run.result.clone().filter(|_| run.reconstructed.is_some()),
        percent: run.percent,
        progress: run.progress.clone(),
        eta: run.eta.clone(),
        choices: super::report::choice_views(run),
        report: None,
        criteria: None,
        acceptance: None,
        changed_files: None,
        changed_files_more: false,
        commits: Vec::new(),
        changed_before_too: false,
        changed_beside: Vec::new(),
        snapshots: Vec::new(),
        committed_copies: Vec::new(),
        annotation: run.annotation.clone(),
        ignored_signals: run.ignored_why.clone().map(|last| IgnoredView {
            count: u64::try_from(run.ignored).unwrap_or(0),
            last,
        }),
        checkpoint: run.checkpoint.as_ref().map(checkpoint),
        pending: Vec::new(),
        pending_total: u64::try_from(run.pending).unwrap_or(0),
        settled: Vec::new(),
        settled_more: false,
        signals: Vec::new(),
        containment: run.containment.clone(),
        fence: run.fence.clone().map(fence),
        swept: run.swept,
        output_left_open: run.output_left_open,
        active_ms: u64::try_from(run.active_ms_at(clock::steady())).unwrap_or(0),
        estimate_ms: run.estimate_ms.and_then(|ms| u64::try_from(ms).ok()),
        overdue_since: time(run.overdue_since()),
        session: run.session.clone(),
        usage: usage(run),
        budgets: Vec::new(),
        resources: crate::ops::resources::resources_of(run),
        pool: run.pool.clone(),
        priority: run.rank.priority().map(Into::into),
        agent_why: run.agent_why.clone(),
        policies_not_in_effect: Vec::new(),
        after: Vec::new(),
        queue: None,
        queue_place: None,
        queue_ahead_min: None,
        parent_name: None,
        children: Vec::new(),
        shares_directory_with: Vec::new(),
        shares_directory_more: false,
        log_path: log_path
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        log_paths,
        log_runner: None,
        cursor: run.last_seq.0,
        messages: Vec::new(),
        tree: None,
    }
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

fn fence(state: FenceState) -> FenceView {
    let FenceState {
        asked,
        workspace: _,
        enforced,
        gaps,
        why,
        writable,
        denied,
    } = state;
    let (denied_writes, denied_write) = denied.map(|denied| (denied.times, denied.line)).unzip();
    FenceView {
        asked,
        enforced,
        not_enforced: gaps,
        why,
        writable,
        denied_writes,
        denied_write,
    }
}

/// The state of a sub-agent that was running when the run ended is unknown.
fn subagent(seen: SubagentView, is_live: bool) -> SubagentView {
    let state = seen
        .state
        .filter(|state| is_live || state != subagent::RUNNING);
    SubagentView { state, ..seen }
}

fn retrying(since: &RetryingSince) -> RetryingView {
    let RetryingSince {
        cause,
        since,
        tries,
        words,
    } = since.clone();
    RetryingView {
        cause: cause.into(),
        since: rfc3339(since),
        tries,
        words,
    }
}

fn usage(run: &Run) -> Option<UsageView> {
    let Usage {
        input_tokens,
        cached_tokens,
        output_tokens,
        cost_micros,
        of_session: _,
        cost_of_session: _,
        cached_in_input: _,
    } = run.usage?;
    #[expect(
        clippy::cast_precision_loss,
        reason = "nobody spends so much that a cent is lost"
    )]
    let cost_usd = cost_micros.map(|micros| micros as f64 / 1_000_000.0);
    let (cost_by_prices, unpriced_tokens) = (run.is_priced, run.unpriced_tokens.unsigned_abs());
    Some(UsageView {
        input_tokens,
        cached_tokens,
        output_tokens,
        of_last_call: false,
        cost_usd,
        cost_by_prices,
        unpriced_tokens,
    })
}

fn checkpoint(from: &Checkpoint) -> CheckpointView {
    let Checkpoint {
        made_by,
        blocker_type,
        details,
        completed_work,
        blocked_work,
        state,
        requirements,
        recovery,
        working_directory,
        changed_files,
    } = from.clone();
    CheckpointView {
        made_by: made_by.into(),
        blocker_type,
        details,
        completed_work,
        blocked_work,
        state_snapshot: state,
        resume_requirements: requirements,
        error_recovery: recovery,
        working_directory,
        changed_files,
    }
}
