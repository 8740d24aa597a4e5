//! The trees of runs that start runs.

use super::lookup::run_by_id;
use crate::store::db::Connection;
use crate::store::records::run::Run;
use crate::store::{StoreError, Topic, Tx};
use adjutant_core::RunId;
use adjutant_core::tree::TreeSize;

/// Measures the tree around a run.
///
/// # Errors
/// A failure of the store.
pub fn tree_size(connection: &Connection, run: &Run) -> Result<TreeSize, StoreError> {
    let count = |sql: &str, id: RunId| -> Result<u64, StoreError> {
        let count: i64 = connection.prepare_cached(sql)?.read_row([id.to_string()])?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    let mut depth = 1;
    let mut above = run.parent;
    while let Some(parent) = above {
        depth += 1;
        above = run_by_id(connection, parent)?.and_then(|run| run.parent);
    }
    Ok(TreeSize {
        depth,
        children: count("SELECT count(*) FROM runs WHERE parent = ?1", run.id)?,
        live: count(
            "SELECT count(*) FROM runs WHERE root = ?1 AND state IN ('queued', 'starting', 'running', 'stopping')",
            run.root,
        )?,
        total: count("SELECT count(*) FROM runs WHERE root = ?1", run.root)?,
    })
}

/// Reads the ids of a run's children, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn children_of(connection: &Connection, run: RunId) -> Result<Vec<RunId>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT id FROM runs WHERE parent = ?1 ORDER BY no LIMIT 1000")?
        .read_rows([run.to_string()])?)
}

/// Reads the ids of runs that answer in the chats of a root and that no run of its tree asked.
pub(in crate::store) fn unrequested_answering_runs(
    connection: &Connection,
    root: RunId,
) -> Result<Vec<RunId>, StoreError> {
    let sql = "SELECT r.id FROM runs r JOIN chat_turns t ON t.run = r.id AND t.state = 'running'
         WHERE r.root = ?1 AND r.id <> ?1 AND r.parent IS NULL";
    Ok(connection
        .prepare_cached(sql)?
        .read_rows([root.to_string()])?)
}

/// Wakes the waiters of the runs above this one.
pub(in crate::store) fn notify_ancestors(tx: &mut Tx<'_>, run: &Run) -> Result<(), StoreError> {
    let mut above = run.parent;
    while let Some(parent) = above {
        tx.notify(Topic::Run(parent));
        above = run_by_id(tx.connection(), parent)?.and_then(|run| run.parent);
    }
    Ok(())
}
