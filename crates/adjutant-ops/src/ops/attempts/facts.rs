//! Applying the facts that supervisors report.

use crate::ops::OpError;
use crate::ops::attempt_id::AttemptId;
use crate::ops::attempts::end::prepare_end;
use crate::ops::attempts::evidence::store_evidence;
use crate::ops::attempts::fallback::{fall_back, move_from_limited};
use crate::ops::attempts::final_report::FinalReport;
use crate::ops::attempts::signals::apply_signal;
use crate::ops::attempts::started::record_start;
use crate::ops::attempts::unstarted::return_to_queue;
use crate::ops::budgets::{UsageEnd, note_ignored_gate, note_unstated, state_gate_usage};
use crate::ops::evidence::note_shortfall;
use crate::ops::resources::note_use;
use crate::ops::results::note_gap;
use crate::ops::settings::Settings;
use crate::ops::terms::Terms;
use crate::protocol::{Fact, FactKind, QuotaWindowText, UsageText};
use crate::store::{
    Run, Store, StoreError, Tx, Usage, attempt_row, run_by_id, run_input, workspace_around,
};
use crate::view::codes;
use adjutant_core::condition::Retrying;
use adjutant_core::rate_limit::QuotaWindow;
use adjutant_core::signal::UnreadableEnd;
use adjutant_core::snapshot::TreeWork;
use adjutant_core::units::{duration, size};
use adjutant_core::{Cause, Denied, RunEvent, RunId, StopReason, Time};
use serde::Serialize;

/// Who changes a run with a fact.
const SUPERVISOR: &str = "supervisor";
/// Maximum number of quota windows kept of one statement.
const QUOTA_WINDOWS_MAX: usize = 8;

/// Applies facts, each once and in order, with its effect in the same transaction. Returns the
/// number of the last one.
///
/// # Errors
/// A failure of the store.
pub async fn apply_facts(
    store: &Store,
    settings: &Settings,
    id: AttemptId,
    facts: Vec<Fact>,
) -> Result<u64, OpError> {
    let terms = Terms::of(settings);
    Ok(store
        .write(move |tx| {
            tx.connection()
                .announce(|connection| run_by_id(connection, id.run));
            let Some(row) = attempt_row(tx.connection(), id.run, id.n)? else {
                return Err(Denied::not_found("attempt", &id.to_string()).into());
            };
            if row.lost_at.is_some() {
                return Err(Denied::conflict(
                    "attempt",
                    format!("the lease of {id} has expired; its late facts are not accepted"),
                )
                .into());
            }
            let mut cursor = row.fact;
            for fact in facts {
                if fact.n != cursor + 1 {
                    continue;
                }
                let at = Time(fact.at_ms).between(row.claimed_at, tx.now());
                tx.dated(at, |tx| apply_fact(tx, id, fact.what, &terms))?;
                cursor = fact.n;
            }
            if cursor > row.fact {
                tx.set_fact(id.run, id.n, cursor)?;
            }
            Ok(cursor)
        })
        .await?)
}

/// Applies one fact. A fact that the core rejects, because the run has already ended, changes
/// nothing and remains in the attempt's file.
pub(super) fn apply_fact(
    tx: &mut Tx<'_>,
    id: AttemptId,
    fact: FactKind,
    terms: &Terms,
) -> Result<(), StoreError> {
    let Some(run) = run_by_id(tx.connection(), id.run)?.filter(|run| run.attempt == id.n) else {
        return Ok(());
    };
    // A follow-up run works in the workspace of another one.
    if is_of_work(&fact)
        && let Some(workspace) = workspace_around(tx.connection(), &run.cwd)?
    {
        tx.add_tree_work(workspace.run, TreeWork::Watch)?;
    }
    let run = &run;
    match (Reporter { id, run, terms }).apply(tx, fact)? {
        // No process of the run is left that could change the policies.
        Some(run) if !run.state.is_live() => terms.policies.observe(tx),
        Some(_) | None => Ok(()),
    }
}

/// The attempt that reports a fact, and the settings for its run.
#[derive(Clone, Copy)]
struct Reporter<'a> {
    id: AttemptId,
    /// The run before the fact.
    run: &'a Run,
    terms: &'a Terms,
}

impl Reporter<'_> {
    /// Applies a fact. Returns the run if the fact has changed its state.
    fn apply(self, tx: &mut Tx<'_>, fact: FactKind) -> Result<Option<Run>, StoreError> {
        match fact {
            FactKind::Started {
                pid,
                guard_pid: _,
                containment,
                fence,
            } => {
                record_start(tx, self.id, self.run, &containment, fence)?;
                let run = tx.run(self.run.id)?;
                self.advance(tx, &run, RunEvent::Started, &format!("process {pid}"))
            }
            FactKind::SpawnFailed { code, message } => self.spawn_failed(tx, &code, &message),
            FactKind::LimitReached { active_ms } => {
                let text = format!("active for {}", duration::text(active_ms));
                self.stop(tx, StopReason::ResourceLimit, &text)
            }
            FactKind::HubLost {} => {
                let text = "no contact with the hub for most of the lease";
                self.stop(tx, StopReason::HostLost, text)
            }
            FactKind::MemoryLimitReached { memory_bytes } => {
                let text = memory_limit_text(tx, self.run.id, memory_bytes)?;
                let stopping = self.stop(tx, StopReason::MemoryLimit, &text)?;
                if stopping.is_some() {
                    tx.set_detail(self.run.id, &text)?;
                }
                Ok(stopping)
            }
            last @ FactKind::Ended { .. } => self.end(tx, last),
            other => self.note(tx, other).map(|()| None),
        }
    }

    /// Records what a fact says of an attempt that continues.
    fn note(self, tx: &mut Tx<'_>, fact: FactKind) -> Result<(), StoreError> {
        let Self { id, run, terms } = self;
        match fact {
            FactKind::WorkspacePrepared(preparation) => {
                tx.set_preparation(run.id, &to_json(&preparation)?)
            }
            FactKind::Signal { found } => apply_signal(tx, run, &found, terms),
            FactKind::Stalled { silent_ms } => tx.set_stalled(run, Some(silent_ms), SUPERVISOR),
            FactKind::ActiveAgain {} => tx.set_stalled(run, None, SUPERVISOR),
            FactKind::Retrying {
                cause,
                words,
                tries,
                for_ms,
            } => {
                let retrying = Retrying {
                    cause: Cause::from_word(&cause).unwrap_or(Cause::Agent),
                    words,
                    tries,
                    for_ms,
                };
                tx.set_retrying(run, &retrying, SUPERVISOR)
            }
            FactKind::Recovered {} => tx.set_recovered(run, SUPERVISOR),
            FactKind::Subagents(all) => tx.set_subagents(run, &to_json(&all)?),
            FactKind::Resources(found) => note_use(tx, run, id.n, found),
            FactKind::SnapshotFailed { why } => tx.set_snapshot_problem(run, &why, SUPERVISOR),
            FactKind::SnapshotTaken { .. } => compare_snapshot(tx, run),
            FactKind::WriteDenied { times, line } => {
                tx.set_denied_writes(run, times, &line, SUPERVISOR)
            }
            FactKind::AgentEnded { end } => note_agent_end(tx, id, &end),
            FactKind::EvidenceCollected(evidence) => store_evidence(tx, run, &evidence),
            FactKind::Session { session } => tx.set_session(run.id, &session),
            FactKind::Delivered { message_id } => tx.deliver_messages(run, &[message_id], "live"),
            FactKind::TurnEnded {} => {
                tx.set_messages_read(run.id)?;
                note_unstated(tx, run, UsageEnd::Turn, terms)?;
                tx.add_tree_work(run.id, TreeWork::Keep)
            }
            FactKind::Usage(usage) => state_usage(tx, run, usage, false, terms),
            FactKind::GateUsage { used } => state_gate_usage(tx, run, used, terms),
            FactKind::GateIgnored { why } => note_ignored_gate(tx, run, &why, terms),
            FactKind::QuotaWindows { windows } => set_quota_windows(tx, run, windows),
            FactKind::UsageLimitReported { until_ms } => {
                tx.set_usage_limit(&run.agent, tx.steady_at(Time(until_ms)))?;
                move_from_limited(tx, &run.agent)
            }
            FactKind::Output { .. } | FactKind::GuardLost {} => Ok(()),
            // `apply` handles the facts that change the state of the run.
            FactKind::Started { .. }
            | FactKind::SpawnFailed { .. }
            | FactKind::LimitReached { .. }
            | FactKind::HubLost {}
            | FactKind::MemoryLimitReached { .. }
            | FactKind::Ended { .. } => Ok(()),
        }
    }

    /// Applies an event to a run. `None`: the core rejects it, because the run has already ended.
    fn advance(
        self,
        tx: &mut Tx<'_>,
        run: &Run,
        event: RunEvent,
        text: &str,
    ) -> Result<Option<Run>, StoreError> {
        let advanced = tx.advance(run, event, self.terms.retention, SUPERVISOR, text);
        self.accepted(advanced)
    }

    /// Returns the run after an event, unless the core has rejected it.
    fn accepted(self, advanced: Result<Run, StoreError>) -> Result<Option<Run>, StoreError> {
        match advanced {
            Ok(run) => Ok(Some(run)),
            Err(StoreError::Denied(denied)) => {
                tracing::info!(attempt = %self.id, %denied, "a late fact was ignored");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Records that the supervisor stops the attempt.
    fn stop(
        self,
        tx: &mut Tx<'_>,
        reason: StopReason,
        text: &str,
    ) -> Result<Option<Run>, StoreError> {
        self.advance(tx, self.run, RunEvent::StopAsked(reason), text)
    }

    /// Records that the agent could not be started: another agent continues, or the run is queued
    /// again, or it fails.
    fn spawn_failed(
        self,
        tx: &mut Tx<'_>,
        code: &str,
        message: &str,
    ) -> Result<Option<Run>, StoreError> {
        let Self { id, run, terms } = self;
        let is_of_agent = matches!(code, codes::AGENT_NOT_FOUND | codes::AGENT_NOT_EXECUTABLE);
        if is_of_agent && fall_back(tx, run, id, message, terms.retention)? {
            return Ok(None);
        }
        let is_on_runner =
            attempt_row(tx.connection(), id.run, id.n)?.is_some_and(|row| row.host.is_some());
        if code == codes::STORAGE_FULL && is_on_runner {
            let queued = return_to_queue(tx, run, id, message, terms.retention);
            return self.accepted(queued);
        }
        tx.set_detail(run.id, message)?;
        self.advance(
            tx,
            run,
            RunEvent::SpawnFailed,
            &format!("{code}: {message}"),
        )
    }

    /// Ends the attempt, with the last fact of its supervisor.
    fn end(self, tx: &mut Tx<'_>, last: FactKind) -> Result<Option<Run>, StoreError> {
        let Self { id, run, terms } = self;
        let Some(report) = FinalReport::of(last).filter(|_| !run.state.is_finished()) else {
            return Ok(None);
        };
        let FinalReport {
            row,
            gap,
            usage,
            agent,
        } = report;
        tx.set_end(run.id, id.n, &row)?;
        note_gap(tx, run, &row.result, gap.as_ref())?;
        if let Some(usage) = usage {
            state_usage(tx, run, usage, true, terms)?;
        }
        let Some(end) = prepare_end(tx, id, run, agent, terms)? else {
            return Ok(None);
        };
        let text = if end.unreadable == Some(UnreadableEnd::Notify) {
            "notified that its block cannot be read"
        } else {
            ""
        };
        let ended = self.advance(tx, run, RunEvent::Ended(end), text)?;
        if let Some(run) = &ended {
            note_shortfall(tx, run)?;
            if run.state.is_finished() {
                tx.resolve_dependents(run.id, terms.retention)?;
            }
        }
        Ok(ended)
    }
}

/// Records the end of an attempt's agent, which counts if the supervisor dies before its last fact.
fn note_agent_end(tx: &mut Tx<'_>, id: AttemptId, end: &FactKind) -> Result<(), StoreError> {
    if let FactKind::Ended { active_ms, .. } = end {
        tx.state_active_time(id.run, *active_ms)?;
    }
    tx.set_agent_end(id.run, id.n, &to_json(end)?)
}

/// Schedules a comparison of a new snapshot of a run's tree.
fn compare_snapshot(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    match workspace_around(tx.connection(), &run.cwd)? {
        None => Ok(()),
        Some(own) if own.run == run.id => tx.add_tree_work(run.id, TreeWork::Compare),
        Some(other) => tx.add_tree_work(other.run, TreeWork::Watch),
    }
}

/// Records how much of its quota a run's agent has used.
fn set_quota_windows(
    tx: &mut Tx<'_>,
    run: &Run,
    windows: Vec<QuotaWindowText>,
) -> Result<(), StoreError> {
    for QuotaWindowText {
        minutes,
        used_percent,
        resets_at_ms,
    } in windows.into_iter().take(QUOTA_WINDOWS_MAX)
    {
        let window = QuotaWindow {
            minutes,
            used_percent: used_percent.min(100),
            resets_at: Time(resets_at_ms),
        };
        tx.set_quota_window(&run.agent, window)?;
    }
    Ok(())
}

fn to_json(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Describes a stop at the memory limit of a run's agent.
fn memory_limit_text(tx: &Tx<'_>, run: RunId, memory_bytes: u64) -> Result<String, StoreError> {
    let limit = run_input(tx.connection(), run)?
        .agent
        .memory_bytes_max
        .map(size::exact);
    let limit = limit.map_or_else(String::new, |limit| {
        format!(", above the agent's limit of {limit}")
    });
    Ok(format!(
        "its processes used {} of memory{limit}",
        size::megabytes(memory_bytes)
    ))
}

/// Returns whether a fact shows that the agent works, so that its tree can have changed.
fn is_of_work(fact: &FactKind) -> bool {
    use FactKind::{GateUsage, Output, Resources, Signal, Subagents, Usage};
    matches!(
        fact,
        Output { .. } | Signal { .. } | Subagents(_) | Usage(_) | GateUsage { .. } | Resources(_)
    )
}

/// Records the usage that a run's agent reports. The usage of a finished run does not change.
fn state_usage(
    tx: &mut Tx<'_>,
    run: &Run,
    usage: UsageText,
    is_over: bool,
    terms: &Terms,
) -> Result<(), StoreError> {
    if run.state.is_finished() {
        return Ok(());
    }
    let UsageText {
        input_tokens,
        cached_tokens,
        output_tokens,
        cost_micros,
        of_session,
        cost_of_session,
        cached_in_input,
    } = usage;
    let usage = Usage {
        input_tokens,
        cached_tokens,
        output_tokens,
        cost_micros,
        of_session,
        cost_of_session,
        cached_in_input,
    };
    tx.state_usage(
        run,
        &usage,
        terms.prices.of_agent(&run.agent),
        is_over,
        terms.retention,
    )
}
