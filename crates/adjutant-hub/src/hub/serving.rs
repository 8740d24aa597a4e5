//! A hub that serves callers, until it ends.

use super::ending::{CALLS_END_MAX, EndReason, EndSignals, Served};
use super::error::HubError;
use super::home::{self, Lost, Socket};
use super::{Hub, Shared, work};
use crate::config::Home;
use crate::hub_client::ensure_hub;
use crate::process::Lock;
use crate::store::{Lead, Store};
use futures::future::BoxFuture;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long runs may take to end after their home was removed.
const RUNS_END_MAX: Duration = Duration::from_secs(3);

/// The socket and the port, with the tasks that serve them.
pub(super) struct Listeners {
    pub(super) socket: Socket,
    pub(super) closing: Arc<Notify>,
    pub(super) server: BoxFuture<'static, io::Result<()>>,
    pub(super) closing_http: CancellationToken,
    pub(super) http_loops: JoinSet<()>,
}

impl Listeners {
    /// Accepts no further calls and waits for those in progress, for a limited time. Returns the
    /// tasks that are left.
    async fn close(self) -> JoinSet<()> {
        let Self {
            socket,
            closing,
            server,
            closing_http,
            mut http_loops,
        } = self;
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
        http_loops
    }
}

/// A hub that serves callers.
pub(super) struct Serving {
    pub(super) home: Home,
    pub(super) lock: Lock,
    pub(super) signals: EndSignals,
    pub(super) hub: Shared,
    pub(super) store: Store,
    pub(super) lead: Option<Arc<Lead>>,
    /// The hub's own work.
    pub(super) loops: JoinSet<()>,
    pub(super) listeners: Listeners,
    /// The address was given on the command line.
    pub(super) is_asked_to_listen: bool,
}

impl Serving {
    /// Waits until the hub must end.
    pub(super) async fn until_end(&mut self) -> EndReason {
        tokio::select! {
            ended = &mut self.listeners.server => match ended {
                Ok(()) => EndReason::SocketClosed,
                Err(error) => EndReason::SocketFailed(error),
            },
            () = self.hub.stop.notified() => EndReason::Asked,
            signal = self.signals.received() => signal,
            () = work::idle(&self.hub) => EndReason::Idle,
            () = async {
                match &self.lead {
                    Some(lead) => lead.lost().await,
                    None => std::future::pending().await,
                }
            } => EndReason::LeadLost,
            () = self.store.gone_back() => EndReason::SetBack,
            lost = home::watch(&self.home, &self.lock, &mut self.listeners.socket) => {
                EndReason::HomeLost(lost)
            }
        }
    }

    /// Ends the runs that cannot continue without this hub. Calls are still served.
    pub(super) async fn end_runs(&mut self, reason: &EndReason) {
        if self.is_asked_to_listen && reason.is_signal() {
            // A hub after a crash, or of a newer version, listens there too.
            self.hub.listening.forget(&self.home);
        }
        if matches!(reason, EndReason::HomeLost(Lost::Removed)) {
            // Without the home, no facts can be stored and no later hub can find these runs. Their
            // supervisors cannot report their end, so it is not awaited.
            tokio::select! {
                _ = &mut self.listeners.server => {}
                () = work::end_all(&self.hub) => {}
                () = tokio::time::sleep(RUNS_END_MAX) => {}
            }
            work::kill_all(&self.hub).await;
        }
        if reason.ends_runs_of_home() && is_last_of_its_home(&self.hub, &self.home) {
            // Live runs would lose their home; their supervisors need the socket to report how they
            // ended.
            tokio::select! {
                _ = &mut self.listeners.server => {}
                () = work::end_all(&self.hub) => {}
            }
        }
    }

    /// Closes the listeners, then the store, and gives the home to the next hub.
    pub(super) async fn close(self, reason: EndReason) -> Result<Served, HubError> {
        let Self {
            home,
            lock,
            signals: _signals,
            hub,
            store,
            lead,
            mut loops,
            listeners,
            is_asked_to_listen: _,
        } = self;
        let text = reason.text(&home.dir);
        tracing::info!(reason = text, "the hub ends");
        let mut http_loops = listeners.close().await;
        if reason.starts_again() {
            // Calls and loops may wait for the server. What they still try to write is refused,
            // because another epoch has begun.
            lead.iter().for_each(|lead| lead.end());
            store.abandon();
            http_loops.abort_all();
            loops.abort_all();
            return Ok(Served::LeadLost(lock));
        }
        http_loops.shutdown().await;
        loops.shutdown().await;
        // A call may have arrived between the decision to end and the closing of the listener.
        let is_needed = matches!(reason, EndReason::Idle) && work::is_busy(&hub);
        hub.ops.trees.changes_end().await;
        store.close();
        // Calls that still wait for a server must not continue when the runtime has ended.
        store.abandon();
        if let Some(lead) = &lead {
            lead.end();
        }
        if !is_needed
            && !reason.is_home_lost()
            && is_last_of_its_home(&hub, &home)
            && let Err(error) = home.remove()
        {
            tracing::error!(%error, "the home in memory cannot be removed");
        }
        // The next hub of the home waits for it.
        drop(lock);
        if is_needed {
            tracing::info!("a successor is started, because work arrived meanwhile");
            ensure_hub(&home).await.map_err(HubError::Io)?;
        }
        Ok(Served::Ended)
    }
}

/// Returns whether the home ends with this hub: it is in memory, and no other version is taking
/// over.
fn is_last_of_its_home(hub: &Hub, home: &Home) -> bool {
    home.is_ephemeral() && !hub.handed_over.load(Ordering::Relaxed)
}
