//! Progress, estimates and when they are checked.

use crate::clock;
use crate::store::budgets::{announce_budget_check, schedule_budget_check};
use crate::store::db::params;
use crate::store::events::first_line;
use crate::store::runs::{outlook, supersede_report};
use crate::store::{Run, StoreError, Tx, append_event};
use adjutant_core::estimate::duration_ms;
use adjutant_core::{EventKind, Principal, RunId};

impl Tx<'_> {
    /// Schedules checks for when a run that keeps working exceeds its estimate or its budget of
    /// time.
    pub(super) fn schedule_estimate_check(&mut self, run: RunId) -> Result<(), StoreError> {
        schedule_budget_check(self, run)?;
        if let Some(due) = outlook(self.connection(), run)?.and_then(|outlook| outlook.estimate_due)
        {
            self.wake_by(due);
        }
        Ok(())
    }

    /// Announces the reads of [`Tx::schedule_estimate_check`].
    pub(super) fn announce_estimate_check(&self, run: RunId) {
        announce_budget_check(self, run);
        self.connection()
            .announce(|connection| outlook(connection, run));
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
        supersede_report(self, run)?;
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
}
