//! What a run reports about itself.

use super::messages::with_messages;
use super::request::answer_line;
use crate::mcp::args::Args;
use crate::mcp::caller::Caller;
use crate::mcp::refusal::Refusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::Session;
use crate::mcp::show::{self, RESULT_CHARS, Shown};
use crate::mcp::text::line;
use crate::view::{GetRun, ReadRequest, ReportedStatus, SetStatus, StopWork, Word};
use adjutant_core::RequestStateKind;
use serde_json::json;

/// Most answers that one check delivers; the rest come with the next.
const ANSWERS_MAX: usize = 10;

pub(in crate::mcp) async fn check_subagent_status(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let run = session.client().call(&GetRun { run: args.word("run_id") }).await?;
    let mut shown = Shown::new(show::run_full(&run)).lines(show::run_lines(&run));
    shown = with_messages(shown, &run.messages);
    if session.compat() {
        shown = shown.with("runId", run.run_id.as_str()).with("agentName", run.agent.as_str());
    }
    // Checking reads answers as check_answer does.
    let mut answers = Vec::new();
    for request in run.pending.iter().filter(|request| request.status == RequestStateKind::Answered).take(ANSWERS_MAX) {
        let request = session.client().call(&ReadRequest { message_id: request.message_id.clone(), wait_ms: 0 }).await?;
        let answer = request.answer.clone().unwrap_or_default();
        shown = answer_line(with_messages(shown, &request.messages), &request, &answer);
        answers.push(json!({"message_id": request.message_id, "number": request.number, "question": request.question, "answer": answer}));
    }
    let given = !answers.is_empty();
    shown = shown.with("answers", answers);
    shown = shown.lines(show::request_lines(&run));
    let next = match run.pending.iter().find(|request| request.status == RequestStateKind::Pending) {
        _ if given => "go on with your task, using what was answered".to_owned(),
        Some(request) => format!("check_answer message_id={} waits for the answer", line(&request.number, 24)),
        None => "go on with your task; report the result with update_subagent_status".to_owned(),
    };
    reply(shown.next(next))
}

pub(in crate::mcp) async fn update_subagent_status(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let percent = match args.count("percent")? {
        None => None,
        Some(percent) => match u8::try_from(percent) {
            Ok(percent) if percent <= 100 => Some(percent),
            _ => return Err(Refusal::invalid(format!("percent is {percent}"), "pass 0 to 100")),
        },
    };
    let status: Word<ReportedStatus> = args.value("status").unwrap_or_default();
    let set = SetStatus {
        run: args.word("run_id"),
        status: status.clone(),
        summary: args.owned("summary"),
        percent,
        eta: args.owned("eta"),
        deliverables: args.texts("deliverables"),
        metrics_achieved: args.owned("metrics_achieved"),
        issues_encountered: args.owned("issues_encountered"),
        recommendations: args.owned("recommendations"),
        total_duration: args.owned("total_duration"),
    };
    let run = session.client().call(&set).await?;
    let shown = Shown::new(show::run_brief(&run, RESULT_CHARS)).line(format!("recorded: {status}; {}", show::run_line(&run)));
    let shown = with_messages(shown, &run.messages);
    let shown = if session.compat() { shown.with("runId", run.run_id.as_str()) } else { shown };
    reply(shown.next(if status == ReportedStatus::Running { "go on with your task" } else { "end your turn" }))
}

/// Leaves a checkpoint; the process is stopped unless it ends by itself.
pub(in crate::mcp) async fn stop_work(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let stop = StopWork {
        run: args.word("run_id"),
        stop_reason: args.value("stop_reason").unwrap_or_default(),
        details: args.word("details"),
        blocker_type: args.owned("blocker_type"),
        completed_work: args.owned("completed_work"),
        blocked_work: args.owned("blocked_work"),
        state_snapshot: args.owned("state_snapshot"),
        resume_requirements: args.owned("resume_requirements"),
        error_recovery: args.owned("error_recovery"),
    };
    let run = session.client().call(&stop).await?;
    let shown = Shown::new(show::run_brief(&run, RESULT_CHARS)).line(format!("your checkpoint is kept; {}", show::run_line(&run)));
    reply(shown.next("end your turn: you are started again when it is resolved"))
}
