//! Attempts that were claimed and whose agents were not started: their runs are queued again,
//! continue with another agent, or fail.

use crate::ops::OpError;
use crate::ops::attempt_id::AttemptId;
use crate::ops::attempts::fallback::fall_back;
use crate::ops::attempts::{FRUITLESS_ATTEMPTS_MAX, current};
use crate::ops::settings::Settings;
use crate::store::{RUNNER_UNWRITABLE, Run, Store, StoreError, Tx, failed_starts};
use adjutant_core::port::PORTS_FIRST;
use adjutant_core::run::Retention;
use adjutant_core::{Cause, RunEvent, RunState};
use std::time::Duration;

/// The delay before retrying to record that an attempt was not started.
const RECORD_AGAIN: Duration = Duration::from_secs(5);

/// Records that a claimed run was not started, with as many tries as it takes: the run holds a
/// slot, and nothing watches it yet.
pub(in crate::ops) async fn record_not_started(
    store: &Store,
    settings: &Settings,
    id: AttemptId,
    error: &OpError,
) {
    while let Err(again) = not_started(store, settings, id, error).await {
        tracing::error!(attempt = %id, error = %again, "cannot record yet that an attempt was not started");
        tokio::time::sleep(RECORD_AGAIN).await;
    }
}

/// Records that an attempt was claimed and not started: the run is queued again, a few times.
pub(in crate::ops) async fn not_started(
    store: &Store,
    settings: &Settings,
    id: AttemptId,
    why: &OpError,
) -> Result<(), OpError> {
    let (retention, why) = (settings.retention(), why.to_string());
    current(store, id, move |tx, run| {
        tx.mark_unstarted(run.id, id.n)?;
        let event = if failed_starts(tx.connection(), run.id)? >= FRUITLESS_ATTEMPTS_MAX {
            tx.set_detail(run.id, &why)?;
            RunEvent::SpawnFailed
        } else {
            RunEvent::NotStarted
        };
        tx.advance(run, event, retention, "hub", &why).map(|_| ())
    })
    .await
}

/// Queues a claimed run again until a run with ports ends. If no other run has ports, other
/// programs use them, so the run ends.
pub(super) async fn ports_missing(
    store: &Store,
    settings: &Settings,
    id: AttemptId,
    count: u16,
) -> Result<(), OpError> {
    let retention = settings.retention();
    let message = format!(
        "no {count} consecutive ports are free from {PORTS_FIRST} on: set a smaller workspaces.ports"
    );
    current(store, id, move |tx, run| {
        if !tx.has_port_holder(run)? {
            tx.set_detail(run.id, &message)?;
            return tx
                .advance(run, RunEvent::SpawnFailed, retention, "hub", &message)
                .map(|_| ());
        }
        tx.mark_unstarted(run.id, id.n)?;
        let run = tx.advance(run, RunEvent::NotStarted, retention, "hub", "")?;
        if run.state == RunState::Queued {
            tx.wait_for_ports(&run, count)?;
        }
        Ok(())
    })
    .await
}

/// Records that an attempt's guard could not be started.
///
/// # Errors
/// A failure of the store.
pub async fn not_spawned(
    store: &Store,
    settings: &Settings,
    id: AttemptId,
    message: String,
) -> Result<(), OpError> {
    let retention = settings.retention();
    current(store, id, move |tx, run| {
        tx.set_detail(run.id, &message)?;
        tx.advance(run, RunEvent::SpawnFailed, retention, "hub", &message)
            .map(|_| ())
    })
    .await
}

/// Records that an attempt's agent was not started because its runner cannot write to its home:
/// the run is queued again.
///
/// # Errors
/// A failure of the store.
pub(in crate::ops) async fn not_placed(
    store: &Store,
    settings: &Settings,
    id: AttemptId,
    message: String,
) -> Result<(), OpError> {
    let retention = settings.retention();
    current(store, id, move |tx, run| {
        return_to_queue(tx, run, id, &message, retention).map(drop)
    })
    .await
}

/// Records that an attempt's agent was not started because its program is too old.
///
/// # Errors
/// A failure of the store.
pub async fn refused_as_too_old(
    store: &Store,
    settings: &Settings,
    id: AttemptId,
    message: String,
) -> Result<(), OpError> {
    let retention = settings.retention();
    current(store, id, move |tx, run| {
        if fall_back(tx, run, id, &message, retention)? {
            return Ok(());
        }
        tx.set_detail(run.id, &message)?;
        tx.mark_unstarted(run.id, id.n)?;
        tx.advance(run, RunEvent::Refused(Cause::TooOld), retention, "hub", "")
            .map(|_| ())
    })
    .await
}

/// Queues a run again whose runner cannot write to its home. Such an attempt does not count as a
/// failed start.
pub(super) fn return_to_queue(
    tx: &mut Tx<'_>,
    run: &Run,
    id: AttemptId,
    problem: &str,
    retention: Retention,
) -> Result<Run, StoreError> {
    tx.mark_unstarted(run.id, id.n)?;
    tx.advance(
        run,
        RunEvent::NotStarted,
        retention,
        "hub",
        &format!("{RUNNER_UNWRITABLE}: {problem}"),
    )
}
