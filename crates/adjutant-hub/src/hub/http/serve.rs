//! Checks and answers one request.

use super::admission::{admit, authenticate, require_outside_runs};
use super::asked::Asked;
use super::limits::{HEAD_BYTES_MAX, OPEN_CALLS_MAX};
use super::names::Foreign;
use super::routes::Serve;
use super::{Http, HttpCaller, hubs, problem, routes, runners};
use crate::hub::connections::Answering;
use crate::hub::router::{BODY_BYTES_MAX, does_not_lead};
use crate::view::codes;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Request, StatusCode};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
    caller: &Arc<HttpCaller>,
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

/// Many calls wait at the same time. The other steps are boxed, so that a waiting call holds no
/// memory for them.
async fn reply(http: &Arc<Http>, caller: &Arc<HttpCaller>, head: Parts, body: Body) -> Response {
    if let Err(refusal) = check_head(http, caller, &head) {
        return *refusal;
    }
    let asked = Asked {
        http: Arc::clone(http),
        caller: Arc::clone(caller),
        head,
        body,
    };
    let route = routes::find(http, &asked.head);
    match route.map(|route| route.serve) {
        Some(Serve::Open(serve)) => return serve(&asked.head),
        Some(Serve::WithCode(serve)) => return serve(asked).await,
        Some(Serve::ToHub(serve)) => {
            return match Box::pin(hubs::authenticate(http, &asked.head)).await {
                Ok(()) => serve(asked).await,
                Err(refusal) => *refusal,
            };
        }
        // Also for an unknown path: only who has a token learns what there is.
        _ => {}
    }
    let access = match Box::pin(authenticate(http, caller, &asked.head)).await {
        Ok(access) => access,
        Err(refusal) => return *refusal,
    };
    if let Err(refusal) = Box::pin(admit(http, caller, &access)).await {
        return *refusal;
    }
    // A token of a runner or a peer is for nothing else, and no other token for this.
    let Some(route) = route.filter(|route| route.serve.is_for(&access)) else {
        return problem::not_found(asked.path());
    };
    if !route.allows(&asked.head.method) {
        return problem::method_not_allowed(route.methods);
    }
    match (route.serve, access.identity.principal()) {
        (Serve::ToPage(serve) | Serve::ToRunner(serve) | Serve::ToPeer(serve), _) => {
            serve(asked, access).await
        }
        (Serve::InSession(serve), _) => match runners::session(&asked, &access) {
            Some(session) => serve(asked, access, session).await,
            None => runners::must_join(),
        },
        (Serve::ToCaller(_), Some(_)) if has_too_large_body(&asked.head) => problem::too_large(),
        (Serve::ToCaller(serve), Some(who)) => serve(asked, access, who).await,
        (Serve::Open(_) | Serve::WithCode(_) | Serve::ToHub(_) | Serve::ToCaller(_), _) => {
            problem::not_found(asked.path())
        }
    }
}

/// Refuses a request for its connection or its head, before anything else of it is looked at.
fn check_head(http: &Http, caller: &HttpCaller, head: &Parts) -> Result<(), Box<Response>> {
    if !caller.line.has_place() {
        let message = format!(
            "{} connections over HTTP are open, as many as the hub accepts",
            http.connections.open_max()
        );
        return Err(Box::new(closing(problem::refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            codes::LIMIT,
            &message,
            "close one of them, then try again",
        ))));
    }
    if head_bytes(head) > usize::from(HEAD_BYTES_MAX) {
        let message = format!(
            "the head of the request has more than {} KB",
            HEAD_BYTES_MAX / 1024
        );
        return Err(Box::new(closing(problem::refusal(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            codes::LIMIT,
            &message,
            "send fewer or shorter headers",
        ))));
    }
    http.names
        .check(head, caller.own(), http.tls.as_deref())
        .map_err(|foreign| Box::new(refused_as_foreign(foreign)))?;
    if caller.is_shared {
        check_shared(caller, head)?;
    }
    Ok(())
}

/// Returns a response after which the connection is closed.
fn closing(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn refused_as_foreign(foreign: Foreign) -> Response {
    let (message, hint) = match foreign {
        Foreign::Host => (
            "the request is for another host",
            "use the address in adj doctor, or a name in the certificate; for a proxy before it, set public_url",
        ),
        Foreign::Origin => (
            "the request comes from another site",
            "web pages of other sites have no access",
        ),
    };
    problem::refusal(StatusCode::FORBIDDEN, codes::NOT_ALLOWED, message, hint)
}

/// Refuses what a connection that several callers of a runner share does not serve.
fn check_shared(caller: &HttpCaller, head: &Parts) -> Result<(), Box<Response>> {
    if !head.uri.path().starts_with(runners::PREFIX) {
        return Err(Box::new(problem::not_found(head.uri.path())));
    }
    if caller.line.open_calls() > OPEN_CALLS_MAX {
        let message =
            format!("this runner has {OPEN_CALLS_MAX} open calls, as many as the hub accepts");
        return Err(Box::new(problem::refusal(
            StatusCode::TOO_MANY_REQUESTS,
            codes::LIMIT,
            &message,
            "use another runner, or fewer slots",
        )));
    }
    Ok(())
}

/// Returns whether the stated length of a body is beyond the limit.
fn has_too_large_body(head: &Parts) -> bool {
    let stated = head
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    stated.is_some_and(|bytes| bytes > BODY_BYTES_MAX)
}

/// Returns the length of the head of a request, as it was sent: the buffer of the connection can
/// have room for more than the limit.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_call<'a, F: Future>(
        _: impl Fn(&'a Arc<Http>, &'a Arc<HttpCaller>, Request<Body>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn call_that_waits_takes_little_memory() {
        let bytes = size_of_call(answer_request);
        assert!(bytes <= 2048, "{bytes} bytes");
    }
}
