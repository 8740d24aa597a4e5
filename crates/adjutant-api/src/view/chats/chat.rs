//! Chats and their participants.

use crate::view::{OutgoingView, PeerFollowedView, ShareView, Word};
use adjutant_core::chat::ChatKind;
use adjutant_core::limits::UNREAD_COUNTED_MAX;
use adjutant_core::run::RunStatus;
use adjutant_core::words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Starts a chat. It is open to its owner and all of the owner's runs. A private chat is open to
/// its participants only.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StartChat {
    pub title: String,
    /// Agents, runs, `person`, `parent` or `client:<name>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub participants: Vec<String>,
    #[serde(default)]
    pub private: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Instructions for the agents that answer in the chat, in addition to its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Branches from another chat: `3` (at its end) or `3.17` (after that entry).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_from: Option<String>,
}

/// Which chats to list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatFilter {
    Active,
    Archived,
    All,
}

words!(ChatFilter { Active = "active", Archived = "archived", All = "all" });

/// Whether a chat is archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatStatus {
    Active,
    Archived,
}

words!(ChatStatus { Active = "active", Archived = "archived" });

/// What a participant is currently doing in a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// The participant waits for new entries.
    Reading,
    Answering,
    /// The participant's answer is queued.
    Queued,
}

words!(Activity { Reading = "reading", Answering = "answering", Queued = "queued" });

/// Lists the chats that the caller may see, most recent entry first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListChats {
    /// Default: active chats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Word<ChatFilter>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Waits up to this long until there is an unread message for the caller.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wait_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChatList {
    pub chats: Vec<ChatView>,
    /// There are more than were asked for.
    #[serde(default)]
    pub more: bool,
    /// If the caller is a run: its owner's other unfinished runs, live ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub team: Vec<TeammateView>,
    /// There are more runs than `team` has.
    #[serde(default)]
    pub team_more: bool,
}

/// What a run sees of another run of the same owner.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TeammateView {
    pub run_id: String,
    pub name: String,
    pub agent: String,
    pub status: Word<RunStatus>,
    /// The beginning of the run's task.
    pub task: String,
}

/// Formats a number of unread entries, with a `+` if counting stopped at the maximum.
#[must_use]
pub fn unread_text(unread: i64) -> String {
    if unread < UNREAD_COUNTED_MAX {
        unread.to_string()
    } else {
        format!("{UNREAD_COUNTED_MAX}+")
    }
}

/// Archives or restores a chat. Not available to runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ArchiveChat {
    pub chat_id: i64,
    pub archived: bool,
    /// The working directory of the summarising run, absolute, if the configuration asks for a
    /// summary.
    #[serde(default)]
    pub cwd: String,
    /// Environment variables for that run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// A chat without its entries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChatView {
    pub chat_id: i64,
    pub kind: Word<ChatKind>,
    pub title: String,
    pub status: Word<ChatStatus>,
    pub private: bool,
    /// `person` or `client:<name>`.
    pub owner: String,
    /// The root run of the run that started the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    pub started_by: String,
    pub started_at: String,
    pub last_at: String,
    /// The number of the newest entry.
    pub last_seq: i64,
    pub participant_count: u64,
    /// The number of entries that the caller has not read, counted up to 1,000.
    pub unread: i64,
    /// An unread entry mentions the caller.
    pub mentioned: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The entry that the chat branched from, `3.17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_of: Option<String>,
    /// The chat was imported from a file; its entries are not verified.
    #[serde(default)]
    pub imported: bool,
    /// The peers that may follow the chat. Only in replies about a single chat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<ShareView>,
    /// The peer whose chat this is a copy of. Only in replies about a single chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<PeerFollowedView>,
    /// Posts to a followed chat that are not entries yet, and those that were refused. Only in
    /// replies about a single chat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outgoing: Vec<OutgoingView>,
    /// Chats that branched from this one. Only in replies about a single chat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<i64>,
    /// Only in replies about a single chat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub participants: Vec<ParticipantView>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ParticipantView {
    /// `person`, `client:<name>`, `run:<id>` or `agent:<name>`.
    pub who: String,
    /// The display name. No participant is shown under another's name.
    pub name: String,
    pub messages: i64,
    pub read_to: i64,
    /// Empty if the participant is not active.
    pub presence: Word<Activity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_at: Option<String>,
}
