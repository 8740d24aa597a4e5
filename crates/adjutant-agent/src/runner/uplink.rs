//! The calls of a runner to the hub, in a session that the hub may end at any time.

use crate::protocol::{
    ATTEMPT_TOKEN, BUNDLE_TYPE, RUNNER_HOME, RUNNER_MUST_JOIN, RUNNER_RELAY, RUNNER_SESSION,
    headers,
};
use crate::remote::{CallError, Connections, HubAddress, HubReply, Outgoing, Trust};
use crate::trace::RepeatedFailures;
use crate::view::{ErrorView, codes};
use adjutant_core::Fingerprint;
use adjutant_core::lease::Lease;
use hyper::StatusCode;
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the hub may take to reply, in addition to the wait that a call requests.
const REPLY_MAX: Duration = Duration::from_secs(10);
/// How long a relayed call may take in all, in addition to its wait. Its supervisor repeats it
/// then.
pub(super) const RELAY_MAX: Duration = Duration::from_secs(12);
/// How long carrying a bundle may take.
const CARRY_MAX: Duration = Duration::from_secs(60 * 60);
/// How long the bytes of a call may take, in addition.
const BYTES_MAX: Duration = Duration::from_secs(20);
/// The pause after a call without a reply.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between repetitions of a transfer.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How problems of HTTP itself are typed, unlike errors of calls.
pub(super) const PROBLEM: &str = "application/problem+json";

/// A session with the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HubSession {
    pub id: String,
    pub lease: Lease,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallFailure {
    /// The session has ended, or there is none.
    #[error("the session has ended")]
    MustJoin,
    /// No reply: the hub cannot be reached, or HTTP itself failed.
    #[error("{0}")]
    NoReply(String),
    #[error("the token is refused ({0})")]
    TokenRefused(String),
    #[error("{}", .0.message)]
    Refused(ErrorView),
}

/// A call of a supervisor or its worker, to be relayed.
#[derive(Debug)]
pub(super) struct Relayed<'a> {
    pub path: &'a str,
    pub attempt: &'a str,
    pub token: &'a str,
    pub key: Option<&'a str>,
    pub body: Bytes,
    pub wait: Duration,
}

/// The hub, as the runner calls it.
pub(super) struct Uplink {
    /// The hubs that can be the leader. All but one refuse or do not listen.
    hubs: Vec<Connections>,
    /// The one that is called: the next one after a call without a reply.
    current: AtomicUsize,
    bearer: String,
    home_id: String,
    session: watch::Sender<Option<HubSession>>,
    has_joined: AtomicBool,
    /// When the last answered call was sent.
    contact: Mutex<Instant>,
    /// The only keys that are trusted. Empty: an authority decides.
    fingerprints: Vec<Fingerprint>,
    /// The fingerprint of another key that the hub has announced.
    announced: Mutex<Option<String>>,
    /// The hubs that were tried in vain.
    tried: Mutex<RepeatedFailures>,
}

impl Uplink {
    /// `addresses`: at least one.
    pub(super) fn new(
        addresses: Vec<HubAddress>,
        trust: &Trust,
        token: &str,
        home_id: String,
    ) -> Self {
        let (session, _) = watch::channel(None);
        Self {
            hubs: addresses
                .into_iter()
                .map(|address| Connections::shared(address, trust.clone()))
                .collect(),
            current: AtomicUsize::new(0),
            bearer: format!("Bearer {token}"),
            home_id,
            session,
            has_joined: AtomicBool::new(false),
            contact: Mutex::new(Instant::now()),
            fingerprints: if let Trust::Fingerprints(fingerprints) = trust {
                fingerprints.clone()
            } else {
                Vec::new()
            },
            announced: Mutex::default(),
            tried: Mutex::default(),
        }
    }

    /// Reports once that the hub has a new key, which this runner will refuse when it connects
    /// again.
    pub(crate) fn check_fingerprint(&self, current: Option<&str>) {
        let is_trusted = |current: &str| {
            self.fingerprints.is_empty()
                || self
                    .fingerprints
                    .iter()
                    .any(|trusted| trusted.as_str() == current)
        };
        let Some(other) = current.filter(|current| !is_trusted(current)) else {
            return;
        };
        let mut announced = self
            .announced
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if announced.as_deref() != Some(other) {
            tracing::warn!(
                fingerprint = other,
                "the hub has a certificate with another key, which this runner refuses at its next connection: start it again with --fingerprint of both keys"
            );
            *announced = Some(other.to_owned());
        }
    }

    fn hub(&self, n: usize) -> &Connections {
        &self.hubs[n % self.hubs.len()]
    }

    pub(super) fn address(&self) -> &HubAddress {
        &self.hub(self.current.load(Ordering::Relaxed)).address
    }

    /// Calls the next hub from now on, unless another call has changed it already.
    fn try_next(&self, failed: usize) {
        if self
            .current
            .compare_exchange(
                failed,
                failed.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
            && self.hubs.len() > 1
        {
            let address = self.address().to_string();
            let noted = self
                .tried
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .note(&address, std::time::Instant::now());
            if let Some(times) = noted {
                tracing::info!(times, "the hub at {address} is tried");
            }
        }
    }

    pub(super) fn home_id(&self) -> &str {
        &self.home_id
    }

    /// Returns when the last call that was answered in a session was sent.
    pub(super) fn contact(&self) -> Instant {
        *self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_contact(&self, sent: Instant) {
        let mut contact = self.contact.lock().unwrap_or_else(PoisonError::into_inner);
        // Replies can arrive in another order than their calls were sent.
        *contact = (*contact).max(sent);
    }

    pub(crate) fn begin_session(&self, session: HubSession, sent: Instant) {
        self.note_contact(sent);
        self.tried
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        self.has_joined.store(true, Ordering::Relaxed);
        self.session.send_replace(Some(session));
    }

    /// Returns whether this process has ever had a session.
    pub(super) fn has_joined(&self) -> bool {
        self.has_joined.load(Ordering::Relaxed)
    }

    fn end_session(&self, ended: &str) {
        // A late reply to a call of an earlier session must not end the current one.
        self.session
            .send_if_modified(|session| session.take_if(|session| session.id == ended).is_some());
    }

    /// Waits until there is a session.
    async fn session(&self) -> HubSession {
        let mut session = self.session.subscribe();
        let found = session
            .wait_for(Option::is_some)
            .await
            .map(|found| (*found).clone());
        match found {
            Ok(Some(session)) => session,
            // The sender is a field of `self`.
            _ => std::future::pending().await,
        }
    }

    /// Waits until a session has ended.
    async fn end_of(&self, session: &HubSession) {
        let mut current = self.session.subscribe();
        if current
            .wait_for(|current| current.as_ref() != Some(session))
            .await
            .is_err()
        {
            // The sender is a field of `self`.
            std::future::pending::<()>().await;
        }
    }

    /// Makes a call outside of a session.
    pub(crate) async fn call_without_session<T: DeserializeOwned>(
        &self,
        path: &str,
        call: &impl Serialize,
    ) -> Result<T, CallFailure> {
        let body =
            serde_json::to_vec(call).map_err(|error| CallFailure::NoReply(error.to_string()))?;
        let reply = self.post(path, &[], body.into(), REPLY_MAX).await?;
        parse(&reply)
    }

    /// Makes a call in the current session, which may wait for `wait` at the hub.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        call: &impl Serialize,
        wait: Duration,
    ) -> Result<T, CallFailure> {
        let Some(session) = self.session.borrow().clone() else {
            return Err(CallFailure::MustJoin);
        };
        let body =
            serde_json::to_vec(call).map_err(|error| CallFailure::NoReply(error.to_string()))?;
        // The time of sending, which is before the arrival from which the hub counts the lease. So
        // the agent has ended when the hub records the loss.
        let sent = Instant::now();
        let reply = self.post_in(&session, path, &[], body.into(), wait).await?;
        self.note_contact(sent);
        parse(&reply)
    }

    /// Makes a call once there is a session.
    pub(crate) async fn call_in_session<T: DeserializeOwned>(
        &self,
        path: &str,
        call: &impl Serialize,
    ) -> Result<T, CallFailure> {
        self.session().await;
        self.call(path, call, Duration::ZERO).await
    }

    /// Makes a call with bytes behind a line of JSON, once.
    pub(crate) async fn call_with_bytes<T: DeserializeOwned>(
        &self,
        path: &str,
        line: &impl Serialize,
        bytes: &[u8],
    ) -> Result<T, CallFailure> {
        let session = self.session().await;
        let mut body =
            serde_json::to_vec(line).map_err(|error| CallFailure::NoReply(error.to_string()))?;
        body.push(b'\n');
        body.extend_from_slice(bytes);
        let sent = Instant::now();
        let reply = self
            .post_in(&session, path, &[], body.into(), BYTES_MAX)
            .await?;
        self.note_contact(sent);
        parse(&reply)
    }

    /// Makes a call and repeats it until the hub has answered.
    pub(crate) async fn call_until_answered<T: DeserializeOwned>(
        &self,
        path: &str,
        call: &impl Serialize,
    ) -> Result<T, ErrorView> {
        loop {
            match self.call_in_session(path, call).await {
                Ok(reply) => return Ok(reply),
                Err(CallFailure::Refused(error)) if !is_passing(&error) => return Err(error),
                Err(failure) => {
                    tracing::debug!(path, %failure, "the call is repeated");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Relays a call. Waits for a session or a reply for a limited time.
    pub(super) async fn relay(&self, relayed: &Relayed<'_>) -> Result<HubReply, ErrorView> {
        let tries = async {
            loop {
                let session = self.session().await;
                let sent = Instant::now();
                match self.relay_in(&session, relayed).await {
                    Ok(reply) => {
                        self.note_contact(sent);
                        return reply;
                    }
                    Err(failure) => {
                        tracing::debug!(path = relayed.path, %failure, "a call cannot be relayed yet");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::time::timeout(relayed.wait + RELAY_MAX, tries)
            .await
            .map_err(|_| ErrorView {
                code: codes::CLOSING.to_owned(),
                message: format!("the hub at {} cannot be reached", self.address()),
                hint: None,
            })
    }

    async fn relay_in(
        &self,
        session: &HubSession,
        relayed: &Relayed<'_>,
    ) -> Result<HubReply, CallFailure> {
        let Relayed {
            path,
            attempt,
            token,
            key,
            body,
            wait,
        } = relayed;
        let mut own = vec![(headers::ATTEMPT, *attempt), (ATTEMPT_TOKEN, *token)];
        own.extend(key.map(|key| (headers::KEY, key)));
        self.post_in(
            session,
            &format!("{RUNNER_RELAY}{path}"),
            &own,
            body.clone(),
            *wait,
        )
        .await
    }

    async fn post_in(
        &self,
        session: &HubSession,
        path: &str,
        own: &[(&str, &str)],
        body: Bytes,
        wait: Duration,
    ) -> Result<HubReply, CallFailure> {
        let mut all = vec![
            (RUNNER_SESSION, session.id.as_str()),
            (RUNNER_HOME, self.home_id.as_str()),
        ];
        all.extend(own);
        // A lost reply must leave time for another try.
        let limit = wait + REPLY_MAX.min(session.lease.wait_max().max(Duration::from_secs(1)));
        let reply = self.post(path, &all, body, limit).await?;
        self.checked(session, reply)
    }

    /// Fetches a bundle into a file, once.
    pub(crate) async fn fetch_bundle(
        &self,
        path: &str,
        call: &impl Serialize,
        to: &File,
    ) -> Result<(), CallFailure> {
        let body =
            serde_json::to_vec(call).map_err(|error| CallFailure::NoReply(error.to_string()))?;
        let reply = self
            .carry(path, &[], Outgoing::Whole(body.into()), Some(to))
            .await?;
        if reply
            .headers
            .get("content-type")
            .is_some_and(|kind| kind == BUNDLE_TYPE)
            && reply.status.is_success()
        {
            return Ok(());
        }
        Err(parse::<serde_json::Value>(&reply)
            .err()
            .unwrap_or_else(|| CallFailure::NoReply("the reply is not a bundle".to_owned())))
    }

    /// Sends a bundle with the work of an attempt, once. The file is read from its current
    /// position.
    pub(crate) async fn send_bundle(
        &self,
        path: &str,
        attempt: &str,
        bundle: File,
    ) -> Result<(), CallFailure> {
        let reply = self
            .carry(
                path,
                &[(headers::ATTEMPT, attempt)],
                Outgoing::File(bundle),
                None,
            )
            .await?;
        parse(&reply)
    }

    /// Makes a call with a large body or reply in the current session.
    async fn carry(
        &self,
        path: &str,
        own: &[(&str, &str)],
        body: Outgoing,
        to: Option<&File>,
    ) -> Result<HubReply, CallFailure> {
        let session = self.session().await;
        let mut all = vec![
            ("authorization", self.bearer.as_str()),
            (RUNNER_SESSION, session.id.as_str()),
            (RUNNER_HOME, self.home_id.as_str()),
        ];
        all.extend(own);
        let current = self.current.load(Ordering::Relaxed);
        let replied = tokio::select! {
            answered = tokio::time::timeout(CARRY_MAX, self.hub(current).carry(path, &all, body, to)) => {
                answered.unwrap_or(Err(CallError::NoReply(CARRY_MAX)))
            }
            // The hub was replaced, or it has ended this session.
            () = self.end_of(&session) => return Err(CallFailure::MustJoin),
        };
        self.checked(&session, self.checked_reply(current, replied)?)
    }

    fn checked(&self, session: &HubSession, reply: HubReply) -> Result<HubReply, CallFailure> {
        if reply.headers.contains_key(RUNNER_MUST_JOIN) {
            self.end_session(&session.id);
            return Err(CallFailure::MustJoin);
        }
        Ok(reply)
    }

    async fn post(
        &self,
        path: &str,
        own: &[(&str, &str)],
        body: Bytes,
        limit: Duration,
    ) -> Result<HubReply, CallFailure> {
        let mut all = vec![("authorization", self.bearer.as_str())];
        all.extend(own);
        let current = self.current.load(Ordering::Relaxed);
        self.checked_reply(
            current,
            self.hub(current).post(path, &all, body, limit).await,
        )
    }

    /// Returns a reply that is not a problem of HTTP itself. Without one, the next call goes to
    /// another hub, unless this one is only busy.
    fn checked_reply(
        &self,
        current: usize,
        replied: Result<HubReply, impl Display>,
    ) -> Result<HubReply, CallFailure> {
        let is_busy = replied
            .as_ref()
            .is_ok_and(|reply| reply.status == StatusCode::TOO_MANY_REQUESTS);
        let checked = replied
            .map_err(|error| CallFailure::NoReply(error.to_string()))
            .and_then(checked);
        if matches!(checked, Err(CallFailure::NoReply(_))) && !is_busy {
            self.try_next(current);
        }
        checked
    }
}

/// Returns a reply that is not a problem of HTTP itself.
fn checked(reply: HubReply) -> Result<HubReply, CallFailure> {
    let is_problem = reply
        .headers
        .get("content-type")
        .is_some_and(|kind| kind.as_bytes().starts_with(PROBLEM.as_bytes()));
    if !is_problem {
        return Ok(reply);
    }
    let detail = serde_json::from_slice::<serde_json::Value>(&reply.body).ok();
    let detail = detail
        .as_ref()
        .and_then(|detail| detail["detail"].as_str())
        .unwrap_or_default();
    let text = format!("{}: {detail}", reply.status);
    let is_of_token = matches!(reply.status.as_u16(), 401 | 403 | 404);
    Err(if is_of_token {
        CallFailure::TokenRefused(text)
    } else {
        CallFailure::NoReply(text)
    })
}

/// Returns whether the same call can succeed later.
pub(super) fn is_passing(error: &ErrorView) -> bool {
    matches!(
        error.code.as_str(),
        codes::STORAGE
            | codes::STORAGE_FULL
            | codes::UNREACHABLE
            | codes::CLOSING
            | codes::INTERNAL
    )
}

fn parse<T: DeserializeOwned>(reply: &HubReply) -> Result<T, CallFailure> {
    let invalid = |error: serde_json::Error| {
        CallFailure::NoReply(format!(
            "a reply that is not understood ({}): {error}",
            reply.status
        ))
    };
    if reply.status.is_success() {
        return serde_json::from_slice(&reply.body).map_err(invalid);
    }
    Err(CallFailure::Refused(
        serde_json::from_slice(&reply.body).map_err(invalid)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Json, Router};
    use std::sync::Arc;
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn transfer_ends_with_its_session() {
        // A hub whose machine has vanished accepts nothing and closes nothing.
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", silent.local_addr().expect("an address"))
            .parse()
            .expect("a URL");
        let uplink = Uplink::new(vec![address], &Trust::Installed, "token", "home".to_owned());
        let session = |id: &str| HubSession {
            id: id.to_owned(),
            lease: Lease::from_ms(60_000),
        };
        uplink.begin_session(session("one"), Instant::now());
        let transfer = uplink.carry(
            "/runner/snapshots",
            &[],
            Outgoing::Whole(Bytes::new()),
            None,
        );
        tokio::pin!(transfer);
        let open = tokio::select! {
            ended = &mut transfer => panic!("{ended:?}"),
            accepted = silent.accept() => accepted.expect("a connection"),
        };
        uplink.begin_session(session("two"), Instant::now());
        assert!(matches!(transfer.await, Err(CallFailure::MustJoin)));
        drop(open);
    }

    /// Starts a hub that replies with these codes of errors, one to a call, and then with success.
    async fn hub_with_errors(errors: &[&'static str]) -> (Uplink, JoinSet<()>) {
        let left = Arc::new(Mutex::new(errors.to_vec()));
        let reply = move || {
            let next = { left.lock().expect("no panic").pop() };
            async move {
                match next {
                    None => (axum::http::StatusCode::OK, Json(serde_json::json!("done"))),
                    Some(code) => (
                        axum::http::StatusCode::SERVICE_UNAVAILABLE,
                        Json(serde_json::json!({"code": code, "message": "later"})),
                    ),
                }
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"))
            .parse()
            .expect("a URL");
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            axum::serve(
                listener,
                Router::new().route("/call", axum::routing::post(reply)),
            )
            .await
            .expect("a hub")
        });
        let uplink = Uplink::new(vec![address], &Trust::Installed, "token", "home".to_owned());
        uplink.begin_session(
            HubSession {
                id: "one".to_owned(),
                lease: Lease::from_ms(60_000),
            },
            Instant::now(),
        );
        (uplink, serving)
    }

    #[tokio::test]
    async fn call_is_repeated_while_the_hub_cannot_reach_its_store() {
        let passing = [
            codes::STORAGE,
            codes::STORAGE_FULL,
            codes::UNREACHABLE,
            codes::CLOSING,
            codes::INTERNAL,
        ];
        let (uplink, _serving) = hub_with_errors(&passing).await;
        let called: String = uplink
            .call_until_answered("/call", &())
            .await
            .expect("answered in the end");
        assert_eq!(called, "done");
    }

    #[tokio::test]
    async fn refused_call_is_not_repeated() {
        for code in [
            codes::CONFLICT,
            codes::NOT_FOUND,
            codes::NOT_ALLOWED,
            codes::INVALID,
            codes::LIMIT,
        ] {
            let (uplink, _serving) = hub_with_errors(&[code]).await;
            let refused = uplink
                .call_until_answered::<String>("/call", &())
                .await
                .expect_err("refused");
            assert_eq!(refused.code, code);
        }
    }
}
