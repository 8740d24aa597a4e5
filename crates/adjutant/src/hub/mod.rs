//! The hub: the one process that opens the store. It schedules runs, keeps deadlines, takes facts
//! in and wakes whoever waits. It never touches an agent's pipe, so its death disturbs no run.

mod auth;
mod chats;
mod connections;
mod router;
mod versions;
mod webhooks;
mod work;

use crate::client::{VERSION, ensure_hub};
use crate::config::Home;
use crate::failpoint::failpoint;
use crate::ops::Ops;
use crate::process::{Lock, ReadyPipe, hygiene, lock, watch};
use crate::sock;
use crate::store::Store;
use adjutant_core::Time;
use connections::Connections;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long a hub that is on its way out may keep the home from its successor.
const PREDECESSOR_LEAVES: Duration = Duration::from_secs(10);
/// By then whatever is needed only to start has been done.
const STARTED_AFTER: Duration = Duration::from_secs(1);
/// How long calls that are being answered may go on after the hub was told to end.
const LAST_CALLS: Duration = Duration::from_millis(300);
/// How long threads may go on then that start a guard or write a copy.
const LAST_THREADS: Duration = Duration::from_secs(1);
/// Why a hub ends that nobody told to.
const IDLE: &str = "idle";
/// A hub log larger than this is put aside at the next start.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What the router and the loops share.
pub(crate) struct Hub {
    ops: Ops,
    version: String,
    started_at: Time,
    connections: Arc<Connections>,
    versions: versions::Versions,
    /// Told once when the hub is to end.
    stop: Notify,
    /// Another version goes on with the home.
    handed_over: AtomicBool,
}

/// How a hub was asked to run.
#[derive(Debug, Default)]
struct Options {
    /// Stays in the foreground and says so on stderr.
    foreground: bool,
    /// Says that it is of this version, for trying out how versions meet.
    as_version: Option<String>,
}

fn options(args: &[OsString]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--foreground") => options.foreground = true,
            Some("--as-version") => options.as_version = args.next().and_then(|version| version.to_str()).map(ToOwned::to_owned),
            _ => return Err(format!("unknown argument {}", arg.display())),
        }
    }
    Ok(options)
}

/// Runs the hub of the environment's home until it is told to end, or has had nothing to do for
/// long enough.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let ready = ReadyPipe::inherited();
    crate::trace::start("info");
    let run = || -> Result<(), String> {
        let options = options(args)?;
        hygiene::background().map_err(|error| error.to_string())?;
        let home = Home::from_env().map_err(|error| error.to_string())?;
        home.ensure().map_err(|error| error.to_string())?;
        put_log_aside(&home);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(16)
            .thread_keep_alive(Duration::from_secs(5))
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let served = runtime.block_on(serve(home, options));
        runtime.shutdown_timeout(LAST_THREADS);
        served
    };
    // Declared outside so that the pipe says whatever became of the start.
    READY.with(|cell| cell.replace(ready));
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            tracing::error!(%message, "the hub cannot run");
            say(&message);
            ExitCode::FAILURE
        }
    }
}

thread_local! {
    /// The starter's pipe, until something was said on it.
    static READY: std::cell::RefCell<Option<ReadyPipe>> = const { std::cell::RefCell::new(None) };
}

/// Tells the starter once.
fn say(message: &str) {
    if let Some(pipe) = READY.with(|cell| cell.borrow_mut().take())
        && let Err(error) = pipe.say(message)
    {
        tracing::debug!(%error, "the starter has gone");
    }
}

fn put_log_aside(home: &Home) {
    let log = home.hub_log();
    if log.metadata().is_ok_and(|meta| meta.len() > LOG_BYTES_MAX)
        && let Err(error) = std::fs::rename(&log, log.with_extension("log.1"))
    {
        tracing::warn!(%error, "the hub's log cannot be put aside");
    }
}

async fn take_home(home: &Home) -> Result<Lock, String> {
    let path = home.hub_lock();
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    loop {
        if let Some(lock) = Lock::try_take(&home.dir, &path).map_err(failed)? {
            lock.write_pid(rustix::process::getpid()).map_err(failed)?;
            return Ok(lock);
        }
        match tokio::time::timeout(PREDECESSOR_LEAVES, watch::released(&home.dir, &path)).await {
            Ok(released) => released.map_err(failed)?,
            Err(_) => {
                let pid =
                    lock::written_pid(&home.dir, &path).ok().flatten().map_or_else(String::new, |pid| format!(" (pid {})", pid.as_raw_nonzero()));
                return Err(format!("another hub{pid} holds {} and does not end", home.dir.display()));
            }
        }
    }
}

async fn serve(home: Home, options: Options) -> Result<(), String> {
    let lock = take_home(&home).await?;
    failpoint!("hub.locked");
    let store = Store::open(&home).map_err(|error| error.to_string())?;
    let hub = Arc::new(Hub {
        ops: Ops::new(store.clone(), home.clone()),
        version: options.as_version.unwrap_or_else(|| VERSION.to_owned()),
        started_at: crate::clock::now(),
        connections: Arc::new(Connections::default()),
        versions: versions::Versions::new(&home),
        stop: Notify::new(),
        handed_over: AtomicBool::new(false),
    });
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;

    let mut loops = JoinSet::new();
    // Before anybody can call: runs of the hub before us are watched, so none is taken for lost.
    work::adopt(&hub, &mut loops).await.map_err(|error| error.to_string())?;
    // And the webhooks are known, so that the first call is told, too.
    if let Err(error) = hub.ops.set_webhooks().await {
        tracing::warn!(%error, "the webhooks stay as they were");
    }
    loops.spawn(work::schedule(Arc::clone(&hub)));
    loops.spawn(work::keep_deadlines(Arc::clone(&hub)));
    loops.spawn(work::forget(Arc::clone(&hub)));
    loops.spawn(work::render(Arc::clone(&hub)));
    loops.spawn(work::answer_chats(Arc::clone(&hub)));
    loops.spawn(work::index(Arc::clone(&hub)));
    loops.spawn(webhooks::deliver(Arc::clone(&hub)));

    let listener = sock::bind(&home.socket()).map_err(|error| format!("{}: {error}", home.socket().display()))?;
    let closing = Arc::new(Notify::new());
    let server = {
        let (hub, closing) = (Arc::clone(&hub), Arc::clone(&closing));
        async move { router::serve(hub, listener, closing).await }
    };
    let mut server = Box::pin(server);
    failpoint!("hub.listening");
    tracing::info!(home = %home.dir.display(), version = %hub.version, "the hub is ready");
    if options.foreground {
        let runs = if home.is_ephemeral() { "and with it all that it holds" } else { "runs go on" };
        tracing::warn!("serving {}; Ctrl-C ends it, {runs}", home.dir.display());
    }
    say("ready");
    loops.spawn(async {
        tokio::time::sleep(STARTED_AFTER).await;
        if let Err(error) = hygiene::forget_code() {
            tracing::debug!(%error, "the code that starts a hub stays in memory");
        }
    });

    let reason = tokio::select! {
        ended = &mut server => match ended {
            Ok(()) => "the socket closed".to_owned(),
            Err(error) => format!("the socket failed: {error}"),
        },
        () = hub.stop.notified() => "asked to".to_owned(),
        _ = terminate.recv() => "terminated".to_owned(),
        _ = interrupt.recv() => "interrupted".to_owned(),
        () = work::idle(&hub) => IDLE.to_owned(),
    };
    if reason != IDLE && is_last_of_its_home(&hub, &home) {
        // Whatever runs would lose its ground; its supervisors need the socket to say how it ended.
        tokio::select! {
            _ = &mut server => {}
            () = work::end_all(&hub) => {}
        }
    }
    tracing::info!(reason, "the hub ends");
    // The lock is still ours, so nobody else's socket can lie there.
    if let Err(error) = std::fs::remove_file(home.socket()) {
        tracing::debug!(%error, "the socket is gone already");
    }
    closing.notify_one();
    if tokio::time::timeout(LAST_CALLS, server).await.is_err() {
        tracing::debug!("waits were cut off; their callers go on with the next hub");
    }
    loops.shutdown().await;
    // A call may have been taken between the decision to end and the end of listening.
    let is_needed = reason == IDLE && work::is_busy(&hub);
    store.close();
    if !is_needed
        && is_last_of_its_home(&hub, &home)
        && let Err(error) = home.remove_ephemeral()
    {
        tracing::error!(%error, "the home in memory cannot be removed");
    }
    drop(lock);
    if is_needed {
        tracing::info!("and another one begins: there is work after all");
        ensure_hub(&home).await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A home in memory goes with its hub, unless another version takes the hub over.
fn is_last_of_its_home(hub: &Hub, home: &Home) -> bool {
    home.is_ephemeral() && !hub.handed_over.load(Ordering::Relaxed)
}
