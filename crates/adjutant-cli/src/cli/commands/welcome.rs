//! `adj` without a command.

use super::inbox;
use crate::cli::args::InboxArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::config::dispatch_env;
use crate::hub_client::VERSION;
use crate::text;
use crate::view::{AgentList, AgentView, ListAgents, ListAttention};
use serde_json::json;

/// Prints what needs the person, if anything does; otherwise the agents that were found, and three
/// commands to try.
pub(crate) async fn greet(cx: &Context) -> CommandResult {
    if !cx.out.json && is_needed(cx).await? {
        return show_inbox(cx).await;
    }
    let call = ListAgents {
        env: dispatch_env(),
        ..ListAgents::default()
    };
    let agents = match cx.hub.call(&call).await {
        // Without a valid configuration no agent is known. What needs the person is known, and the
        // problem is printed as a warning.
        Err(_) if !cx.out.json && cx.hub.config_problem().is_some() => {
            return show_inbox(cx).await;
        }
        agents => agents?,
    };
    if cx.out.json {
        cx.out.print_json(
            &json!({"version": VERSION, "agents": agents.agents, "warnings": agents.warnings}),
        )?;
        return Ok(Exit::Done);
    }
    print_welcome(&agents, cx)?;
    Ok(Exit::Done)
}

/// Returns whether something needs the person.
async fn is_needed(cx: &Context) -> Result<bool, Failure> {
    let list = cx
        .hub
        .call(&ListAttention {
            limit: Some(1),
            ..ListAttention::default()
        })
        .await?;
    Ok(list.total() > 0 || list.policy_change.is_some())
}

async fn show_inbox(cx: &Context) -> CommandResult {
    let all = InboxArgs {
        all: false,
        run: None,
    };
    inbox::inbox(&all, cx).await
}

fn print_welcome(agents: &AgentList, cx: &Context) -> Result<(), Failure> {
    let paint = cx.out.paint;
    cx.out.print_line(&format!(
        "{} {VERSION} – runs coding agents in the background and brings you their questions",
        paint.apply(Style::Strong, "adj")
    ))?;
    let found: Vec<String> = agents.agents.iter().map(label).collect();
    cx.out.print_line(&format!(
        "  {}  {}",
        paint.apply(Style::Dim, "agents"),
        text::line(&found.join("  "))
    ))?;
    cx.out.print_line(&format!(
        "  {}  adj demo                       see it work (no API keys needed)",
        paint.apply(Style::Dim, "try   ")
    ))?;
    let run = first_run(&agents.agents);
    cx.out
        .print_line(&format!("          {run:<29}  start a run"))?;
    cx.out
        .print_line("          adj help                       list all commands and topics")?;
    for warning in &agents.warnings {
        cx.out
            .print_message(&format!("warning: {}", text::line(warning)))?;
    }
    Ok(())
}

fn label(agent: &AgentView) -> String {
    if agent.found {
        format!("{} ✓", agent.name)
    } else {
        format!("{} (not found)", agent.name)
    }
}

/// Returns a command that starts a run: of the first agent that was found, or of the echo agent.
fn first_run(agents: &[AgentView]) -> String {
    match agents
        .iter()
        .find(|agent| agent.found && agent.harness != "echo")
    {
        Some(agent) if agent.name != "echo" => {
            format!("adj run -a {} \"…\"", text::line(&agent.name))
        }
        _ => "adj run -a echo \"say hello\"".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_run_uses_an_agent_that_is_found() {
        let agent = |name: &str, found, harness: &str| AgentView {
            name: name.to_owned(),
            found,
            harness: harness.to_owned(),
            ..AgentView::default()
        };
        let mut agents = vec![agent("gone", false, "claude"), agent("echo", true, "echo")];
        assert_eq!(first_run(&agents), "adj run -a echo \"say hello\"");
        agents.push(agent("claude", true, "claude"));
        assert_eq!(first_run(&agents), "adj run -a claude \"…\"");
    }
}
