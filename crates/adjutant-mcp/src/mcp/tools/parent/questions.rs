//! Listing open requests, and answering them.

use super::next_step::WAIT_AGAIN;
use super::next_step::is_stopped;
use super::next_step::reply_hint;
use super::next_step::resume_hint;
use super::status::metadata;
use super::wait::WAITED_MAX;
use crate::mcp::args::AnswerEntry;
use crate::mcp::caller::Caller;
use crate::mcp::refusal::Refusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::Session;
use crate::mcp::show::{self, QUESTION_CHARS, RESULT_CHARS_LISTED, Shown};
use crate::mcp::text::{cut, line, quoted};
use crate::mcp::tools::chats;
use crate::present::{asked_for, clarification_parts};
use crate::view::{
    AnswerOne, AnswerRequests, AttentionList, ChangesView, DecisionWord, ListAttention,
    ReadRequest, RequestView, RunView,
};
use adjutant_core::{RequestStateKind, RunStateKind};
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum number of questions that a list shows.
pub(in crate::mcp) const QUESTIONS_MAX: u32 = 20;

/// Maximum number of chats with unread mentions that are shown too.
const MENTIONS_MAX: usize = 5;

/// The arguments of `get_pending_questions`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct GetPendingQuestionsArgs {
    run_id: Option<String>,
    message_id: Option<String>,
    after: Option<String>,
}

pub(in crate::mcp) async fn get_pending_questions(
    session: &Session,
    _caller: &Caller,
    args: GetPendingQuestionsArgs,
) -> ToolResult {
    if let Some(message_id) = args.message_id {
        return one_question(session, message_id).await;
    }
    let call = ListAttention {
        run: args.run_id,
        after: args.after,
        limit: Some(QUESTIONS_MAX),
    };
    let list = session.client().call(&call).await?;
    let AttentionList {
        requests,
        requests_more,
        runs,
        runs_more,
        mentions,
        mentions_more,
        policy_change: _,
        set_back: _,
    } = &list;
    let brief = |run: &RunView| show::run_brief(run, RESULT_CHARS_LISTED);
    let question = |request: &RequestView| {
        if session.compat() {
            show::request_full(request)
        } else {
            show::request_brief(request)
        }
    };
    let mut shown =
        Shown::new(json!({"questions": requests.iter().map(question).collect::<Vec<_>>()}))
            .lines(requests.iter().map(show::request_line));
    if *requests_more > 0 {
        shown = shown.with("more", *requests_more);
    }
    if !runs.is_empty() {
        shown = shown.with("runs", runs.iter().map(brief).collect::<Vec<_>>());
    }
    if *runs_more > 0 {
        shown = shown.with("runs_more", *runs_more);
    }
    if let (Some(last), true) = (requests.last(), *requests_more > 0) {
        shown = shown.line(format!(
            "… {requests_more} more questions: get_pending_questions after={}",
            line(&last.number, 24)
        ));
    }
    if requests.is_empty() {
        shown = shown.line("no open questions");
    }
    shown = shown.lines(runs.iter().filter_map(show::attention_line));
    if *runs_more > 0 {
        shown = shown.line(format!(
            "… {runs_more} more runs need you: check_subagent_status lists them"
        ));
    }
    let listed = &mentions[..mentions.len().min(MENTIONS_MAX)];
    shown = shown.lines(listed.iter().map(chats::mention_line));
    if mentions.len() > listed.len() || *mentions_more {
        shown = shown.line("… more chats have messages for you: list_chats");
    }
    if !listed.is_empty() {
        shown = shown.with(
            "mentions",
            json!(listed.iter().map(chats::mention_brief).collect::<Vec<_>>()),
        );
    }
    let stopped = runs.iter().find(|run| is_stopped(run));
    reply(shown.next(
        match (requests.is_empty(), stopped, runs.first(), mentions.first()) {
            (false, ..) => reply_hint(requests),
            (true, Some(run), ..) => resume_hint(run),
            (true, None, Some(run), _) => {
                format!("check_subagent_status run_id={}", line(&run.name, 60))
            }
            (true, None, None, Some(mention)) => format!("show_chat chat_id={}", mention.chat_id),
            (true, None, None, None) => WAIT_AGAIN.to_owned(),
        },
    ))
}

async fn one_question(session: &Session, message_id: String) -> ToolResult {
    let request = session
        .client()
        .call(&ReadRequest {
            message_id,
            wait_ms: 0,
        })
        .await?;
    let mut data = show::request_full(&request);
    let what = asked_for(&request);
    data["question"] = json!(what.text);
    let operation = show::operation(&request, usize::MAX, usize::MAX);
    if !operation.is_empty() {
        data["operation"] = json!(operation);
    }
    if let Some(context) = &request.context {
        data["context"] = json!(context);
    }
    if let Some(clarification) = &request.clarification {
        data["clarification"] = json!(clarification);
    }
    if let Some(preview) = &request.preview {
        data["preview"] = json!(preview);
    }
    let (id, asked, expires) = (
        line(&request.message_id, 60),
        line(&request.asked_at, 40),
        line(&request.expires_at, 40),
    );
    let mut shown = Shown::new(json!({"questions": [data]})).line(show::request_line(&request));
    shown = shown.line(format!(
        "message_id {id}, asked at {asked}, expires at {expires}"
    ));
    let clarified = request
        .clarification
        .iter()
        .flat_map(clarification_parts)
        .map(|part| Some(part.text));
    // Those that the line above cuts.
    for part in what
        .parts
        .iter()
        .filter(|part| part.name != "preview")
        .skip(show::PARTS_MAX)
    {
        shown = shown.line(format!("{} {}", part.label, quoted(&part.text, usize::MAX)));
    }
    let parts = what
        .parts
        .iter()
        .filter(|part| part.name != "preview")
        .take(show::PARTS_MAX)
        .map(|part| Some(part.text.as_str()));
    let long = [
        Some(what.text),
        request.context.as_deref(),
        request.preview.as_deref(),
    ]
    .into_iter()
    .chain(parts)
    .chain(clarified);
    for part in long
        .flatten()
        .filter(|part| part.chars().count() > QUESTION_CHARS)
    {
        shown = shown.line(format!("in full: {}", quoted(part, usize::MAX)));
    }
    let open = request.status == RequestStateKind::Pending;
    reply(if open {
        shown.next(reply_hint(&[request]))
    } else {
        shown.next(WAIT_AGAIN)
    })
}

/// The arguments of `reply_subagent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct ReplySubagentArgs {
    run_id: Option<String>,
    message_id: Option<String>,
    answer: Option<String>,
    decision: Option<DecisionWord>,
    reason: Option<String>,
    changes: Option<ChangesView>,
    same: Option<bool>,
    for_s: Option<u64>,
    uses: Option<u64>,
    #[serde(default)]
    answers: Vec<AnswerEntry>,
}

pub(in crate::mcp) async fn reply_subagent(
    session: &Session,
    _caller: &Caller,
    args: ReplySubagentArgs,
) -> ToolResult {
    let ReplySubagentArgs {
        run_id: own_run,
        message_id,
        answer,
        decision,
        reason,
        changes,
        same,
        for_s,
        uses,
        answers,
    } = args;
    let is_answer = answer.is_some() || decision.is_some();
    let own = is_answer.then(|| AnswerEntry {
        run_id: own_run.clone(),
        message_id,
        answer,
        decision,
        reason,
        changes,
        same,
        for_s,
        uses,
    });
    let answers: Vec<AnswerOne> = answers
        .into_iter()
        .chain(own)
        .map(|entry| {
            let AnswerEntry {
                run_id,
                message_id,
                answer,
                decision,
                reason,
                changes,
                same,
                for_s,
                uses,
            } = entry;
            let (run, answer) = (
                run_id.or_else(|| own_run.clone()),
                answer.unwrap_or_default(),
            );
            AnswerOne {
                run,
                message_id,
                answer,
                decision,
                reason,
                changes,
                content_hash: None,
                same: same.unwrap_or_default(),
                for_s,
                uses,
            }
        })
        .collect();
    if answers.is_empty() {
        return Err(Refusal::invalid(
            "there is no answer",
            "pass answer (or decision) with message_id (or run_id), or a list in answers",
        ));
    }
    if answers
        .iter()
        .any(|answer| answer.run.is_none() && answer.message_id.is_none())
    {
        return Err(Refusal::invalid(
            "it does not say which question is answered",
            "pass message_id, such as Q12; get_pending_questions lists them",
        ));
    }
    let answered = session.client().call(&AnswerRequests { answers }).await?;
    let labels: Vec<String> = answered
        .requests
        .iter()
        .map(|request| {
            format!(
                "{} of {}",
                line(&request.number, 24),
                line(&request.run_name, 60)
            )
        })
        .collect();
    let message = format!("answered {}", labels.join(", "));
    let mut shown = Shown::new(json!({
        "success": true,
        "message": message,
        "requests": answered.requests.iter().map(answered_brief).collect::<Vec<_>>(),
        "runs": answered.runs.iter().map(|run| show::run_brief(run, RESULT_CHARS_LISTED)).collect::<Vec<_>>(),
    }))
    .line(message)
    .lines(answered.requests.iter().map(show::recorded_line))
    .lines(answered.requests.iter().filter_map(|request| request.child_name.as_ref()).map(|child| format!("started {}", line(child, 60))))
    .lines(answered.runs.iter().map(show::run_line))
    .lines(
        answered
            .runs
            .iter()
            .filter(|run| run.state == RunStateKind::Finished)
            .map(|run| format!("{} has ended, so it does not learn of this", line(&run.name, 60))),
    );
    if let (true, Some(run)) = (session.compat(), answered.runs.first()) {
        shown = shown.with("updatedMetadata", metadata(session, run).await?);
    }
    let open: Vec<RequestView> = answered
        .runs
        .iter()
        .flat_map(|run| run.pending.clone())
        .collect();
    shown = shown.lines(
        open.iter()
            .take(WAITED_MAX)
            .map(|request| format!("still open: {}", show::request_line(request))),
    );
    let stopped = answered.runs.iter().find(|run| is_stopped(run));
    shown = shown.lines(stopped.and_then(show::attention_line));
    reply(shown.next(match stopped {
        _ if !open.is_empty() => reply_hint(&open),
        Some(run) => resume_hint(run),
        None => WAIT_AGAIN.to_owned(),
    }))
}

/// Returns the recorded answer to a request as structured content.
fn answered_brief(request: &RequestView) -> Value {
    let mut brief = json!({"message_id": request.number, "status": request.status});
    let fields = [
        (
            "answer",
            request
                .answer
                .as_deref()
                .map(|answer| json!(cut(answer, RESULT_CHARS_LISTED))),
        ),
        ("option", request.option_chosen().map(Value::from)),
        (
            "decision",
            request.decision.as_ref().map(|decision| json!(decision)),
        ),
        ("child_name", request.child_name.as_deref().map(Value::from)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            brief[name] = value;
        }
    }
    brief
}
