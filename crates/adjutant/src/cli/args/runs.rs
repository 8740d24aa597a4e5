//! The grammar of the commands for runs.

use super::values::{count, duration};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The agent; may be left out when there is only one (see adj agents)
    #[arg(short, long)]
    pub agent: Option<String>,
    /// The run's name; drawn when left out
    #[arg(short, long)]
    pub name: Option<String>,
    /// The agent's working directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Stop the agent after this active time, waiting for answers excluded
    #[arg(long, value_name = "45m", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// What success means: the run is told, and it is shown beside its report
    #[arg(long, value_name = "TEXT")]
    pub criteria: Option<String>,
    /// Command that tells whether the work is done: run in the directory when the agent has ended. Split
    /// at blanks, '…' and "…" keep them; there is no shell
    #[arg(long, value_name = "COMMAND")]
    pub accept: Option<String>,
    /// What it may do without approval; default: the agent's own, else edit
    #[arg(long, value_name = "read|edit|full")]
    pub permissions: Option<String>,
    /// Honour what the directory says about agents (servers, hooks, settings) as it is now: look at it
    /// first
    #[arg(long)]
    pub trust_repo: bool,
    /// Wait until the run has ended or asks something; print only how it ended
    #[arg(short, long, conflicts_with = "detach")]
    pub wait: bool,
    /// Start it, print its name, and return
    #[arg(short, long)]
    pub detach: bool,
    /// Read the prompt from a file
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub file: Option<PathBuf>,
    /// The task; "-" reads it from standard input. What is piped or redirected into the command beside a
    /// task is appended to it; </dev/null keeps it out
    pub prompt: Option<String>,
}

#[derive(Debug, Args)]
pub struct RunArg {
    /// A run: name, id, unique prefix of either, or @last
    pub run: String,
}

#[derive(Debug, Args)]
pub struct PsArgs {
    /// Ended runs too
    #[arg(short, long)]
    pub all: bool,
    /// Only names
    #[arg(short, long)]
    pub quiet: bool,
    /// At most this many
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub limit: Option<u32>,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Go on printing as more comes
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "LINES", value_parser = count)]
    pub lines: Option<u32>,
    /// Only lines that contain this text
    #[arg(long, value_name = "TEXT")]
    pub grep: Option<String>,
    /// A run: name, id, unique prefix of either, or @last
    pub run: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// A question is open, a run has stopped, gone silent or keeps retrying, or one ended
    Attention,
    /// One of the runs ended or stopped; exit code 3 when every one needs somebody
    Any,
    /// All of the runs ended; exit code 3 when every one that is left needs somebody
    All,
}

#[derive(Debug, Args)]
pub struct WaitArgs {
    /// What to wait for
    #[arg(long, value_enum, default_value = "attention")]
    pub until: Until,
    /// Give up after this time, with exit code 124
    #[arg(long, value_name = "10m", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// The runs. Without any: all, beginning with the ends that you were not told of
    pub runs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct CancelArgs {
    /// Why, for the record
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[arg(required = true)]
    pub runs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct PauseArgs {
    pub run: String,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    pub run: String,
    /// How what it stopped for was resolved; "-" reads it from standard input
    pub resolution: Option<String>,
    /// What it is to do next
    #[arg(long, value_name = "TEXT")]
    pub next_step: Option<String>,
    /// After an error or a limit: what to do about it
    #[arg(long, value_enum, value_name = "CHOICE")]
    pub choice: Option<AfterError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AfterError {
    /// Skip what failed and continue with the rest
    Skip,
    /// It was fixed: retry what failed, from the checkpoint
    Retry,
    /// Delegate what is left to another agent
    Delegate,
    /// Reduce the scope and finish
    Reduce,
}

impl AfterError {
    /// Returns the contract's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Retry => "retry",
            Self::Delegate => "delegate",
            Self::Reduce => "reduce",
        }
    }
}

#[derive(Debug, Args)]
pub struct RetryArgs {
    pub run: String,
    /// Replaces the prompt; "-" reads it from standard input
    pub prompt: Option<String>,
}

#[derive(Debug, Args)]
pub struct SendArgs {
    pub run: String,
    /// The message; "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
}

#[derive(Debug, Args)]
pub struct AdoptArgs {
    #[arg(required = true)]
    pub runs: Vec<String>,
    /// The new client's name, a directory for instance; you, when left out
    #[arg(long, value_name = "NAME")]
    pub client: Option<String>,
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Go on printing as more comes
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last ones
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = count)]
    pub last: u32,
    /// Only of this run
    pub run: Option<String>,
}

#[derive(Debug, Args)]
pub struct CleanArgs {
    /// Only runs that ended at least this long ago
    #[arg(long, value_name = "14d", default_value = "14d", value_parser = duration)]
    pub older_than: Duration,
    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}
