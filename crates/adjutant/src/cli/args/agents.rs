//! The grammar of `adj agents`.

use super::values::duration;
use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentsArgs {
    #[command(subcommand)]
    pub what: Option<AgentsWhat>,
    /// Show everything about this one
    pub name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum AgentsWhat {
    /// Try an agent out: two short runs that show whether it reports, asks, takes an answer, goes on after
    /// a stop, and leaves nothing behind when cancelled. With a real agent this costs tokens
    Test(AgentTestArgs),
    /// Add an agent that speaks the Agent Client Protocol: start it once, show what it offers, and write it
    /// into the configuration file
    Add(AgentAddArgs),
}

#[derive(Debug, Args)]
pub struct AgentAddArgs {
    /// Its name here
    pub name: String,
    /// Pass this variable of the dispatcher to the agent, such as its key; MY_* passes all that begin so
    #[arg(long = "env-pass", value_name = "NAME")]
    pub env_pass: Vec<String>,
    /// What it is for
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub description: String,
    /// Give up after this time
    #[arg(long, value_name = "60s", default_value = "60s", value_parser = duration)]
    pub timeout: Duration,
    /// The program and its arguments, as in: adj agents add mine -- my-agent --acp. May be left out for an
    /// agent that the public registry has under this name
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct AgentTestArgs {
    /// The agent (see adj agents)
    pub name: String,
    /// Give up on a step after this time
    #[arg(long, value_name = "3m", default_value = "3m", value_parser = duration)]
    pub timeout: Duration,
    /// Do not ask before it costs anything
    #[arg(short, long)]
    pub yes: bool,
}
