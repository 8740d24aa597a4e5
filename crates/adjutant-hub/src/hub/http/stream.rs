//! One connection: its handshake, its protocol, and when it ends.
//!
//! ```text
//!  accepted ──> TLS handshake ──┬──> HTTP/1.1: one call at a time
//!                               └──> HTTP/2, if the caller asks for the protocol of runners: many calls of one runner
//! ```

use super::caller::HttpCaller;
use super::limits::{HEAD_BYTES_MAX, OPEN_CALLS_MAX};
use super::{Http, serve};
use crate::connection_tasks::ConnectionTasks;
use crate::hub::connections::Guarded;
use crate::ops::Tokens;
use crate::tls;
use axum::body::Body;
use axum::http::Request;
use axum::http::header::CONNECTION;
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

/// Idle timeout of a connection.
const IDLE_MAX: Duration = Duration::from_secs(60);
const HEADERS_MAX: usize = 64;
/// Calls beyond the maximum get a refusal. Those beyond this number wait at the caller, without
/// one.
const SHARED_CALLS_MAX: u32 = OPEN_CALLS_MAX + 1024;
/// How much of a body is received before the hub reads it: of one call, and of all on a connection.
const CALL_WINDOW_BYTES: u32 = 256 * 1024;
const SHARED_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// How much of a reply waits to be sent.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Serves a connection until it ends, its token is revoked, or it is idle for too long.
pub(super) async fn serve(http: Arc<Http>, stream: Guarded<TcpStream>, closing: CancellationToken) {
    let ends = match stream
        .get_ref()
        .local_addr()
        .and_then(|own| Ok((own, stream.get_ref().peer_addr()?)))
    {
        Ok(ends) => ends,
        Err(error) => {
            return tracing::debug!(%error, "a caller over HTTP has closed its connection");
        }
    };
    if let Err(error) = stream.get_ref().set_nodelay(true) {
        tracing::debug!(%error, "replies over HTTP may be delayed");
    }
    let (line, number) = (stream.line(), stream.number());
    let stream = match &http.tls {
        None => Either::Left(stream),
        Some(tls) => {
            let accepted = tokio::select! {
                accepted = tls.accept(stream) => accepted,
                // The handshake takes from the time for the head of the first request.
                () = line.expired(IDLE_MAX) => return,
                () = closing.cancelled() => return,
            };
            match accepted {
                Ok(stream) => Either::Right(stream),
                Err(error) => return tracing::debug!(%error, "a TLS handshake failed"),
            }
        }
    };
    let is_shared = matches!(&stream, Either::Right(stream) if stream.get_ref().1.alpn_protocol() == Some(tls::SHARED));
    let caller = Arc::new(HttpCaller::new(
        line,
        number,
        ends,
        is_shared,
        Arc::clone(&http.tcp_callers),
    ));
    // Subscribes before the first call, so that no revocation is missed.
    let revocations = Tokens::of(&http.hub.ops).revocations();
    let ending = closing.child_token();
    let mut served = pin!(if is_shared {
        shared(Arc::clone(&http), Arc::clone(&caller), stream, ending).boxed()
    } else {
        single(Arc::clone(&http), Arc::clone(&caller), stream, ending).boxed()
    });
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection over HTTP broke");
                }
                return;
            }
            () = caller.line.expired(IDLE_MAX) => return,
            () = revocations.wait() => {
                let is_in_use = caller.token().is_none_or(|token| Tokens::of(&http.hub.ops).is_in_use(token).unwrap_or_else(|error| {
                    tracing::error!(%error, "cannot check the token of a connection, which is closed");
                    false
                }));
                if !is_in_use {
                    return;
                }
            }
        }
    }
}

/// Serves one call at a time. After `ending`, the current call is the last.
async fn single(
    http: Arc<Http>,
    caller: Arc<HttpCaller>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    ending: CancellationToken,
) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let (http, caller) = (Arc::clone(&http), Arc::clone(&caller));
        async move {
            Ok::<_, Infallible>(serve::answer_request(&http, &caller, request.map(Body::new)).await)
        }
        .boxed()
    });
    let mut builder = http1::Builder::new();
    builder
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX.into());
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = served.as_mut() => return ended,
        () = ending.cancelled() => served.as_mut().graceful_shutdown(),
    }
    served.await
}

/// Serves many calls at the same time, each in a task that ends with the connection. After
/// `ending`, no calls are added.
async fn shared(
    http: Arc<Http>,
    caller: Arc<HttpCaller>,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    ending: CancellationToken,
) -> hyper::Result<()> {
    let last_call = ending.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (http, caller, last_call) = (Arc::clone(&http), Arc::clone(&caller), last_call.clone());
        async move {
            let mut response = serve::answer_request(&http, &caller, request.map(Body::new)).await;
            // HTTP/2 has no such header: the connection says it.
            if response.headers_mut().remove(CONNECTION).is_some() {
                last_call.cancel();
            }
            Ok::<_, Infallible>(response)
        }
        .boxed()
    });
    let tasks = ConnectionTasks::default();
    let mut builder = http2::Builder::new(tasks.spawner());
    builder
        .max_concurrent_streams(SHARED_CALLS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX.into())
        .initial_stream_window_size(CALL_WINDOW_BYTES)
        .initial_connection_window_size(SHARED_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = served.as_mut() => return ended,
        () = ending.cancelled() => served.as_mut().graceful_shutdown(),
    }
    served.await
}
