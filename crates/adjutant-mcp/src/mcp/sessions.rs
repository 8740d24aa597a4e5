//! Sessions over HTTP, for the protocol versions before 2026-07-28: the server sends its requests
//! (elicitation), progress and changes of resources on streams of the session.
//!
//! A session lives in this process and holds nothing that was acknowledged: a client whose session
//! has ended gets 404 and initializes again. It belongs to the token of the endpoint; to another
//! token it is unknown.
//!
//! ```text
//!  initialize ──> open ── DELETE, idle for too long, replaced by a newer one, too many broken calls ──> unknown (404)
//! ```

use crate::failpoint;
use futures::Stream;
use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig, SessionError,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use rmcp::transport::worker::WorkerTransport;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Most sessions of one token. Beyond it, a new one replaces the one that has been unused for
/// longest.
pub(super) const SESSIONS_MAX: usize = 16;
/// A session without a stream and without a request for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// A call continues when its stream breaks. A session in which more calls than this were left
/// behind is closed, which ends them.
const LEFT_CALLS_MAX: usize = 64;
/// Messages that a stream keeps for a client that resumes it.
const KEPT_MESSAGES: usize = 64;

/// The sessions of one endpoint.
#[derive(Debug)]
pub(super) struct Sessions {
    local: LocalSessionManager,
    uses: Uses,
}

type Uses = Arc<Mutex<HashMap<SessionId, Use>>>;

#[derive(Debug)]
struct Use {
    /// The number of open streams.
    streams: usize,
    /// The last request, or the end of the last stream.
    since: Instant,
    /// The number of calls whose stream the client has closed.
    left_calls: usize,
    /// Whether the version has an empty first event, with an id to resume after. Older clients
    /// cannot parse it.
    has_first_event: bool,
}

impl Use {
    /// Returns whether the session has been unused for too long.
    fn is_idle(&self) -> bool {
        self.streams == 0 && self.since.elapsed() >= failpoint::unused_max().unwrap_or(IDLE_MAX)
    }
}

impl Default for Sessions {
    fn default() -> Self {
        let mut local = LocalSessionManager::default();
        let mut config = SessionConfig::default();
        config.channel_capacity = KEPT_MESSAGES;
        // It would also end a session during a call.
        config.keep_alive = None;
        local.session_config = config;
        Self {
            local,
            uses: Arc::default(),
        }
    }
}

fn locked(uses: &Uses) -> MutexGuard<'_, HashMap<SessionId, Use>> {
    uses.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions {
    /// Makes room for another session. Returns `false` if all are in use.
    pub(super) async fn make_room(&self) -> bool {
        let closed: Vec<SessionId> = {
            let uses = locked(&self.uses);
            let mut closed: Vec<SessionId> = uses
                .iter()
                .filter(|(_, used)| used.is_idle())
                .map(|(id, _)| id.clone())
                .collect();
            if uses.len() - closed.len() >= SESSIONS_MAX {
                let unused = uses
                    .iter()
                    .filter(|(id, used)| used.streams == 0 && !closed.contains(id));
                let Some((oldest, _)) = unused.min_by_key(|(_, used)| used.since) else {
                    return false;
                };
                closed.push(oldest.clone());
            }
            closed
        };
        for id in closed {
            self.close(&id).await;
        }
        true
    }

    /// Closes the sessions that have been unused for too long.
    pub(crate) async fn close_idle(&self) {
        let idle: Vec<SessionId> = locked(&self.uses)
            .iter()
            .filter(|(_, used)| used.is_idle())
            .map(|(id, _)| id.clone())
            .collect();
        for id in idle {
            self.close(&id).await;
        }
    }

    async fn close(&self, id: &SessionId) {
        if let Err(error) = self.close_session(id).await {
            tracing::debug!(%error, "a session was closed by itself");
        }
    }

    /// Records a request in a session. Returns whether it exists.
    async fn used(&self, id: &SessionId) -> bool {
        let has_ended = match locked(&self.uses).get_mut(id) {
            Some(used) => {
                let has_ended = used.is_idle() || used.left_calls > LEFT_CALLS_MAX;
                used.since = Instant::now();
                has_ended
            }
            None => return false,
        };
        if has_ended {
            self.close(id).await;
        }
        !has_ended
    }

    /// Counts a stream until it is dropped. `is_call`: its end is the reply to a call.
    fn counted<S>(&self, id: &SessionId, is_call: bool, stream: S) -> Counted<S> {
        let mut is_first_hidden = false;
        if let Some(used) = locked(&self.uses).get_mut(id) {
            used.streams += 1;
            is_first_hidden = !used.has_first_event;
        }
        let open = OpenStream {
            id: id.clone(),
            is_call,
            has_ended: false,
            uses: Arc::clone(&self.uses),
        };
        Counted {
            stream: Box::pin(stream),
            is_first_hidden,
            open,
        }
    }
}

/// A stream of a session.
struct Counted<S> {
    stream: Pin<Box<S>>,
    /// Whether events without a message are left out.
    is_first_hidden: bool,
    open: OpenStream,
}

impl<S: Stream<Item = ServerSseMessage>> Stream for Counted<S> {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServerSseMessage>> {
        loop {
            match self.stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(event)) if self.is_first_hidden && event.message.is_none() => {}
                Poll::Ready(None) => {
                    self.open.has_ended = true;
                    return Poll::Ready(None);
                }
                polled => return polled,
            }
        }
    }
}

/// Counts as an open stream of its session.
struct OpenStream {
    id: SessionId,
    is_call: bool,
    has_ended: bool,
    uses: Uses,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(used) = locked(&self.uses).get_mut(&self.id) {
            used.streams = used.streams.saturating_sub(1);
            used.since = Instant::now();
            used.left_calls += usize::from(self.is_call && !self.has_ended);
        }
    }
}

/// Returns whether streams of this version begin with an empty event.
fn has_first_event(reply: &ServerJsonRpcMessage) -> bool {
    match reply {
        JsonRpcMessage::Response(response) => match &response.result {
            ServerResult::InitializeResult(result) => {
                result.protocol_version.as_str() >= ProtocolVersion::V_2025_11_25.as_str()
            }
            _ => false,
        },
        _ => false,
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.local.create_session().await?;
        let is_admitted = {
            let mut uses = locked(&self.uses);
            let is_admitted = uses.len() < SESSIONS_MAX;
            if is_admitted {
                uses.insert(
                    id.clone(),
                    Use {
                        streams: 0,
                        since: Instant::now(),
                        left_calls: 0,
                        has_first_event: false,
                    },
                );
            }
            is_admitted
        };
        if is_admitted {
            return Ok((id, transport));
        }
        self.local.close_session(&id).await?;
        Err(SessionError::Io(io::Error::other("too many sessions of this token")).into())
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        let reply = self.local.initialize_session(id, message).await?;
        if let Some(used) = locked(&self.uses).get_mut(id) {
            used.has_first_event = has_first_event(&reply);
        }
        Ok(reply)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.used(id).await && self.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        locked(&self.uses).remove(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let stream = self.local.create_stream(id, message).await?;
        Ok(self.counted(id, true, stream))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let stream = self.local.create_standalone_stream(id).await?;
        Ok(self.counted(id, false, stream))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let stream = self.local.resume(id, last_event_id).await?;
        Ok(self.counted(id, false, stream))
    }
}
