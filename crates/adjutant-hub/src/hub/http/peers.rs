//! The calls of peers: hubs with a token of the role `peer`. Nothing else exists for such a token,
//! and these calls do not exist for others.

use super::asked::{Answer, Asked};
use super::problem;
use crate::ops::{OpError, TokenAccess, post_shared, shared_chats, shared_entries};
use crate::protocol::peer::{ListShared, MESSAGE_BYTES_MAX, PostShared, ReadShared};
use crate::view::{ErrorView, codes, json_problem};
use adjutant_core::units::duration;
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
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

/// Answers a request for the chats that are shared with a peer.
pub(super) fn list(asked: Asked, access: TokenAccess) -> Answer {
    Box::pin(async move {
        match read::<ListShared>(&asked.head, asked.body, SMALL_BYTES_MAX).await {
            Ok(_) => reply(shared_chats(asked.http.hub.ops.store(), access.id)),
            Err(refusal) => *refusal,
        }
    })
}

/// Answers a request for the entries of a shared chat.
pub(super) fn read_entries(asked: Asked, access: TokenAccess) -> Answer {
    Box::pin(async move {
        match read::<ReadShared>(&asked.head, asked.body, SMALL_BYTES_MAX).await {
            Ok(call) => reply(shared_entries(asked.http.hub.ops.store(), access.id, call).await),
            Err(refusal) => *refusal,
        }
    })
}

/// Stores a message of a peer.
pub(super) fn post(asked: Asked, access: TokenAccess) -> Answer {
    Box::pin(async move {
        let http = &asked.http;
        let (Ok(_turn), Some(posting)) = (
            http.peer_posts.try_acquire(),
            http.limits.begin_post(access.id, Instant::now()),
        ) else {
            return too_many();
        };
        match read::<PostShared>(&asked.head, asked.body, MESSAGE_BYTES_MAX).await {
            Ok(call) => {
                posting.count_bytes(call.text.len());
                reply(post_shared(http.hub.ops.store(), access.id, call).await)
            }
            Err(refusal) => *refusal,
        }
    })
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
                    "the body did not arrive within {}",
                    duration::of(BODY_TIME_MAX)
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
