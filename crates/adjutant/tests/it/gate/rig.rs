//! A gate between a raw client and a scripted API on loopback.

use adjutant_agent::gate::{Denial, Gate, GateEvent};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Timeout of a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key that only the API may receive, and the token of the attempt.
pub const KEY: &str = "sk-canary-0123456789";
pub const TOKEN: &str = "adj-token";

/// A Chat Completions response that reports its usage.
pub const ANSWER: &str =
    r#"{"model":"m","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":10}}"#;

/// A step of the API's script for a request. At the end, the connection stays open for the next
/// request.
#[derive(Debug, Clone)]
pub enum Act {
    Send(Vec<u8>),
    /// Sends the same bytes until the connection is closed.
    Endlessly(Vec<u8>),
    /// Waits until the connection is closed.
    Hang,
    Close,
}

/// Returns the steps of a complete response.
pub fn answer(status: &str, headers: &str, body: &str) -> Vec<Act> {
    vec![Act::Send(
        format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes(),
    )]
}

/// The requests and connections that the API has received.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// The heads of the requests, and the lengths of their bodies.
    pub requests: Vec<(String, usize)>,
    pub connections: usize,
    /// Number of connections that were closed while the API was sending or hanging.
    pub left: usize,
    /// Number of connections that first the API and then the gate has closed.
    pub closed: usize,
    pub sent_bytes: u64,
}

/// A scripted API.
#[derive(Debug)]
pub struct Api {
    pub address: SocketAddr,
    seen: watch::Sender<Seen>,
    _tasks: JoinSet<()>,
}

impl Api {
    /// Starts an API that answers its requests with these scripts, one after another; the last one
    /// repeats.
    pub async fn plays(scripts: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = watch::Sender::new(Seen::default());
        let scripts = Arc::new(Mutex::new(VecDeque::from(scripts)));
        let mut tasks = JoinSet::new();
        let record = seen.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                record.send_modify(|seen| seen.connections += 1);
                connections.spawn(serve(stream, Arc::clone(&scripts), record.clone()));
            }
        });
        Self {
            address,
            seen,
            _tasks: tasks,
        }
    }

    /// Returns an API at an address on which no program listens.
    pub async fn absent() -> Self {
        // A port that never had a listener: one that is closed still accepts while a child of
        // another test has it.
        let reserved = TcpSocket::new_v4().expect("a socket");
        reserved
            .bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .expect("a port");
        let address = reserved.local_addr().expect("an address");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _reserved = reserved;
            std::future::pending().await
        });
        Self {
            address,
            seen: watch::Sender::new(Seen::default()),
            _tasks: tasks,
        }
    }

    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Waits until a condition on the received requests and connections holds.
    pub async fn until(&self, what: &str, holds: impl FnMut(&Seen) -> bool) -> Seen {
        let mut seen = self.seen.subscribe();
        let found = tokio::time::timeout(PATIENCE, seen.wait_for(holds)).await;
        found
            .unwrap_or_else(|_| panic!("not {what}: {:?}", self.seen()))
            .expect("the API lives")
            .clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    scripts: Arc<Mutex<VecDeque<Vec<Act>>>>,
    record: watch::Sender<Seen>,
) {
    while let Some(request) = read_request(&mut stream).await {
        record.send_modify(|seen| seen.requests.push(request));
        let script = {
            let mut scripts = scripts.lock().expect("nobody panics while holding it");
            if scripts.len() > 1 {
                scripts.pop_front()
            } else {
                scripts.front().cloned()
            }
        };
        for act in script.expect("a script") {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return record.send_modify(|seen| seen.left += 1);
                    }
                }
                Act::Endlessly(bytes) => loop {
                    match stream.write(&bytes).await {
                        Ok(sent) => record.send_modify(|seen| seen.sent_bytes += sent as u64),
                        Err(_) => return record.send_modify(|seen| seen.left += 1),
                    }
                },
                Act::Hang => {
                    let mut byte = [0];
                    while matches!(stream.read(&mut byte).await, Ok(1)) {}
                    return record.send_modify(|seen| seen.left += 1);
                }
                Act::Close => {
                    // Waits until the gate has closed the connection too, so that its next request
                    // does not use it.
                    let mut byte = [0];
                    if stream.shutdown().await.is_ok() {
                        while matches!(stream.read(&mut byte).await, Ok(1)) {}
                    }
                    return record.send_modify(|seen| seen.closed += 1);
                }
            }
        }
    }
}

/// Reads a request: its head, and the length of its body.
async fn read_request(stream: &mut TcpStream) -> Option<(String, usize)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head)
        .expect("a head is text")
        .to_lowercase();
    let header = |name: &str| {
        head.lines().find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(": ")
                .map(str::to_owned)
        })
    };
    let mut length = 0;
    if let Some(bytes) = header("content-length").and_then(|bytes| bytes.parse::<usize>().ok()) {
        length = bytes;
        stream.read_exact(&mut vec![0; length]).await.ok()?;
    } else if header("transfer-encoding").is_some() {
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(stream.read_u8().await.ok()?);
            }
            let bytes = usize::from_str_radix(std::str::from_utf8(&line).ok()?.trim(), 16).ok()?;
            stream.read_exact(&mut vec![0; bytes + 2]).await.ok()?;
            length += bytes;
            if bytes == 0 {
                break;
            }
        }
    }
    Some((head, length))
}

/// The decision that the gate requests before a request begins.
type Permission = oneshot::Sender<Result<(), Denial>>;

/// A gate to an API, with a supervisor that admits a limited number of requests.
pub struct Rig {
    pub api: Api,
    pub gate: Gate,
    pub allowed: Arc<AtomicUsize>,
    /// Number of requests that were refused because of the limit.
    pub refused: Arc<AtomicUsize>,
    /// Whether requests are kept in `undecided` without a decision, as if no hub were running.
    pub is_hub_away: Arc<AtomicBool>,
    pub undecided: mpsc::UnboundedReceiver<Permission>,
    pub limits: Arc<Mutex<Vec<adjutant_core::Time>>>,
    _tasks: JoinSet<()>,
}

impl Rig {
    pub async fn with(scripts: Vec<Vec<Act>>) -> Self {
        Self::at(Api::plays(scripts).await, "").await
    }

    /// Opens a gate to an API whose base URL has this path.
    pub async fn at(api: Api, base_path: &str) -> Self {
        let base_url = format!("http://{}{base_path}", api.address)
            .parse()
            .expect("a URL");
        let (gate, listener, mut events) = Gate::open(&base_url, KEY, TOKEN.to_owned())
            .await
            .expect("a gate");
        let allowed = Arc::new(AtomicUsize::new(usize::MAX));
        let limits = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(listener.serve());
        let (budget, reported) = (Arc::clone(&allowed), Arc::clone(&limits));
        let refused = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refused);
        let (is_hub_away, (keep, undecided)) =
            (Arc::new(AtomicBool::new(false)), mpsc::unbounded_channel());
        let is_away = Arc::clone(&is_hub_away);
        tasks.spawn(async move {
            while let Some(event) = events.recv().await {
                match event {
                    GateEvent::RequestBegins { reply, .. } if is_away.load(Ordering::SeqCst) => {
                        keep.send(reply).expect("the rig lives")
                    }
                    GateEvent::RequestBegins { reply, .. } => {
                        let left =
                            budget.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                                left.checked_sub(1)
                            });
                        count.fetch_add(usize::from(left.is_err()), Ordering::SeqCst);
                        // A client that has hung up needs no decision.
                        drop(reply.send(left.map(|_| ()).map_err(|_| Denial::BudgetUsedUp)));
                    }
                    GateEvent::WindowsReported(_) => {}
                    GateEvent::LimitReported(until) => reported
                        .lock()
                        .expect("nobody panics while holding it")
                        .push(until),
                }
            }
        });
        Self {
            api,
            gate,
            allowed,
            refused,
            is_hub_away,
            undecided,
            limits,
            _tasks: tasks,
        }
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.gate.url.strip_prefix("http://").expect("a URL"))
            .await
            .expect("the gate accepts")
    }

    pub fn host(&self) -> &str {
        self.gate.url.strip_prefix("http://").expect("a URL")
    }

    /// Returns a request with the token, as bytes.
    pub fn request(&self, path: &str, headers: &str, body: &str) -> Vec<u8> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n{headers}content-length: {}\r\n\r\n",
            self.host(),
            body.len()
        );
        [head.as_bytes(), body.as_bytes()].concat()
    }

    /// Sends a request over a new connection, and returns the response.
    pub async fn ask(&self, path: &str, body: &str) -> String {
        self.send(&self.request(path, "connection: close\r\n", body))
            .await
    }

    /// Sends bytes, and returns the response.
    pub async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.expect("the gate reads");
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        read.expect("an answer").map_or_else(
            |error| format!("{}{error}", String::from_utf8_lossy(&answer)),
            |_| String::from_utf8_lossy(&answer).into_owned(),
        )
    }

    /// Returns the requests, those with unknown usage, and the input and output tokens of all
    /// models together.
    pub fn used(&self) -> (u64, u64, u64, u64) {
        self.gate.used().iter().fold((0, 0, 0, 0), |sum, used| {
            (
                sum.0 + used.requests,
                sum.1 + used.unknown_requests,
                sum.2 + used.tokens.input,
                sum.3 + used.tokens.output,
            )
        })
    }

    /// Waits until the usage has this value.
    pub async fn until_used(&self, expected: (u64, u64, u64, u64)) {
        let mut changes = self.gate.changes();
        let reached =
            tokio::time::timeout(PATIENCE, changes.wait_for(|_| self.used() == expected)).await;
        assert!(reached.is_ok(), "{:?} is not {expected:?}", self.used());
    }
}
