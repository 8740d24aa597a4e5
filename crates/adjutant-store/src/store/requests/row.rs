//! Reading requests, and where they are selected from.

use crate::store::db::{self, Connection, Record};
use crate::store::records::request::{ClarifiedRow, GroupRow};
use crate::store::{Request, StoreError};
use adjutant_core::Time;
use std::sync::LazyLock;

/// The beginning of a statement that reads requests.
pub(super) const COLUMNS: &str = Request::SELECT;

/// The same for a request without a group. The queries of a group cost a server as much as the
/// rest, even if they find nothing.
static COLUMNS_ALONE: LazyLock<String> = LazyLock::new(|| {
    COLUMNS
        .replace(GroupRow::COLUMNS, "q.group_no, 1, 1")
        .replace(ClarifiedRow::COLUMNS, "q.clarification")
});

pub(super) const FROM: &str = "FROM requests q JOIN runs r ON r.id = q.run";
// Explicit indexes, because the planner does not know that open requests are few while settled ones
// may be many.
pub(super) const FROM_OPEN_OF_RUN: &str =
    "FROM requests q INDEXED BY requests_pending CROSS JOIN runs r ON r.id = q.run";
pub(super) const FROM_OPEN: &str =
    "FROM requests q INDEXED BY requests_inbox CROSS JOIN runs r ON r.id = q.run";

/// Reads requests. `rest` begins with one of these `FROM`.
pub(super) fn list(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<Request>, StoreError> {
    Ok(connection
        .prepare_cached(&Request::select(rest))?
        .read_rows(values)?)
}

/// Serializes the people to whom a request was escalated.
pub(super) fn write_escalated(people: &[(String, Time)]) -> Result<String, serde_json::Error> {
    serde_json::to_string(
        &people
            .iter()
            .map(|(name, at)| (name, at.0))
            .collect::<Vec<_>>(),
    )
}

pub(super) fn one(
    connection: &Connection,
    condition: &str,
    value: &dyn db::ToValue,
) -> Result<Option<Request>, StoreError> {
    let find = |columns: &str| -> Result<Option<Request>, StoreError> {
        Ok(connection
            .prepare_cached(&format!("{columns} {FROM} WHERE {condition}"))?
            .find_row([value])?)
    };
    match find(&COLUMNS_ALONE)? {
        Some(request) if request.group.is_some() => find(COLUMNS),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_without_a_group_is_read_without_its_queries() {
        assert!(COLUMNS.contains("(SELECT"));
        assert!(!COLUMNS_ALONE.contains("(SELECT"));
    }
}
