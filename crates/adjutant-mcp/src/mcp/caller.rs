//! The caller of a tool, and waiting on its behalf: within the time that its client allows, with
//! progress notifications, and until it cancels.

use super::refusal::ToolRefusal;
use super::session::{ConnectionNumber, InSession, McpSession};
use crate::view::codes;
use adjutant_core::units::duration;
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, InputResponses, ProgressNotificationParam,
    ProgressToken, ProtocolVersion, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext, ServiceError};
use serde_json::{Value, json};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The interval of progress notifications: well below the 20 s that some clients expect.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// A person is not asked for less time than this.
const ASKING_MIN: Duration = Duration::from_secs(10);

/// How a client can ask its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elicitation {
    /// The connection carries requests to the client.
    Request,
    /// The result of the call asks for input, and the client repeats the call with it.
    Result,
}

/// What a client adds to a call that it repeats.
#[derive(Debug, Default)]
pub struct RepeatedInput {
    pub input: InputResponses,
    pub state: Option<String>,
}

/// The caller of one tool call.
#[derive(Debug)]
pub struct McpCaller {
    peer: Peer<RoleServer>,
    progress: Option<ProgressToken>,
    /// The connection over HTTP.
    pub connection: Option<ConnectionNumber>,
    /// Cancelled when the client cancels the call or, over HTTP, closes its connection.
    cancelled: CancellationToken,
    /// Cancelled when standard input ends.
    input_ended: CancellationToken,
    /// How long this call may block.
    pub cap: Duration,
    /// When the call arrived.
    since: Instant,
    /// Whether the client accepts a Task instead of a result.
    pub accepts_tasks: bool,
    /// How the client can ask its person. `None`: it cannot.
    pub elicitation: Option<Elicitation>,
    /// The input and the state with which the client repeats a call.
    pub input: InputResponses,
    state: Value,
    /// The alias under which the tool was called.
    pub alias: Option<String>,
}

impl McpCaller {
    /// Determines the caller of a request.
    #[must_use]
    pub fn new(
        session: &McpSession,
        context: &RequestContext<RoleServer>,
        alias: Option<String>,
        repeated: RepeatedInput,
    ) -> Self {
        let progress = context.meta.get_progress_token();
        let client = context.client_info().map(|client| client.name);
        Self {
            cap: session
                .cap()
                .for_call(client.as_deref(), progress.is_some()),
            since: Instant::now(),
            accepts_tasks: accepts_tasks(context),
            peer: context.peer.clone(),
            progress,
            connection: connection(context),
            cancelled: context.ct.clone(),
            input_ended: session.input_ended().clone(),
            elicitation: elicitation(context),
            input: repeated.input,
            state: repeated
                .state
                .and_then(|state| serde_json::from_str(&state).ok())
                .unwrap_or_default(),
            alias,
        }
    }

    /// Returns a part of the state of a repeated call.
    #[must_use]
    pub fn state(&self, part: &str) -> Option<String> {
        self.state[part].as_str().map(str::to_owned)
    }

    /// Returns how long the client's person can be asked during this call. `None`: too little is
    /// left, so that the next call asks.
    #[must_use]
    pub(crate) fn time_to_ask(&self) -> Option<Duration> {
        let left = self.cap.saturating_sub(self.since.elapsed());
        (left >= ASKING_MIN.min(self.cap / 2)).then_some(left)
    }

    /// Asks the client's person, and returns the reply. A client that fails to ask counts as one
    /// whose person declined. `None`: there is no reply within `time`, and the client receives a
    /// cancellation.
    pub async fn elicit(&self, form: ElicitRequestParams, time: Duration) -> Option<Value> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
        let asked = match self
            .peer
            .send_cancellable_request(request, PeerRequestOptions::with_timeout(time))
            .await
        {
            Ok(asked) => asked.await_response().await,
            Err(error) => Err(error),
        };
        match asked {
            Ok(ClientResult::ElicitResult(reply)) => Some(json!(reply)),
            Ok(_) => Some(Value::Null),
            Err(ServiceError::Timeout { .. }) => None,
            Err(error) => {
                tracing::debug!(%error, "the client could not ask its person");
                Some(Value::Null)
            }
        }
    }

    /// Returns how long to wait: the requested time (else `default`), at most the cap.
    #[must_use]
    pub fn bounded(&self, asked_s: Option<u64>, default: Duration) -> Duration {
        asked_s.map_or(default, Duration::from_secs).min(self.cap)
    }

    /// Waits on behalf of the caller until `wait` completes or the client goes away. If the client
    /// wants progress, it is sent at once and every 10 s. Abandoning a wait changes nothing.
    ///
    /// # Errors
    /// The client cancelled the call or closed its connection.
    pub(crate) async fn wait_with_progress<T>(
        &self,
        doing: &str,
        wait: impl Future<Output = T>,
    ) -> Result<T, ToolRefusal> {
        let mut wait = pin!(wait);
        let mut beat = tokio::time::interval(HEARTBEAT);
        let mut beats = 0_u32;
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return Ok(done),
                () = self.cancelled.cancelled() => return Err(client_gone()),
                () = self.input_ended.cancelled() => return Err(client_gone()),
                _ = beat.tick(), if self.progress.is_some() => {
                    beats += 1;
                    self.send_progress(beats, doing).await;
                }
            }
        }
    }

    /// Returns whether the client cancelled this call. The end of its input does not count.
    #[must_use]
    pub(crate) fn was_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    async fn send_progress(&self, beats: u32, doing: &str) {
        let Some(token) = self.progress.clone() else {
            return;
        };
        let waited = duration::of(HEARTBEAT * (beats - 1));
        let note = ProgressNotificationParam::new(token, f64::from(beats))
            .with_message(format!("{doing}, {waited}"));
        if let Err(error) = self.peer.notify_progress(note).await {
            tracing::debug!(%error, "progress could not be sent");
        }
    }
}

/// Returns the connection of a request over HTTP.
#[must_use]
pub(super) fn connection(context: &RequestContext<RoleServer>) -> Option<ConnectionNumber> {
    context
        .extensions
        .get::<http::request::Parts>()?
        .extensions
        .get()
        .copied()
}

/// Returns whether a request can be answered with a Task: the client declared the extension, and
/// speaks the protocol version that has it. Some older clients declare it but cannot parse a Task.
#[must_use]
pub(crate) fn accepts_tasks(context: &RequestContext<RoleServer>) -> bool {
    is_modern(context)
        && context
            .client_capabilities()
            .is_some_and(|capabilities| capabilities.supports_tasks())
}

/// Returns whether the server can send requests and later messages to the client of an older
/// version.
#[must_use]
pub(crate) fn has_channel(context: &RequestContext<RoleServer>) -> bool {
    let parts = context.extensions.get::<http::request::Parts>();
    parts.is_none_or(|parts| parts.extensions.get::<InSession>().is_some())
}

/// Returns how a client can ask its person.
#[must_use]
pub(super) fn elicitation(context: &RequestContext<RoleServer>) -> Option<Elicitation> {
    let declared = context.client_capabilities()?.elicitation?;
    if declared.form.is_none() && declared.url.is_some() {
        return None;
    }
    match (is_modern(context), has_channel(context)) {
        (true, _) => Some(Elicitation::Result),
        (false, true) => Some(Elicitation::Request),
        (false, false) => None,
    }
}

/// Returns whether a request uses the stateless protocol.
#[must_use]
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// Returns a wait in milliseconds.
#[must_use]
pub(super) fn wait_ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

fn client_gone() -> ToolRefusal {
    ToolRefusal::new(
        codes::CONFLICT,
        "the client cancelled the call",
        "nothing was changed; call again to continue waiting",
    )
}
