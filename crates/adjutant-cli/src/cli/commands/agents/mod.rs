//! `adj agents`: lists agents, shows one, tests one, adds one.

mod add;
mod show;
mod trial;

use crate::cli::args::{AgentsArgs, AgentsCommand};
use crate::cli::commands::config;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure, fail_hint};
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::config::{Config, dispatch_env};
use crate::text;
use crate::view::{AgentList, AgentView, ListAgents, QuotaWindowView, codes};

/// Runs `adj agents …`.
pub(crate) async fn agents(args: &AgentsArgs, cx: &Context) -> CommandResult {
    match (&args.what, &args.name) {
        (Some(AgentsCommand::Test(test)), _) => trial::test(test, cx).await,
        (Some(AgentsCommand::Add(new)), _) => add::add(new, cx).await,
        (None, Some(name)) => show(name, cx).await,
        (None, None) => list(cx).await,
    }
}

/// Lists all agents, and waits for the version of the named one.
async fn list_agents(cx: &Context, name: Option<&str>) -> Result<AgentList, Failure> {
    Ok(cx
        .hub
        .call(&ListAgents {
            env: dispatch_env(),
            versions: true,
            all: true,
            await_version_of: name.map(ToOwned::to_owned),
        })
        .await?)
}

/// Finds an agent by name.
async fn find_agent(name: &str, cx: &Context) -> Result<AgentView, Failure> {
    let list = list_agents(cx, Some(name)).await?;
    let known: Vec<String> = list.agents.iter().map(|agent| agent.name.clone()).collect();
    list.agents.into_iter().find(|agent| agent.name == name).ok_or_else(|| {
        let message = format!("no agent {name:?}; known: {}", known.join(", "));
        fail_hint(codes::AGENT_NOT_FOUND, message, "add it with adj agents add, or under [agents] in the configuration (adj config path)")
    })
}

async fn list(cx: &Context) -> CommandResult {
    let list = list_agents(cx, None).await?;
    if cx.out.json {
        cx.out.print_json_list(&list.agents, 0, &list.warnings)?;
        return Ok(Exit::Done);
    }
    let is_absent = |agent: &&AgentView| {
        !agent.found && !is_not_executable(agent) && agent.source == crate::config::BUILT_IN
    };
    let (absent, here): (Vec<_>, Vec<_>) = list.agents.iter().partition(is_absent);
    let rows: Vec<Vec<Cell>> = here.iter().map(|agent| row(agent)).collect();
    let columns = [
        Column::always("AGENT"),
        Column::always("VERSION"),
        Column::optional("SIGNED IN", 0),
        Column::optional("TOOLS", 2),
        Column::optional("RESUME", 3),
        Column::optional("LIVE", 4),
        Column::optional("APPROVALS", 5),
        Column::optional("USAGE", 6),
        Column::optional("DESCRIPTION", 1),
    ];
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    for agent in &here {
        for remark in remarks(agent) {
            cx.out.print_message(&format!(
                "{}: {}",
                text::line(&agent.name),
                text::line(&remark)
            ))?;
        }
    }
    let asked: Vec<&str> = here
        .iter()
        .filter(|agent| agent.version_pending)
        .map(|agent| agent.name.as_str())
        .collect();
    if !asked.is_empty() {
        cx.out.print_message(&format!(
            "versions not known yet: {} (adj agents NAME waits for it)",
            text::line(&asked.join(", "))
        ))?;
    }
    if !absent.is_empty() {
        let names: Vec<&str> = absent.iter().map(|agent| agent.name.as_str()).collect();
        cx.out.print_message(&format!(
            "not found on PATH: {}",
            text::line(&names.join(", "))
        ))?;
    }
    let offered = match Config::load(&cx.home) {
        Ok(config) => add::offered(&config),
        // The hub reports the broken configuration among the warnings below.
        Err(_) if !list.warnings.is_empty() => Vec::new(),
        Err(error) => {
            cx.out
                .print_message(&format!("warning: {}", text::line(&error.to_string())))?;
            Vec::new()
        }
    };
    for name in offered {
        cx.out.print_message(&format!("found {name}, which speaks ACP but has not been tested; add it with: adj agents add {name}"))?;
    }
    for warning in &list.warnings {
        cx.out
            .print_message(&format!("warning: {}", text::line(warning)))?;
    }
    cx.out
        .suggest("adj agents NAME   or   adj agents test NAME")?;
    Ok(Exit::Done)
}

fn row(agent: &AgentView) -> Vec<Cell> {
    let version = match (&agent.version, agent.found) {
        (_, false) if is_not_executable(agent) => painted("✗ not executable", Style::Bad),
        (_, false) => painted("✗ missing", Style::Bad),
        (Some(version), true) => plain(version),
        (None, true) if agent.harness == "echo" => plain("built in"),
        (None, true) if agent.version_pending => painted("checking", Style::Dim),
        (None, true) => painted("unknown", Style::Dim),
    };
    let signed_in = match &agent.sign_in {
        Some(sign_in) if sign_in.found => painted("✓", Style::Good),
        Some(_) => painted("✗", Style::Attention),
        None => painted("–", Style::Dim),
    };
    let mut cells = vec![painted(&agent.name, Style::Strong), version, signed_in];
    let can = |is_so: Option<bool>| match is_so {
        Some(true) => painted("✓", Style::Good),
        Some(false) => painted("–", Style::Dim),
        None => painted("?", Style::Dim),
    };
    cells.extend([
        can(agent.can.map(|can| can.tools)),
        can(agent.can.map(|can| can.resume)),
        can(agent.can.map(|can| can.live)),
        can(agent.can.map(|can| can.approvals)),
        can(agent.can.map(|can| can.usage)),
        plain(&agent.description),
    ]);
    cells
}

/// Returns whether an agent's program exists but is not executable.
fn is_not_executable(agent: &AgentView) -> bool {
    agent.problem_code.as_deref() == Some(codes::AGENT_NOT_EXECUTABLE)
}

/// Returns remarks to print below the table.
fn remarks(agent: &AgentView) -> Vec<String> {
    let mut remarks = Vec::new();
    if !agent.found {
        remarks.push(
            agent
                .problem
                .clone()
                .unwrap_or_else(|| "program not found".to_owned()),
        );
        return remarks;
    }
    if let (Some(note), version) = (&agent.version_note, &agent.version) {
        remarks.push(
            version
                .as_ref()
                .map_or_else(|| note.clone(), |version| format!("{version} is {note}")),
        );
    }
    if let Some(until) = &agent.limited_until {
        remarks.push(format!(
            "has reached its usage limit; its runs wait until {until}"
        ));
    }
    if let Some(gate) = &agent.gate {
        remarks.push(format!(
            "its model is called through the gate, at {}",
            gate.base_url
        ));
    }
    remarks.extend(agent.quota_windows.iter().map(QuotaWindowView::text));
    if agent.documented_only {
        let known = if agent.source == crate::config::BUILT_IN {
            "supported from its documentation only, never tested"
        } else {
            "speaks a known protocol, but has not been tested"
        };
        remarks.push(format!("{known}; check it with adj agents test"));
    }
    if let Some(sign_in) = agent.sign_in.as_ref().filter(|sign_in| !sign_in.found) {
        remarks.push(format!("probably not signed in: {}", sign_in.how));
    }
    remarks
}

/// Shows the details of an agent.
async fn show(name: &str, cx: &Context) -> CommandResult {
    let agent = find_agent(name, cx).await?;
    if cx.out.json {
        cx.out.print_json(&agent)?;
        return Ok(Exit::Done);
    }
    show::print(&agent, &config::load(&cx.home)?, &cx.out)?;
    cx.out
        .suggest(&format!("adj agents test {}", text::line(name)))?;
    Ok(Exit::Done)
}
