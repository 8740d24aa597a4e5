//! The attempts of a runner: starting their guards, watching them, reporting their ends, and ending
//! them when the lease does.

use super::places::{Key, all, place};
use super::repository::Repositories;
use super::socket::{needs_work, unwritable_in};
use super::storage::Storage;
use super::uplink::Uplink;
use super::uploads::Uploads;
use crate::attempt_processes::{attempt_over, is_over, kill_stragglers, spawn_guard};
use crate::config::{self, Home, find_program};
use crate::files;
use crate::leftovers::{self, LeftFacts};
use crate::process;
use crate::protocol::{
    AttemptDir, FactsStored, LeasedAttempt, Order, PostEnded, PostLeftFacts, Remains,
};
use crate::trace::RepeatedFailures;
use crate::versions::Versions;
use adjutant_core::lease::Lease;
use futures::FutureExt;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The delay before retrying what could not be watched or read.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The attempts of a runner.
pub(super) struct Attempts {
    home: Home,
    uplink: Arc<Uplink>,
    repositories: Arc<Repositories>,
    uploads: Arc<Uploads>,
    storage: Arc<Storage>,
    versions: Arc<Versions>,
    /// Files that are hidden from fenced runs.
    hidden: Vec<PathBuf>,
    /// Those that are watched, with their leases.
    watched: Arc<Watched>,
    tasks: JoinSet<()>,
}

/// The watched attempts.
#[derive(Debug, Default)]
pub(super) struct Watched {
    leases: Mutex<BTreeMap<Key, Lease>>,
    /// Notified when one is added or removed.
    pub changed: Notify,
}

impl Watched {
    pub(crate) fn leases(&self) -> MutexGuard<'_, BTreeMap<Key, Lease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: &str, lease: Lease) -> bool {
        let is_new = self.leases().insert(key.to_owned(), lease).is_none();
        self.changed.notify_waiters();
        is_new
    }

    fn remove(&self, key: &str) {
        self.leases().remove(key);
        self.changed.notify_waiters();
    }

    /// Waits until no attempt is watched.
    pub(super) async fn none_left(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.leases().is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until no attempt was watched for a time. `None`: forever.
    pub(super) async fn idle_for(&self, time: Option<Duration>) {
        let Some(time) = time else {
            return std::future::pending().await;
        };
        loop {
            self.none_left().await;
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.leases().is_empty() {
                continue;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(time) => return,
            }
        }
    }
}

impl Attempts {
    pub(super) fn new(
        home: Home,
        uplink: Arc<Uplink>,
        storage: Arc<Storage>,
        hidden: Vec<PathBuf>,
    ) -> Self {
        let repositories = Arc::new(Repositories::new(home.clone(), Arc::clone(&uplink)));
        let uploads = Arc::new(Uploads::new(home.clone(), Arc::clone(&uplink)));
        let versions = Arc::new(Versions::new(&home));
        Self {
            home,
            uplink,
            repositories,
            uploads,
            storage,
            versions,
            hidden,
            watched: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    pub(crate) fn uploads(&self) -> Arc<Uploads> {
        Arc::clone(&self.uploads)
    }

    pub(super) fn repositories(&self) -> Arc<Repositories> {
        Arc::clone(&self.repositories)
    }

    pub(super) fn watched(&self) -> Arc<Watched> {
        Arc::clone(&self.watched)
    }

    /// Starts the guard of an attempt once its repository is here. Its order may arrive several
    /// times.
    pub(super) fn launch(&mut self, order: Order) {
        while self.tasks.try_join_next().is_some() {}
        let key = format!("{}/{}", order.run_id, order.attempt);
        if !self
            .watched
            .add(&key, Lease::from_ms(order.lease_ms.unwrap_or(0)))
        {
            return;
        }
        tracing::info!(attempt = key, agent = order.agent, "starting");
        let (home, hidden, repositories, logged) = (
            self.home.clone(),
            self.hidden.clone(),
            Arc::clone(&self.repositories),
            key.clone(),
        );
        let (versions, storage) = (Arc::clone(&self.versions), Arc::clone(&self.storage));
        self.watch(key, async move {
            let mut order = order;
            for (name, value) in config::base_env() {
                order.env.entry(name).or_insert(value);
            }
            // The hub does not know where the programs of this machine are.
            if let Some(program) = order.argv.first_mut()
                && let Some(found) =
                    find_program(program, order.env.get("PATH").map_or("", String::as_str))
            {
                *program = found.display().to_string();
            }
            if let Some(why) = versions.too_old(&order).await {
                return WatchStart::Refused(GuardFailure {
                    why,
                    cause: Cause::TooOld,
                });
            }
            if let Err(error) = repositories.fetch(&mut order).await {
                let why = error.to_string();
                let cause = if storage.is_cause_of(&why).await {
                    Cause::Unwritable
                } else {
                    Cause::Other
                };
                return WatchStart::Refused(GuardFailure { why, cause });
            }
            let spawned = tokio::task::spawn_blocking(move || start(&home, order, hidden)).await;
            match spawned.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(guard) => WatchStart::Guard(guard),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => WatchStart::Found,
                Err(error) if storage.is_cause(&error).await => WatchStart::Refused(GuardFailure {
                    why: format!("its guard could not be started: {error}"),
                    cause: Cause::Unwritable,
                }),
                // It is started again later, here or elsewhere.
                Err(error) if files::is_shortage(&error) => {
                    tracing::error!(attempt = logged, %error, "the guard cannot be started");
                    WatchStart::Found
                }
                Err(error) => WatchStart::Refused(GuardFailure {
                    why: format!("its guard could not be started on the runner: {error}"),
                    cause: Cause::Other,
                }),
            }
        });
    }

    /// Ends the attempts that the hub does not name, and watches those that it names.
    pub(super) async fn adopt(&mut self, named: &[LeasedAttempt]) {
        let home = self.home.clone();
        let keep: Vec<Key> = named.iter().map(|leased| leased.attempt.clone()).collect();
        if let Err(error) = tokio::task::spawn_blocking(move || end_others(&home, &keep)).await {
            tracing::error!(%error, "attempts that the hub has recorded as lost cannot be ended");
        }
        for LeasedAttempt { attempt, lease_ms } in named {
            if self.watched.add(attempt, Lease::from_ms(*lease_ms)) {
                self.watch(attempt.clone(), std::future::ready(WatchStart::Found));
            }
        }
    }

    fn watch(&mut self, key: Key, outcome: impl Future<Output = WatchStart> + Send + 'static) {
        let Some((dir, run_id, attempt)) = place(&self.home, &key) else {
            return self.watched.remove(&key);
        };
        let (uplink, repositories, uploads) = (
            Arc::clone(&self.uplink),
            Arc::clone(&self.repositories),
            Arc::clone(&self.uploads),
        );
        let watch = Watch {
            dir,
            run_id,
            attempt,
            uplink,
            repositories,
            uploads,
            storage: Arc::clone(&self.storage),
        };
        let (watched, repositories, storage) = (
            Arc::clone(&self.watched),
            self.repositories(),
            Arc::clone(&self.storage),
        );
        let task = async move {
            watch.until_reported(&key, outcome.await).await;
            watched.remove(&key);
            storage.note_end();
            repositories.look_for_unsent();
        };
        self.tasks.spawn(task.boxed());
    }
}

/// How the watch of an attempt begins.
enum WatchStart {
    Guard(process::Child),
    /// The guard is not a child of this process, or there is none.
    Found,
    Refused(GuardFailure),
}

/// Why the guard of an attempt was not started.
#[derive(Debug, Clone)]
struct GuardFailure {
    why: String,
    cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The agent's program is too old.
    TooOld,
    /// The home cannot be written.
    Unwritable,
    Other,
}

struct Watch {
    dir: AttemptDir,
    run_id: String,
    attempt: u32,
    uplink: Arc<Uplink>,
    repositories: Arc<Repositories>,
    uploads: Arc<Uploads>,
    storage: Arc<Storage>,
}

impl Watch {
    /// Waits until no process of the attempt is left, and reports its end.
    async fn until_reported(&self, key: &str, outcome: WatchStart) {
        let was_seen = is_over(&self.dir).is_ok_and(|is_over| !is_over);
        let (guard, refusal) = match outcome {
            WatchStart::Guard(guard) => (Some(guard), None),
            WatchStart::Found => (None, None),
            WatchStart::Refused(why) => (None, Some(why)),
        };
        let reaped = async {
            if let Some(guard) = guard
                && let Err(error) = guard.wait().await
            {
                tracing::warn!(attempt = key, %error, "a guard could not be reaped");
            }
        };
        let over = async {
            let mut failures = RepeatedFailures::default();
            while let Err(error) = attempt_over(&self.dir).await {
                if let Some(times) = failures.note(&error.to_string(), Instant::now()) {
                    tracing::error!(attempt = key, %error, times, "an attempt cannot be watched yet");
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        };
        tokio::join!(reaped, over);
        kill(&self.dir, &self.run_id, self.attempt).await;
        let mut failures = RepeatedFailures::default();
        while let Err(error) = self.report(key, was_seen, refusal.clone()).await {
            if let Some(times) = failures.note(&error.to_string(), Instant::now()) {
                tracing::error!(attempt = key, %error, times, "the files of an attempt cannot be read yet");
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
        mark_reported(&self.dir);
        self.uploads.begin(key);
    }

    /// Returns whether neither the marker of a start nor a fact exists.
    fn has_not_started(&self) -> io::Result<bool> {
        let home = self.dir.home();
        let has_facts = files::look(home, &self.dir.facts())?
            .is_some_and(|facts| !facts.is_regular || facts.bytes > 0);
        Ok(!has_facts && files::look(home, &self.dir.started_marker())?.is_none())
    }

    /// Sends the facts that the hub lacks, then what else is known.
    async fn report(
        &self,
        key: &str,
        was_seen: bool,
        refusal: Option<GuardFailure>,
    ) -> io::Result<()> {
        let is_lost = self
            .repositories
            .keep_after_loss(&self.dir, &self.run_id, self.attempt)
            .await;
        let Some(left) = self.send_facts(key).await? else {
            return Ok(());
        };
        if is_lost {
            self.repositories.send(key).await;
        }
        let (remains, refusal) = self.collect(left.problem, was_seen, refusal).await?;
        if let Some(GuardFailure {
            why,
            cause: Cause::Unwritable,
        }) = &refusal
        {
            self.storage.hold(why).await;
        }
        self.uploads.begin_and_wait(key).await;
        self.send_end(key, with_refusal(remains, refusal)).await;
        Ok(())
    }

    /// Sends the facts that the hub lacks, each after the work that it is about. `None`: the hub no
    /// longer wants the end of the attempt.
    async fn send_facts(&self, key: &str) -> io::Result<Option<LeftFacts>> {
        let dir = self.dir.clone();
        let mut left = blocking(move || LeftFacts::open(&dir)).await?;
        let mut facts = Vec::new();
        loop {
            let call = PostLeftFacts {
                attempt: key.to_owned(),
                facts,
            };
            let stored: FactsStored = match self
                .uplink
                .call_until_answered("/runner/facts", &call)
                .await
            {
                Ok(stored) => stored,
                Err(refused) => {
                    tracing::info!(attempt = key, %refused, "the hub no longer wants its end");
                    return Ok(None);
                }
            };
            let (read, batch) =
                blocking(move || left.next_batch(stored.cursor).map(|batch| (left, batch))).await?;
            left = read;
            if batch.is_empty() && left.is_at_end() {
                return Ok(Some(left));
            }
            if batch.iter().any(needs_work) {
                self.repositories.send(key).await;
            }
            if let Some(why) = batch.iter().find_map(unwritable_in) {
                self.storage.hold(why).await;
            }
            facts = batch;
        }
    }

    /// Collects what is known of the attempt besides its facts, and why its agent was not started.
    async fn collect(
        &self,
        problem: Option<String>,
        was_seen: bool,
        refusal: Option<GuardFailure>,
    ) -> io::Result<(Remains, Option<GuardFailure>)> {
        let (dir, run_id, attempt) = (self.dir.clone(), self.run_id.clone(), self.attempt);
        match blocking(move || leftovers::collect(&dir, &run_id, attempt, problem, was_seen)).await
        {
            Ok(remains) => {
                let refusal = if remains.never_started && refusal.is_none() {
                    self.storage.problem().await.map(unwritable)
                } else {
                    refusal
                };
                Ok((remains, refusal))
            }
            // Without room, nothing can be written that prevents a start. No process is left that
            // could start the agent.
            Err(error) if self.has_not_started()? && self.storage.is_cause(&error).await => {
                let remains = Remains {
                    never_started: true,
                    ..Remains::default()
                };
                Ok((remains, Some(unwritable(error.to_string()))))
            }
            Err(error) => Err(error),
        }
    }

    async fn send_end(&self, key: &str, remains: Remains) {
        let call = PostEnded {
            attempt: key.to_owned(),
            remains,
        };
        match self
            .uplink
            .call_until_answered::<()>("/runner/ended", &call)
            .await
        {
            Ok(()) => tracing::info!(attempt = key, "ended"),
            Err(refused) => {
                tracing::info!(attempt = key, %refused, "the hub no longer wants its end")
            }
        }
    }
}

/// Adds why the guard of an attempt was not started.
fn with_refusal(remains: Remains, refusal: Option<GuardFailure>) -> Remains {
    let (refusal, cause) = match refusal {
        Some(GuardFailure { why, cause }) => (Some(why), cause),
        None => (None, Cause::Other),
    };
    Remains {
        refusal,
        is_too_old: cause == Cause::TooOld,
        is_unwritable: cause == Cause::Unwritable,
        ..remains
    }
}

fn unwritable(why: String) -> GuardFailure {
    GuardFailure {
        why,
        cause: Cause::Unwritable,
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Prepares the directory of a run, and starts the guard of an attempt.
fn start(home: &Home, mut order: Order, hidden: Vec<PathBuf>) -> io::Result<process::Child> {
    order.home.clone_from(&home.dir);
    if order.workspace.is_none() {
        order.cwd = home.workspaces_dir().join(&order.run_id);
        files::make_dirs(&home.dir, &order.cwd)?;
    }
    if let Some(fence) = &mut order.fence {
        // The paths of the order are those of the hub's machine.
        fence.workspace = None;
        fence.hidden = hidden;
    }
    let dir = AttemptDir::new(&home.dir, &order.run_id, order.attempt);
    spawn_guard(&dir, &order)
}

/// Kills all processes of an attempt, guard and supervisor included.
pub(super) async fn kill(dir: &AttemptDir, run_id: &str, attempt: u32) {
    let (of, run) = (dir.clone(), run_id.to_owned());
    match tokio::task::spawn_blocking(move || kill_stragglers(&of, &run, attempt)).await {
        Ok(0) => {}
        Ok(killed) => tracing::warn!(
            run = run_id,
            attempt,
            killed,
            "killed the remaining processes of an attempt"
        ),
        Err(error) => {
            tracing::error!(run = run_id, attempt, %error, "the remaining processes of an attempt cannot be killed")
        }
    }
}

/// Records that no process of an attempt is left. Without the record they are looked for again when
/// the runner joins.
fn mark_reported(dir: &AttemptDir) {
    match files::create_new(dir.home(), &dir.reported()) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            tracing::warn!(%error, dir = %dir.0.display(), "the end of an attempt cannot be recorded")
        }
    }
}

/// Kills the remaining processes of the attempts below the home that are not in `keep`.
fn end_others(home: &Home, keep: &[Key]) {
    for key in all(home) {
        let Some((dir, run_id, attempt)) = place(home, &key).filter(|_| !keep.contains(&key))
        else {
            continue;
        };
        if matches!(files::look(dir.home(), &dir.reported()), Ok(Some(_))) {
            continue;
        }
        let killed = kill_stragglers(&dir, &run_id, attempt);
        tracing::warn!(
            attempt = key,
            killed,
            "ended an attempt that the hub has recorded as lost"
        );
        mark_reported(&dir);
    }
}
