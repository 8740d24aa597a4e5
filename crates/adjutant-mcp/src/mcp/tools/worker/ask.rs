//! Asking: questions, approvals and delegations.

use super::messages::with_messages;
use super::request::{answer_line, answer_text, described, ended_unanswered};
use crate::mcp::args::QuestionEntry;
use crate::mcp::caller::{McpCaller, wait_ms};
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::Shown;
use crate::mcp::text::line;
use crate::view::{
    Ask, AskAndWait, AskTogether, Call, ClarificationView, DecisionWord, Delegate, MessageView,
    OperationView, PathView, ReadRequest, ReadTogether, RequestApproval, RequestView, Word,
};
use adjutant_core::policy::REQUEST_APPROVAL;
use adjutant_core::signal::{Independence, Priority};
use adjutant_core::{RequestKind, RequestStateKind};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// The arguments of `ask_parent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct AskParentArgs {
    question: Option<String>,
    #[serde(default)]
    questions: Vec<QuestionEntry>,
    context: Option<String>,
    #[serde(default)]
    options: Vec<String>,
    default: Option<String>,
    expires_s: Option<u64>,
    blocking: Option<bool>,
    question_id: Option<String>,
    reason: Option<String>,
    blocked_at: Option<String>,
    can_resume_with: Option<String>,
    current_state: Option<String>,
    wait_s: Option<u64>,
    idempotency_key: Option<String>,
    run_id: Option<String>,
}

/// Commits the question, then waits for the answer. The question stays open even if the wait times
/// out or fails.
pub(in crate::mcp) async fn ask_parent(
    session: &McpSession,
    caller: &McpCaller,
    args: AskParentArgs,
) -> ToolResult {
    let question = match (&args.question, args.questions.is_empty()) {
        (Some(question), true) => question.clone(),
        (None, false) => return ask_together(session, caller, args).await,
        _ => {
            return Err(ToolRefusal::invalid(
                "pass either `question` or `questions`",
                "pass one question, or a list in questions",
            ));
        }
    };
    let messages = session.check_own_run(args.run_id.as_deref()).await?;
    let clarification = clarification(&args);
    let ask = Ask {
        question,
        question_id: args.question_id,
        clarification,
        context: args.context,
        options: args.options,
        default: args.default,
        blocking: args.blocking.unwrap_or(true),
        expires_s: args.expires_s,
    };
    let at_once = session.compat() || !ask.blocking;
    let wait = caller.bounded(
        args.wait_s,
        if at_once { Duration::ZERO } else { caller.cap },
    );
    let key = args.idempotency_key.as_deref();
    if wait.is_zero() {
        return commit_and_wait(session, caller, key, &ask, wait, messages).await;
    }
    let call = AskAndWait {
        ask,
        wait_ms: wait_ms(wait),
    };
    let answered = async {
        match key {
            Some(key) => session.client().call_with_key(&call, key).await,
            None => session.client().call(&call).await,
        }
    };
    match caller
        .wait_with_progress("waiting for the answer", answered)
        .await?
    {
        Ok(mut latest) => {
            latest.messages.splice(..0, messages);
            asked(&latest)
        }
        Err(error) => Err(error.into()),
    }
}

/// Commits several questions as one group, then waits until no blocking question is open.
async fn ask_together(session: &McpSession, caller: &McpCaller, args: AskParentArgs) -> ToolResult {
    let mut messages = session.check_own_run(args.run_id.as_deref()).await?;
    let mut call = AskTogether {
        clarification: clarification(&args),
        ..AskTogether::default()
    };
    for entry in args.questions {
        let QuestionEntry {
            question,
            question_id,
            context,
            options,
            default,
            blocking,
        } = entry;
        call.questions.push(Ask {
            question,
            question_id,
            clarification: None,
            context: context.or_else(|| args.context.clone()),
            options,
            default,
            blocking: blocking.or(args.blocking).unwrap_or(true),
            expires_s: args.expires_s,
        });
    }
    let at_once = session.compat() || call.questions.iter().all(|ask| !ask.blocking);
    let wait = caller.bounded(
        args.wait_s,
        if at_once { Duration::ZERO } else { caller.cap },
    );
    let mut latest = match args.idempotency_key.as_deref() {
        Some(key) => session.client().call_with_key(&call, key).await?,
        None => session.client().call(&call).await?,
    };
    if let Some(first) = latest.requests.first().filter(|_| !wait.is_zero()) {
        let read = ReadTogether {
            message_id: first.message_id.clone(),
            wait_ms: wait_ms(wait),
        };
        match caller
            .wait_with_progress("waiting for the answers", session.client().call(&read))
            .await?
        {
            Ok(read) => {
                messages.extend(
                    latest
                        .requests
                        .iter_mut()
                        .flat_map(|request| std::mem::take(&mut request.messages)),
                );
                latest = read;
            }
            Err(error) => tracing::warn!(%error, "the wait for answers failed"),
        }
    }
    reply(asked_together(&latest.requests, messages))
}

fn asked_together(requests: &[RequestView], mut messages: Vec<MessageView>) -> Shown {
    messages.extend(
        requests
            .iter()
            .flat_map(|request| request.messages.iter().cloned()),
    );
    let first = requests
        .first()
        .map_or("", |request| request.message_id.as_str());
    let open: Vec<&RequestView> = requests
        .iter()
        .filter(|request| request.status == RequestStateKind::Pending)
        .collect();
    let answers: Vec<Value> = requests
        .iter()
        .map(|request| {
            json!({"message_id": request.message_id, "number": request.number, "question_id": request.content.question_id, "question": request.content.question,
                "status": request.status, "answer": request.reply.answer, "answered_by": request.reply.answered_by})
        })
        .collect();
    let status = if open.is_empty() {
        "answered"
    } else {
        "pending"
    };
    let mut shown = with_messages(
        Shown::new(
            json!({"message_id": first, "messageId": first, "status": status, "answers": answers}),
        ),
        &messages,
    );
    for request in requests {
        shown = match &request.reply.answer {
            Some(answer) => shown.line(answer_text(request, answer)),
            None => shown.line(format!(
                "{}: {}, message_id {}",
                line(&request.number, 24),
                line(request.status.as_str(), 20),
                line(&request.message_id, 60)
            )),
        };
    }
    if open.is_empty() {
        return shown.next("continue with your task, using these answers; where one is missing, decide yourself and say so in your report");
    }
    let numbers: Vec<String> = open
        .iter()
        .map(|request| line(&request.number, 24))
        .collect();
    let instructions = format!(
        "Stored, and visible to your parent: {}. Call check_answer for each before you need it; do not ask again.",
        numbers.join(", ")
    );
    shown
        .with("instructions", instructions.as_str())
        .next(instructions)
}

/// The arguments of `request_approval`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct RequestApprovalArgs {
    action: String,
    preview: Option<String>,
    risk: Option<String>,
    context: Option<String>,
    blocking: Option<bool>,
    #[serde(default)]
    options: Vec<String>,
    default: Option<DecisionWord>,
    expires_s: Option<u64>,
    wait_s: Option<u64>,
    idempotency_key: Option<String>,
    run_id: Option<String>,
    command: Option<String>,
    url: Option<String>,
    #[serde(default)]
    paths: Vec<String>,
}

/// Commits a request for a decision, then waits for it.
pub(in crate::mcp) async fn request_approval(
    session: &McpSession,
    caller: &McpCaller,
    args: RequestApprovalArgs,
) -> ToolResult {
    let messages = session.check_own_run(args.run_id.as_deref()).await?;
    let is_stated = args.command.is_some() || args.url.is_some() || !args.paths.is_empty();
    let ask = RequestApproval {
        action: args.action,
        preview: args.preview,
        risk: args.risk,
        context: args.context,
        options: args.options,
        default: args.default,
        blocking: args.blocking.unwrap_or(true),
        expires_s: args.expires_s,
        operation: is_stated.then(|| OperationView {
            tool: REQUEST_APPROVAL.to_owned(),
            command: args.command,
            urls: args.url.into_iter().collect(),
            paths: args
                .paths
                .into_iter()
                .map(|path| PathView { path, real: None })
                .collect(),
            complete: true,
            ..OperationView::default()
        }),
    };
    let wait = caller.bounded(
        args.wait_s,
        if session.compat() || !ask.blocking {
            Duration::ZERO
        } else {
            caller.cap
        },
    );
    commit_and_wait(
        session,
        caller,
        args.idempotency_key.as_deref(),
        &ask,
        wait,
        messages,
    )
    .await
}

/// The arguments of `delegate_work`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct DelegateWorkArgs {
    new_task_description: String,
    independence: Option<Word<Independence>>,
    context_required: Option<String>,
    coordination: Option<String>,
    reason: Option<String>,
    agent: Option<String>,
    directory: Option<String>,
    priority: Option<Word<Priority>>,
    estimated_duration: Option<String>,
    budget: Option<String>,
    expires_s: Option<u64>,
    wait_s: Option<u64>,
    idempotency_key: Option<String>,
    run_id: Option<String>,
}

/// Commits a delegation, then waits for the decision and, if the task blocks the run, for the end
/// of the task.
pub(in crate::mcp) async fn delegate_work(
    session: &McpSession,
    caller: &McpCaller,
    args: DelegateWorkArgs,
) -> ToolResult {
    let messages = session.check_own_run(args.run_id.as_deref()).await?;
    let ask = Delegate {
        task: args.new_task_description,
        agent: args.agent,
        cwd: args.directory,
        independence: args.independence,
        priority: args.priority,
        reason: args.reason,
        context_required: args.context_required,
        coordination: args.coordination,
        estimated_duration: args.estimated_duration,
        budget: args.budget,
        expires_s: args.expires_s,
    };
    let wait = caller.bounded(
        args.wait_s,
        if session.compat() {
            Duration::ZERO
        } else {
            caller.cap
        },
    );
    commit_and_wait(
        session,
        caller,
        args.idempotency_key.as_deref(),
        &ask,
        wait,
        messages,
    )
    .await
}

/// Commits a request, waits for its outcome, and returns it.
async fn commit_and_wait<C: Call<Reply = RequestView>>(
    session: &McpSession,
    caller: &McpCaller,
    idempotency_key: Option<&str>,
    ask: &C,
    wait: Duration,
    mut messages: Vec<MessageView>,
) -> ToolResult {
    let mut latest = match idempotency_key {
        Some(key) => session.client().call_with_key(ask, key).await?,
        None => session.client().call(ask).await?,
    };
    if !wait.is_zero() {
        let read = ReadRequest {
            message_id: latest.message_id.clone(),
            wait_ms: wait_ms(wait),
        };
        match caller
            .wait_with_progress("waiting for the answer", session.client().call(&read))
            .await?
        {
            Ok(settled) => {
                messages.append(&mut latest.messages);
                latest = settled;
            }
            Err(error) => tracing::warn!(%error, "the wait for an answer failed"),
        }
    }
    latest.messages.splice(..0, messages);
    asked(&latest)
}

pub(in crate::mcp) fn asked(request: &RequestView) -> ToolResult {
    if let Some(refusal) = ended_unanswered(request) {
        return Err(refusal);
    }
    let mut shown = described(request);
    if let Some(answer) = request
        .reply
        .answer
        .as_ref()
        .filter(|_| !request.delegated.held)
    {
        return reply(answer_line(
            shown
                .with("answer", answer.as_str())
                .with("answerContent", answer.as_str()),
            request,
            answer,
        ));
    }
    let number = line(&request.number, 24);
    let kind = line(request.kind.as_str(), 20);
    let instructions = if let Some(child) = request
        .delegated
        .child_name
        .as_ref()
        .filter(|_| request.delegated.held)
    {
        format!(
            "Approved: run {} is working on it, and you wait for it. Call check_answer with message_id {number}: it returns its result.",
            line(child, 60)
        )
    } else if request.kind == RequestKind::Approval {
        format!(
            "Your approval {number} is pending and visible to your parent. Do not do it yet: call check_answer with message_id {number}, which waits for the decision."
        )
    } else if request.blocking {
        format!(
            "Your {kind} {number} is stored and visible to your parent. Call check_answer with message_id {number}: it waits for the answer. Do not ask again."
        )
    } else {
        format!(
            "Your {kind} {number} is stored and visible to your parent. Continue with your work and call check_answer with message_id {number} when you need the answer."
        )
    };
    // A pending request is not an error, so the result says how to continue.
    shown = shown
        .with("instructions", instructions.as_str())
        .line(format!(
            "asked {number}, message_id {}: no answer yet",
            line(&request.message_id, 60)
        ));
    reply(shown.next(instructions))
}

/// Returns the clarification that a run states with its questions.
fn clarification(args: &AskParentArgs) -> Option<ClarificationView> {
    let clarification = ClarificationView {
        reason: args.reason.clone(),
        blocked_at: args.blocked_at.clone(),
        can_resume_with: args.can_resume_with.clone(),
        current_state: args.current_state.clone(),
    };
    (clarification != ClarificationView::default()).then_some(clarification)
}
