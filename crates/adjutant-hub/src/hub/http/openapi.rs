//! Serves the OpenAPI description of the API.

pub(super) use crate::view::openapi::PATH;

use super::asked::Answer;
use crate::view::openapi::DESCRIPTION;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// Answers `GET /api/v1/openapi.json`.
pub(super) fn description() -> Answer {
    let response = ([(CONTENT_TYPE, "application/json")], DESCRIPTION).into_response();
    Box::pin(std::future::ready(response))
}
