//! The calls of runners. Their errors have the format of the socket, because most of them are those of relayed calls.

use super::limits::BodyBytes;
use super::{Http, problem};
use crate::failpoint::failpoint;
use crate::hub::auth::Auth;
use crate::hub::calls::{Served, bad, failed, reply};
use crate::hub::router::{BODY_BYTES_MAX, BODY_TIME_MAX};
use crate::link::{
    ATTEMPT_TOKEN, BUNDLE_LINE_BYTES_MAX, BUNDLE_TYPE, GetRepository, GetRunRefs, GetRunnerWork,
    JoinRunner, LogBytes, PostEnded, PostLeftFacts, PostLog, PostLogFiles, PostRemoved,
    PostSupervisorFacts, RUNNER_HOME, RUNNER_MUST_JOIN, RUNNER_RELAY, RUNNER_SESSION, RunnerWork,
    WORK_BYTES_MAX, headers,
};
use crate::ops::{OpError, RunnerSession, TokenAccess};
use crate::spool::{self, NotReceived};
use crate::view::{ErrorView, codes, json_problem};
use adjutant_core::Principal;
use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::sync::Arc;

/// The prefix of the paths of runners.
pub(super) const PREFIX: &str = "/runner/";
const JOIN: &str = "/runner/join";
const WORK: &str = "/runner/work";
const FACTS: &str = "/runner/facts";
const SUPERVISOR_FACTS: &str = "/runner/supervisor-facts";
const ENDED: &str = "/runner/ended";
const REPOSITORY: &str = "/runner/repository";
const REFS: &str = "/runner/refs";
const SNAPSHOTS: &str = "/runner/snapshots";
const LOG: &str = "/runner/log";
const LOG_FILES: &str = "/runner/log-files";
const LOG_BYTES: &str = "/runner/log-bytes";
const REMOVED: &str = "/runner/removed";

/// Answers a call with a token of role runner.
pub(super) async fn serve(http: &Http, access: TokenAccess, head: Parts, body: Body) -> Response {
    let path = head.uri.path();
    let relayed = path
        .strip_prefix(RUNNER_RELAY)
        .filter(|rest| rest.starts_with('/'));
    if relayed.is_none()
        && ![
            JOIN,
            WORK,
            FACTS,
            SUPERVISOR_FACTS,
            ENDED,
            REPOSITORY,
            REFS,
            SNAPSHOTS,
            LOG,
            LOG_FILES,
            LOG_BYTES,
            REMOVED,
        ]
        .contains(&path)
    {
        return problem::not_found(path);
    }
    if head.method != Method::POST {
        return problem::method_not_allowed("POST", "calls are made with POST");
    }
    if path == JOIN {
        let body = match Box::pin(read_body(http, access.id, body)).await {
            Ok(body) => body,
            Err(not_read) => return not_read.refusal(),
        };
        return parsed(&body.bytes, |call: JoinRunner| {
            reply(http.hub.ops.join_runner(&access.name, call))
        });
    }
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let session = text(RUNNER_SESSION)
        .zip(text(RUNNER_HOME))
        .and_then(|(id, home)| http.hub.ops.runner_session(&access.name, home, id));
    let Some(session) = session else {
        return must_join();
    };
    if path == SNAPSHOTS {
        return Box::pin(accept_work(
            http,
            &session,
            text(headers::ATTEMPT).unwrap_or_default(),
            body,
        ))
        .await;
    }
    let body = match Box::pin(read_body(http, access.id, body)).await {
        Ok(body) => body,
        Err(not_read) => return not_read.refusal(),
    };
    let Some(path) = relayed else {
        return Box::pin(own_call(http, &session, path, &body.bytes)).await;
    };
    match relay(http, &session, path, &head, &body.bytes) {
        Ok(served) => {
            // The call may wait for long and uses none of these.
            drop((head, body, session, access));
            served.await
        }
        Err(refusal) => *refusal,
    }
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

async fn own_call(http: &Http, session: &RunnerSession, path: &str, body: &Bytes) -> Response {
    let ops = &http.hub.ops;
    match path {
        WORK => match parse::<GetRunnerWork>(body) {
            Ok(call) => match ops.runner_work(session, &call).await {
                Some(work) => {
                    let fingerprint = http.hub.listening.tls().map(|tls| {
                        tls.refresh();
                        tls.fingerprint()
                    });
                    reply(Ok(RunnerWork {
                        fingerprint,
                        ..work
                    }))
                }
                None => must_join(),
            },
            Err(refusal) => *refusal,
        },
        FACTS => match parse::<PostLeftFacts>(body) {
            Ok(call) => reply(ops.apply_left_facts(session, call).await),
            Err(refusal) => *refusal,
        },
        SUPERVISOR_FACTS => match parse::<PostSupervisorFacts>(body) {
            Ok(call) => {
                failpoint!("hub.before_facts");
                let applied = ops.apply_supervisor_facts(session, call).await;
                reply(applied.map(|(answers, attempts)| {
                    attempts
                        .into_iter()
                        .for_each(|attempt| ops.note_facts(attempt));
                    answers
                }))
            }
            Err(refusal) => *refusal,
        },
        REPOSITORY => match parse::<GetRepository>(body) {
            Ok(call) => match ops.repository_bundle(session, &call).await {
                Ok(file) => bundle(file),
                Err(error) => reply::<()>(Err(error)),
            },
            Err(refusal) => *refusal,
        },
        REFS => match parse::<GetRunRefs>(body) {
            Ok(call) => reply(ops.refs_of_hosted(session, &call.attempt).await),
            Err(refusal) => *refusal,
        },
        LOG => match parse::<PostLog>(body) {
            Ok(part) => reply(ops.accept_log_part(session, part)),
            Err(refusal) => *refusal,
        },
        LOG_FILES => match parse::<PostLogFiles>(body) {
            Ok(call) => reply(ops.accept_logs(session, call).await),
            Err(refusal) => *refusal,
        },
        REMOVED => match parse::<PostRemoved>(body) {
            Ok(call) => reply(ops.confirm_removed(session, call).await),
            Err(refusal) => *refusal,
        },
        LOG_BYTES => {
            let end = body
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(body.len());
            match parse::<LogBytes>(&body[..end]) {
                Ok(at) => reply(
                    ops.store_log_bytes(session, at, body.slice((end + 1).min(body.len())..))
                        .await,
                ),
                Err(refusal) => *refusal,
            }
        }
        _ => match parse::<PostEnded>(body) {
            Ok(call) => reply(ops.end_hosted(session, call).await),
            Err(refusal) => *refusal,
        },
    }
}

/// Receives the work of an attempt. A large body is in a file, never in memory.
async fn accept_work(http: &Http, session: &RunnerSession, attempt: &str, body: Body) -> Response {
    let ops = &http.hub.ops;
    let (file, _one) = match ops.file_for_work(session, attempt).await {
        Ok(one) => one,
        Err(error) => return reply::<()>(Err(error)),
    };
    match spool::receive(body, &file, WORK_BYTES_MAX + BUNDLE_LINE_BYTES_MAX).await {
        Ok(()) => reply(ops.accept_work(session, attempt, file).await),
        Err(NotReceived::Disk(error)) => {
            reply::<()>(Err(OpError::Io(format!("the work of {attempt}: {error}"))))
        }
        Err(error) => failed(&bad(&format!("the work of {attempt}: {error}"))),
    }
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
fn relay(
    http: &Http,
    session: &RunnerSession,
    path: &str,
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
    let attempt = http
        .hub
        .ops
        .check_relayed(session, text(headers::ATTEMPT), text(ATTEMPT_TOKEN))
        .map_err(refused)?;
    let serve = http
        .calls
        .get(path)
        .ok_or_else(|| refused(adjutant_core::Denied::not_found("call", path).into()))?;
    let auth = Auth {
        who: Principal::Run(attempt.run),
        attempt: Some(attempt),
    };
    Ok(serve(Arc::clone(&http.hub), auth, &head.headers, body))
}

fn must_join() -> Response {
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

fn parsed<T: DeserializeOwned>(body: &[u8], serve: impl FnOnce(T) -> Response) -> Response {
    match parse(body) {
        Ok(call) => serve(call),
        Err(refusal) => *refusal,
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<Response>> {
    serde_json::from_slice(body).map_err(|error| Box::new(failed(&bad(&json_problem(&error)))))
}
