//! Waits stored for MCP clients that poll. One task is one wait; it advances only when it is
//! polled, so nothing runs in the background.

use super::waits::Waits;
use super::{Caller, OpError, Ops, lookup};
use crate::clock::{self, rfc3339};
use crate::store::{Connection, Request, Store, StoreError, Task, request_by_id, task_by_id};
use crate::view::{
    CancelTask, GetTask, StartTask, TaskStatus, TaskView, UpdateTask, Wait, WaitOutcome, WaitUntil,
    Waited, Word,
};
use adjutant_core::{Action, Denied, Principal, RequestId, RequestState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Longest time to live: 7 days.
const TTL_MS_MAX: u64 = 7 * 24 * 60 * 60 * 1000;
/// Maximum number of requests that a task shows to the client's person at once.
const ASKED_MAX: usize = 10;
/// Maximum number of requests that the person declined or answered too late in one call, and of
/// those that a task keeps of each.
const UPDATES_MAX: usize = 1_000;
/// Maximum number of requests that were closed before the person's answer arrived in a task's
/// message: the newest.
const CLOSED_SHOWN_MAX: usize = 3;

fn corrupt(error: &serde_json::Error) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

/// A wait as the row of its task has it.
#[derive(Debug, Serialize, Deserialize)]
struct StoredWait {
    runs: Vec<String>,
    until: WaitUntil,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<i64>,
    /// The requests that the client's person declined to answer.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    declined: BTreeSet<RequestKey>,
    /// The requests that were closed before the person's answer arrived, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    closed: Vec<RequestKey>,
}

/// The id of a request, as text.
type RequestKey = String;

impl StoredWait {
    fn read(task: &Task) -> Result<Self, StoreError> {
        serde_json::from_slice(task.wait.as_bytes()).map_err(|error| corrupt(&error))
    }

    fn write(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(|error| corrupt(&error))
    }

    fn wait(&self, wait_ms: u64) -> Wait {
        Wait {
            runs: self.runs.clone(),
            until: self.until,
            after: self.after,
            new_reports: false,
            wait_ms,
        }
    }

    /// Returns whether the client's person is to be asked about an open request.
    fn asks(&self, request: &Request) -> bool {
        !request.escalated.is_empty() && !self.declined.contains(&request.id.to_string())
    }

    /// Says which requests were closed before the person's answer arrived.
    fn late_answers(&self, connection: &Connection) -> Result<String, StoreError> {
        let mut said = String::new();
        for id in self.closed.iter().rev().take(CLOSED_SHOWN_MAX) {
            let request = RequestId::parse(id)
                .ok()
                .map(|id| request_by_id(connection, id))
                .transpose()?
                .flatten();
            said.push_str(&match request {
                Some(Request {
                    no,
                    state: RequestState::Answered(answer) | RequestState::Retrieved { answer, .. },
                    ..
                }) => {
                    format!("; {no} was already answered by {}", answer.by)
                }
                Some(request) => format!("; {} is already {}", request.no, request.state.word()),
                None => "; a request was removed with its run".to_owned(),
            });
        }
        Ok(said)
    }

    fn view(&self, task: &Task, message: String) -> Result<TaskView, StoreError> {
        let result: Option<Waited> = task
            .result
            .as_deref()
            .map(|result| serde_json::from_slice(result.as_bytes()))
            .transpose()
            .map_err(|error| corrupt(&error))?;
        Ok(TaskView {
            task_id: task.id.clone(),
            status: Word::read(&task.status),
            message,
            created_at: rfc3339(task.created_at),
            updated_at: rfc3339(task.updated_at),
            ttl_ms: u64::try_from(task.ttl_ms).unwrap_or(0),
            wait: self.wait(0),
            asked: Vec::new(),
            declined: self.declined.iter().cloned().collect(),
            result,
        })
    }
}

/// Parses the ids of requests.
fn request_keys(field: &'static str, given: &[String]) -> Result<Vec<RequestKey>, Denied> {
    if given.len() > UPDATES_MAX {
        return Err(Denied::invalid(field, format!("at most {UPDATES_MAX}")));
    }
    let parse = |id: &String| {
        RequestId::parse(id)
            .map(|id| id.to_string())
            .map_err(|_| Denied::invalid(field, "use ids of requests"))
    };
    given.iter().map(parse).collect()
}

/// The tasks of clients.
#[derive(Debug, Clone)]
pub struct Tasks {
    store: Store,
    waits: Waits,
}

impl Tasks {
    pub fn of(ops: &Ops) -> Self {
        Self {
            store: ops.store.clone(),
            waits: Waits::of(ops),
        }
    }

    /// Stores a wait. Durable when it returns.
    ///
    /// # Errors
    /// The caller may not wait, or a run is unknown.
    pub async fn start(&self, caller: Caller, call: StartTask) -> Result<TaskView, OpError> {
        lookup::check(&caller.who, Action::Wait)?;
        let declined = request_keys("declined", &call.declined)?
            .into_iter()
            .collect();
        let Wait {
            runs,
            until,
            after,
            new_reports: _,
            wait_ms: _,
        } = call.wait;
        let mut wait = StoredWait {
            runs,
            until,
            after,
            declined,
            closed: Vec::new(),
        };
        // Validates the wait, and fixes the position from which ends count.
        let first = self.waits.wait(&caller.who, &wait.wait(0)).await?;
        if wait.runs.is_empty() && wait.after.is_none() {
            wait.after = Some(first.cursor);
        }
        let id = crate::hub_client::random_hex::<16>();
        let ttl_ms = i64::try_from(call.ttl_ms.clamp(1, TTL_MS_MAX)).unwrap_or(i64::MAX);
        caller
            .write(&self.store, move |tx, who| {
                let now = tx.now();
                let task = Task {
                    id,
                    principal: who.to_string(),
                    wait: wait.write()?,
                    status: TaskStatus::Working.word().to_owned(),
                    result: None,
                    created_at: now,
                    updated_at: now,
                    ttl_ms,
                    due_at: tx.steady().plus_ms(ttl_ms),
                };
                tx.start_task(&task)?;
                wait.view(&task, "waiting".to_owned())
            })
            .await
    }

    fn find(&self, who: &Principal, id: &str) -> Result<Task, OpError> {
        let found = self.store.read(|connection| task_by_id(connection, id))?;
        let alive = |task: &Task| clock::steady() <= task.due_at;
        found
            .filter(|task| task.principal == who.to_string() && alive(task))
            .ok_or_else(|| Denied::not_found("task", id).into())
    }

    /// Returns a stored wait, completing it when its condition is met.
    ///
    /// # Errors
    /// Unknown, foreign, or past its time to live.
    pub async fn get(&self, caller: &Caller, call: &GetTask) -> Result<TaskView, OpError> {
        lookup::check(&caller.who, Action::Wait)?;
        let task = self.find(&caller.who, &call.task_id)?;
        let wait = StoredWait::read(&task)?;
        let late = self
            .store
            .read(|connection| wait.late_answers(connection))?;
        if task.status != TaskStatus::Working.word() {
            return Ok(wait.view(&task, format!("{}{late}", task.status))?);
        }
        let is_asked = |request: &Request| call.asks_person && wait.asks(request);
        let (waited, mut asked) = self
            .waits
            .wait_unless(&caller.who, &wait.wait(call.wait_ms), is_asked)
            .await?;
        if waited.outcome == WaitOutcome::Timeout {
            let working = format!(
                "{} working, {} open{late}",
                waited.working.len(),
                waited.needs.len()
            );
            if asked.is_empty() {
                return Ok(wait.view(&task, working)?);
            }
            let message = format!("{} for the person, {working}", asked.len());
            asked.truncate(ASKED_MAX);
            return Ok(TaskView {
                status: TaskStatus::InputRequired.into(),
                asked,
                ..wait.view(&task, message)?
            });
        }
        let result = serde_json::to_string(&waited).map_err(|error| corrupt(&error))?;
        let id = task.id.clone();
        self.store
            .write(move |tx| tx.end_task(&id, TaskStatus::Completed.word(), Some(&result)))
            .await?;
        let ended = self.find(&caller.who, &task.id)?;
        Ok(wait.view(&ended, format!("{}{late}", ended.status))?)
    }

    /// Records the outcome of requests about which a task asked the client's person.
    ///
    /// # Errors
    /// Unknown, foreign, or past its time to live.
    pub async fn update(&self, caller: Caller, call: UpdateTask) -> Result<TaskView, OpError> {
        lookup::check(&caller.who, Action::Wait)?;
        if let Some(earlier) = caller.stored_reply(&self.store)? {
            return Ok(earlier);
        }
        let (declined, closed) = (
            request_keys("declined", &call.declined)?,
            request_keys("closed", &call.closed)?,
        );
        let id = self.find(&caller.who, &call.task_id)?.id;
        caller
            .write(&self.store, move |tx, _| {
                let not_found = || Denied::not_found("task", &id);
                let mut wait =
                    StoredWait::read(&task_by_id(tx.connection(), &id)?.ok_or_else(not_found)?)?;
                wait.declined.extend(declined);
                wait.closed.retain(|known| !closed.contains(known));
                wait.closed.extend(closed);
                if wait.declined.len().max(wait.closed.len()) > UPDATES_MAX {
                    return Err(Denied::Limit {
                        what: "replies about requests of one task",
                        limit: UPDATES_MAX as u64,
                    }
                    .into());
                }
                tx.change_task(&id, &wait.write()?)?;
                let changed = task_by_id(tx.connection(), &id)?.ok_or_else(not_found)?;
                let message = format!("{}{}", changed.status, wait.late_answers(tx.connection())?);
                wait.view(&changed, message)
            })
            .await
    }

    /// Cancels a stored wait; its runs continue.
    ///
    /// # Errors
    /// Unknown, foreign, or past its time to live.
    pub async fn cancel(&self, caller: Caller, call: CancelTask) -> Result<TaskView, OpError> {
        lookup::check(&caller.who, Action::Wait)?;
        if let Some(earlier) = caller.stored_reply(&self.store)? {
            return Ok(earlier);
        }
        let id = self.find(&caller.who, &call.task_id)?.id;
        caller
            .write(&self.store, move |tx, _| {
                tx.end_task(&id, TaskStatus::Cancelled.word(), None)?;
                let ended = task_by_id(tx.connection(), &id)?
                    .ok_or_else(|| Denied::not_found("task", &id))?;
                let message = ended.status.clone();
                StoredWait::read(&ended)?.view(&ended, message)
            })
            .await
    }
}
