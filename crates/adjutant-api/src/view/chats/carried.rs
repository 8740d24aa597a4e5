//! Export and import of a chat.

use adjutant_core::chat::{FileEntry, FileHead, FileMember, FileRevision};
use serde::{Deserialize, Serialize};

/// Reads everything stored about a chat, in parts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExportChat {
    pub chat_id: i64,
    #[serde(default)]
    pub after: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ChatExport {
    /// Only in the first part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CarriedChat>,
    pub entries: Vec<CarriedEntry>,
    /// Pass as `after` for the next part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// Creates a chat from an export: first the head, then the entries in order. Only the person may
/// import, and the chat is marked as imported.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportChat {
    /// The chat that the first part created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<CarriedChat>,
    #[serde(default)]
    pub entries: Vec<CarriedEntry>,
    /// More parts follow. The chat becomes visible with the last one.
    #[serde(default)]
    pub more: bool,
}

/// The first line of an exported chat. Times are in milliseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CarriedChat {
    /// The version of the format: 1.
    pub format: u32,
    pub chat_id: i64,
    pub kind: String,
    pub title: String,
    pub private: bool,
    pub template: Option<String>,
    pub instructions: Option<String>,
    pub window_chars: u64,
    /// Present if the window is measured in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u64>,
    pub turns_max: u32,
    pub archived: bool,
    pub started_by: String,
    pub started_name: String,
    pub started_at: i64,
    pub last_at: i64,
    pub members: Vec<CarriedMember>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CarriedMember {
    pub who: String,
    pub name: String,
    pub joined_at: Option<i64>,
    pub read_seq: i64,
    pub mention_seq: i64,
    pub said: i64,
    pub seen_at: Option<i64>,
}

impl CarriedChat {
    /// Returns the fields that must be validated.
    #[must_use]
    pub fn parts(&self) -> FileHead<'_> {
        FileHead {
            title: &self.title,
            template: self.template.as_deref(),
            instructions: self.instructions.as_deref(),
            started_by: &self.started_by,
            started_name: &self.started_name,
            started_at: self.started_at,
            last_at: self.last_at,
            members: self
                .members
                .iter()
                .map(|member| FileMember {
                    who: &member.who,
                    name: &member.name,
                    times: [member.joined_at, member.seen_at],
                    counts: [member.read_seq, member.mention_seq, member.said],
                })
                .collect(),
        }
    }
}

/// Each further line of an exported chat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CarriedEntry {
    pub seq: i64,
    pub kind: String,
    pub author: String,
    pub name: String,
    pub label: Option<String>,
    pub text: String,
    pub at: i64,
    pub reply_to: Option<i64>,
    pub hops: u32,
    pub pinned: bool,
    pub key: Option<String>,
    pub edited_at: Option<i64>,
    /// Earlier versions of the entry, oldest first.
    pub revisions: Vec<CarriedRevision>,
}

impl CarriedEntry {
    /// Returns the fields that must be validated.
    #[must_use]
    pub fn parts(&self) -> FileEntry<'_> {
        FileEntry {
            seq: self.seq,
            kind: &self.kind,
            author: &self.author,
            name: &self.name,
            label: self.label.as_deref(),
            text: &self.text,
            at: self.at,
            reply_to: self.reply_to,
            key: self.key.as_deref(),
            edited_at: self.edited_at,
            revisions: self
                .revisions
                .iter()
                .map(|old| FileRevision {
                    author: &old.author,
                    name: &old.name,
                    text: &old.text,
                    at: old.at,
                })
                .collect(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CarriedRevision {
    pub author: String,
    pub name: String,
    pub text: String,
    pub at: i64,
}
