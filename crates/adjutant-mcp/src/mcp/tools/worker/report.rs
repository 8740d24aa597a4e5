//! Status reports and stops of a run.

use super::messages::with_messages;
use super::request::answer_line;
use crate::mcp::caller::McpCaller;
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::{self, RESULT_CHARS, Shown};
use crate::mcp::text::line;
use crate::view::{GetRun, ReadRequest, ReportedStatus, SetStatus, StopWork, Word};
use adjutant_core::RequestStateKind;
use adjutant_core::signal::StopCause;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum number of answers that one check delivers. The next check delivers more.
const ANSWERS_MAX: usize = 10;

/// The arguments of `check_subagent_status`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct CheckSubagentStatusArgs {
    run_id: Option<String>,
}

pub(in crate::mcp) async fn check_subagent_status(
    session: &McpSession,
    _caller: &McpCaller,
    args: CheckSubagentStatusArgs,
) -> ToolResult {
    let run = session
        .client()
        .call(&GetRun {
            run: args.run_id.unwrap_or_default(),
            ..GetRun::default()
        })
        .await?;
    let mut shown = Shown::new(show::run_full(&run)).lines(show::run_lines(&run));
    shown = with_messages(shown, &run.requests.messages);
    if session.compat() {
        shown = shown
            .with("runId", run.identity.run_id.as_str())
            .with("agentName", run.identity.agent.as_str());
    }
    // Checking reads answers as check_answer does.
    let mut answers = Vec::new();
    let mut exchanges = run.requests.settled.clone();
    for known in &run.requests.pending {
        if known.status != RequestStateKind::Answered || answers.len() >= ANSWERS_MAX {
            exchanges.push(known.clone());
            continue;
        }
        let request = session
            .client()
            .call(&ReadRequest {
                message_id: known.message_id.clone(),
                wait_ms: 0,
            })
            .await?;
        let answer = request.reply.answer.clone().unwrap_or_default();
        shown = answer_line(with_messages(shown, &request.messages), &request, &answer);
        answers.push(json!({"message_id": request.message_id, "number": request.number, "question": request.content.question, "answer": answer}));
        exchanges.push(request);
    }
    exchanges.sort_by(|one, other| one.times.asked_at.cmp(&other.times.asked_at));
    if let (true, Value::Object(metadata)) =
        (session.compat(), crate::view::metadata(&run, &exchanges))
    {
        shown = metadata
            .into_iter()
            .fold(shown, |shown, (name, value)| shown.with(&name, value));
    }
    let given = !answers.is_empty();
    shown = shown.with("answers", answers);
    shown = shown.lines(show::request_lines(&run));
    let next = match run
        .requests
        .pending
        .iter()
        .find(|request| request.status == RequestStateKind::Pending)
    {
        _ if given => "continue with your task, using the answers".to_owned(),
        Some(request) => format!(
            "check_answer message_id={} waits for the answer",
            line(&request.number, 24)
        ),
        None => "continue with your task; report the result with update_subagent_status".to_owned(),
    };
    reply(shown.next(next))
}

/// The arguments of `update_subagent_status`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct UpdateSubagentStatusArgs {
    status: Word<ReportedStatus>,
    summary: Option<String>,
    percent: Option<u64>,
    eta: Option<String>,
    #[serde(default)]
    deliverables: Vec<String>,
    metrics_achieved: Option<String>,
    issues_encountered: Option<String>,
    recommendations: Option<String>,
    total_duration: Option<String>,
    run_id: Option<String>,
}

pub(in crate::mcp) async fn update_subagent_status(
    session: &McpSession,
    _caller: &McpCaller,
    args: UpdateSubagentStatusArgs,
) -> ToolResult {
    let percent = match args.percent {
        None => None,
        Some(percent) => match u8::try_from(percent) {
            Ok(percent) if percent <= 100 => Some(percent),
            _ => {
                return Err(ToolRefusal::invalid(
                    format!("percent is {percent}"),
                    "pass 0 to 100",
                ));
            }
        },
    };
    let set = SetStatus {
        run: args.run_id.unwrap_or_default(),
        status: args.status.clone(),
        summary: args.summary,
        percent,
        eta: args.eta,
        deliverables: args.deliverables,
        metrics_achieved: args.metrics_achieved,
        issues_encountered: args.issues_encountered,
        recommendations: args.recommendations,
        total_duration: args.total_duration,
    };
    let run = session.client().call(&set).await?;
    let shown = Shown::new(show::run_brief(&run, RESULT_CHARS)).line(format!(
        "recorded: {}; {}",
        args.status,
        show::run_line(&run)
    ));
    let shown = with_messages(shown, &run.requests.messages);
    let shown = if session.compat() {
        shown.with("runId", run.identity.run_id.as_str())
    } else {
        shown
    };
    reply(
        shown.next(if args.status.spoken() == Some(ReportedStatus::Running) {
            "continue with your task"
        } else {
            "end your turn"
        }),
    )
}

/// The arguments of `stop_work`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct StopWorkArgs {
    stop_reason: Word<StopCause>,
    details: String,
    blocker_type: Option<String>,
    completed_work: Option<String>,
    blocked_work: Option<String>,
    state_snapshot: Option<String>,
    resume_requirements: Option<String>,
    error_recovery: Option<String>,
    run_id: Option<String>,
}

/// Saves a checkpoint. The process is stopped unless it exits by itself.
pub(in crate::mcp) async fn stop_work(
    session: &McpSession,
    _caller: &McpCaller,
    args: StopWorkArgs,
) -> ToolResult {
    let stop = StopWork {
        run: args.run_id.unwrap_or_default(),
        stop_reason: args.stop_reason,
        details: args.details,
        blocker_type: args.blocker_type,
        completed_work: args.completed_work,
        blocked_work: args.blocked_work,
        state_snapshot: args.state_snapshot,
        resume_requirements: args.resume_requirements,
        error_recovery: args.error_recovery,
    };
    let run = session.client().call(&stop).await?;
    let shown = Shown::new(show::run_brief(&run, RESULT_CHARS)).line(format!(
        "your checkpoint is saved; {}",
        show::run_line(&run)
    ));
    reply(shown.next("end your turn: you are resumed when it is resolved"))
}
