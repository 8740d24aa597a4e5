//! The command line's grammar. Nothing here acts.

mod agents;
mod chat;
mod hub;
mod requests;
mod runs;
mod search;
mod values;

pub use agents::*;
pub use chat::*;
pub use hub::*;
pub use requests::*;
pub use runs::*;
pub use search::*;

use super::style::ColorChoice;
use clap::{Args, Parser, Subcommand};

/// Hands tasks to CLI coding agents, supervises them, and stays in contact with them.
#[derive(Debug, Parser)]
#[command(name = "adj", version, disable_help_subcommand = true, arg_required_else_help = false, max_term_width = 100)]
#[command(after_help = "Exit codes: adj help exit-codes")]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Print JSON: {"schema":1,"data":…}; with -f one object a line; errors as one line on stderr
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN", hide_possible_values = true)]
    pub color: ColorChoice,
    /// Keep everything in memory, until its hub ends (adj --ephemeral stop): runs, chats, logs
    #[arg(long, global = true)]
    pub ephemeral: bool,
    /// Never ask anything on the terminal
    #[arg(long, global = true)]
    pub no_input: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give a task to an agent, and follow it (without a terminal: only start it; -w waits)
    Run(RunArgs),
    /// List runs: those that need you, those at work, with -a those that ended
    #[command(visible_alias = "ls")]
    Ps(PsArgs),
    /// Show everything about a run
    Show(RunArg),
    /// Print what a run's agent said
    Logs(LogsArgs),
    /// Print what a run's agent says, as it comes (logs -f)
    #[command(hide = true)]
    Attach(RunArg),
    /// Wait for runs
    Wait(WaitArgs),
    /// List what needs you: questions, approvals, delegations, stopped and failed runs, messages
    Inbox(InboxArgs),
    /// Answer a question, or with --group all that were asked together
    Reply(ReplyArgs),
    /// Approve what a run wants to do, or a task that it wants to hand on
    Approve(ApproveArgs),
    /// Deny it, with a reason; or take back an approval that was not used yet
    Deny(DenyArgs),
    /// Deal with what has needed you the longest, here on the terminal
    Next,
    /// End runs, with everything they started
    #[command(visible_alias = "kill")]
    Cancel(CancelArgs),
    /// Stop a run's agent, to go on later with `resume`
    Pause(PauseArgs),
    /// Begin a stopped run anew: it is told what it left behind and what was decided since
    Resume(ResumeArgs),
    /// Start an ended or stopped run's task again, as a new run (a stopped one is given up with it)
    Retry(RetryArgs),
    /// Send a message to a live run
    Send(SendArgs),
    /// Talk with agents and runs in lasting chats
    Chat(ChatArgs),
    /// Find what was said: in chats, questions and answers, completion reports
    Search(SearchEverywhereArgs),
    /// List the agents that are configured or found, show one, or try one out
    Agents(AgentsArgs),
    /// Move runs to another client, so that a parent under a new name finds them
    Adopt(AdoptArgs),
    /// Print the event history
    Events(EventsArgs),
    /// Stop the hub; runs go on, and the next command starts a hub again
    Stop,
    /// Remove finished runs and their files
    Clean(CleanArgs),
    /// List the webhooks and what waits for them, or send again what failed
    Webhooks(WebhooksArgs),
    /// See it work: scripted runs in a throw-away home, about 15 seconds, no keys
    Demo(DemoArgs),
    /// Check this installation and say how to repair it
    Doctor,
    /// Run the hub in the foreground
    Serve,
    /// Serve MCP on standard input and output
    Mcp(PassedOn),
    /// Show the configuration and where it comes from
    Config(ConfigArgs),
    /// Print a shell's completion script
    Completions { shell: clap_complete::Shell },
    /// Print help: on a command, or on "exit-codes"
    Help { topic: Vec<String> },
}
