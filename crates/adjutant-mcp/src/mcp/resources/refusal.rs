//! Errors about resources.

use crate::mcp::text::line;
use crate::view::{ErrorView, codes};
use rmcp::ErrorData;
use serde_json::json;

/// Longest address that an error repeats.
const URI_CHARS_MAX: usize = 300;

/// Returns the error for a resource that does not exist or that the caller may not see.
pub(super) fn not_found(uri: &str) -> ErrorData {
    let uri = line(uri, URI_CHARS_MAX);
    ErrorData::resource_not_found(
        format!("there is no resource {uri}"),
        Some(json!({"uri": uri})),
    )
}

/// Converts an error of the hub.
pub(super) fn refused(uri: &str, error: &ErrorView) -> ErrorData {
    match error.code.as_str() {
        codes::NOT_FOUND | codes::INVALID | codes::NOT_ALLOWED => not_found(uri),
        _ => ErrorData::internal_error(line(&error.message, 2_000), None),
    }
}
