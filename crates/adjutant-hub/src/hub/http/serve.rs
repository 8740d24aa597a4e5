//! Checks and answers one request.

use super::limits::{CALLS_MAX, HEAD_BYTES_MAX, OPEN_CALLS_MAX};
use super::names::{Foreign, is_json, only};
use super::{Caller, Http, answer, dashboard, events, hubs, mcp, openapi, peers, problem, runners};
use crate::hub::auth::Auth;
use crate::hub::calls::Serve;
use crate::hub::connections::Answering;
use crate::hub::router::{BODY_BYTES_MAX, does_not_lead, read_body};
use crate::link::headers;
use crate::ops::{LINK_PATH, TokenAccess};
use crate::process::peer::Place;
use crate::process::tcp_peer::PeerUser;
use crate::view::{Call, DiffRun, ShowChat, codes};
use adjutant_core::Principal;
use adjutant_core::token::{TokenRole, TokenVerdict};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName,
    RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use serde_json::Value;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The standard header for the idempotency key of a call.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The path of the event stream; `POST` is the call of that name.
const EVENTS: &str = "/api/v1/events";
const MCP: &str = "/mcp";
/// The paths at which clients look for OAuth metadata. They get 404, because a 401 would make them repeat the search.
const WELL_KNOWN: &str = "/.well-known/";

/// The body of a reply. The connection counts as busy until it is sent.
pub(super) struct ReplyBody {
    body: Body,
    _answering: Answering,
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Answers one request.
pub(super) async fn answer_request(
    http: &Arc<Http>,
    caller: &Arc<Caller>,
    request: Request<Body>,
) -> Response<ReplyBody> {
    let answering = caller.line.call();
    let (head, body) = request.into_parts();
    let mut response = reply(http, caller, head, body).await;
    // The connection may be in other hands than at the start of the call.
    if caller.known_peer().is_some()
        && let Err(refusal) = Box::pin(require_outside_runs(http, caller, false)).await
    {
        response = *refusal;
    }
    if !http.hub.leads().await {
        response = problem::of(&does_not_lead());
    }
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response.map(|body| ReplyBody {
        body,
        _answering: answering,
    })
}

/// Many calls wait at the same time. The other steps are boxed, so that a waiting call holds no memory for them.
async fn reply(http: &Arc<Http>, caller: &Caller, head: Parts, body: Body) -> Response {
    if !caller.line.has_place() {
        let message = format!(
            "{} connections over HTTP are open, as many as the hub accepts",
            http.connections.open_max()
        );
        let mut response = problem::refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            codes::LIMIT,
            &message,
            "close one of them, then try again",
        );
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    if head_bytes(&head) > usize::from(HEAD_BYTES_MAX) {
        let message = format!(
            "the head of the request has more than {} KB",
            HEAD_BYTES_MAX / 1024
        );
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        let mut response = problem::refusal(
            status,
            codes::LIMIT,
            &message,
            "send fewer or shorter headers",
        );
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    match http.names.check(&head, caller.own(), http.tls.as_deref()) {
        Ok(()) => {}
        Err(Foreign::Host) => {
            let hint = "use the address in adj doctor, or a name in the certificate; for a proxy before it, set public_url";
            return problem::refusal(
                StatusCode::FORBIDDEN,
                codes::NOT_ALLOWED,
                "the request is for another host",
                hint,
            );
        }
        Err(Foreign::Origin) => {
            let hint = "web pages of other sites have no access";
            return problem::refusal(
                StatusCode::FORBIDDEN,
                codes::NOT_ALLOWED,
                "the request comes from another site",
                hint,
            );
        }
    }
    if caller.is_shared {
        if !head.uri.path().starts_with(runners::PREFIX) {
            return problem::not_found(head.uri.path());
        }
        if caller.line.open_calls() > OPEN_CALLS_MAX {
            let message =
                format!("this runner has {OPEN_CALLS_MAX} open calls, as many as the hub accepts");
            return problem::refusal(
                StatusCode::TOO_MANY_REQUESTS,
                codes::LIMIT,
                &message,
                "use another runner, or fewer slots",
            );
        }
    }
    if head.uri.path().starts_with(WELL_KNOWN) {
        return problem::not_found(head.uri.path());
    }
    if let Some(reply) = dashboard::answer(&head) {
        return reply;
    }
    if head.uri.path() == dashboard::SIGN_IN && head.method == Method::POST {
        return Box::pin(sign_in(http, caller, &head, body))
            .await
            .unwrap_or_else(|refusal| *refusal);
    }
    if http.names.has_public_url() && head.uri.path().starts_with(LINK_PATH) {
        return Box::pin(follow_link(http, caller, &head, body))
            .await
            .unwrap_or_else(|refusal| *refusal);
    }
    if head.uri.path().starts_with(hubs::PREFIX) {
        return Box::pin(hubs::serve(http, &head, body)).await;
    }
    let access = match Box::pin(authenticate(http, caller, &head)).await {
        Ok(access) => access,
        Err(refusal) => return *refusal,
    };
    if let Err(refusal) = Box::pin(admit(http, caller, &access)).await {
        return *refusal;
    }
    if let Some(reply) = Box::pin(dashboard::answer_page(&http.hub, &access, &head)).await {
        return reply;
    }
    match (
        access.identity.role(),
        head.uri.path().starts_with(runners::PREFIX),
    ) {
        (TokenRole::Runner, true) => {
            return Box::pin(runners::serve(http, access, head, body)).await;
        }
        // A token of a runner is for nothing else, and no other token for this.
        (TokenRole::Runner, false) | (_, true) => return problem::not_found(head.uri.path()),
        (_, false) => {}
    }
    let Some(who) = access.identity.principal() else {
        return Box::pin(peers::answer(http, &access, &head, body)).await;
    };
    if head.uri.path() == EVENTS && head.method == Method::GET {
        return Box::pin(events::stream(http, who, &head)).await;
    }
    if head.uri.path() == openapi::PATH {
        return if head.method == Method::GET {
            openapi::description()
        } else {
            problem::method_not_allowed("GET", "the description is read with GET")
        };
    }
    let stated = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if stated.is_some_and(|bytes| bytes > BODY_BYTES_MAX) {
        return problem::too_large();
    }
    if head.uri.path() == MCP {
        return Box::pin(mcp::handle(
            http,
            caller,
            &access,
            Request::from_parts(head, body),
        ))
        .await;
    }
    let Some((effect, serve)) = http.calls.with_effect(head.uri.path()) else {
        return problem::not_found(head.uri.path());
    };
    match access.identity.may(*effect) {
        TokenVerdict::NotFound => return problem::not_found(head.uri.path()),
        TokenVerdict::ReadOnly => return read_only("use a token of another role"),
        TokenVerdict::Yes => {}
    }
    if head.method != Method::POST {
        let allowed = if head.uri.path() == EVENTS {
            "GET, POST"
        } else {
            "POST"
        };
        return problem::method_not_allowed(allowed, "calls are made with POST");
    }
    Box::pin(call(http, &access, who, serve, head, body)).await
}

/// Returns the length of the head of a request, as it was sent: the buffer of the connection can have room for more than the limit.
fn head_bytes(head: &Parts) -> usize {
    // "POST ", " HTTP/1.1\r\n" and ": " and "\r\n" of each header.
    let first = head.method.as_str().len() + head.uri.to_string().len() + 12;
    first
        + head
            .headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + 4)
            .sum::<usize>()
}

fn read_only(hint: &str) -> Response {
    problem::refusal(
        StatusCode::FORBIDDEN,
        codes::NOT_ALLOWED,
        "this token may only read",
        hint,
    )
}

/// Checks the token of a request.
async fn authenticate(
    http: &Http,
    caller: &Caller,
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

/// Signs a browser in. A caller without a valid code costs little: a short body, and no lookup of its process.
async fn sign_in(
    http: &Http,
    caller: &Caller,
    head: &Parts,
    body: Body,
) -> Result<Response, Box<Response>> {
    let sign_in = dashboard::read_sign_in(&http.hub, head, body).await?;
    require_outside_runs(http, caller, true).await?;
    let program = caller.known_peer().and_then(|peer| peer.program.clone());
    Ok(dashboard::sign_in(&http.hub, sign_in, program).await)
}

/// Serves the page behind a link. As at a sign-in, callers without a valid code cost little.
async fn follow_link(
    http: &Http,
    caller: &Caller,
    head: &Parts,
    body: Body,
) -> Result<Response, Box<Response>> {
    let link = answer::read_link(&http.hub, &http.links, head)?;
    require_outside_runs(http, caller, false).await?;
    Ok(answer::serve_link(&http.hub, &http.links, &link, head, body).await)
}

/// Refuses processes of runs and calls beyond the rate limit.
async fn admit(http: &Http, caller: &Caller, access: &TokenAccess) -> Result<(), Box<Response>> {
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

/// Refuses a process of a run. A browser on this machine must also belong to this user, unless a proxy is configured: a process list can
/// show an address with a code, and another program that had the port before can have received a browser's token.
async fn require_outside_runs(
    http: &Http,
    caller: &Caller,
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
        && peer.as_ref().is_ok_and(|peer| peer.user == PeerUser::Other)
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
    let found = http
        .hub
        .ops
        .check_token(token)
        .await
        .map_err(|error| Box::new(problem::of(&error.view())))?;
    found.ok_or_else(|| Box::new(problem::unauthorized()))
}

async fn call(
    http: &Http,
    access: &TokenAccess,
    who: Principal,
    serve: &Serve,
    mut head: Parts,
    body: Body,
) -> Response {
    if !head
        .headers
        .get(CONTENT_TYPE)
        .map_or_else(|| body.is_end_stream(), is_json)
    {
        let hint = "send Content-Type: application/json";
        return problem::refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            codes::INVALID,
            "the body must be JSON",
            hint,
        );
    }
    let Ok(body) = read_body(body).await else {
        return problem::too_large();
    };
    if access.identity.role() == TokenRole::ReadOnly {
        let is_of = |name: &str| head.uri.path().strip_prefix("/api/v1/") == Some(name);
        match serde_json::from_slice::<Value>(&body) {
            // serde would read an array as the fields in their order.
            Ok(given) if !given.is_object() => return read_only("send a JSON object"),
            Ok(given) if is_of(ShowChat::NAME) && given["peek"] != true => {
                return read_only("send \"peek\": true, which leaves the read position as it is");
            }
            Ok(given) if is_of(DiffRun::NAME) && given["kept"] != true => {
                return read_only("send \"kept\": true, which takes no snapshot");
            }
            // The hub looks up programs in this environment and runs them to read their versions.
            Ok(given) if !given["env"].is_null() => return read_only("leave env out"),
            _ => {}
        }
    }
    if let Some(key) = head.headers.remove(IDEMPOTENCY_KEY) {
        head.headers.insert(headers::KEY, key);
    }
    let auth = Auth { who, attempt: None };
    problem::convert(serve(Arc::clone(&http.hub), auth, &head.headers, &body).await).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_call<'a, F: Future>(
        _: impl Fn(&'a Arc<Http>, &'a Arc<Caller>, Request<Body>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn call_that_waits_takes_little_memory() {
        let bytes = size_of_call(answer_request);
        assert!(bytes <= 2048, "{bytes} bytes");
    }
}
