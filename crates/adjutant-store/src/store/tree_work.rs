//! The due tasks about the trees of runs: snapshots and comparisons.

use super::ids::run_id;
use super::{StoreError, Topic, Tx};
use crate::store::db::{Connection, params};
use adjutant_core::RunId;
use adjutant_core::snapshot::TreeWork;

/// A due task about the tree of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueTreeWork {
    pub run: RunId,
    pub what: TreeWork,
    seq: i64,
}

/// Maximum number of rows that are read at once, more than there can be live runs.
const DUE_MAX: u32 = 1_000;

/// Lists the due tasks, the most urgent first: snapshots before comparisons.
///
/// # Errors
/// A failure of the store.
pub fn due_tree_work(connection: &Connection) -> Result<Vec<DueTreeWork>, StoreError> {
    let rows: Vec<(String, String, i64)> = connection
        .prepare_cached("SELECT run, what, seq FROM tree_work ORDER BY what = 'compare', what = 'watch', run LIMIT ?1")?
        .read_rows([DUE_MAX])?;
    let due = |(run, what, seq): (String, String, i64)| {
        let what = TreeWork::from_word(&what)
            .ok_or_else(|| StoreError::Corrupt(format!("what is due for run {run}: {what}")))?;
        Ok(DueTreeWork {
            run: run_id(&run)?,
            what,
            seq,
        })
    };
    rows.into_iter().map(due).collect()
}

impl Tx<'_> {
    /// Records a due task about a run's tree. A task that is due already is not added again.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_tree_work(&mut self, run: RunId, what: TreeWork) -> Result<(), StoreError> {
        self.prepare("INSERT INTO tree_work (run, what) VALUES (?1, ?2) ON CONFLICT (run, what) DO UPDATE SET seq = tree_work.seq + 1")?
            .run(params![run.to_string(), what.word()])?;
        self.notify(Topic::Trees);
        Ok(())
    }

    /// Records that the task is done, unless it became due again meanwhile.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn end_tree_work(&mut self, done: &DueTreeWork) -> Result<(), StoreError> {
        self.prepare("DELETE FROM tree_work WHERE run = ?1 AND what = ?2 AND seq = ?3")?
            .run(params![done.run.to_string(), done.what.word(), done.seq])?;
        Ok(())
    }
}
