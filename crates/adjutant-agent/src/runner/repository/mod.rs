//! Copies of repositories in the runner's home: fetched before an attempt starts, and the source of
//! what a run sends back.
//!
//! ```text
//!  <home>/repositories/<id>      a copy; workspaces share its objects
//!  <home>/runs/<run>/place.json  the copy and the workspace of a run, and whether its work may be only here
//!
//!  hub ─ bundle ─> copy ─ clone ─> workspace ─ snapshots ─> copy ─ bundle ─> hub, before it accepts the facts about them
//! ```
//! The refs of the run in the copy are the only record of what is to be sent; the hub is asked what
//! it has.

mod unsent;

use super::uplink::{CallFailure, PAUSE, PAUSE_MAX, Uplink, is_passing};
use crate::config::{self, Home};
use crate::git::{self, CarriedSettings, Git, GitError, NewSnapshot, Repo, Scratch, WorkspacePath};
use crate::leftovers::LeftFacts;
use crate::named_locks::NamedLocks;
use crate::protocol::{
    AttemptDir, BUNDLE_LINE_BYTES_MAX, FactKind, GetRepository, GetRunRefs, Order,
    RepositoryBundle, RunRefsReply, SnapshotsBundle, WORK_BYTES_MAX, WorkspaceOrder,
};
use crate::trace::RepeatedFailures;
use crate::view::{ErrorView, codes};
use crate::{clock, failpoint, files, spool};
use adjutant_core::snapshot::SnapshotCause;
use adjutant_core::{AttemptNo, Isolation, RunId, hex};
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Maximum number of known commits in a request for a repository.
const KNOWN_MAX: usize = 200;
/// Largest record of a run's place, in bytes.
const PLACE_BYTES_MAX: u64 = 64 * 1024;
/// How many bytes of the hash of a repository's path name its copy.
const COPY_ID_BYTES: usize = 8;
/// How often making a copy may fail on this machine before its attempt is refused.
const FETCH_FAILURES_MAX: u32 = 5;
/// How long the work of a run is sent again while this machine or the hub's git fails. Meanwhile
/// the attempt has not ended.
const SEND_FAILURES_MAX: Duration = Duration::from_secs(15 * 60);

/// Where a run works here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WorkLocation {
    /// The top of the copy of its repository.
    repository: PathBuf,
    /// The top of its workspace.
    workspace: PathBuf,
    base: String,
    run_name: String,
    /// The attempt whose work may not be at the hub yet.
    unsent: Option<u32>,
}

/// The copies of repositories.
pub(super) struct Repositories {
    home: Home,
    uplink: Arc<Uplink>,
    /// One for each copy that is made or updated.
    copies: NamedLocks,
    /// One for each run whose repository is fetched or whose work is sent.
    sending: NamedLocks,
    /// Notified when there may be unsent work of ended attempts.
    unsent: Notify,
    tasks: Mutex<JoinSet<()>>,
}

/// Why the repository of an attempt is not here, so that the attempt cannot start.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    /// The hub refuses it, with this message.
    #[error("{0}")]
    Refused(String),
    #[error("the runner cannot make its copy of the repository: {0}")]
    Copy(NotFetched),
    #[error("its workspace has no name")]
    NoWorkspaceName,
    #[error(transparent)]
    Record(#[from] io::Error),
}

/// Why a repository was not fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotFetched {
    #[error(transparent)]
    Call(#[from] CallFailure),
    #[error("the order names no run")]
    NoRun,
    /// Git failed on this machine.
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Disk(#[from] io::Error),
}

/// When a repository that was not fetched is fetched again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FetchAgain {
    /// Until it is here: the hub cannot be reached, or cannot reply now.
    Always,
    /// A few times.
    AFewTimes,
    Never,
}

impl NotFetched {
    fn again(&self) -> FetchAgain {
        match self {
            Self::Call(CallFailure::Refused(error)) if !is_passing(error) => FetchAgain::Never,
            // With the run back in the queue, this runner takes no other one until there is room.
            _ if self.is_of_this_machine() && files::names_full_disk(&self.to_string()) => {
                FetchAgain::Never
            }
            Self::Call(_) => FetchAgain::Always,
            Self::NoRun | Self::Git(_) | Self::Disk(_) => FetchAgain::AFewTimes,
        }
    }

    /// Returns whether it is not what the hub said.
    fn is_of_this_machine(&self) -> bool {
        !matches!(self, Self::Call(_)) || matches!(self, Self::Call(CallFailure::NoReply(_)))
    }
}

impl From<NotFetched> for FetchError {
    fn from(failure: NotFetched) -> Self {
        match failure {
            NotFetched::Call(CallFailure::Refused(error)) if !is_passing(&error) => {
                Self::Refused(error.message)
            }
            failure => Self::Copy(failure),
        }
    }
}

/// Why the work of a run was not sent.
#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error("{0}")]
    Call(CallFailure),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Disk(#[from] io::Error),
}

/// When work that was not sent is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendAgain {
    /// Until it is stored: the hub is unreachable, or its disk is full.
    Always,
    /// For a limited time.
    ForAWhile,
    Never,
}

impl NotSent {
    fn again(&self) -> SendAgain {
        match self {
            Self::Call(CallFailure::Refused(error)) if error.code == codes::INTERNAL => {
                SendAgain::ForAWhile
            }
            Self::Call(CallFailure::Refused(error)) if !is_passing(error) => SendAgain::Never,
            Self::Call(_) => SendAgain::Always,
            Self::Git(GitError::TooLarge { .. }) => SendAgain::Never,
            Self::Git(_) | Self::Disk(_) => SendAgain::ForAWhile,
        }
    }
}

impl Repositories {
    pub(super) fn new(home: Home, uplink: Arc<Uplink>) -> Self {
        Self {
            home,
            uplink,
            copies: NamedLocks::default(),
            sending: NamedLocks::default(),
            unsent: Notify::new(),
            tasks: Mutex::default(),
        }
    }

    /// Fetches the repository of an isolated attempt, and changes the order's paths to those of
    /// this machine. Returns when the copy has everything.
    ///
    /// # Errors
    /// Why the attempt cannot start.
    pub(super) async fn fetch(&self, order: &mut Order) -> Result<(), FetchError> {
        let Some(workspace) = &order.workspace else {
            return Ok(());
        };
        let _only = self.sending.lock(&order.run_id).await;
        let top = self.copy_of(workspace);
        self.fetch_until_complete(order, &workspace.base, &top)
            .await?;
        move_to_this_machine(order, &self.home, top)?;
        if let Some(workspace) = &order.workspace {
            let place = WorkLocation {
                repository: workspace.repository.clone(),
                workspace: workspace.path.clone(),
                base: workspace.base.clone(),
                run_name: order.run_name.clone(),
                unsent: Some(order.attempt),
            };
            self.record(&order.run_id, &place)?;
        }
        Ok(())
    }

    /// Returns the top of the copy of a workspace's repository.
    fn copy_of(&self, workspace: &WorkspaceOrder) -> PathBuf {
        let digest = Sha256::digest(workspace.repository.as_os_str().as_encoded_bytes());
        let hash = hex(&digest[..COPY_ID_BYTES]);
        // A repository with another kind of hashes can be at the same path later.
        self.home
            .repositories_dir()
            .join(format!("{hash}-{}", workspace.base.len() * 4))
    }

    /// Fetches a repository, as often as it takes.
    async fn fetch_until_complete(
        &self,
        order: &Order,
        base: &str,
        top: &Path,
    ) -> Result<(), NotFetched> {
        let attempt = format!("{}/{}", order.run_id, order.attempt);
        let (mut pause, mut problems) = (PAUSE, RepeatedFailures::default());
        let mut failures = 0;
        loop {
            let failure = match self.fetch_once(&attempt, &order.run_id, base, top).await {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let again = failure.again();
            failures += u32::from(again == FetchAgain::AFewTimes);
            if again == FetchAgain::Never || failures >= FETCH_FAILURES_MAX {
                return Err(failure);
            }
            if let Some(times) = problems.note(&failure.to_string(), std::time::Instant::now()) {
                tracing::warn!(attempt, %failure, times, "the repository cannot be fetched yet");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn fetch_once(
        &self,
        attempt: &str,
        run_id: &str,
        base: &str,
        top: &Path,
    ) -> Result<(), NotFetched> {
        // The next run of the same repository needs only what is new.
        let _only = self.copies.lock(&top.display().to_string()).await;
        let run = RunId::parse(run_id).map_err(|_| NotFetched::NoRun)?;
        let found = match Git::find(&config::git_env(None), &self.home.dir) {
            Err(error @ GitError::Missing) => {
                let message = format!("the runner cannot have the repository: {error}");
                return Err(CallFailure::Refused(ErrorView {
                    code: codes::INVALID.to_owned(),
                    message,
                    hint: None,
                })
                .into());
            }
            found => found?,
        };
        let known = match Repo::find(&found, top).await {
            Ok(repo) => git::known_commits(&repo, KNOWN_MAX).await?,
            // There is no copy yet, or none that git can use: all of it is fetched.
            Err(error) => {
                tracing::debug!(%error, "no copy of the repository to add to");
                Vec::new()
            }
        };
        let mut file = spool::create(&self.home.dir, &self.home.runs_dir().join(run_id))?;
        self.uplink
            .fetch_bundle(
                "/runner/repository",
                &GetRepository {
                    attempt: attempt.to_owned(),
                    known,
                },
                &file,
            )
            .await?;
        let RepositoryBundle {
            refs,
            object_format,
            settings,
            patterns,
            shallow,
        } = spool::read_line(&mut file, BUNDLE_LINE_BYTES_MAX)?;
        let carried = CarriedSettings {
            object_format,
            settings,
            patterns,
            shallow,
        };
        let repo = git::make_cache(&found, &self.home.dir, top, &carried).await?;
        if has_rest(&mut file)? {
            let scratch = self.scratch(repo.clone(), run_id).await?;
            git::read_pack(&scratch, file).await?;
        }
        Ok(git::replace_refs(&repo, run, &refs, Some(base)).await?)
    }

    /// Sends what the run of an attempt has made, unless the hub has it. Returns when the hub has
    /// stored it, or does not want it. A call that is dropped meanwhile does not interrupt it.
    pub(super) async fn send(self: &Arc<Self>, attempt: &str) {
        let Some((run_id, _)) = attempt.split_once('/') else {
            return;
        };
        // A run without a repository has no work to send.
        if matches!(self.place(run_id), Ok(None)) {
            return;
        }
        let only = self.sending.lock(run_id).await;
        let (ended, end) = oneshot::channel();
        let (repositories, attempt, run_id) =
            (Arc::clone(self), attempt.to_owned(), run_id.to_owned());
        let task = async move {
            let _only = only;
            if let Err(error) = repositories.send_until_stored(&attempt, &run_id).await {
                tracing::warn!(attempt, %error, "the work of a run stays on this machine");
                repositories.report_problem(&attempt, &run_id, &error).await;
            }
            // Nobody may wait any more.
            if ended.send(()).is_err() {
                tracing::debug!("nobody waits for the end");
            }
        };
        {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(task.boxed());
        }
        if end.await.is_err() {
            tracing::error!("a task that sends the work of a run has failed");
        }
    }

    async fn send_until_stored(&self, attempt: &str, run_id: &str) -> Result<(), NotSent> {
        let (mut pause, mut problems) = (PAUSE, RepeatedFailures::default());
        let mut failing_since = None;
        loop {
            let Err(error) = self.send_once(attempt, run_id).await else {
                return Ok(());
            };
            let is_over = match error.again() {
                SendAgain::Never => true,
                SendAgain::ForAWhile => {
                    failing_since.get_or_insert_with(Instant::now).elapsed()
                        >= failpoint::unsent_after().unwrap_or(SEND_FAILURES_MAX)
                }
                SendAgain::Always => false,
            };
            if is_over {
                return Err(error);
            }
            if let Some(times) = problems.note(&error.to_string(), std::time::Instant::now()) {
                tracing::warn!(attempt, %error, times, "the work of a run cannot be sent yet");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn send_once(&self, attempt: &str, run_id: &str) -> Result<(), NotSent> {
        let Some(place) = self.place(run_id)? else {
            return Ok(());
        };
        let call = GetRunRefs {
            attempt: attempt.to_owned(),
        };
        let theirs: RunRefsReply = self
            .uplink
            .call_in_session("/runner/refs", &call)
            .await
            .map_err(NotSent::Call)?;
        let Some(file) = self.bundle(run_id, &place, &theirs.refs).await? else {
            return Ok(());
        };
        self.uplink
            .send_bundle("/runner/snapshots", attempt, file)
            .await
            .map_err(NotSent::Call)
    }

    /// Makes a bundle of what the hub lacks. `None`: it lacks nothing.
    async fn bundle(
        &self,
        run_id: &str,
        place: &WorkLocation,
        theirs: &git::RunRefs,
    ) -> Result<Option<File>, NotSent> {
        let Ok(run) = RunId::parse(run_id) else {
            return Ok(None);
        };
        let repo = self.repo(place).await?;
        let is_hubs = |name: &str| matches!(name, "base" | "changes");
        let refs: git::RunRefs = git::carried_refs(&repo, run)
            .await?
            .into_iter()
            .filter(|(name, _)| !is_hubs(name))
            .collect();
        let is_tip = |name: &str| matches!(name, "head" | "stash") || name.starts_with("heads/");
        let lacks_nothing = refs
            .iter()
            .all(|(name, commit)| theirs.get(name) == Some(commit))
            && theirs
                .keys()
                .filter(|name| is_tip(name))
                .all(|name| refs.contains_key(name));
        if lacks_nothing {
            return Ok(None);
        }
        let wanted: Vec<String> = refs
            .values()
            .filter(|commit| !theirs.values().any(|known| known == *commit))
            .cloned()
            .collect();
        let known: Vec<String> = theirs.values().cloned().collect();
        let mut file = spool::create(&self.home.dir, &self.home.runs_dir().join(run_id))?;
        let to = spool::write_line(
            &mut file,
            &SnapshotsBundle {
                refs,
                problem: None,
            },
        )?;
        if !wanted.is_empty() {
            let scratch = self.scratch(repo, run_id).await?;
            git::write_pack(&scratch, &wanted, &known, to, WORK_BYTES_MAX).await?;
        }
        file.seek(SeekFrom::Start(0))?;
        Ok(Some(file))
    }

    /// Reports that the work of a run is only here. The hub has recorded what it has refused.
    async fn report_problem(&self, attempt: &str, run_id: &str, error: &NotSent) {
        if matches!(error, NotSent::Call(_)) {
            return;
        }
        let told = async {
            let mut file = spool::create(&self.home.dir, &self.home.runs_dir().join(run_id))?;
            spool::write_line(
                &mut file,
                &SnapshotsBundle {
                    problem: Some(error.to_string()),
                    ..SnapshotsBundle::default()
                },
            )?;
            file.seek(SeekFrom::Start(0))?;
            Ok::<_, io::Error>(
                self.uplink
                    .send_bundle("/runner/snapshots", attempt, file)
                    .await,
            )
        };
        match told.await {
            Ok(Ok(()) | Err(CallFailure::Refused(_))) => {}
            Ok(Err(failure)) => {
                tracing::warn!(attempt, %failure, "the hub does not know yet that work stays here")
            }
            Err(error) => {
                tracing::warn!(attempt, %error, "the hub does not know yet that work stays here")
            }
        }
    }

    /// Takes the last snapshot of an attempt whose supervisor has not: it has no last fact, and its
    /// agent has started. Returns whether it is such an attempt. May be repeated.
    pub(crate) async fn keep_after_loss(
        &self,
        dir: &AttemptDir,
        run_id: &str,
        attempt: u32,
    ) -> bool {
        let place = match self.place(run_id) {
            Ok(Some(place)) => place,
            Ok(None) => return false,
            Err(error) => {
                tracing::error!(run = run_id, %error, "where a run works cannot be read");
                return false;
            }
        };
        let read = dir.clone();
        let is_over = tokio::task::spawn_blocking(move || has_ended(&read)).await;
        if !matches!(is_over, Ok(Ok(false))) {
            return false;
        }
        let kept = async {
            let Ok(run) = RunId::parse(run_id) else {
                return Ok(());
            };
            let boot = clock::reading().boot;
            let at = WorkspacePath {
                isolation: Isolation::Clone,
                base: &place.base,
                path: &place.workspace,
                boot: &boot,
            };
            let scratch = Scratch::of_workspace(
                self.repo(&place).await?,
                at,
                &self.home.dir,
                &self.scratch_dir(run_id),
            )
            .await?;
            if !scratch.has_tree() {
                return Ok(());
            }
            let is_end = |known: &git::Snapshot| {
                known.attempt == Some(AttemptNo(attempt)) && known.cause == Some(SnapshotCause::End)
            };
            if !git::snapshots(scratch.repo(), run)
                .await?
                .iter()
                .any(is_end)
            {
                let (run_name, at) = (place.run_name.clone(), clock::now());
                git::take(
                    &scratch,
                    &NewSnapshot {
                        run,
                        run_name,
                        attempt: AttemptNo(attempt),
                        cause: SnapshotCause::End,
                        at,
                    },
                )
                .await?;
            }
            git::keep_commits(&scratch, run).await.map(drop)
        };
        if let Err(error) = kept.await {
            let error: GitError = error;
            tracing::error!(run = run_id, %error, "no snapshot of a lost attempt's tree could be taken");
        }
        true
    }

    /// Removes the refs and the workspace of a run, but not the record of where they are. May be
    /// repeated.
    ///
    /// # Errors
    /// git or the disk failed.
    pub(super) async fn remove(&self, run: RunId) -> Result<(), GitError> {
        let run_id = run.to_string();
        let _only = self.sending.lock(&run_id).await;
        let place = self.place(&run_id).map_err(|error| GitError::File {
            path: self.place_file(&run_id),
            error,
        })?;
        if let Some(place) = place
            && place.repository.exists()
        {
            git::remove_all(&self.repo(&place).await?, run).await?;
        }
        // The directory above is the run's.
        let workspace = self.home.workspaces_dir().join(&run_id).join("workspace");
        git::remove_workspace(None, Isolation::Clone, &self.home.dir, &workspace).await
    }

    async fn repo(&self, place: &WorkLocation) -> Result<Repo, GitError> {
        Repo::find(
            &Git::find(&config::git_env(None), &self.home.dir)?,
            &place.repository,
        )
        .await
    }

    async fn scratch(&self, repo: Repo, run_id: &str) -> Result<Scratch, GitError> {
        Scratch::new(repo, &self.home.dir, &self.scratch_dir(run_id)).await
    }

    fn scratch_dir(&self, run_id: &str) -> PathBuf {
        self.home
            .runs_dir()
            .join(run_id)
            .join(format!("git-{}", crate::hub_client::random_hex::<8>()))
    }

    fn place_file(&self, run_id: &str) -> PathBuf {
        self.home.runs_dir().join(run_id).join("place.json")
    }

    fn record(&self, run_id: &str, place: &WorkLocation) -> io::Result<()> {
        files::write_atomically(
            &self.home.dir,
            &self.place_file(run_id),
            &serde_json::to_vec(place)?,
        )
    }

    /// Reads where a run works. `None`: it has no repository.
    fn place(&self, run_id: &str) -> io::Result<Option<WorkLocation>> {
        match files::read(&self.home.dir, &self.place_file(run_id), PLACE_BYTES_MAX) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("the record of where the run works: {error}"),
            )),
        }
    }
}

/// Changes the paths of an order from those of the hub's machine to those of this one. `copy`: the
/// top of the copy of its repository.
fn move_to_this_machine(order: &mut Order, home: &Home, copy: PathBuf) -> Result<(), FetchError> {
    let Some(workspace) = &mut order.workspace else {
        return Ok(());
    };
    let name = workspace
        .path
        .file_name()
        .ok_or(FetchError::NoWorkspaceName)?;
    let path = home.workspaces_dir().join(&order.run_id).join(name);
    let below = order
        .cwd
        .strip_prefix(&workspace.path)
        .map(Path::to_owned)
        .unwrap_or_default();
    order.cwd = if below.as_os_str().is_empty() {
        path.clone()
    } else {
        path.join(below)
    };
    // Shared caches are below this home, unless the configuration names an absolute directory.
    let moved = |dir: &Path| {
        dir.strip_prefix(&order.home)
            .ok()
            .map(|below| home.dir.join(below))
    };
    for cache in &mut workspace.caches {
        let Some(here) = moved(cache) else { continue };
        for value in order
            .env
            .values_mut()
            .filter(|value| Path::new(value) == cache)
        {
            *value = here.display().to_string();
        }
        *cache = here;
    }
    (workspace.repository, workspace.path) = (copy, path);
    Ok(())
}

/// Returns whether a file has more after its current position.
fn has_rest(file: &mut File) -> io::Result<bool> {
    Ok(file.metadata()?.len() > file.stream_position()?)
}

/// Returns whether the facts of an attempt say how it ended, or its agent never started.
fn has_ended(dir: &AttemptDir) -> io::Result<bool> {
    let mut left = LeftFacts::open(dir)?;
    let mut has_started = false;
    loop {
        let batch = left.next_batch(0)?;
        has_started |= batch
            .iter()
            .any(|fact| matches!(fact.what, FactKind::Started { .. }));
        if batch.iter().any(|fact| {
            matches!(
                fact.what,
                FactKind::Ended { .. } | FactKind::SpawnFailed { .. }
            )
        }) {
            return Ok(true);
        }
        if left.is_at_end() {
            return Ok(!has_started);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn order(cwd: &str, workspace: &str) -> Order {
        serde_json::from_value(json!({
            "home": "/hub", "run_id": "r1", "run_name": "otter", "attempt": 1,
            "agent": "echo", "harness": "echo", "argv": [], "prompt_via": "stdin", "prompt": "",
            "cwd": cwd,
            "workspace": {
                "isolation": "clone", "repository": "/home/u/p", "base": "0", "path": workspace,
                "caches": ["/hub/caches/cargo", "/var/cache/npm"],
                "run_id": "r1", "run_name": "otter",
            },
            "env": {
                "CARGO_HOME": "/hub/caches/cargo", "NPM": "/var/cache/npm", "HOME": "/home/u",
            },
            "active_ms_before": 0, "patience_ms": 0, "grace_ms": 0, "log_bytes_max": 0,
            "token": "", "containment": "auto",
        }))
        .expect("an order")
    }

    #[test]
    fn paths_of_an_order_become_those_of_this_machine() {
        let home = Home {
            dir: "/runner".into(),
        };
        let moved = |cwd: &str| {
            let mut order = order(cwd, "/hub/workspaces/r1/workspace");
            move_to_this_machine(&mut order, &home, "/runner/copy".into()).expect("a name");
            order
        };
        let here = home.workspaces_dir().join("r1/workspace");
        let order = moved("/hub/workspaces/r1/workspace/src");
        assert_eq!(order.cwd, here.join("src"));
        assert_eq!(order.env["CARGO_HOME"], "/runner/caches/cargo");
        assert_eq!(
            (&*order.env["NPM"], &*order.env["HOME"]),
            ("/var/cache/npm", "/home/u")
        );
        let workspace = order.workspace.expect("a workspace");
        assert_eq!(workspace.path, here);
        assert_eq!(workspace.repository, Path::new("/runner/copy"));
        assert_eq!(
            workspace.caches,
            [
                Path::new("/runner/caches/cargo"),
                Path::new("/var/cache/npm")
            ]
        );
        // A directory outside of the workspace becomes its top.
        assert_eq!(moved("/elsewhere").cwd, here);
    }

    #[test]
    fn workspace_without_a_name_is_refused() {
        let home = Home {
            dir: "/runner".into(),
        };
        let refused = move_to_this_machine(&mut order("/", "/"), &home, PathBuf::new());
        assert!(matches!(refused, Err(FetchError::NoWorkspaceName)));
    }

    #[test]
    fn repository_is_fetched_again_unless_the_hub_or_the_disk_refuses() {
        let refused = |code: &str| {
            NotFetched::Call(CallFailure::Refused(ErrorView {
                code: code.to_owned(),
                message: "no".to_owned(),
                hint: None,
            }))
        };
        let no_reply = |why: &str| NotFetched::Call(CallFailure::NoReply(why.to_owned()));
        assert_eq!(refused(codes::NOT_FOUND).again(), FetchAgain::Never);
        assert_eq!(refused(codes::STORAGE_FULL).again(), FetchAgain::Always);
        assert_eq!(no_reply("timeout").again(), FetchAgain::Always);
        let full = "No space left on device";
        assert_eq!(no_reply(full).again(), FetchAgain::Never);
        let disk = |why: &str| NotFetched::Disk(io::Error::other(why.to_owned()));
        assert_eq!(disk(full).again(), FetchAgain::Never);
        assert_eq!(disk("it is busy").again(), FetchAgain::AFewTimes);
        // The hub's words stand alone; others say what failed.
        assert_eq!(
            FetchError::from(refused(codes::NOT_FOUND)).to_string(),
            "no"
        );
        assert_eq!(
            FetchError::from(disk(full)).to_string(),
            "the runner cannot make its copy of the repository: No space left on device"
        );
    }
}
