//! Errors over HTTP, as problem details (RFC 9457) with Adjutant's code and hint.

use crate::hub::router::BODY_BYTES_MAX;
use crate::ops::http_status;
use crate::view::{ErrorView, codes};
use adjutant_core::shorten;
use axum::body::{Body, to_bytes};
use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

const PROBLEM_BYTES_MAX: usize = 1024 * 1024;

#[derive(Serialize)]
struct Problem<'a> {
    /// Means that the title is the phrase of the status; `code` distinguishes problems.
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

/// Returns an error with its own status.
pub(super) fn of(view: &ErrorView) -> Response {
    with_status(
        StatusCode::from_u16(http_status(&view.code)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        view,
    )
}

/// Returns an error.
pub(super) fn with_status(status: StatusCode, view: &ErrorView) -> Response {
    let ErrorView {
        code,
        message,
        hint,
    } = view;
    let title = status.canonical_reason().unwrap_or_default();
    let problem = Problem {
        r#type: "about:blank",
        title,
        status: status.as_u16(),
        detail: message,
        code,
        hint: hint.as_deref(),
    };
    let mut response = (status, axum::Json(problem)).into_response();
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    response
}

/// Returns an error with a message and a hint.
pub(super) fn refusal(status: StatusCode, code: &str, message: &str, hint: &str) -> Response {
    with_status(
        status,
        &ErrorView {
            code: code.to_owned(),
            message: message.to_owned(),
            hint: Some(hint.to_owned()),
        },
    )
}

pub(super) fn not_found(path: &str) -> Response {
    let path = shorten::to_chars(path, 100);
    refusal(
        StatusCode::NOT_FOUND,
        codes::NOT_FOUND,
        &format!("there is no {path} over HTTP"),
        "docs/http.md describes what there is",
    )
}

/// Refuses a method.
pub(super) fn method_not_allowed(allowed: &'static str) -> Response {
    let mut response = refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        codes::INVALID,
        "this path is not for this method",
        &format!("allowed: {allowed}"),
    );
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Asks for a token.
pub(super) fn unauthorized() -> Response {
    let hint = "send Authorization: Bearer TOKEN; adj token new NAME makes one";
    let mut response = refusal(
        StatusCode::UNAUTHORIZED,
        codes::NOT_ALLOWED,
        "there is no valid token in the request",
        hint,
    );
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Refuses a body that is too large or too slow, and closes the connection.
pub(super) fn too_large() -> Response {
    let message =
        format!("the body cannot be read; it may have {BODY_BYTES_MAX} bytes, and 30s to arrive");
    let mut response = with_status(
        StatusCode::PAYLOAD_TOO_LARGE,
        &ErrorView {
            code: codes::INVALID.to_owned(),
            message,
            hint: None,
        },
    );
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Converts the error of a call from the format of the socket.
pub(super) async fn convert(response: Response) -> Response {
    if response.status().is_success() {
        return response;
    }
    let (head, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, PROBLEM_BYTES_MAX).await else {
        return of(&ErrorView {
            code: codes::INTERNAL.to_owned(),
            message: "the error is too long".to_owned(),
            hint: None,
        });
    };
    match serde_json::from_slice::<ErrorView>(&bytes) {
        Ok(view) => with_status(head.status, &view),
        Err(_) => Response::from_parts(head, Body::from(bytes)),
    }
}
