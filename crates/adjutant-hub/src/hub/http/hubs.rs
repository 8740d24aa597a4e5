//! The calls that standby hubs pass to this one. They have identified their callers as this hub
//! would, and have a token that is in the store. Replies and errors have the format of the socket.

use super::asked::{Answer, Asked};
use super::{Http, problem};
use crate::hub::auth::{Auth, outside};
use crate::hub::router::{read_body, with_problem};
use crate::ops::token_hash;
use crate::protocol::{HUB_TOKEN, PASSED};
use adjutant_core::Principal;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use std::sync::Arc;

/// Checks the token of a hub.
pub(super) async fn authenticate(http: &Http, head: &Parts) -> Result<(), Box<Response>> {
    let Some(lead) = &http.hub.lead else {
        return Err(Box::new(problem::not_found(head.uri.path())));
    };
    let token = head.headers.get(HUB_TOKEN);
    match token.and_then(|token| token.to_str().ok()) {
        Some(token) if lead.is_token_of_hub(&token_hash(token)).await => Ok(()),
        _ => Err(Box::new(problem::unauthorized())),
    }
}

/// Answers a call that another hub passes on.
pub(super) fn serve(asked: Asked) -> Answer {
    Box::pin(async move {
        let path = asked.path();
        let Some(call) = path
            .strip_prefix(PASSED)
            .and_then(|path| asked.http.calls.find(path))
        else {
            return problem::not_found(path);
        };
        if asked.head.method != Method::POST {
            return problem::method_not_allowed("POST");
        }
        let who = match outside(&asked.head.headers) {
            Ok(who) => who,
            Err(refusal) => return *refusal,
        };
        let Ok(body) = read_body(asked.body).await else {
            return problem::too_large();
        };
        let is_person = who == Principal::Person;
        let hub = &asked.http.hub;
        let auth = Auth { who, attempt: None };
        let response = (call.serve)(Arc::clone(hub), auth, &asked.head.headers, &body).await;
        if is_person {
            with_problem(hub, response)
        } else {
            response
        }
    })
}
