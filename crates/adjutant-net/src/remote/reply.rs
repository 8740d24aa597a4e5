//! Replies of the hub, and the types of all connections.

use super::error::CallError;
use crate::protocol::{BUNDLE_LINE_BYTES_MAX, BUNDLE_TYPE, REPOSITORY_BYTES_MAX};
use crate::spool::{self, FileBody};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use std::fs::File;

/// Largest reply, in bytes.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

pub(super) type Body = FileBody;

/// A reply with any status.
#[derive(Debug, Clone)]
pub struct HubReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Reads a reply, whose body goes to the file if it is a bundle.
pub(super) async fn read_reply(
    response: Response<Incoming>,
    to: Option<&File>,
) -> Result<HubReply, CallError> {
    let (head, body) = response.into_parts();
    let is_bundle = head.status.is_success()
        && head
            .headers
            .get("content-type")
            .is_some_and(|kind| kind == BUNDLE_TYPE);
    if let Some(to) = to.filter(|_| is_bundle) {
        let bytes_max = REPOSITORY_BYTES_MAX + BUNDLE_LINE_BYTES_MAX;
        spool::receive(body, to, bytes_max)
            .await
            .map_err(CallError::Bundle)?;
        return Ok(HubReply {
            status: head.status,
            headers: head.headers,
            body: Bytes::new(),
        });
    }
    let body = Limited::new(body, REPLY_BYTES_MAX)
        .collect()
        .await
        .map_err(CallError::BodyNotRead)?
        .to_bytes();
    Ok(HubReply {
        status: head.status,
        headers: head.headers,
        body,
    })
}
