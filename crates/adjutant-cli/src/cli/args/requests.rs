//! The grammar of the commands for requests.

use super::values::{count, positive_duration};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct InboxArgs {
    /// Include answered, expired and withdrawn requests
    #[arg(short, long)]
    pub all: bool,
    /// Only requests of this run
    pub run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NextArgs {
    /// Only this request (Q12), or only what this run needs; default: everything
    pub of: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplyArgs {
    /// A question (Q12), or a run with exactly one open question
    pub to: String,
    /// The answer, in one or several words, or the number of an option; "-" reads it from standard
    /// input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
    /// Further words of the answer; with --group: the answers to the other open questions, in order
    pub more: Vec<String>,
    /// Answer all open questions that were asked together with this one, or none
    #[arg(long)]
    pub group: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApproveArgs {
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
    /// Also approve the same operation for all runs of the tree from now on (see adj grants)
    #[arg(long)]
    pub same: bool,
    /// With --same (implied): only for this long
    #[arg(long = "for", value_name = "1h", value_parser = positive_duration)]
    pub for_time: Option<Duration>,
    /// With --same (implied): only this many times
    #[arg(long, value_name = "N", value_parser = count)]
    pub uses: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct DenyArgs {
    /// A request (Q12), or a run with exactly one open request
    pub to: String,
    /// The reason, in one or several words, which the run receives; "-" reads it from standard
    /// input
    #[arg(allow_hyphen_values = true, required_unless_present = "message")]
    pub reason: Option<String>,
    #[arg(hide = true)]
    pub more: Vec<String>,
    /// The reason, given as an option
    #[arg(
        short = 'm',
        long = "reason",
        value_name = "TEXT",
        conflicts_with = "reason"
    )]
    pub message: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub what: Option<PolicyCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show how the policies in effect would answer a request to run a command, and why the others
    /// would not
    Check {
        /// The agent that asks [default: the default agent, else claude]
        #[arg(short, long)]
        agent: Option<String>,
        /// The tool with which it asks, such as request_approval [default: Bash]
        #[arg(long)]
        tool: Option<String>,
        /// The permissions of the run: read, edit or full [default: those of the agent]
        #[arg(long, value_name = "PROFILE")]
        permissions: Option<String>,
        /// The directory of the run [default: the current directory]
        #[arg(short = 'C', long = "dir", value_name = "DIR")]
        dir: Option<PathBuf>,
        /// The words of a command, or a command line as one word
        #[arg(required = true, last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Show how the policies in a configuration file would have answered recorded approvals
    Try {
        /// A configuration file with [[policies]]
        file: PathBuf,
        /// How many of the newest approvals to use
        #[arg(long, value_name = "N", default_value = "100", value_parser = count)]
        last: u32,
    },
    /// Trust the current policies of a repository (.adjutant.toml), so that they can also allow; or
    /// a change of your own
    Trust {
        /// The directory that contains the file [default: the current directory]
        dir: Option<PathBuf>,
        /// Trust this change of the policies in your configuration file, which adj policy shows
        #[arg(long, value_name = "ID", conflicts_with = "dir")]
        change: Option<String>,
    },
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GrantsArgs {
    /// Include grants that have been revoked, have expired or are used up
    #[arg(short, long)]
    pub all: bool,
    #[command(subcommand)]
    pub what: Option<GrantsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// Revoke a grant; requests that it has approved stay approved
    Revoke {
        /// The number of the grant (G3)
        grant: String,
    },
}
