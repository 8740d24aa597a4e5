//! Which optional parts of a run exist in other tables.

use crate::store::StoreError;
use crate::store::db::{self, Connection};
use adjutant_core::RunId;

/// Which parts a run has. Most runs have none, so one statement checks all.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is about another table")]
pub struct RunParts {
    pub has_report: bool,
    pub has_announcements: bool,
    pub has_workspace: bool,
    pub has_ports: bool,
    pub has_children: bool,
    pub starts_after_others: bool,
    pub has_interrupted_undo: bool,
    /// Whether any run has a budget.
    pub are_there_budgets: bool,
}

/// Reads which parts a run has.
///
/// # Errors
/// A failure of the store.
pub fn run_parts(connection: &Connection, run: RunId) -> Result<RunParts, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM reports WHERE run = ?1), EXISTS (SELECT 1 FROM announcements WHERE run = ?1),
         EXISTS (SELECT 1 FROM workspaces WHERE run_id = ?1), EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND port_base IS NOT NULL),
         EXISTS (SELECT 1 FROM runs WHERE parent = ?1), EXISTS (SELECT 1 FROM run_after WHERE run = ?1),
         EXISTS (SELECT 1 FROM undos WHERE run_id = ?1 AND is_interrupted = 1), EXISTS (SELECT 1 FROM budgets)";
    let read = |row: &db::Row<'_>| {
        Ok(RunParts {
            has_report: row.get(0)?,
            has_announcements: row.get(1)?,
            has_workspace: row.get(2)?,
            has_ports: row.get(3)?,
            has_children: row.get(4)?,
            starts_after_others: row.get(5)?,
            has_interrupted_undo: row.get(6)?,
            are_there_budgets: row.get(7)?,
        })
    };
    Ok(connection
        .prepare_cached(sql)?
        .query_row([run.to_string()], read)?)
}
