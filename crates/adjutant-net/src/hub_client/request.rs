//! Requests of calls.

use super::VERSION;
use super::connection::Request;
use super::name::encode_name;
use super::target::Target;
use crate::protocol::headers;
use http::header::InvalidHeaderValue;
use hyper::body::Bytes;
use serde_json::Value;
use std::time::Duration;

/// Creates the request of a call, with the identity that the target requires.
pub(super) fn request(
    target: &Target,
    path: &str,
    body: Bytes,
    key: Option<&str>,
) -> Result<Request, InvalidHeaderValue> {
    let mut request = Request::post(path, body).header(headers::VERSION, VERSION)?;
    if let Some(key) = key {
        request = request.header(headers::KEY, key)?;
    }
    match target {
        Target::Hub {
            client: Some(name), ..
        } => request.header(headers::CLIENT, &encode_name(name.as_str())),
        Target::Hub { .. }
        | Target::RunningHub { .. }
        | Target::Worker { token: None, .. }
        | Target::InProcess(_) => Ok(request),
        Target::Worker {
            token: Some(token), ..
        } => request.header("authorization", &format!("Bearer {token}")),
        Target::Supervisor { attempt, token, .. } => request
            .header(headers::ATTEMPT, attempt)?
            .header("authorization", &format!("Bearer {token}")),
    }
}

/// Returns the wait that a call requests. Quotes within text values are escaped, so a match is
/// always a field.
#[must_use]
pub fn wait_of(body: &[u8]) -> Duration {
    const FIELD: &[u8] = b"\"wait_ms\":";
    let Some(at) = memchr::memmem::find(body, FIELD) else {
        return Duration::ZERO;
    };
    let digits = body[at + FIELD.len()..]
        .iter()
        .skip_while(|byte| **byte == b' ')
        .take_while(|byte| byte.is_ascii_digit());
    Duration::from_millis(digits.fold(0_u64, |ms, digit| {
        ms.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

/// Reduces the requested wait by the elapsed time. A body without a wait stays unchanged.
#[must_use]
pub fn with_shortened_wait(body: &Bytes, elapsed: Duration) -> Bytes {
    let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
        return body.clone();
    };
    let Some(wait_ms) = value.get("wait_ms").and_then(Value::as_u64) else {
        return body.clone();
    };
    let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    value["wait_ms"] = wait_ms.saturating_sub(elapsed).into();
    Bytes::from(value.to_string())
}
