//! The Tasks extension: a Task is a wait stored by the hub, so that a client can poll it even after losing its
//! connection. Cancelling a Task ends the wait and affects no run.

use super::caller::{accepts_tasks, connection};
use super::session::Session;
use super::tools::parent;
use crate::view::{self, CancelTask, ErrorView, GetTask, TaskView, codes};
use rmcp::model::{
    CancelTaskMethod, CancelTaskParams, ConstString, CreateTaskResult, DetailedTask, GetTaskMethod, GetTaskParams, GetTaskResult, JsonObject, Task,
    TaskPayload, TaskStatus, UpdateTaskMethod, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

/// The suggested polling interval.
const POLL_MS: u64 = 2_000;

/// Returns the handle that replaces a result.
#[must_use]
pub fn task_handle(task: &TaskView) -> CreateTaskResult {
    CreateTaskResult::new(to_task(task))
}

/// Answers `tasks/get`.
pub async fn get(session: &Session, request: GetTaskParams, context: &RequestContext<RoleServer>) -> Result<GetTaskResult, ErrorData> {
    gate::<GetTaskMethod>(context)?;
    session.confirm_shown(connection(context)).await;
    let task = session.client().call(&GetTask { task_id: request.task_id, wait_ms: 0 }).await.map_err(|error| protocol_error(&error))?;
    if let Some(found) = &task.result {
        session.note_shown(connection(context), Some(found.cursor), found.confirmation(!task.wait.runs.is_empty()));
    }
    Ok(GetTaskResult::new(to_detailed_task(&task)))
}

/// Answers `tasks/update`. A wait needs no input, so the update is ignored, but the Task must be the caller's.
pub async fn update(session: &Session, request: UpdateTaskParams, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    gate::<UpdateTaskMethod>(context)?;
    session.client().call(&GetTask { task_id: request.task_id, wait_ms: 0 }).await.map_err(|error| protocol_error(&error))?;
    Ok(())
}

/// Answers `tasks/cancel`.
pub async fn cancel(session: &Session, request: CancelTaskParams, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    gate::<CancelTaskMethod>(context)?;
    session.client().call(&CancelTask { task_id: request.task_id }).await.map_err(|error| protocol_error(&error))?;
    Ok(())
}

fn gate<M: ConstString>(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    if accepts_tasks(context) { Ok(()) } else { Err(ErrorData::method_not_found::<M>()) }
}

fn to_task(task: &TaskView) -> Task {
    let status = match task.status.known() {
        Some(view::TaskStatus::Completed) => TaskStatus::Completed,
        Some(view::TaskStatus::Cancelled) => TaskStatus::Cancelled,
        Some(view::TaskStatus::Working) | None => TaskStatus::Working,
    };
    Task::new(task.task_id.as_str(), status, task.created_at.as_str(), task.updated_at.as_str())
        .with_status_message(super::text::line(&task.message, 200))
        .with_ttl_ms(task.ttl_ms)
        .with_poll_interval_ms(POLL_MS)
}

fn to_detailed_task(task: &TaskView) -> DetailedTask {
    let described = to_task(task);
    let payload = match (described.status, &task.result) {
        (TaskStatus::Completed, Some(waited)) => {
            let shown = match task.wait.runs.as_slice() {
                [run] => parent::waited_for_one(waited, run),
                _ => parent::waited(waited, None),
            };
            let result = json!(shown.into_result());
            TaskPayload::Completed {
                result: match result {
                    Value::Object(result) => result,
                    _ => JsonObject::new(),
                },
            }
        }
        (TaskStatus::Cancelled, _) => TaskPayload::Cancelled,
        _ => TaskPayload::Working,
    };
    DetailedTask::new(described, payload)
}

/// Maps an error to a protocol error: an unknown Task is an invalid call, an unreachable hub is not the caller's
/// fault.
fn protocol_error(error: &ErrorView) -> ErrorData {
    match error.code.as_str() {
        codes::NOT_FOUND | codes::INVALID | codes::NOT_ALLOWED => ErrorData::invalid_params(error.message.clone(), None),
        _ => ErrorData::internal_error(error.message.clone(), None),
    }
}
