//! The tree that a run works in, if it is in a git repository: snapshots before the agent starts
//! and after the attempt has ended, and the changes between them.

use crate::git::{
    Git, GitError, KeptCommits, NewSnapshot, Repo, Scratch, Snapshot, WorkspacePath, keep_commits,
    nearest_repository, take,
};
use crate::protocol::{AttemptDir, FactKind, Order, Orders, WorkspaceOrder};
use crate::{clock, config};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, Isolation, RunId};
use std::future::Future;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

/// How long the snapshot before the agent's start may take: the agent waits for it.
const START_MAX: Duration = Duration::from_secs(5);
/// The same after its end: nothing waits for it but the report of the end.
const END_MAX: Duration = Duration::from_secs(20);
/// The same if the one at the start took too long, so that nothing can be compared with it.
const END_WITHOUT_START_MAX: Duration = Duration::from_secs(5);
/// Maximum number of files that are named as changed.
const FILES_MAX: usize = 500;

/// The tree of an attempt's run.
#[derive(Debug)]
pub(crate) struct RunTree {
    scratch: Scratch,
    new: NewSnapshot,
    start: Option<Snapshot>,
    /// The commit that was checked out at the start.
    head: Option<String>,
    /// It is a workspace of the run's own.
    is_isolated: bool,
    /// What the snapshot at the start does not have.
    problem: Option<String>,
}

/// What changed in the run's directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// From the top of the repository.
    pub files: Vec<String>,
    /// More files have changed.
    pub cut: bool,
    /// The files changed since the start. Otherwise the state at the start is unknown, and they
    /// differ from the commit that is checked out.
    pub since_start: bool,
    /// Commits that were made since the start, the newest first: a short id and the subject.
    pub commits: Vec<String>,
}

/// The known state of the tree before the attempt's agent starts.
#[derive(Debug, Default)]
pub(crate) struct TreeAtStart {
    /// `None`: no git, or no repository that it can use.
    pub tree: Option<RunTree>,
    /// Why there is no snapshot, although there is a repository.
    pub problem: Option<String>,
}

/// Takes a snapshot of the tree before the attempt's agent starts.
pub(crate) async fn at_start(
    order: &Order,
    dir: &AttemptDir,
    orders: &watch::Receiver<Orders>,
) -> TreeAtStart {
    let Ok(run) = RunId::parse(&order.run_id) else {
        return TreeAtStart::default();
    };
    let failed = |why: String| {
        tracing::warn!(why, "the tree before the attempt is not kept");
        TreeAtStart {
            tree: None,
            problem: Some(why),
        }
    };
    let scratch = match unless_stopped(orders.clone(), START_MAX, open(order, dir)).await {
        WaitOutcome::Done(Ok(scratch)) => scratch,
        // Without git, nothing tells whether git would use the repository, but there is one.
        WaitOutcome::Done(Err(GitError::Missing)) if nearest_repository(&order.cwd).is_some() => {
            return failed("git is not on the PATH of the run".to_owned());
        }
        WaitOutcome::Done(Err(GitError::Missing | GitError::NotARepository(_)))
        | WaitOutcome::Stopped => return TreeAtStart::default(),
        WaitOutcome::Done(Err(error)) => return failed(error.to_string()),
        WaitOutcome::TooLong => return failed(GitFailure::TooSlow.to_string()),
    };
    let new = NewSnapshot {
        run,
        run_name: order.run_name.clone(),
        attempt: AttemptNo(order.attempt),
        cause: SnapshotCause::Start,
        at: clock::now(),
    };
    let both = async {
        let (taken, head) = tokio::join!(take(&scratch, &new), scratch.repo().head());
        taken.map(|taken| (taken, head))
    };
    let (mut head, mut problem) = (None, None);
    let start = match unless_stopped(orders.clone(), START_MAX, both).await {
        WaitOutcome::Done(Ok((taken, at))) => {
            if !taken.crowded.is_empty() {
                problem = failed(taken.crowded.join(", ")).problem;
            }
            head = at.unwrap_or_else(|error| {
                tracing::warn!(%error, "the commit before the attempt is not known");
                None
            });
            Some(taken.snapshot)
        }
        WaitOutcome::Done(Err(error)) => {
            problem = failed(error.to_string()).problem;
            None
        }
        WaitOutcome::TooLong => {
            problem = failed(GitFailure::TooSlow.to_string()).problem;
            None
        }
        WaitOutcome::Stopped => None,
    };
    // What is checked out in a workspace is the agent's work.
    let head = order
        .workspace
        .as_ref()
        .map(|workspace| workspace.base.clone())
        .or(head);
    let is_isolated = order.workspace.is_some();
    TreeAtStart {
        tree: Some(RunTree {
            scratch,
            new,
            start,
            head,
            is_isolated,
            problem: problem.clone(),
        }),
        problem,
    }
}

async fn open(order: &Order, dir: &AttemptDir) -> Result<Scratch, GitError> {
    let Some(WorkspaceOrder {
        isolation,
        repository,
        path,
        base,
        ..
    }) = &order.workspace
    else {
        let repo = Repo::find(
            &Git::find(&config::git_env(order.env.get("PATH")), &order.cwd)?,
            &order.cwd,
        )
        .await?;
        return Scratch::new(repo, dir.home(), &dir.git()).await;
    };
    let repo = Repo::find(
        &Git::find(&config::git_env(order.env.get("PATH")), repository)?,
        repository,
    )
    .await?;
    let repo = repo.below(order.cwd.strip_prefix(path).unwrap_or("".as_ref()));
    let isolation = Isolation::from_word(isolation)
        .ok_or_else(|| GitError::unusable(path, "its kind is a word of a newer version"))?;
    Scratch::of_workspace(
        repo,
        WorkspacePath {
            isolation,
            base,
            path,
            boot: &clock::reading().boot,
        },
        dir.home(),
        &dir.git(),
    )
    .await
}

/// The outcome of a bounded wait.
enum WaitOutcome<T> {
    Done(T),
    TooLong,
    /// The run is to stop.
    Stopped,
}

/// Waits for a future, at most for `limit`, unless the run is to stop.
async fn unless_stopped<T>(
    mut orders: watch::Receiver<Orders>,
    limit: Duration,
    done: impl Future<Output = T>,
) -> WaitOutcome<T> {
    let stop = async {
        if orders
            .wait_for(|orders| orders.stop.is_some())
            .await
            .is_err()
        {
            std::future::pending().await
        }
    };
    tokio::select! {
        biased;
        done = tokio::time::timeout(limit, done) => done.map_or(WaitOutcome::TooLong, WaitOutcome::Done),
        () = stop => WaitOutcome::Stopped,
    }
}

impl RunTree {
    /// Takes a snapshot of the tree at the attempt's end. Returns the changes since its start
    /// (`None`: git failed), and the facts to record.
    pub(super) async fn at_end(&self) -> (Option<Changes>, Vec<FactKind>) {
        let mut facts = Vec::new();
        let kept = async {
            let taken = take(
                &self.scratch,
                &NewSnapshot {
                    cause: SnapshotCause::End,
                    at: clock::now(),
                    ..self.new.clone()
                },
            )
            .await?;
            Ok::<_, GitError>(taken.snapshot)
        };
        let limit = if self.start.is_none() && !self.is_isolated {
            END_WITHOUT_START_MAX
        } else {
            END_MAX
        };
        let kept = with_time_limit(limit, kept).await;
        // Also without a snapshot, because the commits are only in the workspace.
        let made = with_time_limit(END_MAX, keep_commits(&self.scratch, self.new.run)).await;
        let made = made.unwrap_or_else(|why| {
            facts.push(failed_fact(format!(
                "the agent's commits are only in its workspace: {why}"
            )));
            KeptCommits::default()
        });
        // A new problem replaces the one of the start, which remains.
        let both = |why: String| {
            self.problem
                .iter()
                .cloned()
                .chain([why])
                .collect::<Vec<_>>()
                .join("; ")
        };
        facts.extend(made.problem().map(both).map(failed_fact));
        let snapshot = match kept {
            Ok(snapshot) => snapshot,
            Err(why) => {
                facts.insert(0, failed_fact(why.to_string()));
                return (None, facts);
            }
        };
        facts.push(taken_fact(&snapshot));
        let changes = with_time_limit(END_MAX, self.changes(&snapshot, made.head)).await;
        let changes = changes.unwrap_or_else(|why| {
            tracing::error!(%why, "what the attempt changed cannot be listed");
            None
        });
        (changes, facts)
    }

    async fn changes(
        &self,
        end: &Snapshot,
        made: Option<String>,
    ) -> Result<Option<Changes>, GitError> {
        let from = match &self.start {
            Some(start) => Some(start.commit.clone()),
            None => self.scratch.base().await?,
        };
        let Some(from) = from else { return Ok(None) };
        let listed = self.scratch.list(&from, &end.commit).await?;
        let mut files = listed
            .iter()
            .map(|listed| String::from_utf8_lossy(&listed.path).into_owned())
            .filter(|path| self.is_below(path));
        let named: Vec<String> = files.by_ref().take(FILES_MAX).collect();
        let commits = self.commits(made).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the commits of the attempt cannot be listed");
            Vec::new()
        });
        Ok(Some(Changes {
            files: named,
            cut: files.next().is_some(),
            since_start: self.start.is_some(),
            commits,
        }))
    }

    /// Lists the commits since the start. `made`: the one that is checked out in a workspace, where
    /// the agent has made it.
    async fn commits(&self, made: Option<String>) -> Result<Vec<String>, GitError> {
        let now = if self.is_isolated {
            made
        } else {
            self.scratch.repo().head().await?
        };
        match (&self.head, now) {
            (Some(before), Some(now)) if *before != now => self.scratch.commits(before, &now).await,
            _ => Ok(Vec::new()),
        }
    }

    fn is_below(&self, path: &str) -> bool {
        Path::new(path).starts_with(&self.scratch.repo().below)
    }
}

/// Why git has no result.
#[derive(Debug, thiserror::Error)]
enum GitFailure {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("git took too long")]
    TooSlow,
}

/// Waits for git, at most for `limit`.
async fn with_time_limit<T>(
    limit: Duration,
    done: impl Future<Output = Result<T, GitError>>,
) -> Result<T, GitFailure> {
    match tokio::time::timeout(limit, done).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(GitFailure::TooSlow),
    }
}

fn taken_fact(snapshot: &Snapshot) -> FactKind {
    let cause = snapshot.cause.map_or("", SnapshotCause::word).to_owned();
    FactKind::SnapshotTaken {
        snapshot: snapshot.n,
        cause,
    }
}

fn failed_fact(why: String) -> FactKind {
    tracing::warn!(why, "a snapshot cannot be taken");
    FactKind::SnapshotFailed { why }
}
