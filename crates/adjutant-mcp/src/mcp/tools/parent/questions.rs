//! Listing open requests, and answering them.

use super::next_step::{WAIT_AGAIN, reply_hint, resume_hint};
use super::status::metadata;
use super::waited::WAITED_MAX;
use crate::mcp::args::AnswerEntry;
use crate::mcp::caller::McpCaller;
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::{self, QUESTION_CHARS, RESULT_CHARS_LISTED, Shown};
use crate::mcp::text::{line, quoted};
use crate::mcp::tools::chats;
use crate::present::{asked_for, clarification_parts};
use crate::view::{
    AnswerOne, AnswerRequests, Answered, AttentionList, ChangesView, DecisionWord, ListAttention,
    MentionView, ReadRequest, RequestView, RunView,
};
use adjutant_core::{RequestStateKind, RunStateKind, shorten};
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
    session: &McpSession,
    _caller: &McpCaller,
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
    let question = if session.compat() {
        show::request_full
    } else {
        show::request_brief
    };
    let questions: Vec<Value> = list.requests.iter().map(question).collect();
    reply(describe_attention(&list, questions).next(next_step(&list)))
}

/// Describes what needs a parent: requests, runs, and messages in chats.
fn describe_attention(list: &AttentionList, questions: Vec<Value>) -> Shown {
    let AttentionList {
        requests,
        requests_more,
        runs,
        runs_more,
        mentions,
        mentions_more,
        policy_change: _,
        set_back: _,
    } = list;
    let mut shown =
        Shown::new(json!({"questions": questions})).lines(requests.iter().map(show::request_line));
    if *requests_more > 0 {
        shown = shown.with("more", *requests_more);
    }
    if !runs.is_empty() {
        shown = shown.with("runs", listed_runs(runs));
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
    add_mentions(shown, mentions, *mentions_more)
}

/// Returns runs as structured content of a list.
fn listed_runs(runs: &[RunView]) -> Vec<Value> {
    runs.iter()
        .map(|run| show::run_brief(run, RESULT_CHARS_LISTED))
        .collect()
}

/// Adds the chats with messages for the parent. `has_more`: the hub has not listed all.
fn add_mentions(mut shown: Shown, mentions: &[MentionView], has_more: bool) -> Shown {
    let listed = &mentions[..mentions.len().min(MENTIONS_MAX)];
    shown = shown.lines(listed.iter().map(chats::mention_line));
    if mentions.len() > listed.len() || has_more {
        shown = shown.line("… more chats have messages for you: list_chats");
    }
    if !listed.is_empty() {
        let briefs: Vec<Value> = listed.iter().map(chats::mention_brief).collect();
        shown = shown.with("mentions", json!(briefs));
    }
    shown
}

/// Returns the step after a list: questions come before runs, and runs before chats.
fn next_step(list: &AttentionList) -> String {
    let AttentionList {
        requests,
        runs,
        mentions,
        ..
    } = list;
    let stopped = runs.iter().find(|run| run.needs_resume());
    match (requests.is_empty(), stopped, runs.first(), mentions.first()) {
        (false, ..) => reply_hint(requests),
        (true, Some(run), ..) => resume_hint(run),
        (true, None, Some(run), _) => {
            format!(
                "check_subagent_status run_id={}",
                line(&run.identity.name, 60)
            )
        }
        (true, None, None, Some(mention)) => format!("show_chat chat_id={}", mention.chat_id),
        (true, None, None, None) => WAIT_AGAIN.to_owned(),
    }
}

async fn one_question(session: &McpSession, message_id: String) -> ToolResult {
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
    if let Some(context) = &request.content.context {
        data["context"] = json!(context);
    }
    if let Some(clarification) = &request.content.clarification {
        data["clarification"] = json!(clarification);
    }
    if let Some(preview) = &request.content.preview {
        data["preview"] = json!(preview);
    }
    let (id, asked, expires) = (
        line(&request.message_id, 60),
        line(&request.times.asked_at, 40),
        line(&request.times.expires_at, 40),
    );
    let mut shown = Shown::new(json!({"questions": [data]})).line(show::request_line(&request));
    shown = shown.line(format!(
        "message_id {id}, asked at {asked}, expires at {expires}"
    ));
    let clarified = request
        .content
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
        request.content.context.as_deref(),
        request.content.preview.as_deref(),
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
    session: &McpSession,
    _caller: &McpCaller,
    args: ReplySubagentArgs,
) -> ToolResult {
    let answers = answers_of(args)?;
    let answered = session.client().call(&AnswerRequests { answers }).await?;
    let mut shown = describe_answers(&answered);
    if let (true, Some(run)) = (session.compat(), answered.runs.first()) {
        shown = shown.with("updatedMetadata", metadata(session, run).await?);
    }
    reply(add_what_is_open(shown, &answered.runs))
}

/// Returns the answers that a call gives: those of its list, then its own.
///
/// # Errors
/// There is none, or one does not say what it answers.
fn answers_of(args: ReplySubagentArgs) -> Result<Vec<AnswerOne>, ToolRefusal> {
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
        .map(|entry| answer_of(entry, own_run.as_ref()))
        .collect();
    if answers.is_empty() {
        return Err(ToolRefusal::invalid(
            "there is no answer",
            "pass answer (or decision) with message_id (or run_id), or a list in answers",
        ));
    }
    if answers
        .iter()
        .any(|answer| answer.run.is_none() && answer.message_id.is_none())
    {
        return Err(ToolRefusal::invalid(
            "it does not say which question is answered",
            "pass message_id, such as Q12; get_pending_questions lists them",
        ));
    }
    Ok(answers)
}

/// Returns an entry as the hub takes it. `own_run` is the run of entries that name none.
fn answer_of(entry: AnswerEntry, own_run: Option<&String>) -> AnswerOne {
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
    AnswerOne {
        run: run_id.or_else(|| own_run.cloned()),
        message_id,
        answer: answer.unwrap_or_default(),
        decision,
        reason,
        changes,
        content_hash: None,
        same: same.unwrap_or_default(),
        for_s,
        uses,
    }
}

/// Describes the recorded answers, and the runs that receive them.
fn describe_answers(answered: &Answered) -> Shown {
    let Answered { requests, runs } = answered;
    let labels: Vec<String> = requests
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
    let children = requests
        .iter()
        .filter_map(|request| request.delegated.child_name.as_ref());
    let finished = runs
        .iter()
        .filter(|run| run.condition.state == RunStateKind::Finished);
    Shown::new(json!({
        "success": true,
        "message": message,
        "requests": requests.iter().map(answered_brief).collect::<Vec<_>>(),
        "runs": listed_runs(runs),
    }))
    .line(message)
    .lines(requests.iter().map(show::recorded_line))
    .lines(children.map(|child| format!("started {}", line(child, 60))))
    .lines(runs.iter().map(show::run_line))
    .lines(finished.map(|run| {
        format!(
            "{} has ended, so it does not learn of this",
            line(&run.identity.name, 60)
        )
    }))
}

/// Adds what runs still need, and the step after it.
fn add_what_is_open(shown: Shown, runs: &[RunView]) -> Shown {
    let open: Vec<RequestView> = runs
        .iter()
        .flat_map(|run| run.requests.pending.clone())
        .collect();
    let stopped = runs.iter().find(|run| run.needs_resume());
    shown
        .lines(
            open.iter()
                .take(WAITED_MAX)
                .map(|request| format!("still open: {}", show::request_line(request))),
        )
        .lines(stopped.and_then(show::attention_line))
        .next(match stopped {
            _ if !open.is_empty() => reply_hint(&open),
            Some(run) => resume_hint(run),
            None => WAIT_AGAIN.to_owned(),
        })
}

/// Returns the recorded answer to a request as structured content.
fn answered_brief(request: &RequestView) -> Value {
    let mut brief = json!({"message_id": request.number, "status": request.status});
    let fields = [
        (
            "answer",
            request
                .reply
                .answer
                .as_deref()
                .map(|answer| json!(shorten::counted(answer, RESULT_CHARS_LISTED))),
        ),
        ("option", request.option_chosen().map(Value::from)),
        (
            "decision",
            request
                .reply
                .decision
                .as_ref()
                .map(|decision| json!(decision)),
        ),
        (
            "child_name",
            request.delegated.child_name.as_deref().map(Value::from),
        ),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            brief[name] = value;
        }
    }
    brief
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(value: Value) -> ReplySubagentArgs {
        serde_json::from_value(value).expect("arguments")
    }

    fn answered(value: Value) -> Vec<(Option<String>, Option<String>, String)> {
        answers_of(args(value))
            .expect("answers")
            .into_iter()
            .map(|one| (one.run, one.message_id, one.answer))
            .collect()
    }

    #[test]
    fn entries_without_a_run_are_of_the_run_of_the_call() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            answered(json!({
                "run_id": "otter",
                "answer": "own",
                "answers": [{"answer": "a"}, {"run_id": "vole", "answer": "b"}],
            })),
            [
                (some("otter"), None, "a".to_owned()),
                (some("vole"), None, "b".to_owned()),
                (some("otter"), None, "own".to_owned()),
            ]
        );
        // A decision needs no text.
        assert_eq!(
            answered(json!({"message_id": "Q1", "decision": "approve"})),
            [(None, some("Q1"), String::new())]
        );
    }

    #[test]
    fn missing_answer_or_question_is_refused() {
        let refused = |value: Value| answers_of(args(value)).expect_err("a refusal").message;
        assert_eq!(
            refused(json!({"run_id": "otter", "message_id": "Q1"})),
            "there is no answer"
        );
        let unnamed = "it does not say which question is answered";
        assert_eq!(refused(json!({"answer": "yes"})), unnamed);
        assert_eq!(
            refused(json!({"answers": [{"message_id": "Q1", "answer": "a"}, {"answer": "b"}]})),
            unnamed
        );
    }
}
