//! What the tools of a worker do: ask and get the answer, look at itself, report.

use super::args::Args;
use super::caller::Caller;
use super::refusal::Refusal;
use super::reply::Reply;
use super::session::Session;
use super::show::{self, RESULT_CHARS, Shown};
use super::text::{line, quoted};
use crate::view::{
    Ask, AskTogether, Call, ClarificationView, DecisionWord, Delegate, GetRun, MessageView, ReadRequest, ReadTogether, ReportedStatus,
    RequestApproval, RequestView, SetStatus, StopWork, Word, codes,
};
use adjutant_core::signal::Independence;
use adjutant_core::{DecisionKind, RequestKind, RequestStateKind};
use serde_json::{Value, json};
use std::time::Duration;

/// Most answers that one look at itself hands over; the rest comes with the next.
const ANSWERS_MAX: usize = 10;

type ToolResult = Result<Reply, Refusal>;

fn done(shown: Shown) -> ToolResult {
    Ok(Reply::Result(shown))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Commits the question, then waits. Whatever ends the wait, the question stays open.
pub(super) async fn ask_parent(session: &Session, caller: &Caller, args: Args) -> ToolResult {
    let asked_s = args.count("wait_s")?;
    let questions = args.questions()?;
    if questions.is_empty() == args.text("question").is_none() {
        return Err(Refusal::invalid("`question` or `questions` is missing, or both are there", "pass one question, or a list in questions"));
    }
    let messages = session.check_own_run(args.text("run_id")).await?;
    if !questions.is_empty() {
        return ask_together(session, caller, &args, questions, messages).await;
    }
    let ask = Ask {
        question: args.word("question"),
        question_id: args.owned("question_id"),
        clarification: clarification(&args),
        context: args.owned("context"),
        options: args.texts("options"),
        default: args.owned("default"),
        blocking: args.truth("blocking").unwrap_or(true),
        expires_s: args.count("expires_s")?,
    };
    let at_once = session.compat() || !ask.blocking;
    let wait = caller.bounded(asked_s, if at_once { Duration::ZERO } else { caller.cap });
    put(session, caller, &args, &ask, wait, messages).await
}

/// Commits several questions as one group, then waits until none that blocks is open.
async fn ask_together(session: &Session, caller: &Caller, args: &Args, questions: Vec<Args>, mut messages: Vec<MessageView>) -> ToolResult {
    let asked_s = args.count("wait_s")?;
    let mut call = AskTogether { clarification: clarification(args), ..AskTogether::default() };
    for question in questions {
        call.questions.push(Ask {
            question: question.word("question"),
            question_id: question.owned("question_id"),
            clarification: None,
            context: question.owned("context").or_else(|| args.owned("context")),
            options: question.texts("options"),
            default: question.owned("default"),
            blocking: question.truth("blocking").or_else(|| args.truth("blocking")).unwrap_or(true),
            expires_s: args.count("expires_s")?,
        });
    }
    let at_once = session.compat() || call.questions.iter().all(|ask| !ask.blocking);
    let wait = caller.bounded(asked_s, if at_once { Duration::ZERO } else { caller.cap });
    let mut latest = match args.text("idempotency_key") {
        Some(key) => session.client().call_with_key(&call, key).await?,
        None => session.client().call(&call).await?,
    };
    if let Some(first) = latest.requests.first().filter(|_| !wait.is_zero()) {
        let read = ReadTogether { message_id: first.message_id.clone(), wait_ms: ms(wait) };
        match caller.held("waiting for the answers", session.client().call(&read)).await? {
            Ok(read) => {
                messages.extend(latest.requests.iter_mut().flat_map(|request| std::mem::take(&mut request.messages)));
                latest = read;
            }
            Err(error) => tracing::warn!(%error, "the wait for answers failed"),
        }
    }
    done(asked_together(&latest.requests, messages))
}

fn asked_together(requests: &[RequestView], mut messages: Vec<MessageView>) -> Shown {
    messages.extend(requests.iter().flat_map(|request| request.messages.iter().cloned()));
    let first = requests.first().map_or("", |request| request.message_id.as_str());
    let open: Vec<&RequestView> = requests.iter().filter(|request| request.status == RequestStateKind::Pending).collect();
    let answers: Vec<Value> = requests
        .iter()
        .map(|request| {
            json!({"message_id": request.message_id, "number": request.number, "question_id": request.question_id, "question": request.question,
                "status": request.status, "answer": request.answer, "answered_by": request.answered_by})
        })
        .collect();
    let status = if open.is_empty() { "answered" } else { "pending" };
    let mut shown = with_messages(Shown::new(json!({"message_id": first, "messageId": first, "status": status, "answers": answers})), &messages);
    for request in requests {
        shown = match &request.answer {
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
        return shown.next("go on with your task, using these answers; where one is missing, decide yourself and say so in your report");
    }
    let numbers: Vec<String> = open.iter().map(|request| line(&request.number, 24)).collect();
    let instructions =
        format!("Kept and seen by your parent: {}. Call check_answer for each before you need it; do not ask again.", numbers.join(", "));
    shown.with("instructions", instructions.as_str()).next(instructions)
}

/// Commits a request for a decision, then waits for it.
pub(super) async fn request_approval(session: &Session, caller: &Caller, args: Args) -> ToolResult {
    let asked_s = args.count("wait_s")?;
    let messages = session.check_own_run(args.text("run_id")).await?;
    let ask = RequestApproval {
        action: args.word("action"),
        preview: args.owned("preview"),
        risk: args.owned("risk"),
        context: args.owned("context"),
        options: args.texts("options"),
        default: args.text("default").map(|word| if word == "approve" { DecisionWord::Approve } else { DecisionWord::Deny }),
        blocking: args.truth("blocking").unwrap_or(true),
        expires_s: args.count("expires_s")?,
    };
    let wait = caller.bounded(asked_s, if session.compat() || !ask.blocking { Duration::ZERO } else { caller.cap });
    put(session, caller, &args, &ask, wait, messages).await
}

/// Commits a request that somebody else does a task, then waits for the decision; where the run
/// waits for the task, for its end, too.
pub(super) async fn delegate_work(session: &Session, caller: &Caller, args: Args) -> ToolResult {
    let asked_s = args.count("wait_s")?;
    let messages = session.check_own_run(args.text("run_id")).await?;
    let ask = Delegate {
        task: args.word("new_task_description"),
        agent: args.owned("agent"),
        cwd: args.owned("directory"),
        independence: args.value("independence"),
        priority: args.value("priority"),
        reason: args.owned("reason"),
        context_required: args.owned("context_required"),
        coordination: args.owned("coordination"),
        estimated_duration: args.owned("estimated_duration"),
        expires_s: args.count("expires_s")?,
    };
    let wait = caller.bounded(asked_s, if session.compat() { Duration::ZERO } else { caller.cap });
    put(session, caller, &args, &ask, wait, messages).await
}

/// Commits a request, waits so long for what becomes of it, and says so.
async fn put<C: Call<Reply = RequestView>>(
    session: &Session,
    caller: &Caller,
    args: &Args,
    ask: &C,
    wait: Duration,
    mut messages: Vec<MessageView>,
) -> ToolResult {
    let mut latest = match args.text("idempotency_key") {
        Some(key) => session.client().call_with_key(ask, key).await?,
        None => session.client().call(ask).await?,
    };
    if !wait.is_zero() {
        let read = ReadRequest { message_id: latest.message_id.clone(), wait_ms: ms(wait) };
        match caller.held("waiting for the answer", session.client().call(&read)).await? {
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

fn asked(request: &RequestView) -> ToolResult {
    if let Some(refusal) = ended_unanswered(request) {
        return Err(refusal);
    }
    let mut shown = described(request);
    if let Some(answer) = request.answer.as_ref().filter(|_| !request.held) {
        return done(answer_line(shown.with("answer", answer.as_str()).with("answerContent", answer.as_str()), request, answer));
    }
    let number = line(&request.number, 24);
    let kind = line(request.kind.as_str(), 20);
    let instructions = if let Some(child) = request.child_name.as_ref().filter(|_| request.held) {
        format!(
            "Approved: run {} is at work on it, and you wait for it. Call check_answer with message_id {number}: it returns its result.",
            line(child, 60)
        )
    } else if request.kind == RequestKind::Approval {
        format!(
            "Your approval {number} is pending and your parent sees it. Do not do it yet: call check_answer with message_id {number}, which waits for the decision."
        )
    } else if request.blocking {
        format!(
            "Your {kind} {number} is kept and your parent sees it. Call check_answer with message_id {number}: it waits for the answer. Do not ask again."
        )
    } else {
        format!(
            "Your {kind} {number} is kept and your parent sees it. Go on with your work and call check_answer with message_id {number} when you need the answer."
        )
    };
    // Pending is no failure, so it is said as what to do.
    shown = shown
        .with("instructions", instructions.as_str())
        .line(format!("asked {number}, message_id {}: no answer yet", line(&request.message_id, 60)));
    done(shown.next(instructions))
}

/// Waits for an answer: as long as the caller wants, its client allows, and patience lasts, which
/// is counted from the first look at this request.
pub(super) async fn check_answer(session: &Session, caller: &Caller, args: Args) -> ToolResult {
    let asked_s = args.count("wait_s")?;
    let messages = session.check_own_run(args.text("run_id")).await?;
    let message_id = args.word("message_id");
    let mut request = session.client().call(&ReadRequest { message_id: message_id.clone(), wait_ms: 0 }).await?;
    request.messages.splice(..0, messages);
    if is_settled(&request) {
        session.forget_check(&request.message_id);
        return checked(session, caller, &request);
    }
    let patience = Duration::from_millis(request.patience_ms);
    // Patience is for silence: a run that is at work on what was delegated is none.
    let left = if request.held { caller.cap } else { patience.saturating_sub(session.first_check(&request.message_id).elapsed()) };
    // The original of this name was made for polling.
    let default = if caller.alias.is_some() { Duration::ZERO } else { caller.cap };
    let wait = caller.bounded(asked_s, default).min(left);
    let mut latest = request;
    if !wait.is_zero() {
        let read = ReadRequest { message_id, wait_ms: ms(wait) };
        let earlier = std::mem::take(&mut latest.messages);
        latest = caller.held("waiting for the answer", session.client().call(&read)).await??;
        latest.messages.splice(..0, earlier);
    }
    if is_settled(&latest) || latest.held {
        session.forget_check(&latest.message_id);
        return checked(session, caller, &latest);
    }
    if session.first_check(&latest.message_id).elapsed() >= patience {
        session.forget_check(&latest.message_id);
        return Err(stalled(&latest, patience));
    }
    checked(session, caller, &latest)
}

/// There is something that the run can go on with.
fn is_settled(request: &RequestView) -> bool {
    request.status != RequestStateKind::Pending && !request.held
}

fn stalled(request: &RequestView, patience: Duration) -> Refusal {
    let number = line(&request.number, 24);
    Refusal::new(
        codes::STALLED,
        format!("Stalled: Parent No-Response. Nobody answered {number} within {} s of waiting; it stays open", patience.as_secs()),
        format!(
            "go on with your best assumption and say so in your report, or call check_answer message_id={number} again later: a late answer counts"
        ),
    )
}

fn checked(session: &Session, caller: &Caller, request: &RequestView) -> ToolResult {
    if let Some(refusal) = ended_unanswered(request) {
        return Err(refusal);
    }
    let answer = request.answer.as_ref().filter(|_| !request.held);
    let has_answer = answer.is_some();
    let mut shown = described(request)
        .with("question", request.question.as_str())
        .with("answer", json!(answer))
        .with("message_status", request.message_status.as_str())
        .with("has_answer", has_answer)
        .with("hasAnswer", has_answer)
        .with("asked_at", request.asked_at.as_str())
        .with("expires_at", request.expires_at.as_str())
        .with("answered_at", json!(request.answered_at));
    if session.compat() || caller.alias.is_some() {
        shown = shown
            .with("questionContent", request.question.as_str())
            .with("answerContent", json!(request.answer))
            .with("messageStatus", request.message_status.as_str());
    }
    shown = shown.line(format!("{} asked at {}: {}", line(&request.number, 24), line(&request.asked_at, 40), quoted(&request.question, 300)));
    match (answer, &request.child_name) {
        (Some(answer), _) => done(answer_line(shown, request, answer)),
        (None, Some(child)) => {
            let again = format!("check_answer message_id={} again", line(&request.number, 24));
            done(shown.line(format!("approved: run {} is at work on it", line(child, 60))).next(again))
        }
        (None, None) => {
            let again = format!("check_answer message_id={} again, or go on with what does not depend on it", line(&request.number, 24));
            done(shown.line(format!("no answer yet; the question is open until {}", line(&request.expires_at, 40))).next(again))
        }
    }
}

/// The fields that every result about a question has.
fn described(request: &RequestView) -> Shown {
    let mut shown = Shown::new(json!({
        "message_id": request.message_id,
        "messageId": request.message_id,
        "number": request.number,
        "status": request.status,
    }));
    if let Some(id) = &request.question_id {
        shown = shown.with("question_id", id.as_str());
    }
    with_messages(shown, &request.messages)
}

/// Adds what the parent said meanwhile to the result of a tool whose own call brings no messages.
pub(super) async fn with_unread(session: &Session, shown: Shown) -> Shown {
    match session.client().call(&GetRun::default()).await {
        Ok(own) => with_messages(shown, &own.messages),
        // They come with the next call.
        Err(error) => {
            tracing::warn!(%error, "messages were not looked for");
            shown
        }
    }
}

/// What a run says along with its questions.
fn clarification(args: &Args) -> Option<ClarificationView> {
    let said = ClarificationView {
        reason: args.owned("reason"),
        blocked_at: args.owned("blocked_at"),
        can_resume_with: args.owned("can_resume_with"),
        current_state: args.owned("current_state"),
    };
    (said != ClarificationView::default()).then_some(said)
}

/// What the parent said meanwhile comes with whatever the worker calls next.
fn with_messages(shown: Shown, messages: &[MessageView]) -> Shown {
    if messages.is_empty() {
        return shown;
    }
    let data: Vec<Value> = messages
        .iter()
        .map(|message| json!({"message_id": message.message_id, "from": message.from, "sent_at": message.sent_at, "text": message.text}))
        .collect();
    shown.with("messages", data).lines(messages.iter().map(show::message_line))
}

/// Says by whom a request was answered, and how.
fn answer_text(request: &RequestView, answer: &str) -> String {
    let by = request.answered_by.as_deref().unwrap_or("nobody");
    let note = match (by, request.kind.known()) {
        ("default", Some(RequestKind::Question)) => " (nobody answered in time, so your default counts)",
        ("default", _) => " (nobody decided in time)",
        _ => "",
    };
    let own = request.question_id.as_ref().map_or_else(String::new, |id| format!(" (your {})", line(id, 60)));
    format!("answer to {}{own} by {}{note}: {}", line(&request.number, 24), line(by, 200), quoted(answer, usize::MAX))
}

fn answer_line(shown: Shown, request: &RequestView, answer: &str) -> Shown {
    let by = request.answered_by.as_deref().unwrap_or("nobody");
    let told = answer_text(request, answer);
    let independence = request.delegation.as_ref().map(|delegation| delegation.independence.known());
    let next = match request.decision.as_ref().map(Word::known) {
        None => "go on with your task, using this answer",
        Some(Some(DecisionKind::Approved)) if request.child_result.is_some() => "go on with your task, using that result",
        Some(Some(DecisionKind::Approved)) if independence == Some(Some(Independence::Parallel)) => {
            "go on with your own task; you are told when that run has ended"
        }
        Some(Some(DecisionKind::Approved)) if independence.is_some() => "go on with your own task; do not wait for that run",
        Some(Some(DecisionKind::Denied)) if independence.is_some() => "go on without it, as the reason says",
        Some(Some(DecisionKind::Approved)) => "do it as you showed it, and nothing beyond; what differs needs a new approval",
        Some(_) => "do not do it: find another way, or say in your report that there is none",
    };
    let mut shown = shown.with("answered_by", by).line(told).next(next);
    if let (Some(child), Some(name)) = (&request.child, &request.child_name) {
        shown = shown.with("child", child.as_str()).with("child_name", name.as_str());
        shown = shown.line(format!("run {} was started for it, run_id {}", line(name, 60), line(child, 60)));
    }
    if let Some(result) = &request.child_result {
        shown = shown.with("child_result", result.as_str()).line(format!("it ended: {}", quoted(result, usize::MAX)));
    }
    match &request.decision {
        None => shown,
        Some(decision) => shown.with("decision", decision.as_str()).with("reason", request.reason.as_deref().unwrap_or_default()),
    }
}

fn ended_unanswered(request: &RequestView) -> Option<Refusal> {
    let number = line(&request.number, 24);
    match request.status.known() {
        Some(RequestStateKind::Expired) => Some(Refusal::new(
            codes::EXPIRED,
            format!("{number} expired at {} without an answer", line(&request.expires_at, 40)),
            "decide yourself and say so in your report, or ask anew with ask_parent",
        )),
        Some(RequestStateKind::Withdrawn) => Some(Refusal::new(
            codes::WITHDRAWN,
            format!("{number} was withdrawn and will not be answered"),
            "go on without it, or ask anew with ask_parent",
        )),
        _ => None,
    }
}

pub(super) async fn check_subagent_status(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let run = session.client().call(&GetRun { run: args.word("run_id") }).await?;
    let mut shown = Shown::new(show::run_full(&run)).lines(show::run_lines(&run));
    shown = with_messages(shown, &run.messages);
    if session.compat() {
        shown = shown.with("runId", run.run_id.as_str()).with("agentName", run.agent.as_str());
    }
    // Looking is reading: answers that are there are handed over, as they would be by check_answer.
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
    done(shown.next(next))
}

pub(super) async fn update_subagent_status(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
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
    done(shown.next(if status == ReportedStatus::Running { "go on with your task" } else { "end your turn" }))
}

/// Leaves a checkpoint; the process is stopped unless it ends by itself.
pub(super) async fn stop_work(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
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
    done(shown.next("end your turn: you are started again when it is resolved"))
}
