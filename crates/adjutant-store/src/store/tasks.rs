//! Stored waits that an MCP client polls and returns to.

use super::{StoreError, Tx};
use crate::store::db::{Connection, params, row, select};
use adjutant_core::{SteadyTime, Time};

row! {
    /// One stored wait. `wait` and `result` are JSON: what the task waits for, and a result of the
    /// contract.
    #[derive(Debug, Clone)]
    pub struct Task {
        pub id: String,
        pub principal: String,
        pub wait: String,
        pub status: String,
        pub result: Option<String>,
        pub created_at: Time,
        pub updated_at: Time,
        pub ttl_ms: i64,
        /// When the task expires and is removed.
        pub due_at: SteadyTime,
    }
}

/// Reads one task.
///
/// # Errors
/// A failure of the store.
pub fn task_by_id(connection: &Connection, id: &str) -> Result<Option<Task>, StoreError> {
    Ok(connection
        .prepare_cached(select!(Task, "FROM tasks WHERE id = ?1"))?
        .find_row([id])?)
}

impl Tx<'_> {
    /// Stores a new wait.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn start_task(&mut self, task: &Task) -> Result<(), StoreError> {
        self.prepare(
            "INSERT INTO tasks (id, principal, wait, status, created_at, updated_at, ttl_ms, due_at) VALUES (?1, ?2, ?3, 'working', ?4, ?4, ?5, ?6)",
        )?
        .run(params![task.id, task.principal, task.wait, self.now().0, task.ttl_ms, task.due_at.0])?;
        Ok(())
    }

    /// Ends a wait that is still in progress. Returns whether this call ended it; only the first
    /// end counts.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn end_task(
        &mut self,
        id: &str,
        status: &'static str,
        result: Option<&str>,
    ) -> Result<bool, StoreError> {
        let changed = self
            .prepare("UPDATE tasks SET status = ?2, result = ?3, updated_at = ?4 WHERE id = ?1 AND status = 'working'")?
            .execute(params![id, status, result, self.now().0])?;
        Ok(changed == 1)
    }

    /// Replaces what a task waits for.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn change_task(&mut self, id: &str, wait: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE tasks SET wait = ?2, updated_at = ?3 WHERE id = ?1")?
            .run(params![id, wait, self.now().0])?;
        Ok(())
    }

    /// Removes expired waits.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_tasks(&mut self) -> Result<(), StoreError> {
        self.prepare("DELETE FROM tasks WHERE due_at < ?1")?
            .run([self.steady().0])?;
        Ok(())
    }
}
