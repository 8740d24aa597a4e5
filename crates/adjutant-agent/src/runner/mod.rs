//! `adj runner`: starts guards and supervisors on this machine for attempts of a hub on another
//! one.
//!
//! It has no store. It takes the lock and the socket of a home of its own, so supervisors call it
//! as they call a hub, and it relays their calls. It calls the hub; nothing connects to it. If it
//! dies, its attempts continue, and the next runner of the home adopts them.
//!
//! ```text
//!  join ─ end what the hub does not name, watch what it names ─ (wait for orders, start them)* ─ session ended ─> join
//! ```

mod attempts;
mod error;
mod facts;
mod identity;
mod logs;
mod note;
mod places;
mod removals;
mod repository;
mod socket;
mod storage;
mod uplink;
mod uploads;
mod work;

use crate::config::{Config, Home};
use crate::hub_client::VERSION;
use crate::process::{Lock, hygiene};
use crate::protocol::JoinRunner;
use crate::remote::{HubAddress, Trust};
use crate::sock;
use adjutant_core::PoolName;
use adjutant_core::lease::Lease;
use attempts::{Attempts, Watched, kill};
use error::RunnerError;
use futures::FutureExt;
use identity::{identity, read_token};
use note::RunnerNote;
use places::place;
use socket::RunnerSocket;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use storage::Storage;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uplink::Uplink;
use uploads::Uploads;
use work::{Stage, Work, print};

/// How long a runner that is stopping waits for the hub's consent, because an order may not have
/// arrived yet.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// How long a runner that is stopping waits until the hub has the logs of its attempts. The next
/// runner of the home sends the rest.
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

/// Runs a runner in the foreground, until a signal.
#[must_use]
pub fn main(options: Options) -> ExitCode {
    crate::trace::start("info");
    match start(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn start(options: Options) -> Result<(), RunnerError> {
    check(&options)?;
    hygiene::background()?;
    let home = Home::from_env()?;
    home.ensure()?;
    let token = read_token(&options.token_file)?;
    let Some(lock) = Lock::try_take(&home.dir, &home.hub_lock())? else {
        return Err(RunnerError::HomeInUse(home.dir));
    };
    lock.write_pid(rustix::process::getpid())?;
    if home.database().exists() {
        return Err(RunnerError::HomeOfHub(home.dir));
    }
    let identity = identity(&home)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .thread_keep_alive(Duration::from_secs(5))
        .enable_all()
        .build()?;
    let served = runtime.block_on(run(&home, options, &token, identity.id));
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(lock);
    served
}

/// Refuses options that do not fit the addresses of the hubs.
fn check(options: &Options) -> Result<(), RunnerError> {
    if options.join.iter().any(HubAddress::is_exposed) && !options.plain {
        return Err(RunnerError::PlainText);
    }
    if options.join.iter().any(HubAddress::is_plain) && !matches!(options.trust, Trust::Installed) {
        return Err(RunnerError::NoCertificate);
    }
    Ok(())
}

async fn run(
    home: &Home,
    options: Options,
    token: &str,
    home_id: String,
) -> Result<(), RunnerError> {
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
    let signals = EndSignals {
        terminate: signal(SignalKind::terminate())?,
        interrupt: signal(SignalKind::interrupt())?,
    };
    let uplink = Arc::new(Uplink::new(join, &trust, token, home_id));
    let storage = Arc::new(Storage::new(home.clone()));
    let attempts = Attempts::new(
        home.clone(),
        Arc::clone(&uplink),
        Arc::clone(&storage),
        hidden_files(home, &token_file),
    );
    let (watched, uploads) = (attempts.watched(), attempts.uploads());
    let listener = sock::bind(&home.socket()).map_err(RunnerError::of_file(&home.socket()))?;
    let mut tasks = serve_attempts(home, &uplink, &storage, &attempts, listener);
    let stage = watch::Sender::new(Stage::Serves);
    let work = Work {
        reads: logs::LogReads::new(home.clone(), Arc::clone(&uplink)),
        removals: removals::Removals::new(
            home.clone(),
            Arc::clone(&uplink),
            attempts.repositories(),
        ),
        attempts,
        storage,
        call: JoinRunner {
            home_id: uplink.home_id().to_owned(),
            pools,
            labels,
            slots,
            version: VERSION.to_owned(),
            confirmed: None,
        },
        note: RunnerNote::open(home),
        stage: stage.subscribe(),
        uplink: Arc::clone(&uplink),
    };
    let ending = Ending {
        uplink,
        watched,
        uploads,
        stage,
        idle_exit,
    };
    let mut working = Box::pin(work.run());
    let ended = tokio::select! {
        ended = &mut working => ended,
        () = ending.wait(signals) => Ok(()),
    };
    drop(working);
    tasks.shutdown().await;
    if let Err(error) = std::fs::remove_file(home.socket()) {
        tracing::debug!(%error, "the socket cannot be removed");
    }
    ended
}

/// Returns the runner's own files outside of its home, which are hidden from fenced runs.
fn hidden_files(home: &Home, token_file: &Path) -> Vec<PathBuf> {
    let mut hidden = vec![Config::path(home)];
    hidden.extend(token_file.canonicalize());
    hidden.retain(|path| !path.starts_with(&home.dir) && path.exists());
    hidden
}

/// Starts what serves the attempts of this machine: their calls, their unsent work and their
/// leases.
fn serve_attempts(
    home: &Home,
    uplink: &Arc<Uplink>,
    storage: &Arc<Storage>,
    attempts: &Attempts,
    listener: UnixListener,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let (facts, delivering) = facts::FactCalls::new(Arc::clone(uplink));
    tasks.spawn(delivering.boxed());
    let socket = Arc::new(RunnerSocket {
        home: home.dir.clone(),
        uplink: Arc::clone(uplink),
        facts,
        repositories: attempts.repositories(),
        uploads: attempts.uploads(),
        storage: Arc::clone(storage),
    });
    tasks.spawn(
        async move {
            if let Err(error) = socket::serve(socket, listener).await {
                tracing::error!(%error, "the socket failed");
            }
        }
        .boxed(),
    );
    let (unsent, not_ended) = (attempts.repositories(), attempts.watched());
    tasks.spawn(
        async move {
            unsent
                .send_unsent(|key| not_ended.leases().contains_key(key))
                .await
        }
        .boxed(),
    );
    tasks.spawn(Arc::clone(storage).end_holds().boxed());
    tasks.spawn(end_with_leases(home.clone(), Arc::clone(uplink), attempts.watched()).boxed());
    tasks
}

/// The signals that end a runner.
struct EndSignals {
    /// It ends after its attempts.
    terminate: Signal,
    /// It ends now.
    interrupt: Signal,
}

/// When a runner ends.
struct Ending {
    uplink: Arc<Uplink>,
    watched: Arc<Watched>,
    uploads: Arc<Uploads>,
    stage: watch::Sender<Stage>,
    idle_exit: Option<Duration>,
}

impl Ending {
    /// Waits until the runner has to end, whatever its work is. On the way, takes it through the
    /// stages in which the work itself may end.
    async fn wait(self, mut signals: EndSignals) {
        tokio::select! {
            _ = signals.terminate.recv() => print(
                "no further attempts are started; the runner exits when its attempts have ended and the hub has their logs (Ctrl-C exits now; attempts continue)",
            ),
            _ = signals.interrupt.recv() => return,
            () = self.watched.idle_for(self.idle_exit) => print("no attempts for the time of --idle-exit; the runner exits"),
        }
        // No hub has ordered anything.
        if !self.uplink.has_joined() {
            return;
        }
        self.stage.send_replace(Stage::Drains);
        tokio::select! {
            () = self.all_ended() => {}
            _ = signals.interrupt.recv() => {}
        }
    }

    /// Waits until no attempt is left and the hub has had the time to agree.
    async fn all_ended(&self) {
        self.watched.none_left().await;
        if tokio::time::timeout(LOGS_WAIT_MAX, self.uploads.none_left())
            .await
            .is_err()
        {
            tracing::warn!(
                "logs are left that the hub does not have; the next start of this runner sends them"
            );
        }
        // From now on, the work ends when the hub agrees.
        self.stage.send_replace(Stage::Leaves);
        self.watched.idle_for(Some(LEAVE_MAX)).await;
        tracing::warn!(
            "the hub cannot be reached; an attempt that it has just ordered is lost after its lease"
        );
    }
}

/// Kills attempts whose leases are about to expire. Their supervisors have begun to end them
/// before.
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
        // Each contact renews the leases, so those that have passed are checked again after the
        // next contact.
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
