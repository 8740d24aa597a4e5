//! The phases of a hub before it serves callers. Each is a function that returns what the next one
//! needs:
//!
//! ```text
//!  claim_home ──> Claimed ── await_lead ──> Led ── open_store ──> Opened
//!                                                                   │ begin
//!                       Serving <── listen ── Begun <───────────────┘
//! ```

use super::capacity::Capacity;
use super::connections::Connections;
use super::ending::{EndSignals, Served};
use super::error::{HubError, NotBegun};
use super::home::Socket;
use super::http::{self, HttpListener, NewMcpServer};
use super::options::Options;
use super::ready::report_ready;
use super::serving::{Listeners, Serving};
use super::{
    Hub, Shared, contract, launches, listening, log_store, peers, pressure, router, standby,
    versions, webhooks, work,
};
use crate::config::{Config, Home, LogStoreAddress};
use crate::failpoint::failpoint;
use crate::hub_client::{VERSION, wait_until_served};
use crate::ops::{MergeJournal, Ops, Webhooks, set_back};
use crate::process::{Lock, hygiene, lock, watch};
use crate::store::{ConfirmedNote, Lead, Store, StoreError, StoreLocation};
use crate::versions::Versions;
use futures::FutureExt;
use std::cell::OnceCell;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a hub waits for its predecessor to release the home.
const PREDECESSOR_EXIT_MAX: Duration = Duration::from_secs(10);
/// The hub's startup work has finished after this time.
const STARTUP_TIME: Duration = Duration::from_secs(1);

/// Why a hub does not reach its next phase.
pub(super) enum Stopped {
    Over(Served),
    Failed(HubError),
}

impl<E: Into<HubError>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// The home is locked for this hub.
pub(super) struct Claimed {
    pub(super) home: Home,
    pub(super) lock: Lock,
    pub(super) signals: EndSignals,
    capacity: Capacity,
}

/// Locks the home. `kept`: the lock of a hub that was the leader until now.
pub(super) async fn claim_home(home: Home, kept: Option<Lock>) -> Result<Claimed, Stopped> {
    let capacity = Capacity::of(hygiene::descriptors_max())?;
    let taken = match kept {
        Some(lock) => Some(lock),
        None => take_home(&home).await?,
    };
    let Some(lock) = taken else {
        return Err(if report_ready("ready") {
            Stopped::Over(Served::Ended)
        } else {
            HubError::AlreadyServed { home: home.dir }.into()
        });
    };
    if home.runner_identity().exists() {
        return Err(HubError::HomeOfRunner { home: home.dir }.into());
    }
    failpoint!("hub.locked");
    let signals = EndSignals::new().map_err(HubError::Io)?;
    Ok(Claimed {
        home,
        lock,
        signals,
        capacity,
    })
}

/// Takes the home's lock, waiting for a predecessor that is ending. `None`: another hub serves the
/// home.
async fn take_home(home: &Home) -> Result<Option<Lock>, HubError> {
    let path = home.hub_lock();
    let failed = |source: std::io::Error| HubError::File {
        path: path.clone(),
        source,
    };
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
                return Err(HubError::HomeInUse {
                    pid: lock::written_pid(&home.dir, &path)
                        .ok()
                        .flatten()
                        .map(|pid| pid.as_raw_nonzero().get()),
                    home: home.dir.clone(),
                });
            }
        }
    }
}

/// This hub is the leader, if it shares its store.
pub(super) struct Led {
    claimed: Claimed,
    place: StoreLocation,
    note: Arc<ConfirmedNote>,
    log_store: Option<LogStoreAddress>,
    lead: Option<Arc<Lead>>,
}

impl Claimed {
    /// Waits for leadership, if the store is shared. `note` is kept while the store is opened
    /// again, and opened only by the hub that has the home.
    pub(super) async fn await_lead(
        mut self,
        options: &Options,
        note: &OnceCell<Arc<ConfirmedNote>>,
    ) -> Result<Led, Stopped> {
        let place = match Config::store_of(&self.home)? {
            Some(address) => StoreLocation::Postgres(address),
            None => StoreLocation::Home(self.home.clone()),
        };
        let note = Arc::clone(note.get_or_init(|| match &place {
            StoreLocation::Home(_) => ConfirmedNote::in_memory(),
            StoreLocation::Postgres(_) => ConfirmedNote::open(&self.home),
        }));
        let log_store = Config::log_store_of(&self.home)?;
        let lead = match &place {
            StoreLocation::Postgres(address) if Config::load(&self.home)?.store_shared => {
                let candidate = standby::Candidate {
                    home: &self.home,
                    lock: &self.lock,
                    address,
                    note: &note,
                    log_store: log_store.as_ref(),
                    options,
                };
                match candidate.until_lead(&mut self.signals).await? {
                    Some(lead) => Some(lead),
                    None => return Err(Stopped::Over(Served::Ended)),
                }
            }
            StoreLocation::Postgres(_) | StoreLocation::Home(_) => None,
        };
        Ok(Led {
            claimed: self,
            place,
            note,
            log_store,
            lead,
        })
    }
}

/// The store is open.
pub(super) struct Opened {
    claimed: Claimed,
    store: Store,
    log_store: Option<LogStoreAddress>,
    lead: Option<Arc<Lead>>,
}

impl Led {
    pub(super) async fn open_store(self) -> Result<Opened, Stopped> {
        let Self {
            mut claimed,
            place,
            note,
            log_store,
            lead,
        } = self;
        let (home, leading) = (claimed.home.clone(), lead.clone());
        let opening = tokio::task::spawn_blocking(move || match leading {
            Some(lead) => Store::open_shared(&home, lead),
            None => Store::open_with(&home, place, &note),
        });
        let opened = tokio::select! {
            opened = opening => opened?,
            // A server can take long, and an unfinished migration takes no effect.
            _ = claimed.signals.received() => return Err(Stopped::Over(Served::Ended)),
        };
        let store = match (opened, &lead) {
            (Ok(store), _) => store,
            // The session ended, or the server became read-only, between winning the lock and
            // beginning to lead. It can be won again.
            (Err(problem @ (StoreError::Lost(_) | StoreError::Unreachable(_))), Some(lead))
                if !lead.is_refused() =>
            {
                tracing::warn!(%problem, "this hub cannot begin to lead");
                lead.end();
                return Err(Stopped::Over(Served::LeadLost(claimed.lock)));
            }
            // It was set back meanwhile.
            (Err(StoreError::Closed), lead) => {
                lead.iter().for_each(|lead| lead.end());
                return Err(Stopped::Over(Served::LeadLost(claimed.lock)));
            }
            (Err(error), _) => return Err(error.into()),
        };
        Ok(Opened {
            claimed,
            store,
            log_store,
            lead,
        })
    }
}

/// What the store knows to be under way is adopted, and the loops of the hub work.
pub(super) struct Begun {
    claimed: Claimed,
    store: Store,
    lead: Option<Arc<Lead>>,
    hub: Shared,
    loops: JoinSet<()>,
    listeners: mpsc::Receiver<HttpListener>,
}

impl Opened {
    pub(super) async fn begin(
        self,
        options: &Options,
        new_mcp_server: NewMcpServer,
    ) -> Result<Begun, Stopped> {
        let Self {
            claimed,
            store,
            log_store,
            lead,
        } = self;
        let Claimed { home, capacity, .. } = &claimed;
        let (listening, listeners) = listening::Listening::new();
        let hub = Arc::new(Hub {
            ops: Ops::new(
                store.clone(),
                home.clone(),
                capacity.live_runs_max,
                log_store,
            ),
            version: options
                .as_version
                .clone()
                .unwrap_or_else(|| VERSION.to_owned()),
            started_at: crate::clock::now(),
            connections: Arc::new(Connections::new(capacity.connections_max)),
            versions: Versions::new(home),
            listening,
            sign_ins: http::SignIns::default(),
            new_mcp_server,
            stop: Notify::new(),
            handed_over: AtomicBool::new(false),
            lead: lead.clone(),
        });
        // Boxed, here and in supervisors, so that the task code is compiled once and not for each
        // loop.
        let mut loops = JoinSet::new();
        match adopt(&hub, &mut loops).await {
            Ok(()) => {}
            Err(NotBegun::Refused(problem)) => return Err(problem.into()),
            Err(NotBegun::Again(problem)) => {
                let problem = problem.to_string();
                tracing::warn!(problem, "this hub cannot begin, and tries again");
                lead.iter().for_each(|lead| lead.end());
                store.abandon();
                loops.abort_all();
                return Err(Stopped::Over(Served::LeadLost(claimed.lock)));
            }
        }
        MergeJournal::of(&hub.ops).recover().await;
        // The webhooks are loaded, so that they receive the events of the first call.
        if let Err(error) = Webhooks::of(&hub.ops).subscribe().await {
            tracing::warn!(%error, "the webhooks stay as they were");
        }
        start_loops(&hub, &mut loops);
        Ok(Begun {
            claimed,
            store,
            lead,
            hub,
            loops,
            listeners,
        })
    }
}

/// Prepares the first call: what the store knows to be under way is adopted.
async fn adopt(hub: &Shared, loops: &mut JoinSet<()>) -> Result<(), NotBegun> {
    hub.ops
        .log_store
        .check()
        .await
        .map_err(|error| NotBegun::Refused(error.into()))?;
    if hub.lead.is_some() {
        standby::check_local_attempts(hub)?;
    }
    hub.ops.first_reports.expect_all()?;
    // Before the first call: the predecessor's runs are watched, so that none counts as lost.
    work::adopt(hub, loops).await?;
    let is_over = hub.ops.store().has_begun_era()
        && work::end_unknown(hub)
            .await
            .inspect_err(|error| tracing::error!(%error, "attempts that the database has lost cannot be ended yet"))
            .is_ok();
    // An earlier hub may have ended before it could end them.
    if !is_over && set_back(hub.ops.store()).is_some() {
        loops.spawn(work::end_unknown_in_background(Arc::clone(hub)).boxed());
    }
    Ok(())
}

/// Starts the hub's own work.
fn start_loops(hub: &Shared, loops: &mut JoinSet<()>) {
    let connections = Arc::clone(&hub.connections);
    loops.spawn(async move { connections.close_silent().await }.boxed());
    loops.spawn(work::await_first_reports(Arc::clone(hub)).boxed());
    loops.spawn(work::after_first_reports(hub, work::schedule(Arc::clone(hub))).boxed());
    loops.spawn(work::after_first_reports(hub, launches::launch(Arc::clone(hub))).boxed());
    loops.spawn(work::after_first_reports(hub, pressure::watch(Arc::clone(hub))).boxed());
    loops.spawn(work::after_first_reports(hub, work::apply_deadlines(Arc::clone(hub))).boxed());
    loops.spawn(work::watch_leases(Arc::clone(hub)).boxed());
    loops.spawn(log_store::move_logs(Arc::clone(hub)).boxed());
    loops.spawn(work::after_first_reports(hub, work::clean_up(Arc::clone(hub))).boxed());
    loops.spawn(work::render(Arc::clone(hub)).boxed());
    loops.spawn(work::watch_trees(Arc::clone(hub)).boxed());
    loops.spawn(work::after_first_reports(hub, work::answer_chats(Arc::clone(hub))).boxed());
    loops.spawn(work::drop_credentials(Arc::clone(hub)).boxed());
    loops.spawn(work::index(Arc::clone(hub)).boxed());
    loops.spawn(webhooks::deliver(Arc::clone(hub)).boxed());
    loops.spawn(peers::follow(Arc::clone(hub)).boxed());
    loops.spawn(versions::ask_unknown(Arc::clone(hub)).boxed());
}

impl Begun {
    /// Opens the port, if one is configured, and the socket, and reports to the starter.
    pub(super) async fn listen(self, options: &Options) -> Result<Serving, Stopped> {
        // The lock first: if this fails, it is released after everything else has ended.
        let Self {
            claimed:
                Claimed {
                    lock,
                    home,
                    signals,
                    ..
                },
            store,
            lead,
            hub,
            mut loops,
            listeners,
        } = self;
        listening::listen(&hub, options.listen, options.foreground).await?;
        if let Some(lead) = lead.clone() {
            loops.spawn(standby::announce(Arc::clone(&hub), lead).boxed());
        }
        let listeners = open_listeners(&home, &hub, listeners)?;
        failpoint!("hub.listening");
        tracing::info!(home = %home.dir.display(), version = %hub.version, "the hub is ready");
        if options.foreground
            && let Err(error) = std::io::stderr().write_all(greeting(&home, &hub).as_bytes())
        {
            tracing::debug!(%error, "the greeting could not be written");
        }
        report_ready("ready");
        loops.spawn(release_startup_code().boxed());
        Ok(Serving {
            home,
            lock,
            signals,
            hub,
            store,
            lead,
            loops,
            listeners,
            is_asked_to_listen: options.listen.is_some(),
        })
    }
}

/// Serves the port, once it is opened, and the socket.
fn open_listeners(
    home: &Home,
    hub: &Shared,
    mut opened: mpsc::Receiver<HttpListener>,
) -> Result<Listeners, HubError> {
    let calls = Arc::new(listening::with_dashboard(contract::calls()));
    let closing_http = CancellationToken::new();
    let mut http_loops = JoinSet::new();
    let http = {
        let (hub, calls) = (Arc::clone(hub), Arc::clone(&calls));
        let closing = closing_http.clone();
        async move {
            let opened = tokio::select! {
                opened = opened.recv() => opened,
                () = closing.cancelled() => None,
            };
            if let Some(listener) = opened {
                listener.serve(hub, calls, closing).await;
            }
        }
    };
    http_loops.spawn(http.boxed());
    let (socket, listener, renewed) = Socket::bind(home).map_err(|source| HubError::File {
        path: home.socket(),
        source,
    })?;
    let closing = Arc::new(Notify::new());
    let server = router::serve(
        Arc::clone(hub),
        calls,
        listener,
        renewed,
        Arc::clone(&closing),
    );
    Ok(Listeners {
        socket,
        closing,
        // It may have ended when the hub waits for its end.
        server: server.fuse().boxed(),
        closing_http,
        http_loops,
    })
}

/// Returns what a hub in the foreground prints first.
fn greeting(home: &Home, hub: &Hub) -> String {
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
    format!(
        "serving {} (pid {})\n{listens}Ctrl-C ends {runs}\n",
        home.dir.display(),
        std::process::id()
    )
}

async fn release_startup_code() {
    tokio::time::sleep(STARTUP_TIME).await;
    if let Err(error) = hygiene::release_code() {
        tracing::debug!(%error, "the memory of the startup code cannot be released");
    }
}
