//! Applying the facts that supervisors report.

use crate::config::memory_text;
use crate::link::{Fact, FactKind, FenceText, QuotaWindowText, UsageText};
use crate::ops::attempts::claim::UNDELIVERED_MAX;
use crate::ops::attempts::end::{AgentEnd, prepare_end};
use crate::ops::attempts::evidence::store_evidence;
use crate::ops::attempts::fallback::{fall_back, move_from_limited};
use crate::ops::attempts::start::return_to_queue;
use crate::ops::attempts::{AttemptId, resumption};
use crate::ops::budgets::{UsageEnd, note_unstated};
use crate::ops::{OpError, Ops, Terms};
use crate::store::{
    EndRow, FenceState, Run, StoreError, Tx, Usage, attempt_row, fruitless_attempts, run_by_id,
    run_input, undelivered_of, workspace_around,
};
use crate::view::codes;
use adjutant_core::condition::Retrying;
use adjutant_core::rate_limit::QuotaWindow;
use adjutant_core::signal::UnreadableEnd;
use adjutant_core::snapshot::TreeWork;
use adjutant_core::{
    Cause, Denied, Exit, RequestEvent, RequestState, RunEvent, RunId, StopReason, Time,
};

/// Maximum number of quota windows kept of one statement.
const QUOTA_WINDOWS_MAX: usize = 8;

impl Ops {
    /// Applies facts, each once and in order, with its effect in the same transaction. Returns the number of the last
    /// one.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn apply_facts(&self, id: AttemptId, facts: Vec<Fact>) -> Result<u64, OpError> {
        let terms = self.terms();
        Ok(self
            .store
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
}

/// Applies one fact. A fact that the core rejects, because the run has already ended, changes nothing and remains
/// in the attempt's file.
pub(super) fn apply_fact(
    tx: &mut Tx<'_>,
    id: AttemptId,
    fact: FactKind,
    terms: &Terms,
) -> Result<(), StoreError> {
    let retention = terms.retention;
    let Some(run) = run_by_id(tx.connection(), id.run)? else {
        return Ok(());
    };
    if run.attempt != id.n {
        return Ok(());
    }
    let by = "supervisor";
    // A follow-up run works in the workspace of another one.
    if is_of_work(&fact)
        && let Some(workspace) = workspace_around(tx.connection(), &run.cwd)?
    {
        tx.add_tree_work(workspace.run, TreeWork::Watch)?;
    }
    let advanced = match fact {
        FactKind::Started {
            pid,
            guard_pid: _,
            containment,
            fence,
        } => {
            record_start(tx, id, &run, &containment, fence)?;
            let run = tx.run(run.id)?;
            tx.advance(
                &run,
                RunEvent::Started,
                retention,
                by,
                &format!("process {pid}"),
            )
        }
        FactKind::WorkspacePrepared(preparation) => {
            let text = serde_json::to_string(&preparation)
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
            return tx.set_preparation(run.id, &text);
        }
        FactKind::SpawnFailed { code, message } => {
            let is_of_agent = matches!(
                code.as_str(),
                codes::AGENT_NOT_FOUND | codes::AGENT_NOT_EXECUTABLE
            );
            if is_of_agent && fall_back(tx, &run, id, &message, retention)? {
                return Ok(());
            }
            let is_on_runner =
                attempt_row(tx.connection(), id.run, id.n)?.is_some_and(|row| row.host.is_some());
            if code == codes::STORAGE_FULL && is_on_runner {
                return_to_queue(tx, &run, id, &message, retention)
            } else {
                tx.set_detail(run.id, &message)?;
                tx.advance(
                    &run,
                    RunEvent::SpawnFailed,
                    retention,
                    by,
                    &format!("{code}: {message}"),
                )
            }
        }
        FactKind::Signal { found } => {
            return crate::ops::attempts::signals::apply_signal(tx, &run, &found, terms);
        }
        FactKind::Output { .. } | FactKind::GuardLost {} => return Ok(()),
        FactKind::Stalled { silent_ms } => return tx.set_stalled(&run, Some(silent_ms), by),
        FactKind::ActiveAgain {} => return tx.set_stalled(&run, None, by),
        FactKind::Retrying {
            cause,
            words,
            tries,
            for_ms,
        } => {
            let cause = Cause::from_word(&cause).unwrap_or(Cause::Agent);
            return tx.set_retrying(
                &run,
                &Retrying {
                    cause,
                    words,
                    tries,
                    for_ms,
                },
                by,
            );
        }
        FactKind::Subagents(all) => {
            let kept = serde_json::to_string(&all)
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
            return tx.set_subagents(&run, &kept);
        }
        FactKind::Usage(usage) => return state_usage(tx, &run, usage, false, terms),
        FactKind::GateUsage { used } => {
            return crate::ops::budgets::state_gate_usage(tx, &run, used, terms);
        }
        FactKind::GateIgnored { why } => {
            return crate::ops::budgets::note_ignored_gate(tx, &run, &why, terms);
        }
        FactKind::Resources(found) => {
            return crate::ops::resources::note_use(tx, &run, id.n, found);
        }
        FactKind::SnapshotFailed { why } => return tx.set_snapshot_problem(&run, &why, by),
        FactKind::TurnEnded {} => {
            tx.set_messages_read(run.id)?;
            note_unstated(tx, &run, UsageEnd::Turn, terms)?;
            return tx.add_tree_work(run.id, TreeWork::Keep);
        }
        FactKind::SnapshotTaken { .. } => {
            return match workspace_around(tx.connection(), &run.cwd)? {
                None => Ok(()),
                Some(own) if own.run == run.id => tx.add_tree_work(run.id, TreeWork::Compare),
                Some(other) => tx.add_tree_work(other.run, TreeWork::Watch),
            };
        }
        FactKind::WriteDenied { times, line } => {
            return tx.set_denied_writes(&run, times, &line, by);
        }
        FactKind::QuotaWindows { windows } => {
            for QuotaWindowText {
                minutes,
                used_percent,
                resets_at_ms,
            } in windows.into_iter().take(QUOTA_WINDOWS_MAX)
            {
                tx.set_quota_window(
                    &run.agent,
                    QuotaWindow {
                        minutes,
                        used_percent: used_percent.min(100),
                        resets_at: Time(resets_at_ms),
                    },
                )?;
            }
            return Ok(());
        }
        FactKind::UsageLimitReported { until_ms } => {
            tx.set_usage_limit(&run.agent, tx.steady_at(Time(until_ms)))?;
            return move_from_limited(tx, &run.agent);
        }
        FactKind::Recovered {} => return tx.set_recovered(&run, by),
        FactKind::AgentEnded { end } => {
            if let FactKind::Ended { active_ms, .. } = &*end {
                tx.state_active_time(run.id, *active_ms)?;
            }
            let end = serde_json::to_string(&end)
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
            return tx.set_agent_end(run.id, id.n, &end);
        }
        FactKind::EvidenceCollected(evidence) => return store_evidence(tx, &run, &evidence),
        FactKind::Session { session } => return tx.set_session(run.id, &session),
        FactKind::Delivered { message_id } => {
            return tx.deliver_messages(&run, &[message_id], "live");
        }
        FactKind::LimitReached { active_ms } => tx.advance(
            &run,
            RunEvent::StopAsked(StopReason::ResourceLimit),
            retention,
            by,
            &format!("active for {} s", active_ms / 1000),
        ),
        FactKind::HubLost {} => tx.advance(
            &run,
            RunEvent::StopAsked(StopReason::HostLost),
            retention,
            by,
            "no contact with the hub for most of the lease",
        ),
        FactKind::MemoryLimitReached { memory_bytes } => {
            let detail = memory_limit_text(tx, run.id, memory_bytes)?;
            let advanced = tx.advance(
                &run,
                RunEvent::StopAsked(StopReason::MemoryLimit),
                retention,
                by,
                &detail,
            );
            if advanced.is_ok() {
                tx.set_detail(run.id, &detail)?;
            }
            advanced
        }
        FactKind::Ended {
            exit_code,
            signal,
            swept,
            output_left_open,
            active_ms,
            by_itself,
            result,
            result_bytes,
            gap,
            output_bytes: _,
            error_line,
            verdict,
            usage,
            lacks_tools,
        } => {
            if run.state.is_finished() {
                return Ok(());
            }
            let exit = match (exit_code, signal) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => Exit::Code(-1),
            };
            // An older supervisor does not report the length of the message.
            let result_bytes = result_bytes.max(result.len() as u64);
            let end = EndRow {
                exit,
                swept,
                output_left_open,
                active_ms,
                by_itself,
                result,
                result_bytes,
            };
            tx.set_end(run.id, id.n, &end)?;
            crate::ops::results::note_gap(tx, &run, &end.result, gap.as_ref())?;
            if let Some(usage) = usage {
                state_usage(tx, &run, usage, true, terms)?;
            }
            let Some(end) = prepare_end(
                tx,
                id,
                &run,
                AgentEnd {
                    exit,
                    by_itself,
                    error_line,
                    lacks_tools,
                },
                verdict,
                terms,
            )?
            else {
                return Ok(());
            };
            let text = if end.unreadable == Some(UnreadableEnd::Notify) {
                "notified that its block cannot be read"
            } else {
                ""
            };
            let advanced = tx.advance(&run, RunEvent::Ended(end), retention, by, text);
            if let Ok(run) = &advanced {
                crate::ops::evidence::note_shortfall(tx, run)?;
                if run.state.is_finished() {
                    tx.resolve_dependents(run.id, retention)?;
                }
            }
            advanced
        }
    };
    match advanced {
        // No process of the run is left that could change the policies.
        Ok(run) if !run.state.is_live() => terms.policies.observe(tx),
        Ok(_) => Ok(()),
        Err(StoreError::Denied(denied)) => {
            tracing::info!(attempt = %id, %denied, "a late fact was ignored");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Records how an attempt's agent was started, and that the answers and messages in its prompt have been delivered.
fn record_start(
    tx: &mut Tx<'_>,
    id: AttemptId,
    run: &Run,
    containment: &str,
    fence: Option<FenceText>,
) -> Result<(), StoreError> {
    tx.set_containment(run.id, id.n, containment)?;
    tx.set_workspace_ready(&run.cwd)?;
    if let (
        Some(FenceText {
            enforced,
            gaps,
            why,
            writable,
        }),
        Some(known),
    ) = (fence, &run.fence)
    {
        tx.set_fence(
            run.id,
            &FenceState {
                enforced: Some(enforced),
                gaps,
                why,
                writable,
                denied: None,
                ..known.clone()
            },
        )?;
    }
    if id.n.0 > 1 + fruitless_attempts(tx.connection(), run.id)? {
        // The answers in the new attempt's prompt have been delivered.
        for request in undelivered_of(tx.connection(), run.id, UNDELIVERED_MAX)? {
            if request.delivered_to == Some(id.n)
                && matches!(request.state, RequestState::Answered(_))
            {
                tx.advance_request(&request, RequestEvent::Retrieve)?;
            }
        }
        let claimed_at =
            attempt_row(tx.connection(), run.id, id.n)?.map_or(tx.now(), |row| row.claimed_at);
        let sent = resumption::unsent(tx, run)?
            .into_iter()
            .filter(|message| message.sent_at <= claimed_at)
            .map(|message| message.id);
        tx.deliver_messages(run, &sent.collect::<Vec<_>>(), "prompt")?;
        tx.set_resolution(run.id, None, None, None)?;
    }
    Ok(())
}

/// Describes a stop at the memory limit of a run's agent.
fn memory_limit_text(tx: &Tx<'_>, run: RunId, memory_bytes: u64) -> Result<String, StoreError> {
    let limit = run_input(tx.connection(), run)?
        .agent
        .memory_bytes_max
        .map(memory_text);
    let limit = limit.map_or_else(String::new, |limit| {
        format!(", above the agent's limit of {limit}")
    });
    Ok(format!(
        "its processes used {} MB of memory{limit}",
        memory_bytes / 1_000_000
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
