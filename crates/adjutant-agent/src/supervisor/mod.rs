//! `adj __supervise <attempt-dir>`: the supervisor of one attempt.
//!
//! It starts the agent once, owns its pipes, process tree, exit and active time, writes its log and the attempt's numbered
//! facts, and relays the agent's calls to the hub. It continues without a hub, and never decides the state of the run.
//!
//! ```text
//!  lock ─ journal, workspace, its setup ─ log, endpoint ─ marker ─ start ─ (select an event, apply it)* ─ drain ─ sweep ─ ended
//! ```
//! Before the marker no agent has run, and the hub may start the attempt again; after it, never.

mod approve;
mod attempt;
mod clock;
mod closing;
mod config_home;
mod deliverable;
mod end;
mod endpoint;
mod fence;
mod gate;
mod journal;
mod log_files;
mod log_lines;
mod log_times;
mod logfile;
mod orders;
mod output;
mod own_log;
mod permits;
mod run_tree;
mod setup;
mod side_command;
mod stall;
mod stop;
mod worker;
mod workspace;

pub use journal::read_all as read_facts;

use crate::client::{AgentActivity, Client};
use crate::failpoint::failpoint;
use crate::files;
use crate::harness::{self, Launch, OwnTools, Refusal};
use crate::link::{AttemptDir, FactKind, Order, Orders};
use crate::logs;
use crate::process::containment::StartError;
use crate::process::start::INHERITED;
use crate::process::{EXIT_BEGUN_BEFORE, EXIT_LOCKED, Lock, hygiene};
use crate::trace;
use crate::view::codes;
use adjutant_core::lease::Lease;
use adjutant_core::limits;
use adjutant_stream::reader::Reader;
use attempt::{Attempt, AttemptParts};
use axum::Router;
use closing::Closer;
use futures::FutureExt;
use gate::AttemptGate;
use journal::Journal;
use logfile::LogFile;
use setup::SetupEnd;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

/// How long the supervisor tries to send the last fact. After that, the hub finds it on disk.
const LAST_FACT_MAX: Duration = Duration::from_secs(10);
/// A log of guard and supervisor larger than this is rotated.
const LOG_BYTES_MAX: u64 = 1024 * 1024;

/// A run's tools, which the program gives to its supervisor.
#[derive(Debug, Clone, Copy)]
pub struct WorkerTools {
    /// Returns their names, in every accepted spelling.
    pub own: fn() -> OwnTools,
    /// Serves them at `/mcp` to local callers with a token. They make their calls with the client.
    pub router: fn(Client, &str) -> Router,
}

/// Runs a supervisor: standard input holds the order, descriptor 3 its lock, 4 the guard's lifeline.
#[must_use]
pub fn main(args: &[OsString], tools: WorkerTools) -> ExitCode {
    let Some(dir) = args.first() else {
        return ExitCode::FAILURE;
    };
    let dir = AttemptDir(PathBuf::from(dir));
    let (lock, lifeline) = (
        hygiene::inherited(INHERITED),
        hygiene::inherited(INHERITED + 1),
    );
    trace::start("info");
    match begin(&dir, lock, lifeline, tools) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(%error, dir = %dir.0.display(), "the attempt could not be supervised");
            ExitCode::FAILURE
        }
    }
}

fn begin(
    dir: &AttemptDir,
    lock: Option<OwnedFd>,
    lifeline: Option<OwnedFd>,
    tools: WorkerTools,
) -> io::Result<ExitCode> {
    hygiene::background()?;
    trace::limit_log_file(dir.home(), &dir.log(), LOG_BYTES_MAX);
    let Some(lock) = Lock::adopt_or_take(lock, dir.home(), &dir.supervisor_lock())? else {
        return Ok(ExitCode::from(EXIT_LOCKED));
    };
    lock.write_pid(rustix::process::getpid())?;
    hygiene::become_subreaper()?;
    if files::look(dir.home(), &dir.started_marker())?.is_some() {
        return Ok(ExitCode::from(EXIT_BEGUN_BEFORE));
    }
    let mut text = Vec::new();
    io::stdin().lock().read_to_end(&mut text)?;
    hygiene::drop_stdin()?;
    let order: Order = serde_json::from_slice(&text)?;
    drop(text);
    if AttemptDir::new(&order.home, &order.run_id, order.attempt).0 != dir.0 {
        return Err(io::Error::other("the order is for another attempt"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let lock = Arc::new(lock);
    let code = runtime.block_on(supervise(order, dir, lifeline, &lock, tools))?;
    // A task that hangs must not keep the process alive.
    runtime.shutdown_background();
    drop(lock);
    Ok(code)
}

/// Supervises one attempt from its start to its end.
async fn supervise(
    mut order: Order,
    dir: &AttemptDir,
    lifeline: Option<OwnedFd>,
    lock: &Arc<Lock>,
    tools: WorkerTools,
) -> io::Result<ExitCode> {
    let above = sync_parent_directories(dir);
    let client = Client::supervisor(&order, Arc::clone(lock));
    let mut tasks = JoinSet::new();
    let recorded = journal::Recorded::default();
    let (mut journal, uploader) = journal::open(dir, client.clone(), recorded.clone())?;
    tasks.spawn(uploader.run().boxed());
    let (orders_sender, orders) = watch::channel(Orders::default());
    let lease = order.lease_ms.map(Lease::from_ms);
    tasks.spawn(
        orders::follow(
            client.clone(),
            orders_sender,
            recorded,
            lease,
            Arc::clone(lock),
        )
        .boxed(),
    );

    if let Err(refusal) = workspace::make(&order, dir).await {
        return Ok(record_refusal(journal, refusal, lock).await);
    }
    let (preparation, end) = setup::run(&order, dir, &orders).await;
    preparation
        .into_iter()
        .for_each(|text| journal.state(FactKind::WorkspacePrepared(text)));
    match end {
        SetupEnd::Ready => {}
        // Nothing ran that counts: the hub settles an attempt that never started.
        SetupEnd::Stopped => return Ok(ExitCode::SUCCESS),
        SetupEnd::Failed(refusal) => return Ok(record_refusal(journal, refusal, lock).await),
    }
    let activity = Arc::new(AgentActivity::default());
    let Preparation {
        mut launch,
        log,
        lines_of,
        has_connected,
        gate,
    } = match prepare(
        &order,
        dir,
        client.with_activity(Arc::clone(&activity)),
        tools,
        &mut tasks,
    )
    .await
    {
        Ok(prepared) => prepared,
        Err(refusal) => return Ok(record_refusal(journal, refusal, lock).await),
    };
    let run_tree::TreeAtStart { tree, problem } = run_tree::at_start(&order, dir, &orders).await;
    if order.lease_ms.is_some() && !orders::is_confirmed(&orders).await {
        // The hub settles an attempt that never started.
        return Ok(ExitCode::SUCCESS);
    }
    failpoint!("supervisor.before_marker");
    let marked = match mark_started(dir) {
        Ok(()) => above
            .await
            .map_err(io::Error::other)
            .and_then(|synced| synced),
        refused => refused,
    };
    match marked {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(ExitCode::from(EXIT_BEGUN_BEFORE));
        }
        Err(error) => return Ok(record_refusal(journal, not_prepared(dir, &error), lock).await),
    }
    failpoint!("supervisor.after_marker");
    let (delivered_sender, delivered) = mpsc::unbounded_channel();
    let (mut worker, pump) =
        match worker::start(&order, &launch, log, lines_of, delivered_sender, &mut tasks) {
            Ok(started) => started,
            Err(error) => {
                return Ok(
                    record_refusal(journal, not_started(&order, &launch, &error), lock).await,
                );
            }
        };
    let dialogue = launch.dialogue.take();
    // The prompt may be large, and the agent has its own copy.
    drop((launch, std::mem::take(&mut order.prompt)));
    failpoint!("supervisor.after_spawn");
    let synced = workspace::sync_in_background(&order, dir);
    let guard_pid =
        rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    journal.state(FactKind::Started {
        pid: worker.pid.as_raw_nonzero().get().unsigned_abs(),
        guard_pid,
        containment: worker.containment.to_owned(),
        fence: worker.fence.take(),
    });
    problem
        .into_iter()
        .for_each(|why| journal.state(FactKind::SnapshotFailed { why }));
    let guard = lifeline.map(pipe::Receiver::from_owned_fd).transpose()?;
    let closer = Closer {
        order: &order,
        client: client.clone(),
        has_connected,
        tree,
        synced,
        lock,
    };
    let parts = AttemptParts {
        journal,
        worker,
        orders,
        delivered,
        guard,
        client,
        dialogue,
        activity,
        gate,
    };
    let (mut journal, mut logs) = Attempt::new(&order, parts).run(pump, &closer).await;
    upload_last_fact(&mut journal, lock).await;
    // The disk may have room again, as it had for the last fact.
    logfile::finish(&mut logs);
    tasks.shutdown().await;
    remove_temporary(dir);
    Ok(ExitCode::SUCCESS)
}

/// The preparations before the agent starts.
struct Preparation {
    launch: Launch,
    log: LogFile,
    /// The reader of its structured stream, and the file of the raw stream.
    lines_of: Option<(Reader, LogFile)>,
    /// The run has connected to its endpoint.
    has_connected: Arc<AtomicBool>,
    gate: Option<AttemptGate>,
}

/// Opens the endpoint, determines how the agent is started, writes the prompt and its files, and creates the log and the
/// file of the raw stream.
async fn prepare(
    order: &Order,
    dir: &AttemptDir,
    client: Client,
    tools: WorkerTools,
    tasks: &mut JoinSet<()>,
) -> Result<Preparation, Refusal> {
    let failed = |error: io::Error| not_prepared(dir, &error);
    let of_hub = client.clone();
    let (access, has_connected) = endpoint::serve(order, dir, client, tools.router, tasks)
        .await
        .map_err(failed)?;
    let gate = gate::open(order, &of_hub, tasks)
        .await
        .map_err(|error| no_gate(order, &error))?;
    let gate_access = gate.as_ref().map(AttemptGate::access);
    let launch = harness::launch(order, dir, &access, gate_access, (tools.own)())?;
    write_private(
        dir,
        &logs::prompt_path(&order.home, &order.run_id, order.attempt),
        &order.prompt,
    )
    .map_err(failed)?;
    for (path, text) in &launch.files {
        write_private(dir, path, text).map_err(failed)?;
    }
    if let Some(temporary) = &launch.temporary {
        files::make_dirs(dir.home(), temporary).map_err(failed)?;
    }
    if let Some(home) = &launch.attempt_home {
        config_home::make(
            dir,
            home,
            fence::link_free_base(order, &home.user_home).as_deref(),
        )?;
    }
    let log = LogFile::create(order, dir).map_err(failed)?;
    let lines_of = match &launch.stream {
        Some(stream) => Some((
            Reader::new(stream, order.answer_bytes_max.max(limits::RESULT_BYTES_MAX)),
            LogFile::create_raw(order, dir).map_err(failed)?,
        )),
        None => None,
    };
    Ok(Preparation {
        launch,
        log,
        lines_of,
        has_connected,
        gate,
    })
}

/// Removes the agent's temporary files. Files that cannot be removed now are removed with the run.
fn remove_temporary(dir: &AttemptDir) {
    for temporary in [dir.temporary(), dir.fence()] {
        match std::fs::remove_dir_all(temporary) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, "the agent's temporary files cannot be removed yet")
            }
        }
    }
}

/// Writes a private file in the attempt's home. A file of an earlier attempt is removed.
fn write_private(dir: &AttemptDir, path: &Path, text: &str) -> io::Result<()> {
    files::replace(dir.home(), path)?.write_all(text.as_bytes())
}

/// Creates the marker after which the attempt is never started again, durable when it returns. Its content says that an
/// agent may have been started; an empty marker says that none was.
fn mark_started(dir: &AttemptDir) -> io::Result<()> {
    let mut marker = files::create_new(dir.home(), &dir.started_marker())?;
    marker.write_all(b"begun\n")?;
    marker.sync_all()?;
    Ok(rustix::fs::fsync(files::open_dir(dir.home(), &dir.0)?)?)
}

/// Makes the directories above an attempt's directory durable, which may be new too. This takes as long as the marker, so
/// both run at the same time.
fn sync_parent_directories(dir: &AttemptDir) -> JoinHandle<io::Result<()>> {
    let dir = dir.clone();
    tokio::task::spawn_blocking(move || {
        files::sync_dirs(dir.home(), dir.0.parent().unwrap_or(&dir.0))
    })
}

fn not_prepared(dir: &AttemptDir, error: &io::Error) -> Refusal {
    let code = if files::is_unwritable(error) {
        codes::STORAGE_FULL
    } else {
        codes::STORAGE
    };
    Refusal {
        code,
        message: format!(
            "the attempt's files in {} cannot be written: {error}",
            dir.0.display()
        ),
    }
}

fn no_gate(order: &Order, error: &io::Error) -> Refusal {
    Refusal {
        code: codes::INVALID,
        message: format!(
            "the gate of agent {} cannot be opened: {error}",
            order.agent
        ),
    }
}

fn not_started(order: &Order, launch: &Launch, error: &StartError) -> Refusal {
    match error {
        StartError::Worker(error) => harness::explain(order, launch, error),
        StartError::Fence(why) => Refusal {
            code: codes::NO_FENCE,
            message: format!(
                "the fence cannot be enforced here: {why}. See adj doctor, or start the run with --fence best-effort or none"
            ),
        },
        StartError::Containment(error) => Refusal {
            code: codes::INVALID,
            message: format!(
                "a PID namespace cannot be created here ({error}): run as root, or set containment = \"auto\" or \"subreaper\""
            ),
        },
    }
}

async fn record_refusal(mut journal: Journal, refusal: Refusal, lock: &Lock) -> ExitCode {
    journal.state(FactKind::SpawnFailed {
        code: refusal.code.to_owned(),
        message: refusal.message,
    });
    upload_last_fact(&mut journal, lock).await;
    ExitCode::SUCCESS
}

/// Sends the last fact to the hub, for a limited time, because the hub also finds it on disk. If the disk is full, tries
/// until one of them has it, because nothing else knows how the attempt ended. Nobody takes it once the lock is removed.
async fn upload_last_fact(journal: &mut Journal, lock: &Lock) {
    while !lock.is_removed()
        && tokio::time::timeout(LAST_FACT_MAX, journal.received_by_hub())
            .await
            .is_err()
    {
        if journal.is_on_disk() {
            tracing::warn!("the last fact cannot be sent to the hub, which finds it on disk");
            return;
        }
    }
}
