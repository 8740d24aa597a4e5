//! The entries of a chat: reading and posting them.

use super::chat::ChatView;
use crate::view::Word;
use adjutant_core::chat::{EntryKind, Receipt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Reads a chat, optionally waiting for new entries. The reader's cursor advances over the entries
/// shown unless unread entries precede them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ShowChat {
    pub chat_id: i64,
    /// Returns the oldest entries after this one. Default: the newest entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Also returns earlier entries that were edited or pinned since an earlier page: its
    /// [`ChatPage::changes`]. Default: only changes made during the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<i64>,
    /// Waits up to this long for a new entry: one after `after`, else one that the reader has not
    /// read.
    #[serde(default)]
    pub wait_ms: u64,
    /// Reads without moving the cursor.
    #[serde(default)]
    pub peek: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChatPage {
    pub chat: ChatView,
    /// Oldest first.
    pub messages: Vec<ChatEntryView>,
    /// Earlier entries that were edited or pinned, as they are now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<ChatEntryView>,
    /// Pass as `after` to read the next entries.
    pub cursor: i64,
    /// Pass as `changes` to read later edits and pins.
    #[serde(default)]
    pub changes: i64,
    /// The number of entries after `cursor`.
    pub more: i64,
    /// The reader knew of entries that the chat does not have, because the database of the hub was
    /// set back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset: bool,
    /// The number of unread entries before these, counted up to 1,000. While there are any, later
    /// entries do not count as read.
    #[serde(default)]
    pub unread_before: i64,
    /// The last entry that the reader had read. Pass as `after` to see the unread ones.
    #[serde(default)]
    pub read_to: i64,
}

/// Posts a message to a chat or directly to a participant, or edits or pins a message.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Say {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    /// The recipients: agents, runs, `person`, `parent` or `client:<name>`. Without `chat_id`
    /// exactly one recipient, or `board` (the owner's board, shared by all its runs), `root-board`
    /// (the board of the calling run's tree) or `ledger` (announces what the calling run will
    /// change or provide).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Optional if the call only pins an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// An entry's number (`17`), or `3.17`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit_of: Option<String>,
    /// Whether the entry is pinned. Agents always see pinned entries, however old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<bool>,
    /// A display label (`agentName` in the original protocol). It grants nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The run whose tree's board `root-board` is, if the caller is not a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board_of: Option<String>,
    /// The key of the board entry to set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The revision that the board entry must have: 0 if it must not exist yet, 1 for its first
    /// revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u32>,
    /// Lets the configured default responder answer if no other agent is addressed.
    #[serde(default)]
    pub default_responder: bool,
    /// The working directory of an answering run, absolute. A calling run's own directory is used
    /// instead.
    #[serde(default)]
    pub cwd: String,
    /// Environment variables for an answering run. A calling run's own are used instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PostedMessage {
    pub chat_id: i64,
    pub title: String,
    pub message: ChatEntryView,
    /// The agents that will answer.
    #[serde(default)]
    pub answering: Vec<String>,
    /// Notes for people.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The runs to which the message was addressed, and how far it has come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<ReceiptView>,
    /// No agent takes part in the chat, and the message names nobody, so no agent answers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_no_agent: bool,
}

/// How far a message to a run has come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReceiptView {
    pub run_id: String,
    pub run_name: String,
    pub receipt: Word<Receipt>,
    pub at: String,
}

/// One entry of a chat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChatEntryView {
    /// `3.17`.
    pub message_id: String,
    pub chat_id: i64,
    pub seq: i64,
    pub kind: Word<EntryKind>,
    /// The author, identified by its connection: `person`, `client:<name>`, `run:<id>`,
    /// `agent:<name>` or `hub`.
    pub from: String,
    /// The display name. No participant is shown under another's name.
    pub name: String,
    /// The name that the author gave itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub text: String,
    pub at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<i64>,
    #[serde(default)]
    pub pinned: bool,
    /// The number of edits.
    #[serde(default)]
    pub revision: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The runs to which the entry was sent, and how far it has come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<ReceiptView>,
}
