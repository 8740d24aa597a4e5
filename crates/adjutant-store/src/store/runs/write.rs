//! Changing runs.

use super::due::outlook;
use super::fence::FenceState;
use super::lookup::run_by_id;
use super::row::StateRow;
use super::run::{NewRun, Run};
use super::spec::{CheckpointRow, SpecRow};
use crate::clock;
use crate::store::db::{Connection, params};
use crate::store::events::first_line;
use crate::store::requests::has_settled_since_stop;
use crate::store::{StoreError, Topic, Tx, append_event, tree_size};
use adjutant_core::checkpoint::{Checkpoint, Choice};
use adjutant_core::estimate::duration_ms;
use adjutant_core::pool::AfterEnd;
use adjutant_core::run::{Blocking, Retention, apply, awaits_requests};
use adjutant_core::tree::has_room;
use adjutant_core::{
    Denied, EventKind, EventSeq, Outcome, Principal, RunEvent, RunId, RunName, RunState, SteadyTime,
};

/// How many names a dispatch tries before it gives up.
const NAME_DRAWS_MAX: u32 = 50;
/// Formats a duration for people.
fn duration_text(ms: i64) -> String {
    match ms / 1000 {
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds if seconds >= 600 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// Stores the state of a run.
const UPDATE_STATE: &str =
    "UPDATE runs SET state = ?2, stop_reason = ?3, until_at = ?4, outcome = ?5, failure = ?6, ended_at = ?7, started_at = coalesce(started_at, ?8),
     updated_at = ?9, last_seq = ?10, end_seq = ?11, settled_at = ?14,
     active_since = CASE WHEN ?2 = 'stopping' THEN active_since WHEN blocking_pending = 0 AND holding = 0 THEN ?13 END";
/// Begins an attempt: forgets what was of the one before. In the same statement, because a second update of the row costs a server as much as this one.
const BEGIN_ATTEMPT: &str = ", attempt = attempt + 1, exit_code = NULL, exit_signal = NULL, detail = NULL, stalled_at = NULL, stall_seq = NULL,
     retrying = NULL, retrying_seq = NULL, reported_at = NULL, report_seq = NULL";

/// The change of a run's state by an event, which the history already has.
#[derive(Debug, Clone, Copy)]
struct Change<'r> {
    /// The run before.
    run: &'r Run,
    event: RunEvent,
    next: RunState,
    seq: EventSeq,
}

impl Change<'_> {
    /// Returns whether the run ends: a run that awaits its requests has not ended, because it resumes by itself.
    fn ends(&self, blocking: Option<Blocking>) -> bool {
        self.next.is_finished()
            || blocking.is_some_and(|blocking| !awaits_requests(self.next, blocking))
    }

    /// Returns whether the run has no attempt any more.
    fn frees_slot(&self) -> bool {
        self.run.state.is_live() && !self.next.is_live()
    }
}

/// Returns whether a run waits for the ports of another one. Costs a server less than a write without effect, which has to be waited for.
fn has_port_waiters(connection: &Connection, holder: RunId) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM run_after WHERE after_run = ?1 AND on_end = ?2 AND state = 'open')";
    Ok(connection.prepare_cached(sql)?.query_row(
        [holder.to_string().as_str(), AfterEnd::Ports.word()],
        |row| row.get(0),
    )?)
}

impl Tx<'_> {
    /// Queues a new run.
    ///
    /// # Errors
    /// The name is taken, or the tree has reached a limit.
    pub fn dispatch(&mut self, new: &NewRun) -> Result<Run, StoreError> {
        let id = new.id.to_string();
        let taken = |tx: &Self, name: &RunName| -> Result<bool, StoreError> {
            Ok(tx
                .prepare("SELECT EXISTS (SELECT 1 FROM runs WHERE name = ?1)")?
                .query_row([name.as_str()], |row| row.get(0))?)
        };
        let name = match &new.name {
            Some(name) if taken(self, name)? => {
                return Err(Denied::invalid("name", format!("{name} is taken")).into());
            }
            Some(name) => name.clone(),
            None => {
                let mut found = None;
                for round in 0..NAME_DRAWS_MAX {
                    let [a, b, c, d] = new.name_seed;
                    let step = u8::try_from(round % 251).unwrap_or(0);
                    let name = RunName::draw(
                        [
                            a.wrapping_add(step.wrapping_mul(7)),
                            b.wrapping_add(step),
                            c.wrapping_add(step),
                            d,
                        ],
                        round,
                    );
                    if !taken(self, &name)? {
                        found = Some(name);
                        break;
                    }
                }
                found.ok_or(Denied::Limit {
                    what: "drawing a free name",
                    limit: u64::from(NAME_DRAWS_MAX),
                })?
            }
        };
        let (parent, root) = match new.under {
            None => (None, new.id),
            Some((parent, limits)) => {
                let parent = self.run(parent)?;
                has_room(tree_size(self.connection(), &parent)?, limits)?;
                (Some(parent.id), parent.root)
            }
        };
        let planned = self.plan_budget(
            parent,
            &new.budget,
            new.input.agent.name.as_str(),
            &new.unmetered,
        )?;
        let now = self.now().0;
        let task = first_line(&new.task);
        self.prepare(
            "INSERT INTO runs (id, name, agent, task, cwd, owner, root, retry_of, state, created_at, updated_at, patience_ms, prompt_via, parent, rank, estimate_ms,
             pool, agent_why)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?11, ?7, 'queued', ?8, ?8, ?9, ?10, ?12, ?13, ?14, ?15, ?16)",
        )?
        .run(params![
            id,
            name.as_str(),
            new.input.agent.name.as_str(),
            task,
            new.cwd,
            new.owner.to_string(),
            new.retry_of.map(|run| run.to_string()),
            now,
            new.input.agent.patience_ms,
            new.input.agent.prompt.word(),
            root.to_string(),
            parent.map(|run| run.to_string()),
            new.rank.number(),
            new.estimate_ms,
            new.pool.as_str(),
            new.agent_why
        ])?;
        let spec = serde_json::to_string(&SpecRow::of(&new.input))
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let accept = if new.input.accept.is_empty() {
            None
        } else {
            Some(
                serde_json::to_string(&new.input.accept)
                    .map_err(|error| StoreError::Corrupt(error.to_string()))?,
            )
        };
        self.prepare("INSERT INTO run_inputs (run, prompt, spec, criteria, accept, variables) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.run(params![
            id,
            new.input.prompt,
            spec,
            new.input.criteria,
            accept,
            new.input.variables
        ])?;
        self.open_budgets(new.id, &planned)?;
        if let Some(workspace) = &new.workspace {
            self.add_workspace(new.id, &name, workspace)?;
        }
        if let Some(fence) =
            FenceState::asked(new.input.agent.fence, new.fence_workspace.as_deref())
        {
            self.set_fence(new.id, &fence)?;
        }
        let seq = append_event(
            self,
            EventKind::RunQueued,
            new.id,
            &new.owner.to_string(),
            None,
            &new.by.to_string(),
            &task,
        )?;
        self.touch(new.id, seq)?;
        self.notify(Topic::Queue);
        let run = self.run(new.id)?;
        self.note_queued(&run, run.state, 1);
        if new.after.is_empty() {
            Ok(run)
        } else {
            self.start_after(&run, &new.after, new.after_failed)
        }
    }

    /// Reads a run that must exist.
    ///
    /// # Errors
    /// `NotFound`, or a failure of the store.
    pub fn run(&self, id: RunId) -> Result<Run, StoreError> {
        run_by_id(self.connection(), id)?
            .ok_or_else(|| Denied::not_found("run", &id.to_string()).into())
    }

    /// Advances a run's cursor to an event about it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn touch(&self, run: RunId, seq: EventSeq) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET last_seq = ?2, updated_at = ?3 WHERE id = ?1")?
            .run(params![run.to_string(), seq.0, self.now().0])?;
        Ok(())
    }

    /// Applies an event to a run and records it. The end of a run withdraws its open requests. Returns the updated
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
        let Some(change) = self.record_change(run, event, retention, by, text)? else {
            return Ok(run.clone());
        };
        let blocking = if matches!(change.next, RunState::Stopped { .. }) {
            self.blocking_at_stop(&change, &self.run(run.id)?)?
        } else {
            None
        };
        self.announce_consequences(&change);
        self.connection()
            .announce(|connection| run_by_id(connection, run.id));
        self.write_state(&change, blocking)?;
        self.apply_consequences(&change, blocking, retention)?;
        self.run(run.id)
    }

    /// Applies an event to each of several runs, with fewer round trips than [`Tx::advance`] for each.
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
        let mut changes = Vec::with_capacity(runs.len());
        for (run, (_, event)) in runs.iter().zip(events) {
            if let Some(change) = self.record_change(run, *event, retention, by, "")? {
                changes.push((change, self.blocking_at_stop(&change, run)?));
            }
        }
        for (change, blocking) in &changes {
            self.write_state(change, *blocking)?;
        }
        for (change, _) in &changes {
            self.announce_consequences(change);
            self.connection()
                .announce(|connection| run_by_id(connection, change.run.id));
        }
        for (change, blocking) in &changes {
            self.apply_consequences(change, *blocking, retention)?;
        }
        Ok(())
    }

    /// Decides what an event makes of a run, and appends it to the history. `None`: nothing changes.
    fn record_change<'r>(
        &mut self,
        run: &'r Run,
        event: RunEvent,
        retention: Retention,
        by: &str,
        text: &str,
    ) -> Result<Option<Change<'r>>, StoreError> {
        let next = apply(run.state, event, self.steady(), retention)
            .map_err(|refused| refused.of_run(&run.name))?;
        if next == run.state {
            return Ok(None);
        }
        let kind = match next {
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
        };
        let described = match next {
            RunState::Stopping(reason) | RunState::Stopped { reason, .. } if text.is_empty() => {
                reason.word().to_owned()
            }
            RunState::Finished(outcome) if text.is_empty() => outcome.to_string(),
            _ => text.to_owned(),
        };
        let seq = append_event(
            self,
            kind,
            run.id,
            &run.owner.to_string(),
            None,
            by,
            &described,
        )?;
        Ok(Some(Change {
            run,
            event,
            next,
            seq,
        }))
    }

    /// Stores the state of a run after a change. `blocking`: its blocking requests, if it has stopped.
    fn write_state(
        &mut self,
        change: &Change<'_>,
        blocking: Option<Blocking>,
    ) -> Result<(), StoreError> {
        let Change { run, next, seq, .. } = change;
        let row = StateRow::of(*next);
        let ended_at = next.is_finished().then_some(self.happened_at().0);
        let settled_at = next.is_finished().then_some(self.steady().0);
        let started_at = (*next == RunState::Running && run.started_at.is_none())
            .then_some(self.happened_at().0);
        let begun = if *next == RunState::Starting {
            BEGIN_ATTEMPT
        } else {
            ""
        };
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
            change.ends(blocking).then_some(seq.0),
            run.state.word(),
            (*next == RunState::Running).then_some(self.steady_at(self.happened_at()).0),
            settled_at
        ])?;
        self.note_queued(run, run.state, -1);
        self.note_queued(run, *next, 1);
        Ok(())
    }

    /// Announces the reads of [`Tx::apply_consequences`] that most changes need.
    fn announce_consequences(&self, change: &Change<'_>) {
        self.announce_estimate_check(change.run.id);
        if change.frees_slot() {
            self.connection()
                .announce(|connection| has_port_waiters(connection, change.run.id));
        }
    }

    /// Applies what follows from a stored change, for the run and for others.
    fn apply_consequences(
        &mut self,
        change: &Change<'_>,
        blocking: Option<Blocking>,
        retention: Retention,
    ) -> Result<(), StoreError> {
        let Change {
            run,
            event,
            next,
            seq,
        } = *change;
        let ends = change.ends(blocking);
        if next == RunState::Starting {
            self.note_start(run, seq)?;
            self.spread_starts(run)?;
        }
        if let RunState::Finished(outcome) = next {
            self.withdraw_requests(run.id, outcome != Outcome::Succeeded)?;
        }
        if ends && run.parent.is_some() {
            self.notify_ancestors(run)?;
            if next.is_finished() {
                let ended = self.run(run.id)?;
                self.child_ended(&ended, retention)?;
            }
        }
        if let Some(Blocking { settled, .. }) = blocking {
            self.resume_settled(run.id, settled)?;
        }
        if change.frees_slot() && has_port_waiters(self.connection(), run.id)? {
            self.wake_port_waiters(run)?;
        }
        if change.frees_slot() || next == RunState::Queued {
            self.notify(Topic::Queue);
        }
        if let RunState::Stopped { until, .. } = next {
            self.wake_by(until);
        }
        if ends {
            self.notify(Topic::Turns);
        }
        if next.is_finished() {
            let ended = self.run(run.id)?;
            self.settle_budgets(&ended, retention)?;
        }
        self.schedule_estimate_check(run.id)?;
        // The result of a run is known only after its evidence was examined.
        if next.is_finished() && !matches!(event, RunEvent::Ended(_)) {
            self.resolve_dependents(run.id, retention)?;
        }
        Ok(())
    }

    /// Schedules checks for when a run that keeps working exceeds its estimate or its budget of time.
    pub(in crate::store) fn schedule_estimate_check(
        &mut self,
        run: RunId,
    ) -> Result<(), StoreError> {
        self.schedule_budget_check(run)?;
        if let Some(due) = outlook(self.connection(), run)?.and_then(|outlook| outlook.estimate_due)
        {
            self.wake_by(due);
        }
        Ok(())
    }

    /// Announces the reads of [`Tx::schedule_estimate_check`].
    pub(in crate::store) fn announce_estimate_check(&self, run: RunId) {
        self.announce_budget_check(run);
        self.connection()
            .announce(|connection| outlook(connection, run));
    }

    /// Records that a run exceeds its estimate.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_overdue(&mut self, run: &Run) -> Result<(), StoreError> {
        let text = format!(
            "past its estimate of {}",
            duration_text(run.estimate_ms.unwrap_or(0))
        );
        let seq = append_event(
            self,
            EventKind::RunOverdue,
            run.id,
            &run.owner.to_string(),
            None,
            "hub",
            &text,
        )?;
        self.prepare("UPDATE runs SET overdue_at = ?2, overdue_seq = ?3 WHERE id = ?1")?
            .run(params![run.id.to_string(), self.now().0, seq.0])?;
        self.touch(run.id, seq)
    }

    /// Reads the blocking requests of a run that stops. `now`: the run as it is stored.
    fn blocking_at_stop(
        &self,
        change: &Change<'_>,
        now: &Run,
    ) -> Result<Option<Blocking>, StoreError> {
        if !matches!(change.next, RunState::Stopped { .. }) {
            return Ok(None);
        }
        let was_announced =
            matches!(change.run.state, RunState::Stopping(reason) if reason.is_announced());
        let settled = was_announced && has_settled_since_stop(self.connection(), now.id)?;
        Ok(Some(Blocking {
            open: now.is_waiting(),
            settled,
        }))
    }

    /// Stores the checkpoint of a run's attempt.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_checkpoint(
        &mut self,
        run: &Run,
        checkpoint: &Checkpoint,
        by: &str,
    ) -> Result<(), StoreError> {
        let text = serde_json::to_string(&CheckpointRow::of(checkpoint, run.attempt))
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let seq = append_event(
            self,
            EventKind::RunCheckpoint,
            run.id,
            &run.owner.to_string(),
            None,
            by,
            &first_line(&checkpoint.details),
        )?;
        let sql = "UPDATE runs SET checkpoint = ?2, last_seq = ?3, updated_at = ?4 WHERE id = ?1";
        self.prepare(sql)?
            .run(params![run.id.to_string(), text, seq.0, self.now().0])?;
        Ok(())
    }

    /// Stores the resolution for a resumed run.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_resolution(
        &mut self,
        run: RunId,
        resolution: Option<&str>,
        next_step: Option<&str>,
        choice: Option<Choice>,
    ) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET resolution = ?2, next_step = ?3, choice = ?4 WHERE id = ?1")?
            .run(params![
                run.to_string(),
                resolution,
                next_step,
                choice.map(Choice::word)
            ])?;
        Ok(())
    }

    /// Resets a run's active time, so that its time limit starts again.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_active_time(&mut self, run: RunId) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET active_ms = 0 WHERE id = ?1")?
            .run([run.to_string()])?;
        Ok(())
    }

    /// Records an ignored signal, so that the parent sees it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn malformed_signal(&mut self, run: &Run, why: &str) -> Result<(), StoreError> {
        let seq = append_event(
            self,
            EventKind::SignalMalformed,
            run.id,
            &run.owner.to_string(),
            None,
            &Principal::Run(run.id).to_string(),
            &first_line(why),
        )?;
        self.prepare("UPDATE runs SET ignored = ignored + 1, ignored_why = ?2 WHERE id = ?1")?
            .run(params![run.id.to_string(), first_line(why)])?;
        self.touch(run.id, seq)
    }

    /// Records why a run could not be started or was cancelled, as text for people.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_detail(&mut self, run: RunId, detail: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET detail = ?2 WHERE id = ?1")?
            .run(params![run.to_string(), detail])?;
        Ok(())
    }

    /// Clears the reason for which a run was being stopped.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn clear_detail(&mut self, run: RunId) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET detail = NULL WHERE id = ?1")?
            .run([run.to_string()])?;
        Ok(())
    }

    /// Adds the active time of a run whose attempt is over without a statement of its time, until this moment.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_active_time(&mut self, run: RunId, until: SteadyTime) -> Result<(), StoreError> {
        self.prepare(
            "UPDATE runs SET active_ms = active_ms + larger(0, smaller(?2, ?3) - active_since), active_since = NULL
             WHERE id = ?1 AND active_since IS NOT NULL",
        )?
        .run(params![run.to_string(), until.0, self.steady().0])?;
        Ok(())
    }

    /// Records the active time of a run that its supervisor states at the exit of the agent. None is counted from then on.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn state_active_time(&mut self, run: RunId, active_ms: i64) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET active_ms = ?2, active_since = NULL WHERE id = ?1")?
            .run(params![run.to_string(), active_ms])?;
        Ok(())
    }

    /// Records progress that a live run reports.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn progress(
        &mut self,
        run: &Run,
        percent: Option<u8>,
        note: Option<&str>,
        eta: Option<&str>,
    ) -> Result<Run, StoreError> {
        let parts = [
            percent.map(|percent| format!("{percent} %")),
            note.map(first_line),
            eta.map(|eta| format!("(ETA {})", first_line(eta))),
        ];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let seq = append_event(
            self,
            EventKind::RunProgress,
            run.id,
            &run.owner.to_string(),
            None,
            &Principal::Run(run.id).to_string(),
            &text,
        )?;
        // The newest progress replaces the ETA, even if it has none.
        self.prepare("UPDATE runs SET percent = coalesce(?2, percent), progress = coalesce(?3, progress), eta = ?4 WHERE id = ?1")?.run(params![
            run.id.to_string(),
            percent,
            note,
            eta
        ])?;
        self.supersede_report(run)?;
        self.touch(run.id, seq)?;
        let left_ms = eta.and_then(|eta| {
            duration_ms(eta).or_else(|| {
                Some(clock::parse_rfc3339(eta.trim())?.ms_since(self.now())).filter(|ms| *ms > 0)
            })
        });
        if let Some(left_ms) = left_ms {
            let estimate_ms = self
                .run(run.id)?
                .active_ms_at(self.steady())
                .saturating_add(left_ms);
            self.prepare("UPDATE runs SET estimate_ms = ?2, overdue_at = NULL, overdue_seq = NULL WHERE id = ?1")?
                .run(params![run.id.to_string(), estimate_ms])?;
            self.schedule_estimate_check(run.id)?;
        }
        self.run(run.id)
    }

    /// Records a parent's annotation of a run, finished or not.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn annotate(&mut self, run: &Run, by: &Principal, text: &str) -> Result<Run, StoreError> {
        let seq = append_event(
            self,
            EventKind::RunAnnotated,
            run.id,
            &run.owner.to_string(),
            None,
            &by.to_string(),
            &first_line(text),
        )?;
        self.prepare("UPDATE runs SET annotation = ?2 WHERE id = ?1")?
            .run(params![run.id.to_string(), text])?;
        self.touch(run.id, seq)?;
        self.run(run.id)
    }

    /// Moves a tree of runs and its chats to another owner, who has the display name `name` in the chats.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn adopt(
        &mut self,
        root: &Run,
        owner: &Principal,
        name: &str,
        by: &Principal,
    ) -> Result<Run, StoreError> {
        let text = format!("from {} to {owner}", root.owner);
        self.prepare("UPDATE runs SET owner = ?2 WHERE root = ?1")?
            .run(params![root.root.to_string(), owner.to_string()])?;
        self.adopt_chats(root.root, &root.owner, owner, name)?;
        let seq = append_event(
            self,
            EventKind::RunAdopted,
            root.id,
            &owner.to_string(),
            None,
            &by.to_string(),
            &text,
        )?;
        self.notify(Topic::Owner(root.owner.to_string()));
        self.touch(root.id, seq)?;
        self.run(root.id)
    }

    /// Removes a finished run and everything about it.
    ///
    /// # Errors
    /// The run has not finished.
    pub fn remove(&mut self, run: &Run) -> Result<(), StoreError> {
        if !run.state.is_finished() {
            return Err(Denied::WrongState {
                run: run.name.clone(),
                state: run.state.word(),
                wanted: "removed",
            }
            .into());
        }
        self.remove_from_boards(run)?;
        self.prepare("DELETE FROM runs WHERE id = ?1")?
            .run([run.id.to_string()])?;
        // The file with its variables is no longer needed.
        self.notify(Topic::Turns);
        Ok(())
    }
}
