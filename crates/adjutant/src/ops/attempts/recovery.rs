//! Recovering attempts whose processes have ended.

use crate::leftovers::{self, LeftFacts};
use crate::link::{AttemptEvidence, CommandEvidence, FactKind, Remains};
use crate::ops::attempts::evidence::store_evidence;
use crate::ops::attempts::facts::apply_fact;
use crate::ops::attempts::{AttemptId, FRUITLESS_ATTEMPTS_MAX};
use crate::ops::budgets::{UsageEnd, note_unstated};
use crate::ops::results::note_loss;
use crate::ops::{OpError, Ops, Terms};
use crate::store::{StoreError, Tx, acceptance_of, attempt_row, fruitless_attempts, report_of, run_by_id};
use adjutant_core::{RunEvent, RunState, Time};

/// What was lost with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum Loss {
    Supervisor,
    /// The runner, whose lease has expired.
    Host,
}

impl Ops {
    /// Records the end of an attempt whose processes have ended, by applying the facts that its supervisor wrote but could not
    /// deliver. Without a final fact the run is lost, or queued again if its agent never started. `was_seen`: this hub has
    /// seen it alive, so it has been active until now.
    ///
    /// # Errors
    /// A failure of the store, or of the disk.
    pub async fn recover_attempt(&self, id: AttemptId, was_seen: bool) -> Result<(), OpError> {
        let facts_problem = self.apply_remaining_facts(id).await?;
        if self.is_settled(id)? {
            return Ok(());
        }
        let mut changes = None;
        if let Some(run) = self.store.read(|connection| run_by_id(connection, id.run))?.filter(|run| run.state != RunState::Queued) {
            changes = self.snapshot_after_loss(&run).await;
        }
        let dir = self.attempt_dir(id);
        let failed = |error: std::io::Error| OpError::Io(format!("{}: {error}", self.attempt_dir(id).0.display()));
        let remains = on_disk(move || leftovers::collect(&dir, &id.run.to_string(), id.n.0, facts_problem, was_seen)).await.map_err(failed)?;
        self.end_lost_attempt(id, remains, changes, Loss::Supervisor).await
    }

    /// Applies the facts in a supervisor's file. Returns the file's problem, if any.
    async fn apply_remaining_facts(&self, id: AttemptId) -> Result<Option<String>, OpError> {
        let path = self.attempt_dir(id).facts();
        let failed = |error: std::io::Error| OpError::Io(format!("{}: {error}", path.display()));
        let dir = self.attempt_dir(id);
        let mut left = on_disk(move || LeftFacts::open(&dir)).await.map_err(failed)?;
        loop {
            let known = self.store.read(|connection| attempt_row(connection, id.run, id.n))?.map_or(0, |row| row.fact);
            let (read, batch) = on_disk(move || left.next_batch(known).map(|batch| (left, batch))).await.map_err(failed)?;
            left = read;
            if batch.is_empty() && left.is_at_end() {
                return Ok(left.problem);
            }
            if !batch.is_empty() {
                self.apply_facts(id, batch).await?;
            }
        }
    }

    /// Records the end of an attempt without a final fact.
    pub(in crate::ops) async fn end_lost_attempt(
        &self,
        id: AttemptId,
        remains: Remains,
        changes: Option<AttemptEvidence>,
        loss: Loss,
    ) -> Result<(), OpError> {
        let Remains { never_started, problem, last_output, active_until_ms, refusal, is_too_old } = remains;
        if let Some(refusal) = refusal {
            if is_too_old {
                return self.refused_as_too_old(id, refusal).await;
            }
            return self.not_spawned(id, refusal).await;
        }
        let terms = self.terms();
        self.current(id, move |tx, run| {
            if loss == Loss::Host {
                tx.set_lost(id.run, id.n)?;
            }
            let row = attempt_row(tx.connection(), id.run, id.n)?;
            if let Some((end, at)) = row.and_then(|row| Some((row.agent_end?, row.agent_end_at))) {
                let end = serde_json::from_slice(end.as_bytes()).map_err(|error| StoreError::Corrupt(format!("attempt {id}: {error}")))?;
                return tx.dated(at.unwrap_or(tx.now()), |tx| end_with_agent_end(tx, id, end, &terms));
            }
            if never_started {
                tx.mark_unstarted(id.run, id.n)?;
            }
            let event = match never_started {
                false => {
                    if let Some(problem) = problem {
                        tracing::warn!(attempt = %id, problem, "its files were modified by another process");
                        tx.set_detail(run.id, &problem)?;
                    }
                    if let Some(changes) = &changes {
                        store_evidence(tx, run, changes)?;
                    }
                    note_loss(tx, run, &last_output)?;
                    tx.add_active_time(run.id, active_until_ms.map_or(tx.steady(), |at| tx.steady_at(Time(at))))?;
                    note_unstated(tx, run, UsageEnd::Stopped, &terms)?;
                    match loss {
                        Loss::Supervisor => RunEvent::SupervisorLost,
                        Loss::Host => RunEvent::HostLost,
                    }
                }
                true if fruitless_attempts(tx.connection(), id.run)? >= FRUITLESS_ATTEMPTS_MAX => {
                    tx.set_detail(run.id, "its supervisor exited before starting the agent, repeatedly")?;
                    RunEvent::SpawnFailed
                }
                true => RunEvent::NotStarted,
            };
            tx.advance(run, event, terms.retention, "hub", "").map(|_| ())
        })
        .await
    }
}

/// Records the end of an attempt whose supervisor died while collecting evidence after the agent's end: the agent's end counts,
/// and missing evidence is unknown.
fn end_with_agent_end(tx: &mut Tx<'_>, id: AttemptId, end: FactKind, terms: &Terms) -> Result<(), StoreError> {
    let (_, evidence) = report_of(tx.connection(), id.run)?;
    let (_, accept) = acceptance_of(tx.connection(), id.run)?;
    if evidence.is_none() && !accept.is_empty() {
        let not_known = CommandEvidence { not_known: Some("its supervisor died while it ran".to_owned()), ..CommandEvidence::default() };
        let run = tx.run(id.run)?;
        store_evidence(tx, &run, &AttemptEvidence { acceptance: Some(not_known), ..AttemptEvidence::default() })?;
    }
    apply_fact(tx, id, end, terms)
}

/// Runs file operations on a blocking thread.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
