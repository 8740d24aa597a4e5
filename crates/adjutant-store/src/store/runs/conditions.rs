//! Conditions of live runs.

use crate::store::db::params;
use crate::store::events::first_line;
use crate::store::records::run::{DeniedWritesRow, FenceState, RetryingRow, Run};
use crate::store::{StoreError, Topic, Tx, append_event};
use adjutant_core::condition::Retrying;
use adjutant_core::fence::notifies_of_denied_writes;
use adjutant_core::{EventKind, RunId, RunState};

impl Tx<'_> {
    /// Records that a live run's CLI repeats a call that keeps failing. An update of a known
    /// condition is not an event.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_retrying(
        &mut self,
        run: &Run,
        retrying: &Retrying,
        by: &str,
    ) -> Result<(), StoreError> {
        if run.state != RunState::Running {
            return Ok(());
        }
        let since = match &run.retrying {
            Some(known) => known.since,
            None => self.happened_at().plus_ms(retrying.for_ms.saturating_neg()),
        };
        let row = RetryingRow::of(retrying, since);
        let text =
            serde_json::to_string(&row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let seq = match run.retrying_seq {
            Some(seq) => seq,
            None => {
                let text = format!("{}: {}", retrying.cause.word(), retrying.words);
                append_event(
                    self,
                    EventKind::RunRetrying,
                    run.id,
                    &run.owner.to_string(),
                    None,
                    by,
                    &text,
                )?
            }
        };
        self.prepare("UPDATE runs SET retrying = ?2, retrying_seq = ?3 WHERE id = ?1")?
            .run(params![run.id.to_string(), text, seq.0])?;
        if run.retrying_seq.is_some() {
            Ok(())
        } else {
            self.touch(run.id, seq)
        }
    }

    /// Records that a snapshot of a run's tree could not be taken or stored. An update of a known
    /// problem is not an event.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_snapshot_problem(
        &mut self,
        run: &Run,
        why: &str,
        by: &str,
    ) -> Result<(), StoreError> {
        let why = first_line(why);
        if run.state.is_finished() || run.snapshot_problem.as_deref() == Some(&*why) {
            return Ok(());
        }
        let seq = match run.snapshot_seq {
            Some(seq) => seq,
            None => append_event(
                self,
                EventKind::RunSnapshotFailed,
                run.id,
                &run.owner.to_string(),
                None,
                by,
                &why,
            )?,
        };
        self.prepare("UPDATE runs SET snapshot_problem = ?2, snapshot_seq = ?3 WHERE id = ?1")?
            .run(params![run.id.to_string(), why, seq.0])?;
        if run.snapshot_seq.is_some() {
            Ok(())
        } else {
            self.touch(run.id, seq)
        }
    }

    /// Records that all snapshots of a run are stored.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn clear_snapshot_problem(&mut self, run: RunId) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET snapshot_problem = NULL, snapshot_seq = NULL WHERE id = ?1")?
            .run([run.to_string()])?;
        Ok(())
    }

    /// Records the known sub-agents of a run's CLI.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_subagents(&mut self, run: &Run, all: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET subagents = ?2 WHERE id = ?1")?
            .run([&run.id.to_string(), all])?;
        Ok(())
    }

    /// Records what a run's processes use of the machine.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_resources(&mut self, run: RunId, all: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET resources = ?2 WHERE id = ?1")?
            .run([&run.to_string(), all])?;
        self.notify(Topic::Load);
        Ok(())
    }

    /// Records that a live run's CLI has recovered.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_recovered(&mut self, run: &Run, by: &str) -> Result<(), StoreError> {
        if run.state != RunState::Running || run.retrying.is_none() {
            return Ok(());
        }
        let seq = append_event(
            self,
            EventKind::RunRecovered,
            run.id,
            &run.owner.to_string(),
            None,
            by,
            "its model answers again",
        )?;
        self.prepare("UPDATE runs SET retrying = NULL, retrying_seq = NULL WHERE id = ?1")?
            .run([run.id.to_string()])?;
        self.touch(run.id, seq)
    }

    /// Records that a run's output reports denied writes. Not each of these events wakes its
    /// parent.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_denied_writes(
        &mut self,
        run: &Run,
        times: u64,
        line: &str,
        by: &str,
    ) -> Result<(), StoreError> {
        let Some(fence) = &run.fence else {
            return Ok(());
        };
        let line = line.to_owned();
        let text = format!("its output reports a write that the fence denied: {line}");
        let seq = append_event(
            self,
            EventKind::RunWriteDenied,
            run.id,
            &run.owner.to_string(),
            None,
            by,
            &text,
        )?;
        let known = fence.denied.as_ref();
        let (notified_seq, notified_times) =
            match known.map_or((0, 0), |known| (known.notified_seq, known.notified_times)) {
                (_, before) if notifies_of_denied_writes(times, before) => (seq.0, times),
                before => before,
            };
        let denied = DeniedWritesRow {
            times,
            line,
            notified_seq,
            notified_times,
        };
        self.set_fence(
            run.id,
            &FenceState {
                denied: Some(denied),
                ..fence.clone()
            },
        )?;
        self.touch(run.id, seq)
    }
}
