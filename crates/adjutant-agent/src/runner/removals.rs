//! Removes the files of runs that were removed at the hub, and confirms it. The hub names them
//! again when the runner joins, until then.

use super::attempts::kill;
use super::places::{all, place};
use super::repository::Repositories;
use super::uplink::Uplink;
use crate::attempt_processes::is_over;
use crate::config::Home;
use crate::failpoint::failpoint;
use crate::git::GitError;
use crate::leftovers;
use crate::protocol::PostRemoved;
use adjutant_core::RunId;
use futures::FutureExt;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The removals under way.
pub(super) struct Removals {
    home: Home,
    uplink: Arc<Uplink>,
    repositories: Arc<Repositories>,
    tasks: JoinSet<()>,
}

impl Removals {
    pub(super) fn new(home: Home, uplink: Arc<Uplink>, repositories: Arc<Repositories>) -> Self {
        Self {
            home,
            uplink,
            repositories,
            tasks: JoinSet::new(),
        }
    }

    /// Begins to remove the files of runs, one after another. May be repeated.
    pub(super) fn begin(&mut self, runs: Vec<String>) {
        while self.tasks.try_join_next().is_some() {}
        if runs.is_empty() {
            return;
        }
        let (home, uplink, repositories) = (
            self.home.clone(),
            Arc::clone(&self.uplink),
            Arc::clone(&self.repositories),
        );
        let task = async move {
            let mut removed = Vec::new();
            for run in runs {
                match remove(&home, &repositories, &run).await {
                    Ok(()) => removed.push(run),
                    Err(error) => {
                        tracing::warn!(run, %error, "the files of a removed run stay until the runner joins again")
                    }
                }
            }
            failpoint!("logs.removed_on_runner");
            let count = removed.len();
            match uplink
                .call_until_answered::<()>("/runner/removed", &PostRemoved { runs: removed })
                .await
            {
                Ok(()) => tracing::info!(
                    runs = count,
                    "removed the files of runs that were removed at the hub"
                ),
                Err(refused) => {
                    tracing::warn!(%refused, "the hub does not accept that files were removed")
                }
            }
        };
        self.tasks.spawn(task.boxed());
    }
}

#[derive(Debug, thiserror::Error)]
enum NotRemoved {
    #[error("this is not a run")]
    NoRun,
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Disk(#[from] std::io::Error),
    #[error("some of them cannot be removed")]
    FilesLeft,
}

async fn remove(home: &Home, repositories: &Repositories, run_id: &str) -> Result<(), NotRemoved> {
    let run = RunId::parse(run_id).map_err(|_| NotRemoved::NoRun)?;
    for key in all(home).filter(|key| key.split_once('/').is_some_and(|(of, _)| of == run_id)) {
        let Some((dir, run_id, attempt)) = place(home, &key) else {
            continue;
        };
        // The hub has recorded it as lost.
        if !is_over(&dir)? {
            kill(&dir, &run_id, attempt).await;
        }
    }
    repositories.remove(run).await?;
    let home = home.clone();
    let has_left = tokio::task::spawn_blocking(move || {
        leftovers::remove_files(&home.logs_dir(), &home.runs_dir(), &[run])
    })
    .await;
    if has_left.map_err(std::io::Error::other)? {
        Err(NotRemoved::FilesLeft)
    } else {
        Ok(())
    }
}
