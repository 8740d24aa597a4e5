//! Moves the logs that a standby hub has received and not moved to the log store while it led.

use super::log_store::{MOVES_MAX, PAUSE, PAUSE_MAX};
use crate::config::{Home, LogStoreAddress};
use crate::logs::kept::AttemptLogs;
use crate::objects::Objects;
use crate::ops::{
    AttemptId, NotMoved, attempts_with_logs, remove_files, remove_run, store_attempt,
};
use adjutant_core::RunId;
use futures::StreamExt;
use std::error::Error;
use std::io;
use tokio::task::JoinError;

/// Why logs could not be moved yet. A retry can succeed.
#[derive(Debug, thiserror::Error)]
enum NotYetMoved<E> {
    #[error(transparent)]
    Files(#[from] io::Error),
    #[error(transparent)]
    Task(#[from] JoinError),
    /// It is unknown whether the run exists.
    #[error(transparent)]
    Leader(E),
    /// The log store cannot be used.
    #[error("{0}")]
    LogStore(String),
}

/// Moves the logs in a home, with as many tries as it takes. Never returns. `is_known`: asks the
/// leader whether a run exists.
pub(super) async fn move_left<F, E>(
    home: &Home,
    address: Option<&LogStoreAddress>,
    is_known: impl Fn(RunId) -> F,
) where
    F: Future<Output = Result<bool, E>>,
    E: Error + 'static,
{
    if let Some(address) = address {
        let mut pause = PAUSE;
        while let Err(problem) = move_all(home, address, &is_known).await {
            tracing::warn!(
                %problem,
                again_in_s = pause.as_secs(),
                "logs that this hub has received cannot be moved to the log store yet"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
    std::future::pending().await
}

async fn move_all<F, E>(
    home: &Home,
    address: &LogStoreAddress,
    is_known: &impl Fn(RunId) -> F,
) -> Result<(), NotYetMoved<E>>
where
    F: Future<Output = Result<bool, E>>,
    E: Error + 'static,
{
    let (listed, opened) = (home.clone(), address.clone());
    let left = tokio::task::spawn_blocking(move || attempts_with_logs(&listed)).await??;
    if left.is_empty() {
        return Ok(());
    }
    let objects = tokio::task::spawn_blocking(move || Objects::open(&opened))
        .await?
        .map_err(|problem| NotYetMoved::LogStore(problem.to_string()))?;
    let moves = left
        .into_iter()
        .map(|id| move_one(home, &objects, id, is_known));
    // The failure of one does not keep the others here.
    let moved: Vec<Result<(), NotYetMoved<E>>> = futures::stream::iter(moves)
        .buffer_unordered(MOVES_MAX)
        .collect()
        .await;
    moved.into_iter().collect()
}

/// Moves the logs of one attempt if they are complete. Others arrive at the leader.
async fn move_one<F, E>(
    home: &Home,
    objects: &Objects,
    id: AttemptId,
    is_known: &impl Fn(RunId) -> F,
) -> Result<(), NotYetMoved<E>>
where
    F: Future<Output = Result<bool, E>>,
    E: Error + 'static,
{
    let logs = AttemptLogs {
        home: home.dir.clone(),
        run_id: id.run.to_string(),
        attempt: id.n.0,
    };
    let looked_at = logs.clone();
    let are_kept = tokio::task::spawn_blocking(move || looked_at.are_kept()).await??;
    if !are_kept || !is_known(id.run).await.map_err(NotYetMoved::Leader)? {
        return Ok(());
    }
    let stored = match store_attempt(objects, &logs).await {
        Ok(stored) => stored,
        Err(problem) => return or_stay(id, problem),
    };
    // The leader may have removed the run meanwhile, and its objects before these were stored. The
    // files stay.
    if !is_known(id.run).await.map_err(NotYetMoved::Leader)? {
        return remove_run(objects, &id.run.to_string())
            .await
            .map_err(|problem| NotYetMoved::LogStore(problem.to_string()));
    }
    match remove_files(logs, stored).await {
        Ok(()) => Ok(()),
        Err(problem) => or_stay(id, problem),
    }
}

/// Returns an error that another try can remove. Files that cannot be moved stay.
fn or_stay<E>(id: AttemptId, problem: NotMoved) -> Result<(), NotYetMoved<E>> {
    match problem {
        NotMoved::Files(problem) => {
            tracing::warn!(attempt = %id, problem, "its logs stay here until the hub starts again");
            Ok(())
        }
        NotMoved::Unavailable(problem) => Err(NotYetMoved::LogStore(problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::log_path;
    use std::cell::Cell;

    const RUN: &str = "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11";

    /// A home with the complete log of one attempt, and a log store.
    fn received() -> (tempfile::TempDir, Home, LogStoreAddress) {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home {
            dir: dir.path().join("home"),
        };
        let there = AttemptLogs {
            home: dir.path().join("there"),
            run_id: RUN.to_owned(),
            attempt: 1,
        };
        let here = AttemptLogs {
            home: home.dir.clone(),
            ..there.clone()
        };
        for logs in [&there, &here] {
            std::fs::create_dir_all(logs.home.join("logs")).expect("a directory");
        }
        std::fs::write(log_path(&there.home, RUN, 1), "hello").expect("a log");
        let listed = there.list().expect("a list");
        here.accept(listed.clone()).expect("begins");
        here.append(listed[0].name, 0, b"hello").expect("writes");
        assert!(here.accept(listed).expect("completes").0.is_complete);
        let store = dir.path().join("objects");
        std::fs::create_dir(&store).expect("a directory");
        (dir, home, LogStoreAddress::Directory(store))
    }

    fn objects_of_run(address: &LogStoreAddress) -> usize {
        let LogStoreAddress::Directory(dir) = address else {
            panic!("a directory")
        };
        let mut left = vec![dir.clone()];
        let mut files = 0;
        while let Some(dir) = left.pop() {
            for entry in std::fs::read_dir(dir).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    left.push(path)
                } else {
                    files += 1
                }
            }
        }
        files
    }

    #[tokio::test]
    async fn logs_of_a_known_run_are_moved() {
        let (_dir, home, address) = received();
        move_all(&home, &address, &async |_| Ok::<_, io::Error>(true))
            .await
            .expect("moved");
        assert!(!log_path(&home.dir, RUN, 1).exists() && objects_of_run(&address) > 0);
    }

    #[tokio::test]
    async fn run_that_is_removed_while_its_logs_are_stored_leaves_no_objects() {
        let (_dir, home, address) = received();
        let asked = Cell::new(0);
        let is_known = async |_| {
            asked.set(asked.get() + 1);
            Ok::<_, io::Error>(asked.get() == 1)
        };
        move_all(&home, &address, &is_known)
            .await
            .expect("no failure");
        assert_eq!(
            (asked.get(), objects_of_run(&address)),
            (2, 0),
            "the leader is asked before and after"
        );
        assert!(log_path(&home.dir, RUN, 1).exists());
        let unreachable = move_all(&home, &address, &async |_| {
            Err(io::Error::other("no leader"))
        })
        .await
        .expect_err("unreachable");
        assert_eq!(
            (unreachable.to_string(), objects_of_run(&address)),
            ("no leader".to_owned(), 0)
        );
    }
}
