//! The machine resources that the processes of a run use, over all of its attempts.

use crate::store::{Run, StoreError, Tx};
use crate::view::ResourcesView;
use adjutant_core::resources::ResourceUse;
use adjutant_core::{AttemptNo, RunState};
use serde::{Deserialize, Serialize};

/// The stored form.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct ResourcesRow {
    /// The newest measured attempt, its resource use, and that of earlier attempts.
    attempt: u32,
    newest: ResourcesView,
    earlier: ResourcesView,
}

impl ResourcesRow {
    fn total(self) -> ResourceUse {
        ResourceUse::from(self.newest).after(&self.earlier.into())
    }
}

fn row_of(run: &Run) -> Option<ResourcesRow> {
    let stored = run.resources.as_deref()?;
    serde_json::from_slice(stored.as_bytes())
        .inspect_err(|error| tracing::error!(run = %run.id, %error, "the stored use of resources cannot be read"))
        .ok()
}

/// Records a measurement of an attempt.
///
/// # Errors
/// A failure of the store.
pub(super) fn note_use(
    tx: &mut Tx<'_>,
    run: &Run,
    attempt: AttemptNo,
    newest: ResourcesView,
) -> Result<(), StoreError> {
    let earlier = match row_of(run) {
        Some(row) if row.attempt == attempt.0 => row.earlier,
        Some(row) => row.total().into(),
        None => ResourcesView::default(),
    };
    let row = ResourcesRow {
        attempt: attempt.0,
        newest,
        earlier,
    };
    let text =
        serde_json::to_string(&row).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    tx.set_resources(run.id, &text)
}

/// Records an attempt's peak of memory, to predict that of later runs of its agent.
///
/// # Errors
/// A failure of the store.
pub(super) fn note_peak(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    match row_of(run).map(|row| row.newest.memory_peak_bytes) {
        Some(peak) if peak > 0 => tx.note_agent_peak(&run.agent, peak),
        _ => Ok(()),
    }
}

/// Returns the current and total resource use of a run. The current use of a run without a process
/// is 0, even if its last supervisor could not report that.
pub(super) fn resources_of(run: &Run) -> Option<ResourcesView> {
    let mut total = ResourcesView::from(row_of(run)?.total());
    if !matches!(run.state, RunState::Running | RunState::Stopping(_)) {
        total = ResourcesView {
            processes: 0,
            memory_bytes: 0,
            cpu_percent: 0,
            output_bytes_per_s: 0,
            ..total
        };
    }
    Some(total)
}
