//! The grammar of `adj chat`.

use super::search::SearchArgs;
use super::values::{chat_number, count, duration, message_id, position};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ChatArgs {
    #[command(subcommand)]
    pub what: Option<ChatCommand>,
    /// Open this chat on the terminal: show its messages as they arrive, and post each line that
    /// you type (/quit or Ctrl-D leaves). Without a number, list the chats
    #[arg(value_parser = chat_number)]
    pub chat: Option<i64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChatCommand {
    /// List chats, newest message first
    #[command(alias = "list")]
    Ls(ChatLsArgs),
    /// Start a chat and print its number
    #[command(aliases = ["new", "create"])]
    Start(ChatStartArgs),
    /// Print a chat's newest and unread messages
    Show(ChatShowArgs),
    /// Post a message to a chat, an agent, a run or a client, and print the agents' answers
    #[command(visible_alias = "send")]
    Post(ChatPostArgs),
    /// Find messages that contain all of these words, newest first
    Search(SearchArgs),
    /// Print a chat's messages as they arrive
    Watch(ChatNoArg),
    /// Replace the text of one of your messages (the old text is kept)
    Edit(ChatEditArgs),
    /// Pin a message, so that answering agents always see it
    Pin(ChatPinArgs),
    /// Start a chat that continues from a message of another
    Branch(ChatBranchArgs),
    /// Archive a chat
    Archive(ChatArchiveArgs),
    /// Have an agent summarise a chat and flag what needs your attention
    Summarise(ChatSummariseArgs),
    /// Print a whole chat as Markdown, or as JSON lines for import
    Export(ChatExportArgs),
    /// Create a chat from exported JSON lines and print its number
    Import(ChatImportArgs),
    /// Let another hub follow a chat (invite it first with adj peer invite)
    Share(ChatShareArgs),
    /// Stop sharing a chat with another hub
    Unshare(ChatUnshareArgs),
    /// Follow a chat of another hub as a local copy, to which you can post; print its number
    Follow(ChatFollowArgs),
    /// Stop following a chat of another hub; the copy stays
    Unfollow(ChatNoArg),
    /// Print statistics: messages, participants, answer times, failures
    Stats(ChatStatsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ChatLsArgs {
    /// Include archived chats
    #[arg(short, long)]
    pub all: bool,
    /// Print at most this many
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub limit: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct ChatStartArgs {
    /// The title: 1 to 200 characters
    pub title: String,
    /// Add a participant: an agent (which answers), a run, or client:NAME
    #[arg(short = 'w', long = "with", value_name = "NAME")]
    pub participants: Vec<String>,
    /// Visible to participants only
    #[arg(long)]
    pub private: bool,
    /// A template: review, debugging, planning, or one from the configuration
    #[arg(short, long)]
    pub template: Option<String>,
    /// Instructions for answering agents, in addition to the history
    #[arg(long, value_name = "TEXT")]
    pub instructions: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ChatShowArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// Print messages after this number; 0 prints the whole chat
    #[arg(long, value_name = "N", value_parser = position)]
    pub after: Option<i64>,
    /// Print at most this many messages
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub limit: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct ChatPostArgs {
    /// A chat's number, or an agent, a run or client:NAME
    pub to: String,
    /// The message; "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
    /// The number of the message to reply to
    #[arg(short, long, value_name = "N")]
    pub reply_to: Option<String>,
    /// Mention a participant
    #[arg(long = "at", value_name = "NAME")]
    pub at: Vec<String>,
    /// Pin the message, so that answering agents always see it
    #[arg(long)]
    pub pin: bool,
    /// Do not wait for answers
    #[arg(short, long)]
    pub detach: bool,
    /// Wait at most this long for the reply of the addressed run
    #[arg(short, long, value_name = "10m", value_parser = duration, conflicts_with = "detach")]
    pub wait: Option<Duration>,
    /// The working directory of answering agents
    #[arg(short = 'C', long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ChatNoArg {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
}

#[derive(Debug, Args)]
pub(crate) struct ChatEditArgs {
    /// A message, such as 3.17
    #[arg(value_parser = message_id)]
    pub message: String,
    /// The new text; "-" reads it from standard input
    #[arg(allow_hyphen_values = true)]
    pub text: String,
}

#[derive(Debug, Args)]
pub(crate) struct ChatPinArgs {
    /// A message, such as 3.17
    #[arg(value_parser = message_id)]
    pub message: String,
    /// Unpin it
    #[arg(long)]
    pub undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChatBranchArgs {
    /// A chat (3) or a message in it (3.17)
    pub from: String,
    /// The new chat's title
    pub title: String,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArchiveArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// Restore an archived chat
    #[arg(long)]
    pub undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChatSummariseArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// The agent; default: chats.summariser in the configuration
    #[arg(short, long)]
    pub agent: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ChatExportArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// The output format
    #[arg(long, value_enum, default_value = "md")]
    pub format: ChatFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChatFormat {
    Md,
    Jsonl,
}

#[derive(Debug, Args)]
pub(crate) struct ChatImportArgs {
    /// The file; "-" reads standard input
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ChatShareArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// The other hub
    pub peer: String,
    /// Let the other hub read, but not post
    #[arg(long)]
    pub read_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChatUnshareArgs {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// The other hub
    pub peer: String,
}

#[derive(Debug, Args)]
pub(crate) struct ChatFollowArgs {
    /// The other hub
    pub peer: String,
    /// The chat's number there (adj peer show lists them)
    #[arg(value_parser = chat_number)]
    pub chat: i64,
    /// Make the copy visible to this client and its runs
    #[arg(long, value_name = "CLIENT")]
    pub client: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ChatStatsArgs {
    /// The chat's number; default: all chats
    #[arg(value_parser = chat_number)]
    pub chat: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct BoardArgs {
    /// Only the boards that this run can see; with --post, the board of its tree
    pub run: Option<String>,
    /// Add an entry, in JSON or as text; "-" reads it from standard input
    #[arg(short, long, value_name = "ENTRY", allow_hyphen_values = true)]
    pub post: Option<String>,
    /// Set the entry with this key
    #[arg(short, long, requires = "post")]
    pub key: Option<String>,
    /// Refuse unless the entry has this version now (0: it does not exist yet)
    #[arg(long, value_name = "VERSION", requires = "key")]
    pub expect: Option<u32>,
    /// Print at most this many entries
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub limit: Option<u32>,
}
