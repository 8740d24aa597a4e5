//! Changing the state of runs.

use super::{Changed, Flow};
use crate::store::budgets::settle_budgets;
use crate::store::db::{Connection, params};
use crate::store::queue::{note_start, spread_starts, wake_port_waiters};
use crate::store::records::run::StateRow;
use crate::store::requests::{has_settled_since_stop, withdraw_requests};
use crate::store::runs::{notify_ancestors, outlook, unrequested_answering_runs};
use crate::store::{Run, StoreError, Topic, Tx, append_event, children_of, run_by_id};
use adjutant_core::cascade::{Cause, Step};
use adjutant_core::pool::AfterEnd;
use adjutant_core::run::{Blocking, Retention, RunChange, RunEffect, apply, resumes_now};
use adjutant_core::{EventKind, RunEvent, RunId, RunState};
use std::rc::Rc;

/// Maximum number of generations that are traversed, whatever the configuration allows.
const GENERATIONS_MAX: usize = 1_000;

/// Stores the state of a run.
const UPDATE_STATE: &str =
    "UPDATE runs SET state = ?2, stop_reason = ?3, until_at = ?4, outcome = ?5, failure = ?6, ended_at = ?7, started_at = coalesce(started_at, ?8),
     updated_at = ?9, last_seq = ?10, end_seq = ?11, settled_at = ?14,
     active_since = CASE WHEN ?2 = 'stopping' THEN active_since WHEN blocking_pending = 0 AND holding = 0 THEN ?13 END";
/// Begins an attempt: forgets what was of the one before. In the same statement, because a second
/// update of the row costs a server as much as this one.
const BEGIN_ATTEMPT: &str = ", attempt = attempt + 1, exit_code = NULL, exit_signal = NULL, detail = NULL, stalled_at = NULL, stall_seq = NULL,
     retrying = NULL, retrying_seq = NULL, reported_at = NULL, report_seq = NULL";

/// A change of a run's state, which the history already has.
#[derive(Debug, Clone)]
struct Recorded {
    changed: Rc<Changed>,
    change: RunChange,
}

/// Returns whether a run waits for the ports of another one. Costs a server less than a write
/// without effect, which has to be waited for.
fn has_port_waiters(connection: &Connection, holder: RunId) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM run_after WHERE after_run = ?1 AND on_end = ?2 AND state = 'open')";
    Ok(connection
        .prepare_cached(sql)?
        .read_row([holder.to_string().as_str(), AfterEnd::Ports.word()])?)
}

/// Returns the kind of the event that records a change.
fn kind_of(event: RunEvent, next: RunState) -> EventKind {
    match next {
        RunState::Queued
            if matches!(
                event,
                RunEvent::NotStarted | RunEvent::FellBack | RunEvent::Ended(_)
            ) =>
        {
            EventKind::RunRequeued
        }
        RunState::Queued => EventKind::RunQueued,
        RunState::Starting => EventKind::RunStarting,
        RunState::Running => EventKind::RunStarted,
        RunState::Stopping(_) => EventKind::RunStopping,
        RunState::Stopped { .. } => EventKind::RunStopped,
        RunState::Finished(_) => EventKind::RunFinished,
    }
}

/// Returns the text of the event that records a change.
fn described(next: RunState, text: &str) -> String {
    match next {
        RunState::Stopping(reason) | RunState::Stopped { reason, .. } if text.is_empty() => {
            reason.word().to_owned()
        }
        RunState::Finished(outcome) if text.is_empty() => outcome.to_string(),
        _ => text.to_owned(),
    }
}

impl Tx<'_> {
    /// Applies an event to a run and records it, with everything that follows. Returns the updated
    /// run.
    ///
    /// # Errors
    /// The core rejects the event.
    pub fn advance(
        &mut self,
        run: &Run,
        event: RunEvent,
        retention: Retention,
        by: &str,
        text: &str,
    ) -> Result<Run, StoreError> {
        self.flow(retention, |tx, flow| {
            tx.change_run(run, event, by, text, flow)
        })?;
        self.run(run.id)
    }

    /// Applies an event to each of several runs, with fewer round trips than [`Tx::advance`] for
    /// each.
    ///
    /// # Errors
    /// The core rejects one of the events.
    pub fn advance_all(
        &mut self,
        events: &[(RunId, RunEvent)],
        retention: Retention,
        by: &str,
    ) -> Result<(), StoreError> {
        for (run, _) in events {
            self.connection()
                .announce(|connection| run_by_id(connection, *run));
        }
        let runs = events
            .iter()
            .map(|(run, _)| self.run(*run))
            .collect::<Result<Vec<_>, _>>()?;
        self.flow(retention, |tx, flow| {
            let mut all = Vec::with_capacity(runs.len());
            for (run, (_, event)) in runs.iter().zip(events) {
                if let Some(recorded) = tx.record_change(run, *event, retention, by, "")? {
                    let blocking = tx.blocking_at_stop(&recorded.change, run)?;
                    all.push(recorded.with(blocking));
                }
            }
            // Before the effects of any of them, which may change other runs of the list: the
            // changes were decided on the states from before.
            for recorded in &all {
                tx.write_state(recorded)?;
            }
            for recorded in all {
                tx.announce_effects(&recorded);
                let run = recorded.changed.run.id;
                tx.connection()
                    .announce(|connection| run_by_id(connection, run));
                recorded.follow(flow);
            }
            Ok(())
        })
    }

    /// Cancels all descendants of a run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn cancel_below(
        &mut self,
        run: RunId,
        retention: Retention,
        by: &str,
    ) -> Result<(), StoreError> {
        self.flow(retention, |tx, _| tx.cancel_all_below(run, by))
    }

    /// Applies an event to a run and records it. Its effects follow.
    pub(super) fn change_run(
        &mut self,
        run: &Run,
        event: RunEvent,
        by: &str,
        text: &str,
        flow: &mut Flow,
    ) -> Result<(), StoreError> {
        let Some(recorded) = self.record_change(run, event, flow.retention(), by, text)? else {
            return Ok(());
        };
        let blocking = if matches!(recorded.change.to, RunState::Stopped { .. }) {
            self.blocking_at_stop(&recorded.change, &self.run(run.id)?)?
        } else {
            None
        };
        let recorded = recorded.with(blocking);
        self.announce_effects(&recorded);
        self.connection()
            .announce(|connection| run_by_id(connection, run.id));
        self.write_state(&recorded)?;
        recorded.follow(flow);
        Ok(())
    }

    /// Decides what an event makes of a run, and appends it to the history. `None`: nothing
    /// changes.
    fn record_change(
        &mut self,
        run: &Run,
        event: RunEvent,
        retention: Retention,
        by: &str,
        text: &str,
    ) -> Result<Option<Recorded>, StoreError> {
        let next = apply(run.state, event, self.steady(), retention)
            .map_err(|refused| refused.of_run(&run.name))?;
        if next == run.state {
            return Ok(None);
        }
        let seq = append_event(
            self,
            kind_of(event, next),
            run.id,
            &run.owner.to_string(),
            None,
            by,
            &described(next, text),
        )?;
        let change = RunChange {
            from: run.state,
            event,
            to: next,
            blocking: None,
            has_parent: run.parent.is_some(),
        };
        let changed = Rc::new(Changed {
            run: run.clone(),
            seq,
        });
        Ok(Some(Recorded { changed, change }))
    }

    /// Stores the state of a run after a change.
    fn write_state(&mut self, recorded: &Recorded) -> Result<(), StoreError> {
        let Recorded { changed, change } = recorded;
        let (Changed { run, seq }, next) = (&**changed, change.to);
        let row = StateRow::of(next);
        let ended_at = next.is_finished().then_some(self.happened_at().0);
        let settled_at = next.is_finished().then_some(self.steady().0);
        let started_at =
            (next == RunState::Running && run.started_at.is_none()).then_some(self.happened_at().0);
        let begun = if next == RunState::Starting {
            BEGIN_ATTEMPT
        } else {
            ""
        };
        // A caller that has decided on an outdated copy of the run fails, instead of undoing a
        // change of the same transaction.
        self.prepare(&format!(
            "{UPDATE_STATE}{begun} WHERE id = ?1 AND state = ?12"
        ))?
        .run_on_one(params![
            run.id.to_string(),
            row.state,
            row.stop_reason,
            row.until_at,
            row.outcome,
            row.failure,
            ended_at,
            started_at,
            self.now().0,
            seq.0,
            change.ends().then_some(seq.0),
            run.state.word(),
            (next == RunState::Running).then_some(self.steady_at(self.happened_at()).0),
            settled_at
        ])?;
        self.note_queued(run, run.state, -1);
        self.note_queued(run, next, 1);
        Ok(())
    }

    /// Announces the reads of the effects that most changes have.
    fn announce_effects(&self, recorded: &Recorded) {
        let run = recorded.changed.run.id;
        self.announce_estimate_check(run);
        if recorded.change.frees_slot() {
            self.connection()
                .announce(|connection| has_port_waiters(connection, run));
        }
    }

    /// Reads the blocking requests of a run that stops. `now`: the run as it is stored.
    fn blocking_at_stop(
        &self,
        change: &RunChange,
        now: &Run,
    ) -> Result<Option<Blocking>, StoreError> {
        if !matches!(change.to, RunState::Stopped { .. }) {
            return Ok(None);
        }
        let was_announced =
            matches!(change.from, RunState::Stopping(reason) if reason.is_announced());
        let settled = was_announced && has_settled_since_stop(self.connection(), now.id)?;
        Ok(Some(Blocking {
            open: now.is_waiting(),
            settled,
        }))
    }

    /// Performs an effect on a run. `changed`: the change of the run that has it, if it is one.
    pub(super) fn take_effect(
        &mut self,
        run: RunId,
        effect: RunEffect,
        changed: Option<&Changed>,
        flow: &mut Flow,
    ) -> Result<(), StoreError> {
        match effect {
            RunEffect::CountStart => {
                let Some(Changed { run, seq }) = changed else {
                    return Err(StoreError::Corrupt(format!(
                        "the start of run {run} follows from no change of it"
                    )));
                };
                note_start(self, run, *seq)?;
                spread_starts(self, run)?;
            }
            RunEffect::WithdrawRequests { all } => withdraw_requests(self, run, all)?,
            RunEffect::WakeAncestors => match changed {
                Some(changed) => notify_ancestors(self, &changed.run)?,
                None => notify_ancestors(self, &self.run(run)?)?,
            },
            RunEffect::InformRequester => {
                let ended = self.run(run)?;
                self.inform_requester(&ended)?;
            }
            RunEffect::ResumeIfSettled { settled } => self.resume_if_settled(run, settled)?,
            RunEffect::FreePorts => {
                if has_port_waiters(self.connection(), run)? {
                    match changed {
                        Some(changed) => wake_port_waiters(self, &changed.run)?,
                        None => wake_port_waiters(self, &self.run(run)?)?,
                    }
                }
            }
            RunEffect::OfferSlot => self.notify(Topic::Queue),
            RunEffect::WakeAt(until) => self.wake_by(until),
            RunEffect::OfferTurns => self.notify(Topic::Turns),
            RunEffect::SettleBudgets => settle_budgets(self, run)?,
            RunEffect::CheckLimits => self.schedule_estimate_check(run)?,
            RunEffect::ResolveDependents => flow.resolve_dependents(run),
        }
        Ok(())
    }

    /// Resumes a stopped run that waits for its blocking requests if none is open any more.
    /// `settled`: see [`Blocking`].
    fn resume_if_settled(&mut self, run: RunId, settled: bool) -> Result<(), StoreError> {
        if outlook(self.connection(), run)?.is_none_or(|outlook| !outlook.waits_for_nothing) {
            return Ok(());
        }
        let run = self.run(run)?;
        let open = run.is_waiting();
        if resumes_now(run.state, Blocking { open, settled }) {
            self.then(Step::Advance {
                run: run.id,
                event: RunEvent::Resumed,
                cause: Cause::hub("its questions are settled"),
            });
        }
        Ok(())
    }

    pub(super) fn cancel_all_below(&mut self, run: RunId, by: &str) -> Result<(), StoreError> {
        let mut below = children_of(self.connection(), run)?;
        below.extend(unrequested_answering_runs(self.connection(), run)?);
        for _ in 0..GENERATIONS_MAX {
            let mut next = Vec::new();
            for id in below {
                let cause = Cause {
                    by: by.to_owned(),
                    text: "with the run that it was delegated by".into(),
                };
                self.then(Step::Cancel { run: id, cause });
                next.extend(children_of(self.connection(), id)?);
            }
            if next.is_empty() {
                break;
            }
            below = next;
        }
        Ok(())
    }
}

impl Recorded {
    fn with(mut self, blocking: Option<Blocking>) -> Self {
        self.change.blocking = blocking;
        self
    }

    /// Adds the effects of the change to the flow.
    fn follow(self, flow: &mut Flow) {
        let run = self.changed.run.id;
        for effect in self.change.effects() {
            let step = Step::Effect { run, effect };
            flow.cascade.then(step, Some(Rc::clone(&self.changed)));
        }
    }
}
