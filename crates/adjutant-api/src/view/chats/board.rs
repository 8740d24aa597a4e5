//! Boards.

use serde::{Deserialize, Serialize};

/// Reads the boards that the caller may see, merged: the entries that were added or changed last,
/// oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadBoard {
    /// Reads only the boards that this run sees: its owner's and its tree's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Board {
    pub entries: Vec<BoardEntryView>,
    /// There are older entries.
    #[serde(default)]
    pub more: bool,
}

/// One entry of a board.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BoardEntryView {
    /// `3.17`.
    pub message_id: String,
    pub chat_id: i64,
    /// The board's title.
    pub board: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Pass as `expect` to change the entry.
    pub version: u32,
    /// The author of this version.
    pub from: String,
    pub name: String,
    /// When this version was written.
    pub at: String,
    /// The entry as JSON; a text that is not JSON is a string.
    pub value: serde_json::Value,
}
