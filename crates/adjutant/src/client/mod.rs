//! The client of the hub: what the CLI, `adj mcp` and a supervisor call it with.
//!
//! A call returns when there is a reply, and a reply to a write means that it is durable. When the
//! connection breaks in between, the call is repeated under the same idempotency key, so it has
//! one effect however often the hub is killed.

mod connection;
mod pulse;
mod start;

pub use pulse::Pulse;
pub use start::{ensure_hub, wait_until_served};

use crate::config::{Home, HomeError};
use crate::link::{Order, WorkerAccess, headers};
use crate::process::{lock, tree};
use crate::sock;
use crate::view::{Call, ErrorView, GetHub, HandOver, codes};
use adjutant_core::ClientName;
use connection::{Connection, NO_REPLY, Request};
use http::StatusCode;
use http::header::InvalidHeaderValue;
use hyper::body::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// This build's version, as the two ends of a connection tell each other.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Header of a refusal that says where the caller's supervisor listens.
pub const SUPERVISOR_HEADER: &str = "adj-supervisor";
/// Most idle connections that one client keeps.
const IDLE_CONNECTIONS_MAX: usize = 8;
/// How often a call is repeated after the connection broke before the far end is given up, where
/// the far end can be given up.
const RETRIES_MAX: u32 = 20;
/// The pause before a call is repeated for the second time; each later one is longer by it, up to a number.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSES_MAX: u32 = 40;
/// How long a hub may take to say anything, where somebody only looks whether it is there.
const LOOK: Duration = Duration::from_secs(2);
/// The same where its silence is reported.
const LONG_LOOK: Duration = Duration::from_secs(5);
/// A connection to the hub, or to a supervisor that carries the calls on. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Inner>, Option<Arc<Pulse>>);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("target", &*self.target()).finish_non_exhaustive()
    }
}

struct Inner {
    target: Mutex<Target>,
    idle: Mutex<Vec<Connection>>,
    /// What the hub last said to be wrong with the configuration.
    config_problem: Mutex<Option<String>>,
}

/// Who is at the far end, and what to do when nobody is.
#[derive(Debug, Clone)]
enum Target {
    /// The hub; it is started when it is not there.
    Hub { home: Home, client: Option<ClientName> },
    /// The hub, if it is there; nothing is started.
    RunningHub { home: Home },
    /// A supervisor's socket. If it is gone, so is the run.
    Worker { socket: PathBuf, token: Option<String> },
    /// The hub, for a supervisor: waited for as long as it takes.
    Supervisor { home: Home, attempt: String, token: String },
}

impl Target {
    fn socket(&self) -> PathBuf {
        match self {
            Self::Hub { home, .. } | Self::RunningHub { home } | Self::Supervisor { home, .. } => home.socket(),
            Self::Worker { socket, .. } => socket.clone(),
        }
    }
}

/// Why one try did not bring a reply.
enum CallFailure {
    /// Nothing was sent, or nothing came back: repeat it.
    Connection(String),
    /// It was sent, and nothing came back for too long: the far end may be dying, with its socket open.
    NoReply(String),
    /// The far end answered with a failure.
    Refused(ErrorView),
    /// The caller lives under a supervisor and has to go there.
    GoTo(PathBuf),
}

impl Client {
    /// Makes a client of the home's hub, as the person, or as a client under `as_client`. The hub
    /// is started with the first call when it is not there.
    #[must_use]
    pub fn hub(home: &Home, as_client: Option<ClientName>) -> Self {
        Self::new(Target::Hub { home: home.clone(), client: as_client })
    }

    /// Makes a client of the home's hub that starts nothing.
    #[must_use]
    pub fn running_hub(home: &Home) -> Self {
        Self::new(Target::RunningHub { home: home.clone() })
    }

    /// Makes a client of a supervisor's socket.
    #[must_use]
    pub fn worker(access: WorkerAccess) -> Self {
        Self::new(Target::Worker { socket: access.socket, token: Some(access.token) })
    }

    /// Makes the client with which a supervisor speaks to the hub.
    #[must_use]
    pub fn supervisor(order: &Order) -> Self {
        let attempt = format!("{}/{}", order.run_id, order.attempt);
        Self::new(Target::Supervisor { home: Home { dir: order.home.clone() }, attempt, token: order.token.clone() })
    }

    fn new(target: Target) -> Self {
        Self(Arc::new(Inner { target: Mutex::new(target), idle: Mutex::new(Vec::new()), config_problem: Mutex::new(None) }), None)
    }

    /// Returns the same client, whose calls are signs of life.
    #[must_use]
    pub fn with_pulse(&self, pulse: Arc<Pulse>) -> Self {
        Self(Arc::clone(&self.0), Some(pulse))
    }

    /// Returns what is wrong with the configuration, as the hub said with its last reply.
    #[must_use]
    pub fn config_problem(&self) -> Option<String> {
        self.0.config_problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn target(&self) -> std::sync::MutexGuard<'_, Target> {
        self.0.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one call under a fresh idempotency key.
    ///
    /// # Errors
    /// What the far end refused, or [`codes::UNREACHABLE`].
    pub async fn call<C: Call>(&self, call: &C) -> Result<C::Reply, ErrorView> {
        self.call_with_key(call, &fresh_key()).await
    }

    /// Makes one call under the given idempotency key.
    ///
    /// # Errors
    /// What the far end refused, or [`codes::UNREACHABLE`].
    pub async fn call_with_key<C: Call>(&self, call: &C, key: &str) -> Result<C::Reply, ErrorView> {
        let key = C::WRITES.then_some(key);
        self.send_json(&format!("/api/v1/{}", C::NAME), call, key).await
    }

    /// Posts JSON and reads the JSON that comes back; otherwise as [`Client::send`].
    ///
    /// # Errors
    /// What the far end refused, or [`codes::UNREACHABLE`].
    pub async fn send_json<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize, key: Option<&str>) -> Result<T, ErrorView> {
        let body = serde_json::to_vec(body).map_err(|error| internal(&error))?;
        let reply = self.send(path, body.into(), key).await?;
        serde_json::from_slice(&reply).map_err(|error| internal(&error))
    }

    /// Posts a body and returns the one that comes back, repeating the call through a hub's death. A
    /// `wait_ms` field is shortened then by the time that has gone by.
    ///
    /// # Errors
    /// What the far end refused, or [`codes::UNREACHABLE`].
    pub async fn send(&self, path: &str, body: Bytes, key: Option<&str>) -> Result<Bytes, ErrorView> {
        let _under_way = self.1.as_ref().map(Pulse::call);
        let began = Instant::now();
        let mut failures = 0_u32;
        loop {
            let bytes = if failures == 0 { body.clone() } else { with_less_to_wait(&body, began.elapsed()) };
            match self.try_once(path, bytes, key).await {
                Ok(reply) => return Ok(reply),
                Err(CallFailure::Refused(error)) if error.code == codes::STORAGE && key.is_some() && failures < 3 => failures += 1,
                Err(CallFailure::Refused(error)) => return Err(error),
                Err(CallFailure::GoTo(socket)) => {
                    *self.target() = Target::Worker { socket, token: None };
                    self.drop_idle();
                }
                Err(CallFailure::NoReply(message)) => {
                    failures += 1;
                    self.drop_idle();
                    let target = self.target().clone();
                    match target {
                        Target::Hub { home, .. } if failures <= RETRIES_MAX => {
                            start::replace_hub(&home).await.map_err(|error| no_hub(&home, &error))?;
                        }
                        _ => self.recover(failures, &message).await?,
                    }
                }
                Err(CallFailure::Connection(message)) => {
                    failures += 1;
                    self.drop_idle();
                    if failures > 1 {
                        // What takes connections and answers none is ending, or beginning.
                        tokio::time::sleep(PAUSE * failures.min(PAUSES_MAX)).await;
                    }
                    self.recover(failures, &message).await?;
                }
            }
        }
    }

    /// Does what can be done about a broken connection before the call is repeated.
    async fn recover(&self, failures: u32, message: &str) -> Result<(), ErrorView> {
        let target = self.target().clone();
        match &target {
            Target::Hub { home, .. } => {
                if failures > RETRIES_MAX {
                    return Err(unreachable_hub(home, message));
                }
                start::ensure_hub(home).await.map_err(|error| no_hub(home, &error))
            }
            Target::RunningHub { home } => Err(unreachable_hub(home, message)),
            Target::Worker { socket, .. } => {
                // A broken connection is repeated once on a fresh one; a refused one is the end.
                if failures <= 2 && sock::connect(socket).await.is_ok() {
                    return Ok(());
                }
                Err(ErrorView {
                    code: codes::UNREACHABLE.to_owned(),
                    message: format!("the run's supervisor cannot be reached: {message}"),
                    hint: Some("the run has ended or is being stopped".to_owned()),
                })
            }
            Target::Supervisor { home, .. } => {
                start::wait_for_hub(home).await;
                Ok(())
            }
        }
    }

    fn drop_idle(&self) {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn try_once(&self, path: &str, body: Bytes, key: Option<&str>) -> Result<Bytes, CallFailure> {
        let target = self.target().clone();
        let mut connection = match tokio::time::timeout(NO_REPLY, self.connection(&target)).await {
            Ok(connection) => connection.map_err(|error| CallFailure::Connection(error.to_string()))?,
            Err(_) => return Err(CallFailure::NoReply("no connection".to_owned())),
        };
        // A supervisor holds its worker's calls for as long as there is no hub.
        let limit = if matches!(target, Target::Worker { .. }) { None } else { Some(wait_of(&body) + NO_REPLY) };
        let request = request(&target, path, body, key).map_err(|error| CallFailure::Refused(internal(&error)))?;
        let home = if let Target::Hub { home, .. } = &target { Some(home) } else { None };
        let reply = connection.exchange(request, limit, home).await.inspect_err(|broken| {
            if let CallFailure::NoReply(message) = broken {
                tracing::warn!(path, message, "the call is repeated");
            }
        })?;
        self.give_back(connection);
        *self.0.config_problem.lock().unwrap_or_else(PoisonError::into_inner) = reply.header(headers::CONFIG_PROBLEM).and_then(decode_name);
        if let Some(socket) = reply.header(SUPERVISOR_HEADER) {
            return Err(match decode_name(socket) {
                Some(socket) => CallFailure::GoTo(PathBuf::from(socket)),
                None => CallFailure::Refused(internal(&"the hub named no usable supervisor")),
            });
        }
        if let (Target::Hub { home, .. }, Some(theirs)) = (&target, reply.header(headers::VERSION))
            && is_older(theirs, VERSION)
            && !path.ends_with(<HandOver as Call>::NAME)
        {
            let handed = self.hand_over(home).await;
            if reply.status == StatusCode::NOT_FOUND {
                handed?;
                return Err(CallFailure::Connection(format!("the hub was of version {theirs}")));
            }
            // What the older hub has done is done, whatever becomes of its successor.
            if let Err(CallFailure::Refused(error)) = handed {
                tracing::warn!(%error, "no newer hub could be started");
            }
        }
        if reply.status.is_success() {
            return Ok(reply.body);
        }
        let refusal = serde_json::from_slice::<ErrorView>(&reply.body).unwrap_or_else(|_| ErrorView {
            code: codes::INTERNAL.to_owned(),
            message: format!("the hub answered {}: {}", reply.status, String::from_utf8_lossy(&reply.body[..reply.body.len().min(200)])),
            hint: None,
        });
        match refusal.code.as_str() {
            codes::CLOSING => Err(CallFailure::Connection(refusal.message)),
            _ => Err(CallFailure::Refused(refusal)),
        }
    }

    /// Asks an older hub to become this binary. Its refusal only means that it stays.
    async fn hand_over(&self, home: &Home) -> Result<(), CallFailure> {
        let exe = match std::fs::read_link("/proc/self/exe").or_else(|_| std::env::current_exe()) {
            Ok(exe) => exe.display().to_string(),
            Err(error) => return Err(CallFailure::Refused(internal(&error))),
        };
        let call = HandOver { exe, version: VERSION.to_owned() };
        let body = serde_json::to_vec(&call).map_err(|error| CallFailure::Refused(internal(&error)))?;
        let path = format!("/api/v1/{}", HandOver::NAME);
        match Box::pin(self.try_once(&path, Bytes::from(body), None)).await {
            Ok(_) | Err(CallFailure::Connection(_) | CallFailure::NoReply(_)) => {
                self.drop_idle();
                start::ensure_hub(home).await.map_err(|error| CallFailure::Refused(unreachable_hub(home, &error.to_string())))
            }
            Err(CallFailure::Refused(error)) => {
                tracing::warn!(%error, "the hub of an older version would not hand over");
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    async fn connection(&self, target: &Target) -> io::Result<Connection> {
        while let Some(mut idle) = self.pop_idle() {
            if idle.is_open().await {
                return Ok(idle);
            }
        }
        Connection::open(&target.socket()).await
    }

    fn pop_idle(&self) -> Option<Connection> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX && connection.is_reusable() {
            idle.push(connection);
        }
    }

    /// Tells whether a hub answers, whatever it says, without starting one.
    pub async fn is_hub_there(home: &Home) -> bool {
        Self::answers(home, LOOK).await
    }

    /// Returns what is to be said about a hub that takes connections and answers none. `None`: it
    /// answers, or there is none.
    pub async fn hanging_hub(home: &Home) -> Option<ErrorView> {
        if Self::answers(home, LONG_LOOK).await || sock::connect(&home.socket()).await.is_err() {
            return None;
        }
        hub_pid(home).map(|pid| silent_hub(home, pid))
    }

    /// The same where nothing came for some time already. One that is ending is none: the next one comes.
    async fn hanging(home: &Home) -> Option<ErrorView> {
        if Self::answers(home, LOOK).await {
            return None;
        }
        let pid = hub_pid(home).filter(|pid| !tree::is_dying(*pid));
        pid.map(|pid| silent_hub(home, pid))
    }

    async fn answers(home: &Home, limit: Duration) -> bool {
        let look = async {
            let Ok(mut connection) = Connection::open(&home.socket()).await else { return false };
            connection.is_answered(Request::post(&format!("/api/v1/{}", GetHub::NAME), Bytes::from_static(b"{}"))).await
        };
        matches!(tokio::time::timeout(limit, look).await, Ok(true))
    }
}

/// Makes a request of a call, as whom the target says.
fn request(target: &Target, path: &str, body: Bytes, key: Option<&str>) -> Result<Request, InvalidHeaderValue> {
    let mut request = Request::post(path, body).header(headers::VERSION, VERSION)?;
    if let Some(key) = key {
        request = request.header(headers::KEY, key)?;
    }
    match target {
        Target::Hub { client: Some(name), .. } => request.header(headers::CLIENT, &encode_name(name.as_str())),
        Target::Hub { .. } | Target::RunningHub { .. } | Target::Worker { token: None, .. } => Ok(request),
        Target::Worker { token: Some(token), .. } => request.header("authorization", &format!("Bearer {token}")),
        Target::Supervisor { attempt, token, .. } => request.header(headers::ATTEMPT, attempt)?.header("authorization", &format!("Bearer {token}")),
    }
}

/// Returns how long a call asks to wait. In text within the body the quotes are escaped, so what is
/// found is a field.
fn wait_of(body: &[u8]) -> Duration {
    const FIELD: &[u8] = b"\"wait_ms\":";
    let Some(at) = memchr::memmem::find(body, FIELD) else { return Duration::ZERO };
    let digits = body[at + FIELD.len()..].iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    Duration::from_millis(digits.fold(0_u64, |ms, digit| ms.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

/// Shortens a wait by the time that has gone by. A body without one stays as it is.
fn with_less_to_wait(body: &Bytes, gone: Duration) -> Bytes {
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else { return body.clone() };
    let Some(wait_ms) = value.get("wait_ms").and_then(Value::as_u64) else { return body.clone() };
    let gone = u64::try_from(gone.as_millis()).unwrap_or(u64::MAX);
    value["wait_ms"] = wait_ms.saturating_sub(gone).into();
    Bytes::from(value.to_string())
}

fn internal(error: &dyn std::fmt::Display) -> ErrorView {
    ErrorView { code: codes::INTERNAL.to_owned(), message: error.to_string(), hint: None }
}

/// Says why no hub could be started.
fn no_hub(home: &Home, error: &io::Error) -> ErrorView {
    if let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<HomeError>()) {
        let hint = "set ADJ_HOME to an empty directory of yours, or to one that adj has made".to_owned();
        return ErrorView { code: codes::UNREACHABLE.to_owned(), message: error.to_string(), hint: Some(hint) };
    }
    unreachable_hub(home, &error.to_string())
}

fn unreachable_hub(home: &Home, message: &str) -> ErrorView {
    if let Ok(Some(pid)) = lock::holder_pid(&home.dir, &home.hub_lock()) {
        tracing::debug!(%message, "the hub does not answer");
        return silent_hub(home, pid);
    }
    ErrorView {
        code: codes::UNREACHABLE.to_owned(),
        message: format!("the hub of {} cannot be reached: {message}", home.dir.display()),
        hint: Some(if home.hub_log().exists() {
            format!("look at {} or run: adj doctor", home.hub_log().display())
        } else {
            "set ADJ_HOME to a directory that you can write to, or run: adj doctor".to_owned()
        }),
    }
}

/// Returns the process that holds the hub's lock.
fn hub_pid(home: &Home) -> Option<rustix::process::Pid> {
    lock::holder_pid(&home.dir, &home.hub_lock()).unwrap_or_else(|error| {
        tracing::warn!(%error, "the hub's lock cannot be read");
        None
    })
}

/// What is said about a hub that lives and does not answer.
fn silent_hub(home: &Home, pid: rustix::process::Pid) -> ErrorView {
    let pid = pid.as_raw_nonzero();
    ErrorView {
        code: codes::UNREACHABLE.to_owned(),
        message: format!("the hub of {} (pid {pid}) does not answer", home.dir.display()),
        hint: Some(format!(
            "is it stopped, or its disk stuck? Unless it comes back: kill -9 {pid}; nothing acknowledged is lost, and runs go on; its log: {}",
            home.hub_log().display()
        )),
    }
}

/// Draws a fresh idempotency key. Keys begin with the time, so that the store finds the place for a
/// new one beside the last.
#[must_use]
pub fn fresh_key() -> String {
    format!("{:012x}{}", crate::clock::now().0, random_hex::<10>())
}

/// Draws `N` random bytes as lower-case hex: keys and tokens.
#[must_use]
pub fn random_hex<const N: usize>() -> String {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Writes any text as visible ASCII, for a header.
#[must_use]
pub fn encode_name(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Reads what [`encode_name`] wrote.
#[must_use]
pub fn decode_name(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        out.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(out).ok()
}

/// Tells whether version `a` is older than version `b`, by their three numbers.
#[must_use]
pub fn is_older(a: &str, b: &str) -> bool {
    fn numbers(text: &str) -> Option<[u64; 3]> {
        let mut parts = text.split(['.', '-', '+']).map(|part| part.parse().ok());
        Some([parts.next()??, parts.next()??, parts.next()??])
    }
    matches!((numbers(a), numbers(b)), (Some(a), Some(b)) if a < b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_of_a_call_is_found_and_cannot_be_forged_by_its_text() {
        let body = |text: &str, wait_ms: u64| serde_json::to_vec(&serde_json::json!({"text": text, "wait_ms": wait_ms})).expect("JSON");
        assert_eq!(wait_of(&body("x", 1_234)), Duration::from_millis(1_234));
        assert_eq!(wait_of(&body("\"wait_ms\":99", 5)), Duration::from_millis(5));
        assert_eq!(wait_of(br#"{"wait_ms": 7, "x": 1}"#), Duration::from_millis(7));
        assert_eq!(wait_of(br#"{"x":1}"#), Duration::ZERO);
    }

    #[test]
    fn a_hub_that_holds_its_home_is_named_when_it_cannot_be_reached() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(&dir.path().join("home")).expect("a home");
        home.ensure().expect("a home");
        assert!(unreachable_hub(&home, "no socket").message.ends_with("cannot be reached: no socket"));
        let held = crate::process::Lock::try_take(&home.dir, &home.hub_lock()).expect("takes").expect("free");
        held.write_pid(rustix::process::getpid()).expect("writes");
        let told = unreachable_hub(&home, "no socket");
        let pid = std::process::id();
        assert!(told.message.ends_with(&format!("(pid {pid}) does not answer")), "{told:?}");
        assert!(told.hint.is_some_and(|hint| hint.contains(&format!("kill -9 {pid}"))));
    }

    #[test]
    fn names_survive_the_header() {
        for name in ["/home/ä b/%41", "x", "a\u{202e}b"] {
            let encoded = encode_name(name);
            assert!(encoded.bytes().all(|b| b.is_ascii_graphic()));
            assert_eq!(decode_name(&encoded).as_deref(), Some(name));
        }
        assert_eq!(decode_name("%4"), None);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(is_older("0.9.0", "0.10.0") && !is_older("1.0.0", "1.0.0") && !is_older("x", "1.0.0"));
    }
}
