//! Finding requests that a receipt names.

use crate::store::{Request, StoreError, Tx, request_by_id};
use adjutant_core::{Denied, RequestId};

/// Finds a request that a receipt names. It may have been removed with its run.
pub(super) fn request_of_receipt(tx: &Tx<'_>, id: &str) -> Result<Request, StoreError> {
    let found = RequestId::parse(id)
        .ok()
        .map(|id| request_by_id(tx.connection(), id))
        .transpose()?
        .flatten();
    found.ok_or_else(|| Denied::not_found("question", id).into())
}
