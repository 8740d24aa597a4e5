//! `adj mcp --facade codex`: the tools `codex` and `codex-reply` of the removed `codex mcp-server`,
//! with supervised runs behind them.
//!
//! A thread is a run and the runs that follow it. Its id is the id of the first run.

use super::caller::{McpCaller, wait_ms};
use super::refusal::ToolRefusal;
use super::session::{Facade, McpSession};
use super::tools::parent::{run_confirmation, run_directory};
use crate::config::dispatch_env;
use crate::view::{
    AnswerOne, AnswerRequests, Dispatch, FollowUp, GetRun, ReadEvents, ReadResult, RequestView,
    Resume, RunView, SendToRun, json_problem,
};
use adjutant_core::{OutcomeKind, Permissions, RequestKind};
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The agent that `codex` starts by default.
pub(super) const AGENT: &str = "codex";

pub(super) const INSTRUCTIONS: &str = "Runs Codex sessions under supervision. codex starts one and returns its last message; codex-reply continues it, \
answers its question, or waits for it with an empty prompt. Approvals are decided by the user in adj.";

/// The arguments of `codex`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct CodexArgs {
    prompt: String,
    cwd: Option<String>,
    sandbox: Option<Sandbox>,
    /// Approvals are always decided by the user.
    #[serde(rename = "approval-policy")]
    _approval_policy: Option<ApprovalPolicy>,
    model: Option<String>,
    profile: Option<String>,
    config: Option<Map<String, Value>>,
    base_instructions: Option<String>,
    developer_instructions: Option<String>,
    compact_prompt: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sandbox {
    ReadOnly,
    WorkspaceWrite,
    DangerFullAccess,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ApprovalPolicy {
    Untrusted,
    OnFailure,
    OnRequest,
    Never,
}

/// The arguments of `codex-reply`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReplyArgs {
    prompt: String,
    thread_id: Option<String>,
    /// The earlier name of `thread_id`.
    conversation_id: Option<String>,
}

/// Returns the tools.
#[must_use]
pub(super) fn tools() -> Vec<Tool> {
    let text = |about: &str| json!({"type": "string", "description": about});
    let words = |about: &str, words: &[&str]| json!({"type": "string", "description": about, "enum": words});
    let unset = "Not supported: configure an agent with it";
    let codex = json!({
        "prompt": text("The task; it must stand alone"),
        "cwd": text("Working directory; default: the server's"),
        "sandbox": words("What the session may do without approval; default: the agent's profile", &["read-only", "workspace-write", "danger-full-access"]),
        "approval-policy": words("Accepted; the user decides approvals in adj", &["untrusted", "on-failure", "on-request", "never"]),
        "model": text("The model; default: the agent's"),
        "profile": text(unset),
        "config": {"type": "object", "additionalProperties": true, "description": unset},
        "base-instructions": text(unset),
        "developer-instructions": text(unset),
        "compact-prompt": text(unset),
    });
    let reply = json!({
        "threadId": text("The thread, as codex returned it"),
        "conversationId": text("Deprecated: use threadId"),
        "prompt": text("The next task, or the answer to the question that it asked; empty: only wait"),
    });
    let output = object(json!({
        "type": "object",
        "properties": {"threadId": {"type": "string"}, "content": {"type": "string"}},
        "required": ["threadId", "content"],
    }));
    let tool = |name: &'static str, title: &str, about: &'static str, properties: Value| {
        let input =
            object(json!({"type": "object", "properties": properties, "required": ["prompt"]}));
        Tool::new(name, about, input)
            .with_title(title)
            .with_raw_output_schema(Arc::new(output.clone()))
    };
    vec![
        tool(
            "codex",
            "Codex",
            "Run a Codex session and return its last message.",
            codex,
        ),
        tool(
            "codex-reply",
            "Codex Reply",
            "Continue a Codex session by its threadId.",
            reply,
        ),
    ]
}

/// Calls a tool.
///
/// # Errors
/// There is no such tool.
pub(super) async fn call(
    session: &McpSession,
    facade: &Facade,
    caller: &McpCaller,
    name: &str,
    arguments: Option<JsonObject>,
) -> Result<CallToolResult, ErrorData> {
    let called = match name {
        "codex" => codex(session, facade, caller, arguments).await,
        "codex-reply" => codex_reply(session, caller, arguments).await,
        _ => {
            return Err(ErrorData::invalid_params(
                "unknown tool: use codex or codex-reply",
                None,
            ));
        }
    };
    Ok(called.unwrap_or_else(ToolRefusal::into_result))
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

fn read<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, ToolRefusal> {
    serde_json::from_value(Value::Object(arguments.unwrap_or_default())).map_err(|error| {
        ToolRefusal::invalid(
            format!("the arguments cannot be used: {}", json_problem(&error)),
            "correct them and call again",
        )
    })
}

async fn codex(
    session: &McpSession,
    facade: &Facade,
    caller: &McpCaller,
    arguments: Option<JsonObject>,
) -> Result<CallToolResult, ToolRefusal> {
    let args: CodexArgs = read(arguments)?;
    let unsupported = [
        ("profile", args.profile.is_some()),
        (
            "config",
            args.config.is_some_and(|config| !config.is_empty()),
        ),
        ("base-instructions", args.base_instructions.is_some()),
        (
            "developer-instructions",
            args.developer_instructions.is_some(),
        ),
        ("compact-prompt", args.compact_prompt.is_some()),
    ];
    if let Some((name, _)) = unsupported.iter().find(|(_, is_set)| *is_set) {
        let hint = format!(
            "omit {name}; the user can configure an agent with it and start adj mcp --facade codex --agent NAME"
        );
        return Err(ToolRefusal::invalid(
            format!("{name} cannot be set in a call"),
            hint,
        ));
    }
    let permissions = args.sandbox.map(|sandbox| match sandbox {
        Sandbox::ReadOnly => Permissions::Read,
        Sandbox::WorkspaceWrite => Permissions::Edit,
        Sandbox::DangerFullAccess => Permissions::Full,
    });
    let dispatch = Dispatch {
        agent: facade.agent.clone(),
        prompt: args.prompt,
        cwd: run_directory(session, args.cwd.as_deref())?,
        permissions: permissions.map(Into::into),
        model: args.model,
        env: dispatch_env(),
        ..Dispatch::default()
    };
    let run = session.client().call(&dispatch).await?;
    wait(session, caller, &run.identity.run_id, &run.identity.run_id).await
}

async fn codex_reply(
    session: &McpSession,
    caller: &McpCaller,
    arguments: Option<JsonObject>,
) -> Result<CallToolResult, ToolRefusal> {
    let ReplyArgs {
        prompt,
        thread_id,
        conversation_id,
    } = read(arguments)?;
    let Some(thread) = thread_id.or(conversation_id) else {
        return Err(ToolRefusal::invalid(
            "threadId is missing",
            "pass the threadId that codex returned",
        ));
    };
    let client = session.client();
    let run = client
        .call(&GetRun {
            run: thread.clone(),
            newest: true,
            ..GetRun::default()
        })
        .await?;
    let next = if prompt.trim().is_empty() {
        run.identity.run_id
    } else if let Some(question) = open_question(&run) {
        let answer = AnswerOne {
            message_id: Some(question.message_id.clone()),
            answer: prompt,
            ..AnswerOne::default()
        };
        client
            .call(&AnswerRequests {
                answers: vec![answer],
            })
            .await?;
        run.identity.run_id
    } else if run.condition.outcome.is_some() {
        client
            .call(&FollowUp {
                run: run.identity.run_id,
                prompt,
                env: dispatch_env(),
            })
            .await?
            .identity
            .run_id
    } else if is_stopped(&run) {
        client
            .call(&Resume {
                run: run.identity.run_id.clone(),
                resolution: Some(prompt),
                env: dispatch_env(),
                ..Resume::default()
            })
            .await?;
        run.identity.run_id
    } else {
        client
            .call(&SendToRun {
                run: run.identity.run_id.clone(),
                text: prompt,
            })
            .await?;
        run.identity.run_id
    };
    wait(session, caller, &thread, &next).await
}

fn open_question(run: &RunView) -> Option<&RequestView> {
    run.requests
        .pending
        .iter()
        .find(|request| request.kind == RequestKind::Question)
}

fn is_stopped(run: &RunView) -> bool {
    run.condition
        .attention
        .as_ref()
        .is_some_and(|attention| attention.is_stop())
}

/// Waits until the run ends, stops or asks a question, at most as long as the client allows. Sends
/// progress.
async fn wait(
    session: &McpSession,
    caller: &McpCaller,
    thread: &str,
    run: &str,
) -> Result<CallToolResult, ToolRefusal> {
    caller
        .wait_with_progress(
            "waiting for the session",
            next_message(session, caller, thread, run),
        )
        .await?
}

async fn next_message(
    session: &McpSession,
    caller: &McpCaller,
    thread: &str,
    run: &str,
) -> Result<CallToolResult, ToolRefusal> {
    let deadline = Instant::now() + caller.cap;
    loop {
        let view = session
            .client()
            .call(&GetRun {
                run: run.to_owned(),
                ..GetRun::default()
            })
            .await?;
        let said = |content: &str, is_error: bool| result(thread, content, is_error);
        if let Some(outcome) = &view.condition.outcome {
            session.note_shown(caller.connection, None, run_confirmation(&view));
            let text = session
                .client()
                .call(&ReadResult {
                    run: run.to_owned(),
                })
                .await?
                .result;
            if *outcome == OutcomeKind::Succeeded {
                return Ok(said(&text, false));
            }
            let reason = view.condition.reason.as_deref().unwrap_or(outcome.as_str());
            return Ok(said(
                format!("the session ended without success: {reason}\n{text}").trim_end(),
                true,
            ));
        }
        if let Some(question) = open_question(&view) {
            return Ok(said(
                &format!(
                    "{}\n(answer with codex-reply and this threadId)",
                    question.content.question
                ),
                false,
            ));
        }
        if is_stopped(&view) {
            session.note_shown(caller.connection, None, run_confirmation(&view));
            let why = view
                .condition
                .attention
                .as_ref()
                .map_or("", |attention| attention.details.as_str());
            return Ok(said(
                &format!(
                    "the session is stopped: {why}\n(codex-reply with this threadId resumes it)"
                ),
                true,
            ));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(1) {
            let asks = if view.requests.pending.is_empty() {
                ""
            } else {
                " It waits for an approval: adj inbox shows it to the user."
            };
            let text = format!(
                "The session still works.{asks} Call codex-reply with this threadId and an empty prompt to wait for it."
            );
            return Ok(said(&text, false));
        }
        let read = ReadEvents {
            run: Some(run.to_owned()),
            after: view.cursor,
            wait_ms: wait_ms(left),
            ..ReadEvents::default()
        };
        session.client().call(&read).await?;
    }
}

fn result(thread: &str, content: &str, is_error: bool) -> CallToolResult {
    let blocks = vec![ContentBlock::text(content)];
    let mut result = if is_error {
        CallToolResult::error(blocks)
    } else {
        CallToolResult::success(blocks)
    };
    result.structured_content = Some(json!({"threadId": thread, "content": content}));
    result
}
