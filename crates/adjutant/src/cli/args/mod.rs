//! The command line's grammar. Nothing here acts.

mod agents;

pub use agents::*;

use super::style::ColorChoice;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

fn duration(text: &str) -> Result<Duration, String> {
    crate::config::duration_ms(text).map(|ms| Duration::from_millis(ms.unsigned_abs()))
}

/// Parses how many of something are to be shown.
fn count(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| format!("{text:?} is not a number from 1 to {}", u32::MAX))
}

/// Parses a chat's number.
fn chat_number(text: &str) -> Result<i64, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| format!("{text:?} is not the number of a chat, such as 3 (see adj chat ls)"))
}

/// Parses a message with its chat, such as 3.17.
fn message_id(text: &str) -> Result<String, String> {
    let number = |part: &str| part.parse::<i64>().is_ok_and(|number| number > 0);
    let is_one = text.trim().split_once('.').is_some_and(|(chat, seq)| number(chat) && number(seq));
    if is_one { Ok(text.trim().to_owned()) } else { Err(format!("{text:?} is not a message: use CHAT.NUMBER, such as 3.17 (see adj chat show)")) }
}

/// Parses the number of a message in its chat.
fn position(text: &str) -> Result<i64, String> {
    text.parse().ok().filter(|number| *number >= 0).ok_or_else(|| format!("{text:?} is not the number of a message, such as 17, or 0"))
}

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

/// Arguments that another module reads.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PassedOn {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub args: Vec<OsString>,
}

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
pub struct ChatArgs {
    #[command(subcommand)]
    pub what: ChatWhat,
}

#[derive(Debug, Subcommand)]
pub enum ChatWhat {
    /// List chats, the one with the newest message first
    Ls(ChatLsArgs),
    /// Start a chat and print its number
    Start(ChatStartArgs),
    /// Print a chat's newest messages, and what is unread
    Show(ChatShowArgs),
    /// Say something in a chat, or to an agent, a run or a client; prints what agents answer
    #[command(visible_alias = "send")]
    Post(ChatPostArgs),
    /// Find messages that hold all of these words, the newest first
    Search(SearchArgs),
    /// Print a chat's messages as they come
    Watch(ChatNoArg),
    /// Replace the text of a message of yours; the old one is kept
    Edit(ChatEditArgs),
    /// Pin a message, so that answering agents always see it
    Pin(ChatPinArgs),
    /// Start a chat that goes on from a point of another
    Branch(ChatBranchArgs),
    /// Put a chat away
    Archive(ChatArchiveArgs),
    /// Have an agent summarise a chat, and flag what you should look at
    Summarise(ChatSummariseArgs),
    /// Print a whole chat: as Markdown, or as JSON lines that can be imported
    Export(ChatExportArgs),
    /// Make a chat of exported JSON lines and print its number
    Import(ChatImportArgs),
    /// Figures: messages, participants, answer times, failures; of one chat or of all
    Stats(ChatStatsArgs),
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    #[arg(required = true)]
    pub words: Vec<String>,
    /// Only in this chat
    #[arg(short, long, value_name = "N", value_parser = chat_number)]
    pub chat: Option<i64>,
    /// Only what this participant wrote, asked, answered or reported
    #[arg(short, long, value_name = "NAME")]
    pub from: Option<String>,
    /// Only from this long ago on
    #[arg(long, value_name = "24h", value_parser = duration)]
    pub since: Option<Duration>,
    /// Only until this long ago
    #[arg(long, value_name = "24h", value_parser = duration)]
    pub until: Option<Duration>,
    /// Only questions
    #[arg(short, long)]
    pub questions: bool,
    /// The best first, of the newest 20,000 that match
    #[arg(short, long)]
    pub best: bool,
    /// At most this many
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub limit: Option<u32>,
}

#[derive(Debug, Args)]
pub struct SearchEverywhereArgs {
    /// Only here; may be given more than once
    #[arg(short, long = "in", value_enum, value_name = "WHERE")]
    pub within: Vec<SearchIn>,
    #[command(flatten)]
    pub what: SearchArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SearchIn {
    /// Messages of chats
    Chats,
    /// Questions, approvals, delegations, with their answers
    Questions,
    /// What runs reported at their end, and their last words
    Reports,
}

impl SearchIn {
    /// Returns the contract's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Chats => "chats",
            Self::Questions => "questions",
            Self::Reports => "reports",
        }
    }
}

#[derive(Debug, Args)]
pub struct ChatSummariseArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// Default: chats.summariser of the configuration
    #[arg(short, long)]
    pub agent: Option<String>,
}

#[derive(Debug, Args)]
pub struct ChatExportArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// md or jsonl
    #[arg(long, value_enum, default_value = "md")]
    pub format: ChatFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChatFormat {
    Md,
    Jsonl,
}

#[derive(Debug, Args)]
pub struct ChatImportArgs {
    /// The file; "-" reads standard input
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct ChatStatsArgs {
    /// The chat's number; all chats when left out
    #[arg(value_parser = chat_number)]
    pub chat: Option<i64>,
}

#[derive(Debug, Args)]
pub struct ChatNoArg {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
}

#[derive(Debug, Args)]
pub struct ChatLsArgs {
    /// Archived ones too
    #[arg(short, long)]
    pub all: bool,
    /// At most this many
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub limit: Option<u32>,
}

#[derive(Debug, Args)]
pub struct ChatStartArgs {
    /// 1 to 200 characters
    pub title: String,
    /// Who takes part: agents (which then answer), runs, client:NAME
    #[arg(short = 'w', long = "with", value_name = "NAME")]
    pub participants: Vec<String>,
    /// Only for who takes part
    #[arg(long)]
    pub private: bool,
    /// review, debugging, planning, or one of the configuration
    #[arg(short, long)]
    pub template: Option<String>,
    /// What answering agents are told beside the history
    #[arg(long, value_name = "TEXT")]
    pub instructions: Option<String>,
}

#[derive(Debug, Args)]
pub struct ChatShowArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// From the message after this one on; 0 for the whole chat
    #[arg(long, value_name = "N", value_parser = position)]
    pub after: Option<i64>,
    /// At most this many messages
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub limit: Option<u32>,
}

#[derive(Debug, Args)]
pub struct ChatPostArgs {
    /// A chat's number, or whom it is for
    pub to: String,
    /// The message; "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
    /// The message that this replies to
    #[arg(short, long, value_name = "N")]
    pub reply_to: Option<String>,
    /// Address somebody in the chat
    #[arg(long = "at", value_name = "NAME")]
    pub at: Vec<String>,
    /// Keep it in every window
    #[arg(long)]
    pub pin: bool,
    /// Do not wait for what agents answer
    #[arg(short, long)]
    pub detach: bool,
    /// Where an answering agent works
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ChatEditArgs {
    /// Such as 3.17
    #[arg(value_parser = message_id)]
    pub message: String,
    /// The new text; "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
}

#[derive(Debug, Args)]
pub struct ChatPinArgs {
    /// Such as 3.17
    #[arg(value_parser = message_id)]
    pub message: String,
    /// Take it off
    #[arg(long)]
    pub undo: bool,
}

#[derive(Debug, Args)]
pub struct ChatBranchArgs {
    /// A chat (3), or a message of it (3.17)
    pub from: String,
    pub title: String,
}

#[derive(Debug, Args)]
pub struct ChatArchiveArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// Take it back
    #[arg(long)]
    pub undo: bool,
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

#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub what: Option<ConfigWhat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum ConfigWhat {
    /// Where the configuration file and the home are
    Path,
    /// The configuration in effect
    Show,
}

#[derive(Debug, Args)]
pub struct WebhooksArgs {
    #[command(subcommand)]
    pub what: Option<WebhooksWhat>,
}

#[derive(Debug, Subcommand)]
pub enum WebhooksWhat {
    /// Send again what failed too often, and at once what waits for its next try
    Retry {
        /// Only of this webhook: its address, or the beginning of it; all when left out
        url: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Play in the home that the environment names (the demo starts itself so)
    #[arg(long, hide = true)]
    pub within: bool,
}
