//! The hub: the process that opens the store. It schedules runs, enforces deadlines, receives facts
//! and wakes waiters. It never touches an agent's pipes, so runs survive its death.

mod auth;
mod calls;
mod capacity;
mod chats;
mod connections;
mod contract;
mod copy;
mod ending;
mod error;
mod home;
mod http;
mod launches;
mod listening;
mod log_store;
mod options;
mod peers;
mod pressure;
mod ready;
mod router;
mod serving;
mod standby;
mod standby_logs;
mod start;
mod state;
mod versions;
mod webhooks;
mod work;

use crate::config::{Config, Home};
use crate::ops::Ops;
use crate::process::{Lock, ReadyPipe, hygiene};
use crate::store::{ConfirmedNote, Lead};
use crate::versions::Versions;
use adjutant_core::Time;
use connections::Connections;
pub use copy::{
    Copied, CopiedTable, CopyError, Progress, StoreCopyError, StoreLocation as StorePlace,
    copy_store,
};
use ending::Served;
use error::HubError;
pub use http::McpServer;
pub(crate) use http::NewMcpServer;
use options::Options;
use start::Stopped;
use std::cell::OnceCell;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

/// Maximum number of threads for blocking tasks.
const BLOCKING_MAX: usize = 16;
/// That of a hub whose store is on a server.
const WAITING_MAX: usize = 512;
/// How long the reply of a hub that shares its store waits for the confirmation that it is the
/// leader.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);
/// How long blocking tasks (starting a guard, writing a copy) may take once the hub has ended.
const THREADS_END_MAX: Duration = Duration::from_secs(1);
/// A hub log larger than this is rotated.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;

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
    /// Returns whether this hub may answer: it does not share its store, or has just confirmed that
    /// it is the leader.
    async fn leads(&self) -> bool {
        match &self.lead {
            None => true,
            Some(lead) => lead.confirmed_within(CONFIRM_TIMEOUT).await,
        }
    }
}

/// Runs the hub of the environment's home until it is asked to end, or has been idle for long
/// enough.
#[must_use]
pub fn main(args: &[OsString], new_mcp_server: NewMcpServer) -> ExitCode {
    // Kept outside `run`, so that a failed start can still be reported on the pipe.
    ready::keep_pipe(ReadyPipe::inherited());
    crate::trace::start("info");
    match run(args, new_mcp_server) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let message = error.to_string();
            tracing::error!(%message, "the hub cannot run");
            ready::report_ready(&message);
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[OsString], new_mcp_server: NewMcpServer) -> Result<(), HubError> {
    let options = Options::parse(args)?;
    hygiene::background().map_err(HubError::Io)?;
    let home = Home::from_env()?;
    home.ensure()?;
    crate::trace::limit_log_file(&home.dir, &home.hub_log(), LOG_BYTES_MAX);
    // The lock of the home, which a hub that is no longer the leader keeps, so that no other one is
    // started meanwhile.
    let mut kept = None;
    let note = OnceCell::new();
    loop {
        let runtime = runtime_for(&home)?;
        let serving = async {
            match serve(home.clone(), &options, new_mcp_server, kept.take(), &note).await {
                Ok(served) | Err(Stopped::Over(served)) => Ok(served),
                Err(Stopped::Failed(error)) => Err(error),
            }
        };
        let served = runtime.block_on(serving);
        runtime.shutdown_timeout(THREADS_END_MAX);
        match served? {
            Served::Ended => return Ok(()),
            // All parts of the leader have ended.
            Served::LeadLost(lock) => kept = Some(lock),
        }
    }
}

fn runtime_for(home: &Home) -> Result<Runtime, HubError> {
    // Each call that waits for a server has a thread.
    let is_on_server = Config::store_of(home).is_ok_and(|store| store.is_some());
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(if is_on_server {
            WAITING_MAX
        } else {
            BLOCKING_MAX
        })
        .thread_keep_alive(Duration::from_secs(5))
        .enable_all()
        .build()
        .map_err(HubError::Io)
}

/// Serves a home, phase by phase.
async fn serve(
    home: Home,
    options: &Options,
    new_mcp_server: NewMcpServer,
    kept: Option<Lock>,
    note: &OnceCell<Arc<ConfirmedNote>>,
) -> Result<Served, Stopped> {
    let claimed = start::claim_home(home, kept).await?;
    let led = claimed.await_lead(options, note).await?;
    let opened = led.open_store().await?;
    let begun = opened.begin(options, new_mcp_server).await?;
    let mut serving = begun.listen(options).await?;
    let reason = serving.until_end().await;
    serving.end_runs(&reason).await;
    Ok(serving.close(reason).await?)
}
