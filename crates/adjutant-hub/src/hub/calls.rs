//! The table of calls that the hub serves: it parses their arguments and serializes their replies.

use super::Shared;
use super::auth::Auth;
use crate::ops::{AttemptId, Caller, OpError, http_status};
use crate::protocol::headers;
use crate::store::Key;
use crate::view::{Call, CheckLogStore, ErrorView, GetHub, HandOver, StopHub, codes, json_problem};
use adjutant_core::token::CallEffect;
use adjutant_core::{Principal, limits};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Initial capacity of a reply's buffer, enough for most replies.
const REPLY_BYTES: usize = 2048;

/// The response to a call.
pub(super) type Served = Pin<Box<dyn Future<Output = Response> + Send>>;
/// Serves one call, given its caller, headers and body.
pub(super) type Serve = Box<dyn Fn(Shared, Auth, &HeaderMap, &[u8]) -> Served + Send + Sync>;

/// Calls about the hub's process, which do not depend on runs, so they do not wait for their
/// supervisors.
pub(super) const OF_PROCESS: [&str; 4] = [
    GetHub::NAME,
    StopHub::NAME,
    HandOver::NAME,
    CheckLogStore::NAME,
];

/// The calls by path. Handlers are boxed, so that the shared code is compiled once and not for each
/// call.
#[derive(Default)]
pub(super) struct Calls {
    by_path: HashMap<String, ServedCall>,
}

/// One call, with what HTTP must know of it.
pub(super) struct ServedCall {
    pub effect: CallEffect,
    /// The argument with which alone the call changes nothing.
    pub reads_with: Option<&'static str>,
    pub serve: Serve,
}

impl Calls {
    pub(super) fn find(&self, path: &str) -> Option<&ServedCall> {
        self.by_path.get(path)
    }
}

/// Adds one call of the contract.
pub(super) fn on<C, F, Fut>(mut calls: Calls, serve: F) -> Calls
where
    C: Call,
    F: Fn(Shared, Caller, C) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<C::Reply, OpError>> + Send + 'static,
{
    let served =
        move |hub: Shared, Auth { who, attempt }: Auth, given: &HeaderMap, body: &[u8]| -> Served {
            match parse_call::<C>(&who, given, body) {
                Err(refusal) => Box::pin(std::future::ready(*refusal)),
                Ok((caller, call)) => {
                    let key = given
                        .get(headers::KEY)
                        .filter(|_| attempt.is_some())
                        .and_then(|key| key.to_str().ok())
                        .map(ToOwned::to_owned);
                    let waits = !matches!(who, Principal::Run(_)) && !OF_PROCESS.contains(&C::NAME);
                    let done = serve(Arc::clone(&hub), caller, call);
                    Box::pin(async move {
                        if waits {
                            hub.ops.first_reports.over().await;
                        }
                        let response = reply(done.await);
                        if let Some(key) = key {
                            hub.ops.first_reports.note_answer(&key);
                        }
                        response
                    })
                }
            }
        };
    let call = ServedCall {
        effect: C::EFFECT,
        reads_with: C::READS_WITH,
        serve: Box::new(served),
    };
    calls.by_path.insert(format!("/api/v1/{}", C::NAME), call);
    calls
}

/// Adds a call that only supervisors may make.
pub(super) fn from_supervisors<T, F, Fut>(mut calls: Calls, path: &str, serve: F) -> Calls
where
    T: DeserializeOwned,
    F: Fn(Shared, AttemptId, T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let served = move |hub: Shared, auth: Auth, _: &HeaderMap, body: &[u8]| -> Served {
        let Some(attempt) = auth.attempt else {
            return Box::pin(std::future::ready(failed(&only_supervisors())));
        };
        match body_of(body) {
            Err(refusal) => Box::pin(std::future::ready(*refusal)),
            Ok(parsed) => Box::pin(serve(hub, attempt, parsed)),
        }
    };
    let call = ServedCall {
        effect: CallEffect::LocalOnly,
        reads_with: None,
        serve: Box::new(served),
    };
    calls.by_path.insert(path.to_owned(), call);
    calls
}

fn parse_call<C: Call>(
    who: &Principal,
    given: &HeaderMap,
    body: &[u8],
) -> Result<(Caller, C), Box<Response>> {
    let key = match given.get(headers::KEY).filter(|_| C::WRITES) {
        None => None,
        Some(value) => match value.to_str() {
            Ok(text) if (1..=limits::KEY_BYTES_MAX).contains(&text.len()) => {
                Some(Key::new(text, C::NAME, body))
            }
            _ => {
                return Err(Box::new(failed(&bad(
                    "idempotency key: use 1 to 200 visible ASCII characters",
                ))));
            }
        },
    };
    // A list would be read as the fields in their order.
    if body
        .trim_ascii_start()
        .first()
        .is_some_and(|first| *first != b'{')
    {
        return Err(Box::new(failed(&bad("the body must be a JSON object"))));
    }
    Ok((
        Caller {
            who: who.clone(),
            key,
        },
        body_of(body)?,
    ))
}

fn body_of<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<Response>> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        let problem = json_problem(&error);
        let message = if error.is_data() {
            problem
        } else {
            format!("the body is not JSON: {problem}")
        };
        Box::new(failed(&bad(&message)))
    })
}

pub(super) fn bad(message: &str) -> ErrorView {
    ErrorView {
        code: codes::INVALID.to_owned(),
        message: message.to_owned(),
        hint: None,
    }
}

pub(super) fn failed(view: &ErrorView) -> Response {
    let status =
        StatusCode::from_u16(http_status(&view.code)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(view)).into_response()
}

pub(super) fn reply<T: Serialize>(result: Result<T, OpError>) -> Response {
    match result {
        Ok(value) => {
            let mut body = Vec::with_capacity(REPLY_BYTES);
            match serde_json::to_writer(&mut body, &value) {
                Ok(()) => (
                    [(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
                    body,
                )
                    .into_response(),
                Err(error) => failed(&OpError::Io(error.to_string()).view()),
            }
        }
        Err(error) => {
            let view = error.view();
            if view.code == codes::INTERNAL {
                tracing::error!(%error, "a call failed");
            }
            failed(&view)
        }
    }
}

fn only_supervisors() -> ErrorView {
    ErrorView {
        code: codes::NOT_ALLOWED.to_owned(),
        message: "only a supervisor can make this call".to_owned(),
        hint: None,
    }
}
