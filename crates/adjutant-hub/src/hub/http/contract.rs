//! The calls of the contract, for tokens.

use super::asked::{Answer, Asked};
use super::names::is_json;
use super::problem;
use crate::hub::auth::Auth;
use crate::hub::router::read_body;
use crate::ops::TokenAccess;
use crate::protocol::headers;
use crate::view::codes;
use adjutant_core::Principal;
use adjutant_core::token::{TokenRole, TokenVerdict};
use axum::body::HttpBody;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::Response;
use serde_json::Value;
use std::sync::Arc;

/// The standard header for the idempotency key of a call.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Makes a call of the contract.
pub(super) fn call(asked: Asked, access: TokenAccess, who: Principal) -> Answer {
    Box::pin(async move {
        let Asked {
            http,
            mut head,
            body,
            ..
        } = asked;
        let Some(call) = http.calls.find(head.uri.path()) else {
            return problem::not_found(head.uri.path());
        };
        match access.identity.may(call.effect) {
            TokenVerdict::NotFound => return problem::not_found(head.uri.path()),
            TokenVerdict::ReadOnly => return read_only("use a token of another role"),
            TokenVerdict::Yes => {}
        }
        if !head
            .headers
            .get(CONTENT_TYPE)
            .map_or_else(|| body.is_end_stream(), is_json)
        {
            return problem::refusal(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                codes::INVALID,
                "the body must be JSON",
                "send Content-Type: application/json",
            );
        }
        let Ok(body) = read_body(body).await else {
            return problem::too_large();
        };
        if access.identity.role() == TokenRole::ReadOnly
            && let Err(refusal) = check_only_reads(call.reads_with, &body)
        {
            return *refusal;
        }
        if let Some(key) = head.headers.remove(IDEMPOTENCY_KEY) {
            head.headers.insert(headers::KEY, key);
        }
        let auth = Auth { who, attempt: None };
        let done = (call.serve)(Arc::clone(&http.hub), auth, &head.headers, &body);
        problem::convert(done.await).await
    })
}

/// Refuses a call that has an effect with these arguments.
fn check_only_reads(reads_with: Option<&str>, body: &[u8]) -> Result<(), Box<Response>> {
    match (serde_json::from_slice::<Value>(body), reads_with) {
        // serde would read an array as the fields in their order.
        (Ok(given), _) if !given.is_object() => Err(Box::new(read_only("send a JSON object"))),
        (Ok(given), Some(field)) if given[field] != true => Err(Box::new(read_only(&format!(
            "send \"{field}\": true, with which the call changes nothing"
        )))),
        // The hub looks up programs in this environment and runs them to read their versions.
        (Ok(given), _) if !given["env"].is_null() => Err(Box::new(read_only("leave env out"))),
        // What is no JSON is refused as for every token.
        _ => Ok(()),
    }
}

fn read_only(hint: &str) -> Response {
    problem::refusal(
        StatusCode::FORBIDDEN,
        codes::NOT_ALLOWED,
        "this token may only read",
        hint,
    )
}
