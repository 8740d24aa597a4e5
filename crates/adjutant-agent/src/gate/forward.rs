//! Forwards a request to the API and its response to the agent.

use super::admission::NotAdmitted;
use super::body::{GateBody, UpstreamBody};
use super::endpoint::{Api, Endpoint, model_in_path};
use super::exchange::Exchange;
use super::open_requests::RequestGuard;
use super::refusal::Refusal;
use super::request_body::{REFUSED_BYTES_MAX, RequestBody, RequestInfo};
use super::{Caller, GateEvent, Shared, headers, quota};
use crate::clock;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;

const BACKGROUND: &str = "the usage of a background response (\"background\": true) cannot be counted: request a streamed response, or one that is waited for";
const ENCODED: &str =
    "its body is compressed, so the gate cannot check it for \"background\": send it uncompressed";

/// Handles one request of the agent.
pub(super) async fn forward(
    shared: &Arc<Shared>,
    caller: &Caller,
    request: Request<Incoming>,
) -> Response<GateBody> {
    let api = Api::of(request.uri().path());
    let (mut parts, mut body) = request.into_parts();
    let presented = match shared.admission.admit(&parts) {
        Ok(presented) => presented,
        Err(NotAdmitted::WrongHost) => return Refusal::WrongHost.response(api),
        Err(NotAdmitted::WrongToken) => return Refusal::WrongToken.response(api),
    };
    caller.is_admitted.store(true, Ordering::Relaxed);
    let is_responses = parts.uri.path().ends_with("/responses");
    let allowed = match Endpoint::of(&parts.method, parts.uri.path()) {
        Some(Endpoint::Generation) if is_responses && is_encoded(&parts.headers) => {
            Err(Refusal::Denied(ENCODED.to_owned()))
        }
        Some(Endpoint::Generation) => begin(shared, body.size_hint().exact())
            .await
            .map(Some)
            .map_err(Refusal::Denied),
        Some(Endpoint::Information) => Ok(None),
        None => Err(Refusal::UnsupportedEndpoint),
    };
    let open = match allowed {
        Ok(open) => open,
        Err(refusal) => {
            discard(&mut body).await;
            return refusal.response(api);
        }
    };
    let asked = Arc::new(RequestInfo::new(
        model_in_path(parts.uri.path()).map(str::to_owned),
        is_responses,
    ));
    parts.uri = match shared.upstream.path(&parts.uri) {
        Ok(uri) => uri,
        Err(error) => {
            return Refusal::Upstream(format!("the path of the request cannot be used: {error}"))
                .response(api);
        }
    };
    parts.version = http::Version::HTTP_11;
    headers::to_upstream(
        &mut parts.headers,
        &shared.upstream.authority,
        presented,
        &shared.upstream.key,
    );
    let counts = open.is_some();
    let mut exchange = Exchange::new(Arc::clone(&shared.tally), Arc::clone(&asked), open);
    let request = Request::from_parts(parts, RequestBody::new(body, Arc::clone(&asked)));
    let (response, link) = match shared
        .upstream
        .send(request, || {
            if counts {
                exchange.note_sent()
            }
        })
        .await
    {
        Ok(answered) => answered,
        Err(_) if asked.is_refused() => {
            exchange.note_refused();
            return Refusal::Denied(BACKGROUND.to_owned()).response(api);
        }
        Err(why) => return Refusal::Upstream(why).response(api),
    };
    // Responses of other endpoints contain no limits of the model.
    if counts {
        let (now, headers) = (clock::now(), response.headers());
        let windows = quota::windows(headers, now);
        let limit =
            quota::closed_until(response.status(), headers, now).map(GateEvent::LimitReported);
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
    if counts {
        exchange.note_answer(response.status().is_success());
        shared
            .answers
            .fetch_add(u64::from(response.status().is_success()), Ordering::Relaxed);
    }
    if response.status().is_redirection() && response.status() != StatusCode::NOT_MODIFIED {
        return Refusal::Upstream(format!(
            "the API answered with a redirect ({}), which is not followed",
            response.status()
        ))
        .response(api);
    }
    let (mut parts, body) = response.into_parts();
    headers::to_agent(&mut parts.headers);
    let body = UpstreamBody::new(body, link, Arc::clone(&shared.upstream), exchange);
    Response::from_parts(parts, GateBody::Upstream(Box::new(body)))
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Asks the hub to admit a request that costs something, and to reserve what it may use.
async fn begin(shared: &Shared, body_bytes: Option<u64>) -> Result<RequestGuard, String> {
    let open = shared.requests.add(&shared.tally, body_bytes);
    let (reply, decision) = oneshot::channel();
    let is_over = || "the run is ending".to_owned();
    shared
        .events
        .send(GateEvent::RequestBegins { no: open.no, reply })
        .await
        .map_err(|_| is_over())?;
    decision.await.map_err(|_| is_over())??;
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
