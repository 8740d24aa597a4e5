//! The calls of peers: hubs with a token of the role `peer`. Nothing else exists for such a token, and these calls do not exist
//! for others.

use super::{Http, problem};
use crate::link::peer::{ListShared, MESSAGE_BYTES_MAX, PeerCall, PostShared, ReadShared};
use crate::ops::{OpError, TokenAccess};
use crate::view::{ErrorView, codes, json_problem};
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// Maximum size of the calls that are not posts, in bytes.
const SMALL_BYTES_MAX: usize = 16 * 1024;
/// How long the body of a call may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// Posts whose bodies are read at a time.
pub(super) const READING_MAX: usize = 8;

/// Answers a request of a peer.
pub(super) async fn answer(
    http: &Http,
    access: &TokenAccess,
    head: &Parts,
    body: Body,
) -> Response {
    let path = head.uri.path();
    if ![ListShared::PATH, ReadShared::PATH, PostShared::PATH].contains(&path) {
        return problem::not_found(path);
    }
    if head.method != Method::POST {
        return problem::method_not_allowed("POST", "calls are made with POST");
    }
    let ops = &http.hub.ops;
    let answered = match path {
        ListShared::PATH => read::<ListShared>(head, body, SMALL_BYTES_MAX)
            .await
            .map(|_| reply(ops.shared_chats(access.id))),
        ReadShared::PATH => match read(head, body, SMALL_BYTES_MAX).await {
            Ok(call) => Ok(reply(ops.shared_entries(access.id, call).await)),
            Err(refusal) => Err(refusal),
        },
        _ => match (
            http.peer_posts.try_acquire(),
            http.limits.begin_post(access.id, Instant::now()),
        ) {
            (Ok(_turn), Some(posting)) => {
                match read::<PostShared>(head, body, MESSAGE_BYTES_MAX).await {
                    Ok(call) => {
                        posting.count_bytes(call.text.len());
                        Ok(reply(ops.post_shared(access.id, call).await))
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            _ => Err(Box::new(too_many())),
        },
    };
    answered.unwrap_or_else(|refusal| *refusal)
}

fn too_many() -> Response {
    let mut response = problem::refusal(
        StatusCode::TOO_MANY_REQUESTS,
        codes::LIMIT,
        "more posts than this hub takes at a time",
        "try again in a moment",
    );
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

async fn read<T: DeserializeOwned>(
    head: &Parts,
    body: Body,
    bytes_max: usize,
) -> Result<T, Box<Response>> {
    let stated = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if stated.is_some_and(|bytes| bytes > bytes_max) {
        let message = format!("the body has too many bytes; it may have {bytes_max}");
        let refusal = ErrorView {
            code: codes::INVALID.to_owned(),
            message,
            hint: None,
        };
        return Err(Box::new(problem::with_status(
            StatusCode::PAYLOAD_TOO_LARGE,
            &refusal,
        )));
    }
    let body = tokio::time::timeout(BODY_TIME_MAX, to_bytes(body, bytes_max)).await;
    let refused = |status, message: String| {
        Box::new(problem::with_status(
            status,
            &ErrorView {
                code: codes::INVALID.to_owned(),
                message,
                hint: None,
            },
        ))
    };
    let body = match body {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return Err(refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body cannot be read; it may have {bytes_max} bytes"),
            ));
        }
        Err(_) => {
            return Err(refused(
                StatusCode::REQUEST_TIMEOUT,
                format!(
                    "the body did not arrive within {} s",
                    BODY_TIME_MAX.as_secs()
                ),
            ));
        }
    };
    serde_json::from_slice(&body).map_err(|error| {
        let message = format!("the body cannot be used: {}", json_problem(&error));
        Box::new(problem::of(&ErrorView {
            code: codes::INVALID.to_owned(),
            message,
            hint: None,
        }))
    })
}

fn reply<T: Serialize>(result: Result<T, OpError>) -> Response {
    match result {
        Ok(value) => Json(value).into_response(),
        Err(error) => problem::of(&error.view()),
    }
}
