//! Ids as stored in rows.

use super::StoreError;
use adjutant_core::{RequestId, RunId};

/// Parses the id of a run.
pub(super) fn run_id(text: &str) -> Result<RunId, StoreError> {
    RunId::parse(text).map_err(|_| StoreError::Corrupt(format!("run {text}")))
}

/// Parses the id of a request.
pub(super) fn request_id(text: &str) -> Result<RequestId, StoreError> {
    RequestId::parse(text).map_err(|_| StoreError::Corrupt(format!("request {text}")))
}
