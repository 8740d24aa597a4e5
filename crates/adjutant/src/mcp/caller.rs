//! Who made a call, and waiting on its behalf: for as long as its client allows, with a sign of
//! life meanwhile, and no longer than it is interested.

use super::refusal::Refusal;
use super::session::Session;
use crate::view::codes;
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken, ProtocolVersion};
use rmcp::service::{Peer, RequestContext};
use std::pin::pin;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two signs of life: well under the 20 s that some clients want to see.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// One call's caller.
#[derive(Debug)]
pub struct Caller {
    peer: Peer<RoleServer>,
    progress: Option<ProgressToken>,
    /// Cancelled when the client cancels the call (or drops its connection, over HTTP).
    cancelled: CancellationToken,
    /// Cancelled when standard input ends.
    input_ended: CancellationToken,
    /// How long this call may block.
    pub cap: Duration,
    /// The client can be given a Task instead of a result.
    pub takes_tasks: bool,
    /// The tool's name as it was called, where that is another than its own.
    pub alias: Option<String>,
}

impl Caller {
    /// Reads off a request who made it.
    #[must_use]
    pub fn new(session: &Session, context: &RequestContext<RoleServer>, alias: Option<String>) -> Self {
        let progress = context.meta.get_progress_token();
        let client = context.client_info().map(|client| client.name);
        Self {
            cap: session.cap().for_call(client.as_deref(), progress.is_some()),
            takes_tasks: takes_tasks(context),
            peer: context.peer.clone(),
            progress,
            cancelled: context.ct.clone(),
            input_ended: session.input_ended().clone(),
            alias,
        }
    }

    /// Returns how long to wait: what was asked for (else `default`), at most the cap.
    #[must_use]
    pub fn bounded(&self, asked_s: Option<u64>, default: Duration) -> Duration {
        asked_s.map_or(default, Duration::from_secs).min(self.cap)
    }

    /// Waits with the caller: progress at once and every 10 s where the client wants it, until the
    /// wait is over or the client has gone. Giving up a wait changes nothing.
    ///
    /// # Errors
    /// The client cancelled the call or closed its connection.
    pub async fn held<T>(&self, doing: &str, wait: impl Future<Output = T>) -> Result<T, Refusal> {
        let mut wait = pin!(wait);
        let mut beat = tokio::time::interval(HEARTBEAT);
        let mut beats = 0_u32;
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return Ok(done),
                () = self.cancelled.cancelled() => return Err(gone()),
                () = self.input_ended.cancelled() => return Err(gone()),
                _ = beat.tick(), if self.progress.is_some() => {
                    beats += 1;
                    self.sign_of_life(beats, doing).await;
                }
            }
        }
    }

    /// Returns whether the client took its call back. (That its input has ended says nothing of that.)
    #[must_use]
    pub fn was_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    async fn sign_of_life(&self, beats: u32, doing: &str) {
        let Some(token) = self.progress.clone() else { return };
        let seconds = u64::from(beats - 1) * HEARTBEAT.as_secs();
        let note = ProgressNotificationParam::new(token, f64::from(beats)).with_message(format!("{doing}, {seconds} s"));
        if let Err(error) = self.peer.notify_progress(note).await {
            tracing::debug!(%error, "progress could not be sent");
        }
    }
}

/// Returns whether a request may be answered with a Task: the client declared the extension and
/// speaks the protocol version that has it. (Some older clients declare it and cannot read one.)
#[must_use]
pub fn takes_tasks(context: &RequestContext<RoleServer>) -> bool {
    is_modern(context) && context.client_capabilities().is_some_and(|capabilities| capabilities.supports_tasks())
}

/// Returns whether a request is of the stateless protocol.
#[must_use]
pub fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

/// Returns a wait in the unit of the contract.
#[must_use]
pub fn wait_ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

fn gone() -> Refusal {
    Refusal::new(codes::CONFLICT, "the call was given up by its client", "nothing was changed; call again to go on waiting")
}
