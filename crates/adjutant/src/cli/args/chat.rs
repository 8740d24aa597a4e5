//! The grammar of `adj chat`.

use super::search::SearchArgs;
use super::values::{chat_number, count, message_id, position};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

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
pub struct ChatNoArg {
    /// The chat's number
    #[arg(value_parser = chat_number)]
    pub chat: i64,
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
