//! The socket of a runner's home, on which its supervisors call as they would call a hub. Their
//! calls are relayed.

use super::facts::{FACTS, FactCalls};
use super::repository::Repositories;
use super::storage::Storage;
use super::uplink::{RELAY_MAX, Relayed, Uplink};
use super::uploads::Uploads;
use crate::attempt_processes::place::{self, Place};
use crate::hub_client::{SUPERVISOR_HEADER, encode_name, wait_of};
use crate::process::caller::CallerProcess;
use crate::protocol::{
    AttemptDir, Fact, FactKind, FactsStored, PostFacts, SupervisorCall, headers,
};
use crate::sock;
use crate::view::{ErrorView, codes};
use axum::body::{Body, Bytes};
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::serve::{IncomingStream, Listener};
use axum::{Json, Router};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::net::UnixListener;

/// Largest body of a call, in bytes, as at the hub.
const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The state of the socket.
pub(super) struct RunnerSocket {
    pub home: PathBuf,
    pub uplink: Arc<Uplink>,
    pub facts: FactCalls,
    pub repositories: Arc<Repositories>,
    pub uploads: Arc<Uploads>,
    pub storage: Arc<Storage>,
}

/// The process at the other end of a connection.
#[derive(Debug, Clone)]
struct SocketCaller(Arc<(io::Result<CallerProcess>, OnceLock<Place>)>);

impl SocketCaller {
    fn place(&self, runner: &RunnerSocket) -> Result<Place, ErrorView> {
        let (peer, known) = &*self.0;
        if let Some(place) = known.get() {
            return Ok(place.clone());
        }
        let peer = peer
            .as_ref()
            .map_err(|error| refusal(codes::NOT_ALLOWED, error.to_string()))?;
        if !peer.is_same_user() {
            return Err(refusal(
                codes::NOT_ALLOWED,
                "the caller is another user".to_owned(),
            ));
        }
        let place = place::of_caller(peer, &runner.home)
            .map_err(|error| refusal(codes::NOT_ALLOWED, error.to_string()))?;
        Ok(known.get_or_init(|| place).clone())
    }
}

struct HomeListener(UnixListener);

impl Listener for HomeListener {
    type Io = sock::Stream;
    type Addr = ();

    async fn accept(&mut self) -> (sock::Stream, ()) {
        (sock::accept(&self.0).await, ())
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Connected<IncomingStream<'_, HomeListener>> for SocketCaller {
    fn connect_info(stream: IncomingStream<'_, HomeListener>) -> Self {
        Self(Arc::new((CallerProcess::of(stream.io()), OnceLock::new())))
    }
}

/// Serves the socket.
pub(super) async fn serve(runner: Arc<RunnerSocket>, listener: UnixListener) -> io::Result<()> {
    let service = Router::new()
        .fallback(call)
        .with_state(runner)
        .into_make_service_with_connect_info::<SocketCaller>();
    axum::serve(HomeListener(listener), service).await
}

async fn call(
    State(runner): State<Arc<RunnerSocket>>,
    ConnectInfo(caller): ConnectInfo<SocketCaller>,
    request: Request,
) -> Response {
    relay(&runner, &caller, request)
        .await
        .unwrap_or_else(|refusal| *refusal)
}

async fn relay(
    runner: &RunnerSocket,
    caller: &SocketCaller,
    request: Request,
) -> Result<Response, Box<Response>> {
    let (head, body) = request.into_parts();
    let place = caller.place(runner).map_err(|error| failed(&error))?;
    let (run_id, attempt) = match place {
        Place::Supervisor { run_id, attempt } => (run_id, attempt),
        Place::Attempt { run_id, attempt } => return Err(redirect(runner, &run_id, attempt)),
        Place::Outside => {
            let message = format!(
                "{} is the home of a runner of {}",
                runner.home.display(),
                runner.uplink.address()
            );
            return Err(failed(&refusal(codes::CONFLICT, message)));
        }
    };
    // The place of the caller decides; its claim must agree.
    let attempt = format!("{run_id}/{attempt}");
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let token = text("authorization")
        .and_then(|value| value.strip_prefix("Bearer "))
        .filter(|_| text(headers::ATTEMPT) == Some(attempt.as_str()));
    let Some(token) = token else {
        return Err(failed(&refusal(
            codes::NOT_ALLOWED,
            "a supervisor must present its attempt and its token".to_owned(),
        )));
    };
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES_MAX).await else {
        return Err(failed(&refusal(
            codes::INVALID,
            format!("the body cannot be read; it may have {BODY_BYTES_MAX} bytes"),
        )));
    };
    if head.uri.path() == FACTS {
        let stored = deliver_facts(runner, attempt, token.to_owned(), &body)
            .await
            .map_err(|error| failed(&error))?;
        return Ok(Json(stored).into_response());
    }
    let relayed = Relayed {
        path: head.uri.path(),
        attempt: &attempt,
        token,
        key: text(headers::KEY),
        wait: wait_of(&body),
        body,
    };
    let reply = runner
        .uplink
        .relay(&relayed)
        .await
        .map_err(|error| failed(&error))?;
    Ok(response(reply.status, &reply.headers, reply.body))
}

/// Delivers facts of a supervisor, after what the hub must know before it may accept them.
async fn deliver_facts(
    runner: &RunnerSocket,
    attempt: String,
    token: String,
    body: &Bytes,
) -> Result<FactsStored, ErrorView> {
    let arguments: serde_json::Value =
        serde_json::from_slice(body).map_err(|error| refusal(codes::INVALID, error.to_string()))?;
    // The hub refuses them.
    let unreadable = |error| {
        tracing::warn!(%error, attempt, "facts of a supervisor cannot be read");
        Vec::new()
    };
    let facts =
        serde_json::from_slice::<PostFacts>(body).map_or_else(unreadable, |call| call.facts);
    if facts.iter().any(needs_work) {
        let sent = tokio::time::timeout(RELAY_MAX, runner.repositories.send(&attempt)).await;
        sent.map_err(|_| {
            refusal(
                codes::CLOSING,
                "the work of the run is being sent to the hub".to_owned(),
            )
        })?;
    }
    if facts
        .iter()
        .any(|fact| matches!(fact.what, FactKind::Ended { .. }))
    {
        runner.uploads.begin_if_finished(&attempt).await;
    }
    if let Some(why) = facts.iter().find_map(unwritable_in) {
        let held = tokio::time::timeout(RELAY_MAX, runner.storage.hold(why)).await;
        held.map_err(|_| {
            refusal(
                codes::CLOSING,
                "the hub does not know yet that this runner takes no attempts".to_owned(),
            )
        })?;
    }
    runner
        .facts
        .deliver(
            SupervisorCall {
                attempt,
                token,
                arguments,
            },
            body.len(),
        )
        .await
}

/// Returns whether the hub may accept a fact only when it has the work of the run.
pub(super) fn needs_work(fact: &Fact) -> bool {
    matches!(
        fact.what,
        FactKind::Started { .. } | FactKind::SnapshotTaken { .. } | FactKind::Ended { .. }
    )
}

/// Returns why an agent was not started, if the home could not be written.
pub(super) fn unwritable_in(fact: &Fact) -> Option<&str> {
    match &fact.what {
        FactKind::SpawnFailed { code, message } if code == codes::STORAGE_FULL => Some(message),
        _ => None,
    }
}

fn response(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let kind = headers
        .get(CONTENT_TYPE)
        .cloned()
        .unwrap_or(HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Directs a process of a run to its supervisor, as a hub does.
fn redirect(runner: &RunnerSocket, run_id: &str, attempt: u32) -> Box<Response> {
    let socket = AttemptDir::new(&runner.home, run_id, attempt).socket();
    let mut response = failed(&refusal(
        codes::USE_SUPERVISOR,
        "this process is part of a run: call its supervisor".to_owned(),
    ));
    if let Ok(value) = HeaderValue::from_str(&encode_name(&socket.display().to_string())) {
        response.headers_mut().insert(SUPERVISOR_HEADER, value);
    }
    response
}

fn refusal(code: &str, message: String) -> ErrorView {
    ErrorView {
        code: code.to_owned(),
        message,
        hint: None,
    }
}

fn failed(error: &ErrorView) -> Box<Response> {
    let status = match error.code.as_str() {
        codes::NOT_ALLOWED => StatusCode::FORBIDDEN,
        codes::USE_SUPERVISOR => StatusCode::MISDIRECTED_REQUEST,
        codes::INVALID => StatusCode::UNPROCESSABLE_ENTITY,
        codes::CLOSING => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::CONFLICT,
    };
    Box::new((status, Json(error)).into_response())
}
