//! Confirmations that a client was shown a run.

use crate::view::{ConfirmNotified, NotifiedRun, RunView};
use adjutant_core::RunStateKind;

/// Returns the confirmation for a result about a single run.
pub(in crate::mcp) fn run_confirmation(run: &RunView) -> ConfirmNotified {
    let is_over = run.condition.outcome.is_some() || run.condition.state == RunStateKind::Stopped;
    ConfirmNotified {
        runs: is_over
            .then(|| NotifiedRun::from(run))
            .into_iter()
            .collect(),
        until: None,
    }
}
