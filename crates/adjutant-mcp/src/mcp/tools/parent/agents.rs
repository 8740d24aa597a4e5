//! Listing the agents.

use crate::config;
use crate::mcp::caller::McpCaller;
use crate::mcp::reply::{ToolResult, reply};
use crate::mcp::session::McpSession;
use crate::mcp::show::Shown;
use crate::mcp::text::line;
use crate::view::{AgentView, ListAgents};
use adjutant_core::{Permissions, shorten};
use serde::Deserialize;
use serde_json::{Value, json};

/// The arguments of `list_coding_agents`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::mcp) struct ListCodingAgentsArgs {}

pub(in crate::mcp) async fn list_agents(
    session: &McpSession,
    _caller: &McpCaller,
    _args: ListCodingAgentsArgs,
) -> ToolResult {
    let list = session
        .client()
        .call(&ListAgents {
            env: config::dispatch_env(),
            versions: true,
            ..ListAgents::default()
        })
        .await?;
    let mut shown =
        Shown::new(json!({"agents": list.agents.iter().map(agent_brief).collect::<Vec<_>>()}))
            .lines(list.agents.iter().map(agent_line));
    let unasked: Vec<&str> = list
        .agents
        .iter()
        .filter(|agent| agent.version_pending)
        .map(|agent| agent.name.as_str())
        .collect();
    if !unasked.is_empty() {
        let pending = format!(
            "versions not known yet: {} (a later call has them)",
            line(&unasked.join(", "), 600)
        );
        shown = shown.with("versions_pending", unasked).line(pending);
    }
    if !list.warnings.is_empty() {
        let warnings: Vec<String> = list
            .warnings
            .iter()
            .map(|warning| line(warning, 300))
            .collect();
        shown = shown
            .lines(warnings.iter().map(|warning| format!("warning: {warning}")))
            .with("warnings", warnings);
    }
    let signed_in = list
        .agents
        .iter()
        .find(|agent| agent.found && agent.sign_in.as_ref().is_some_and(|sign_in| sign_in.found));
    reply(match signed_in {
        Some(agent) => shown.next(format!(
            "run_subagent agent={} prompt=…",
            line(&agent.name, 60)
        )),
        None if list.agents.iter().any(|agent| agent.found) => {
            shown.next("run_subagent with the name of a suitable agent")
        }
        None => shown.next("no agent can be used: install one, or ask the user"),
    })
}

/// Returns an agent as structured content.
fn agent_brief(agent: &AgentView) -> Value {
    let mut brief =
        json!({"name": agent.name, "description": shorten::counted(&agent.description, 300)});
    let fields = [
        ("usable", (!agent.found).then(|| json!(false))),
        (
            "problem",
            agent
                .problem
                .as_deref()
                .map(|problem| json!(shorten::counted(problem, 200))),
        ),
        ("version", agent.version.as_deref().map(Value::from)),
        (
            "signed_in",
            agent.sign_in.as_ref().map(|sign_in| json!(sign_in.found)),
        ),
        (
            "sign_in",
            agent
                .sign_in
                .as_ref()
                .filter(|sign_in| agent.found && !sign_in.found)
                .map(|sign_in| json!(shorten::counted(&sign_in.how, 150))),
        ),
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
    if let Some(sign_in) = agent
        .sign_in
        .as_ref()
        .filter(|sign_in| agent.found && !sign_in.found)
    {
        remarks.push(format!(
            "probably not signed in: {}",
            line(&sign_in.how, 150)
        ));
    }
    if let Some(until) = &agent.limited_until {
        remarks.push(format!(
            "usage limit reached, its runs wait until {}",
            line(until, 40)
        ));
    }
    if agent.documented_only {
        remarks.push("never tried".to_owned());
    }
    if !agent.unsupported_profiles.is_empty() {
        let all = Permissions::ALL
            .into_iter()
            .filter(|profile| !agent.unsupported_profiles.contains_key(&(*profile).into()))
            .map(Permissions::word);
        remarks.push(format!(
            "permissions: only {}",
            all.collect::<Vec<_>>().join(", ")
        ));
    }
    let version = agent
        .version
        .as_ref()
        .map(|version| format!(" {}", line(version, 40)))
        .unwrap_or_default();
    let remarks = if remarks.is_empty() {
        String::new()
    } else {
        format!(" [{}]", remarks.join("; "))
    };
    format!(
        "{}: {}{version}{remarks}",
        line(&agent.name, 60),
        line(&agent.description, 300)
    )
}
