//! Moves the logs that a standby hub has received and not moved to the log store while it led.

use super::log_store::{MOVES_MAX, PAUSE, PAUSE_MAX};
use crate::config::{Home, LogStoreAddress};
use crate::logs::kept::AttemptLogs;
use crate::objects::Objects;
use crate::ops::{AttemptId, NotMoved, attempts_with_logs, remove_files, remove_run, store_attempt};
use adjutant_core::RunId;
use futures::StreamExt;

/// Moves the logs in a home, with as many tries as it takes. Never returns. `is_known`: asks the leader whether a run exists.
pub(super) async fn move_left<F>(home: &Home, address: Option<LogStoreAddress>, is_known: impl Fn(RunId) -> F)
where
    F: Future<Output = Result<bool, String>>,
{
    if let Some(address) = address {
        let mut pause = PAUSE;
        while let Err(problem) = move_all(home, &address, &is_known).await {
            tracing::warn!(problem, again_in_s = pause.as_secs(), "logs that this hub has received cannot be moved to the log store yet");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
    std::future::pending().await
}

async fn move_all<F>(home: &Home, address: &LogStoreAddress, is_known: &impl Fn(RunId) -> F) -> Result<(), String>
where
    F: Future<Output = Result<bool, String>>,
{
    let (listed, opened) = (home.clone(), address.clone());
    let found = tokio::task::spawn_blocking(move || {
        let left = attempts_with_logs(&listed).map_err(|error| error.to_string())?;
        if left.is_empty() { Ok(None) } else { Objects::open(&opened).map(|objects| Some((left, objects))) }
    });
    let Some((left, objects)) = found.await.map_err(|error| error.to_string())?? else { return Ok(()) };
    let moves = left.into_iter().map(|id| move_one(home, &objects, id, is_known));
    // The failure of one does not keep the others here.
    let moved: Vec<Result<(), String>> = futures::stream::iter(moves).buffer_unordered(MOVES_MAX).collect().await;
    moved.into_iter().collect()
}

/// Moves the logs of one attempt if they are complete. Others arrive at the leader.
async fn move_one<F>(home: &Home, objects: &Objects, id: AttemptId, is_known: &impl Fn(RunId) -> F) -> Result<(), String>
where
    F: Future<Output = Result<bool, String>>,
{
    let logs = AttemptLogs { home: home.dir.clone(), run_id: id.run.to_string(), attempt: id.n.0 };
    let looked_at = logs.clone();
    let are_kept = tokio::task::spawn_blocking(move || looked_at.are_kept()).await.map_err(|error| error.to_string())?;
    if !are_kept.map_err(|error| error.to_string())? || !is_known(id.run).await? {
        return Ok(());
    }
    let moved = async {
        let stored = store_attempt(objects, &logs).await?;
        // The leader may have removed the run meanwhile, and its objects before these were stored. The files stay.
        if !is_known(id.run).await.map_err(NotMoved::Unavailable)? {
            return remove_run(objects, &id.run.to_string()).await.map_err(NotMoved::Unavailable);
        }
        remove_files(logs, stored).await
    };
    match moved.await {
        Ok(()) => Ok(()),
        Err(NotMoved::Files(problem)) => {
            tracing::warn!(attempt = %id, problem, "its logs stay here until the hub starts again");
            Ok(())
        }
        Err(NotMoved::Unavailable(problem)) => Err(problem),
    }
}
