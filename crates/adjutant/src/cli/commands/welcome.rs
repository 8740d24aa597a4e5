//! `adj` without a command.

use super::inbox;
use crate::cli::args::InboxArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure};
use crate::cli::style::Style;
use crate::client::VERSION;
use crate::config::dispatch_env;
use crate::text;
use crate::view::{ListAgents, ListAttention};
use serde_json::json;

/// Prints what needs the person, if anything does; otherwise the agents that were found, and three commands to try.
pub async fn greet(cx: &Context) -> CommandResult {
    let needs = async || {
        let list = cx
            .hub
            .call(&ListAttention {
                limit: Some(1),
                ..ListAttention::default()
            })
            .await?;
        Ok::<_, Failure>(list.total() > 0 || list.policy_change.is_some())
    };
    if !cx.out.json && needs().await? {
        return inbox::inbox(
            &InboxArgs {
                all: false,
                run: None,
            },
            cx,
        )
        .await;
    }
    let agents = match cx
        .hub
        .call(&ListAgents {
            env: dispatch_env(),
            ..ListAgents::default()
        })
        .await
    {
        // Without a valid configuration no agent is known. What needs the person is known, and the problem is printed as a warning.
        Err(_) if !cx.out.json && cx.hub.config_problem().is_some() => {
            return inbox::inbox(
                &InboxArgs {
                    all: false,
                    run: None,
                },
                cx,
            )
            .await;
        }
        agents => agents?,
    };
    if cx.out.json {
        cx.out.print_json(
            &json!({"version": VERSION, "agents": agents.agents, "warnings": agents.warnings}),
        )?;
        return Ok(Exit::Done);
    }
    let paint = cx.out.paint;
    cx.out.print_line(&format!(
        "{} {VERSION} – runs coding agents in the background and brings you their questions",
        paint.apply(Style::Strong, "adj")
    ))?;
    let found: Vec<String> = agents
        .agents
        .iter()
        .map(|a| {
            if a.found {
                format!("{} ✓", a.name)
            } else {
                format!("{} (not found)", a.name)
            }
        })
        .collect();
    cx.out.print_line(&format!(
        "  {}  {}",
        paint.apply(Style::Dim, "agents"),
        text::line(&found.join("  "))
    ))?;
    cx.out.print_line(&format!(
        "  {}  adj demo                       see it work (no API keys needed)",
        paint.apply(Style::Dim, "try   ")
    ))?;
    let real = agents
        .agents
        .iter()
        .find(|a| a.found && a.harness != "echo")
        .map_or("echo", |a| a.name.as_str());
    let run = if real == "echo" {
        "adj run -a echo \"say hello\"".to_owned()
    } else {
        format!("adj run -a {} \"…\"", text::line(real))
    };
    cx.out
        .print_line(&format!("          {run:<29}  start a run"))?;
    cx.out
        .print_line("          adj help                       list all commands and topics")?;
    for warning in &agents.warnings {
        cx.out
            .print_message(&format!("warning: {}", text::line(warning)))?;
    }
    Ok(Exit::Done)
}
