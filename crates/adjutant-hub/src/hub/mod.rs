//! The hub: the process that opens the store. It schedules runs, enforces deadlines, receives facts and wakes
//! waiters. It never touches an agent's pipes, so runs survive its death.

mod auth;
mod calls;
mod chats;
mod connections;
mod copy;
mod home;
mod http;
mod launches;
mod listening;
mod log_store;
mod peers;
mod pressure;
mod router;
mod standby;
mod standby_logs;
mod versions;
mod webhooks;
mod work;

use crate::client::{VERSION, ensure_hub, wait_until_served};
use crate::config::{Config, Home, listen_address};
use crate::failpoint::failpoint;
use crate::ops::{OpError, Ops};
use crate::process::{Lock, ReadyPipe, hygiene, lock, watch};
use crate::store::{ConfirmedNote, Lead, Place, Store, StoreError};
use crate::versions::Versions;
use adjutant_core::Time;
use connections::Connections;
pub use copy::{
    Copied, CopiedTable, CopyError, Place as StorePlace, Progress, StoreCopyError, copy_store,
};
use futures::FutureExt;
use home::{Lost, Socket};
pub use http::{McpServer, NewMcpServer};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Maximum number of threads for blocking tasks.
const BLOCKING_MAX: usize = 16;
/// That of a hub whose store is on a server.
const WAITING_MAX: usize = 512;
/// How long the reply of a hub that shares its store waits for the confirmation that it is the leader.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a hub that shares its store waits for leadership before it serves callers as a standby hub.
const LEADERSHIP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the leader waits until it announces its address again.
const ANNOUNCE_AGAIN: Duration = Duration::from_millis(500);
/// How long a hub waits for its predecessor to release the home.
const PREDECESSOR_EXIT_MAX: Duration = Duration::from_secs(10);
/// The hub's startup work has finished after this time.
const STARTUP_TIME: Duration = Duration::from_secs(1);
/// How long calls in progress may take once the hub is ending.
const CALLS_END_MAX: Duration = Duration::from_millis(300);
/// How long blocking tasks (starting a guard, writing a copy) may take after that.
const THREADS_END_MAX: Duration = Duration::from_secs(1);
/// How long runs may take to end after their home was removed.
const RUNS_END_MAX: Duration = Duration::from_secs(3);
/// The reason for a hub to end when it has nothing to do.
const IDLE: &str = "idle";
/// The reasons for a hub to end because of a signal.
const TERMINATED: &str = "terminated";
const INTERRUPTED: &str = "interrupted";
/// Why a hub cannot begin.
enum NotBegun {
    Refused(String),
    /// The server of the store cannot be used at the moment.
    Again(String),
}

impl From<OpError> for NotBegun {
    fn from(error: OpError) -> Self {
        match error {
            OpError::Store(StoreError::Lost(_) | StoreError::Unreachable(_)) => {
                Self::Again(error.to_string())
            }
            error => Self::Refused(error.to_string()),
        }
    }
}

/// Prepares the first call: what the store knows to be under way is adopted.
async fn begin(hub: &Arc<Hub>, loops: &mut JoinSet<()>) -> Result<(), NotBegun> {
    hub.ops
        .check_log_store()
        .await
        .map_err(|problem| NotBegun::Refused(format!("the log store cannot be used: {problem}")))?;
    if hub.lead.is_some() {
        standby::check_local_attempts(hub)?;
    }
    hub.ops.expect_reports()?;
    // Before the first call: the predecessor's runs are watched, so that none counts as lost.
    work::adopt(hub, loops).await?;
    let is_over = hub.ops.store().has_begun_era()
        && work::end_unknown(hub)
            .await
            .inspect_err(|error| tracing::error!(%error, "attempts that the database has lost cannot be ended yet"))
            .is_ok();
    // An earlier hub may have ended before it could end them.
    if !is_over && hub.ops.set_back().is_some() {
        loops.spawn(work::end_unknown_in_background(Arc::clone(hub)).boxed());
    }
    Ok(())
}

/// The reason why a leader becomes a standby hub.
const LEAD_LOST: &str = "it is no longer the leader";
const SET_BACK: &str = "its database was set back";
/// A hub log larger than this is rotated.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The minimum number of descriptors: enough for the hub, one run and the person.
const DESCRIPTORS_MIN: u64 = 96;
/// Descriptors that the hub itself uses, with some to spare.
const DESCRIPTORS_OF_HUB: u64 = 64;
/// Descriptors for a live run, without the connections of its supervisor.
const DESCRIPTORS_OF_RUN: u64 = 8;
/// Descriptors for a connection: the socket and its peer.
const DESCRIPTORS_OF_CONNECTION: u64 = 2;
/// The maximum number of connections, however many descriptors are available.
const CONNECTIONS_MAX: u64 = 4096;

/// How many runs and connections the limit on descriptors allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    live_runs_max: u64,
    connections_max: usize,
}

impl Room {
    fn of(descriptors: u64) -> Result<Self, String> {
        if descriptors < DESCRIPTORS_MIN {
            return Err(format!(
                "only {descriptors} open files are allowed here (ulimit -Hn), and the hub needs {DESCRIPTORS_MIN}: raise that limit"
            ));
        }
        let half = (descriptors - DESCRIPTORS_OF_HUB) / 2;
        let connections = (half / DESCRIPTORS_OF_CONNECTION).min(CONNECTIONS_MAX);
        Ok(Self {
            live_runs_max: (half / DESCRIPTORS_OF_RUN).max(1),
            connections_max: usize::try_from(connections).unwrap_or(usize::MAX),
        })
    }
}

/// A shared handle of the hub.
type Shared = Arc<Hub>;

/// The state that the router and the background loops share.
pub(crate) struct Hub {
    ops: Ops,
    version: String,
    started_at: Time,
    connections: Arc<Connections>,
    versions: Versions,
    listening: listening::Listening,
    sign_ins: http::SignIns,
    new_mcp_server: NewMcpServer,
    /// Notified once when the hub must end.
    stop: Notify,
    /// Another version is taking over the home.
    handed_over: AtomicBool,
    /// The lead of a store that several hubs share.
    lead: Option<Arc<Lead>>,
}

impl Hub {
    /// Returns whether this hub may answer: it does not share its store, or has just confirmed that it is the leader.
    async fn leads(&self) -> bool {
        match &self.lead {
            None => true,
            Some(lead) => lead.confirmed_within(CONFIRM_TIMEOUT).await,
        }
    }
}

/// The hub's command line options.
#[derive(Debug, Default, Clone)]
struct Options {
    /// Stays in the foreground and prints a greeting to stderr.
    foreground: bool,
    /// Reports this version instead of its own, for tests of how versions interact.
    as_version: Option<String>,
    /// Listens on this address instead of the configured one. The next hub does so too, unless this one is stopped.
    listen: Option<SocketAddr>,
}

fn options(args: &[OsString]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--foreground") => options.foreground = true,
            Some("--as-version") => {
                options.as_version = args
                    .next()
                    .and_then(|version| version.to_str())
                    .map(ToOwned::to_owned)
            }
            Some("--listen") => {
                let address = args
                    .next()
                    .and_then(|address| address.to_str())
                    .ok_or("--listen needs an address")?;
                options.listen = Some(
                    listen_address(address)
                        .map_err(|problem| format!("--listen {address}: {problem}"))?,
                );
            }
            _ => return Err(format!("unknown argument {}", arg.display())),
        }
    }
    Ok(options)
}

/// Runs the hub of the environment's home until it is asked to end, or has been idle for long enough.
#[must_use]
pub fn main(args: &[OsString], new_mcp_server: NewMcpServer) -> ExitCode {
    let ready = ReadyPipe::inherited();
    crate::trace::start("info");
    let run = || -> Result<(), String> {
        let options = options(args)?;
        hygiene::background().map_err(|error| error.to_string())?;
        let home = Home::from_env().map_err(|error| error.to_string())?;
        home.ensure().map_err(|error| error.to_string())?;
        crate::trace::limit_log_file(&home.dir, &home.hub_log(), LOG_BYTES_MAX);
        // The lock of the home, which a hub that is no longer the leader keeps, so that no other one is started meanwhile.
        let mut kept = None;
        let note = OnceCell::new();
        loop {
            // Each call that waits for a server has a thread.
            let is_on_server = Config::store_of(&home).is_ok_and(|store| store.is_some());
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .max_blocking_threads(if is_on_server {
                    WAITING_MAX
                } else {
                    BLOCKING_MAX
                })
                .thread_keep_alive(Duration::from_secs(5))
                .enable_all()
                .build()
                .map_err(|error| error.to_string())?;
            let served = runtime.block_on(serve(
                home.clone(),
                options.clone(),
                new_mcp_server,
                kept.take(),
                &note,
            ));
            runtime.shutdown_timeout(THREADS_END_MAX);
            match served? {
                Served::Ended => return Ok(()),
                // All parts of the leader have ended.
                Served::LeadLost(lock) => kept = Some(lock),
            }
        }
    };
    // Stored outside `run`, so that a failed start can still be reported on the pipe.
    READY.with(|cell| cell.replace(ready));
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            tracing::error!(%message, "the hub cannot run");
            report_ready(&message);
            ExitCode::FAILURE
        }
    }
}

thread_local! {
    /// The starter's pipe, until the result was written to it.
    static READY: std::cell::RefCell<Option<ReadyPipe>> = const { std::cell::RefCell::new(None) };
}

/// Reports to the starter once. Returns whether there was a starter to report to.
fn report_ready(message: &str) -> bool {
    let Some(pipe) = READY.with(|cell| cell.borrow_mut().take()) else {
        return false;
    };
    if let Err(error) = pipe.report(message) {
        tracing::debug!(%error, "the starter has exited");
    }
    true
}

/// Takes the home's lock, waiting for a predecessor that is ending. `None`: another hub serves the home.
async fn take_home(home: &Home) -> Result<Option<Lock>, String> {
    let path = home.hub_lock();
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    loop {
        if let Some(lock) = Lock::try_take(&home.dir, &path).map_err(failed)? {
            lock.write_pid(rustix::process::getpid()).map_err(failed)?;
            return Ok(Some(lock));
        }
        let released =
            tokio::time::timeout(PREDECESSOR_EXIT_MAX, watch::released(&home.dir, &path));
        let released = tokio::select! {
            released = released => released,
            // The other hub's socket had been removed and is back.
            () = wait_until_served(home) => return Ok(None),
        };
        match released {
            Ok(released) => released.map_err(failed)?,
            Err(_) => {
                let pid = lock::written_pid(&home.dir, &path)
                    .ok()
                    .flatten()
                    .map_or_else(String::new, |pid| {
                        format!(" (pid {})", pid.as_raw_nonzero())
                    });
                return Err(format!(
                    "another hub{pid} uses {} and does not exit",
                    home.dir.display()
                ));
            }
        }
    }
}

/// How a hub has ended.
#[derive(Debug)]
enum Served {
    Ended,
    /// It shares its store and is no longer the leader, or the server of its store cannot be used or was set back, and it is started again.
    LeadLost(Lock),
}

/// The signals that end a hub. None is lost between two calls.
struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => TERMINATED,
            _ = self.interrupt.recv() => INTERRUPTED,
        }
    }
}

async fn serve(
    home: Home,
    options: Options,
    new_mcp_server: NewMcpServer,
    kept: Option<Lock>,
    note: &OnceCell<Arc<ConfirmedNote>>,
) -> Result<Served, String> {
    let room = Room::of(hygiene::descriptors_max())?;
    let taken = match kept {
        Some(lock) => Some(lock),
        None => take_home(&home).await?,
    };
    let Some(lock) = taken else {
        return if report_ready("ready") {
            Ok(Served::Ended)
        } else {
            Err(format!("another hub serves {}", home.dir.display()))
        };
    };
    if home.runner_identity().exists() {
        return Err(format!(
            "{} is the home of a runner (adj runner): set ADJ_HOME to another directory",
            home.dir.display()
        ));
    }
    failpoint!("hub.locked");
    let mut signals = EndSignals::new().map_err(|error| error.to_string())?;
    let place = match Config::store_of(&home).map_err(|error| error.to_string())? {
        Some(address) => Place::Postgres(address),
        None => Place::Home(home.clone()),
    };
    // Kept while the store is opened again, and opened only by the hub that has the home.
    let note = Arc::clone(note.get_or_init(|| match &place {
        Place::Home(_) => ConfirmedNote::in_memory(),
        Place::Postgres(_) => ConfirmedNote::open(&home),
    }));
    let log_store = Config::log_store_of(&home).map_err(|error| error.to_string())?;
    let lead = match &place {
        Place::Postgres(address)
            if Config::load(&home)
                .map_err(|error| error.to_string())?
                .store_shared =>
        {
            match standby::until_lead(
                &home,
                (address, &note),
                log_store.clone(),
                &options,
                &lock,
                &mut signals,
            )
            .await?
            {
                Some(lead) => Some(lead),
                None => return Ok(Served::Ended),
            }
        }
        Place::Postgres(_) | Place::Home(_) => None,
    };
    let (opened, leading, noted) = (home.clone(), lead.clone(), Arc::clone(&note));
    let opening = tokio::task::spawn_blocking(move || match leading {
        Some(lead) => Store::open_shared(&opened, lead),
        None => Store::open_with(&opened, place, &noted),
    });
    let store = tokio::select! {
        opened = opening => match (opened.map_err(|error| error.to_string())?, &lead) {
            (Ok(store), _) => store,
            // The session ended, or the server became read-only, between winning the lock and beginning to lead. It can be won again.
            (Err(problem @ (StoreError::Lost(_) | StoreError::Unreachable(_))), Some(lead)) if !lead.is_refused() => {
                tracing::warn!(%problem, "this hub cannot begin to lead");
                lead.end();
                return Ok(Served::LeadLost(lock));
            }
            // It was set back meanwhile.
            (Err(StoreError::Closed), lead) => {
                lead.iter().for_each(|lead| lead.end());
                return Ok(Served::LeadLost(lock));
            }
            (Err(error), _) => return Err(error.to_string()),
        },
        // A server can take long, and an unfinished migration takes no effect.
        _ = signals.received() => return Ok(Served::Ended),
    };
    let (listening, mut listeners) = listening::Listening::new();
    let hub = Arc::new(Hub {
        ops: Ops::new(store.clone(), home.clone(), room.live_runs_max, log_store),
        version: options
            .as_version
            .clone()
            .unwrap_or_else(|| VERSION.to_owned()),
        started_at: crate::clock::now(),
        connections: Arc::new(Connections::new(room.connections_max)),
        versions: Versions::new(&home),
        listening,
        sign_ins: http::SignIns::default(),
        new_mcp_server,
        stop: Notify::new(),
        handed_over: AtomicBool::new(false),
        lead: lead.clone(),
    });
    // Boxed, here and in supervisors, so that the task code is compiled once and not for each loop.
    let mut loops = JoinSet::new();
    match begin(&hub, &mut loops).await {
        Ok(()) => {}
        Err(NotBegun::Refused(problem)) => return Err(problem),
        Err(NotBegun::Again(problem)) => {
            tracing::warn!(problem, "this hub cannot begin, and tries again");
            lead.iter().for_each(|lead| lead.end());
            store.abandon();
            loops.abort_all();
            return Ok(Served::LeadLost(lock));
        }
    }
    hub.ops.recover_tree_changes().await;
    // The webhooks are loaded, so that they receive the events of the first call.
    if let Err(error) = hub.ops.set_webhooks().await {
        tracing::warn!(%error, "the webhooks stay as they were");
    }
    let connections = Arc::clone(&hub.connections);
    loops.spawn(async move { connections.close_silent().await }.boxed());
    loops.spawn(work::await_first_reports(Arc::clone(&hub)).boxed());
    loops.spawn(work::after_first_reports(&hub, work::schedule(Arc::clone(&hub))).boxed());
    loops.spawn(work::after_first_reports(&hub, launches::launch(Arc::clone(&hub))).boxed());
    loops.spawn(work::after_first_reports(&hub, pressure::watch(Arc::clone(&hub))).boxed());
    loops.spawn(work::after_first_reports(&hub, work::apply_deadlines(Arc::clone(&hub))).boxed());
    loops.spawn(work::watch_leases(Arc::clone(&hub)).boxed());
    loops.spawn(log_store::move_logs(Arc::clone(&hub)).boxed());
    loops.spawn(work::after_first_reports(&hub, work::clean_up(Arc::clone(&hub))).boxed());
    loops.spawn(work::render(Arc::clone(&hub)).boxed());
    loops.spawn(work::watch_trees(Arc::clone(&hub)).boxed());
    loops.spawn(work::after_first_reports(&hub, work::answer_chats(Arc::clone(&hub))).boxed());
    loops.spawn(work::drop_credentials(Arc::clone(&hub)).boxed());
    loops.spawn(work::index(Arc::clone(&hub)).boxed());
    loops.spawn(webhooks::deliver(Arc::clone(&hub)).boxed());
    loops.spawn(peers::follow(Arc::clone(&hub)).boxed());
    loops.spawn(versions::ask_unknown(Arc::clone(&hub)).boxed());

    let calls = Arc::new(listening::with_dashboard(router::calls()));
    let closing_http = CancellationToken::new();
    let mut http_loops = JoinSet::new();
    listening::listen(&hub, options.listen, options.foreground).await?;
    {
        let (hub, calls, closing) = (Arc::clone(&hub), Arc::clone(&calls), closing_http.clone());
        let serve = async move {
            let opened = tokio::select! {
                opened = listeners.recv() => opened,
                () = closing.cancelled() => None,
            };
            if let Some(listener) = opened {
                listener.serve(hub, calls, closing).await;
            }
        };
        http_loops.spawn(serve.boxed());
    }
    if let Some(lead) = lead.clone() {
        loops.spawn(standby::announce(Arc::clone(&hub), lead).boxed());
    }
    let (mut socket, listener, renewed) =
        Socket::bind(&home).map_err(|error| format!("{}: {error}", home.socket().display()))?;
    let closing = Arc::new(Notify::new());
    let server = {
        let (hub, closing) = (Arc::clone(&hub), Arc::clone(&closing));
        async move { router::serve(hub, calls, listener, renewed, closing).await }
    };
    let mut server = Box::pin(server);
    failpoint!("hub.listening");
    tracing::info!(home = %home.dir.display(), version = %hub.version, "the hub is ready");
    if options.foreground {
        let runs = if home.is_ephemeral() {
            "the hub and everything in this home"
        } else {
            "the hub; runs continue"
        };
        let listens = match hub.listening.state() {
            Some(Ok(opened)) => {
                let warning = if opened.is_exposed() {
                    "listen_without_tls: tokens and everything else cross the network in plain text\n"
                } else {
                    ""
                };
                format!(
                    "listening on {} for callers with a token (adj token new NAME)\n{warning}",
                    opened.url
                )
            }
            _ => String::new(),
        };
        let greeting = format!(
            "serving {} (pid {})\n{listens}Ctrl-C ends {runs}\n",
            home.dir.display(),
            std::process::id()
        );
        if let Err(error) = std::io::stderr().write_all(greeting.as_bytes()) {
            tracing::debug!(%error, "the greeting could not be written");
        }
    }
    report_ready("ready");
    loops.spawn(async {
        tokio::time::sleep(STARTUP_TIME).await;
        if let Err(error) = hygiene::release_code() {
            tracing::debug!(%error, "the memory of the startup code cannot be released");
        }
    });

    let mut lost = None;
    let reason = tokio::select! {
        ended = &mut server => match ended {
            Ok(()) => "the socket closed".to_owned(),
            Err(error) => format!("the socket failed: {error}"),
        },
        () = hub.stop.notified() => "asked to".to_owned(),
        signal = signals.received() => signal.to_owned(),
        () = work::idle(&hub) => IDLE.to_owned(),
        () = async {
            match &lead {
                Some(lead) => lead.lost().await,
                None => std::future::pending().await,
            }
        } => LEAD_LOST.to_owned(),
        () = store.gone_back() => SET_BACK.to_owned(),
        found = home::watch(&home, &lock, &mut socket) => {
            lost = Some(found);
            match found {
                Lost::Removed => format!("{} was removed", home.dir.display()),
                Lost::Unlocked => format!("{} was moved, or its lock removed", home.dir.display()),
            }
        }
    };
    if options.listen.is_some() && (reason == TERMINATED || reason == INTERRUPTED) {
        // A hub after a crash, or of a newer version, listens there too.
        hub.listening.forget(&home);
    }
    if lost == Some(Lost::Removed) {
        // Without the home, no facts can be stored and no later hub can find these runs. Their supervisors cannot
        // report their end, so it is not awaited.
        tokio::select! {
            _ = &mut server => {}
            () = work::end_all(&hub) => {}
            () = tokio::time::sleep(RUNS_END_MAX) => {}
        }
        work::kill_all(&hub).await;
    }
    let starts_again = reason == LEAD_LOST || reason == SET_BACK;
    if reason != IDLE && !starts_again && lost.is_none() && is_last_of_its_home(&hub, &home) {
        // Live runs would lose their home; their supervisors need the socket to report how they ended.
        tokio::select! {
            _ = &mut server => {}
            () = work::end_all(&hub) => {}
        }
    }
    tracing::info!(reason, "the hub ends");
    socket.remove();
    closing_http.cancel();
    closing.notify_one();
    let last_calls = futures::future::join(server, async {
        while http_loops.join_next().await.is_some() {}
    });
    if tokio::time::timeout(CALLS_END_MAX, last_calls)
        .await
        .is_err()
    {
        tracing::debug!("waits were cut off; their callers continue with the next hub");
    }
    if starts_again {
        // Calls and loops may wait for the server. What they still try to write is refused, because another epoch has begun.
        lead.iter().for_each(|lead| lead.end());
        store.abandon();
        http_loops.abort_all();
        loops.abort_all();
        return Ok(Served::LeadLost(lock));
    }
    http_loops.shutdown().await;
    loops.shutdown().await;
    // A call may have arrived between the decision to end and the closing of the listener.
    let is_needed = reason == IDLE && work::is_busy(&hub);
    hub.ops.end_tree_changes().await;
    store.close();
    // Calls that still wait for a server must not continue when the runtime has ended.
    store.abandon();
    if let Some(lead) = &lead {
        lead.end();
    }
    if !is_needed
        && lost.is_none()
        && is_last_of_its_home(&hub, &home)
        && let Err(error) = home.remove()
    {
        tracing::error!(%error, "the home in memory cannot be removed");
    }
    drop(lock);
    if is_needed {
        tracing::info!("a successor is started, because work arrived meanwhile");
        ensure_hub(&home).await.map_err(|error| error.to_string())?;
    }
    Ok(Served::Ended)
}

/// Returns whether the home ends with this hub: it is in memory, and no other version is taking over.
fn is_last_of_its_home(hub: &Hub, home: &Home) -> bool {
    home.is_ephemeral() && !hub.handed_over.load(Ordering::Relaxed)
}
