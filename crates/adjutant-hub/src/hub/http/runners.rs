//! The calls of runners. Their errors have the format of the socket, because most of them are those
//! of relayed calls.

use super::asked::{Answer, Asked};
use super::limits::BodyBytes;
use super::{Http, problem};
use crate::failpoint::failpoint;
use crate::hub::auth::Auth;
use crate::hub::calls::{Served, bad, failed, reply};
use crate::hub::router::{BODY_BYTES_MAX, BODY_TIME_MAX};
use crate::ops::{
    HostedLogs, OpError, RunnerSession, Runners, TokenAccess, apply_supervisor_facts, check_relayed,
};
use crate::protocol::{
    ATTEMPT_TOKEN, BUNDLE_LINE_BYTES_MAX, BUNDLE_TYPE, GetRepository, GetRunRefs, GetRunnerWork,
    JoinRunner, LogBytes, PostEnded, PostLeftFacts, PostLog, PostLogFiles, PostRemoved,
    PostSupervisorFacts, RUNNER_HOME, RUNNER_MUST_JOIN, RUNNER_RELAY, RUNNER_SESSION, RunnerWork,
    WORK_BYTES_MAX, headers,
};
use crate::spool::{self, NotReceived};
use crate::view::{ErrorView, codes, json_problem};
use adjutant_core::Principal;
use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::sync::Arc;

/// The prefix of the paths of runners.
pub(super) const PREFIX: &str = "/runner/";

/// Answers a runner that joins the hub.
pub(super) fn join(asked: Asked, access: TokenAccess) -> Answer {
    Box::pin(async move {
        let Asked { http, body, .. } = asked;
        match Box::pin(read_body(&http, access.id, body)).await {
            Ok(body) => match parse::<JoinRunner>(&body.bytes) {
                Ok(call) => reply(Runners::of(&http.hub.ops).join(&access.name, call)),
                Err(refusal) => *refusal,
            },
            Err(not_read) => not_read.refusal(),
        }
    })
}

/// Returns the session in which a runner makes a call. `None`: it has ended.
pub(super) fn session(asked: &Asked, access: &TokenAccess) -> Option<RunnerSession> {
    let (id, home) = asked
        .header(RUNNER_SESSION)
        .zip(asked.header(RUNNER_HOME))?;
    Runners::of(&asked.http.hub.ops).session(&access.name, home, id)
}

/// A body in memory, which counts for its runner.
struct ReadBody {
    bytes: Bytes,
    _counted: BodyBytes,
}

/// Why a body was not read.
enum NotRead {
    /// It is too large or too slow, or the caller has gone.
    Body,
    /// The runner has too many bytes in memory.
    TooMany,
}

/// Reads the body of a call within the time limit.
async fn read_body(http: &Http, token: i64, mut body: Body) -> Result<ReadBody, NotRead> {
    let mut counted = http.limits.begin_body(token);
    let reading = async {
        let mut read = Vec::new();
        let mut first = Bytes::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| NotRead::Body)?.into_data() else {
                continue;
            };
            if !counted.add(data.len()) {
                return Err(NotRead::TooMany);
            }
            if read.len() + first.len() + data.len() > BODY_BYTES_MAX {
                return Err(NotRead::Body);
            }
            // Most bodies are one frame.
            if first.is_empty() && read.is_empty() {
                first = data;
            } else {
                read.extend_from_slice(&std::mem::take(&mut first));
                read.extend_from_slice(&data);
            }
        }
        Ok(if read.is_empty() {
            first
        } else {
            Bytes::from(read)
        })
    };
    match tokio::time::timeout(BODY_TIME_MAX, reading).await {
        Ok(read) => Ok(ReadBody {
            bytes: read?,
            _counted: counted,
        }),
        Err(_) => Err(NotRead::Body),
    }
}

impl NotRead {
    fn refusal(&self) -> Response {
        match self {
            Self::Body => problem::too_large(),
            // The runner sends it again later.
            Self::TooMany => problem::refusal(
                StatusCode::TOO_MANY_REQUESTS,
                codes::LIMIT,
                "the hub receives too much of this runner at once",
                "send it again",
            ),
        }
    }
}

/// Answers a call with the given function.
fn with_call<T, F>(
    asked: Asked,
    access: TokenAccess,
    serve: impl FnOnce(Arc<Http>, T) -> F + Send + 'static,
) -> Answer
where
    T: DeserializeOwned + Send,
    F: Future<Output = Response> + Send,
{
    Box::pin(async move {
        let Asked { http, body, .. } = asked;
        match Box::pin(read_body(&http, access.id, body)).await {
            Ok(body) => match parse::<T>(&body.bytes) {
                Ok(call) => serve(http, call).await,
                Err(refusal) => *refusal,
            },
            Err(not_read) => not_read.refusal(),
        }
    })
}

/// Waits until there are orders for a runner.
pub(super) fn work(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    with_call(asked, access, |http, call: GetRunnerWork| async move {
        let Some(work) = Runners::of(&http.hub.ops).work(&session, &call).await else {
            return must_join();
        };
        let fingerprint = http.hub.listening.tls().map(|tls| {
            tls.refresh();
            tls.fingerprint()
        });
        reply(Ok(RunnerWork {
            fingerprint,
            ..work
        }))
    })
}

/// Applies the facts that an attempt has left on disk.
pub(super) fn left_facts(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    with_call(asked, access, |http, call: PostLeftFacts| async move {
        reply(
            Runners::of(&http.hub.ops)
                .apply_left_facts(&session, call)
                .await,
        )
    })
}

/// Applies the facts of supervisors.
pub(super) fn supervisor_facts(
    asked: Asked,
    access: TokenAccess,
    session: RunnerSession,
) -> Answer {
    with_call(
        asked,
        access,
        |http, call: PostSupervisorFacts| async move {
            failpoint!("hub.before_facts");
            let ops = &http.hub.ops;
            let applied = apply_supervisor_facts(ops.store(), &ops.settings, &session, call).await;
            reply(applied.map(|(answers, attempts)| {
                attempts
                    .into_iter()
                    .for_each(|attempt| ops.first_reports.note_facts(attempt));
                answers
            }))
        },
    )
}

/// Ends an attempt that its runner has seen end.
pub(super) fn ended(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    with_call(asked, access, |http, call: PostEnded| async move {
        reply(Runners::of(&http.hub.ops).end_hosted(&session, call).await)
    })
}

/// Sends what a runner lacks of a repository.
pub(super) fn repository(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    with_call(asked, access, |http, call: GetRepository| async move {
        match http
            .hub
            .ops
            .hosted_repositories
            .bundle(&session, &call)
            .await
        {
            Ok(file) => bundle(file),
            Err(error) => reply::<()>(Err(error)),
        }
    })
}

/// Answers with the refs of an attempt.
pub(super) fn refs(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    with_call(asked, access, |http, call: GetRunRefs| async move {
        reply(
            http.hub
                .ops
                .hosted_repositories
                .refs(&session, &call.attempt)
                .await,
        )
    })
}

/// Passes on a part of a log that a caller reads now.
pub(super) fn log_part(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    with_call(asked, access, |http, call: PostLog| async move {
        reply(Runners::of(&http.hub.ops).accept_log_part(&session, call))
    })
}

/// Answers which files of an ended attempt the hub lacks.
pub(super) fn log_files(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    with_call(asked, access, |http, call: PostLogFiles| async move {
        reply(HostedLogs::of(&http.hub.ops).accept(&session, call).await)
    })
}

/// Confirms that a runner has removed the files of runs.
pub(super) fn removed(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    with_call(asked, access, |http, call: PostRemoved| async move {
        reply(
            Runners::of(&http.hub.ops)
                .confirm_removed(&session, call)
                .await,
        )
    })
}

/// Stores bytes of a log, which follow the first line of the body.
pub(super) fn log_bytes(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    Box::pin(async move {
        let Asked { http, body, .. } = asked;
        let body = match Box::pin(read_body(&http, access.id, body)).await {
            Ok(body) => body,
            Err(not_read) => return not_read.refusal(),
        };
        let bytes = &body.bytes;
        let end = bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(bytes.len());
        let rest = bytes.slice((end + 1).min(bytes.len())..);
        match parse::<LogBytes>(&bytes[..end]) {
            Ok(at) => reply(
                HostedLogs::of(&http.hub.ops)
                    .store_bytes(&session, at, rest)
                    .await,
            ),
            Err(refusal) => *refusal,
        }
    })
}

/// Receives the work of an attempt. A large body is in a file, never in memory.
pub(super) fn accept_work(asked: Asked, _: TokenAccess, session: RunnerSession) -> Answer {
    Box::pin(async move {
        let attempt = asked
            .header(headers::ATTEMPT)
            .unwrap_or_default()
            .to_owned();
        let (ops, attempt) = (&asked.http.hub.ops, attempt.as_str());
        let (file, _one) = match ops
            .hosted_repositories
            .file_for_work(&session, attempt)
            .await
        {
            Ok(one) => one,
            Err(error) => return reply::<()>(Err(error)),
        };
        let bytes_max = WORK_BYTES_MAX + BUNDLE_LINE_BYTES_MAX;
        match spool::receive(asked.body, &file, bytes_max).await {
            Ok(()) => reply(
                ops.hosted_repositories
                    .accept_work(&session, attempt, file)
                    .await,
            ),
            Err(NotReceived::Disk(error)) => {
                reply::<()>(Err(OpError::Io(format!("the work of {attempt}: {error}"))))
            }
            Err(error) => failed(&bad(&format!("the work of {attempt}: {error}"))),
        }
    })
}

/// Makes a call of a supervisor or its worker.
pub(super) fn relay(asked: Asked, access: TokenAccess, session: RunnerSession) -> Answer {
    Box::pin(async move {
        let Asked {
            http, head, body, ..
        } = asked;
        let body = match Box::pin(read_body(&http, access.id, body)).await {
            Ok(body) => body,
            Err(not_read) => return not_read.refusal(),
        };
        match begin_relayed(&http, &session, &head, &body.bytes) {
            Ok(served) => {
                // The call may wait for long and uses none of these.
                drop((http, head, body, session, access));
                served.await
            }
            Err(refusal) => *refusal,
        }
    })
}

/// Sends a file as a body.
fn bundle(file: File) -> Response {
    let bytes = file.metadata().map(|meta| meta.len());
    let mut response = Response::new(Body::new(spool::body_of(file)));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(BUNDLE_TYPE));
    if let Ok(bytes) = bytes {
        response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    }
    response
}

/// Begins a call of a supervisor or its worker.
fn begin_relayed(
    http: &Http,
    session: &RunnerSession,
    head: &Parts,
    body: &Bytes,
) -> Result<Served, Box<Response>> {
    let text = |name: &str| {
        head.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let refused = |error: OpError| Box::new(reply::<()>(Err(error)));
    let attempt = check_relayed(
        http.hub.ops.store(),
        session,
        text(headers::ATTEMPT),
        text(ATTEMPT_TOKEN),
    )
    .map_err(refused)?;
    let path = head.uri.path();
    let path = path.strip_prefix(RUNNER_RELAY).unwrap_or(path);
    let call = http
        .calls
        .find(path)
        .ok_or_else(|| refused(adjutant_core::Denied::not_found("call", path).into()))?;
    let auth = Auth {
        who: Principal::Run(attempt.run),
        attempt: Some(attempt),
    };
    Ok((call.serve)(
        Arc::clone(&http.hub),
        auth,
        &head.headers,
        body,
    ))
}

/// The refusal of a call in a session that has ended.
pub(super) fn must_join() -> Response {
    let message = "this session of the runner has ended".to_owned();
    let mut response = failed(&ErrorView {
        code: codes::CONFLICT.to_owned(),
        message,
        hint: None,
    });
    response
        .headers_mut()
        .insert(RUNNER_MUST_JOIN, HeaderValue::from_static("1"));
    response
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<Response>> {
    serde_json::from_slice(body).map_err(|error| Box::new(failed(&bad(&json_problem(&error)))))
}
