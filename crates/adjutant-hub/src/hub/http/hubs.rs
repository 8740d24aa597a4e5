//! The calls that standby hubs pass to this one. They have identified their callers as this hub would, and have a token that
//! is in the store. Replies and errors have the format of the socket.

use super::{Http, problem};
use crate::hub::auth::{Auth, outside};
use crate::hub::router::{read_body, with_problem};
use crate::link::{HUB_TOKEN, PASSED};
use crate::ops::token_hash;
use adjutant_core::Principal;
use axum::body::Body;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use std::sync::Arc;

/// The prefix of the paths of hubs.
pub(super) const PREFIX: &str = "/hub/";

/// Answers a call that another hub passes on.
pub(super) async fn serve(http: &Http, head: &Parts, body: Body) -> Response {
    let path = head.uri.path();
    let Some(lead) = &http.hub.lead else {
        return problem::not_found(path);
    };
    let token = head
        .headers
        .get(HUB_TOKEN)
        .and_then(|value| value.to_str().ok());
    let Some(token) = token else {
        return problem::unauthorized();
    };
    if !lead.is_token_of_hub(&token_hash(token)).await {
        return problem::unauthorized();
    }
    let call = path
        .strip_prefix(PASSED)
        .and_then(|path| http.calls.get(path));
    let Some(serve) = call else {
        return problem::not_found(path);
    };
    if head.method != Method::POST {
        return problem::method_not_allowed("POST", "calls are made with POST");
    }
    let who = match outside(&head.headers) {
        Ok(who) => who,
        Err(refusal) => return *refusal,
    };
    let Ok(body) = read_body(body).await else {
        return problem::too_large();
    };
    let is_person = who == Principal::Person;
    let response = serve(
        Arc::clone(&http.hub),
        Auth { who, attempt: None },
        &head.headers,
        &body,
    )
    .await;
    if is_person {
        with_problem(&http.hub, response)
    } else {
        response
    }
}
