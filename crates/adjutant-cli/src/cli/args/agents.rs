//! The grammar of `adj agents`.

use super::values::positive_duration;
use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    pub what: Option<AgentsCommand>,
    /// Show the details of this agent
    pub name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// Test an agent with two short runs: does it report progress, ask, use the answer, resume
    /// after a stop, and leave no process behind when cancelled? A real agent uses tokens
    Test(AgentTestArgs),
    /// Add an agent that speaks the Agent Client Protocol (ACP): start it once, show what it
    /// supports, and write it to the configuration file
    Add(AgentAddArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentAddArgs {
    /// The agent's name
    pub name: String,
    /// Pass this environment variable to the agent, such as its API key; MY_* passes all with that
    /// prefix
    #[arg(long = "env-pass", value_name = "NAME")]
    pub env_pass: Vec<String>,
    /// A short description
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub description: String,
    /// Give up after this time
    #[arg(long, value_name = "60s", default_value = "60s", value_parser = positive_duration)]
    pub timeout: Duration,
    /// The program and its arguments, as in: adj agents add mine -- my-agent --acp. Optional for
    /// agents of the public ACP registry
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AgentTestArgs {
    /// The agent (see adj agents)
    pub name: String,
    /// Time limit for each step
    #[arg(long, value_name = "3m", default_value = "3m", value_parser = positive_duration)]
    pub timeout: Duration,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
}
