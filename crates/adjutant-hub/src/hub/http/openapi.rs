//! Serves the OpenAPI description of the API.

pub(super) use crate::view::openapi::PATH;

use crate::view::openapi::DESCRIPTION;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// Answers `GET /api/v1/openapi.json`.
pub(super) fn description() -> Response {
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION).into_response()
}
