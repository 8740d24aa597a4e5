//! The Tasks extension: a Task is a wait stored by the hub, so that a client can poll it even after
//! losing its connection. Cancelling a Task ends the wait and affects no run.
//!
//! A request that is escalated to a person does not end the Task of a client that can ask one: the
//! Task requires input.
//!
//! ```text
//!  working ── escalated ──> input_required ── all answered, or closed otherwise ──> working ──> completed
//!                                 └── declined: the request ends the wait as any other ──> completed
//! ```

use super::caller::{accepts_tasks, connection, elicitation};
use super::elicit::{self, PersonReply};
use super::session::McpSession;
use super::tools::parent;
use crate::view::{
    self, CancelTask, ErrorView, GetTask, ReadRequest, RequestView, TaskView, UpdateTask, codes,
};
use adjutant_core::RequestId;
use rmcp::model::{
    CancelTaskMethod, CancelTaskParams, ConstString, CreateTaskResult, DetailedTask, ElicitRequest,
    GetTaskMethod, GetTaskParams, GetTaskResult, InputRequest, InputRequests, JsonObject, Task,
    TaskPayload, TaskStatus, UpdateTaskMethod, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

/// The suggested polling interval.
const POLL_MS: u64 = 2_000;

/// Separates the id of a request from the hash of its content in the key of an input request.
const KEY_SEPARATOR: char = ':';

/// The refusals of an answer that a later try may not get.
const TRANSIENT: [&str; 6] = [
    codes::UNREACHABLE,
    codes::CLOSING,
    codes::STORAGE_FULL,
    codes::STORAGE,
    codes::STALLED,
    codes::INTERNAL,
];

/// Returns the handle that replaces a result.
#[must_use]
pub(crate) fn task_handle(task: &TaskView) -> CreateTaskResult {
    CreateTaskResult::new(to_task(task))
}

/// Answers `tasks/get`.
pub(super) async fn get(
    session: &McpSession,
    request: GetTaskParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetTaskResult, ErrorData> {
    gate::<GetTaskMethod>(context)?;
    session.confirm_shown(connection(context)).await;
    let look = GetTask {
        task_id: request.task_id,
        wait_ms: 0,
        asks_person: elicitation(context).is_some(),
    };
    let (task, inputs) = loop {
        let task = session
            .client()
            .call(&look)
            .await
            .map_err(|error| protocol_error(&error))?;
        let (inputs, hidden) = input_requests(&task.asked);
        if hidden.is_empty() {
            break (task, inputs);
        }
        // A person could not see all of them, so their runs' parent decides.
        update_task(session, &look.task_id, hidden, Vec::new()).await?;
    };
    if let Some(found) = &task.result {
        session.note_shown(
            connection(context),
            Some(found.cursor),
            found.confirmation(!task.wait.runs.is_empty()),
        );
    }
    Ok(GetTaskResult::new(to_detailed_task(&task, inputs)))
}

/// Answers `tasks/update`: takes the replies of the client's person. A key that the Task did not
/// issue, or whose request the person has declined before, is ignored.
pub(super) async fn update(
    session: &McpSession,
    request: UpdateTaskParams,
    context: &RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    gate::<UpdateTaskMethod>(context)?;
    // Looks as a client that can ask, so that the Task does not end because of what the person is
    // answering.
    let look = GetTask {
        task_id: request.task_id,
        wait_ms: 0,
        asks_person: true,
    };
    let task = session
        .client()
        .call(&look)
        .await
        .map_err(|error| protocol_error(&error))?;
    let (mut declined, mut late, mut refused) = (Vec::new(), Vec::new(), None);
    for (key, reply) in &request.input_responses {
        let Some(asked) = issued(session, key)
            .await?
            .filter(|asked| !task.declined.contains(&asked.message_id))
        else {
            continue;
        };
        match elicit::take(
            session,
            &asked.message_id,
            Some(asked.content.content_hash),
            reply,
        )
        .await
        {
            Ok(PersonReply::Answered) => {}
            Ok(PersonReply::Declined) => declined.push(asked.message_id),
            Ok(PersonReply::Late) => late.push(asked.message_id),
            Err(refusal) => {
                // The client asks its person once. What another try cannot change is left to the
                // parent.
                if !TRANSIENT.contains(&refusal.code.as_str()) {
                    declined.push(asked.message_id);
                }
                refused = Some(ErrorView {
                    code: refusal.code,
                    message: refusal.message,
                    hint: None,
                });
            }
        }
    }
    if !declined.is_empty() || !late.is_empty() {
        update_task(session, &look.task_id, declined, late).await?;
    }
    refused.map_or(Ok(()), |error| Err(protocol_error(&error)))
}

/// Returns the request of a key. `None`: no Task issued it.
async fn issued(session: &McpSession, key: &str) -> Result<Option<RequestView>, ErrorData> {
    let Some((message_id, hash)) = key
        .split_once(KEY_SEPARATOR)
        .filter(|(id, _)| RequestId::parse(id).is_ok())
    else {
        return Ok(None);
    };
    match session
        .client()
        .call(&ReadRequest {
            message_id: message_id.to_owned(),
            wait_ms: 0,
        })
        .await
    {
        Ok(request) => Ok(Some(request).filter(|request| {
            request.content.content_hash == hash && !request.escalated.is_empty()
        })),
        Err(error) if error.code == codes::NOT_FOUND => Ok(None),
        Err(error) => Err(protocol_error(&error)),
    }
}

async fn update_task(
    session: &McpSession,
    task_id: &str,
    declined: Vec<String>,
    closed: Vec<String>,
) -> Result<(), ErrorData> {
    let update = UpdateTask {
        task_id: task_id.to_owned(),
        declined,
        closed,
    };
    session
        .client()
        .call(&update)
        .await
        .map_err(|error| protocol_error(&error))?;
    Ok(())
}

/// Returns the forms for requests, and the ids of those that a person could not see whole.
fn input_requests(asked: &[RequestView]) -> (InputRequests, Vec<String>) {
    let (mut inputs, mut hidden) = (InputRequests::new(), Vec::new());
    for request in asked {
        match elicit::form(request) {
            // With the hash, the reply is bound to what was shown.
            Some(form) => {
                let key = format!(
                    "{}{KEY_SEPARATOR}{}",
                    request.message_id, request.content.content_hash
                );
                inputs.insert(key, InputRequest::Elicitation(ElicitRequest::new(form)));
            }
            None => hidden.push(request.message_id.clone()),
        }
    }
    (inputs, hidden)
}

/// Answers `tasks/cancel`.
pub(super) async fn cancel(
    session: &McpSession,
    request: CancelTaskParams,
    context: &RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    gate::<CancelTaskMethod>(context)?;
    session
        .client()
        .call(&CancelTask {
            task_id: request.task_id,
        })
        .await
        .map_err(|error| protocol_error(&error))?;
    Ok(())
}

fn gate<M: ConstString>(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    if accepts_tasks(context) {
        Ok(())
    } else {
        Err(ErrorData::method_not_found::<M>())
    }
}

fn to_task(task: &TaskView) -> Task {
    let status = match task.status.known() {
        Some(view::TaskStatus::Completed) => TaskStatus::Completed,
        Some(view::TaskStatus::Cancelled) => TaskStatus::Cancelled,
        Some(view::TaskStatus::InputRequired) => TaskStatus::InputRequired,
        Some(view::TaskStatus::Working) | None => TaskStatus::Working,
    };
    Task::new(
        task.task_id.as_str(),
        status,
        task.created_at.as_str(),
        task.updated_at.as_str(),
    )
    .with_status_message(super::text::line(&task.message, 200))
    .with_ttl_ms(task.ttl_ms)
    .with_poll_interval_ms(POLL_MS)
}

fn to_detailed_task(task: &TaskView, input_requests: InputRequests) -> DetailedTask {
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
        (TaskStatus::InputRequired, _) => TaskPayload::InputRequired { input_requests },
        _ => TaskPayload::Working,
    };
    DetailedTask::new(described, payload)
}

/// Maps an error to a protocol error: an unknown Task is an invalid call, an unreachable hub is not
/// the caller's fault.
fn protocol_error(error: &ErrorView) -> ErrorData {
    match error.code.as_str() {
        codes::NOT_FOUND | codes::INVALID | codes::NOT_ALLOWED => {
            ErrorData::invalid_params(error.message.clone(), None)
        }
        _ => ErrorData::internal_error(error.message.clone(), None),
    }
}
