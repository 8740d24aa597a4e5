//! What the tools of a parent do: one call of the hub each, and a short text about what came of it.

use super::args::{Args, GivenAnswer};
use super::caller::Caller;
use super::cursor::Cursor;
use super::refusal::Refusal;
use super::reply::Reply;
use super::session::Session;
use super::show::{self, QUESTION_CHARS, RESULT_CHARS, RESULT_CHARS_LISTED, Shown};
use super::text::{barred, cut, line, quoted};
use super::{chats, text};
use crate::config;
use crate::text::count;
use crate::view::{
    AgentView, AnswerOne, AnswerRequests, AttentionList, Cancel, ConfirmNotified, Delivery, Dispatch, GetRun, ListAgents, ListAttention,
    ListRequests, ListRuns, METADATA_MESSAGES_MAX, NotifiedRun, Pause, ReadEvents, ReadLogs, ReadRequest, RequestView, Resume, Retry, RunView,
    SendToRun, SetStatus, StartTask, Wait, WaitOutcome, WaitUntil, Waited, codes,
};
use adjutant_core::{Permissions, RequestKind, RequestStateKind, RunStateKind};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Most runs that a list shows.
const RUNS_MAX: u32 = 20;
/// Most questions that a list shows.
const QUESTIONS_MAX: u32 = 20;
/// Most events that a look at a run shows.
const EVENTS_MAX: u32 = 50;
/// Most chats with something for the caller that are shown with them.
const MENTIONS_MAX: usize = 5;
/// Most of one kind that the result of a wait shows in detail.
const WAITED_MAX: usize = 7;
/// Most characters of a task in a list.
const TASK_CHARS: usize = 80;
const LOG_CHARS_DEFAULT: u64 = 6_000;
const LOG_CHARS_MAX: u64 = 40_000;
/// How long a Task stays readable.
const TASK_TTL_MS: u64 = 24 * 60 * 60 * 1000;
const WAIT_AGAIN: &str = "wait_for_subagents";

type ToolResult = Result<Reply, Refusal>;

fn done(shown: Shown) -> ToolResult {
    Ok(Reply::Result(shown))
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) async fn run_subagent(session: &Session, caller: &Caller, args: Args) -> ToolResult {
    let wait = caller.bounded(args.count("wait_s")?, Duration::ZERO);
    let dispatch = Dispatch {
        permissions: args.value("permissions"),
        trust_repo: false,
        agent: args.word("agent"),
        prompt: args.word("prompt"),
        cwd: directory(session, args.text("cwd"))?,
        name: args.owned("name"),
        timeout_s: args.count("timeout_s")?,
        criteria: args.owned("criteria"),
        accept: match args.texts("accept") {
            accept if accept.is_empty() && args.has("accept") => {
                return Err(Refusal::invalid("accept is empty", "name the command, or leave it out"));
            }
            accept => accept,
        },
        env: config::dispatch_env(),
    };
    let mut run = match args.text("idempotency_key") {
        Some(key) => session.client().call_with_key(&dispatch, key).await?,
        None => session.client().call(&dispatch).await?,
    };
    if !wait.is_zero() {
        let first = Wait { runs: vec![run.run_id.clone()], wait_ms: ms(wait), ..Wait::default() };
        // The run is there whatever becomes of the wait.
        match caller.held("waiting for the run", session.client().call(&first)).await? {
            Ok(_) => run = session.client().call(&GetRun { run: run.run_id.clone() }).await?,
            Err(error) => tracing::warn!(%error, "the first wait failed"),
        }
        session.note_shown(run_confirmation(&run));
    }
    let mut shown = if session.compat() {
        Shown::new(show::run_full(&run)).with("runId", run.run_id.as_str()).with("agentName", run.agent.as_str())
    } else {
        Shown::new(started(&run))
    };
    shown = shown.line(format!("started {}", show::run_line(&run)));
    if !run.shares_directory_with.is_empty() {
        let others = line(&run.shares_directory_with.join(", "), 300);
        shown = shown.with("shares_directory_with", others.as_str()).line(format!("it shares its directory with {others}: keep their files apart"));
    }
    if dispatch.criteria.is_none() && dispatch.accept.is_empty() {
        let hint = "no criteria or accept says what success is";
        shown = shown.with("hint", hint).line(format!("hint: {hint}"));
    }
    shown = shown.lines(show::request_lines(&run));
    if !run.pending.is_empty() {
        return done(shown.next(reply_hint(&run.pending)));
    }
    if run.outcome.is_some() {
        let outcome = show::outcome_of(&run, RESULT_CHARS);
        return done(shown.line(format!("ended{outcome}")).next("check its work; get_subagent_logs shows what it did"));
    }
    if is_stopped(&run) {
        return done(shown.lines(show::attention_line(&run)).next(resume_hint(&run)));
    }
    done(shown.next("start other independent runs, then wait_for_subagents"))
}

/// What a start says of its run: its agent is the one that was asked for.
fn started(run: &RunView) -> Value {
    let mut data = show::run_brief(run, RESULT_CHARS);
    if let Some(data) = data.as_object_mut() {
        data.shift_remove("agent");
        data.shift_remove("open_questions");
        if !run.pending.is_empty() {
            data.insert("pending".to_owned(), run.pending.iter().take(show::QUESTIONS_MAX).map(show::request_brief).collect());
        }
    }
    data
}

/// Resolves a directory against the parent's own.
fn directory(session: &Session, given: Option<&str>) -> Result<String, Refusal> {
    let path = session.directory().join(given.unwrap_or_default());
    // Joining nothing leaves a slash behind.
    let path = if given.is_none_or(str::is_empty) { session.directory().clone() } else { path };
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Refusal::invalid(format!("{} is not UTF-8", quoted(&path.to_string_lossy(), 200)), "pass cwd, an absolute path")),
    }
}

pub(super) async fn wait_for_subagents(session: &Session, caller: &Caller, args: Args) -> ToolResult {
    let asked = args.count("wait_s")?;
    let until = match args.text("until") {
        Some("any") => WaitUntil::Any,
        Some("all") => WaitUntil::All,
        _ => WaitUntil::Attention,
    };
    let from = Cursor::given(&args, "cursor")?;
    let mut wait = Wait { runs: args.texts("run_ids"), until, after: from.map(|from| from.position), wait_ms: 0 };
    // Who says how long to wait wants to be called back then; a Task waits for as long as it takes.
    if caller.takes_tasks && asked.is_none() {
        let now = session.client().call(&wait).await?;
        if now.outcome != WaitOutcome::Timeout {
            session.note_shown(now.confirmation(!wait.runs.is_empty()));
            return done(waited(&now, from));
        }
        if wait.runs.is_empty() {
            wait.after = wait.after.or(Some(now.cursor));
        }
        return Ok(Reply::Task(session.client().call(&StartTask { wait, ttl_ms: TASK_TTL_MS }).await?));
    }
    wait.wait_ms = ms(caller.bounded(asked, caller.cap));
    let doing = if wait.runs.is_empty() {
        "waiting for all live runs".to_owned()
    } else {
        format!("waiting for {}", count(wait.runs.len() as u64, "run", "runs"))
    };
    let found = caller.held(&doing, session.client().call(&wait)).await??;
    session.note_shown(found.confirmation(!wait.runs.is_empty()));
    done(waited(&found, from))
}

/// What confirms that a client has the result that shows a run alone.
fn run_confirmation(run: &RunView) -> ConfirmNotified {
    let is_over = run.outcome.is_some() || run.state == RunStateKind::Stopped;
    ConfirmNotified { runs: is_over.then(|| NotifiedRun::from(run)).into_iter().collect(), until: None }
}

/// Shows what a wait found that began at a cursor: the first few in detail, the others by name.
#[must_use]
pub fn waited(waited: &Waited, from: Option<Cursor>) -> Shown {
    let Waited { outcome, needs, stopped, stopped_more, ended, ended_more, failed: _, working: underway, cursor: _ } = waited;
    // Those that wait for an answer are in `needs`.
    let asks = |run: &RunView| needs.iter().any(|request| request.blocking && request.run_id == run.run_id);
    let working: &Vec<RunView> = &underway.iter().filter(|run| !asks(run)).cloned().collect();
    let cursor = Cursor::after(from, waited.cursor, *outcome == WaitOutcome::Timeout).to_string();
    let (needs_told, stopped_told, ended_told, working_told) = (first(needs), first(stopped), first(ended), first(working));
    let names = |runs: &[RunView]| runs.iter().skip(WAITED_MAX).map(|run| run.name.clone()).collect::<Vec<_>>();
    let numbers: Vec<String> = needs.iter().skip(WAITED_MAX).map(|request| request.number.clone()).collect();
    let brief = |runs: &[RunView]| runs.iter().map(|run| show::run_brief(run, RESULT_CHARS)).collect::<Vec<_>>();
    let all = [
        ("needs", needs_told.iter().map(show::request_brief).collect()),
        ("stopped", brief(stopped_told)),
        ("ended", brief(ended_told)),
        ("working", brief(working_told)),
    ];
    let mut shown = Shown::new(json!({"outcome": outcome}));
    for (name, told) in all {
        if !told.is_empty() {
            shown = shown.with(name, told);
        }
    }
    shown = shown.with("cursor", cursor.as_str());
    shown = also(shown.lines(needs_told.iter().map(show::request_line)), "needs_more", "more questions", numbers);
    shown = also(shown.lines(stopped_told.iter().filter_map(show::attention_line)), "stopped_more", "more are stopped", names(stopped));
    if *stopped_more > 0 {
        shown = shown.line(format!("… and {stopped_more} others are stopped: get_pending_questions lists them"));
    }
    let told = ended_told.iter().map(|run| format!("{}{}", show::run_line(run), show::outcome_of(run, RESULT_CHARS)));
    shown = also(shown.lines(told), "ended_more", "more have ended", names(ended));
    if *ended_more > 0 {
        shown = shown.line(format!("… and {ended_more} others have ended: check_subagent_status lists them"));
    }
    if !working.is_empty() {
        let some: Vec<String> = working_told.iter().map(show::run_line).collect();
        shown = shown.line(format!("{} still working: {}", working.len(), some.join("; ")));
    }
    shown = also(shown, "working_more", "more are working", names(working));
    let again = format!("{WAIT_AGAIN} cursor={cursor}");
    let is_new = |run: &&RunView| run.attention.as_ref().is_some_and(|attention| attention.is_new);
    // A stop that was told before comes after what has happened since.
    let to_resume = stopped.iter().find(is_new).or(stopped.first().filter(|_| ended.is_empty() && underway.is_empty()));
    let paused = ended_told.iter().find(|run| run.state == RunStateKind::Stopped);
    let next = match (outcome.known(), to_resume.or(paused)) {
        _ if !needs.is_empty() => format!("{}, then {again}", reply_hint(needs)),
        (_, Some(run)) => format!("{}; then {again}", resume_hint(run)),
        (Some(WaitOutcome::Idle), _) if ended.is_empty() => {
            shown = shown.line("there is no live run to wait for");
            "run_subagent starts a run; check_subagent_status lists earlier ones".to_owned()
        }
        (Some(WaitOutcome::Timeout), _) => {
            shown = shown.line("nothing to report yet");
            again
        }
        _ if ended.is_empty() && working_told.iter().any(|run| run.retrying.is_some()) => {
            format!("its model fails: wait on, or cancel the run (steer_subagent) and use another agent; {again}")
        }
        _ if ended.is_empty() && working_told.iter().any(|run| run.silent_since.is_some()) => {
            format!("look whether it hangs (get_subagent_logs); steer_subagent sends it a message or cancels it; {again}")
        }
        _ if ended.is_empty() && working_told.iter().any(|run| run.overdue_since.is_some()) => {
            format!("look how far the overdue run is (check_subagent_status, get_subagent_logs); {again}")
        }
        _ if underway.is_empty() => "check the results (check_subagent_status, get_subagent_logs); nothing is left to wait for".to_owned(),
        _ => format!("check what ended; for the others {again}"),
    };
    shown.next(next)
}

/// Tells whether a run is stopped until somebody resumes it.
fn is_stopped(run: &RunView) -> bool {
    run.state == RunStateKind::Stopped && !run.resumes_by_itself
}

fn resume_hint(run: &RunView) -> String {
    if !run.choices.is_empty() {
        let words: Vec<String> = run.choices.iter().map(|choice| line(choice.choice.as_str(), 20)).collect();
        return format!("steer_subagent action=resume run_id={} choice={} (text: what it needs to know)", line(&run.name, 60), words.join("|"));
    }
    format!("steer_subagent action=resume run_id={} with what it needs to go on in text, and next_step", line(&run.name, 60))
}

fn first<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(WAITED_MAX)]
}

/// Names those that are not shown in detail.
fn also(shown: Shown, field: &str, what: &str, names: Vec<String>) -> Shown {
    if names.is_empty() {
        return shown;
    }
    let told = format!("… {} {what}: {}", names.len(), line(&names.join(", "), 2_000));
    shown.line(told).with(field, names)
}

fn reply_hint(needs: &[RequestView]) -> String {
    let numbers: Vec<String> = needs.iter().take(5).map(|request| line(&request.number, 24)).collect();
    match numbers.as_slice() {
        [one] if needs[0].kind != RequestKind::Question => format!("reply_subagent message_id={one} decision=approve, or deny with reason"),
        [one] => format!("reply_subagent message_id={one}"),
        several => format!("reply_subagent with answers for {}", several.join(", ")),
    }
}

pub(super) async fn check_subagent_status(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let Some(run) = args.owned("run_id") else { return list_runs(session).await };
    let run = session.client().call(&GetRun { run }).await?;
    session.note_shown(run_confirmation(&run));
    let mut shown = Shown::new(show::run_full(&run)).lines(show::run_lines(&run)).lines(show::request_lines(&run));
    if session.compat() {
        shown = with_metadata(session, shown, &run).await?;
    }
    if args.truth("history") == Some(true) || args.has("events_after") {
        shown = with_history(session, shown, &run, args.integer("events_after").unwrap_or(0)).await?;
    }
    let next = if !run.pending.is_empty() {
        reply_hint(&run.pending)
    } else if run.outcome.is_some() {
        "get_subagent_logs shows what it did; steer_subagent action=retry starts it anew".to_owned()
    } else if is_stopped(&run) {
        resume_hint(&run)
    } else {
        format!("{WAIT_AGAIN} (do not poll)")
    };
    done(shown.next(next))
}

/// Adds the events of a run after a position, oldest first.
async fn with_history(session: &Session, shown: Shown, run: &RunView, after: i64) -> Result<Shown, Refusal> {
    let read = ReadEvents { after, run: Some(run.run_id.clone()), limit: Some(EVENTS_MAX), wait_ms: 0 };
    let page = session.client().call(&read).await?;
    let lines: String = page.events.iter().map(|event| show::event_line(event) + "\n").collect();
    let has_more = page.events.len() >= EVENTS_MAX as usize;
    let more = if has_more { format!("; more with events_after={}", page.cursor) } else { String::new() };
    Ok(shown
        .with("events", page.events.iter().map(show::event_brief).collect::<Vec<_>>())
        .with("events_next", page.cursor)
        .line(format!("{} events{more}:", page.events.len()))
        .quotation(barred(&lines)))
}

/// Adds the original protocol's spelling of everything.
async fn with_metadata(session: &Session, shown: Shown, run: &RunView) -> Result<Shown, Refusal> {
    let Value::Object(metadata) = metadata(session, run).await? else { return Ok(shown) };
    Ok(metadata.into_iter().fold(shown, |shown, (name, value)| shown.with(&name, value)))
}

async fn metadata(session: &Session, run: &RunView) -> Result<Value, Refusal> {
    let all = ListRequests { run: Some(run.run_id.clone()), all: true, limit: Some(METADATA_MESSAGES_MAX) };
    let list = session.client().call(&all).await?;
    Ok(crate::view::metadata(run, &list.requests))
}

/// What a list of runs says of one.
fn listed(run: &RunView) -> Value {
    let mut data = show::run_brief(run, RESULT_CHARS_LISTED);
    data["task"] = json!(cut(&run.task, TASK_CHARS));
    data
}

async fn list_runs(session: &Session) -> ToolResult {
    let list = session.client().call(&ListRuns { all: true, limit: Some(RUNS_MAX) }).await?;
    let mut shown = Shown::new(json!({"runs": list.runs.iter().map(listed).collect::<Vec<_>>()}));
    shown = shown.lines(list.runs.iter().map(|run| {
        let asks = if run.pending_total == 0 { String::new() } else { format!(", {}", count(run.pending_total, "open question", "open questions")) };
        format!("{}{asks}, task {}", show::run_line(run), quoted(&run.task, 80))
    }));
    if list.more > 0 {
        shown = shown.with("more", list.more).line(format!("… {}", count(list.more, "older run", "older runs")));
    }
    if list.runs.is_empty() {
        return done(shown.line("no runs yet").next("list_coding_agents, then run_subagent"));
    }
    let attention = session.client().call(&ListAttention { limit: Some(1), ..ListAttention::default() }).await?;
    let live = list.runs.iter().any(|run| run.outcome.is_none() && !is_stopped(run));
    done(shown.next(match (attention.requests.first(), attention.runs.first()) {
        (Some(_), _) => "get_pending_questions, then reply_subagent".to_owned(),
        (None, Some(run)) if is_stopped(run) => resume_hint(run),
        (None, None) if !live => "check_subagent_status run_id=… for the details of one".to_owned(),
        (None, _) => format!("{WAIT_AGAIN} (do not poll)"),
    }))
}

pub(super) async fn get_subagent_logs(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let max = args.count("max_chars")?.unwrap_or(LOG_CHARS_DEFAULT).clamp(1, LOG_CHARS_MAX);
    let read = ReadLogs { run: args.word("run_id"), after: args.count("after")?, max_bytes: Some(max), grep: args.owned("grep"), wait_ms: 0 };
    let page = session.client().call(&read).await?;
    let at_end = page.next >= page.total;
    let state = match (at_end, page.ended) {
        (false, _) => "with more behind",
        (true, false) => "still growing",
        (true, true) => "complete",
    };
    let shown = Shown::new(json!({
        "run_id": page.run_id,
        "name": page.name,
        "text": page.text,
        "from": page.from,
        "next_after": page.next,
        "total": page.total,
        "omitted": page.omitted,
        "ended": page.ended,
        "path": page.path,
        "paths": page.paths,
    }))
    .line(format!("log of {}, bytes {} to {} of {}, {state}", line(&page.name, 60), page.from, page.next, page.total))
    .lines((page.omitted > 0).then(|| format!("{} bytes within were dropped: the log is limited", page.omitted)))
    .line(format!("whole log: {}", line(&page.paths.join(", "), 4_096)))
    .quotation(barred(&page.text));
    done(shown.next(match (at_end, page.ended) {
        (false, _) => format!("get_subagent_logs run_id={} after={} for more", line(&page.name, 60), page.next),
        (true, false) => format!("{WAIT_AGAIN}; for what comes later, after={}", page.next),
        (true, true) if page.from > 0 => "that is the end; after=0 begins at the start".to_owned(),
        (true, true) => "that is all of it".to_owned(),
    }))
}

pub(super) async fn get_pending_questions(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    if let Some(message_id) = args.owned("message_id") {
        return one_question(session, message_id).await;
    }
    let call = ListAttention { run: args.owned("run_id"), after: args.owned("after"), limit: Some(QUESTIONS_MAX) };
    let list = session.client().call(&call).await?;
    let AttentionList { requests, requests_more, runs, runs_more, mentions, mentions_more } = &list;
    let brief = |run: &RunView| show::run_brief(run, RESULT_CHARS_LISTED);
    let question = |request: &RequestView| if session.compat() { show::request_full(request) } else { show::request_brief(request) };
    let mut shown =
        Shown::new(json!({"questions": requests.iter().map(question).collect::<Vec<_>>()})).lines(requests.iter().map(show::request_line));
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
        shown = shown.line(format!("… {requests_more} more questions: get_pending_questions after={}", line(&last.number, 24)));
    }
    if requests.is_empty() {
        shown = shown.line("no open questions");
    }
    shown = shown.lines(runs.iter().filter_map(show::attention_line));
    if *runs_more > 0 {
        shown = shown.line(format!("… {runs_more} more runs need you: check_subagent_status lists them"));
    }
    let told = &mentions[..mentions.len().min(MENTIONS_MAX)];
    shown = shown.lines(told.iter().map(chats::mention_line));
    if mentions.len() > told.len() || *mentions_more {
        shown = shown.line("… more chats have messages for you: list_chats");
    }
    if !told.is_empty() {
        shown = shown.with("mentions", json!(told.iter().map(chats::mention_brief).collect::<Vec<_>>()));
    }
    let stopped = runs.iter().find(|run| is_stopped(run));
    done(shown.next(match (requests.is_empty(), stopped, runs.first(), mentions.first()) {
        (false, ..) => reply_hint(requests),
        (true, Some(run), ..) => resume_hint(run),
        (true, None, Some(run), _) => format!("check_subagent_status run_id={}", line(&run.name, 60)),
        (true, None, None, Some(mention)) => format!("show_chat chat_id={}", mention.chat_id),
        (true, None, None, None) => WAIT_AGAIN.to_owned(),
    }))
}

async fn one_question(session: &Session, message_id: String) -> ToolResult {
    let request = session.client().call(&ReadRequest { message_id, wait_ms: 0 }).await?;
    let mut data = show::request_full(&request);
    data["question"] = json!(request.question);
    if let Some(context) = &request.context {
        data["context"] = json!(context);
    }
    if let Some(said) = &request.clarification {
        data["clarification"] = json!(said);
    }
    if let Some(preview) = &request.preview {
        data["preview"] = json!(preview);
    }
    let (id, asked, expires) = (line(&request.message_id, 60), line(&request.asked_at, 40), line(&request.expires_at, 40));
    let mut shown = Shown::new(json!({"questions": [data]})).line(show::request_line(&request));
    shown = shown.line(format!("message_id {id}, asked at {asked}, expires at {expires}"));
    let said = request.clarification.iter().flat_map(show::clarification_parts).map(|(_, text)| Some(text));
    let long = [Some(request.question.as_str()), request.context.as_deref(), request.preview.as_deref()].into_iter().chain(said);
    for part in long.flatten().filter(|part| part.chars().count() > QUESTION_CHARS) {
        shown = shown.line(format!("in full: {}", quoted(part, usize::MAX)));
    }
    let open = request.status == RequestStateKind::Pending;
    done(if open { shown.next(reply_hint(&[request])) } else { shown.next(WAIT_AGAIN) })
}

pub(super) async fn reply_subagent(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let own_run = args.owned("run_id");
    let answers: Vec<AnswerOne> = args
        .answers("answers")?
        .into_iter()
        .chain(args.given()?)
        .map(|given| {
            let GivenAnswer { run, message_id, answer, decision, reason, changes } = given;
            AnswerOne { run: run.or_else(|| own_run.clone()), message_id, answer, decision, reason, changes, content_hash: None }
        })
        .collect();
    if answers.is_empty() {
        return Err(Refusal::invalid("there is no answer", "pass answer (or decision) with message_id (or run_id), or a list in answers"));
    }
    if answers.iter().any(|answer| answer.run.is_none() && answer.message_id.is_none()) {
        return Err(Refusal::invalid("it does not say which question is answered", "pass message_id, such as Q12; get_pending_questions lists them"));
    }
    let answered = session.client().call(&AnswerRequests { answers }).await?;
    let told: Vec<String> =
        answered.requests.iter().map(|request| format!("{} of {}", line(&request.number, 24), line(&request.run_name, 60))).collect();
    let message = format!("answered {}", told.join(", "));
    let mut shown = Shown::new(json!({
        "success": true,
        "message": message,
        "requests": answered.requests.iter().map(answered_brief).collect::<Vec<_>>(),
        "runs": answered.runs.iter().map(|run| show::run_brief(run, RESULT_CHARS_LISTED)).collect::<Vec<_>>(),
    }))
    .line(message)
    .lines(answered.requests.iter().map(show::recorded_line))
    .lines(answered.requests.iter().filter_map(|request| request.child_name.as_ref()).map(|child| format!("started {}", line(child, 60))))
    .lines(answered.runs.iter().map(show::run_line));
    if let (true, Some(run)) = (session.compat(), answered.runs.first()) {
        shown = shown.with("updatedMetadata", metadata(session, run).await?);
    }
    let open: Vec<RequestView> = answered.runs.iter().flat_map(|run| run.pending.clone()).collect();
    shown = shown.lines(open.iter().take(WAITED_MAX).map(|request| format!("still open: {}", show::request_line(request))));
    let stopped = answered.runs.iter().find(|run| is_stopped(run));
    shown = shown.lines(stopped.and_then(show::attention_line));
    done(shown.next(match stopped {
        _ if !open.is_empty() => reply_hint(&open),
        Some(run) => resume_hint(run),
        None => WAIT_AGAIN.to_owned(),
    }))
}

/// What was recorded about a request.
fn answered_brief(request: &RequestView) -> Value {
    let mut brief = json!({"message_id": request.number, "status": request.status});
    let fields = [
        ("answer", request.answer.as_deref().map(|answer| json!(cut(answer, RESULT_CHARS_LISTED)))),
        ("option", request.option_chosen().map(Value::from)),
        ("decision", request.decision.as_ref().map(|decision| json!(decision))),
        ("child_name", request.child_name.as_deref().map(Value::from)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            brief[name] = value;
        }
    }
    brief
}

pub(super) async fn steer_subagent(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let (run, text, action) = (args.word("run_id"), args.owned("text"), args.word("action"));
    if action != "resume" && args.has("next_step") {
        return Err(Refusal::invalid("next_step belongs to action=resume", "leave next_step out, or pass action=resume"));
    }
    match action.as_str() {
        "message" => {
            let Some(text) = text else { return Err(Refusal::invalid("there is no message", "pass it in text")) };
            let message = session.client().call(&SendToRun { run, text }).await?;
            let shown = Shown::new(json!({
                "run_id": message.run_id,
                "name": message.run_name,
                "action": action,
                "message_id": message.message_id,
                "delivery": message.delivery,
            }));
            let how = match message.delivery.known() {
                Some(Delivery::Live) => "it has it already",
                Some(Delivery::ToolResult) => "it gets it with its next tool call",
                _ => "it gets it as soon as it can take it",
            };
            let told = format!("message for {}: {} ({how})", line(&message.run_name, 60), line(message.delivery.as_str(), 40));
            done(shown.line(told).next(WAIT_AGAIN))
        }
        "stop" => {
            let run = session.client().call(&Pause { run }).await?;
            done(steered(&run, &action).line(show::run_line(&run)).next("steer_subagent action=resume goes on"))
        }
        "resume" => {
            let (next_step, choice) = (args.owned("next_step"), args.value("choice"));
            let run = session.client().call(&Resume { run, resolution: text, next_step, choice, env: config::dispatch_env() }).await?;
            done(steered(&run, &action).line(show::run_line(&run)).next(WAIT_AGAIN))
        }
        "cancel" => {
            let run = session.client().call(&Cancel { run, reason: text }).await?;
            done(steered(&run, &action).line(show::run_line(&run)).next(format!("{WAIT_AGAIN} shows its end")))
        }
        _ => {
            let run = session.client().call(&Retry { run, prompt: text, env: config::dispatch_env() }).await?;
            done(steered(&run, &action).line(format!("started {}", show::run_line(&run))).next(WAIT_AGAIN))
        }
    }
}

fn steered(run: &RunView, action: &str) -> Shown {
    Shown::new(show::run_brief(run, RESULT_CHARS_LISTED)).with("action", action)
}

pub(super) async fn update_subagent_status(session: &Session, _caller: &Caller, args: Args) -> ToolResult {
    let set = SetStatus {
        run: args.word("run_id"),
        status: args.value("status").unwrap_or_default(),
        summary: args.owned("summary"),
        ..SetStatus::default()
    };
    let run = session.client().call(&set).await?;
    let mut shown = Shown::new(show::run_brief(&run, RESULT_CHARS_LISTED));
    if let Some(annotation) = &run.annotation {
        shown = shown.with("annotation", cut(annotation, RESULT_CHARS)).line(format!("noted: {}", quoted(annotation, RESULT_CHARS)));
    }
    if session.compat() {
        shown = with_metadata(session, shown, &run).await?;
    }
    let next = if run.outcome.is_some() { "nothing more to do for this run" } else { WAIT_AGAIN };
    done(shown.line(show::run_line(&run)).next(next))
}

pub(super) async fn list_agents(session: &Session, _caller: &Caller, _args: Args) -> ToolResult {
    let list = session.client().call(&ListAgents { env: config::dispatch_env(), versions: true, ..ListAgents::default() }).await?;
    let mut shown = Shown::new(json!({"agents": list.agents.iter().map(agent_brief).collect::<Vec<_>>()})).lines(list.agents.iter().map(agent_line));
    let unasked: Vec<&str> = list.agents.iter().filter(|agent| agent.version_pending).map(|agent| agent.name.as_str()).collect();
    if !unasked.is_empty() {
        let told = format!("versions not known yet: {} (a later call has them)", line(&unasked.join(", "), 600));
        shown = shown.with("versions_pending", unasked).line(told);
    }
    if !list.warnings.is_empty() {
        let warnings: Vec<String> = list.warnings.iter().map(|warning| line(warning, 300)).collect();
        shown = shown.lines(warnings.iter().map(|warning| format!("warning: {warning}"))).with("warnings", warnings);
    }
    let signed_in = list.agents.iter().find(|agent| agent.found && agent.sign_in.as_ref().is_some_and(|sign_in| sign_in.found));
    done(match signed_in {
        Some(agent) => shown.next(format!("run_subagent agent={} prompt=…", line(&agent.name, 60))),
        None if list.agents.iter().any(|agent| agent.found) => shown.next("run_subagent with the name of one that suits"),
        None => shown.next("no agent can be used: install one, or ask the user"),
    })
}

/// What the line about an agent says, in fields.
fn agent_brief(agent: &AgentView) -> Value {
    let mut brief = json!({"name": agent.name, "description": cut(&agent.description, 300)});
    let fields = [
        ("usable", (!agent.found).then(|| json!(false))),
        ("problem", agent.problem.as_deref().map(|problem| json!(cut(problem, 200)))),
        ("version", agent.version.as_deref().map(Value::from)),
        ("signed_in", agent.sign_in.as_ref().map(|sign_in| json!(sign_in.found))),
        ("sign_in", agent.sign_in.as_ref().filter(|sign_in| agent.found && !sign_in.found).map(|sign_in| json!(cut(&sign_in.how, 150)))),
        ("tried", agent.documented_only.then(|| json!(false))),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            brief[name] = value;
        }
    }
    brief
}

fn agent_line(agent: &AgentView) -> String {
    let mut remarks = Vec::new();
    match (&agent.problem, agent.found) {
        (None, true) => {}
        (Some(problem), _) => remarks.push(format!("not usable: {}", line(problem, 200))),
        (None, false) => remarks.push("not found".to_owned()),
    }
    if let Some(sign_in) = agent.sign_in.as_ref().filter(|sign_in| agent.found && !sign_in.found) {
        remarks.push(format!("nobody seems to be signed in: {}", line(&sign_in.how, 150)));
    }
    if agent.documented_only {
        remarks.push("never tried".to_owned());
    }
    if !agent.unsupported_profiles.is_empty() {
        let all = Permissions::ALL.into_iter().filter(|profile| !agent.unsupported_profiles.contains_key(&(*profile).into())).map(Permissions::word);
        remarks.push(format!("permissions: only {}", all.collect::<Vec<_>>().join(", ")));
    }
    let version = agent.version.as_ref().map(|version| format!(" {}", line(version, 40))).unwrap_or_default();
    let remarks = if remarks.is_empty() { String::new() } else { format!(" [{}]", remarks.join("; ")) };
    format!("{}: {}{version}{remarks}", line(&agent.name, 60), line(&agent.description, 300))
}

/// Names the directory that a parent's connection belongs to.
///
/// # Errors
/// The working directory is gone or has no usable name.
pub(super) fn project(directory: &Path) -> Result<String, Refusal> {
    let hint = "start adj mcp in the project's directory, or pass --client NAME";
    let path = directory
        .canonicalize()
        .map_err(|error| Refusal::new(codes::INVALID, format!("{}: {error}", text::quoted(&directory.to_string_lossy(), 200)), hint))?;
    match path.to_str() {
        Some(name) => Ok(name.to_owned()),
        None => Err(Refusal::new(codes::INVALID, format!("{} is not UTF-8", text::quoted(&path.to_string_lossy(), 200)), hint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{AttentionKind, AttentionView};
    use adjutant_core::StopReason;
    use adjutant_core::attention::Need;

    #[test]
    fn a_wait_for_many_runs_shows_few_and_names_all() {
        let run = |n: usize| RunView { name: format!("run-{n}"), agent: "echo".into(), result: Some("r".repeat(9_000)), ..RunView::default() };
        let request = |n: usize| RequestView { number: format!("Q{n}"), question: "q".repeat(5_000), ..RequestView::default() };
        let many = Waited {
            outcome: WaitOutcome::Event.into(),
            needs: (0..40).map(request).collect(),
            ended: (0..40).map(run).collect(),
            working: (0..40).map(run).collect(),
            cursor: 9,
            ..Waited::default()
        };
        let result = waited(&many, None).into_result();
        let text = result.content[0].as_text().expect("text").text.clone();
        assert!(text.lines().count() <= 25 && text.ends_with("then wait_for_subagents cursor=9"), "{text}");
        let data = result.structured_content.expect("data");
        for n in 0..40 {
            let name = format!("run-{n}");
            assert!(text.contains(&name) && data.to_string().contains(&name) && text.contains(&format!("Q{n}")), "{name}");
        }
        assert!(data.to_string().len() < 48 * 1024, "{} bytes", data.to_string().len());
        assert_eq!(data["ended_more"].as_array().map(Vec::len), Some(33));
    }

    #[test]
    fn a_stopped_run_is_shown_with_how_to_go_on() {
        let attention = AttentionView {
            kind: AttentionKind::Stopped.into(),
            why: Need::Resume(StopReason::Blocker).into(),
            details: "node_modules is missing".into(),
            needs: Some("npm install".into()),
            is_new: true,
        };
        let run = RunView {
            name: "otter".into(),
            state: RunStateKind::Stopped.into(),
            attention: Some(attention),
            result: Some("[/STOP_WORK]".into()),
            ..RunView::default()
        };
        let stopped = Waited { outcome: WaitOutcome::Event.into(), stopped: vec![run], cursor: 5, ..Waited::default() };
        let text = waited(&stopped, None).into_result().content[0].as_text().expect("text").text.clone();
        assert!(text.contains("action=resume run_id=otter") && text.ends_with("cursor=5"), "{text}");
        assert!(text.contains("node_modules is missing") && text.contains("npm install") && !text.contains("STOP_WORK"), "{text}");
    }

    #[test]
    fn nothing_to_wait_for_is_said_so() {
        let idle = Waited { outcome: WaitOutcome::Idle.into(), ..Waited::default() };
        let text = waited(&idle, None).into_result().content[0].as_text().expect("text").text.clone();
        assert!(text.contains("no live run") && text.contains("next: run_subagent"), "{text}");
    }
}
