//! Requests and answers in results for a worker.

use super::messages::with_messages;
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::show::Shown;
use crate::mcp::text::{line, quoted};
use crate::view::{RequestView, Word, codes};
use adjutant_core::signal::Independence;
use adjutant_core::{DecisionKind, RequestKind, RequestStateKind};
use serde_json::json;

/// Creates a result with the fields common to all results about a request.
pub(in crate::mcp) fn described(request: &RequestView) -> Shown {
    let mut shown = Shown::new(json!({
        "message_id": request.message_id,
        "messageId": request.message_id,
        "number": request.number,
        "status": request.status,
    }));
    if let Some(id) = &request.content.question_id {
        shown = shown.with("question_id", id.as_str());
    }
    with_messages(shown, &request.messages)
}

/// Formats who answered a request, and the answer.
pub(in crate::mcp) fn answer_text(request: &RequestView, answer: &str) -> String {
    let by = request.reply.answered_by.as_deref().unwrap_or("nobody");
    let note = match (by, request.kind.known()) {
        ("default", Some(RequestKind::Question)) => " (no answer in time, so your default applies)",
        ("default", _) => " (no decision in time)",
        _ => "",
    };
    let own = request
        .content
        .question_id
        .as_ref()
        .map_or_else(String::new, |id| format!(" (your {})", line(id, 60)));
    format!(
        "answer to {}{own} by {}{note}: {}",
        line(&request.number, 24),
        line(by, 200),
        quoted(answer, usize::MAX)
    )
}

pub(in crate::mcp) fn answer_line(shown: Shown, request: &RequestView, answer: &str) -> Shown {
    let by = request.reply.answered_by.as_deref().unwrap_or("nobody");
    let text = answer_text(request, answer);
    let independence = request
        .delegated
        .delegation
        .as_ref()
        .map(|delegation| delegation.independence.known());
    let next = match request.reply.decision.as_ref().map(Word::known) {
        None => "continue with your task, using this answer",
        Some(Some(DecisionKind::Approved)) if request.delegated.child_result.is_some() => {
            "continue with your task, using that result"
        }
        Some(Some(DecisionKind::Approved))
            if independence == Some(Some(Independence::Parallel)) =>
        {
            "continue with your own task; a message reports when that run has ended"
        }
        Some(Some(DecisionKind::Approved)) if independence.is_some() => {
            "continue with your own task; do not wait for that run"
        }
        Some(Some(DecisionKind::Denied)) if independence.is_some() => {
            "continue without it, as the reason says"
        }
        Some(Some(DecisionKind::Approved)) => {
            "do exactly what you showed; anything else needs a new approval"
        }
        Some(_) => "do not do it: find another way, or say in your report that there is none",
    };
    let mut shown = shown.with("answered_by", by).line(text).next(next);
    if let (Some(child), Some(name)) = (&request.delegated.child, &request.delegated.child_name) {
        shown = shown
            .with("child", child.as_str())
            .with("child_name", name.as_str());
        shown = shown.line(format!(
            "run {} was started for it, run_id {}",
            line(name, 60),
            line(child, 60)
        ));
    }
    if let Some(result) = &request.delegated.child_result {
        shown = shown
            .with("child_result", result.as_str())
            .line(format!("it ended: {}", quoted(result, usize::MAX)));
    }
    match &request.reply.decision {
        None => shown,
        Some(decision) => shown.with("decision", decision.as_str()).with(
            "reason",
            request.reply.reason.as_deref().unwrap_or_default(),
        ),
    }
}

pub(in crate::mcp) fn ended_unanswered(request: &RequestView) -> Option<ToolRefusal> {
    let number = line(&request.number, 24);
    match request.status.known() {
        Some(RequestStateKind::Expired) => Some(ToolRefusal::new(
            codes::EXPIRED,
            format!(
                "{number} expired at {} without an answer",
                line(&request.times.expires_at, 40)
            ),
            "decide yourself and say so in your report, or ask again with ask_parent",
        )),
        Some(RequestStateKind::Withdrawn) => Some(ToolRefusal::new(
            codes::WITHDRAWN,
            format!("{number} was withdrawn and will not be answered"),
            "continue without it, or ask again with ask_parent",
        )),
        _ => None,
    }
}
