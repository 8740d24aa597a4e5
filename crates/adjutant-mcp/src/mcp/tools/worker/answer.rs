//! Checking for an answer.

use super::request::{answer_line, described, ended_unanswered};
use crate::mcp::caller::{McpCaller, wait_ms};
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::text::{line, quoted};
use crate::view::{ReadRequest, RequestView, codes};
use adjutant_core::RequestStateKind;
use adjutant_core::units::duration;
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// The arguments of `check_answer`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct CheckAnswerArgs {
    message_id: String,
    wait_s: Option<u64>,
    run_id: Option<String>,
}

/// Waits for an answer: at most the time that the caller asks for, that its client allows, and that
/// is left of the reply timeout, which starts with the first check of this request.
pub(in crate::mcp) async fn check_answer(
    session: &McpSession,
    caller: &McpCaller,
    args: CheckAnswerArgs,
) -> ToolResult {
    let CheckAnswerArgs {
        message_id,
        wait_s: asked_s,
        run_id,
    } = args;
    let messages = session.check_own_run(run_id.as_deref()).await?;
    let mut request = session
        .client()
        .call(&ReadRequest {
            message_id: message_id.clone(),
            wait_ms: 0,
        })
        .await?;
    request.messages.splice(..0, messages);
    if is_settled(&request) {
        session.forget_check(&request.message_id);
        return answer_result(session, caller, &request);
    }
    let reply_timeout = Duration::from_millis(request.times.patience_ms);
    // The reply timeout does not count while the child run works.
    let left = if request.delegated.held {
        caller.cap
    } else {
        reply_timeout.saturating_sub(session.first_check(&request.message_id).elapsed())
    };
    // The original tool with this alias was made for polling.
    let default = if caller.alias.is_some() {
        Duration::ZERO
    } else {
        caller.cap
    };
    let wait = caller.bounded(asked_s, default).min(left);
    let mut latest = request;
    if !wait.is_zero() {
        let read = ReadRequest {
            message_id,
            wait_ms: wait_ms(wait),
        };
        let earlier = std::mem::take(&mut latest.messages);
        latest = caller
            .wait_with_progress("waiting for the answer", session.client().call(&read))
            .await??;
        latest.messages.splice(..0, earlier);
    }
    if is_settled(&latest) || latest.delegated.held {
        session.forget_check(&latest.message_id);
        return answer_result(session, caller, &latest);
    }
    if session.first_check(&latest.message_id).elapsed() >= reply_timeout {
        session.forget_check(&latest.message_id);
        return Err(stall_refusal(&latest, reply_timeout));
    }
    answer_result(session, caller, &latest)
}

/// Returns whether the run can continue with the outcome.
fn is_settled(request: &RequestView) -> bool {
    request.status != RequestStateKind::Pending && !request.delegated.held
}

fn stall_refusal(request: &RequestView, reply_timeout: Duration) -> ToolRefusal {
    let number = line(&request.number, 24);
    ToolRefusal::new(
        codes::STALLED,
        format!(
            "Stalled: Parent No-Response. Nobody answered {number} within {} of waiting; it stays open",
            duration::of(reply_timeout)
        ),
        format!(
            "continue with your best assumption and say so in your report, or call check_answer message_id={number} again later: a late answer is still delivered"
        ),
    )
}

fn answer_result(session: &McpSession, caller: &McpCaller, request: &RequestView) -> ToolResult {
    if let Some(refusal) = ended_unanswered(request) {
        return Err(refusal);
    }
    let answer = request
        .reply
        .answer
        .as_ref()
        .filter(|_| !request.delegated.held);
    let has_answer = answer.is_some();
    let mut shown = described(request)
        .with("question", request.content.question.as_str())
        .with("answer", json!(answer))
        .with("message_status", request.message_status.as_str())
        .with("has_answer", has_answer)
        .with("hasAnswer", has_answer)
        .with("asked_at", request.times.asked_at.as_str())
        .with("expires_at", request.times.expires_at.as_str())
        .with("answered_at", json!(request.times.answered_at));
    if session.compat() || caller.alias.is_some() {
        shown = shown
            .with("questionContent", request.content.question.as_str())
            .with("answerContent", json!(request.reply.answer))
            .with("messageStatus", request.message_status.as_str());
    }
    shown = shown.line(format!(
        "{} asked at {}: {}",
        line(&request.number, 24),
        line(&request.times.asked_at, 40),
        quoted(&request.content.question, 300)
    ));
    match (answer, &request.delegated.child_name) {
        (Some(answer), _) => reply(answer_line(shown, request, answer)),
        (None, Some(child)) => {
            let again = format!(
                "check_answer message_id={} again",
                line(&request.number, 24)
            );
            reply(
                shown
                    .line(format!(
                        "approved: run {} is working on it",
                        line(child, 60)
                    ))
                    .next(again),
            )
        }
        (None, None) => {
            let again = format!(
                "check_answer message_id={} again, or continue with what does not depend on it",
                line(&request.number, 24)
            );
            reply(
                shown
                    .line(format!(
                        "no answer yet; the question is open until {}",
                        line(&request.times.expires_at, 40)
                    ))
                    .next(again),
            )
        }
    }
}
