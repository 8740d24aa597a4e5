//! A request, as the functions of routes get it.

use super::{Http, HttpCaller};
use axum::body::Body;
use axum::http::request::Parts;
use axum::response::Response;
use futures::future::BoxFuture;
use std::sync::Arc;

/// A request for the function of its route.
pub(super) struct Asked {
    pub http: Arc<Http>,
    pub caller: Arc<HttpCaller>,
    pub head: Parts,
    pub body: Body,
}

impl Asked {
    /// Returns the path of the request.
    pub(super) fn path(&self) -> &str {
        self.head.uri.path()
    }

    /// Returns the value of a header. `None`: it is absent, or not visible ASCII.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }
}

/// The response of a route. It is boxed, so that a waiting call holds no memory for other routes.
pub(super) type Answer = BoxFuture<'static, Response>;
