//! Who may call: the token of a request, and the process that sends it.

use super::limits::CALLS_MAX;
use super::names::only;
use super::{Http, HttpCaller, problem};
use crate::attempt_processes::Place;
use crate::attempt_processes::tcp_caller::CallerUser;
use crate::ops::{TokenAccess, Tokens};
use crate::view::codes;
use axum::http::header::{AUTHORIZATION, CONNECTION, RETRY_AFTER};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use std::io;
use std::time::Instant;

/// Checks the token of a request.
pub(super) async fn authenticate(
    http: &Http,
    caller: &HttpCaller,
    head: &Parts,
) -> Result<TokenAccess, Box<Response>> {
    let unauthorized = || Box::new(problem::unauthorized());
    let (scheme, token) = only(&head.headers, &AUTHORIZATION)
        .and_then(|value| value.split_once(' '))
        .ok_or_else(unauthorized)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(unauthorized());
    }
    let access = check_token(http, token.trim()).await?;
    if caller.token() == Some(access.id) {
        return Ok(access);
    }
    if caller.is_shared && caller.token().is_some() {
        return Err(Box::new(problem::unauthorized()));
    }
    if !caller.set_token(&http.limits, access.id) {
        let message = format!(
            "this token has {} connections, as many as one token may have",
            http.limits.connections_max()
        );
        let mut response = problem::refusal(
            StatusCode::TOO_MANY_REQUESTS,
            codes::LIMIT,
            &message,
            "close one of them, then try again",
        );
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        return Err(Box::new(response));
    }
    // A revocation between the check and the line above has found no connection to close.
    check_token(http, token.trim()).await
}

/// Refuses processes of runs and calls beyond the rate limit.
pub(super) async fn admit(
    http: &Http,
    caller: &HttpCaller,
    access: &TokenAccess,
) -> Result<(), Box<Response>> {
    require_outside_runs(http, caller, access.is_browser).await?;
    if access.is_browser
        && access.program != caller.known_peer().and_then(|peer| peer.program.clone())
    {
        // Another program has found the token of a page.
        return Err(Box::new(problem::unauthorized()));
    }
    if http.limits.count_call(access.id, Instant::now()) {
        return Ok(());
    }
    let message = format!("more than {CALLS_MAX} calls in a second with one token");
    let mut response = problem::refusal(
        StatusCode::TOO_MANY_REQUESTS,
        codes::LIMIT,
        &message,
        "use wait or events instead of polling",
    );
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("1"));
    Err(Box::new(response))
}

/// Refuses a process of a run. A browser on this machine must also belong to this user, unless a
/// proxy is configured: a process list can show an address with a code, and another program that
/// had the port before can have received a browser's token.
pub(super) async fn require_outside_runs(
    http: &Http,
    caller: &HttpCaller,
    is_browser: bool,
) -> Result<(), Box<Response>> {
    let refused = |message: &str, hint: &str| {
        Box::new(problem::refusal(
            StatusCode::FORBIDDEN,
            codes::NOT_ALLOWED,
            message,
            hint,
        ))
    };
    let peer = caller.peer(&http.hub.ops).await;
    if is_browser
        && !http.names.has_public_url()
        && peer
            .as_ref()
            .is_ok_and(|peer| peer.user == CallerUser::Other)
    {
        return Err(refused(
            "the dashboard is open only to programs of its own user",
            "for a proxy of another user, set public_url",
        ));
    }
    match peer.map(|peer| peer.place.clone()) {
        Ok(Place::Outside) => Ok(()),
        Ok(Place::Attempt { .. } | Place::Supervisor { .. }) => {
            let hint =
                "tokens are not for runs: a run has the tools of adj mcp, and asks its parent";
            Err(refused("this process is part of a run", hint))
        }
        Err(error) => {
            tracing::debug!(%error, "cannot tell where a caller over HTTP runs");
            let hint = if error.kind() == io::ErrorKind::PermissionDenied {
                "adj help http says which tunnels and proxies are admitted"
            } else {
                "keep the connection open until the reply"
            };
            Err(refused(
                &format!("cannot tell whether the caller is part of a run: {error}"),
                hint,
            ))
        }
    }
}

async fn check_token(http: &Http, token: &str) -> Result<TokenAccess, Box<Response>> {
    let found = Tokens::of(&http.hub.ops)
        .check(token)
        .await
        .map_err(|error| Box::new(problem::of(&error.view())))?;
    found.ok_or_else(|| Box::new(problem::unauthorized()))
}
