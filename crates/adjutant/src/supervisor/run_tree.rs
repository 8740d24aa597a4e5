//! The tree that a run works in, where git knows it: kept as a snapshot before the agent starts and after everything of
//! the attempt has ended, and what changed between the two.

use crate::git::{Git, GitError, NewSnapshot, Repo, Scratch, Snapshot, WorkspacePlace, keep_commits, take};
use crate::link::{AttemptDir, Order, Orders, WorkspaceOrder};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, Isolation, RunId};
use std::future::Future;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

/// How long the snapshot before the agent's start may take: the agent waits for it.
const START_MAX: Duration = Duration::from_secs(5);
/// The same after its end.
const END_MAX: Duration = Duration::from_secs(60);
/// Most files that are named as changed.
const FILES_MAX: usize = 500;

/// The tree of an attempt's run.
#[derive(Debug)]
pub struct RunTree {
    scratch: Scratch,
    new: NewSnapshot,
    start: Option<Snapshot>,
    /// The commit that was checked out at the start.
    head: Option<String>,
}

/// What changed in the run's directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// From the top of the repository.
    pub files: Vec<String>,
    /// There are more than those.
    pub cut: bool,
    /// They changed since the start. Otherwise the state at the start is not known, and they are what differs from the
    /// commit that is checked out.
    pub since_start: bool,
    /// Commits that were made since the start, the newest first: a short id and the subject.
    pub commits: Vec<String>,
}

/// Keeps the tree before the attempt's agent is started. `None`: no git, or no repository that it can use.
pub async fn at_start(order: &Order, dir: &AttemptDir, orders: &watch::Receiver<Orders>) -> Option<RunTree> {
    let run = RunId::parse(&order.run_id).ok()?;
    let opened = unless_stopped(orders.clone(), START_MAX, open(order, dir)).await?;
    let scratch = match opened {
        Ok(scratch) => scratch,
        Err(GitError::Missing | GitError::NotARepository(_)) => return None,
        Err(error) => {
            tracing::warn!(%error, "the run's changes cannot be kept");
            return None;
        }
    };
    let new = NewSnapshot { run, run_name: order.run_name.clone(), attempt: AttemptNo(order.attempt), cause: SnapshotCause::Start };
    let both = async {
        let (taken, head) = tokio::join!(take(&scratch, &new), scratch.repo().head());
        taken.map(|taken| (taken.snapshot, head))
    };
    let mut head = None;
    let start = match unless_stopped(orders.clone(), START_MAX, both).await {
        Some(Ok((snapshot, at))) => {
            head = at.unwrap_or_else(|error| {
                tracing::warn!(%error, "the commit before the attempt is not known");
                None
            });
            Some(snapshot)
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "the tree before the attempt cannot be kept");
            None
        }
        None => {
            tracing::warn!("the tree before the attempt is not kept: git took too long, or the run is to stop");
            None
        }
    };
    // Commits in a workspace are not the repository's.
    let head = head.filter(|_| order.workspace.is_none());
    Some(RunTree { scratch, new: NewSnapshot { cause: SnapshotCause::End, ..new }, start, head })
}

async fn open(order: &Order, dir: &AttemptDir) -> Result<Scratch, GitError> {
    let Some(WorkspaceOrder { isolation, repository, path, base, .. }) = &order.workspace else {
        let repo = Repo::find(&Git::find(&order.env, &order.cwd)?, &order.cwd).await?;
        return Scratch::new(repo, dir.home(), &dir.git()).await;
    };
    let repo = Repo::find(&Git::find(&order.env, repository)?, repository).await?;
    let repo = repo.below(order.cwd.strip_prefix(path).unwrap_or("".as_ref()));
    let isolation = Isolation::from_word(isolation).ok_or_else(|| GitError::unusable(path, "its kind is a word of a newer version"))?;
    Scratch::of_workspace(repo, WorkspacePlace { isolation, base, path }, dir.home(), &dir.git()).await
}

/// Waits for something. `None`: the run is to stop, or it took too long.
async fn unless_stopped<T>(mut orders: watch::Receiver<Orders>, limit: Duration, done: impl Future<Output = T>) -> Option<T> {
    let stop = async {
        if orders.wait_for(|orders| orders.stop.is_some()).await.is_err() {
            std::future::pending().await
        }
    };
    tokio::select! {
        biased;
        done = tokio::time::timeout(limit, done) => done.ok(),
        () = stop => None,
    }
}

impl RunTree {
    /// Keeps the tree at the attempt's end. Returns what changed since its start. `None`: git failed.
    pub async fn at_end(&self) -> Option<Changes> {
        let kept = async {
            let taken = take(&self.scratch, &self.new).await?;
            self.changes(&taken.snapshot).await
        };
        let kept = tokio::time::timeout(END_MAX, kept).await;
        match tokio::time::timeout(END_MAX, keep_commits(&self.scratch, self.new.run)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "the agent's commits are only in its workspace"),
            Err(_) => tracing::error!("the agent's commits are only in its workspace: git took too long"),
        }
        match kept {
            Ok(Ok(changes)) => changes,
            Ok(Err(error)) => {
                tracing::error!(%error, "the tree at the attempt's end cannot be kept, or not compared");
                None
            }
            Err(_) => {
                tracing::error!("the tree at the attempt's end is not kept: git took too long");
                None
            }
        }
    }

    async fn changes(&self, end: &Snapshot) -> Result<Option<Changes>, GitError> {
        let from = match &self.start {
            Some(start) => Some(start.commit.clone()),
            None => self.scratch.base().await?,
        };
        let Some(from) = from else { return Ok(None) };
        let listed = self.scratch.list(&from, &end.commit).await?;
        let mut files = listed.iter().map(|listed| String::from_utf8_lossy(&listed.path).into_owned()).filter(|path| self.is_below(path));
        let named: Vec<String> = files.by_ref().take(FILES_MAX).collect();
        let commits = self.commits().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the commits of the attempt cannot be listed");
            Vec::new()
        });
        Ok(Some(Changes { files: named, cut: files.next().is_some(), since_start: self.start.is_some(), commits }))
    }

    async fn commits(&self) -> Result<Vec<String>, GitError> {
        let now = self.scratch.repo().head().await?;
        match (&self.head, now) {
            (Some(before), Some(now)) if *before != now => self.scratch.commits(before, &now).await,
            _ => Ok(Vec::new()),
        }
    }

    fn is_below(&self, path: &str) -> bool {
        Path::new(path).starts_with(&self.scratch.repo().below)
    }
}
