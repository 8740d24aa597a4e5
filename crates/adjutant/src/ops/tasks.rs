//! Waits stored for MCP clients that poll. One task is one wait; it advances only when it is polled, so nothing runs
//! in the background.

use super::{Caller, OpError, Ops};
use crate::clock::{self, rfc3339};
use crate::store::{StoreError, Task, task_by_id};
use crate::view::{CancelTask, GetTask, StartTask, TaskStatus, TaskView, Wait, WaitOutcome, Waited, Word};
use adjutant_core::{Action, Denied, Principal};

/// Longest time to live: 7 days.
const TTL_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;

fn corrupt(error: &serde_json::Error) -> OpError {
    StoreError::Corrupt(error.to_string()).into()
}

fn view(task: &Task, message: String) -> Result<TaskView, OpError> {
    let result: Option<Waited> =
        task.result.as_deref().map(|result| serde_json::from_slice(result.as_bytes())).transpose().map_err(|error| corrupt(&error))?;
    Ok(TaskView {
        task_id: task.id.clone(),
        status: Word::read(&task.status),
        message,
        created_at: rfc3339(task.created_at),
        updated_at: rfc3339(task.updated_at),
        ttl_ms: u64::try_from(task.ttl_ms).unwrap_or(0),
        wait: serde_json::from_slice(task.wait.as_bytes()).map_err(|error| corrupt(&error))?,
        result,
    })
}

impl Ops {
    /// Stores a wait. Durable when it returns.
    ///
    /// # Errors
    /// The caller may not wait, or a run is unknown.
    pub async fn start_task(&self, caller: Caller, call: StartTask) -> Result<TaskView, OpError> {
        Self::check(&caller.who, Action::Wait)?;
        let mut wait = call.wait;
        wait.wait_ms = 0;
        // Validates the wait, and fixes the position from which ends count.
        let first = self.wait(&caller.who, &wait).await?;
        if wait.runs.is_empty() && wait.after.is_none() {
            wait.after = Some(first.cursor);
        }
        let id = crate::client::random_hex::<16>();
        let ttl_ms = i64::try_from(call.ttl_ms.clamp(1, TTL_MS_MAX)).unwrap_or(i64::MAX);
        let wait = serde_json::to_string(&wait).map_err(|error| corrupt(&error))?;
        self.write(caller, move |tx, who| {
            let now = tx.now();
            let task = Task {
                id,
                principal: who.to_string(),
                wait,
                status: TaskStatus::Working.word().to_owned(),
                result: None,
                created_at: now,
                updated_at: now,
                ttl_ms,
                due_at: tx.steady().plus_ms(ttl_ms),
            };
            tx.start_task(&task)?;
            view(&task, "waiting".to_owned()).map_err(|error| StoreError::Corrupt(error.to_string()))
        })
        .await
    }

    fn task(&self, who: &Principal, id: &str) -> Result<Task, OpError> {
        let found = self.store.read(|connection| task_by_id(connection, id))?;
        let alive = |task: &Task| clock::steady() <= task.due_at;
        found.filter(|task| task.principal == who.to_string() && alive(task)).ok_or_else(|| Denied::not_found("task", id).into())
    }

    /// Returns a stored wait, completing it when its condition is met.
    ///
    /// # Errors
    /// Unknown, foreign, or past its time to live.
    pub async fn get_task(&self, caller: &Caller, call: &GetTask) -> Result<TaskView, OpError> {
        Self::check(&caller.who, Action::Wait)?;
        let task = self.task(&caller.who, &call.task_id)?;
        if task.status != TaskStatus::Working.word() {
            let message = task.status.clone();
            return view(&task, message);
        }
        let mut wait: Wait = serde_json::from_slice(task.wait.as_bytes()).map_err(|error| corrupt(&error))?;
        wait.wait_ms = call.wait_ms;
        let waited = self.wait(&caller.who, &wait).await?;
        if waited.outcome == WaitOutcome::Timeout {
            let message = format!("{} working, {} open", waited.working.len(), waited.needs.len());
            return view(&task, message);
        }
        let result = serde_json::to_string(&waited).map_err(|error| corrupt(&error))?;
        let id = task.id.clone();
        self.store.write(move |tx| tx.end_task(&id, TaskStatus::Completed.word(), Some(&result))).await?;
        let ended = self.task(&caller.who, &task.id)?;
        let message = ended.status.clone();
        view(&ended, message)
    }

    /// Cancels a stored wait; its runs continue.
    ///
    /// # Errors
    /// Unknown, foreign, or past its time to live.
    pub async fn cancel_task(&self, caller: Caller, call: CancelTask) -> Result<TaskView, OpError> {
        Self::check(&caller.who, Action::Wait)?;
        if let Some(earlier) = self.stored_reply(&caller)? {
            return Ok(earlier);
        }
        let id = self.task(&caller.who, &call.task_id)?.id;
        self.write(caller, move |tx, _| {
            tx.end_task(&id, TaskStatus::Cancelled.word(), None)?;
            let ended = task_by_id(tx.connection(), &id)?.ok_or_else(|| Denied::not_found("task", &id))?;
            let message = ended.status.clone();
            view(&ended, message).map_err(|error| StoreError::Corrupt(error.to_string()))
        })
        .await
    }
}
