//! A standby hub: it shares its store with the leader, waits for leadership, and passes the calls
//! on its socket to the leader.
//!
//! ```text
//!  standby ── leadership won ──> leader ── leadership lost ──> standby
//! ```
//! A call waits while there is no leader. It is repeated with its key if the leader dies.

use super::auth::{CallerConnection, authenticate_outside};
use super::calls::{bad, failed, reply};
use super::capacity::{Capacity, TooFewDescriptors};
use super::connections::Connections;
use super::ending::{CALLS_END_MAX, EndSignals};
use super::error::{HubError, NotBegun};
use super::home::Socket;
use super::options::Options;
use super::ready::report_ready;
use super::router::{self, add_version, manage, read_body};
use super::{Hub, standby_logs};
use crate::config::{Config, Home, LogStoreAddress, PostgresAddress};
use crate::hub_client::{VERSION, encode_name, is_older, random_hex, wait_of, with_shortened_wait};
use crate::objects::Objects;
use crate::ops::{live_attempts, token_hash, try_objects};
use crate::process::{Lock, hygiene};
use crate::protocol::{HUB_TOKEN, PASSED, headers};
use crate::remote::{self, HubAddress, Trust};
use crate::store::{ConfirmedNote, Lead, LeaderAddress, LeaderStatus, StoreError, stand_by};
use crate::view::{
    Call, CheckLogStore, ErrorView, GetHub, GetRun, HandOver, HubView, LeaderView, LogStoreCheck,
    StopHub, codes,
};
use adjutant_core::{Denied, Fingerprint, Principal, RunId, Time};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

/// How long a call waits for the leader, in addition to its own wait. Shorter than a client waits
/// for a reply.
const LEADER_WAIT_MAX: Duration = Duration::from_secs(12);
/// How long the leader may take to reply, in addition to the wait that a call requests.
const REPLY_TIMEOUT: Duration = Duration::from_secs(12);
/// How long the state of the leader may take. Clients check with it whether this hub responds.
const STATE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long replies of the former leader are still passed on after this hub has become the leader.
const LAST_REPLIES_MAX: Duration = Duration::from_millis(20);
/// How long a hub that shares its store waits for leadership before it serves callers as a standby
/// hub.
const LEADERSHIP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the leader waits until it announces its address again.
const ANNOUNCE_AGAIN: Duration = Duration::from_millis(500);
/// The interval at which a hub that stays when idle reads the configuration.
const STAYS_FOR: Duration = Duration::from_secs(60 * 60);
/// The pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(50);

/// What the calls of a standby hub share.
struct Standby {
    home: Home,
    version: String,
    started_at: Time,
    address: PostgresAddress,
    log_store: Option<LogStoreAddress>,
    connections: Arc<Connections>,
    token: String,
    seen: watch::Receiver<LeaderStatus>,
    /// The connections to the leader.
    remote: Mutex<Option<(LeaderAddress, Arc<remote::Connections>)>>,
    /// Notified when this hub must end.
    stop: Notify,
    /// This hub must end, even if it becomes the leader in the same moment.
    must_end: AtomicBool,
    /// This hub leads now, so callers repeat what has not been answered.
    leads: watch::Sender<bool>,
}

impl Standby {
    fn end(&self) {
        self.must_end.store(true, Ordering::SeqCst);
        self.stop.notify_one();
    }
}

/// A hub that shares its store and is not the leader yet.
pub(super) struct Candidate<'a> {
    pub(super) home: &'a Home,
    pub(super) lock: &'a Lock,
    pub(super) address: &'a PostgresAddress,
    pub(super) note: &'a Arc<ConfirmedNote>,
    pub(super) log_store: Option<&'a LogStoreAddress>,
    pub(super) options: &'a Options,
}

/// The wait of this hub for leadership.
struct Election {
    token: String,
    seen: watch::Receiver<LeaderStatus>,
    won: oneshot::Receiver<Result<Arc<Lead>, StoreError>>,
}

impl Election {
    async fn won(&mut self) -> Result<Arc<Lead>, HubError> {
        match (&mut self.won).await {
            Ok(won) => Ok(won?),
            Err(_) => Err(HubError::ElectionEnded),
        }
    }
}

impl Candidate<'_> {
    /// Waits until this hub is the leader. Meanwhile it serves the socket, unless it becomes the
    /// leader at once. `None`: it was asked to end.
    pub(super) async fn until_lead(
        self,
        signals: &mut EndSignals,
    ) -> Result<Option<Arc<Lead>>, HubError> {
        let mut election = self.enter()?;
        if let Ok(won) = tokio::time::timeout(LEADERSHIP_TIMEOUT, election.won()).await {
            return won.map(Some);
        }
        let standby = Arc::new(self.standby(&election)?);
        let mut sockets = StandbySocket::open(&standby)?;
        self.report_standby(&standby);
        let ended = tokio::select! {
            won = election.won() => won.map(Some),
            ended = &mut sockets.server => match ended {
                Ok(()) => Ok(None),
                Err(error) => Err(HubError::Socket(error)),
            },
            () = standby.stop.notified() => Ok(None),
            _ = signals.received() => Ok(None),
            () = idle(&standby, self.options) => Ok(None),
            _ = super::home::watch(self.home, self.lock, &mut sockets.socket) => Ok(None),
            () = standby.connections.close_silent() => Ok(None),
            () = standby_logs::move_left(self.home, self.log_store, |run| standby.is_known(run)) => Ok(None),
        };
        let is_won = matches!(ended, Ok(Some(_)));
        sockets.close(&standby, is_won).await;
        // Signals that arrive from now on are handled by the leader.
        match ended {
            Ok(Some(lead)) if standby.must_end.load(Ordering::SeqCst) => {
                lead.end();
                Ok(None)
            }
            ended => ended,
        }
    }

    fn enter(&self) -> Result<Election, HubError> {
        let name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let token = random_hex::<32>();
        let (seen, won) =
            stand_by(self.note, self.address, &name, &token_hash(&token)).map_err(HubError::Io)?;
        Ok(Election { token, seen, won })
    }

    fn standby(&self, election: &Election) -> Result<Standby, TooFewDescriptors> {
        let capacity = Capacity::of(hygiene::descriptors_max())?;
        Ok(Standby {
            home: self.home.clone(),
            version: self
                .options
                .as_version
                .clone()
                .unwrap_or_else(|| VERSION.to_owned()),
            started_at: crate::clock::now(),
            address: self.address.clone(),
            log_store: self.log_store.cloned(),
            connections: Arc::new(Connections::new(capacity.connections_max)),
            token: election.token.clone(),
            seen: election.seen.clone(),
            remote: Mutex::default(),
            stop: Notify::new(),
            must_end: AtomicBool::new(false),
            leads: watch::Sender::new(false),
        })
    }

    fn report_standby(&self, standby: &Standby) {
        let why = match &*standby.seen.borrow() {
            LeaderStatus::Unreachable(problem) => format!("PostgreSQL cannot be used ({problem})"),
            LeaderStatus::NoLeader => "it waits for the lock of the store".to_owned(),
            LeaderStatus::Leader(_) | LeaderStatus::Unshared(_) => {
                "another hub is the leader".to_owned()
            }
        };
        let home = self.home.dir.display();
        tracing::info!(%home, store = %self.address, why, "this hub is on standby");
        if self.options.foreground {
            eprint_line(&format!(
                "on standby for {home} (pid {}): {why}; Ctrl-C ends this one",
                std::process::id()
            ));
        }
        report_ready("ready");
    }
}

/// The socket of a standby hub, with the task that serves it.
struct StandbySocket {
    socket: Socket,
    closing: Arc<Notify>,
    server: BoxFuture<'static, io::Result<()>>,
}

impl StandbySocket {
    fn open(standby: &Arc<Standby>) -> Result<Self, HubError> {
        let path = standby.home.socket();
        let (socket, listener, renewed) =
            Socket::bind(&standby.home).map_err(|source| HubError::File { path, source })?;
        let closing = Arc::new(Notify::new());
        let service = Router::new().fallback(pass).with_state(Arc::clone(standby));
        let server = router::serve_with(
            service,
            Arc::clone(&standby.connections),
            listener,
            renewed,
            Arc::clone(&closing),
        );
        Ok(Self {
            socket,
            closing,
            // It may have ended when this hub waits for its end.
            server: server.fuse().boxed(),
        })
    }

    /// Accepts no further calls and waits for those in progress, for a limited time.
    async fn close(self, standby: &Standby, is_won: bool) {
        self.socket.remove();
        standby.leads.send_replace(is_won);
        self.closing.notify_one();
        // After a change of the leader, no other hub can still answer.
        let calls_end_max = if is_won {
            LAST_REPLIES_MAX
        } else {
            CALLS_END_MAX
        };
        if tokio::time::timeout(calls_end_max, self.server)
            .await
            .is_err()
        {
            tracing::debug!("calls were cut off; their callers repeat them");
        }
    }
}

fn eprint_line(line: &str) {
    use std::io::Write;
    if let Err(error) = std::io::stderr().write_all(format!("{line}\n").as_bytes()) {
        tracing::debug!(%error, "a message could not be written");
    }
}

/// Returns when this hub has been idle for the configured time. A hub that listens never exits when
/// idle: it may become the leader.
async fn idle(standby: &Standby, options: &Options) {
    loop {
        let config = Config::load(&standby.home).ok();
        let limit = config
            .filter(|config| config.listen.is_none() && options.listen.is_none())
            .and_then(|config| config.times.idle_exit_ms);
        let nap = limit.map_or(STAYS_FOR, |ms| {
            Duration::from_millis(u64::try_from(ms).unwrap_or(0))
        });
        tokio::select! {
            () = standby.connections.changed() => continue,
            () = tokio::time::sleep(nap) => {}
        }
        if limit.is_some() && standby.connections.open() == 0 {
            return;
        }
    }
}

/// Refuses leadership while attempts exist that another hub started on its own machine: only that
/// hub knows whether they still work.
pub(super) fn check_local_attempts(hub: &Hub) -> Result<(), NotBegun> {
    let local = live_attempts(hub.ops.store())?;
    match local
        .into_iter()
        .find(|id| !id.dir(hub.ops.home()).0.exists())
    {
        None => Ok(()),
        Some(id) => Err(NotBegun::Refused(HubError::LocalAttempt { run: id.run })),
    }
}

/// Announces the address of this hub to the standby hubs, and keeps the session that writes.
pub(super) async fn announce(hub: Arc<Hub>, lead: Arc<Lead>) {
    let (url, tls) = (hub.listening.announced_url(), hub.listening.tls());
    loop {
        let fingerprint = tls.as_ref().map(|tls| tls.fingerprint());
        while let Err(error) = lead
            .announce(hub.ops.store(), url.clone(), fingerprint.clone())
            .await
        {
            tracing::warn!(%error, "the address of this hub cannot be announced yet");
            tokio::time::sleep(ANNOUNCE_AGAIN).await;
        }
        let changed = async {
            match tls.as_deref().zip(fingerprint.as_deref()) {
                Some((tls, announced)) => drop(tls.other_fingerprint(announced).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = lead.keep_session(hub.ops.store()) => return,
            // The standby hubs accept only the announced key.
            () = changed => {}
        }
    }
}

async fn pass(
    State(standby): State<Arc<Standby>>,
    ConnectInfo(connection): ConnectInfo<CallerConnection>,
    request: Request,
) -> Response {
    let _answering = connection.line().call();
    if !connection.line().has_place() {
        return router::too_many(&standby.connections);
    }
    let (head, body) = request.into_parts();
    let response = match authenticate_outside(&standby.home.dir, &connection, &head.headers) {
        Err(refusal) => *refusal,
        Ok(who) if head.method == Method::POST => match read_body(body).await {
            Ok(body) => answer(&standby, &who, head.uri.path(), &head.headers, &body).await,
            Err(()) => failed(&bad("the body cannot be read")),
        },
        Ok(_) => failed(&bad("calls are made with POST")),
    };
    add_version(&standby.version, response)
}

/// Answers what concerns this hub, and passes on the rest.
async fn answer(
    standby: &Standby,
    who: &Principal,
    path: &str,
    given: &HeaderMap,
    body: &Bytes,
) -> Response {
    let is = |name: &str| path.strip_prefix("/api/v1/") == Some(name);
    if is(GetHub::NAME) {
        return reply(Ok(state(standby, who, given).await));
    }
    if is(StopHub::NAME) {
        if let Err(refusal) = manage(who) {
            return reply::<HubView>(Err(refusal));
        }
        // The state may take longer than an ending hub waits for its calls.
        let state = state(standby, who, given).await;
        standby.end();
        return reply(Ok(state));
    }
    if is(CheckLogStore::NAME) {
        return reply(match manage(who) {
            Ok(()) => Ok(log_store_check(standby.log_store.as_ref()).await),
            Err(refusal) => Err(refusal),
        });
    }
    if is(HandOver::NAME) {
        return match serde_json::from_slice::<HandOver>(body) {
            Ok(call) => {
                if is_older(&standby.version, &call.version) {
                    tracing::info!(
                        version = call.version,
                        exe = call.exe,
                        "a newer version takes over"
                    );
                    standby.end();
                }
                reply(Ok(state(standby, who, given).await))
            }
            Err(error) => failed(&bad(&error.to_string())),
        };
    }
    standby
        .pass_on(who, path, given, body)
        .await
        .unwrap_or_else(|error| failed(&error))
}

/// Returns the state of this hub, with the counts of the leader if it replies in time.
async fn state(standby: &Standby, who: &Principal, given: &HeaderMap) -> HubView {
    let led = state_of_leader(standby, who, given)
        .await
        .unwrap_or_else(|| HubView {
            sqlite_version: crate::store::sqlite_version().to_owned(),
            store: "PostgreSQL".to_owned(),
            ..HubView::default()
        });
    let (mut problems, mut store_problem) = (Vec::new(), None);
    let leader = match &*standby.seen.borrow() {
        LeaderStatus::Leader(leader) => {
            if leader.url.is_none() {
                problems.push(not_listening(leader).message);
            }
            Some(LeaderView {
                name: leader.name.clone(),
                url: leader.url.clone(),
                fingerprint: leader.fingerprint.clone(),
            })
        }
        LeaderStatus::Unshared(name) => {
            problems.push(unshared(name).message);
            None
        }
        LeaderStatus::NoLeader => {
            problems.push(no_leader(&standby.address).message);
            None
        }
        LeaderStatus::Unreachable(problem) => {
            store_problem = Some(unreachable(&standby.address, problem).message);
            None
        }
    };
    problems.extend(led.problems);
    HubView {
        version: standby.version.clone(),
        pid: std::process::id(),
        home: standby.home.dir.display().to_string(),
        started_at: crate::clock::rfc3339(standby.started_at),
        clock: crate::clock::warning(),
        url: None,
        remote_url: None,
        fingerprint: None,
        problems,
        leader,
        store_problem,
        ..led
    }
}

/// Returns the state of the leader. `None`: it has not replied in time.
async fn state_of_leader(standby: &Standby, who: &Principal, given: &HeaderMap) -> Option<HubView> {
    let path = format!("/api/v1/{}", GetHub::NAME);
    let body = Bytes::from_static(b"{}");
    let replied =
        tokio::time::timeout(STATE_TIMEOUT, standby.pass_on(who, &path, given, &body)).await;
    match replied {
        Ok(Ok(response)) if response.status().is_success() => {
            let bytes = axum::body::to_bytes(response.into_body(), router::BODY_BYTES_MAX)
                .await
                .unwrap_or_default();
            serde_json::from_slice::<HubView>(&bytes).ok()
        }
        _ => None,
    }
}

/// Checks the log store of this hub, which moves what it has received.
async fn log_store_check(address: Option<&LogStoreAddress>) -> LogStoreCheck {
    let Some(address) = address.cloned() else {
        return LogStoreCheck::default();
    };
    let shown = address.to_string();
    let tried = match tokio::task::spawn_blocking(move || Objects::open(&address)).await {
        Ok(Ok(objects)) => try_objects(&objects)
            .await
            .err()
            .map(|error| error.to_string()),
        Ok(Err(problem)) => Some(problem.to_string()),
        Err(error) => Some(error.to_string()),
    };
    LogStoreCheck {
        address: Some(shown),
        problem: tried,
    }
}

fn refusal(message: String, hint: &str) -> ErrorView {
    ErrorView {
        code: codes::UNREACHABLE.to_owned(),
        message,
        hint: Some(hint.to_owned()),
    }
}

fn no_leader(address: &PostgresAddress) -> ErrorView {
    refusal(
        format!("no hub is the leader of the store at {address} at the moment"),
        "adj doctor; the call can be repeated",
    )
}

fn unreachable(address: &PostgresAddress, problem: &str) -> ErrorView {
    refusal(
        format!("the store at {address} cannot be used: {problem}"),
        "check the PostgreSQL server; the call can be repeated",
    )
}

fn not_listening(leader: &LeaderAddress) -> ErrorView {
    refusal(
        format!(
            "the leader, the hub on {}, does not listen, so this hub cannot pass calls to it",
            leader.name
        ),
        "set listen in its configuration, and public_url if other machines need another address",
    )
}

fn unshared(name: &str) -> ErrorView {
    refusal(
        format!("a hub that does not share the store uses it: {name}"),
        "set store_shared = true in its configuration too",
    )
}

/// Why it is unknown whether a run exists.
#[derive(Debug, thiserror::Error)]
enum LookupError {
    #[error(transparent)]
    Call(#[from] serde_json::Error),
    #[error("{0}")]
    NotPassed(String),
    #[error(transparent)]
    Reply(#[from] axum::Error),
    #[error("the leader cannot say whether run {run} exists ({status})")]
    Unknown { run: RunId, status: StatusCode },
}

impl Standby {
    /// Asks the leader whether a run exists.
    async fn is_known(&self, run: RunId) -> Result<bool, LookupError> {
        let body = serde_json::to_vec(&GetRun {
            run: run.to_string(),
            ..GetRun::default()
        })?;
        let path = format!("/api/v1/{}", GetRun::NAME);
        let replied = self
            .pass_on(
                &Principal::Person,
                &path,
                &HeaderMap::new(),
                &Bytes::from(body),
            )
            .await
            .map_err(|error| LookupError::NotPassed(error.message))?;
        let status = replied.status();
        if status.is_success() {
            return Ok(true);
        }
        // A proxy and a hub that does not share the store also reply with this status, but not with
        // this code in the format of calls.
        let is_problem = replied
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/problem"));
        let body = axum::body::to_bytes(replied.into_body(), router::BODY_BYTES_MAX).await?;
        if status == StatusCode::NOT_FOUND && !is_problem && code_of(&body) == codes::NOT_FOUND {
            return Ok(false);
        }
        Err(LookupError::Unknown { run, status })
    }

    /// Passes a call to the leader, and repeats it until it was answered or this hub is the leader.
    async fn pass_on(
        &self,
        who: &Principal,
        path: &str,
        given: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response, ErrorView> {
        let mut leads = self.leads.subscribe();
        tokio::select! {
            passed = self.pass_on_until_answered(who, path, given, body) => passed,
            Ok(_) = leads.wait_for(|leads| *leads) => Err(ErrorView {
                code: codes::CLOSING.to_owned(),
                message: "this hub has become the leader".to_owned(),
                hint: Some("repeat the call with the same key".to_owned()),
            }),
        }
    }

    async fn pass_on_until_answered(
        &self,
        who: &Principal,
        path: &str,
        given: &HeaderMap,
        body: &Bytes,
    ) -> Result<Response, ErrorView> {
        let began = Instant::now();
        let until = began + wait_of(body) + LEADER_WAIT_MAX;
        let key = given.get(headers::KEY).and_then(|key| key.to_str().ok());
        let client = if let Principal::Client(name) = who {
            Some(encode_name(name.as_str()))
        } else {
            None
        };
        let path = format!("{PASSED}{path}");
        let mut sent = vec![(HUB_TOKEN, self.token.as_str())];
        sent.extend(key.map(|key| (headers::KEY, key)));
        sent.extend(client.as_deref().map(|name| (headers::CLIENT, name)));
        let mut is_repeated = false;
        let mut seen = self.seen.clone();
        loop {
            let leader = self.leader(&mut seen, until).await?;
            let body = if is_repeated {
                with_shortened_wait(body, began.elapsed())
            } else {
                body.clone()
            };
            let limit = wait_of(&body) + REPLY_TIMEOUT;
            let replied = match self.connections_to(&leader) {
                Ok(remote) => tokio::select! {
                    replied = remote.post(&path, &sent, body, limit) => {
                        replied.map_err(|problem| NotAnswered::Failed(problem.to_string()))
                    }
                    // A leader that is suspended or cut off keeps its connections open and never
                    // replies.
                    () = other_leader(&mut seen, &leader) => Err(NotAnswered::OtherLeader),
                },
                Err(problem) => Err(problem),
            };
            let problem = match replied.and_then(answered) {
                Ok(reply) => return Ok(response(reply)),
                Err(problem) => problem,
            };
            is_repeated = true;
            tracing::debug!(path, %problem, "a call is passed on again");
            if Instant::now() >= until {
                return Err(refusal(
                    format!("the hub on {} cannot be reached: {problem}", leader.name),
                    "the call can be repeated",
                ));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the leader, once there is one with an address.
    async fn leader(
        &self,
        seen: &mut watch::Receiver<LeaderStatus>,
        until: Instant,
    ) -> Result<LeaderAddress, ErrorView> {
        loop {
            let problem = match &*seen.borrow_and_update() {
                LeaderStatus::Leader(leader) if leader.url.is_some() => return Ok(leader.clone()),
                LeaderStatus::Leader(leader) => not_listening(leader),
                LeaderStatus::Unshared(name) => unshared(name),
                LeaderStatus::NoLeader => no_leader(&self.address),
                LeaderStatus::Unreachable(problem) => unreachable(&self.address, problem),
            };
            match tokio::time::timeout_at(until, seen.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(problem),
            }
        }
    }

    fn connections_to(
        &self,
        leader: &LeaderAddress,
    ) -> Result<Arc<remote::Connections>, NotAnswered> {
        let mut kept = self.remote.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, connections)) = kept.as_ref().filter(|(of, _)| of == leader) {
            return Ok(Arc::clone(connections));
        }
        let url = leader.url.as_deref().unwrap_or_default();
        let address = url
            .parse::<HubAddress>()
            .map_err(|problem| NotAnswered::Failed(problem.to_string()))?;
        let trust = match &leader.fingerprint {
            Some(fingerprint) => Trust::Fingerprints(vec![Fingerprint::parse(fingerprint)?]),
            None => Trust::Installed,
        };
        let connections = Arc::new(remote::Connections::new(address, trust));
        *kept = Some((leader.clone(), Arc::clone(&connections)));
        Ok(connections)
    }
}

/// Why a call that was passed on is repeated.
#[derive(Debug, thiserror::Error)]
enum NotAnswered {
    #[error("{0}")]
    Failed(String),
    #[error("another hub is the leader")]
    OtherLeader,
    #[error("it ends")]
    Ending,
    #[error("it does not know this hub")]
    UnknownHub,
    #[error(transparent)]
    Fingerprint(#[from] Denied),
}

/// Returns the reply that the caller gets. An error: the leader has done nothing, or cannot tell.
/// The repeated call has its key, and takes effect once.
fn answered(reply: remote::HubReply) -> Result<remote::HubReply, NotAnswered> {
    match reply.status {
        StatusCode::SERVICE_UNAVAILABLE if code_of(&reply.body) == codes::CLOSING => {
            Err(NotAnswered::Ending)
        }
        // It learns of the token of this hub from the store.
        StatusCode::UNAUTHORIZED => Err(NotAnswered::UnknownHub),
        _ => Ok(reply),
    }
}

/// Waits until another hub is the leader.
async fn other_leader(seen: &mut watch::Receiver<LeaderStatus>, than: &LeaderAddress) {
    let is_other = |status: &LeaderStatus| matches!(status, LeaderStatus::Leader(leader) if leader != than && leader.url.is_some());
    if seen.wait_for(is_other).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn code_of(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Coded {
        code: String,
    }
    serde_json::from_slice::<Coded>(body)
        .map(|coded| coded.code)
        .unwrap_or_default()
}

/// Returns a reply of the leader as that of this one.
fn response(reply: remote::HubReply) -> Response {
    let remote::HubReply {
        status,
        headers: given,
        body,
    } = reply;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    for name in [CONTENT_TYPE.as_str(), headers::CONFIG_PROBLEM] {
        if let (Some(value), Ok(name)) = (
            given.get(name),
            axum::http::HeaderName::from_bytes(name.as_bytes()),
        ) {
            response
                .headers_mut()
                .insert(name, HeaderValue::clone(value));
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns why the call is repeated.
    fn problem(status: StatusCode, code: &str) -> Option<String> {
        let reply = remote::HubReply {
            status,
            headers: HeaderMap::new(),
            body: format!("{{\"code\":{code:?}}}").into(),
        };
        answered(reply).err().map(|problem| problem.to_string())
    }

    #[test]
    fn call_is_repeated_if_the_leader_ends_or_does_not_know_this_hub() {
        let busy = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(problem(busy, codes::CLOSING).as_deref(), Some("it ends"));
        assert_eq!(problem(busy, codes::STORAGE), None, "it has answered");
        assert_eq!(
            problem(StatusCode::UNAUTHORIZED, codes::NOT_ALLOWED).as_deref(),
            Some("it does not know this hub")
        );
        assert_eq!(problem(StatusCode::FORBIDDEN, codes::NOT_ALLOWED), None);
    }
}
