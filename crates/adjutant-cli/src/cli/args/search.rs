//! The grammar of `adj search` and `adj chat search`.

use super::values::{chat_number, count, duration};
use adjutant_core::words;
use clap::{Args, ValueEnum};
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// Words that must all appear
    #[arg(required = true)]
    pub words: Vec<String>,
    /// Only in this chat
    #[arg(short, long, value_name = "N", value_parser = chat_number)]
    pub chat: Option<i64>,
    /// Only what this participant wrote, asked, answered or reported
    #[arg(short, long, value_name = "NAME")]
    pub from: Option<String>,
    /// Only entries newer than this
    #[arg(long, value_name = "24h", value_parser = duration)]
    pub since: Option<Duration>,
    /// Only entries older than this
    #[arg(long, value_name = "24h", value_parser = duration)]
    pub until: Option<Duration>,
    /// Only questions
    #[arg(short, long)]
    pub questions: bool,
    /// Order by relevance, among the newest 20,000 matches
    #[arg(short, long)]
    pub best: bool,
    /// Print at most this many
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub limit: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct SearchEverywhereArgs {
    /// Search only here; can be repeated
    #[arg(short, long = "in", value_enum, value_name = "WHERE")]
    pub within: Vec<SearchIn>,
    #[command(flatten)]
    pub what: SearchArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchIn {
    /// Chat messages
    Chats,
    /// Questions, approvals and delegations, with their answers
    Questions,
    /// Completion reports and final output of runs
    Reports,
}

words!(SearchIn { Chats = "chats", Questions = "questions", Reports = "reports" });
