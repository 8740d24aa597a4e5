//! The command line's grammar. Nothing here acts.

mod agents;
mod chat;
mod hub;
mod install;
mod peers;
mod pools;
mod requests;
mod runs;
mod search;
mod stats;
mod store;
mod values;

pub(crate) use agents::*;
pub(crate) use chat::*;
pub(crate) use hub::*;
pub(crate) use install::*;
pub(crate) use peers::*;
pub(super) use pools::*;
pub(super) use requests::*;
pub(super) use runs::*;
pub(crate) use search::*;
pub(crate) use stats::*;
pub(crate) use store::*;

use super::field_list::FieldList;
use super::style::ColorChoice;
use clap::{Args, Parser, Subcommand};

/// The heading of the options that all commands have.
const GLOBAL_HEADING: &str = "Global options";

/// How to install completion: one line for each shell.
const COMPLETIONS_HELP: &str = "Add one line to the configuration of your shell:
in ~/.bashrc:                            source <(adj completions bash)
in ~/.zshrc, after compinit:             source <(adj completions zsh)
in ~/.config/fish/completions/adj.fish:  adj completions fish | source";

/// Run coding agents in the background, supervise them, and answer their questions.
#[derive(Debug, Parser)]
#[command(
    name = "adj",
    version,
    disable_help_subcommand = true,
    arg_required_else_help = false,
    max_term_width = 100
)]
#[command(after_help = "More: adj help COMMAND. Topics: adj help topics")]
pub(super) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Global {
    /// Print JSON: {"schema":1,"data":…}, one object per line with -f; errors are one JSON line on
    /// stderr. With FIELDS, such as name,state, only these fields of each object
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL_HEADING,
        value_name = "FIELDS",
        num_args = 0..=1,
        require_equals = true,
        value_parser = FieldList::parse
    )]
    pub json: Option<Option<FieldList>>,
    /// When to use colours: auto, always or never
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL_HEADING,
        value_enum,
        default_value = "auto",
        value_name = "WHEN",
        hide_possible_values = true
    )]
    pub color: ColorChoice,
    /// Use a home in memory; runs, chats and logs are lost when its hub stops (adj --ephemeral
    /// stop)
    #[arg(long, global = true, help_heading = GLOBAL_HEADING)]
    pub ephemeral: bool,
    /// Never prompt on the terminal
    #[arg(long, global = true, help_heading = GLOBAL_HEADING)]
    pub no_input: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Start a run and follow it (detached when not on a terminal; -w waits)
    #[command(
        after_help = "Examples:\n  adj run -a claude \"fix the failing test\"\n  adj run -a codex --clone -n parser --accept \"cargo test\" \"rewrite the parser\"\n  git diff | adj run -a gemini -w \"review this change\""
    )]
    Run(Box<RunArgs>),
    /// List runs: those that need you first, then live ones; -a adds ended ones
    #[command(visible_alias = "ls")]
    #[command(after_help = "Examples:\n  adj ps\n  adj ps -a --json")]
    Ps(PsArgs),
    /// Show the details of a run
    Show(ShowArgs),
    /// Print the output of runs (Ctrl-C leaves; the runs continue)
    #[command(
        after_help = "Examples:\n  adj logs -f parser\n  adj logs -f parser tests\n  adj logs @last -n 50 --grep error"
    )]
    Logs(LogsArgs),
    /// Follow a run's output (same as logs -f)
    #[command(hide = true)]
    Attach(RunArg),
    /// Wait until a run needs you, stops or ends
    #[command(after_help = "Examples:\n  adj wait\n  adj wait parser tests --timeout 30m")]
    Wait(WaitArgs),
    /// List what needs you: questions, approvals, delegations, stopped and failed runs, messages
    Inbox(InboxArgs),
    /// Answer a question (with --group, all questions asked together)
    #[command(
        after_help = "Examples:\n  adj reply Q12 2\n  adj reply parser \"use the old format\""
    )]
    Reply(ReplyArgs),
    /// Approve an approval request or a delegation
    #[command(after_help = "Examples:\n  adj approve Q3\n  adj approve Q3 --same --for 1h")]
    Approve(ApproveArgs),
    /// Deny a request, or revoke an approval that has not been used
    Deny(DenyArgs),
    /// List grants (approvals of the same operation again), or revoke one
    Grants(GrantsArgs),
    /// List policies, try them on recorded approvals, or trust those of a repository
    Policy(PolicyArgs),
    /// Answer what needs you, one after the other, oldest first
    #[command(after_help = "Examples:\n  adj next\n  adj next Q8")]
    Next(NextArgs),
    /// Show what a run changed
    #[command(after_help = "Examples:\n  adj diff parser --stat\n  adj diff parser 2..4")]
    Diff(DiffArgs),
    /// Restore a run's files to an earlier state (before the run, by default); can itself be undone
    #[command(after_help = "Examples:\n  adj undo parser\n  adj undo parser 3")]
    Undo(UndoArgs),
    /// Merge the changes of an isolated run into your repository
    #[command(
        after_help = "Examples:\n  adj merge parser\n  adj merge parser --squash\n  adj merge parser --resolve-with claude"
    )]
    Merge(MergeArgs),
    /// Open your editor, or a shell, in a run's directory (without a terminal: print its path)
    Open(OpenArgs),
    /// Comment on lines that a run changed; a finished run gets a follow-up run
    Comment(CommentArgs),
    /// Remove the workspace of a run; its snapshots stay
    Discard(DiscardArgs),
    /// Cancel runs and end every process they started
    #[command(visible_alias = "kill")]
    Cancel(CancelArgs),
    /// Pause a run; continue it with adj resume
    Pause(PauseArgs),
    /// Resume a stopped run from its checkpoint
    Resume(ResumeArgs),
    /// Run the task of an ended or stopped run again, as a new run (a stopped run is cancelled)
    Retry(RetryArgs),
    /// Send a message to a live run
    Send(SendArgs),
    /// Chat with agents and runs
    Chat(ChatArgs),
    /// Print the boards that runs share, or add an entry
    Board(BoardArgs),
    /// Search chats, questions and answers, and completion reports
    Search(SearchEverywhereArgs),
    /// List agents, show one, test one, or add one
    Agents(AgentsArgs),
    /// List pools with their slots and queues, change their slots, pause or resume them
    Pools(PoolsArgs),
    /// Show statistics of runs: outcomes, times, answers, costs (--by groups them)
    Stats(StatsArgs),
    /// Show the budget of a run and the runs below it, or raise it
    #[command(after_help = "Examples:\n  adj budget parser --add cost=5")]
    Budget(BudgetArgs),
    /// Reassign runs to another client
    Adopt(AdoptArgs),
    /// Print the event history
    Events(EventsArgs),
    /// Stop the hub (live runs continue; the next command starts it again)
    Stop,
    /// Remove runs that have ended, with their files; their names can be used again
    #[command(after_help = "Examples:\n  adj rm parser")]
    Rm(RmArgs),
    /// Remove all finished runs of a certain age, with their files
    Clean(CleanArgs),
    /// List webhooks and their pending deliveries, or retry failed ones
    Webhooks(WebhooksArgs),
    /// Watch a scripted demo in a temporary home (about 20 seconds, no API keys)
    Demo(DemoArgs),
    /// Set up adj: show the agents and clients that are found, and connect them
    Init(InitArgs),
    /// Connect coding agents to adj: add its MCP server to their configuration (--undo removes it)
    Install(InstallArgs),
    /// Check the installation and suggest fixes
    Doctor(DoctorArgs),
    /// Show how this adj was installed, whether other versions are used, and the commands that
    /// update it
    #[command(
        after_help = "It contacts no server, and changes nothing. The exit code is 1 if the hub or an adj on PATH has another version."
    )]
    Update(UpdateArgs),
    /// Show what is installed, and remove the entries and skills of clients, and with --home all
    /// data
    #[command(
        after_help = "It refuses while runs are live or queued. It never removes the program; it prints the command that does."
    )]
    Uninstall(UninstallArgs),
    /// Show the board in the terminal, and answer there (with the same keys as the dashboard)
    Top,
    /// Open the dashboard in a browser
    Ui(UiArgs),
    /// Run the hub in the foreground; --listen serves HTTP too
    Serve(ServeArgs),
    /// Start runs on this machine for a hub on another one, in the foreground
    #[command(
        after_help = "Example:\n  adj runner --join https://adj.example.org:7317 --token-file ~/runner.token --pool gpu"
    )]
    Runner(RunnerArgs),
    /// Copy the store between the file in the home and a database on a PostgreSQL server
    Store(StoreArgs),
    /// Make, list or revoke tokens for callers over HTTP
    Token(TokenArgs),
    /// Exchange chats with other hubs: invite, add, list, show, block or remove them
    Peer(PeerArgs),
    /// Serve MCP on standard input and output, for an MCP client
    Mcp(McpArgs),
    /// Show the configuration in effect, or change a setting
    #[command(after_help = "Every setting: adj help configuration")]
    Config(ConfigArgs),
    /// Complete commands and names (runs, agents, requests, chats, pools) in your shell: print its
    /// script
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print help for a command or a topic (adj help topics lists them)
    Help {
        /// A command or a topic
        topic: Vec<String>,
    },
}
