//! Starting a run.

use super::confirmation::run_confirmation;
use super::next_step::{reply_hint, resume_hint};
use super::wait::TASK_TTL_MS;
use crate::config;
use crate::mcp::caller::{McpCaller, wait_ms};
use crate::mcp::elicit::{self, ElicitOutcome};
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::{ToolReply, ToolResult, reply};
use crate::mcp::session::McpSession;
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
    session: &McpSession,
    caller: &McpCaller,
    mut args: RunSubagentArgs,
) -> ToolResult {
    let wait = caller.bounded(args.wait_s, Duration::ZERO);
    let key = args.idempotency_key.take();
    let only_supported = only_permissions(session, caller, &args).await?;
    let dispatch = dispatch_of(session, args, only_supported)?;
    elicit::take_input(session, caller).await?;
    let mut run = dispatched_run(session, caller, &dispatch, key.as_deref()).await?;
    if !wait.is_zero() {
        run = match first_wait(session, caller, run, wait).await? {
            FirstWait::Over(run) => *run,
            FirstWait::Reply(reply) => return Ok(reply),
        };
        session.note_shown(caller.connection, None, run_confirmation(&run));
    }
    let shown = if session.compat() {
        Shown::new(show::run_full(&run))
            .with("runId", run.identity.run_id.as_str())
            .with("agentName", run.identity.agent.as_str())
    } else {
        Shown::new(started(&run))
    };
    let shown = shown.line(format!("started {}", show::run_line(&run)));
    let shown = note_permissions(shown, &run, only_supported);
    let shown = note_shared_directory(shown, &run);
    let shown = shown.lines(unenforced_budgets(&run));
    let shown = note_missing_criteria(shown, &dispatch);
    let shown = shown.lines(show::request_lines(&run));
    reply(add_next_step(shown, &run))
}

/// Returns the permissions to name for an agent that supports only those. `None`: the call decides,
/// or the agent's configuration.
async fn only_permissions(
    session: &McpSession,
    caller: &McpCaller,
    args: &RunSubagentArgs,
) -> Result<Option<Permissions>, ToolRefusal> {
    let by_alias = caller
        .alias
        .as_deref()
        .is_some_and(|alias| alias.starts_with(ORIGINAL_PREFIX));
    // The original tool of each agent knows no permissions.
    match &args.permissions {
        None if session.compat() && by_alias => {
            only_supported_permissions(session, &args.agent).await
        }
        _ => Ok(None),
    }
}

/// Returns the call of the hub. `only_supported`: the permissions of a call that names none.
fn dispatch_of(
    session: &McpSession,
    args: RunSubagentArgs,
    only_supported: Option<Permissions>,
) -> Result<Dispatch, ToolRefusal> {
    Ok(Dispatch {
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
                return Err(ToolRefusal::invalid(
                    "accept is empty",
                    "name the command, or omit accept",
                ));
            }
            accept => accept.unwrap_or_default(),
        },
        env: config::dispatch_env(),
    })
}

/// Starts the run, or finds the one that an earlier call has started.
async fn dispatched_run(
    session: &McpSession,
    caller: &McpCaller,
    dispatch: &Dispatch,
    key: Option<&str>,
) -> Result<RunView, ToolRefusal> {
    Ok(match (caller.state("run"), key) {
        // The client repeats the call with its person's answer.
        (Some(run), _) => read_run(session, run).await?,
        (None, Some(key)) => session.client().call_with_key(dispatch, key).await?,
        (None, None) => session.client().call(dispatch).await?,
    })
}

async fn read_run(session: &McpSession, run: String) -> Result<RunView, ToolRefusal> {
    Ok(session
        .client()
        .call(&GetRun {
            run,
            ..GetRun::default()
        })
        .await?)
}

/// The outcome of waiting for a run that was just started.
enum FirstWait {
    /// The run as it is now.
    Over(Box<RunView>),
    /// The reply to the call.
    Reply(ToolReply),
}

/// Waits for a run that was just started, within the call or as a Task.
async fn first_wait(
    session: &McpSession,
    caller: &McpCaller,
    run: RunView,
    wait: Duration,
) -> Result<FirstWait, ToolRefusal> {
    let mut first = Wait {
        runs: vec![run.identity.run_id.clone()],
        ..Wait::default()
    };
    if caller.accepts_tasks && session.client().call(&first).await?.outcome == WaitOutcome::Timeout
    {
        let task = session
            .client()
            .call(&StartTask {
                wait: first,
                ttl_ms: TASK_TTL_MS,
                declined: Vec::new(),
            })
            .await?;
        return Ok(FirstWait::Reply(ToolReply::Task(Box::new(task))));
    }
    let until = Instant::now() + wait;
    // The run is stored, however the wait ends.
    loop {
        first.wait_ms = wait_ms(until.saturating_duration_since(Instant::now()));
        let found = match caller
            .wait_with_progress("waiting for the run", session.client().call(&first))
            .await?
        {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "the first wait failed");
                return Ok(FirstWait::Over(Box::new(run)));
            }
        };
        // The caller waits for the result, so a report alone does not end its wait, unless the
        // process then stays silent.
        if found.has_only_reports() && Instant::now() < until {
            continue;
        }
        match elicit::ask_person(session, caller, &found.needs, Some(&run.identity.run_id)).await? {
            ElicitOutcome::Nothing => {
                let now = read_run(session, run.identity.run_id).await?;
                return Ok(FirstWait::Over(Box::new(now)));
            }
            ElicitOutcome::Required(required) => {
                return Ok(FirstWait::Reply(ToolReply::Input(required)));
            }
            ElicitOutcome::Closed => {}
        }
    }
}

fn note_permissions(shown: Shown, run: &RunView, only: Option<Permissions>) -> Shown {
    let Some(only) = only else { return shown };
    let (agent, only) = (line(&run.identity.agent, 60), only.word());
    shown.with("permissions", only).line(format!(
        "permissions {only}: {agent} supports no narrower ones, and the call names none"
    ))
}

fn note_shared_directory(shown: Shown, run: &RunView) -> Shown {
    if run.place.shares_directory_with.is_empty() {
        return shown;
    }
    let others = line(&run.place.shares_directory_with.join(", "), 300);
    shown
        .with("shares_directory_with", others.as_str())
        .line(format!("it shares its directory with {others}: keep their files apart, or start it with isolation clone"))
}

fn unenforced_budgets(run: &RunView) -> impl Iterator<Item = String> {
    let budgets = run
        .cost
        .budgets
        .iter()
        .filter(|budget| budget.unknown.is_some());
    budgets.map(|budget| {
        format!(
            "the budget of {} for {} cannot be enforced: {}",
            line(budget.kind.as_str(), 20),
            line(&run.identity.name, 60),
            line(budget.unknown.as_deref().unwrap_or(""), 200)
        )
    })
}

fn note_missing_criteria(shown: Shown, dispatch: &Dispatch) -> Shown {
    if dispatch.criteria.is_some() || !dispatch.accept.is_empty() {
        return shown;
    }
    let hint = "neither criteria nor accept defines success";
    shown.with("hint", hint).line(format!("hint: {hint}"))
}

/// Adds what a run needs or how it has ended, and the step after it.
fn add_next_step(shown: Shown, run: &RunView) -> Shown {
    if !run.requests.pending.is_empty() {
        return shown.next(reply_hint(&run.requests.pending));
    }
    if run.condition.outcome.is_some() {
        let outcome = show::outcome_of(run, RESULT_CHARS);
        return shown
            .line(format!("ended{outcome}"))
            .next("check its work; get_subagent_logs shows what it did");
    }
    if run.needs_resume() {
        return shown
            .lines(show::attention_line(run))
            .next(resume_hint(run));
    }
    shown.next("start other independent runs, then wait_for_subagents")
}

/// Returns the narrowest permissions that an agent supports, if it does not support those of its
/// configuration.
async fn only_supported_permissions(
    session: &McpSession,
    agent: &str,
) -> Result<Option<Permissions>, ToolRefusal> {
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
        if !run.requests.pending.is_empty() {
            data.insert(
                "pending".to_owned(),
                run.requests
                    .pending
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
pub(in crate::mcp) fn directory(
    session: &McpSession,
    given: Option<&str>,
) -> Result<String, ToolRefusal> {
    if session.directory().as_os_str().is_empty()
        && !given.is_some_and(|given| Path::new(given).is_absolute())
    {
        return Err(ToolRefusal::invalid(
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
        None => Err(ToolRefusal::invalid(
            format!("{} is not UTF-8", quoted(&path.to_string_lossy(), 200)),
            "pass cwd, an absolute path",
        )),
    }
}

/// Returns the project directory of a parent's connection.
///
/// # Errors
/// The working directory was removed or has no usable name.
pub(in crate::mcp) fn project(directory: &Path) -> Result<String, ToolRefusal> {
    let hint = "start adj mcp in the project's directory, or pass --client NAME";
    let path = directory.canonicalize().map_err(|error| {
        ToolRefusal::new(
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
        None => Err(ToolRefusal::new(
            codes::INVALID,
            format!(
                "{} is not UTF-8",
                text::quoted(&path.to_string_lossy(), 200)
            ),
            hint,
        )),
    }
}
