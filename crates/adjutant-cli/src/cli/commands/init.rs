//! `adj init`: what is found on this machine, and one question. Without an answer nothing changes,
//! and no hub starts.

use super::config::change::change;
use super::install::install;
use crate::cli::args::{InitArgs, InstallArgs};
use crate::cli::context::home;
use crate::cli::exit::Exit;
use crate::cli::out::{CommandResult, Failure, Out, fail, fail_hint};
use crate::cli::prompt::{Agreed, ask, ask_with_details};
use crate::cli::style::Style;
use crate::config::{Config, dispatch_env};
use crate::integrations::{
    CLIENTS, Change, McpClient, OwnProgram, PlanError, Scope, file_of, find_trace, plan_install,
};
use crate::ops::agents_of;
use crate::text;
use crate::view::{AgentView, codes};
use serde_json::{Value, json};

/// A client that is found.
struct FoundClient {
    client: &'static McpClient,
    /// `false`: a change of its file connects it.
    is_connected: Result<bool, PlanError>,
    /// What to change by hand if its entry is disabled.
    disabled: Option<String>,
}

/// What the answer yes changes.
struct Proposal {
    clients: Vec<&'static McpClient>,
    default_agent: Option<String>,
}

/// Shows agents and clients, and connects the clients if the person agrees.
pub(crate) async fn init(args: &InitArgs, out: &Out) -> CommandResult {
    let home = home()?;
    let config = Config::load(&home).map_err(|error| {
        fail_hint(
            codes::INVALID,
            error.to_string(),
            "correct the file: adj config edit",
        )
    })?;
    let agents = agents_of(&config, &dispatch_env());
    let program = OwnProgram::find().map_err(|error| {
        fail(
            codes::INTERNAL,
            format!("cannot find the path of this program: {error}"),
        )
    })?;
    let clients = found_clients(&program);
    let proposal = Proposal {
        clients: clients
            .iter()
            .filter(|one| matches!(one.is_connected, Ok(false)))
            .map(|one| one.client)
            .collect(),
        default_agent: default_agent(&agents, config.default_agent.as_deref()),
    };
    if out.json {
        out.print_json(&view(&agents, &clients, &config, &proposal))?;
    } else {
        print_agents(&agents, out)?;
        print_clients(&clients, out)?;
    }
    let Some(question) = proposal.question() else {
        let is_ready = agents
            .iter()
            .any(|agent| agent.found && agent.harness != "echo");
        out.print_message(if is_ready {
            "nothing to set up"
        } else {
            "install a coding agent, then run adj init again"
        })?;
        out.suggest("adj demo")?;
        return Ok(Exit::Done);
    };
    if !args.yes {
        if !out.interactive {
            out.print_message(&format!(
                "adj init --yes would: {}",
                proposal.actions().join("; ")
            ))?;
            out.suggest("adj install --dry-run   (shows the changes of each file)")?;
            return Ok(Exit::Done);
        }
        if !is_agreed(&proposal, &question, out).await? {
            out.print_message("nothing changed")?;
            return Ok(Exit::Done);
        }
    }
    if let Some(agent) = &proposal.default_agent {
        change("default_agent", agent, &home)?;
        out.print_message(&format!("{} is the default agent", text::line(agent)))?;
    }
    let mut exit = Exit::Done;
    if !proposal.clients.is_empty() {
        exit = install(
            &InstallArgs {
                yes: true,
                is_shown: !args.yes,
                is_silent: out.json,
                ..proposal.install_args()
            },
            out,
        )
        .await?;
    }
    out.suggest("adj doctor")?;
    Ok(exit)
}

/// Asks the question, and shows the changes of each file first if the person wants to see them.
async fn is_agreed(proposal: &Proposal, question: &str, out: &Out) -> Result<bool, Failure> {
    let preview = InstallArgs {
        dry_run: true,
        ..proposal.install_args()
    };
    if proposal.clients.is_empty() {
        let answer = ask(&format!("{question} [y/N] "))?;
        return Ok(answer.is_some_and(|answer| matches!(answer.trim(), "y" | "Y" | "yes")));
    }
    install(
        &InstallArgs {
            dry_run: true,
            is_summary: true,
            ..proposal.install_args()
        },
        out,
    )
    .await?;
    loop {
        match ask_with_details(question)? {
            Agreed::Yes => return Ok(true),
            Agreed::No => return Ok(false),
            Agreed::ShowDetails => install(&preview, out).await?,
        };
    }
}

fn found_clients(program: &OwnProgram) -> Vec<FoundClient> {
    let has_file = |client: &&McpClient| {
        file_of(client, &Scope::User).is_some() && find_trace(client).is_some()
    };
    let state = |client| match plan_install(client, &Scope::User, program) {
        Ok(plan) => FoundClient {
            client,
            is_connected: Ok(plan.change == Change::None),
            disabled: plan.disabled,
        },
        Err(error) => FoundClient {
            client,
            is_connected: Err(error),
            disabled: None,
        },
    };
    CLIENTS.iter().filter(has_file).map(state).collect()
}

/// Returns the agent to propose: the first that seems to be signed in, if there is a choice and
/// none is set.
fn default_agent(agents: &[AgentView], set: Option<&str>) -> Option<String> {
    let usable: Vec<&AgentView> = agents
        .iter()
        .filter(|agent| agent.found && agent.harness != "echo")
        .collect();
    let signed_in = || {
        usable
            .iter()
            .find(|agent| agent.sign_in.as_ref().is_some_and(|sign_in| sign_in.found))
    };
    if set.is_some() || usable.len() < 2 {
        None
    } else {
        signed_in().map(|agent| agent.name.clone())
    }
}

impl Proposal {
    fn actions(&self) -> Vec<String> {
        let names: Vec<&str> = self.clients.iter().map(|client| client.name).collect();
        let connect = (!names.is_empty()).then(|| format!("connect {}", names.join(", ")));
        let default = self
            .default_agent
            .as_ref()
            .map(|agent| format!("use {} as default agent", text::line(agent)));
        connect.into_iter().chain(default).collect()
    }

    /// Returns the question. `None`: there is nothing to change.
    fn question(&self) -> Option<String> {
        let text = self.actions().join(" and ");
        let mut letters = text.chars();
        letters
            .next()
            .map(|first| format!("{}{}?", first.to_uppercase(), letters.as_str()))
    }

    fn install_args(&self) -> InstallArgs {
        InstallArgs {
            clients: self
                .clients
                .iter()
                .map(|client| client.id.to_owned())
                .collect(),
            ..InstallArgs::default()
        }
    }
}

fn print_agents(agents: &[AgentView], out: &Out) -> Result<(), Failure> {
    out.print_line(&out.paint.apply(Style::Strong, "Agents"))?;
    for agent in agents {
        let (glyph, style, state) = match (&agent.problem, &agent.sign_in) {
            (Some(problem), _) => ("✗", Style::Bad, problem.clone()),
            (None, Some(sign_in)) if sign_in.found => ("✓", Style::Good, "signed in".to_owned()),
            (None, Some(sign_in)) => (
                "!",
                Style::Attention,
                format!("not signed in: {}", sign_in.how),
            ),
            (None, None) if agent.harness == "echo" => {
                ("✓", Style::Good, "built in, for tests".to_owned())
            }
            (None, None) => ("✓", Style::Good, "found".to_owned()),
        };
        print_row(glyph, style, &agent.name, &state, out)?;
    }
    Ok(())
}

fn print_clients(clients: &[FoundClient], out: &Out) -> Result<(), Failure> {
    out.print_line(&out.paint.apply(Style::Strong, "Clients"))?;
    if clients.is_empty() {
        return out.print_line("  none found");
    }
    for FoundClient {
        client,
        is_connected,
        disabled,
    } in clients
    {
        let (glyph, style, state) = match is_connected {
            Ok(true) if disabled.is_some() => {
                let fix = disabled.as_deref().unwrap_or_default();
                (
                    "!",
                    Style::Attention,
                    format!("its entry is disabled: {}", text::line(fix)),
                )
            }
            Ok(true) => ("✓", Style::Good, "connected".to_owned()),
            Ok(false) => ("!", Style::Attention, "not connected".to_owned()),
            Err(error) => (
                "✗",
                Style::Bad,
                format!("{error} (adj install {})", client.id),
            ),
        };
        print_row(glyph, style, client.name, &state, out)?;
    }
    Ok(())
}

/// Width of the names in the lists, in columns.
const NAME_COLUMNS: usize = 20;

fn print_row(glyph: &str, style: Style, name: &str, state: &str, out: &Out) -> Result<(), Failure> {
    let text = format!("{:<NAME_COLUMNS$} {}", text::line(name), text::line(state));
    out.print_text(&out.fold(
        &format!("  {glyph} {text}"),
        &format!("  {} {text}", out.paint.apply(style, glyph)),
    ))
}

fn view(
    agents: &[AgentView],
    clients: &[FoundClient],
    config: &Config,
    proposal: &Proposal,
) -> Value {
    let agent = |agent: &AgentView| json!({ "name": agent.name, "found": agent.found, "problem": agent.problem, "sign_in": agent.sign_in });
    let client = |one: &FoundClient| {
        json!({
            "client": one.client.id,
            "name": one.client.name,
            "connected": one.is_connected.as_ref().ok(),
            "disabled": one.disabled,
            "problem": one.is_connected.as_ref().err().map(ToString::to_string),
        })
    };
    json!({
        "agents": agents.iter().map(agent).collect::<Vec<_>>(),
        "clients": clients.iter().map(client).collect::<Vec<_>>(),
        "default_agent": config.default_agent,
        "proposed": {
            "connect": proposal.clients.iter().map(|client| client.id).collect::<Vec<_>>(),
            "default_agent": proposal.default_agent,
        },
    })
}
