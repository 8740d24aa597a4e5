//! Streamable HTTP: the worker's endpoint in its supervisor, on loopback with one bearer token, and
//! the parents' endpoint in the hub, which checks names and tokens itself.
//!
//! Each request is independent, so that nothing can leak or expire during a wait of hours. Clients
//! of a parent's endpoint that begin with `initialize` also get a session (see
//! [`sessions`](super::sessions)). The acceptor sets TCP_NODELAY.

use super::caps::{self, CallCap};
use super::lines;
use super::server::{self, Server};
use super::session::{InSession, Role, Setup};
use super::sessions::Sessions;
use crate::hub_client::Client;
use adjutant_core::limits::TEXT_BYTES_MAX;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rmcp::ServerHandler;
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

const SESSION_ID: &str = "mcp-session-id";
/// Maximum size of a request: the longest question with its context and options, escaped.
const BODY_BYTES_MAX: usize = 16 * TEXT_BYTES_MAX;
/// A reply that takes longer than this starts with its headers, before its content is available.
/// Some clients close a connection that sends no headers for a minute, regardless of their timeout
/// for tools.
const HEADERS_AFTER: Duration = Duration::from_millis(500);
/// The interval of keep-alive comments on such a connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Serves a worker's tools at `/mcp` to local callers with the token.
pub fn http_router(client: Client, token: &str) -> Router {
    let setup = Setup {
        client,
        role: Some(Role::Worker),
        compat: false,
        facade: None,
        cap: CallCap::Fixed(caps::OWN_WORKER),
        directory: PathBuf::from("/"),
        input_ended: CancellationToken::new(),
    };
    let config = StreamableHttpServerConfig::default().with_allowed_origins([
        "http://localhost:*",
        "http://127.0.0.1:*",
        "http://[::1]:*",
    ]);
    let expected: Arc<str> = format!("Bearer {token}").into();
    endpoint(Server::new(setup), config).layer(middleware::from_fn(
        move |request: Request, next: Next| require_token(Arc::clone(&expected), request, next),
    ))
}

/// The tools of a parent, for the requests of one token.
#[derive(Clone)]
pub struct ParentEndpoint {
    /// Serves requests that stand for themselves.
    stateless: Router,
    /// Serves requests of sessions.
    in_session: Router,
    sessions: Arc<Sessions>,
    /// Ends the sessions with the last clone.
    _closing: Arc<DropGuard>,
}

/// Serves a parent's tools to requests whose names and token were checked. `directory`: the default
/// working directory of its runs; without one, each run names its own.
pub fn parent_endpoint(client: Client, directory: Option<PathBuf>) -> ParentEndpoint {
    ParentEndpoint::new(move |cap| parent(client.clone(), directory.clone(), cap))
}

/// Serves what [`parent_endpoint`] serves, and the fixtures of the conformance suite.
#[cfg(debug_assertions)]
pub fn conformance_endpoint(client: Client, directory: Option<PathBuf>) -> ParentEndpoint {
    ParentEndpoint::new(move |cap| {
        super::fixtures::Fixtures::new(parent(client.clone(), directory.clone(), cap))
    })
}

fn parent(client: Client, directory: Option<PathBuf>, cap: CallCap) -> Server {
    Server::new(Setup {
        client,
        role: Some(Role::Parent),
        compat: false,
        facade: None,
        cap,
        directory: directory.unwrap_or_default(),
        input_ended: CancellationToken::new(),
    })
}

impl ParentEndpoint {
    fn new<H: ServerHandler + Clone>(
        server: impl Fn(CallCap) -> H + Send + Sync + 'static,
    ) -> Self {
        let config = || {
            StreamableHttpServerConfig::default()
                .disable_allowed_hosts()
                .disable_allowed_origins()
        };
        let closing = CancellationToken::new();
        let stateless = endpoint(server(CallCap::ByQuietClient), config());
        // The reply to initialize needs no event to resume after.
        let config = bounded(config())
            .with_legacy_session_mode(true)
            .with_sse_retry(None)
            .with_cancellation_token(closing.clone());
        let sessions = Arc::new(Sessions::default());
        let service = StreamableHttpService::new(
            move || Ok(server(CallCap::ByClient)),
            Arc::clone(&sessions),
            config,
        );
        Self {
            stateless,
            in_session: with_layers(service),
            sessions,
            _closing: Arc::new(closing.drop_guard()),
        }
    }

    /// Closes the sessions that have been unused for an hour.
    pub async fn close_idle_sessions(&self) {
        self.sessions.close_idle().await;
    }

    /// Answers a request.
    pub async fn answer(&self, mut parts: Parts, body: Bytes) -> Response {
        let is_in_session = if parts.headers.contains_key(SESSION_ID) {
            !is_modern(&parts.headers)
        } else {
            // A session for each client that begins as one, unless all of them are in use.
            parts.method == Method::POST
                && !is_modern(&parts.headers)
                && lines::is_initialize(&body)
                && self.sessions.make_room().await
        };
        if !is_in_session {
            return self
                .stateless
                .clone()
                .oneshot(Request::from_parts(parts, Body::from(body)))
                .await
                .into_response();
        }
        parts.extensions.insert(InSession);
        let is_end = parts.method == Method::DELETE;
        let mut reply = self
            .in_session
            .clone()
            .oneshot(Request::from_parts(parts, Body::from(body)))
            .await
            .into_response();
        if is_end && reply.status() == StatusCode::ACCEPTED {
            // Some clients report 202 as a failure.
            *reply.status_mut() = StatusCode::NO_CONTENT;
        }
        reply
    }
}

/// Returns whether a request is of a version that has no sessions.
fn is_modern(headers: &HeaderMap) -> bool {
    let version = headers
        .get("mcp-protocol-version")
        .and_then(|version| version.to_str().ok());
    version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
}

fn endpoint<H: ServerHandler + Clone>(server: H, config: StreamableHttpServerConfig) -> Router {
    let config = bounded(config).with_legacy_session_mode(false);
    with_layers(StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    ))
}

fn bounded(config: StreamableHttpServerConfig) -> StreamableHttpServerConfig {
    config
        .with_json_response(true)
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
}

fn with_layers<H: ServerHandler, M: SessionManager>(
    service: StreamableHttpService<H, M>,
) -> Router {
    Router::new()
        .route_service("/mcp", service)
        .layer(middleware::from_fn(start_late_reply))
        .layer(middleware::from_fn(refuse_in_json))
}

/// Rejects requests without the token.
fn require_token(expected: Arc<str>, request: Request, next: Next) -> BoxFuture<'static, Response> {
    let given = request
        .headers()
        .get(AUTHORIZATION)
        .map(HeaderValue::as_bytes)
        .unwrap_or_default();
    let allowed = equal_in_constant_time(given, expected.as_bytes());
    Box::pin(async move {
        if allowed {
            return next.run(request).await;
        }
        let challenge = [(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
        (
            StatusCode::UNAUTHORIZED,
            challenge,
            "this endpoint needs the token of its run\n",
        )
            .into_response()
    })
}

/// Compares in constant time.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    let differing = a
        .iter()
        .zip(b)
        .fold(0, |differing, (a, b)| differing | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

/// Returns whether a request is an `initialize` under a protocol version that no longer has it.
fn is_modern_initialize(request: &Request) -> bool {
    is_modern(request.headers())
        && request
            .headers()
            .get("mcp-method")
            .is_some_and(|method| method == "initialize")
}

/// Answers an invalid body with a JSON-RPC error. rmcp would report a wrong media type.
async fn refuse_in_json(request: Request, next: Next) -> Response {
    let is_json = request
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json || request.method() != http::Method::POST {
        return next.run(request).await;
    }
    let refused = is_modern_initialize(&request);
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body cannot be read, or is longer than {BODY_BYTES_MAX} bytes\n"),
        )
            .into_response();
    };
    let json = [(CONTENT_TYPE, "application/json")];
    let (parts, body) = match prepared(parts, body) {
        Ok(prepared) => prepared,
        Err(refusal) => return (StatusCode::BAD_REQUEST, json, refusal).into_response(),
    };
    if accepts_batches(&parts)
        && let Some(messages) = lines::batch(&body)
    {
        return answer_batch(&parts, &messages, &next).await;
    }
    if refused {
        return (
            StatusCode::NOT_FOUND,
            json,
            lines::refused(&body, server::no_initialize()),
        )
            .into_response();
    }
    let reply = next
        .run(Request::from_parts(parts, Body::from(body.clone())))
        .await;
    if reply.status() != StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return reply;
    }
    (StatusCode::BAD_REQUEST, json, lines::refusal(&body)).into_response()
}

/// Returns a request with its body as it is to be parsed, or its refusal.
fn prepared(mut parts: Parts, body: Bytes) -> Result<(Parts, Bytes), Vec<u8>> {
    match lines::prepared(&body) {
        Ok(Cow::Borrowed(_)) => Ok((parts, body)),
        Ok(Cow::Owned(replaced)) => {
            parts.headers.remove(CONTENT_LENGTH);
            Ok((parts, replaced.into()))
        }
        Err(refused) => Err(lines::refused_before(*refused)),
    }
}

/// Returns whether a request may be a batch: it is of 2025-03-26, whose requests do not name their
/// version.
fn accepts_batches(parts: &Parts) -> bool {
    parts
        .headers
        .get("mcp-protocol-version")
        .is_none_or(|version| {
            version.as_bytes() == ProtocolVersion::V_2025_03_26.as_str().as_bytes()
        })
}

/// Answers the messages of a batch with one array.
async fn answer_batch(parts: &Parts, messages: &[Box<RawValue>], next: &Next) -> Response {
    let replies = join_all(messages.iter().map(|message| async {
        let mut parts = parts.clone();
        parts.headers.remove(CONTENT_LENGTH);
        let (parts, body) = match prepared(parts, Bytes::copy_from_slice(message.get().as_bytes()))
        {
            Ok(prepared) => prepared,
            Err(refusal) => return vec![String::from_utf8_lossy(&refusal).into_owned()],
        };
        let reply = next
            .clone()
            .run(Request::from_parts(parts, Body::from(body.clone())))
            .await;
        if reply.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return vec![String::from_utf8_lossy(&lines::refusal(&body)).into_owned()];
        }
        let is_events = reply
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let text = axum::body::to_bytes(reply.into_body(), usize::MAX)
            .await
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "a reply of a batch is missing");
                Bytes::new()
            });
        let text = String::from_utf8_lossy(&text).into_owned();
        match is_events {
            true => text
                .lines()
                .filter_map(|line| line.strip_prefix("data: ").map(str::to_owned))
                .collect(),
            false => vec![text],
        }
    }));
    let replies: Vec<String> = replies
        .await
        .into_iter()
        .flatten()
        .filter(|text| !text.trim().is_empty())
        .collect();
    if replies.is_empty() {
        return StatusCode::ACCEPTED.into_response();
    }
    (
        [(CONTENT_TYPE, "application/json")],
        format!("[{}]", replies.join(",")),
    )
        .into_response()
}

/// Starts a slow reply before its content is available, as an event stream with keep-alive
/// comments. The content becomes its only event.
async fn start_late_reply(request: Request, next: Next) -> Response {
    let events_are_fine = request
        .headers()
        .get_all(http::header::ACCEPT)
        .iter()
        .any(|accept| {
            accept
                .to_str()
                .is_ok_and(|accept| accept.contains("text/event-stream"))
        });
    let mut reply = Box::pin(next.run(request));
    if !events_are_fine {
        return reply.await;
    }
    match tokio::time::timeout(HEADERS_AFTER, &mut reply).await {
        Ok(reply) => reply,
        Err(_) => {
            let stream = futures::stream::once(async { Bytes::from_static(b": waiting\n\n") })
                .chain(late_event_stream(reply))
                .map(Ok::<_, std::convert::Infallible>);
            let headers = [
                (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
                (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            ];
            (StatusCode::OK, headers, Body::from_stream(stream)).into_response()
        }
    }
}

/// Returns the event stream of a late reply, with comments until the reply arrives.
fn late_event_stream(
    reply: impl Future<Output = Response> + Send + 'static,
) -> impl futures::Stream<Item = Bytes> + Send {
    enum State<F> {
        Waiting(std::pin::Pin<Box<F>>),
        Body(axum::body::BodyDataStream, bool),
        Over,
    }
    futures::stream::unfold(State::Waiting(Box::pin(reply)), |state| async move {
        match state {
            State::Waiting(mut reply) => match tokio::time::timeout(KEEP_ALIVE, &mut reply).await {
                Err(_) => Some((Bytes::from_static(b": waiting\n\n"), State::Waiting(reply))),
                Ok(reply) => {
                    let is_events = reply
                        .headers()
                        .get(CONTENT_TYPE)
                        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
                    let start = if is_events {
                        Bytes::new()
                    } else {
                        Bytes::from_static(b"data: ")
                    };
                    Some((
                        start,
                        State::Body(reply.into_body().into_data_stream(), is_events),
                    ))
                }
            },
            State::Body(mut body, is_events) => match pin!(&mut body).next().await {
                Some(Ok(bytes)) => Some((bytes, State::Body(body, is_events))),
                Some(Err(error)) => {
                    tracing::debug!(%error, "a late reply was cut off");
                    None
                }
                None if is_events => None,
                None => Some((Bytes::from_static(b"\n\n"), State::Over)),
            },
            State::Over => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Home;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};
    use std::time::Instant;

    const TOKEN: &str = "0123456789abcdef";

    /// A router whose hub accepts calls and never answers.
    fn router() -> (Router, tempfile::TempDir, std::os::unix::net::UnixListener) {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(dir.path()).expect("a home");
        let silent = std::os::unix::net::UnixListener::bind(home.socket()).expect("a socket");
        (http_router(Client::running_hub(&home), TOKEN), dir, silent)
    }

    fn post(body: &Value) -> http::request::Builder {
        let method = body["method"].as_str().unwrap_or_default().to_owned();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri("/mcp")
            .header("host", "127.0.0.1:1234")
            .header("authorization", format!("Bearer {TOKEN}"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if body["params"]["_meta"].is_object() {
            request = request
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", method);
        }
        if let Some(name) = body["params"]["name"].as_str() {
            request = request.header("mcp-name", name);
        }
        request
    }

    fn modern(method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    }

    async fn answered(
        router: Router,
        request: http::request::Builder,
        body: &Value,
    ) -> (StatusCode, String) {
        let reply = router
            .oneshot(
                request
                    .body(Body::from(body.to_string()))
                    .expect("a request"),
            )
            .await
            .expect("a reply");
        let status = reply.status();
        let bytes = reply
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    #[tokio::test]
    async fn endpoint_requires_its_token() {
        let list = modern("tools/list", json!({}));
        for wrong in [
            "",
            "Bearer",
            "Bearer 0123456789abcdee",
            "Bearer 0123456789abcdef0",
            "bearer x",
        ] {
            let (router, _dir, _hub) = router();
            let mut request = post(&list);
            request
                .headers_mut()
                .expect("headers")
                .insert("authorization", HeaderValue::from_static(wrong));
            assert_eq!(
                answered(router, request, &list).await.0,
                StatusCode::UNAUTHORIZED,
                "{wrong}"
            );
        }
    }

    #[tokio::test]
    async fn other_machines_are_refused() {
        let list = modern("tools/list", json!({}));
        for (header, value, expected) in [
            ("origin", "http://localhost:5173", StatusCode::OK),
            ("origin", "https://evil.example", StatusCode::FORBIDDEN),
            ("origin", "null", StatusCode::FORBIDDEN),
            ("host", "localhost:1", StatusCode::OK),
            ("host", "evil.example", StatusCode::FORBIDDEN),
        ] {
            let (router, _dir, _hub) = router();
            let mut request = post(&list);
            request
                .headers_mut()
                .expect("headers")
                .insert(header, HeaderValue::from_static(value));
            assert_eq!(
                answered(router, request, &list).await.0,
                expected,
                "{header}: {value}"
            );
        }
    }

    #[tokio::test]
    async fn both_protocol_generations_list_worker_tools() {
        let list = modern("tools/list", json!({}));
        let (router_, _dir, _hub) = router();
        let (status, body) = answered(router_, post(&list), &list).await;
        assert_eq!(status, StatusCode::OK);
        let reply: Value = serde_json::from_str(&body).expect("JSON");
        let names: Vec<&str> = reply["result"]["tools"]
            .as_array()
            .expect("tools")
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        let listed: Vec<_> = super::super::catalog::list(super::super::Role::Worker, false, &[])
            .into_iter()
            .map(|tool| tool.name)
            .collect();
        assert_eq!(names, listed);
        assert_eq!(
            reply["result"]["_meta"][super::super::server::SERVER_INFO]["name"],
            "adjutant"
        );

        let (router_, _dir, _hub) = router();
        let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about});
        let (status, body) = answered(router_.clone(), post(&hello), &hello).await;
        assert!(
            status == StatusCode::OK && body.contains("2025-06-18"),
            "{status} {body}"
        );
        let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
        let (status, body) = answered(
            router_,
            post(&list).header("mcp-protocol-version", "2025-06-18"),
            &list,
        )
        .await;
        assert!(
            status == StatusCode::OK
                && body.contains("ask_parent")
                && !body.contains("reply_subagent"),
            "{status} {body}"
        );
    }

    #[tokio::test]
    async fn invalid_body_is_refused_in_json() {
        for (body, code, id) in [
            ("{\"jsonrpc\":", -32700, Value::Null),
            ("", -32600, Value::Null),
            ("[]", -32600, Value::Null),
            (
                "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
                -32600,
                Value::Null,
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":5}",
                -32600,
                json!(7),
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"tools/list\"}",
                -32600,
                json!(1.5),
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":20,\"method\":\"tools/call\",\"params\":{\"a\":NaN}}",
                -32700,
                json!(20),
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"tools/call\",\"params\":{\"name\":\"x\",\"arguments\":{\"b\":1,\"b\":2}}}",
                -32600,
                json!("a"),
            ),
            (
                "{\"jsonrpc\":\"2.0\",\"id\":21,\"method\":\"tools/call\",\"params\":{\"name\":\"x\",\"arguments\":\"text\"}}",
                -32602,
                json!(21),
            ),
        ] {
            let (router, _dir, _hub) = router();
            let request = post(&json!({}))
                .header("mcp-protocol-version", "2025-06-18")
                .body(Body::from(body))
                .expect("a request");
            let reply = router.oneshot(request).await.expect("a reply");
            assert_eq!(
                (reply.status(), &reply.headers()[CONTENT_TYPE]),
                (
                    StatusCode::BAD_REQUEST,
                    &HeaderValue::from_static("application/json")
                ),
                "{body}"
            );
            let bytes = reply
                .into_body()
                .collect()
                .await
                .expect("a body")
                .to_bytes();
            let reply: Value = serde_json::from_slice(&bytes).expect("JSON");
            assert_eq!(
                (&reply["jsonrpc"], &reply["error"]["code"], reply.get("id")),
                (&json!("2.0"), &json!(code), Some(&id)),
                "{body}: {reply}"
            );
        }
        // What its author certainly meant is called: here, a tool that does not exist.
        for arguments in [
            "{\"question\":\"half \\ud83d\"}",
            "\"{\\\"question\\\":\\\"?\\\"}\"",
        ] {
            let body = format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":22,\"method\":\"tools/call\",\"params\":{{\"name\":\"no_such_tool\",\"arguments\":{arguments}}}}}"
            );
            let (router, _dir, _hub) = router();
            let length = body.len().to_string();
            let request = post(&json!({}))
                .header("mcp-protocol-version", "2025-06-18")
                .header("content-length", length);
            let reply = router
                .oneshot(request.body(Body::from(body)).expect("a request"))
                .await
                .expect("a reply");
            let bytes = reply
                .into_body()
                .collect()
                .await
                .expect("a body")
                .to_bytes();
            let reply: Value = serde_json::from_slice(&bytes).expect("JSON");
            assert!(
                reply["id"] == 22
                    && reply["error"]["message"]
                        .as_str()
                        .is_some_and(|text| text.contains("no_such_tool")),
                "{arguments}: {reply}"
            );
        }
        let (router_, _dir, _hub) = router();
        let mut request = post(&json!({}));
        request
            .headers_mut()
            .expect("headers")
            .insert("content-type", HeaderValue::from_static("text/plain"));
        assert_eq!(
            answered(router_, request, &json!({})).await.0,
            StatusCode::UNSUPPORTED_MEDIA_TYPE
        );
        let hello = modern(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        );
        for body in [hello, modern("initialize", json!({}))] {
            let (router_, _dir, _hub) = router();
            let (status, text) = answered(router_, post(&body), &body).await;
            assert!(
                status == StatusCode::NOT_FOUND
                    && text.contains("-32601")
                    && text.contains("\"id\":1,"),
                "{status} {text}"
            );
        }
    }

    #[tokio::test]
    async fn batch_of_2025_03_26_is_answered_with_an_array() {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let ping = |id: u32| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        let (router_, _dir, _hub) = router();
        let batch = json!([ping(1), note, {"jsonrpc": "2.0", "id": 2, "method": 7}, ping(3)]);
        let (status, body) = answered(router_, post(&batch), &batch).await;
        let replies: Vec<Value> = serde_json::from_str(&body).expect("an array");
        let ids: Vec<_> = replies
            .iter()
            .map(|reply| (reply["id"].as_u64(), reply["error"]["code"].as_i64()))
            .collect();
        assert_eq!(
            (status, ids),
            (
                StatusCode::OK,
                vec![(Some(1), None), (Some(2), Some(-32600)), (Some(3), None)]
            ),
            "{body}"
        );
        let (router_, _dir, _hub) = router();
        let notes = json!([note]);
        assert_eq!(
            answered(router_, post(&notes), &notes).await.0,
            StatusCode::ACCEPTED
        );
        let (router_, _dir, _hub) = router();
        let long = Value::from((0..33).map(ping).collect::<Vec<_>>());
        assert_eq!(
            answered(router_, post(&long), &long).await.0,
            StatusCode::BAD_REQUEST
        );
    }

    #[tokio::test]
    async fn oversized_body_is_refused() {
        let (router, _dir, _hub) = router();
        let ask = modern(
            "tools/call",
            json!({"name": "ask_parent", "arguments": {"question": "x".repeat(BODY_BYTES_MAX)}}),
        );
        assert_eq!(
            answered(router, post(&ask), &ask).await.0,
            StatusCode::PAYLOAD_TOO_LARGE
        );
    }

    #[tokio::test]
    async fn headers_are_sent_before_the_answer() {
        let (router, _dir, _hub) = router();
        let ask = modern(
            "tools/call",
            json!({"name": "ask_parent", "arguments": {"question": "why?"}}),
        );
        let began = Instant::now();
        let reply = router
            .oneshot(
                post(&ask)
                    .body(Body::from(ask.to_string()))
                    .expect("a request"),
            )
            .await
            .expect("a reply");
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!(reply.headers()[CONTENT_TYPE], "text/event-stream");
        let first = reply
            .into_body()
            .frame()
            .await
            .expect("a frame")
            .expect("no error")
            .into_data()
            .expect("data");
        assert_eq!(first, ": waiting\n\n");
    }

    #[tokio::test]
    async fn late_reply_becomes_one_event() {
        let json = async {
            tokio::task::yield_now().await;
            ([(CONTENT_TYPE, "application/json")], "{\"id\":1}").into_response()
        };
        let parts: Vec<Bytes> = late_event_stream(json).collect().await;
        assert_eq!(parts.concat(), b"data: {\"id\":1}\n\n");
        let events =
            async { ([(CONTENT_TYPE, "text/event-stream")], "data: 1\n\n").into_response() };
        let parts: Vec<Bytes> = late_event_stream(events).collect().await;
        assert_eq!(parts.concat(), b"data: 1\n\n");
    }
}
