//! The dashboard: static files, which contain no data and need no token, and the sign-in of a
//! browser.
//!
//! `adj ui` opens the page with a code in the fragment of its URL, which browsers do not send. The
//! page exchanges the code once for a token that expires. So a URL in a history, a process list or
//! a terminal is useless later.
//!
//! Everything that a page can keep over a reload is on disk in the browser's profile. So the page
//! keeps its token in memory only, and a second secret for a reload. Both count only from the
//! browser's process, if it can be seen.

mod files;

use super::admission::require_outside_runs;
use super::asked::{Answer, Asked};
use super::names::is_json;
use super::problem;
use crate::hub::Hub;
use crate::ops::{SignedIn, TokenAccess, Tokens, fresh_token, token_hash};
use crate::view::codes;
use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH,
    REFERRER_POLICY, RETRY_AFTER,
};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use files::find;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long a code is valid, and one for another tab.
const CODE_VALID: Duration = Duration::from_secs(10 * 60);
const TAB_CODE_VALID: Duration = Duration::from_secs(30);
/// Maximum number of pending codes. A new code replaces the oldest.
const CODES_MAX: usize = 16;

const POLICY: &str = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; object-src 'none'";

/// Maximum number of concurrent sign-ins, maximum size of a body in bytes, and the timeout for
/// reading it.
const READING_MAX: usize = 16;
const SIGN_IN_BYTES_MAX: usize = 1024;
const SIGN_IN_TIME_MAX: Duration = Duration::from_secs(5);

/// The pending sign-ins.
#[derive(Debug)]
pub(in crate::hub) struct SignIns {
    /// The hashes of unused codes. Codes of an earlier hub process are invalid.
    codes: Mutex<VecDeque<(String, Instant)>>,
    reading: Semaphore,
}

impl Default for SignIns {
    fn default() -> Self {
        Self {
            codes: Mutex::default(),
            reading: Semaphore::new(READING_MAX),
        }
    }
}

impl SignIns {
    /// Permits one sign-in with the code of this hash. Returns the number of seconds for which the
    /// code is valid.
    pub(in crate::hub) fn permit(&self, sha256: &str) -> u64 {
        self.permit_for(sha256, CODE_VALID);
        CODE_VALID.as_secs()
    }

    fn permit_for(&self, sha256: &str, valid: Duration) {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        if codes.len() >= CODES_MAX {
            codes.pop_front();
        }
        codes.push_back((sha256.to_owned(), Instant::now() + valid));
    }

    /// Returns whether a code is valid. The code stays valid.
    fn is_pending(&self, code: &str) -> bool {
        let (hash, now) = (token_hash(code), Instant::now());
        self.codes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .any(|(other, end)| *other == hash && *end > now)
    }

    /// Consumes a code. Returns whether it was valid.
    fn take(&self, code: &str) -> bool {
        let (hash, now) = (token_hash(code), Instant::now());
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|(_, end)| *end > now);
        let before = codes.len();
        codes.retain(|(other, _)| *other != hash);
        codes.len() < before
    }
}

/// Returns whether a path is that of a file of the dashboard.
pub(super) fn has_file(path: &str) -> bool {
    find(path).is_some()
}

/// Answers a request for OAuth metadata, which there is none of.
pub(super) fn no_metadata(head: &Parts) -> Response {
    problem::not_found(head.uri.path())
}

/// Answers a request for a file of the dashboard.
pub(super) fn file(head: &Parts) -> Response {
    let Some(file) = find(head.uri.path()) else {
        return problem::not_found(head.uri.path());
    };
    let etag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(Sha256::digest(file.text)));
    let is_known = head
        .headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains(&etag)));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Body::from(file.text).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    );
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    );
    // The browser revalidates its cached copy.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        ETAG,
        HeaderValue::from_str(&etag).expect("a hash is a header"),
    );
    response
}

/// How a page signs in.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SignIn {
    /// With the code of `adj ui`, or of another tab.
    Code(String),
    /// As the page that it was before it was reloaded.
    Resume(String),
}

/// Reads how a page signs in, and checks whether that is possible.
async fn read_sign_in(hub: &Hub, head: &Parts, body: Body) -> Result<SignIn, Box<Response>> {
    let refused = |status, message: &str, hint: &str| {
        Box::new(problem::refusal(status, codes::INVALID, message, hint))
    };
    if !head.headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return Err(refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be JSON",
            "send Content-Type: application/json",
        ));
    }
    let Ok(_turn) = hub.sign_ins.reading.try_acquire() else {
        let mut response = problem::refusal(
            StatusCode::TOO_MANY_REQUESTS,
            codes::LIMIT,
            "too many browsers sign in at once",
            "try again",
        );
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return Err(Box::new(response));
    };
    let body = tokio::time::timeout(
        SIGN_IN_TIME_MAX,
        axum::body::to_bytes(body, SIGN_IN_BYTES_MAX),
    )
    .await;
    let Ok(Ok(body)) = body else {
        return Err(Box::new(problem::too_large()));
    };
    let Ok(sign_in) = serde_json::from_slice(&body) else {
        let problem = "the body must be {\"code\": …} or {\"resume\": …}";
        return Err(refused(
            StatusCode::UNPROCESSABLE_ENTITY,
            problem,
            "adj ui opens the dashboard",
        ));
    };
    match &sign_in {
        SignIn::Code(code) if !hub.sign_ins.is_pending(code) => Err(Box::new(unknown_code())),
        SignIn::Resume(code) => match Tokens::of(&hub.ops).is_page_known(code) {
            Ok(true) => Ok(sign_in),
            Ok(false) => Err(Box::new(unknown_page())),
            Err(error) => Err(Box::new(problem::of(&error.view()))),
        },
        SignIn::Code(_) => Ok(sign_in),
    }
}

fn unknown_page() -> Response {
    let hint = "run adj ui again";
    problem::refusal(
        StatusCode::FORBIDDEN,
        codes::NOT_ALLOWED,
        "this page is not signed in any more, or in another program",
        hint,
    )
}

fn unknown_code() -> Response {
    let hint = "run adj ui again: each address opens the dashboard once, for ten minutes";
    problem::refusal(
        StatusCode::FORBIDDEN,
        codes::NOT_ALLOWED,
        "this address was used before, or has expired",
        hint,
    )
}

/// Signs a browser in. A caller without a valid code costs little: a short body, and no lookup of
/// its process.
pub(super) fn sign_in(asked: Asked) -> Answer {
    Box::pin(async move {
        let Asked {
            http,
            caller,
            head,
            body,
        } = asked;
        let sign_in = match read_sign_in(&http.hub, &head, body).await {
            Ok(sign_in) => sign_in,
            Err(refusal) => return *refusal,
        };
        if let Err(refusal) = require_outside_runs(&http, &caller, true).await {
            return *refusal;
        }
        let program = caller.known_peer().and_then(|peer| peer.program.clone());
        let hub = &http.hub;
        let signed_in = match sign_in {
            SignIn::Code(code) if !hub.sign_ins.take(&code) => return unknown_code(),
            SignIn::Code(_) => Tokens::of(&hub.ops).sign_page_in(program).await.map(Some),
            SignIn::Resume(code) => Tokens::of(&hub.ops).resume_page(&code, program).await,
        };
        match signed_in {
            Ok(Some(SignedIn {
                token,
                resume,
                view,
            })) => axum::Json(json!({
                "token": token,
                "resume": resume,
                "name": view.name,
                "expires_at": view.expires_at,
            }))
            .into_response(),
            Ok(None) => unknown_page(),
            Err(error) => problem::of(&error.view()),
        }
    })
}

/// Gives a page that has signed in a code for another tab.
pub(super) fn permit_tab(asked: Asked, _: TokenAccess) -> Answer {
    let code = fresh_token();
    let sign_ins = &asked.http.hub.sign_ins;
    sign_ins.permit_for(&token_hash(&code), TAB_CODE_VALID);
    let response = axum::Json(json!({"code": code})).into_response();
    Box::pin(std::future::ready(response))
}

/// Ends the sign-in of a page, which is being left.
pub(super) fn sign_out(asked: Asked, access: TokenAccess) -> Answer {
    Box::pin(async move {
        match Tokens::of(&asked.http.hub.ops).leave_page(access.id).await {
            Ok(()) => StatusCode::NO_CONTENT.into_response(),
            Err(error) => problem::of(&error.view()),
        }
    })
}
