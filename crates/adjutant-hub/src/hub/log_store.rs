//! Moves the logs of ended attempts to the log store, several attempts at a time.

use super::Hub;
use crate::attempt_processes::attempt_over;
use crate::ops::{AttemptId, AttemptToMove, NotMoved};
use futures::FutureExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many attempts are moved at a time.
pub(super) const MOVES_MAX: usize = 4;

/// The pause after a failure of the log store. It is doubled with each further one, up to the
/// maximum.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// How long the processes of an attempt that has ended may take to exit.
const EXIT_MAX: Duration = Duration::from_secs(10);

/// The pause after failures.
struct Pause {
    next: Duration,
    until: Option<Instant>,
}

impl Pause {
    /// Begins a pause, unless one has begun: failures of concurrent moves have the same cause, so
    /// they do not lengthen it.
    fn begin(&mut self) -> Option<Duration> {
        if self.until.is_some() {
            return None;
        }
        let begun = self.next;
        self.until = Some(Instant::now() + begun);
        self.next = (begun * 2).min(PAUSE_MAX);
        Some(begun)
    }

    async fn wait_until_over(&mut self) {
        match self.until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
        self.until = None;
    }
}

/// Moves logs: first those that an earlier hub has left, then those of each attempt that ends.
pub(super) async fn move_logs(hub: Arc<Hub>) {
    if !hub.ops.log_store.is_configured() {
        return;
    }
    let finding = Arc::clone(&hub);
    match tokio::task::spawn_blocking(move || finding.ops.log_store.find_unmoved()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::error!(%error, "logs that an earlier hub has left cannot be listed")
        }
        Err(error) => tracing::error!(%error, "the task that lists logs has failed"),
    }
    let mut pause = Pause {
        next: PAUSE,
        until: None,
    };
    let mut moves = JoinSet::new();
    loop {
        tokio::select! {
            taken = hub.ops.log_store.next_unmoved(), if moves.len() < MOVES_MAX && pause.until.is_none() => {
                moves.spawn(move_taken(Arc::clone(&hub), taken).boxed());
            }
            Some(moved) = moves.join_next() => match moved {
                Ok(Ok(Moved::Yes)) => {
                    hub.ops.log_store.set_problem(None);
                    pause.next = PAUSE;
                }
                Ok(Ok(Moved::No)) => {}
                Ok(Err(error)) => {
                    let problem = error.to_string();
                    hub.ops.log_store.set_problem(Some(problem.clone()));
                    if let Some(begun) = pause.begin() {
                        tracing::warn!(problem, again_in_s = begun.as_secs(), "logs cannot be moved to the log store");
                    }
                }
                Err(error) => tracing::error!(%error, "the task that moves logs has failed; they stay here until the hub starts again"),
            },
            () = pause.wait_until_over() => {}
        }
    }
}

/// Whether logs were moved.
enum Moved {
    Yes,
    /// They are not to be moved now.
    No,
}

/// Moves the logs of an attempt. Fails if another try can succeed.
async fn move_taken(hub: Arc<Hub>, taken: AttemptToMove) -> Result<Moved, NotMoved> {
    match move_ended(&hub, taken.id).await {
        Ok(moved) => Ok(moved),
        Err(NotMoved::Files(problem)) => {
            tracing::warn!(attempt = %taken.id, problem, "its logs stay here until the hub starts again");
            Ok(Moved::No)
        }
        Err(error @ NotMoved::Unavailable(_)) => {
            hub.ops.log_store.note_complete(taken.id);
            Err(error)
        }
    }
}

/// Moves the logs of an attempt that has ended. Those of others are due again at their end.
async fn move_ended(hub: &Hub, id: AttemptId) -> Result<Moved, NotMoved> {
    if !hub.ops.log_store.has_ended_logs(id).await? {
        return Ok(Moved::No);
    }
    match tokio::time::timeout(EXIT_MAX, attempt_over(&id.dir(hub.ops.home()))).await {
        Ok(over) => over?,
        Err(_) => return Err(NotMoved::Files("its supervisor has not exited".to_owned())),
    }
    hub.ops.log_store.move_logs(id).await?;
    Ok(Moved::Yes)
}
