//! The client of the hub, for the CLI, `adj mcp` and supervisors.
//!
//! A call returns when its reply arrives; the reply to a write means that the write is durable. If
//! the connection breaks before, the call is repeated with the same idempotency key, so it takes
//! effect once even if the hub is killed repeatedly.

mod activity;
mod connection;
mod failure;
mod key;
mod name;
mod open_writes;
mod presence;
mod request;
mod start;
mod target;
mod tries;
mod watched_connection;
mod worker_access;
use failure::{
    CallFailure, hub_start_error, internal, outcome, redirection, unreachable_hub_error,
};
use open_writes::OpenWrites;
use presence::failed_call_error;
use request::request;
pub use request::{wait_of, with_shortened_wait};
use target::Target;
use tries::{AfterRefusal, Tries};
#[cfg(test)]
mod tests;

pub use activity::AgentActivity;
pub use key::{fresh_key, random_hex};
pub use name::{decode_name, encode_name, is_older};
pub use presence::unresponsive_hub;
pub use start::{ensure_hub, wait_for_hub, wait_until_served};
pub use target::InProcess;

use crate::config::Home;
use crate::process::Lock;
use crate::protocol::{Order, WorkerAccess, headers};
use crate::sock;
use crate::view::{Call, ErrorView, HandOver, codes};
use adjutant_core::ClientName;
use connection::RawReply;
use http::StatusCode;
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use watched_connection::{NO_REPLY, WatchedConnection};

/// The version of this build, which both ends of a connection send.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Header of a refusal with the socket of the caller's supervisor.
pub const SUPERVISOR_HEADER: &str = "adj-supervisor";

/// Maximum number of idle connections that a client keeps.
const IDLE_CONNECTIONS_MAX: usize = 8;

/// How often a call to a hub is repeated after its connection broke.
const RETRIES_MAX: u32 = 20;

/// The pause before the second repetition of a call. Each later pause is longer by this, up to
/// `PAUSES_MAX` times it.
const PAUSE: Duration = Duration::from_millis(5);

const PAUSES_MAX: u32 = 40;

/// The pause before a call of a supervisor is repeated while the store cannot be used, or its disk
/// is full.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// A client of the hub, or of a supervisor that relays calls to it. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Inner>, Option<Arc<AgentActivity>>);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("target", &*self.target())
            .finish_non_exhaustive()
    }
}

struct Inner {
    target: Mutex<Target>,
    idle: Mutex<Vec<WatchedConnection>>,
    /// The problem of the configuration in the hub's last reply.
    config_problem: Mutex<Option<String>>,
    /// The names of the runs whose supervisors had not reported to the hub at its last reply.
    without_report: Mutex<Option<String>>,
    open_writes: OpenWrites,
}

impl Client {
    /// Creates a client of the home's hub, for the person or for the client `as_client`. The first
    /// call starts a hub if none is running. Behind a fence it is a client of the run's supervisor.
    #[must_use]
    pub fn hub(home: &Home, as_client: Option<ClientName>) -> Self {
        if let Some(access) = worker_access::access(home) {
            return Self::worker(access);
        }
        Self::new(Target::Hub {
            home: home.clone(),
            client: as_client,
        })
    }

    /// Creates a client of the home's hub that never starts one.
    #[must_use]
    pub fn running_hub(home: &Home) -> Self {
        Self::new(Target::RunningHub { home: home.clone() })
    }

    /// Creates a client of a supervisor's socket.
    #[must_use]
    pub fn worker(access: WorkerAccess) -> Self {
        Self::new(Target::Worker {
            socket: access.socket,
            token: Some(access.token),
        })
    }

    /// Creates a client of the hub for the supervisor that holds this lock. Its calls wait for a
    /// hub until the lock is removed.
    #[must_use]
    pub fn supervisor(order: &Order, lock: Arc<Lock>) -> Self {
        let attempt = format!("{}/{}", order.run_id, order.attempt);
        Self::new(Target::Supervisor {
            home: Home {
                dir: order.home.clone(),
            },
            attempt,
            token: order.token.clone(),
            lock,
        })
    }

    /// Creates a client within the hub's process.
    #[must_use]
    pub fn in_process(calls: InProcess) -> Self {
        Self::new(Target::InProcess(calls))
    }

    fn new(target: Target) -> Self {
        let inner = Inner {
            target: Mutex::new(target),
            idle: Mutex::new(Vec::new()),
            config_problem: Mutex::new(None),
            without_report: Mutex::new(None),
            open_writes: OpenWrites::default(),
        };
        Self(Arc::new(inner), None)
    }

    /// Returns a client that records its calls as activity of the agent.
    #[must_use]
    pub fn with_activity(&self, activity: Arc<AgentActivity>) -> Self {
        Self(Arc::clone(&self.0), Some(activity))
    }

    /// Returns the problem of the configuration in the hub's last reply.
    #[must_use]
    pub fn config_problem(&self) -> Option<String> {
        self.0
            .config_problem
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the names of the runs whose supervisors had not reported to the hub at its last
    /// reply.
    #[must_use]
    pub fn without_report(&self) -> Option<String> {
        self.0
            .without_report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the keys of a supervisor's open calls that add to a list of the hub.
    #[must_use]
    pub fn open_writes(&self) -> Vec<String> {
        self.0.open_writes.keys()
    }

    fn target(&self) -> std::sync::MutexGuard<'_, Target> {
        self.0.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call with a new idempotency key.
    ///
    /// # Errors
    /// The error in the reply, or [`codes::UNREACHABLE`].
    pub async fn call<C: Call>(&self, call: &C) -> Result<C::Reply, ErrorView> {
        self.call_with_key(call, &fresh_key()).await
    }

    /// Makes a call with the given idempotency key.
    ///
    /// # Errors
    /// The error in the reply, or [`codes::UNREACHABLE`].
    pub async fn call_with_key<C: Call>(&self, call: &C, key: &str) -> Result<C::Reply, ErrorView> {
        let key = C::WRITES.then_some(key);
        self.send_json(&format!("/api/v1/{}", C::NAME), call, key)
            .await
    }

    /// Posts JSON and parses the JSON reply; otherwise like [`Client::send`].
    ///
    /// # Errors
    /// The error in the reply, or [`codes::UNREACHABLE`].
    pub async fn send_json<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Result<T, ErrorView> {
        let body = serde_json::to_vec(body).map_err(|error| internal(&error))?;
        let reply = self.send(path, body.into(), key).await?;
        serde_json::from_slice(&reply).map_err(|error| internal(&error))
    }

    /// Posts a body and returns the body of the reply. Repeats the call if the hub dies; a
    /// `wait_ms` field is then reduced by the elapsed time. A supervisor also repeats a question, a
    /// report or a delegation of its agent for 15 minutes while the store cannot be used or its
    /// disk is full, and longer if an earlier try may have taken effect.
    ///
    /// # Errors
    /// The error in the reply, or [`codes::UNREACHABLE`].
    pub async fn send(
        &self,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<Bytes, ErrorView> {
        if let Some(calls) = self.calls_in_process() {
            return calls.call(path, body, key).await;
        }
        let _under_way = self.1.as_ref().map(AgentActivity::begin_call);
        let open = self.0.open_writes.begin(path, key);
        let began = Instant::now();
        let mut tries = Tries::new(path, open.is_some());
        let mut bytes = body.clone();
        loop {
            match self.try_once(path, bytes, key).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => self.prepare_repetition(path, failure, &mut tries).await?,
            }
            bytes = with_shortened_wait(&body, began.elapsed());
        }
    }

    fn calls_in_process(&self) -> Option<InProcess> {
        match &*self.target() {
            Target::InProcess(calls) => Some(calls.clone()),
            _ => None,
        }
    }

    /// Waits until a failed call can be repeated.
    ///
    /// # Errors
    /// It is not repeated.
    async fn prepare_repetition(
        &self,
        path: &str,
        failure: CallFailure,
        tries: &mut Tries,
    ) -> Result<(), ErrorView> {
        match failure {
            CallFailure::Refused(error) => self.wait_after_refusal(path, error, tries).await,
            CallFailure::Redirected(socket) => {
                *self.target() = Target::Worker {
                    socket,
                    token: None,
                };
                self.drop_idle();
                Ok(())
            }
            CallFailure::NoReply(message) => {
                tries.note_lost();
                self.drop_idle();
                let target = self.target().clone();
                match target {
                    Target::Hub { home, .. } if tries.failures <= RETRIES_MAX => {
                        start::replace_hub(&home)
                            .await
                            .map_err(|error| hub_start_error(&home, &error))
                    }
                    _ => self.recover(tries.failures, &message).await,
                }
            }
            CallFailure::Connection(message) => {
                tries.note_lost();
                self.drop_idle();
                if tries.failures > 1 {
                    // A hub that accepts connections without replying is starting or exiting.
                    tokio::time::sleep(PAUSE * tries.failures.min(PAUSES_MAX)).await;
                }
                self.recover(tries.failures, &message).await
            }
        }
    }

    async fn wait_after_refusal(
        &self,
        path: &str,
        error: ErrorView,
        tries: &mut Tries,
    ) -> Result<(), ErrorView> {
        let by_supervisor = matches!(&*self.target(), Target::Supervisor { .. });
        let now = Instant::now();
        let follows = tries.after_refusal(&error, by_supervisor, now);
        let is_first = tries.note_refused(follows, now);
        match follows {
            AfterRefusal::Return => return Err(error),
            AfterRefusal::Repeat => return Ok(()),
            AfterRefusal::AwaitStore if is_first => tracing::warn!(
                path,
                problem = error.message,
                "the call is repeated until the store can be used"
            ),
            AfterRefusal::AwaitSpace if is_first => tracing::warn!(
                path,
                "the call is repeated until there is space on the disk of the store"
            ),
            AfterRefusal::AwaitStore | AfterRefusal::AwaitSpace => {}
        }
        tokio::time::sleep(AWAY_PAUSE).await;
        Ok(())
    }

    /// Makes a call of a supervisor once. `None`: the connection broke, and there is a hub again,
    /// for which the caller composes another call.
    ///
    /// # Errors
    /// The error in the reply.
    pub async fn send_json_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Option<T>, ErrorView> {
        let body = serde_json::to_vec(body).map_err(|error| internal(&error))?;
        match self.try_once(path, body.into(), None).await {
            Ok(reply) => serde_json::from_slice(&reply)
                .map(Some)
                .map_err(|error| internal(&error)),
            Err(CallFailure::Refused(error)) => Err(error),
            Err(CallFailure::Redirected(_)) => Err(internal(&"the hub redirected a supervisor")),
            Err(CallFailure::NoReply(message) | CallFailure::Connection(message)) => {
                self.drop_idle();
                // A hub that accepts connections without replying is starting or exiting.
                tokio::time::sleep(PAUSE).await;
                self.recover(1, &message).await?;
                Ok(None)
            }
        }
    }

    /// Prepares the repetition of a call after a broken connection: starts a hub or waits for one.
    async fn recover(&self, failures: u32, message: &str) -> Result<(), ErrorView> {
        let target = self.target().clone();
        match &target {
            Target::Hub { home, .. } => {
                if failures > RETRIES_MAX {
                    return Err(failed_call_error(home, message).await);
                }
                start::ensure_hub(home)
                    .await
                    .map_err(|error| hub_start_error(home, &error))
            }
            Target::RunningHub { home } => Err(failed_call_error(home, message).await),
            Target::Worker { socket, .. } => {
                // Retry once on a new connection. If connecting fails, the supervisor is gone.
                if failures <= 2 && sock::connect(socket).await.is_ok() {
                    return Ok(());
                }
                Err(ErrorView {
                    code: codes::UNREACHABLE.to_owned(),
                    message: format!("the run's supervisor cannot be reached: {message}"),
                    hint: Some("the run has ended or is being stopped".to_owned()),
                })
            }
            Target::Supervisor { home, lock, .. } => {
                match start::wait_for_hub_until(home, || lock.is_removed()).await {
                    true => Ok(()),
                    false => Err(ErrorView {
                        code: codes::UNREACHABLE.to_owned(),
                        message: format!(
                            "the files of this run in {} were removed, so no hub can find it",
                            home.dir.display()
                        ),
                        hint: Some("it is being stopped".to_owned()),
                    }),
                }
            }
            Target::InProcess(_) => unreachable!("calls in process need no connection"),
        }
    }

    fn drop_idle(&self) {
        self.0
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    async fn try_once(
        &self,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<Bytes, CallFailure> {
        let target = self.target().clone();
        let reply = self.exchange(&target, path, body, key).await?;
        self.note_warnings(&reply);
        if let Some(socket) = reply.header(SUPERVISOR_HEADER) {
            return Err(redirection(socket));
        }
        if let Target::Hub { home, .. } = &target
            && !path.ends_with(<HandOver as Call>::NAME)
        {
            self.replace_older_hub(home, &reply).await?;
        }
        outcome(reply.status, reply.body)
    }

    /// Sends a call, and returns its reply.
    async fn exchange(
        &self,
        target: &Target,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<RawReply, CallFailure> {
        let mut connection = match tokio::time::timeout(NO_REPLY, self.connection(target)).await {
            Ok(connection) => {
                connection.map_err(|error| CallFailure::Connection(error.to_string()))?
            }
            Err(_) => return Err(CallFailure::NoReply("no connection".to_owned())),
        };
        // A supervisor keeps its worker's calls open until there is a hub.
        let limit = if matches!(target, Target::Worker { .. }) {
            None
        } else {
            Some(wait_of(&body) + NO_REPLY)
        };
        let request = request(target, path, body, key)
            .map_err(|error| CallFailure::Refused(internal(&error)))?;
        let home = if let Target::Hub { home, .. } = target {
            Some(home)
        } else {
            None
        };
        let reply = connection
            .exchange(request, limit, home)
            .await
            .inspect_err(|broken| {
                if let CallFailure::NoReply(message) = broken {
                    tracing::warn!(path, message, "repeating the call");
                }
            })?;
        self.return_connection(connection);
        Ok(reply)
    }

    /// Keeps what the hub says beside its reply.
    fn note_warnings(&self, reply: &RawReply) {
        for (kept, header) in [
            (&self.0.config_problem, headers::CONFIG_PROBLEM),
            (&self.0.without_report, headers::NO_REPORT),
        ] {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) =
                reply.header(header).and_then(decode_name);
        }
    }

    /// Has a hub replaced whose reply comes from an older version.
    ///
    /// # Errors
    /// The older hub does not know the call.
    async fn replace_older_hub(&self, home: &Home, reply: &RawReply) -> Result<(), CallFailure> {
        let version = reply.header(headers::VERSION);
        let Some(theirs) = version.filter(|theirs| is_older(theirs, VERSION)) else {
            return Ok(());
        };
        let handed = self.hand_over(home).await;
        if reply.status == StatusCode::NOT_FOUND {
            handed?;
            return Err(CallFailure::Connection(format!(
                "the hub was of version {theirs}"
            )));
        }
        // The older hub has already executed the call, so its reply counts even if the successor
        // fails.
        if let Err(CallFailure::Refused(error)) = handed {
            tracing::warn!(%error, "no newer hub could be started");
        }
        Ok(())
    }

    /// Asks an older hub to replace itself by this binary. If it refuses, it keeps running.
    async fn hand_over(&self, home: &Home) -> Result<(), CallFailure> {
        let exe = match std::fs::read_link("/proc/self/exe").or_else(|_| std::env::current_exe()) {
            Ok(exe) => exe.display().to_string(),
            Err(error) => return Err(CallFailure::Refused(internal(&error))),
        };
        let call = HandOver {
            exe,
            version: VERSION.to_owned(),
        };
        let body =
            serde_json::to_vec(&call).map_err(|error| CallFailure::Refused(internal(&error)))?;
        let path = format!("/api/v1/{}", HandOver::NAME);
        match Box::pin(self.try_once(&path, Bytes::from(body), None)).await {
            Ok(_) | Err(CallFailure::Connection(_) | CallFailure::NoReply(_)) => {
                self.drop_idle();
                start::ensure_hub(home).await.map_err(|error| {
                    CallFailure::Refused(unreachable_hub_error(home, &error.to_string()))
                })
            }
            Err(CallFailure::Refused(error)) => {
                tracing::warn!(%error, "the hub of an older version refused to be replaced");
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    async fn connection(&self, target: &Target) -> io::Result<WatchedConnection> {
        while let Some(mut idle) = self.pop_idle() {
            if idle.is_open().await {
                return Ok(idle);
            }
        }
        let opened = WatchedConnection::open(&target.socket()).await?;
        match target {
            // A hub takes its lock before it opens its socket, so this is the socket of another
            // program.
            Target::Hub { home, .. } if !start::has_hub(home) => {
                Err(io::Error::other("the socket is not that of a hub"))
            }
            _ => Ok(opened),
        }
    }

    fn pop_idle(&self) -> Option<WatchedConnection> {
        self.0
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn return_connection(&self, connection: WatchedConnection) {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX && connection.is_reusable() {
            idle.push(connection);
        }
    }
}
