//! The gate: the supervisor's proxy on loopback to the API of its agent's model. It adds the key to
//! each request, so that the agent never has it, counts the usage that the responses report, and
//! refuses requests that the hub does not admit.
//!
//! ```text
//!  agent ── token of the attempt ── admission ── may it begin? ── headers, key ── the configured host, and no other
//!        ◂── refusal in the vendor's form     ◂── bytes as they come, counted ──┘
//! ```
//! Every body streams through with bounded memory and back-pressure: a reader that stops stops the
//! sender. Nothing of a request or response is kept or logged, apart from counts, the model's name
//! and when a limit resets.

mod admission;
mod body;
mod endpoint;
mod exchange;
mod forward;
mod hang_up;
mod headers;
mod open_requests;
mod quota;
mod refusal;
mod request_body;
mod tally;
#[cfg(test)]
mod tests;
mod upstream;

pub use open_requests::OpenRequest;
pub use refusal::Denial;
pub use tally::{Changes, ModelUse};

use adjutant_core::Time;
use adjutant_core::rate_limit::QuotaWindow;
use admission::Admission;
use forward::forward;
use hang_up::HangUp;
use http::Uri;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use open_requests::OpenRequests;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tally::Tally;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use upstream::Upstream;

/// Maximum number of the agent's connections. Further ones are not accepted.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of connections that have not presented the token yet. A further one closes the
/// oldest of them.
const UNADMITTED_MAX: usize = 32;
/// How long a connection may take to present the token.
const ADMISSION_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and a connection may be idle.
const HEAD_TIME_MAX: Duration = Duration::from_secs(120);
/// Buffer of a connection, which also limits the head of a message.
const BUFFER_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of events that wait for the supervisor.
const EVENTS_AHEAD_MAX: usize = 64;

/// A request or a report of the gate to the supervisor.
#[derive(Debug)]
pub enum GateEvent {
    /// A request may cost something.
    RequestBegins {
        no: u64,
        reply: oneshot::Sender<Result<(), Denial>>,
    },
    /// The vendor accepts no further request until this time.
    LimitReported(Time),
    /// The used part of the vendor's quota.
    WindowsReported(Vec<QuotaWindow>),
}

/// An open gate.
#[derive(Debug)]
pub struct Gate {
    /// The base URL for the agent, without a trailing slash.
    pub url: String,
    /// The token of the attempt, which the agent presents as its key.
    pub token: String,
    shared: Arc<Shared>,
}

/// The state that all connections of a gate share.
#[derive(Debug)]
struct Shared {
    admission: Admission,
    upstream: Arc<Upstream>,
    tally: Arc<Tally>,
    requests: Arc<OpenRequests>,
    events: mpsc::Sender<GateEvent>,
    /// Requests that a model has answered.
    answers: AtomicU64,
    stage: watch::Sender<Stage>,
}

/// Whether a gate is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Closing,
    /// All connections have ended.
    Closed,
}

/// A connection of the agent, or of another process.
#[derive(Debug, Default)]
struct GateCaller {
    /// Whether it has presented the token.
    is_admitted: AtomicBool,
}

/// The listener of a gate. Call [`Self::serve`] to accept connections.
#[derive(Debug)]
pub struct GateListener {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Gate {
    /// Opens a gate to the API at `base_url`. `token` is what the agent has to present, `key` what
    /// the API accepts.
    ///
    /// # Errors
    /// No port is available, or the URL or the key is invalid. The error does not contain the key.
    pub async fn open(
        base_url: &Uri,
        key: &str,
        token: String,
    ) -> io::Result<(Self, GateListener, mpsc::Receiver<GateEvent>)> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (events, asked) = mpsc::channel(EVENTS_AHEAD_MAX);
        let shared = Arc::new(Shared {
            admission: Admission {
                token: token.clone(),
                port,
            },
            upstream: Arc::new(Upstream::new(base_url, key)?),
            tally: Arc::default(),
            requests: Arc::default(),
            events,
            answers: AtomicU64::new(0),
            stage: watch::Sender::new(Stage::Open),
        });
        let gate = Self {
            url: format!("http://127.0.0.1:{port}"),
            token,
            shared: Arc::clone(&shared),
        };
        Ok((gate, GateListener { listener, shared }, asked))
    }

    /// Returns the usage so far, for each model. The numbers only grow.
    #[must_use]
    pub fn used(&self) -> Vec<ModelUse> {
        self.shared.tally.totals()
    }

    /// Returns the number of the next request, and the requests before it that have not ended.
    /// Their usage is in [`Self::used`] before they end.
    #[must_use]
    pub fn open_requests(&self) -> (u64, Vec<OpenRequest>) {
        self.shared.requests.open()
    }

    /// Returns a receiver that changes with the usage.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Changes> {
        self.shared.tally.changes()
    }

    /// Returns whether a model has answered a request of the agent.
    #[must_use]
    pub fn has_been_used(&self) -> bool {
        self.shared.answers.load(Ordering::Relaxed) > 0
    }

    /// Ends all connections, and counts their usage so far.
    pub async fn close(&self) {
        let mut stage = self.shared.stage.subscribe();
        self.shared.stage.send_if_modified(|stage| {
            let is_open = *stage == Stage::Open;
            if is_open {
                *stage = Stage::Closing;
            }
            is_open
        });
        if stage
            .wait_for(|stage| *stage == Stage::Closed)
            .await
            .is_err()
        {
            tracing::error!("a gate has no listener");
        }
    }
}

impl Drop for GateListener {
    fn drop(&mut self) {
        self.shared.stage.send_replace(Stage::Closed);
    }
}

impl GateListener {
    /// Serves the agent until the gate is closed.
    pub async fn serve(self) {
        let mut connections = JoinSet::new();
        let mut unadmitted: VecDeque<(Arc<GateCaller>, AbortHandle)> = VecDeque::new();
        let mut stage = self.shared.stage.subscribe();
        loop {
            unadmitted.retain(|(caller, task)| {
                !caller.is_admitted.load(Ordering::Relaxed) && !task.is_finished()
            });
            let admitted = connections.len().saturating_sub(unadmitted.len());
            tokio::select! {
                () = async { drop(stage.wait_for(|stage| *stage != Stage::Open).await) } => break,
                accepted = self.listener.accept(), if admitted < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => {
                        if unadmitted.len() >= UNADMITTED_MAX
                            && let Some((_, task)) = unadmitted.pop_front()
                        {
                            task.abort();
                        }
                        let caller = Arc::new(GateCaller::default());
                        let task = connections.spawn(serve_connection(stream, Arc::clone(&self.shared), Arc::clone(&caller)));
                        unadmitted.push_back((caller, task));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the gate cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(ended) = connections.join_next() => match ended {
                    Err(error) if !error.is_cancelled() => tracing::error!(%error, "a connection of the gate has failed"),
                    _ => {}
                },
            }
        }
        connections.shutdown().await;
    }
}

async fn serve_connection(stream: TcpStream, shared: Arc<Shared>, caller: Arc<GateCaller>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "responses of the gate may be delayed");
    }
    let hang_up = match HangUp::of(&stream) {
        Ok(hang_up) => Arc::new(hang_up),
        Err(error) => return tracing::warn!(%error, "the gate cannot watch a connection"),
    };
    let of_service = Arc::clone(&caller);
    let service = service_fn(move |request| {
        let (shared, caller, hang_up) = (
            Arc::clone(&shared),
            Arc::clone(&of_service),
            Arc::clone(&hang_up),
        );
        async move {
            tokio::select! {
                biased;
                // A request whose agent has hung up is not sent, and its budget check ends.
                () = hang_up.wait() => Err(io::Error::from(io::ErrorKind::ConnectionAborted)),
                response = forward(&shared, &caller, request) => Ok(response),
            }
        }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(BUFFER_BYTES_MAX);
    let mut serving = pin!(server.serve_connection(TokioIo::new(stream), service));
    let served = match tokio::time::timeout(ADMISSION_TIME_MAX, &mut serving).await {
        Ok(served) => served,
        Err(_) if caller.is_admitted.load(Ordering::Relaxed) => serving.await,
        Err(_) => return,
    };
    if let Err(error) = served {
        // A CLI that cancels its call closes the connection. Hyper's errors name no content.
        tracing::debug!(%error, "a connection of the gate has ended");
    }
}
