//! The hub's own work: starting runs, watching attempts, applying deadlines, rendering copies,
//! exiting.

use super::Hub;
use crate::attempt_processes::{attempt_over, is_over, kill_stragglers, spawn_guard};
use crate::failpoint::failpoint;
use crate::ops::{
    AttemptId, Caller, Chores, Copies, HubPools, Launch, OpError, Results, RunControl, RunReader,
    Runners, SearchIndex, Starter, TreeTasks, TreeWorkLeft, Waits, Webhooks, knows_attempt,
    live_attempts, not_spawned, recover_attempt, refused_as_too_old, run_turns,
};
use crate::process::pressure;
use crate::protocol::AttemptDir;
use crate::store::{
    StartTarget, Topic, changed_runs, ends_with_runtime, has_scheduled_work, last_seq,
};
use crate::view::{Cancel, ListRuns, Wait, WaitUntil};
use crate::{clock, files};
use adjutant_core::{EventSeq, Principal};
use futures::FutureExt;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Longest sleep at a time, because the wall clock may jump.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// How many runs for runners are claimed in one transaction. Other writes wait for it.
const CLAIMS_MAX: usize = 32;
/// The interval of the cleanup.
const CLEANUP_EVERY: Duration = Duration::from_secs(60 * 60);
/// The delay before retrying what could not be watched (no descriptor left) or recorded (disk
/// full).
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The hub answers its first call at the latest this long after its start, even if recovery is not
/// complete.
const RECOVERY_MAX: Duration = Duration::from_secs(3);
/// The minimum interval between rendered copies. It grows with the time that rendering takes, so
/// that copies use only a small part of the hub's time.
const RENDER_EVERY: Duration = Duration::from_secs(1);
const RENDER_SHARE: u32 = 50;
/// The maximum of that interval.
const RENDER_EVERY_MAX: Duration = Duration::from_secs(30);
/// How long runs may take to end when their home ends with the hub.
const END_ALL_MS: u64 = 20_000;
const END_ALL_MAX: u32 = 1_000;
/// How long guards and supervisors may take to end after their runs.
const EXIT_MAX: Duration = Duration::from_secs(3);
/// Entries are indexed this long after they were written, in batches that use a small part of the
/// store's time.
const INDEX_AFTER: Duration = Duration::from_secs(1);
const INDEX_EVERY: Duration = Duration::from_millis(100);
const INDEX_SHARE: u32 = 20;
/// How many events back a new hub looks for copies that its predecessor may not have rendered.
const RENDER_EVENTS_BACK: i64 = 1_000;

/// Ends the attempts on this machine that the store does not know, and repeats what fails.
pub(super) async fn end_unknown_in_background(hub: Arc<Hub>) {
    while let Err(error) = end_unknown(&hub).await {
        tracing::error!(%error, "attempts that the database has lost cannot be ended yet");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Ends the processes of attempts on this machine that the store does not know: its database was
/// set back to a time before them.
///
/// # Errors
/// A failure of the store, or an attempt that cannot be found or ended. The others are ended.
pub(super) async fn end_unknown(hub: &Hub) -> Result<(), OpError> {
    let runs = hub.ops.home().runs_dir();
    let (listed, mut failed) = tokio::task::spawn_blocking(move || {
        let (mut attempts, mut failed) = (Vec::new(), None);
        let mut names = |dir: &Path| {
            names_in(dir).unwrap_or_else(|error| {
                failed = Some(OpError::Io(format!("{}: {error}", dir.display())));
                Vec::new()
            })
        };
        for run in names(&runs) {
            attempts.extend(
                names(&runs.join(&run))
                    .iter()
                    .filter_map(|n| AttemptId::parse(&format!("{run}/{n}"))),
            );
        }
        (attempts, failed)
    })
    .await
    .map_err(|error| OpError::Io(error.to_string()))?;
    for id in listed {
        if knows_attempt(hub.ops.store(), id)? {
            continue;
        }
        let dir = AttemptDir::new(&hub.ops.home().dir, &id.run.to_string(), id.n.0);
        let killed =
            tokio::task::spawn_blocking(move || kill_stragglers(&dir, &id.run.to_string(), id.n.0))
                .await;
        match killed {
            Ok(killed) => {
                tracing::warn!(attempt = %id, killed, "ended an attempt that the database has lost")
            }
            Err(error) => failed = Some(OpError::Io(format!("{id}: {error}"))),
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Returns the names of a directory's entries. A file, and what is missing, has none.
fn names_in(dir: &Path) -> io::Result<Vec<String>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect(),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Watches the attempts that were live under the previous hub. Attempts that have ended meanwhile
/// are recorded before this returns, unless that takes too long.
pub(super) async fn adopt(hub: &Arc<Hub>, loops: &mut JoinSet<()>) -> Result<(), OpError> {
    let mut settled = Vec::new();
    for id in live_attempts(hub.ops.store())? {
        let (settling, done) = oneshot::channel();
        loops.spawn(adopt_attempt(Arc::clone(hub), id, settling).boxed());
        settled.push(done);
    }
    // Dropping the sender completes the receiver; nothing is ever sent.
    if tokio::time::timeout(RECOVERY_MAX, futures::future::join_all(settled))
        .await
        .is_err()
    {
        tracing::warn!(
            "calls are answered before all attempts that ended without a hub are settled"
        );
    }
    Ok(())
}

/// Watches an attempt. `settling` is dropped when the attempt is settled or found to be live.
async fn adopt_attempt(hub: Arc<Hub>, id: AttemptId, settling: oneshot::Sender<()>) {
    let is_over = is_over(&id.dir(hub.ops.home())).unwrap_or_else(|error| {
        tracing::error!(attempt = %id, %error, "it cannot be determined whether an attempt is live");
        false
    });
    let settling = is_over.then_some(settling);
    watch_attempt(hub, id).await;
    drop(settling);
}

/// Waits for the reports of the supervisors of live attempts.
pub(super) async fn await_first_reports(hub: Arc<Hub>) {
    hub.ops.first_reports.wait_for_all().await;
}

/// Starts work that judges runs after the first reports of the supervisors of live attempts.
pub(super) fn after_first_reports<F: Future<Output = ()>>(
    hub: &Arc<Hub>,
    work: F,
) -> impl Future<Output = ()> + use<F> {
    let hub = Arc::clone(hub);
    async move {
        hub.ops.first_reports.over().await;
        work.await;
    }
}

/// Starts queued runs when a slot is free, and watches them.
pub(super) async fn schedule(hub: Arc<Hub>) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::Queue]);
    let (starter, mut watched) = (Starter::of(&hub.ops), JoinSet::new());
    loop {
        // Hubs that share a store start no attempts themselves, even without a valid configuration.
        while hub.lead.is_none() {
            hub.ops.machine.note_load(pressure::load());
            match starter.claim_next(&StartTarget::Here).await {
                Ok(Some(launch)) => {
                    watched.spawn(start(Arc::clone(&hub), launch).boxed());
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "no run can be started");
                    break;
                }
            }
        }
        if let Err(error) = start_on_runners(&hub, &starter).await {
            tracing::error!(%error, "no run can be started on a runner");
        }
        // A start may wait for the load of the machine from now on.
        hub.ops.store().wake_ups().notify([&Topic::Load]);
        let nap = match HubPools::of(&hub.ops).next_limit_end() {
            Ok(next) => next.map_or(SLEEP_MAX, clock::until).min(SLEEP_MAX),
            Err(error) => {
                tracing::error!(%error, "the ends of usage limits cannot be read");
                SLEEP_MAX
            }
        };
        tokio::select! {
            () = subscription.wait() => {}
            () = tokio::time::sleep(nap) => {}
        }
        while let Some(ended) = watched.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "the watch of an attempt panicked");
            }
        }
    }
}

/// Starts queued runs on runners with free slots.
async fn start_on_runners(hub: &Hub, starter: &Starter) -> Result<(), OpError> {
    loop {
        let (places, mut has_claimed) = (Runners::of(&hub.ops).places()?, false);
        let most = places.iter().map(|place| place.free).max().unwrap_or(0);
        // One run for each of them before a second one for any.
        let mut wanted: Vec<usize> = Vec::new();
        for n in 0..most {
            wanted.extend(
                places
                    .iter()
                    .enumerate()
                    .filter(|(_, place)| n < place.free)
                    .map(|(number, _)| number),
            );
        }
        while !wanted.is_empty() {
            let part: Vec<usize> = wanted.drain(..wanted.len().min(CLAIMS_MAX)).collect();
            let starts: Vec<StartTarget> = part
                .iter()
                .map(|place| places[*place].place.clone())
                .collect();
            let (mut launches, mut failed) = (BTreeMap::<usize, Vec<Launch>>::new(), None);
            let claimed = starter.claim_each(&starts).await?;
            has_claimed |= !claimed.is_empty();
            for (number, launch) in claimed {
                match launch {
                    Ok(launch) => launches.entry(part[number]).or_default().extend(launch),
                    Err(error) => {
                        tracing::error!(%error, "a run cannot be started on a runner");
                        failed = Some(error);
                    }
                }
            }
            // No run is left for the others.
            wanted.retain(|place| launches.contains_key(place) || !part.contains(place));
            for (place, launches) in launches {
                Runners::of(&hub.ops)
                    .offer_launches(&places[place], launches)
                    .await;
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        if !has_claimed {
            return Ok(());
        }
    }
}

/// Records the loss of attempts on runners that are cut off for longer than the lease.
pub(super) async fn watch_leases(hub: Arc<Hub>) {
    let runners = Runners::of(&hub.ops);
    loop {
        let nap = match runners.lose_expired_attempts().await {
            Ok(next) => next
                .map_or(SLEEP_MAX, |next| {
                    next.saturating_duration_since(Instant::now())
                })
                .min(SLEEP_MAX),
            Err(error) => {
                tracing::error!(%error, "the loss of attempts on runners cannot be recorded yet");
                RETRY_AFTER
            }
        };
        // While the call waited for a server, the runtime may have ended, and the timer would
        // panic.
        ends_with_runtime().await;
        tokio::select! {
            () = tokio::time::sleep(nap) => {}
            () = runners.joined() => {}
        }
    }
}

async fn start(hub: Arc<Hub>, launch: Launch) {
    let Launch { id, dir, order } = launch;
    if let Some(problem) = hub.versions.too_old(&order).await {
        while let Err(error) =
            refused_as_too_old(hub.ops.store(), &hub.ops.settings, id, problem.clone()).await
        {
            tracing::error!(attempt = %id, %error, "the refusal of an outdated agent cannot be recorded yet");
            tokio::time::sleep(RETRY_AFTER).await;
        }
        return;
    }
    // An undo that began before the run was claimed may replace files of its directory.
    hub.ops.trees.undos_end().await;
    let (dir, order) = (Arc::new(dir), Arc::new(order));
    let spawned = loop {
        failpoint!("hub.before_guard");
        let (dir, order) = (Arc::clone(&dir), Arc::clone(&order));
        let spawned = tokio::task::spawn_blocking(move || spawn_guard(&dir, &order)).await;
        failpoint!("hub.after_guard");
        match spawned.unwrap_or_else(|error| Err(io::Error::other(error))) {
            // No process was started, and the run is not at fault: it waits, unless it is being
            // stopped.
            Err(error) if files::is_shortage(&error) => {
                tracing::error!(attempt = %id, %error, "the guard cannot be started yet");
                tokio::time::sleep(RETRY_AFTER).await;
                if !id.is_starting(hub.ops.store()) {
                    return watch_attempt(hub, id).await;
                }
            }
            spawned => break spawned,
        }
    };
    match spawned {
        Ok(guard) => {
            let reaped = async {
                if let Err(error) = guard.wait().await {
                    tracing::warn!(attempt = %id, %error, "a guard could not be reaped");
                }
            };
            tokio::join!(reaped, watch_attempt(Arc::clone(&hub), id));
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            watch_attempt(hub, id).await
        }
        Err(error) => {
            tracing::error!(attempt = %id, %error, "the guard cannot be started");
            let message = format!("its guard could not be started: {error}");
            while let Err(error) =
                not_spawned(hub.ops.store(), &hub.ops.settings, id, message.clone()).await
            {
                tracing::error!(attempt = %id, %error, "the failed start cannot be recorded yet");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Waits until no process of an attempt is left and settles its end.
async fn watch_attempt(hub: Arc<Hub>, id: AttemptId) {
    let dir = id.dir(hub.ops.home());
    let was_seen = is_over(&dir).is_ok_and(|is_over| !is_over);
    while let Err(error) = attempt_over(&dir).await {
        tracing::error!(attempt = %id, %error, "an attempt cannot be watched yet");
        tokio::time::sleep(RETRY_AFTER).await;
    }
    while let Err(error) = settle_attempt(&hub, id, was_seen).await {
        tracing::error!(attempt = %id, %error, "the end of an attempt cannot be recorded yet");
        tokio::time::sleep(RETRY_AFTER).await;
    }
    hub.ops.first_reports.note_reported(id);
    hub.ops.log_store.note_complete(id);
}

async fn settle_attempt(hub: &Hub, id: AttemptId, was_seen: bool) -> Result<(), OpError> {
    if id.is_settled(hub.ops.store())? {
        return Ok(());
    }
    // Guard and supervisor have ended without settling the attempt. Remaining processes are killed
    // before any file is read that they could have replaced.
    let (dir, run, n) = (id.dir(hub.ops.home()), id.run.to_string(), id.n.0);
    let killed = tokio::task::spawn_blocking(move || kill_stragglers(&dir, &run, n))
        .await
        .map_err(|error| OpError::Io(error.to_string()))?;
    if killed > 0 {
        tracing::warn!(attempt = %id, killed, "killed processes that outlived guard and supervisor");
    }
    recover_attempt(
        hub.ops.store(),
        hub.ops.home(),
        &hub.ops.settings,
        &hub.ops.trees,
        id,
        was_seen,
    )
    .await
}

/// Applies the deadlines of requests and runs, and escalates unanswered requests.
pub(super) async fn apply_deadlines(hub: Arc<Hub>) {
    let wake_ups = hub.ops.store().wake_ups();
    loop {
        // Without escalation, a new request changes nothing but the next deadline.
        let topics = if hub.ops.settings.has_escalation() {
            vec![Topic::Deadline, Topic::Asked]
        } else {
            vec![Topic::Deadline]
        };
        let subscription = wake_ups.subscribe(topics);
        // After the subscription and before the read: a deadline that is committed from here on
        // wakes this loop, even if the read does not see it.
        wake_ups.set_next_check(None);
        let nap = match Chores::of(&hub.ops).apply_deadlines_and_escalate().await {
            Ok(next) => next.map_or(SLEEP_MAX, clock::until).min(SLEEP_MAX),
            Err(error) => {
                tracing::error!(%error, "deadlines cannot be processed");
                SLEEP_MAX
            }
        };
        wake_ups.set_next_check(Some(nap));
        tokio::select! {
            () = subscription.wait() => {}
            () = tokio::time::sleep(nap) => {}
        }
    }
}

/// Removes data that has passed its retention period, first the data that expired while no hub was
/// running.
pub(super) async fn clean_up(hub: Arc<Hub>) {
    loop {
        match Chores::of(&hub.ops).remove_expired().await {
            Ok(()) => tracing::debug!("the cleanup ran"),
            Err(error) => tracing::error!(%error, "the cleanup failed"),
        }
        tokio::time::sleep(CLEANUP_EVERY).await;
    }
}

/// Removes the credentials of runs that have ended or wait to be resumed.
pub(super) async fn drop_credentials(hub: Arc<Hub>) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::Turns]);
    loop {
        if let Err(error) = hub.ops.store().sweep_credentials().await {
            tracing::error!(%error, "unused credentials cannot be removed yet");
            tokio::time::sleep(RETRY_AFTER).await;
            continue;
        }
        subscription.wait().await;
    }
}

/// Takes snapshots of runs after turns and of working siblings, and compares siblings: one task at
/// a time, concurrently with calls.
pub(super) async fn watch_trees(hub: Arc<Hub>) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::Trees]);
    let mut tasks = TreeTasks::new(&hub.ops);
    loop {
        match tasks.perform_next().await {
            Ok(TreeWorkLeft::Unknown) => {}
            Ok(TreeWorkLeft::Nothing(None)) => subscription.wait().await,
            Ok(TreeWorkLeft::Nothing(Some(again))) => tokio::select! {
                () = subscription.wait() => {}
                () = tokio::time::sleep_until(again.into()) => {}
            },
            Err(error) => {
                tracing::error!(%error, "the trees of runs cannot be compared");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Runs the agents' turns in chats: posts the answers of ended runs and starts the next turns.
pub(super) async fn answer_chats(hub: Arc<Hub>) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::Turns]);
    loop {
        if let Err(error) =
            run_turns(hub.ops.store(), &hub.ops.settings, &Results::of(&hub.ops)).await
        {
            tracing::error!(%error, "answers in chats are delayed");
            tokio::time::sleep(RETRY_AFTER).await;
            continue;
        }
        subscription.wait().await;
    }
}

/// Updates the search index in the background.
pub(super) async fn index(hub: Arc<Hub>) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::All]);
    let mut after = 0;
    loop {
        let began = Instant::now();
        let more = match SearchIndex::of(&hub.ops).index_some(after).await {
            Ok((seq, more)) => {
                after = seq;
                more
            }
            Err(error) => {
                tracing::error!(%error, "the search index cannot be updated yet");
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
        };
        tokio::time::sleep(INDEX_EVERY.max(began.elapsed() * INDEX_SHARE)).await;
        if !more {
            subscription.wait().await;
            tokio::time::sleep(INDEX_AFTER).await;
        }
    }
}

/// Renders copies of the runs that have changed.
pub(super) async fn render(hub: Arc<Hub>) {
    let subscription = hub.ops.store().wake_ups().subscribe(vec![Topic::All]);
    let mut cursor = match hub.ops.store().read(last_seq) {
        Ok(last) => EventSeq((last.0 - RENDER_EVENTS_BACK).max(0)),
        Err(error) => {
            tracing::warn!(%error, "copies of runs are rendered from the first event");
            EventSeq(0)
        }
    };
    loop {
        let began = Instant::now();
        match hub
            .ops
            .store()
            .read(|connection| changed_runs(connection, cursor))
        {
            Ok((runs, last)) => {
                cursor = last;
                for run in runs {
                    let chores = Chores::of(&hub.ops);
                    let rendered =
                        tokio::task::spawn_blocking(move || chores.render_meta(run)).await;
                    if let Err(error) =
                        rendered.unwrap_or_else(|error| Err(OpError::Io(error.to_string())))
                    {
                        tracing::warn!(%run, %error, "the copy of a run cannot be written");
                    }
                }
            }
            Err(error) => tracing::error!(%error, "changed runs cannot be read"),
        }
        tokio::time::sleep((began.elapsed() * RENDER_SHARE).clamp(RENDER_EVERY, RENDER_EVERY_MAX))
            .await;
        subscription.wait().await;
    }
}

/// Returns whether the hub has work even without callers.
pub(super) fn is_busy(hub: &Hub) -> bool {
    hub.ops.store().read(has_scheduled_work).unwrap_or(true)
        || Webhooks::of(&hub.ops).has_deliveries().unwrap_or(true)
        || Copies::of(&hub.ops).are_any().unwrap_or(true)
}

/// Cancels every run and waits, within a limit, until none of their processes is left.
pub(super) async fn end_all(hub: &Hub) {
    let person = || Caller {
        who: Principal::Person,
        key: None,
    };
    let runs = match RunReader::of(&hub.ops).list_runs(
        &Principal::Person,
        &ListRuns {
            all: false,
            limit: Some(END_ALL_MAX),
            before: None,
        },
    ) {
        Ok(list) => list.runs,
        Err(error) => return tracing::error!(%error, "the runs cannot be listed"),
    };
    for run in &runs {
        let cancel = Cancel {
            run: run.identity.run_id.clone(),
            reason: Some("the home is removed with its hub".to_owned()),
        };
        if let Err(error) = RunControl::of(&hub.ops).cancel(person(), cancel).await {
            tracing::debug!(%error, run = run.identity.name, "not cancelled");
        }
    }
    if runs.is_empty() {
        return;
    }
    let wait = Wait {
        runs: runs.iter().map(|run| run.identity.run_id.clone()).collect(),
        until: WaitUntil::All,
        after: None,
        new_reports: false,
        wait_ms: END_ALL_MS,
    };
    if let Err(error) = Waits::of(&hub.ops).wait(&Principal::Person, &wait).await {
        tracing::error!(%error, "waiting for the end of the runs failed");
    }
    // A run ends when its supervisor reports it. Guard and supervisor exit shortly after.
    let dirs = runs
        .iter()
        .filter(|run| run.identity.attempt > 0)
        .map(|run| {
            AttemptDir::new(
                &hub.ops.home().dir,
                &run.identity.run_id,
                run.identity.attempt,
            )
        });
    let over = async {
        for dir in dirs {
            if let Err(error) = attempt_over(&dir).await {
                tracing::warn!(%error, "an attempt cannot be watched");
            }
        }
    };
    if tokio::time::timeout(EXIT_MAX, over).await.is_err() {
        tracing::warn!("guards or supervisors have not ended");
    }
}

/// Kills the remaining processes of the live runs.
pub(super) async fn kill_all(hub: &Hub) {
    let live = match live_attempts(hub.ops.store()) {
        Ok(live) => live,
        Err(error) => return tracing::error!(%error, "the live runs cannot be listed"),
    };
    for id in live {
        let dir = id.dir(hub.ops.home());
        if let Err(error) =
            tokio::task::spawn_blocking(move || kill_stragglers(&dir, &id.run.to_string(), id.n.0))
                .await
        {
            tracing::error!(attempt = %id, %error, "the remaining processes of an attempt cannot be killed");
        }
    }
}

/// Returns when the hub has been idle for the configured time.
pub(super) async fn idle(hub: &Hub) {
    loop {
        // An invalid configuration is reported where it is loaded. Until it is fixed, the hub does
        // not exit.
        let idle_exit_ms = hub
            .ops
            .settings
            .config()
            .ok()
            .and_then(|config| config.times.idle_exit_ms);
        let nap = idle_exit_ms.map_or(SLEEP_MAX * 60, |ms| {
            Duration::from_millis(u64::try_from(ms).unwrap_or(0))
        });
        tokio::select! {
            () = hub.connections.changed() => continue,
            () = tokio::time::sleep(nap) => {}
        }
        // Nothing starts a hub for a caller over HTTP.
        let listens = matches!(hub.listening.state(), Some(Ok(_)));
        if idle_exit_ms.is_some() && !listens && hub.connections.open() == 0 && !is_busy(hub) {
            return;
        }
    }
}
