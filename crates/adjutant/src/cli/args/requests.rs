//! The grammar of the commands for requests.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct InboxArgs {
    /// Settled questions too
    #[arg(short, long)]
    pub all: bool,
    /// Only of this run
    pub run: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReplyArgs {
    /// A question (Q12), or a run with exactly one open question
    pub to: String,
    /// The answer, or the number of an option; "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
    /// With --group: the answers to the other open questions, in their order
    pub more: Vec<String>,
    /// Answer every open question that was asked together with this one: all or none
    #[arg(long)]
    pub group: bool,
}

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// A request (Q12), or a run with exactly one open
    pub to: String,
    /// Something to say along with it, such as which of the options
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub note: Option<String>,
    /// For a delegation: another agent than the one asked for
    #[arg(short, long)]
    pub agent: Option<String>,
    /// For a delegation: another directory
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// For a delegation: another priority
    #[arg(long, value_name = "P0|P1|P2", value_parser = ["P0", "P1", "P2"])]
    pub priority: Option<String>,
    /// For a delegation: another task, read from a file
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DenyArgs {
    /// A request (Q12), or a run with exactly one open
    pub to: String,
    /// Why; the run is told. "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub reason: String,
}
