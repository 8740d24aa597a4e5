//! The router of the socket: it reads a call, identifies its caller and serves it.

use super::auth::{CallerConnection, authenticate};
use super::calls::{Calls, OF_PROCESS, bad, failed};
use super::connections::{Connections, Guarded};
use super::{Hub, Shared};
use crate::ops::OpError;
use crate::process::caller::CallerProcess;
use crate::protocol::headers;
use crate::sock;
use crate::view::{ErrorView, codes};
use adjutant_core::{Action, Denied, Principal, shorten};
use axum::Router;
use axum::body::Bytes;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Method};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};

/// Largest body of a call, in bytes: enough for the longest prompt in JSON.
pub(super) const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a call's body may take to arrive.
pub(super) const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest description of a configuration problem, in characters.
const PROBLEM_CHARS_MAX: usize = 1_000;

/// The listener of the hub's socket, and those that replace it after a removal.
struct HubListener {
    connections: Arc<Connections>,
    listener: UnixListener,
    renewed: mpsc::Receiver<UnixListener>,
}

impl Listener for HubListener {
    type Io = Guarded;
    type Addr = ();

    async fn accept(&mut self) -> (Guarded, ()) {
        loop {
            tokio::select! {
                biased;
                Some(listener) = self.renewed.recv() => self.listener = listener,
                stream = sock::accept(&self.listener) => match self.connections.admit(stream) {
                    Some(admitted) => return (admitted, ()),
                    None => tracing::debug!("a connection beyond the limit was closed"),
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Connected<IncomingStream<'_, HubListener>> for CallerConnection {
    fn connect_info(stream: IncomingStream<'_, HubListener>) -> Self {
        Self::new(CallerProcess::of(stream.io()), stream.io().line())
    }
}

/// Serves the socket until `closing` is notified. Calls in progress are then completed.
pub(super) async fn serve(
    hub: Arc<Hub>,
    calls: Arc<Calls>,
    listener: UnixListener,
    renewed: mpsc::Receiver<UnixListener>,
    closing: Arc<Notify>,
) -> io::Result<()> {
    let connections = Arc::clone(&hub.connections);
    serve_with(
        Router::new().fallback(call).with_state((hub, calls)),
        connections,
        listener,
        renewed,
        closing,
    )
    .await
}

/// Serves the socket with a router until `closing` is notified.
pub(super) async fn serve_with(
    router: Router,
    connections: Arc<Connections>,
    listener: UnixListener,
    renewed: mpsc::Receiver<UnixListener>,
    closing: Arc<Notify>,
) -> io::Result<()> {
    let listener = HubListener {
        connections,
        listener,
        renewed,
    };
    let service = router.into_make_service_with_connect_info::<CallerConnection>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async move { closing.notified().await })
        .await
}

async fn call(
    State((hub, calls)): State<(Shared, Arc<Calls>)>,
    ConnectInfo(connection): ConnectInfo<CallerConnection>,
    request: Request,
) -> Response {
    let _answering = connection.line().call();
    if !connection.line().has_place() {
        return too_many(&hub.connections);
    }
    let (parts, body) = request.into_parts();
    let response = match calls.find(parts.uri.path()) {
        Some(call) if parts.method == Method::POST => match read_body(body).await {
            Err(()) => failed(&bad(&format!(
                "the body cannot be read; it may have {BODY_BYTES_MAX} bytes"
            ))),
            Ok(body) => match authenticate(&hub, &connection, &parts.headers) {
                Err(refusal) => *refusal,
                Ok(auth) => {
                    let is_person = auth.who == Principal::Person;
                    let done = (call.serve)(Arc::clone(&hub), auth, &parts.headers, &body);
                    let response = done.await;
                    if is_person {
                        with_missing_reports(&hub, with_problem(&hub, response))
                    } else {
                        response
                    }
                }
            },
        },
        _ => no_such_call(&hub, parts.uri.path()),
    };
    // The state of this process, and its end, do not depend on leadership.
    let is_of_process = parts
        .uri
        .path()
        .strip_prefix("/api/v1/")
        .is_some_and(|name| OF_PROCESS.contains(&name));
    if !is_of_process && !hub.leads().await {
        return add_version(&hub.version, failed(&does_not_lead()));
    }
    add_version(&hub.version, response)
}

/// The refusal of a hub that cannot confirm that it is the leader. The call is repeated with its
/// key.
pub(super) fn does_not_lead() -> ErrorView {
    ErrorView {
        code: codes::CLOSING.to_owned(),
        message: "this hub cannot confirm that it is the leader".to_owned(),
        hint: None,
    }
}

/// Reads a call's body within the time limit.
pub(super) async fn read_body(body: axum::body::Body) -> Result<Bytes, ()> {
    match tokio::time::timeout(BODY_TIME_MAX, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) | Err(_) => Err(()),
    }
}

/// Refuses a connection beyond the limit, and closes it.
pub(super) fn too_many(connections: &Connections) -> Response {
    let message = format!(
        "the hub has {} busy connections, the maximum",
        connections.open_max()
    );
    let hint =
        "end some waiting commands (adj wait, adj logs -f, adj mcp), then try again".to_owned();
    let mut response = failed(&ErrorView {
        code: codes::LIMIT.to_owned(),
        message,
        hint: Some(hint),
    });
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Adds the configuration's problem to a response for the person, who alone can correct it.
pub(super) fn with_problem(hub: &Hub, mut response: Response) -> Response {
    let problem = hub
        .ops
        .settings
        .problem()
        .map(|problem| problem.chars().take(PROBLEM_CHARS_MAX).collect::<String>());
    if let Some(value) = problem
        .and_then(|problem| HeaderValue::from_str(&crate::hub_client::encode_name(&problem)).ok())
    {
        response
            .headers_mut()
            .insert(headers::CONFIG_PROBLEM, value);
    }
    response
}

/// Adds the names of the runs whose supervisors have not reported yet to a response for the person:
/// their state may be old.
fn with_missing_reports(hub: &Hub, mut response: Response) -> Response {
    let names: String = hub
        .ops
        .first_reports
        .names_without_report()
        .join(", ")
        .chars()
        .take(PROBLEM_CHARS_MAX)
        .collect();
    if !names.is_empty()
        && let Ok(value) = HeaderValue::from_str(&crate::hub_client::encode_name(&names))
    {
        response.headers_mut().insert(headers::NO_REPORT, value);
    }
    response
}

/// Adds the hub's version to a response, so that a newer client can take over.
pub(super) fn add_version(version: &str, mut response: Response) -> Response {
    if let Ok(version) = HeaderValue::from_str(version) {
        response.headers_mut().insert(headers::VERSION, version);
    }
    response
}

fn no_such_call(hub: &Hub, path: &str) -> Response {
    let path = shorten::to_chars(path, 100);
    let view = ErrorView {
        code: codes::NOT_FOUND.to_owned(),
        message: format!("this hub (version {}) does not serve {path}", hub.version),
        hint: Some("adj stop ends it; the next command starts the current version".to_owned()),
    };
    failed(&view)
}

pub(super) fn manage(who: &Principal) -> Result<(), OpError> {
    match who {
        Principal::Person => Ok(()),
        Principal::Client(_) => Err(Denied::NotAllowed {
            who: "a client",
            action: Action::ManageHub.phrase(),
        }
        .into()),
        Principal::Run(_) => Err(Denied::NotAllowed {
            who: "a run",
            action: Action::ManageHub.phrase(),
        }
        .into()),
    }
}
