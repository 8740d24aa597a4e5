//! The endpoint of a run's processes. It relays their calls to the hub as calls of this attempt,
//! and repeats them if the hub dies.
//!
//! - A Unix socket in the attempt's directory, for `adj mcp --token-file` and every `adj` command
//!   of the run. The peer must be a process of this attempt.
//! - HTTP on loopback, for clients of MCP over HTTP. It requires the bearer token, refuses
//!   processes of other runs, and checks `Host` and `Origin`, so that no web page can use it.
//!
//! A program without tools (`identity = "none"`) gets no token, and all calls are refused.

use crate::attempt_processes::Place;
use crate::attempt_processes::tcp_caller::{TcpCaller, find_tcp_caller};
use crate::hub_client::{Client, fresh_key, random_hex};
use crate::process::caller::CallerProcess;
use crate::protocol::{AttemptDir, Order, WorkerAccess, headers};
use crate::sock::loopback::{is_equal, is_own_name};
use crate::view::{Call, ErrorView, RequestApproval, codes};
use crate::{files, sock};
use adjutant_core::policy::REQUEST_APPROVAL;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path as UrlPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::{IncomingStream, Listener};
use axum::{Json, Router};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;

/// Largest call, in bytes: enough for the largest answer in JSON.
const CALL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Opens both listeners, writes their addresses to a file, and serves them in `tasks`. Returns the
/// addresses, and a flag that is set by the first connection of the run: an admitted request, or a
/// process of it on the socket.
///
/// # Errors
/// A socket cannot be opened, or the file cannot be written.
pub(super) async fn serve(
    order: &Order,
    dir: &AttemptDir,
    client: Client,
    mcp: fn(Client, &str) -> Router,
    tasks: &mut JoinSet<()>,
) -> io::Result<(WorkerAccess, Arc<AtomicBool>)> {
    let token = random_hex::<32>();
    let socket = sock::bind(&dir.socket())?;
    let tcp = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = tcp.local_addr()?.port();
    let access = WorkerAccess {
        run_id: order.run_id.clone(),
        attempt: order.attempt,
        socket: dir.socket(),
        mcp_url: format!("http://127.0.0.1:{port}/mcp"),
        token: token.clone(),
    };
    if order.has_tools {
        write_access(dir, &access)?;
    }

    let mcp = mcp(client.clone(), &token);
    let has_connected = Arc::new(AtomicBool::new(false));
    let connected_on_socket = Arc::clone(&has_connected);
    let own = Place::Attempt {
        run_id: order.run_id.clone(),
        attempt: order.attempt,
    };
    let endpoint = Arc::new(EndpointAccess {
        token,
        port,
        own,
        home: order.home.clone(),
        has_tools: order.has_tools,
        has_connected: Arc::clone(&has_connected),
    });
    // One handler without routes and layers, because almost every call of a run comes this way.
    let on_socket = Router::new()
        .fallback(relay_for_peer)
        .with_state(Arc::new(SocketEndpoint {
            access: Arc::clone(&endpoint),
            client: client.clone(),
        }));
    let on_loopback = calls(client)
        .merge(mcp)
        .layer(middleware::from_fn_with_state(endpoint, admit_bearer));
    tasks.spawn(async move {
        let service = on_socket.into_make_service_with_connect_info::<Admission>();
        if let Err(error) = axum::serve(
            WorkerListener {
                socket,
                has_connected: connected_on_socket,
            },
            service,
        )
        .await
        {
            tracing::error!(%error, "the run's socket has failed");
        }
    });
    tasks.spawn(async move {
        let service = on_loopback.into_make_service_with_connect_info::<LoopbackPeer>();
        if let Err(error) = axum::serve(LoopbackListener(tcp), service).await {
            tracing::error!(%error, "the run's port has failed");
        }
    });
    Ok((access, has_connected))
}

fn write_access(dir: &AttemptDir, access: &WorkerAccess) -> io::Result<()> {
    files::write_atomically(
        dir.home(),
        &dir.worker_access(),
        &serde_json::to_vec(access)?,
    )
}

/// Creates the router of the calls, without access checks.
fn calls(client: Client) -> Router {
    Router::new()
        .route("/api/v1/{name}", post(relay_named))
        .layer(DefaultBodyLimit::max(CALL_BYTES_MAX))
        .with_state(client)
}

async fn relay_named(
    State(client): State<Client>,
    UrlPath(name): UrlPath<String>,
    given: HeaderMap,
    body: Bytes,
) -> Result<Response, CallRefusal> {
    relay(&client, &name, &given, body).await
}

/// Relays one call to the hub, with a new key if the caller gave none, so that it can be repeated.
async fn relay(
    client: &Client,
    name: &str,
    given: &HeaderMap,
    body: Bytes,
) -> Result<Response, CallRefusal> {
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    {
        return Err(CallRefusal::new(codes::NOT_FOUND, "no such call"));
    }
    if states_operation_of_cli(name, &body) {
        return Err(CallRefusal::new(
            codes::NOT_ALLOWED,
            "only the supervisor states what the agent's CLI asks for",
        ));
    }
    let key = match given.get(headers::KEY).map(|key| key.to_str()) {
        Some(Ok(key)) => key.to_owned(),
        Some(Err(_)) => {
            return Err(CallRefusal::new(
                codes::INVALID,
                "the key is not visible ASCII",
            ));
        }
        None => fresh_key(),
    };
    let reply = client
        .send(&format!("/api/v1/{name}"), body, Some(&key))
        .await
        .map_err(CallRefusal)?;
    Ok((
        [(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
        reply,
    )
        .into_response())
}

/// Returns whether a call asks for approval of an operation of the agent's CLI. Policies and grants
/// decide about operations, so a run may state only those of its own requests. A body that is no
/// such call is refused by the hub.
fn states_operation_of_cli(name: &str, body: &[u8]) -> bool {
    let stated = || {
        serde_json::from_slice::<RequestApproval>(body)
            .ok()?
            .operation
    };
    name == <RequestApproval as Call>::NAME
        && stated().is_some_and(|operation| operation.tool != REQUEST_APPROVAL)
}

/// What the endpoint requires of a caller.
#[derive(Debug)]
struct EndpointAccess {
    token: String,
    port: u16,
    /// The place of the attempt's processes.
    own: Place,
    home: PathBuf,
    has_tools: bool,
    has_connected: Arc<AtomicBool>,
}

impl EndpointAccess {
    /// Checks the bearer token. `None`: the request has none.
    fn bearer(&self, headers: &HeaderMap) -> Option<bool> {
        let shown = headers.get("authorization")?.as_bytes();
        Some(
            shown
                .strip_prefix(b"Bearer ")
                .is_some_and(|token| is_equal(token, self.token.as_bytes())),
        )
    }

    /// Returns the refusal of a request on loopback. `None`: it is accepted.
    fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let header = |name| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap_or_default())
        };
        if !header("host").is_some_and(|host| is_own_name(host, self.port)) {
            return Some((StatusCode::FORBIDDEN, "wrong host").into_response());
        }
        let is_own_origin = |origin: &str| {
            origin
                .strip_prefix("http://")
                .is_some_and(|authority| is_own_name(authority, self.port))
        };
        if header("origin").is_some_and(|origin| !is_own_origin(origin)) {
            return Some((StatusCode::FORBIDDEN, "wrong origin").into_response());
        }
        let needed = (
            StatusCode::UNAUTHORIZED,
            [("www-authenticate", "Bearer")],
            "the run's bearer token is needed",
        );
        (self.bearer(headers) != Some(true)).then(|| needed.into_response())
    }
}

/// The state of the handler of the socket.
#[derive(Debug)]
struct SocketEndpoint {
    access: Arc<EndpointAccess>,
    client: Client,
}

/// Relays a call that arrived on the socket.
async fn relay_for_peer(
    State(endpoint): State<Arc<SocketEndpoint>>,
    ConnectInfo(admission): ConnectInfo<Admission>,
    request: Request,
) -> Result<Response, CallRefusal> {
    if !endpoint.access.has_tools {
        return Err(CallRefusal::new(
            codes::NOT_ALLOWED,
            "this agent has identity = \"none\", so its run has no tools",
        ));
    }
    if admission == Admission::Foreign {
        return Err(CallRefusal::new(
            codes::NOT_ALLOWED,
            "this socket belongs to a run, and the caller is not part of it",
        ));
    }
    if endpoint.access.bearer(request.headers()) == Some(false) {
        return Err(CallRefusal::new(
            codes::NOT_ALLOWED,
            "the token belongs to another run",
        ));
    }
    let (parts, body) = request.into_parts();
    let name = parts
        .uri
        .path()
        .strip_prefix("/api/v1/")
        .filter(|_| parts.method == Method::POST);
    let name = name.ok_or_else(|| CallRefusal::new(codes::NOT_FOUND, "no such call"))?;
    let body = axum::body::to_bytes(body, CALL_BYTES_MAX).await;
    let body = body.map_err(|_| {
        CallRefusal::new(
            codes::INVALID,
            "the body of the call cannot be read, or is too long",
        )
    })?;
    relay(&endpoint.client, name, &parts.headers, body).await
}

async fn admit_bearer(
    State(endpoint): State<Arc<EndpointAccess>>,
    ConnectInfo(peer): ConnectInfo<LoopbackPeer>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(refusal) = endpoint.refusal(request.headers()) {
        return refusal;
    }
    if let Err(why) = peer.require_no_other_run(&endpoint).await {
        return (StatusCode::FORBIDDEN, why.to_string()).into_response();
    }
    endpoint.has_connected.store(true, Ordering::Relaxed);
    next.run(request).await
}

/// The peer of a connection on loopback. Its process is looked up at the first call with the token,
/// and checked again at each further one.
#[derive(Debug, Clone)]
struct LoopbackPeer {
    ends: (SocketAddr, SocketAddr),
    // Calls of one connection come one after another; never held across an await.
    found: Arc<Mutex<Option<TcpCaller>>>,
}

/// Why a caller with the token is refused.
#[derive(Debug, thiserror::Error)]
enum NotOwnCaller {
    #[error("cannot tell which run the caller belongs to: {0}")]
    Unknown(#[from] io::Error),
    #[error("the token belongs to another run")]
    OtherRun,
}

impl LoopbackPeer {
    /// Refuses a process of another run that has found the token. A process outside of all runs may
    /// be the agent's own in a container.
    async fn require_no_other_run(&self, endpoint: &EndpointAccess) -> Result<(), NotOwnCaller> {
        let known = self
            .found
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let place = match known.filter(TcpCaller::is_unchanged) {
            Some(known) => known.place,
            None => {
                let ((own, peer), home) = (self.ends, endpoint.home.clone());
                let found =
                    tokio::task::spawn_blocking(move || find_tcp_caller(own, peer, &home)).await;
                let found = found.map_err(io::Error::other).flatten();
                let found = found?;
                let place = found.place.clone();
                *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
                place
            }
        };
        if place == endpoint.own || place == Place::Outside {
            Ok(())
        } else {
            Err(NotOwnCaller::OtherRun)
        }
    }
}

/// The port on loopback, which notes the ends of each connection.
struct LoopbackListener(TcpListener);

impl Listener for LoopbackListener {
    type Io = TcpStream;
    type Addr = LoopbackPeer;

    async fn accept(&mut self) -> (TcpStream, LoopbackPeer) {
        let (stream, peer) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "replies on loopback may be delayed");
        }
        // An address that is not known is that of no socket, so the call is refused.
        let own = stream.local_addr().unwrap_or(peer);
        (
            stream,
            LoopbackPeer {
                ends: (own, peer),
                found: Arc::default(),
            },
        )
    }

    fn local_addr(&self) -> io::Result<LoopbackPeer> {
        let own = TcpListener::local_addr(&self.0)?;
        Ok(LoopbackPeer {
            ends: (own, own),
            found: Arc::default(),
        })
    }
}

impl Connected<IncomingStream<'_, LoopbackListener>> for LoopbackPeer {
    fn connect_info(stream: IncomingStream<'_, LoopbackListener>) -> Self {
        stream.remote_addr().clone()
    }
}

/// Whether the peer is a process of this attempt. Determined once, when it connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Own,
    Foreign,
}

/// The socket, which identifies each peer.
struct WorkerListener {
    socket: UnixListener,
    has_connected: Arc<AtomicBool>,
}

impl Listener for WorkerListener {
    type Io = sock::Stream;
    type Addr = Admission;

    async fn accept(&mut self) -> (sock::Stream, Admission) {
        let stream = sock::accept(&self.socket).await;
        let admission = match examine(&stream) {
            Ok(true) => {
                // `adj mcp` answers without the hub, and only connects.
                self.has_connected.store(true, Ordering::Relaxed);
                Admission::Own
            }
            Ok(false) => Admission::Foreign,
            Err(error) => {
                tracing::info!(%error, "a caller could not be identified");
                Admission::Foreign
            }
        };
        (stream, admission)
    }

    fn local_addr(&self) -> io::Result<Admission> {
        Ok(Admission::Own)
    }
}

fn examine(stream: &sock::Stream) -> io::Result<bool> {
    let peer = CallerProcess::of(stream)?;
    Ok(peer.is_same_user() && peer.is_below(rustix::process::getpid())?)
}

impl Connected<IncomingStream<'_, WorkerListener>> for Admission {
    fn connect_info(stream: IncomingStream<'_, WorkerListener>) -> Self {
        *stream.remote_addr()
    }
}

/// The refusal of a call.
struct CallRefusal(ErrorView);

impl CallRefusal {
    fn new(code: &str, message: &str) -> Self {
        Self(ErrorView {
            code: code.to_owned(),
            message: message.to_owned(),
            hint: None,
        })
    }
}

impl IntoResponse for CallRefusal {
    fn into_response(self) -> Response {
        let status = match self.0.code.as_str() {
            codes::NOT_FOUND => StatusCode::NOT_FOUND,
            codes::NOT_ALLOWED | codes::USE_SUPERVISOR => StatusCode::FORBIDDEN,
            codes::INVALID | codes::AMBIGUOUS => StatusCode::BAD_REQUEST,
            codes::LIMIT => StatusCode::TOO_MANY_REQUESTS,
            codes::UNREACHABLE => StatusCode::SERVICE_UNAVAILABLE,
            codes::STORAGE_FULL => StatusCode::INSUFFICIENT_STORAGE,
            codes::STORAGE | codes::INTERNAL => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::CONFLICT,
        };
        (status, Json(self.0)).into_response()
    }
}
