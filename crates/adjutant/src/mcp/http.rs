//! The worker's endpoint in its supervisor: Streamable HTTP on loopback, for one token.
//!
//! There are no sessions: each request stands alone, so nothing can leak, expire under a wait of
//! hours, or be counted. Setting TCP_NODELAY is up to whoever accepts the connections.

use super::caps::{self, CallCap};
use super::server::{Role, Server, Setup};
use crate::client::Client;
use adjutant_core::limits::TEXT_BYTES_MAX;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Largest request: the longest question with its context and options, escaped.
const BODY_BYTES_MAX: usize = 16 * TEXT_BYTES_MAX;
/// A reply that takes longer than this begins without waiting for its content: some clients give
/// up on a connection that sends no headers for a minute, whatever their limit for tools is.
const HEADERS_AFTER: Duration = Duration::from_millis(500);
/// A sign of life on such a connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Serves a worker's tools at `/mcp`, to whoever shows the token and comes from this machine.
pub fn http_router(client: Client, token: &str) -> Router {
    let setup = Setup {
        client,
        role: Some(Role::Worker),
        compat: false,
        cap: CallCap::Fixed(caps::OWN_WORKER),
        directory: PathBuf::from("/"),
        input_ended: CancellationToken::new(),
    };
    let server = Server::new(setup);
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"])
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        .with_sse_keep_alive(Some(KEEP_ALIVE));
    let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::new(NeverSessionManager::default()), config);
    let expected: Arc<str> = format!("Bearer {token}").into();
    Router::new()
        .route_service("/mcp", service)
        .layer(middleware::from_fn(begin_at_once))
        .layer(middleware::from_fn(move |request: Request, next: Next| authorized(Arc::clone(&expected), request, next)))
}

/// Lets only the bearer of the token through.
fn authorized(expected: Arc<str>, request: Request, next: Next) -> BoxFuture<'static, Response> {
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let allowed = same(given, expected.as_bytes());
    Box::pin(async move {
        if allowed {
            return next.run(request).await;
        }
        let challenge = [(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
        (StatusCode::UNAUTHORIZED, challenge, "this endpoint needs the token of its run\n").into_response()
    })
}

/// Compares without telling by its duration where the two differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b));
    a.len() == b.len() && std::hint::black_box(differing) == 0
}

/// Begins a slow reply before its content is there, as an event stream with comments as signs of
/// life; the content, once it is there, becomes its one event.
async fn begin_at_once(request: Request, next: Next) -> Response {
    let events_are_fine =
        request.headers().get_all(http::header::ACCEPT).iter().any(|accept| accept.to_str().is_ok_and(|accept| accept.contains("text/event-stream")));
    let mut reply = Box::pin(next.run(request));
    if !events_are_fine {
        return reply.await;
    }
    match tokio::time::timeout(HEADERS_AFTER, &mut reply).await {
        Ok(reply) => reply,
        Err(_) => {
            let stream =
                futures::stream::once(async { Bytes::from_static(b": waiting\n\n") }).chain(late(reply)).map(Ok::<_, std::convert::Infallible>);
            let headers = [(CONTENT_TYPE, HeaderValue::from_static("text/event-stream")), (CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
            (StatusCode::OK, headers, Body::from_stream(stream)).into_response()
        }
    }
}

/// What a late reply brings, with comments until it comes.
fn late(reply: impl Future<Output = Response> + Send + 'static) -> impl futures::Stream<Item = Bytes> + Send {
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
                    let is_events = reply.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
                    let start = if is_events { Bytes::new() } else { Bytes::from_static(b"data: ") };
                    Some((start, State::Body(reply.into_body().into_data_stream(), is_events)))
                }
            },
            State::Body(mut body, is_events) => match pin!(&mut body).next().await {
                Some(Ok(bytes)) => Some((bytes, State::Body(body, is_events))),
                Some(Err(error)) => {
                    tracing::debug!(%error, "a late reply broke off");
                    None
                }
                None if is_events => None,
                None => Some((Bytes::from_static(b"\n\n"), State::Over)),
            },
            State::Over => None,
        }
    })
}
