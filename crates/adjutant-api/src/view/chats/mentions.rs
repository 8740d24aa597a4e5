//! Unread messages for the caller.

use super::entries::ChatEntryView;
use crate::view::Word;
use adjutant_core::chat::ChatKind;
use serde::{Deserialize, Serialize};

/// Lists chats with unread messages for the caller: a message that mentions it, a direct message,
/// or a flag.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListMentions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mentions {
    pub mentions: Vec<MentionView>,
    /// There are more than were asked for.
    #[serde(default)]
    pub more: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MentionView {
    pub chat_id: i64,
    pub title: String,
    pub kind: Word<ChatKind>,
    /// The number of unread entries in the chat, counted up to 1,000.
    pub unread: i64,
    /// The newest unread message for the caller.
    pub message: ChatEntryView,
}
