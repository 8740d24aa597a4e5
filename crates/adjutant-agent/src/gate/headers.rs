//! Rewrites the headers of requests and responses that the gate forwards.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, ORIGIN,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The headers that can contain a key. None of them is forwarded as the agent sent it.
pub(super) const CREDENTIALS: [&str; 4] =
    ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

/// Hop-by-hop headers, which apply to one connection only.
const OF_CONNECTION: [HeaderName; 9] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    CONTENT_LENGTH,
    EXPECT,
];
const KEEP_ALIVE: [&str; 2] = ["keep-alive", "proxy-connection"];

/// Prepares the headers of a request for the API. `presented` is the header that contained the
/// token.
pub(super) fn to_upstream(
    headers: &mut HeaderMap,
    authority: &HeaderValue,
    presented: &'static str,
    key: &Key,
) {
    remove_of_connection(headers);
    for name in CREDENTIALS {
        headers.remove(name);
    }
    for name in [ORIGIN, REFERER, COOKIE] {
        headers.remove(name);
    }
    headers.insert(HOST, authority.clone());
    // The usage in a compressed response could not be counted.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let value = if presented == AUTHORIZATION.as_str() {
        &key.bearer
    } else {
        &key.plain
    };
    headers.insert(HeaderName::from_static(presented), value.clone());
}

/// Prepares the headers of a response for the agent.
pub(super) fn to_agent(headers: &mut HeaderMap) {
    remove_of_connection(headers);
}

fn remove_of_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
    for name in KEEP_ALIVE {
        headers.remove(name);
    }
}

/// The key of the API, as header values that are never printed.
#[derive(Debug)]
pub(super) struct Key {
    plain: HeaderValue,
    bearer: HeaderValue,
}

impl Key {
    /// `None`: the text cannot be a header's value.
    pub(super) fn new(key: &str) -> Option<Self> {
        let value = |text: &str| {
            let mut value = HeaderValue::from_str(text).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        Some(Self {
            plain: value(key)?,
            bearer: value(&format!("Bearer {key}"))?,
        })
    }
}
