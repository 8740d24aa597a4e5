//! Moves the logs of ended attempts to the log store, one attempt at a time.

use super::Hub;
use crate::ops::{AttemptId, NotMoved};
use crate::process::watch;
use std::sync::Arc;
use std::time::Duration;

/// The pause after a failure of the log store. It is doubled with each further one, up to the maximum.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// How long the processes of an attempt that has ended may take to exit.
const EXIT_MAX: Duration = Duration::from_secs(10);

/// Moves logs: first those that an earlier hub has left, then those of each attempt that ends.
pub(super) async fn move_logs(hub: Arc<Hub>) {
    if !hub.ops.has_log_store() {
        return;
    }
    let finding = Arc::clone(&hub);
    match tokio::task::spawn_blocking(move || finding.ops.find_unmoved_logs()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "logs that an earlier hub has left cannot be listed"),
        Err(error) => tracing::error!(%error, "the task that lists logs has failed"),
    }
    let mut pause = PAUSE;
    loop {
        let id = hub.ops.next_unmoved_logs().await;
        match move_ended(&hub, id).await {
            Ok(()) => {
                hub.ops.set_log_store_problem(None);
                pause = PAUSE;
            }
            Err(NotMoved::Files(problem)) => {
                tracing::warn!(attempt = %id, problem, "its logs stay here until the hub starts again");
            }
            Err(NotMoved::Away(problem)) => {
                hub.ops.note_complete_logs(id);
                hub.ops.set_log_store_problem(Some(problem.clone()));
                tracing::warn!(problem, again_in_s = pause.as_secs(), "logs cannot be moved to the log store");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Moves the logs of an attempt that has ended. Those of others are due again at their end.
async fn move_ended(hub: &Hub, id: AttemptId) -> Result<(), NotMoved> {
    if !hub.ops.has_ended_logs(id).await? {
        return Ok(());
    }
    match tokio::time::timeout(EXIT_MAX, watch::attempt_over(&hub.ops.attempt_dir(id))).await {
        Ok(over) => over?,
        Err(_) => return Err(NotMoved::Files("its supervisor has not exited".to_owned())),
    }
    hub.ops.move_logs(id).await
}
