//! The grammar of the commands for requests.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct InboxArgs {
    /// Include answered, expired and withdrawn requests
    #[arg(short, long)]
    pub all: bool,
    /// Only requests of this run
    pub run: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReplyArgs {
    /// A question (Q12), or a run with exactly one open question
    pub to: String,
    /// The answer, or the number of an option; "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
    /// With --group: the answers to the other open questions, in order
    pub more: Vec<String>,
    /// Answer all open questions that were asked together with this one, or none
    #[arg(long)]
    pub group: bool,
}

#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// A request (Q12), or a run with exactly one open request
    pub to: String,
    /// A note for the run, such as which option you chose
    #[arg(short = 'm', long, value_name = "TEXT")]
    pub note: Option<String>,
    /// For a delegation: use this agent instead
    #[arg(short, long)]
    pub agent: Option<String>,
    /// For a delegation: use this working directory instead
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// For a delegation: use this priority instead
    #[arg(long, value_name = "P0|P1|P2", value_parser = ["P0", "P1", "P2"])]
    pub priority: Option<String>,
    /// For a delegation: replace the task with the text of a file
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DenyArgs {
    /// A request (Q12), or a run with exactly one open request
    pub to: String,
    /// The reason, which the run receives; "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub reason: String,
}
