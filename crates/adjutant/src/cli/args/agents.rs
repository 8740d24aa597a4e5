//! The grammar of `adj agents`.

use super::duration;
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
