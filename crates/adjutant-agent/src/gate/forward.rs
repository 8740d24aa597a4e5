//! Forwards a request to the API and its response to the agent.

use super::body::{GateBody, UpstreamBody};
use super::endpoint::{Api, Endpoint, model_in_path};
use super::exchange::Exchange;
use super::open_requests::RequestGuard;
use super::refusal::{Denial, GateRefusal};
use super::request_body::{REFUSED_BYTES_MAX, RequestBody, RequestInfo};
use super::{GateCaller, GateEvent, Shared, headers, quota};
use crate::clock;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

/// Handles one request of the agent.
pub(super) async fn forward(
    shared: &Arc<Shared>,
    caller: &GateCaller,
    request: Request<Incoming>,
) -> Response<GateBody> {
    let api = Api::of(request.uri().path());
    try_forward(shared, caller, request)
        .await
        .unwrap_or_else(|refusal| refusal.response(api))
}

/// Admits a request, sends it to the API, counts it, and returns the response.
async fn try_forward(
    shared: &Arc<Shared>,
    caller: &GateCaller,
    request: Request<Incoming>,
) -> Result<Response<GateBody>, GateRefusal> {
    let (parts, mut body) = request.into_parts();
    let presented = shared.admission.admit(&parts)?;
    caller.is_admitted.store(true, Ordering::Relaxed);
    let open = match allow(shared, &parts, body.size_hint().exact()).await {
        Ok(open) => open,
        Err(refusal) => {
            // Most clients read the response only after they have sent all of the request. They
            // would see a broken connection instead of the refusal.
            discard(&mut body).await;
            return Err(refusal);
        }
    };
    let asked = Arc::new(RequestInfo::new(
        model_in_path(parts.uri.path()).map(str::to_owned),
        is_responses(&parts),
    ));
    let parts = to_upstream(shared, parts, presented)?;
    let counts = open.is_some();
    let mut exchange = Exchange::new(Arc::clone(&shared.tally), Arc::clone(&asked), open);
    let request = Request::from_parts(parts, RequestBody::new(body, Arc::clone(&asked)));
    let sent = shared
        .upstream
        // From the first byte on, the API may charge the request, whatever the agent receives.
        .send(request, || {
            if counts {
                exchange.note_sent()
            }
        })
        .await;
    let (response, link) = match sent {
        Ok(answered) => answered,
        Err(_) if asked.is_refused() => {
            exchange.note_refused();
            return Err(GateRefusal::Denied(Denial::Background));
        }
        Err(error) => return Err(GateRefusal::Upstream(error.to_string())),
    };
    if counts {
        let has_answered = response.status().is_success();
        report_limits(shared, &response);
        exchange.note_answer(has_answered);
        shared
            .answers
            .fetch_add(u64::from(has_answered), Ordering::Relaxed);
    }
    check_redirect(response.status())?;
    let (mut parts, body) = response.into_parts();
    headers::to_agent(&mut parts.headers);
    let body = UpstreamBody::new(body, link, Arc::clone(&shared.upstream), exchange);
    Ok(Response::from_parts(
        parts,
        GateBody::Upstream(Box::new(body)),
    ))
}

/// Returns whether a request is for OpenAI's responses, which may be in the background.
fn is_responses(request: &Parts) -> bool {
    request.uri.path().ends_with("/responses")
}

/// Asks the hub to admit a request that costs something. `None`: it costs nothing.
async fn allow(
    shared: &Shared,
    request: &Parts,
    body_bytes: Option<u64>,
) -> Result<Option<RequestGuard>, GateRefusal> {
    match Endpoint::of(&request.method, request.uri.path()) {
        Some(Endpoint::Generation) if is_responses(request) && is_encoded(&request.headers) => {
            Err(GateRefusal::Denied(Denial::Encoded))
        }
        Some(Endpoint::Generation) => begin(shared, body_bytes)
            .await
            .map(Some)
            .map_err(GateRefusal::Denied),
        Some(Endpoint::Information) => Ok(None),
        None => Err(GateRefusal::UnsupportedEndpoint),
    }
}

/// Changes the head of a request to that for the API, with its key.
fn to_upstream(
    shared: &Shared,
    mut parts: Parts,
    presented: &'static str,
) -> Result<Parts, GateRefusal> {
    parts.uri = shared.upstream.path(&parts.uri).map_err(|error| {
        GateRefusal::Upstream(format!("the path of the request cannot be used: {error}"))
    })?;
    parts.version = http::Version::HTTP_11;
    headers::to_upstream(
        &mut parts.headers,
        &shared.upstream.authority,
        presented,
        &shared.upstream.key,
    );
    Ok(parts)
}

/// Reports what a response says about the vendor's quota. Responses of endpoints that cost nothing
/// contain no limits of the model.
fn report_limits(shared: &Shared, response: &Response<Incoming>) {
    let (now, headers) = (clock::now(), response.headers());
    let windows = quota::windows(headers, now);
    let limit = quota::closed_until(response.status(), headers, now).map(GateEvent::LimitReported);
    for event in (!windows.is_empty())
        .then_some(GateEvent::WindowsReported(windows))
        .into_iter()
        .chain(limit)
    {
        // The next response contains it again.
        if let Err(error) = shared.events.try_send(event) {
            tracing::debug!(%error, "a reported limit is not passed on");
        }
    }
}

/// Refuses to follow a redirect, which may lead to another host.
fn check_redirect(status: StatusCode) -> Result<(), GateRefusal> {
    if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
        return Err(GateRefusal::Upstream(format!(
            "the API answered with a redirect ({status}), which is not followed"
        )));
    }
    Ok(())
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Asks the hub to admit a request that costs something, and to reserve what it may use.
async fn begin(shared: &Shared, body_bytes: Option<u64>) -> Result<RequestGuard, Denial> {
    let open = shared.requests.add(&shared.tally, body_bytes);
    let (reply, decision) = oneshot::channel();
    shared
        .events
        .send(GateEvent::RequestBegins { no: open.no, reply })
        .await
        .map_err(|_| Denial::RunEnds)?;
    decision.await.map_err(|_| Denial::RunEnds)??;
    open.note_begun();
    Ok(open)
}

/// Reads and drops the rest of a refused request.
async fn discard(body: &mut Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, |bytes| bytes.len());
        if read > REFUSED_BYTES_MAX {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_is_refused_and_other_answers_pass() {
        for status in [200, 304, 404, 429, 500] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(check_redirect(status), Ok(()), "{status}");
        }
        for status in [301, 302, 307] {
            let status = StatusCode::from_u16(status).expect("a status");
            let Err(GateRefusal::Upstream(why)) = check_redirect(status) else {
                panic!("{status} passes")
            };
            assert!(why.contains(status.as_str()), "{why}");
        }
    }
}
