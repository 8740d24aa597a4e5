//! `adj runner`: starts guards and supervisors on this machine for attempts of a hub on another one.
//!
//! It has no store. It takes the lock and the socket of a home of its own, so supervisors call it as they call a hub, and it relays their
//! calls. It calls the hub; nothing connects to it. If it dies, its attempts continue, and the next runner of the home adopts them.
//!
//! ```text
//!  join ─ end what the hub does not name, watch what it names ─ (wait for orders, start them)* ─ session ended ─> join
//! ```

mod attempts;
mod facts;
mod logs;
mod note;
mod places;
mod removals;
mod repository;
mod socket;
mod storage;
mod uplink;
mod uploads;

use crate::client::{VERSION, random_hex};
use crate::config::{Config, Home};
use crate::files;
use crate::link::{GetRunnerWork, JoinRunner, RunnerJoined, RunnerWork};
use crate::process::{Lock, hygiene, pressure};
use crate::remote::{HubAddress, Trust};
use crate::sock;
use crate::trace::RepeatedFailures;
use adjutant_core::PoolName;
use adjutant_core::lease::Lease;
use attempts::{Attempts, Watched, kill};
use futures::FutureExt;
use note::RunnerNote;
use places::place;
use serde::{Deserialize, Serialize};
use socket::RunnerSocket;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use storage::Storage;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uplink::{CallFailure, PAUSE, Session, Uplink};

/// The name of a token file that stands for standard input.
const STANDARD_INPUT: &str = "-";
/// Largest token file, in bytes.
const TOKEN_BYTES_MAX: u64 = 4 * 1024;
/// Largest identity file, in bytes.
const IDENTITY_BYTES_MAX: u64 = 64 * 1024;
/// The longest pause between attempts to join.
const JOIN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long a runner that is stopping waits for the hub's consent, because an order may not have arrived yet.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// How long a runner that is stopping waits until the hub has the logs of its attempts. The next runner of the home sends the rest.
const LOGS_WAIT_MAX: Duration = Duration::from_secs(60);

/// The options of a runner.
#[derive(Debug)]
pub struct Options {
    /// The hubs that can be the leader.
    pub join: Vec<HubAddress>,
    /// `-`: standard input.
    pub token_file: PathBuf,
    /// Empty: those whose labels it has, or the default pool if it has none.
    pub pools: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub slots: u64,
    pub trust: Trust,
    /// Accepts plain HTTP to another machine.
    pub plain: bool,
    /// Ends after this time without attempts.
    pub idle_exit: Option<Duration>,
}

/// The stage of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serves,
    /// It takes no further attempt.
    Drains,
    /// It ends when it has no attempts and the hub agrees.
    Leaves,
}

/// The identity of a runner's home.
#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    id: String,
}

/// Runs a runner in the foreground, until a signal.
#[must_use]
pub fn main(options: Options) -> ExitCode {
    crate::trace::start("info");
    match start(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            print(&format!("error: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn print(line: &str) {
    if let Err(error) = std::io::stderr().write_all(format!("{line}\n").as_bytes()) {
        tracing::debug!(%error, "a message cannot be written");
    }
}

fn start(options: Options) -> Result<(), String> {
    if options.join.iter().any(HubAddress::is_exposed) && !options.plain {
        return Err("http sends the token and the data of all runs in plain text: use https, or accept it with --plain".to_owned());
    }
    if options.join.iter().any(HubAddress::is_plain) && !matches!(options.trust, Trust::Installed) {
        return Err(
            "only an https address has a certificate: leave out --fingerprint and --ca".to_owned(),
        );
    }
    hygiene::background().map_err(|error| error.to_string())?;
    let home = Home::from_env().map_err(|error| error.to_string())?;
    home.ensure().map_err(|error| error.to_string())?;
    let token = read_token(&options.token_file)?;
    let lock = Lock::try_take(&home.dir, &home.hub_lock()).map_err(|error| error.to_string())?;
    let Some(lock) = lock else {
        return Err(format!(
            "a hub or another runner uses {}: set ADJ_HOME to another directory",
            home.dir.display()
        ));
    };
    lock.write_pid(rustix::process::getpid())
        .map_err(|error| error.to_string())?;
    if home.database().exists() {
        return Err(format!(
            "{} has the store of a hub: set ADJ_HOME to another directory",
            home.dir.display()
        ));
    }
    let identity = identity(&home)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .thread_keep_alive(Duration::from_secs(5))
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let served = runtime.block_on(run(&home, options, &token, identity.id));
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(lock);
    served
}

/// Reads the token from a file that only its user can read, or from standard input.
fn read_token(path: &Path) -> Result<String, String> {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;
    let described = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut text = String::new();
    if path == Path::new(STANDARD_INPUT) {
        std::io::stdin()
            .take(TOKEN_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(described)?;
    } else {
        let file = files::open_named(path).map_err(described)?;
        if file.metadata().map_err(described)?.permissions().mode() & 0o077 != 0 {
            return Err(format!(
                "{} is accessible to other users: chmod 600",
                path.display()
            ));
        }
        file.take(TOKEN_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(described)?;
    }
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "{}: must contain the token that adj token new NAME --role runner printed",
            path.display()
        ));
    }
    Ok(token.to_owned())
}

/// Reads the identity of the home, or makes it.
fn identity(home: &Home) -> Result<Identity, String> {
    let path = home.runner_identity();
    let described = |error: std::io::Error| format!("{}: {error}", path.display());
    match files::read(&home.dir, &path, IDENTITY_BYTES_MAX) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let identity = Identity {
                id: random_hex::<16>(),
            };
            let bytes = serde_json::to_vec(&identity).map_err(|error| error.to_string())?;
            files::write_atomically(&home.dir, &path, &bytes).map_err(described)?;
            Ok(identity)
        }
        Err(error) => Err(described(error)),
    }
}

async fn run(home: &Home, options: Options, token: &str, home_id: String) -> Result<(), String> {
    let Options {
        join,
        token_file,
        mut pools,
        labels,
        slots,
        trust,
        plain: _,
        idle_exit,
    } = options;
    if pools.is_empty() && labels.is_empty() {
        pools.push(PoolName::DEFAULT.to_owned());
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let uplink = Arc::new(Uplink::new(join, &trust, token, home_id));
    let mut hidden = vec![Config::path(home)];
    hidden.extend(token_file.canonicalize());
    hidden.retain(|path| !path.starts_with(&home.dir) && path.exists());
    let storage = Arc::new(Storage::new(home.clone()));
    let attempts = Attempts::new(
        home.clone(),
        Arc::clone(&uplink),
        Arc::clone(&storage),
        hidden,
    );
    let (watched, uploads) = (attempts.watched(), attempts.uploads());
    let listener = sock::bind(&home.socket())
        .map_err(|error| format!("{}: {error}", home.socket().display()))?;
    let mut tasks = JoinSet::new();
    let (facts, delivering) = facts::FactCalls::new(Arc::clone(&uplink));
    tasks.spawn(delivering.boxed());
    let socket = Arc::new(RunnerSocket {
        home: home.dir.clone(),
        uplink: Arc::clone(&uplink),
        facts,
        repositories: attempts.repositories(),
        uploads: Arc::clone(&uploads),
        storage: Arc::clone(&storage),
    });
    tasks.spawn(
        async move {
            if let Err(error) = socket::serve(socket, listener).await {
                tracing::error!(%error, "the socket failed");
            }
        }
        .boxed(),
    );
    let (unsent, not_ended) = (attempts.repositories(), Arc::clone(&watched));
    tasks.spawn(
        async move {
            unsent
                .send_unsent(|key| not_ended.leases().contains_key(key))
                .await
        }
        .boxed(),
    );
    tasks.spawn(Arc::clone(&storage).end_holds().boxed());
    tasks.spawn(end_with_leases(home.clone(), Arc::clone(&uplink), Arc::clone(&watched)).boxed());
    let call = JoinRunner {
        home_id: uplink.home_id().to_owned(),
        pools,
        labels,
        slots,
        version: VERSION.to_owned(),
        confirmed: None,
    };
    let stage = tokio::sync::watch::Sender::new(Stage::Serves);
    let reads = logs::LogReads::new(home.clone(), Arc::clone(&uplink));
    let removals =
        removals::Removals::new(home.clone(), Arc::clone(&uplink), attempts.repositories());
    let call = (call, RunnerNote::open(home));
    let mut working = Box::pin(work(
        Arc::clone(&uplink),
        attempts,
        reads,
        removals,
        storage,
        call,
        stage.subscribe(),
    ));
    let ending = async {
        tokio::select! {
            _ = terminate.recv() => print(
                "no further attempts are started; the runner exits when its attempts have ended and the hub has their logs (Ctrl-C exits now; attempts continue)",
            ),
            _ = interrupt.recv() => return,
            () = idle_for(&watched, idle_exit) => print("no attempts for the time of --idle-exit; the runner exits"),
        }
        // No hub has ordered anything.
        if !uplink.has_joined() {
            return;
        }
        stage.send_replace(Stage::Drains);
        let all_ended = async {
            none_left(&watched).await;
            if tokio::time::timeout(LOGS_WAIT_MAX, uploads.none_left())
                .await
                .is_err()
            {
                tracing::warn!(
                    "logs are left that the hub does not have; the next start of this runner sends them"
                );
            }
            // From now on, the work ends when the hub agrees.
            stage.send_replace(Stage::Leaves);
            idle_for(&watched, Some(LEAVE_MAX)).await;
            tracing::warn!(
                "the hub cannot be reached; an attempt that it has just ordered is lost after its lease"
            );
        };
        tokio::select! {
            () = all_ended => {}
            _ = interrupt.recv() => {}
        }
    };
    let ended = tokio::select! {
        ended = &mut working => ended,
        () = ending => Ok(()),
    };
    drop(working);
    tasks.shutdown().await;
    if let Err(error) = std::fs::remove_file(home.socket()) {
        tracing::debug!(%error, "the socket cannot be removed");
    }
    ended
}

/// Waits until no attempt is watched.
async fn none_left(watched: &Watched) {
    loop {
        let changed = watched.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if watched.leases().is_empty() {
            return;
        }
        changed.await;
    }
}

/// Waits until no attempt was watched for a time. `None`: forever.
async fn idle_for(watched: &Watched, time: Option<Duration>) {
    let Some(time) = time else {
        return std::future::pending().await;
    };
    loop {
        none_left(watched).await;
        let changed = watched.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if !watched.leases().is_empty() {
            continue;
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(time) => return,
        }
    }
}

/// Joins the hub and starts what it orders. Returns when the runner has left, or if the first join is refused.
async fn work(
    uplink: Arc<Uplink>,
    mut attempts: Attempts,
    mut reads: logs::LogReads,
    mut removals: removals::Removals,
    storage: Arc<Storage>,
    (mut call, note): (JoinRunner, RunnerNote),
    mut stage: tokio::sync::watch::Receiver<Stage>,
) -> Result<(), String> {
    let watched = attempts.watched();
    let mut holds = storage.holds();
    let mut has_joined = false;
    loop {
        call.confirmed = note.last();
        let joined = join(&uplink, &call, has_joined).await?;
        let RunnerJoined {
            session,
            name,
            lease_ms,
            pools,
            removed,
            attempts: named,
        } = joined.reply;
        // A hub of an earlier version does not name them.
        let pools = if pools.is_empty() {
            &call.pools
        } else {
            &pools
        };
        if !std::mem::replace(&mut has_joined, true) {
            print(&format!(
                "runner {name} of {} for pool {} ({} slots); Ctrl-C ends it, and its attempts continue for the lease",
                uplink.address(),
                pools.join(", "),
                call.slots
            ));
        }
        tracing::info!(attempts = named.len(), "joined");
        attempts.adopt(&named).await;
        let lease = Lease::from_ms(lease_ms);
        uplink.begin_session(Session { id: session, lease }, joined.sent);
        attempts.uploads().begin_all().await;
        attempts.repositories().look_for_unsent();
        removals.begin(removed);
        let mut taken = Vec::new();
        let (mut refused_pause, mut failures) = (PAUSE, RepeatedFailures::default());
        loop {
            let now = *stage.borrow_and_update();
            let hold = holds.borrow_and_update().clone();
            let is_idle = watched.leases().is_empty();
            let wait = lease.wait_max();
            // Failures are reported only after the hub knows the hold.
            let is_unknown = hold
                .as_ref()
                .is_some_and(|hold| storage.is_unknown_to_hub(hold));
            let wait_ms = if is_unknown {
                0
            } else {
                u64::try_from(wait.as_millis()).unwrap_or(0)
            };
            let (drains, leaves) = (
                now != Stage::Serves || hold.is_some(),
                now == Stage::Leaves && is_idle,
            );
            let unwritable = hold.as_ref().map(|hold| hold.why.clone());
            let call = GetRunnerWork {
                taken: taken.clone(),
                drains,
                leaves,
                load: pressure::load().into(),
                unwritable,
                wait_ms,
            };
            let answer = tokio::select! {
                answer = uplink.call::<RunnerWork>("/runner/work", &call, wait) => answer,
                // The next call says so. Orders of an unread reply are sent again.
                Ok(()) = stage.changed() => continue,
                Ok(()) = holds.changed() => continue,
                () = none_left(&watched), if now == Stage::Leaves && !is_idle => continue,
            };
            match answer {
                Ok(RunnerWork { left: true, .. }) => return Ok(()),
                Ok(RunnerWork {
                    orders,
                    reads: wanted,
                    removed,
                    left: false,
                    fingerprint,
                    confirmed,
                }) => {
                    uplink.check_fingerprint(fingerprint.as_deref());
                    note.keep(confirmed);
                    refused_pause = PAUSE;
                    failures.clear();
                    hold.iter().for_each(|hold| storage.set_announced(hold));
                    taken.clear();
                    reads.begin(wanted);
                    removals.begin(removed);
                    for order in orders {
                        taken.push(format!("{}/{}", order.run_id, order.attempt));
                        attempts.launch(order);
                    }
                }
                Err(CallFailure::MustJoin) => break,
                // The hub has revoked it because this runner has left; the reply is lost.
                Err(CallFailure::TokenRefused(_)) if leaves => return Ok(()),
                Err(failure) => {
                    if let Some(times) = failures.note(&failure.to_string(), Instant::now().into())
                    {
                        tracing::warn!(%failure, times, "the hub cannot be asked for attempts");
                    }
                    // Only a person can change that a token is refused, so it is not worth many calls.
                    let is_refused = matches!(failure, CallFailure::TokenRefused(_));
                    tokio::time::sleep(if is_refused { refused_pause } else { PAUSE }).await;
                    if is_refused {
                        refused_pause = (refused_pause * 2).min(JOIN_PAUSE_MAX);
                    }
                }
            }
        }
    }
}

struct Joined {
    reply: RunnerJoined,
    sent: Instant,
}

/// Joins, as often as it takes. A refusal of the first join is an error of the person who starts the runner.
async fn join(uplink: &Uplink, call: &JoinRunner, has_joined: bool) -> Result<Joined, String> {
    let (mut pause, mut failures) = (PAUSE, RepeatedFailures::default());
    loop {
        let sent = Instant::now();
        let problem = match uplink
            .call_without_session::<RunnerJoined>("/runner/join", call)
            .await
        {
            Ok(reply) => return Ok(Joined { reply, sent }),
            Err(CallFailure::TokenRefused(why)) if !has_joined => {
                return Err(format!(
                    "the hub refuses the token ({why}): make one there with adj token new NAME --role runner"
                ));
            }
            Err(CallFailure::Refused(error))
                if !has_joined && error.code == crate::view::codes::INVALID =>
            {
                return Err(error.message);
            }
            Err(failure) => failure,
        };
        let problem = format!(
            "the hub at {} cannot be joined yet: {problem}",
            uplink.address()
        );
        if let Some(times) = failures.note(&problem, sent.into()) {
            tracing::warn!(times, "{problem}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(JOIN_PAUSE_MAX);
    }
}

/// Kills attempts whose leases are about to expire. Their supervisors have begun to end them before.
async fn end_with_leases(home: Home, uplink: Arc<Uplink>, watched: Arc<Watched>) {
    let kill_after = |lease: Lease| lease.end_begins() + lease.grace_max();
    loop {
        let changed = watched.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let (contact, now) = (uplink.contact(), Instant::now());
        let leases = watched.leases().clone();
        for key in leases
            .iter()
            .filter(|(_, lease)| contact + kill_after(**lease) <= now)
            .map(|(key, _)| key)
        {
            if let Some((dir, run_id, attempt)) = place(&home, key) {
                kill(&dir, &run_id, attempt).await;
            }
        }
        let later = leases
            .values()
            .map(|lease| contact + kill_after(*lease))
            .filter(|at| *at > now)
            .min();
        // Each contact renews the leases, so those that have passed are checked again after the next contact.
        let next = later.or_else(|| leases.values().map(|lease| now + lease.grace_max()).min());
        tokio::select! {
            () = changed => {}
            () = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
    }
}
