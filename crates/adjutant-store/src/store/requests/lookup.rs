//! Finds requests by id, number, child run or group.

use super::row::{FROM, list, one};
use crate::store::db::Connection;
use crate::store::{Request, StoreError};
use adjutant_core::{RequestId, RequestNo, RunId};

/// Reads one request by its id.
///
/// # Errors
/// A failure of the store.
pub fn request_by_id(
    connection: &Connection,
    id: RequestId,
) -> Result<Option<Request>, StoreError> {
    one(connection, "q.id = ?1", &id.to_string())
}

/// Reads the delegation that started a run.
pub(in crate::store) fn request_by_child(
    connection: &Connection,
    child: RunId,
) -> Result<Option<Request>, StoreError> {
    one(connection, "q.child = ?1", &child.to_string())
}

/// Returns whether a run has ever asked for anything.
///
/// # Errors
/// A failure of the store.
pub fn has_requests(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM requests INDEXED BY requests_run WHERE run = ?1)";
    Ok(connection
        .prepare_cached(sql)?
        .read_row([run.to_string()])?)
}

/// Reads one request by its short number.
///
/// # Errors
/// A failure of the store.
pub fn request_by_no(
    connection: &Connection,
    no: RequestNo,
) -> Result<Option<Request>, StoreError> {
    one(connection, "q.no = ?1", &no.0)
}

/// Reads all requests of a request's group, in order.
///
/// # Errors
/// A failure of the store.
pub fn requests_together(
    connection: &Connection,
    request: &Request,
) -> Result<Vec<Request>, StoreError> {
    let Some(group) = request.group else {
        return Ok(vec![request.clone()]);
    };
    list(
        connection,
        &format!("{FROM} WHERE q.group_no = ?1 ORDER BY q.no"),
        [group.first.0],
    )
}
