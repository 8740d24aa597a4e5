//! Starting a run.

use super::confirmation::run_confirmation;
use super::next_step::is_stopped;
use super::next_step::reply_hint;
use super::next_step::resume_hint;
use super::wait::TASK_TTL_MS;
use crate::config;
use crate::mcp::caller::{Caller, wait_ms};
use crate::mcp::elicit::{self, ElicitOutcome};
use crate::mcp::refusal::Refusal;
use crate::mcp::reply::{Reply, ToolResult, reply};
use crate::mcp::session::Session;
use crate::mcp::show::{self, RESULT_CHARS, Shown};
use crate::mcp::text;
use crate::mcp::text::{line, quoted};
use crate::view::{
    Dispatch, GetRun, ListAgents, RunView, StartTask, Wait, WaitOutcome, Word, codes,
};
use adjutant_core::pool::AfterFailed;
use adjutant_core::signal::Priority;
use adjutant_core::{Fence, Isolation, Permissions};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// The beginning of the original protocol's names: a tool for each agent.
const ORIGINAL_PREFIX: &str = "run_subagent_";

/// The arguments of `run_subagent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct RunSubagentArgs {
    agent: String,
    prompt: String,
    cwd: Option<String>,
    name: Option<String>,
    model: Option<String>,
    timeout_s: Option<u64>,
    permissions: Option<Word<Permissions>>,
    isolation: Option<Word<Isolation>>,
    fence: Option<Word<Fence>>,
    criteria: Option<String>,
    accept: Option<Vec<String>>,
    pool: Option<String>,
    priority: Option<Word<Priority>>,
    after: Option<Vec<String>>,
    after_failed: Option<Word<AfterFailed>>,
    no_auto_resume: Option<bool>,
    budget: Option<String>,
    wait_s: Option<u64>,
    idempotency_key: Option<String>,
}

pub(in crate::mcp) async fn run_subagent(
    session: &Session,
    caller: &Caller,
    args: RunSubagentArgs,
) -> ToolResult {
    let wait = caller.bounded(args.wait_s, Duration::ZERO);
    let by_alias = caller
        .alias
        .as_deref()
        .is_some_and(|alias| alias.starts_with(ORIGINAL_PREFIX));
    // The original tool of each agent knows no permissions.
    let only_supported = match &args.permissions {
        None if session.compat() && by_alias => {
            only_supported_permissions(session, &args.agent).await?
        }
        _ => None,
    };
    let dispatch = Dispatch {
        model: args.model,
        args: Vec::new(),
        set_env: BTreeMap::new(),
        permissions: args.permissions.or_else(|| only_supported.map(Into::into)),
        isolation: args.isolation,
        with_changes: false,
        trust_repo: false,
        no_auto_resume: args.no_auto_resume.unwrap_or_default(),
        pool: args.pool,
        priority: args.priority,
        after: args.after.unwrap_or_default(),
        after_failed: args.after_failed,
        budget: args.budget,
        fence: args.fence,
        agent: args.agent,
        prompt: args.prompt,
        cwd: directory(session, args.cwd.as_deref())?,
        name: args.name,
        timeout_s: args.timeout_s,
        criteria: args.criteria,
        accept: match args.accept {
            Some(accept) if accept.is_empty() => {
                return Err(Refusal::invalid(
                    "accept is empty",
                    "name the command, or omit accept",
                ));
            }
            accept => accept.unwrap_or_default(),
        },
        env: config::dispatch_env(),
    };
    elicit::take_input(session, caller).await?;
    let mut run = match (caller.state("run"), args.idempotency_key.as_deref()) {
        // The client repeats the call with its person's answer.
        (Some(run), _) => {
            session
                .client()
                .call(&GetRun {
                    run,
                    ..GetRun::default()
                })
                .await?
        }
        (None, Some(key)) => session.client().call_with_key(&dispatch, key).await?,
        (None, None) => session.client().call(&dispatch).await?,
    };
    if !wait.is_zero() {
        let mut first = Wait {
            runs: vec![run.run_id.clone()],
            ..Wait::default()
        };
        if caller.accepts_tasks
            && session.client().call(&first).await?.outcome == WaitOutcome::Timeout
        {
            let task = session
                .client()
                .call(&StartTask {
                    wait: first,
                    ttl_ms: TASK_TTL_MS,
                    declined: Vec::new(),
                })
                .await?;
            return Ok(Reply::Task(Box::new(task)));
        }
        let until = Instant::now() + wait;
        // The run is stored, however the wait ends.
        let waited = loop {
            first.wait_ms = wait_ms(until.saturating_duration_since(Instant::now()));
            let waited = caller
                .wait_with_progress("waiting for the run", session.client().call(&first))
                .await?;
            let Ok(found) = &waited else { break waited };
            // The caller waits for the result, so a report alone does not end its wait, unless the process then stays silent.
            if found.has_only_reports() && Instant::now() < until {
                continue;
            }
            match elicit::ask_person(session, caller, &found.needs, Some(&run.run_id)).await? {
                ElicitOutcome::Nothing => break waited,
                ElicitOutcome::Required(required) => return Ok(Reply::Input(required)),
                ElicitOutcome::Closed => {}
            }
        };
        match waited {
            Ok(_) => {
                run = session
                    .client()
                    .call(&GetRun {
                        run: run.run_id.clone(),
                        ..GetRun::default()
                    })
                    .await?
            }
            Err(error) => tracing::warn!(%error, "the first wait failed"),
        }
        session.note_shown(caller.connection, None, run_confirmation(&run));
    }
    let mut shown = if session.compat() {
        Shown::new(show::run_full(&run))
            .with("runId", run.run_id.as_str())
            .with("agentName", run.agent.as_str())
    } else {
        Shown::new(started(&run))
    };
    shown = shown.line(format!("started {}", show::run_line(&run)));
    if let Some(only) = only_supported {
        let (agent, only) = (line(&run.agent, 60), only.word());
        shown = shown.with("permissions", only).line(format!(
            "permissions {only}: {agent} supports no narrower ones, and the call names none"
        ));
    }
    if !run.shares_directory_with.is_empty() {
        let others = line(&run.shares_directory_with.join(", "), 300);
        shown = shown
            .with("shares_directory_with", others.as_str())
            .line(format!("it shares its directory with {others}: keep their files apart, or start it with isolation clone"));
    }
    for budget in run.budgets.iter().filter(|budget| budget.unknown.is_some()) {
        shown = shown.line(format!(
            "the budget of {} for {} cannot be enforced: {}",
            line(budget.kind.as_str(), 20),
            line(&run.name, 60),
            line(budget.unknown.as_deref().unwrap_or(""), 200)
        ));
    }
    if dispatch.criteria.is_none() && dispatch.accept.is_empty() {
        let hint = "neither criteria nor accept defines success";
        shown = shown.with("hint", hint).line(format!("hint: {hint}"));
    }
    shown = shown.lines(show::request_lines(&run));
    if !run.pending.is_empty() {
        return reply(shown.next(reply_hint(&run.pending)));
    }
    if run.outcome.is_some() {
        let outcome = show::outcome_of(&run, RESULT_CHARS);
        return reply(
            shown
                .line(format!("ended{outcome}"))
                .next("check its work; get_subagent_logs shows what it did"),
        );
    }
    if is_stopped(&run) {
        return reply(
            shown
                .lines(show::attention_line(&run))
                .next(resume_hint(&run)),
        );
    }
    reply(shown.next("start other independent runs, then wait_for_subagents"))
}

/// Returns the narrowest permissions that an agent supports, if it does not support those of its configuration.
async fn only_supported_permissions(
    session: &Session,
    agent: &str,
) -> Result<Option<Permissions>, Refusal> {
    let list = session
        .client()
        .call(&ListAgents {
            env: config::dispatch_env(),
            ..ListAgents::default()
        })
        .await?;
    let Some(found) = list.agents.into_iter().find(|known| known.name == agent) else {
        return Ok(None);
    };
    let is_supported = |profile: &Permissions| {
        !found
            .unsupported_profiles
            .contains_key(&Word::from(*profile))
    };
    match found.permissions.known() {
        Some(stated) if !is_supported(&stated) => {
            Ok(Permissions::ALL.into_iter().find(is_supported))
        }
        _ => Ok(None),
    }
}

/// Returns a started run as structured content, without its agent, which the caller knows.
pub(in crate::mcp) fn started(run: &RunView) -> Value {
    let mut data = show::run_brief(run, RESULT_CHARS);
    if let Some(data) = data.as_object_mut() {
        data.shift_remove("agent");
        data.shift_remove("open_questions");
        if !run.pending.is_empty() {
            data.insert(
                "pending".to_owned(),
                run.pending
                    .iter()
                    .take(show::QUESTIONS_MAX)
                    .map(show::request_brief)
                    .collect(),
            );
        }
    }
    data
}

/// Resolves a directory against the parent's own.
pub(in crate::mcp) fn directory(session: &Session, given: Option<&str>) -> Result<String, Refusal> {
    if session.directory().as_os_str().is_empty()
        && !given.is_some_and(|given| Path::new(given).is_absolute())
    {
        return Err(Refusal::invalid(
            "cwd is missing: this connection has no project directory",
            "pass cwd, an absolute path",
        ));
    }
    let path = session.directory().join(given.unwrap_or_default());
    // Joining an empty path would append a slash.
    let path = if given.is_none_or(str::is_empty) {
        session.directory().clone()
    } else {
        path
    };
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Refusal::invalid(
            format!("{} is not UTF-8", quoted(&path.to_string_lossy(), 200)),
            "pass cwd, an absolute path",
        )),
    }
}

/// Returns the project directory of a parent's connection.
///
/// # Errors
/// The working directory was removed or has no usable name.
pub(in crate::mcp) fn project(directory: &Path) -> Result<String, Refusal> {
    let hint = "start adj mcp in the project's directory, or pass --client NAME";
    let path = directory.canonicalize().map_err(|error| {
        Refusal::new(
            codes::INVALID,
            format!(
                "{}: {error}",
                text::quoted(&directory.to_string_lossy(), 200)
            ),
            hint,
        )
    })?;
    match path.to_str() {
        Some(name) => Ok(name.to_owned()),
        None => Err(Refusal::new(
            codes::INVALID,
            format!(
                "{} is not UTF-8",
                text::quoted(&path.to_string_lossy(), 200)
            ),
            hint,
        )),
    }
}
