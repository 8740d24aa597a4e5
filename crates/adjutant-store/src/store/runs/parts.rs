//! Which optional parts of a run exist in other tables.

use crate::store::StoreError;
use crate::store::db::{Connection, Record, row};
use adjutant_core::RunId;

row! {
    /// Which parts a run has. Most runs have none, so one statement checks all.
    #[derive(Debug, Clone, Copy)]
    pub struct RunParts {
        pub has_report: bool = "EXISTS (SELECT 1 FROM reports WHERE run = ?1)",
        pub has_announcements: bool = "EXISTS (SELECT 1 FROM announcements WHERE run = ?1)",
        pub has_workspace: bool = "EXISTS (SELECT 1 FROM workspaces WHERE run_id = ?1)",
        pub has_ports: bool = "EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND port_base IS NOT NULL)",
        pub has_children: bool = "EXISTS (SELECT 1 FROM runs WHERE parent = ?1)",
        pub starts_after_others: bool = "EXISTS (SELECT 1 FROM run_after WHERE run = ?1)",
        pub has_interrupted_undo: bool = "EXISTS (SELECT 1 FROM undos WHERE run_id = ?1 AND is_interrupted = 1)",
        /// Whether any run has a budget.
        pub are_there_budgets: bool = "EXISTS (SELECT 1 FROM budgets)",
    }
}

/// Reads which parts a run has.
///
/// # Errors
/// A failure of the store.
pub fn run_parts(connection: &Connection, run: RunId) -> Result<RunParts, StoreError> {
    Ok(connection
        .prepare_cached(RunParts::SELECT)?
        .read_row([run.to_string()])?)
}
