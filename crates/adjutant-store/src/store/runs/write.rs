//! Changing runs.

use super::lookup::run_by_id;
use crate::store::db::params;
use crate::store::events::first_line;
use crate::store::records::run::{CheckpointRow, Run};
use crate::store::{StoreError, Tx, append_event};
use adjutant_core::checkpoint::{Checkpoint, Choice};
use adjutant_core::units::duration;
use adjutant_core::{Denied, EventKind, EventSeq, Principal, RunId, SteadyTime};

impl Tx<'_> {
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

    /// Records that a run exceeds its estimate.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_overdue(&mut self, run: &Run) -> Result<(), StoreError> {
        let text = format!(
            "past its estimate of {}",
            duration::text(run.estimate_ms.unwrap_or(0))
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

    /// Adds the active time of a run whose attempt is over without a statement of its time, until
    /// this moment.
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

    /// Records the active time of a run that its supervisor states at the exit of the agent. None
    /// is counted from then on.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn state_active_time(&mut self, run: RunId, active_ms: i64) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET active_ms = ?2, active_since = NULL WHERE id = ?1")?
            .run(params![run.to_string(), active_ms])?;
        Ok(())
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
}
