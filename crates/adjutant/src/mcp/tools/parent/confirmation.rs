//! What confirms that a client was shown a run.

use crate::view::{ConfirmNotified, NotifiedRun, RunView};
use adjutant_core::RunStateKind;

/// What confirms that a client has the result that shows a run alone.
pub(in crate::mcp) fn run_confirmation(run: &RunView) -> ConfirmNotified {
    let is_over = run.outcome.is_some() || run.state == RunStateKind::Stopped;
    ConfirmNotified { runs: is_over.then(|| NotifiedRun::from(run)).into_iter().collect(), until: None }
}
