//! The first reports of supervisors to a new hub. Until all live attempts have reported, or the hub
//! has waited long enough, it answers no caller and judges no deadline: what their supervisors
//! report (an end, a question) may change the answer. This state is only in memory: the next hub
//! awaits all reports again.

use crate::ops::attempt_id::AttemptId;
use crate::ops::error::OpError;
use crate::protocol::Standing;
use crate::store::{Store, StoreError, Topic, attempt_row, is_key_stored, live_runs, run_by_id};
use adjutant_core::{AttemptNo, Principal, RunId};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long a new hub waits for the reports of supervisors before it answers.
const FIRST_REPORTS_MAX: Duration = Duration::from_secs(2);

/// The attempts whose supervisors have not reported to this hub yet.
#[derive(Debug)]
pub struct FirstReports {
    store: Store,
    state: Mutex<State>,
    /// Something may complete a report.
    progress: Notify,
    /// Whether the hub has stopped waiting.
    is_over: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    awaited: BTreeMap<RunId, AttemptNo>,
    /// Keys of calls of supervisors that were answered, also by a refusal, which is not stored.
    answered: HashSet<String>,
}

impl FirstReports {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            state: Mutex::default(),
            progress: Notify::new(),
            is_over: watch::Sender::new(false),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_awaited(&self, id: AttemptId) -> bool {
        self.state().awaited.get(&id.run) == Some(&id.n)
    }

    fn end_wait_for(&self, id: AttemptId) -> bool {
        let mut state = self.state();
        let was_awaited =
            state.awaited.get(&id.run) == Some(&id.n) && state.awaited.remove(&id.run).is_some();
        if state.awaited.is_empty() {
            state.answered.clear();
        }
        drop(state);
        self.progress.notify_waiters();
        was_awaited
    }

    /// Waits until all attempts have reported, or the hub has stopped waiting.
    pub async fn over(&self) {
        if self
            .is_over
            .subscribe()
            .wait_for(|is_over| *is_over)
            .await
            .is_err()
        {
            tracing::debug!("the hub ends");
        }
    }

    /// Records that a supervisor's call with this key was answered.
    pub fn note_answer(&self, key: &str) {
        let mut state = self.state();
        if state.awaited.is_empty() {
            return;
        }
        state.answered.insert(key.to_owned());
        drop(state);
        self.progress.notify_waiters();
    }

    /// Expects a report of each attempt that may be alive, here or on a runner.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn expect_all(&self) -> Result<(), OpError> {
        let live = self.store.read(live_runs)?;
        self.state().awaited = live.into_iter().map(|run| (run.id, run.attempt)).collect();
        Ok(())
    }

    /// Waits for the expected reports, for a limited time. Then calls are answered and deadlines
    /// are judged.
    pub async fn wait_for_all(&self) {
        let all = async {
            loop {
                let progress = self.progress.notified();
                if self.state().awaited.is_empty() {
                    return;
                }
                progress.await;
            }
        };
        if tokio::time::timeout(FIRST_REPORTS_MAX, all).await.is_err() {
            tracing::warn!(runs = %self.names_without_report().join(", "), "calls are answered before the supervisors of these runs have reported");
        }
        self.is_over.send_replace(true);
    }

    /// Records what the supervisor of an attempt knows. Returns when the hub knows it too: its
    /// facts are applied, and its calls that others can see have taken effect. `None`: an older
    /// supervisor, which does not say.
    pub async fn receive(&self, id: AttemptId, standing: Option<&Standing>) {
        if !self.is_awaited(id) {
            return;
        }
        let subscription = self.store.wake_ups().subscribe(vec![Topic::Run(id.run)]);
        loop {
            let progress = self.progress.notified();
            let is_over = *self.is_over.borrow();
            match standing.map_or(Ok(true), |standing| {
                self.has_taken_effect(id, standing, is_over)
            }) {
                Ok(true) => return self.note_reported(id),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(attempt = %id, %error, "it cannot be determined whether its reports are complete")
                }
            }
            tokio::select! {
                () = progress => {}
                () = subscription.wait() => {}
                () = self.over(), if !is_over => {}
            }
        }
    }

    /// Returns whether the hub knows what a supervisor knows. An attempt whose agent has ended is
    /// about to end, so its end is awaited until the hub stops waiting (`is_over`).
    fn has_taken_effect(
        &self,
        id: AttemptId,
        standing: &Standing,
        is_over: bool,
    ) -> Result<bool, OpError> {
        let Standing { facts, writes } = standing;
        let open: Vec<&String> = {
            let state = self.state();
            writes
                .iter()
                .filter(|key| !state.answered.contains(*key))
                .collect()
        };
        Ok(self.store.read(|connection| {
            if attempt_row(connection, id.run, id.n)?
                .is_some_and(|row| row.fact < *facts || row.agent_end.is_some() && !is_over)
            {
                return Ok(false);
            }
            for key in open {
                if !is_key_stored(connection, &Principal::Run(id.run), key)? {
                    return Ok(false);
                }
            }
            Ok::<_, StoreError>(true)
        })?)
    }

    /// Records that nothing more is expected of an attempt: it has reported, or it is settled.
    pub fn note_reported(&self, id: AttemptId) {
        if self.end_wait_for(id) {
            // Its budget of time may be due.
            self.store.wake_ups().notify([&Topic::Deadline]);
        }
    }

    /// Records progress of an attempt's facts.
    pub fn note_facts(&self, id: AttemptId) {
        if !self.is_awaited(id) {
            return;
        }
        match id.is_settled(&self.store) {
            Ok(true) => self.note_reported(id),
            Ok(false) => self.progress.notify_waiters(),
            Err(error) => {
                tracing::warn!(attempt = %id, %error, "it cannot be determined whether it has ended")
            }
        }
    }

    /// Returns the live runs whose supervisors have not reported to this hub.
    #[must_use]
    pub(crate) fn runs_without_report(&self) -> BTreeSet<RunId> {
        let awaited: Vec<AttemptId> = self
            .state()
            .awaited
            .iter()
            .map(|(run, n)| AttemptId { run: *run, n: *n })
            .collect();
        // The loss of an attempt on a runner is recorded without its supervisor.
        let is_live = |id: &AttemptId| match id.is_settled(&self.store) {
            Ok(true) => !self.end_wait_for(*id),
            Ok(false) => true,
            Err(error) => {
                tracing::warn!(attempt = %id, %error, "it cannot be determined whether it has ended");
                true
            }
        };
        awaited
            .into_iter()
            .filter(is_live)
            .map(|id| id.run)
            .collect()
    }

    /// Returns the names of these runs.
    #[must_use]
    pub fn names_without_report(&self) -> Vec<String> {
        let awaited = self.runs_without_report();
        if awaited.is_empty() {
            return Vec::new();
        }
        let names = self.store.read(|connection| {
            let mut names = Vec::new();
            for id in &awaited {
                names.extend(run_by_id(connection, *id)?.map(|run| run.name));
            }
            Ok::<_, StoreError>(names)
        });
        names.unwrap_or_else(|error| {
            tracing::warn!(%error, "the names of runs cannot be read");
            Vec::new()
        })
    }
}
