//! `adj __supervise <attempt-dir>`: the supervisor of one attempt.
//!
//! It starts the agent once, owns its pipes, process tree, exit and active time, writes its log and
//! the attempt's numbered facts, and relays the agent's calls to the hub. It continues without a
//! hub, and never decides the state of the run.
//!
//! ```text
//!  lock ─ journal, workspace, its setup ─ log, endpoint ─ marker ─ start ─ (select an event, apply it)* ─ drain ─ sweep ─ ended
//! ```
//! Before the marker no agent has run, and the hub may start the attempt again; after it, never.

mod approve;
mod attempt;
mod cli_log;
mod clock;
mod closing;
mod config_home;
mod deliverable;
mod end;
mod endpoint;
mod fence;
mod gate;
mod journal;
mod log_lines;
mod log_times;
mod log_writer;
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

use crate::attempt_processes::{EXIT_BEGUN_BEFORE, EXIT_LOCKED};
use crate::failpoint::failpoint;
use crate::harness::dialogue::Dialogue;
use crate::harness::{self, Launch, OwnTools, StartRefusal};
use crate::hub_client::{AgentActivity, Client};
use crate::process::containment::StartError;
use crate::process::start::INHERITED;
use crate::process::{Lock, hygiene};
use crate::protocol::{AttemptDir, FactKind, Order, Orders};
use crate::view::codes;
use crate::{files, logs, trace};
use adjutant_core::lease::Lease;
use adjutant_core::limits;
use adjutant_stream::reader::Reader;
use attempt::{Attempt, AttemptParts};
use axum::Router;
use closing::Closer;
use futures::FutureExt;
use gate::AttemptGate;
use journal::Journal;
use log_writer::LogWriter;
use output::Pump;
use run_tree::TreeAtStart;
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
use worker::{AgentLogs, Worker};

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

/// Runs a supervisor: standard input holds the order, descriptor 3 its lock, 4 the guard's
/// lifeline.
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
    order: Order,
    dir: &AttemptDir,
    lifeline: Option<OwnedFd>,
    lock: &Arc<Lock>,
    tools: WorkerTools,
) -> io::Result<ExitCode> {
    let above = sync_parent_directories(dir);
    let mut supervisor = Supervisor::new(order, dir, lock)?;
    match supervisor.start_agent(tools, above).await {
        Ok(agent) => supervisor.follow(agent, lifeline).await,
        Err(NotStarted::Refused(refusal)) => {
            Ok(record_refusal(supervisor.journal, refusal, lock).await)
        }
        Err(NotStarted::LeftToHub) => Ok(ExitCode::SUCCESS),
        Err(NotStarted::BegunBefore) => Ok(ExitCode::from(EXIT_BEGUN_BEFORE)),
    }
}

/// The parts of a supervisor that exist before its agent.
struct Supervisor<'a> {
    order: Order,
    dir: &'a AttemptDir,
    lock: &'a Arc<Lock>,
    client: Client,
    journal: Journal,
    orders: watch::Receiver<Orders>,
    tasks: JoinSet<()>,
}

/// Why an attempt has no agent.
enum NotStarted {
    /// Its last fact says why.
    Refused(StartRefusal),
    /// The hub settles an attempt that never started.
    LeftToHub,
    /// Another supervisor has started it.
    BegunBefore,
}

impl From<StartRefusal> for NotStarted {
    fn from(refusal: StartRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// An agent that was just started.
struct StartedAgent {
    worker: Worker,
    pump: Pump,
    dialogue: Option<Dialogue>,
    delivered: mpsc::UnboundedReceiver<String>,
    activity: Arc<AgentActivity>,
    has_connected: Arc<AtomicBool>,
    gate: Option<AttemptGate>,
    tree: TreeAtStart,
}

impl<'a> Supervisor<'a> {
    /// Opens the journal, and begins to send its facts and to follow the hub's orders.
    fn new(order: Order, dir: &'a AttemptDir, lock: &'a Arc<Lock>) -> io::Result<Self> {
        let client = Client::supervisor(&order, Arc::clone(lock));
        let mut tasks = JoinSet::new();
        let recorded = journal::Recorded::default();
        let (journal, uploader) = journal::open(dir, client.clone(), recorded.clone())?;
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
        Ok(Self {
            order,
            dir,
            lock,
            client,
            journal,
            orders,
            tasks,
        })
    }

    /// Prepares the workspace and the launch, creates the marker and starts the agent.
    async fn start_agent(
        &mut self,
        tools: WorkerTools,
        above: JoinHandle<io::Result<()>>,
    ) -> Result<StartedAgent, NotStarted> {
        self.prepare_workspace().await?;
        let activity = Arc::new(AgentActivity::default());
        let client = self.client.with_activity(Arc::clone(&activity));
        let Preparation {
            mut launch,
            logs,
            has_connected,
            gate,
        } = prepare(&self.order, self.dir, client, tools, &mut self.tasks).await?;
        let tree = run_tree::at_start(&self.order, self.dir, &self.orders).await;
        self.mark(above).await?;
        let (delivered_sender, delivered) = mpsc::unbounded_channel();
        let (worker, pump) = worker::start(
            &self.order,
            &launch,
            logs,
            delivered_sender,
            &mut self.tasks,
        )
        .map_err(|error| not_started(&self.order, &launch, &error))?;
        let dialogue = launch.dialogue.take();
        // The prompt may be large, and the agent has its own copy.
        drop((launch, std::mem::take(&mut self.order.prompt)));
        failpoint!("supervisor.after_spawn");
        Ok(StartedAgent {
            worker,
            pump,
            dialogue,
            delivered,
            activity,
            has_connected,
            gate,
            tree,
        })
    }

    /// Makes the workspace, and runs its setup command.
    async fn prepare_workspace(&mut self) -> Result<(), NotStarted> {
        workspace::make(&self.order, self.dir).await?;
        let (preparation, end) = setup::run(&self.order, self.dir, &self.orders).await;
        preparation
            .into_iter()
            .for_each(|text| self.journal.record(FactKind::WorkspacePrepared(text)));
        match end {
            SetupEnd::Ready => Ok(()),
            // Nothing ran that counts.
            SetupEnd::Stopped => Err(NotStarted::LeftToHub),
            SetupEnd::Failed(refusal) => Err(refusal.into()),
        }
    }

    /// Creates the marker, behind which the agent is started. `above` makes the directories above
    /// it durable.
    async fn mark(&self, above: JoinHandle<io::Result<()>>) -> Result<(), NotStarted> {
        if self.order.lease_ms.is_some() && !orders::is_confirmed(&self.orders).await {
            return Err(NotStarted::LeftToHub);
        }
        failpoint!("supervisor.before_marker");
        let marked = match mark_started(self.dir) {
            Ok(()) => above
                .await
                .map_err(io::Error::other)
                .and_then(|synced| synced),
            refused => refused,
        };
        match marked {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(NotStarted::BegunBefore);
            }
            Err(error) => return Err(not_prepared(self.dir, &error).into()),
        }
        failpoint!("supervisor.after_marker");
        Ok(())
    }

    /// Records the start of the agent, and runs the attempt to its end.
    async fn follow(self, agent: StartedAgent, lifeline: Option<OwnedFd>) -> io::Result<ExitCode> {
        let Self {
            order,
            dir,
            lock,
            client,
            mut journal,
            orders,
            mut tasks,
        } = self;
        let StartedAgent {
            mut worker,
            pump,
            dialogue,
            delivered,
            activity,
            has_connected,
            gate,
            tree: TreeAtStart { tree, problem },
        } = agent;
        let synced = workspace::sync_in_background(&order, dir);
        journal.record(started_fact(&mut worker));
        problem
            .into_iter()
            .for_each(|why| journal.record(FactKind::SnapshotFailed { why }));
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
        log_writer::finish(&mut logs);
        tasks.shutdown().await;
        remove_temporary(dir);
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the first fact about an agent.
fn started_fact(worker: &mut Worker) -> FactKind {
    let guard_pid =
        rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    FactKind::Started {
        pid: worker.pid.as_raw_nonzero().get().unsigned_abs(),
        guard_pid,
        containment: worker.containment.to_owned(),
        fence: worker.fence.take(),
    }
}

/// The preparations before the agent starts.
struct Preparation {
    launch: Launch,
    logs: AgentLogs,
    /// The run has connected to its endpoint.
    has_connected: Arc<AtomicBool>,
    gate: Option<AttemptGate>,
}

/// Opens the endpoint, determines how the agent is started, writes the prompt and its files, and
/// creates the log and the file of the raw stream.
async fn prepare(
    order: &Order,
    dir: &AttemptDir,
    client: Client,
    tools: WorkerTools,
    tasks: &mut JoinSet<()>,
) -> Result<Preparation, StartRefusal> {
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
    let log = LogWriter::create(order, dir).map_err(failed)?;
    let lines_of = match &launch.stream {
        Some(stream) => Some((
            Reader::new(stream, order.answer_bytes_max.max(limits::RESULT_BYTES_MAX)),
            LogWriter::create_raw(order, dir).map_err(failed)?,
        )),
        None => None,
    };
    Ok(Preparation {
        launch,
        logs: AgentLogs { log, lines_of },
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

/// Creates the marker after which the attempt is never started again, durable when it returns. Its
/// content says that an agent may have been started; an empty marker says that none was.
fn mark_started(dir: &AttemptDir) -> io::Result<()> {
    let mut marker = files::create_new(dir.home(), &dir.started_marker())?;
    marker.write_all(b"begun\n")?;
    marker.sync_all()?;
    Ok(rustix::fs::fsync(files::open_dir(dir.home(), &dir.0)?)?)
}

/// Makes the directories above an attempt's directory durable, which may be new too. This takes as
/// long as the marker, so both run at the same time.
fn sync_parent_directories(dir: &AttemptDir) -> JoinHandle<io::Result<()>> {
    let dir = dir.clone();
    tokio::task::spawn_blocking(move || {
        files::sync_dirs(dir.home(), dir.0.parent().unwrap_or(&dir.0))
    })
}

fn not_prepared(dir: &AttemptDir, error: &io::Error) -> StartRefusal {
    let code = if files::is_unwritable(error) {
        codes::STORAGE_FULL
    } else {
        codes::STORAGE
    };
    StartRefusal {
        code,
        message: format!(
            "the attempt's files in {} cannot be written: {error}",
            dir.0.display()
        ),
    }
}

fn no_gate(order: &Order, error: &io::Error) -> StartRefusal {
    StartRefusal {
        code: codes::INVALID,
        message: format!(
            "the gate of agent {} cannot be opened: {error}",
            order.agent
        ),
    }
}

fn not_started(order: &Order, launch: &Launch, error: &StartError) -> StartRefusal {
    match error {
        StartError::Worker(error) => harness::explain(order, launch, error),
        StartError::Fence(why) => StartRefusal {
            code: codes::NO_FENCE,
            message: format!(
                "the fence cannot be enforced here: {why}. See adj doctor, or start the run with --fence best-effort or none"
            ),
        },
        StartError::Containment(error) => StartRefusal {
            code: codes::INVALID,
            message: format!(
                "a PID namespace cannot be created here ({error}): run as root, or set containment = \"auto\" or \"subreaper\""
            ),
        },
    }
}

async fn record_refusal(mut journal: Journal, refusal: StartRefusal, lock: &Lock) -> ExitCode {
    journal.record(FactKind::SpawnFailed {
        code: refusal.code.to_owned(),
        message: refusal.message,
    });
    upload_last_fact(&mut journal, lock).await;
    ExitCode::SUCCESS
}

/// Sends the last fact to the hub, for a limited time, because the hub also finds it on disk. If
/// the disk is full, tries until one of them has it, because nothing else knows how the attempt
/// ended. Nobody takes it once the lock is removed.
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
