//! Admits requests of the attempt's own processes: to this port by its name, with the attempt's
//! token.

use super::headers::CREDENTIALS;
use crate::sock::loopback::{is_equal, is_own_name};
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;

/// What the gate requires of a request.
pub(super) struct Admission {
    pub(super) token: String,
    pub(super) port: u16,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Why a request is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAdmitted {
    /// Its host or origin is not this port: a web page could have sent it.
    WrongHost,
    WrongToken,
}

impl Admission {
    /// Returns the header in which the request presents the token, to be replaced by the key.
    pub(super) fn admit(&self, request: &Parts) -> Result<&'static str, NotAdmitted> {
        let header = |name| {
            request
                .headers
                .get(name)
                .map(|value: &http::HeaderValue| value.to_str().unwrap_or_default())
        };
        let is_own_origin = |origin: &str| {
            origin
                .strip_prefix("http://")
                .is_some_and(|authority| is_own_name(authority, self.port))
        };
        if !header(HOST).is_some_and(|host| is_own_name(host, self.port))
            || header(ORIGIN).is_some_and(|origin| !is_own_origin(origin))
        {
            return Err(NotAdmitted::WrongHost);
        }
        let presents = |name: &&str| {
            request
                .headers
                .get(*name)
                .is_some_and(|value| self.is_token(strip_scheme(name, value.as_bytes())))
        };
        if let Some(name) = CREDENTIALS.into_iter().find(presents) {
            return Ok(name);
        }
        let in_query = request.uri.query().is_some_and(|query| {
            query
                .split('&')
                .filter_map(|pair| pair.strip_prefix("key="))
                .any(|key| self.is_token(key.as_bytes()))
        });
        if in_query {
            Ok("x-goog-api-key")
        } else {
            Err(NotAdmitted::WrongToken)
        }
    }

    fn is_token(&self, presented: &[u8]) -> bool {
        is_equal(presented, self.token.as_bytes())
    }
}

fn strip_scheme<'a>(name: &str, value: &'a [u8]) -> &'a [u8] {
    if name == AUTHORIZATION.as_str() {
        value
            .strip_prefix(b"Bearer ")
            .or_else(|| value.strip_prefix(b"bearer "))
            .unwrap_or_default()
    } else {
        value
    }
}
