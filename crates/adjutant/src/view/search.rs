//! Searches in the contract.

use super::{Call, Word};
use adjutant_core::RequestKind;
use adjutant_core::chat::EntryKind;
use adjutant_core::words::Words;
use serde::{Deserialize, Serialize};

/// Searches what the caller may see: messages of chats, questions (approvals, delegations) with their
/// answers, completion reports. The text is words, all of which a hit must hold.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    pub query: String,
    /// `chats`, `questions`, `reports`; empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// Only in this chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    /// Who wrote, asked, answered or reported: an agent, a run, `person`, `client:<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Only questions, and messages with a question mark.
    #[serde(default)]
    pub has_question: bool,
    /// The best first (of the newest 20,000 that match), instead of the newest.
    #[serde(default)]
    pub best: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
call!(Search = "search", writes false -> SearchHits);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SearchHits {
    pub hits: Vec<SearchHit>,
    /// The deadline came first: there may be more.
    #[serde(default)]
    pub incomplete: bool,
}

/// What was found. No word means two of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HitKind {
    Entry(EntryKind),
    Request(RequestKind),
    Report,
}

impl Words for HitKind {
    fn word(self) -> &'static str {
        match self {
            Self::Entry(kind) => kind.word(),
            Self::Request(kind) => kind.word(),
            Self::Report => "report",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        let request = || RequestKind::from_word(word).map(Self::Request);
        EntryKind::from_word(word).map(Self::Entry).or_else(request).or_else(|| (word == "report").then_some(Self::Report))
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SearchHit {
    pub kind: Word<HitKind>,
    /// Of a message: `3.17`. Of a request: its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Of a request: `Q12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    /// Of a request and a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_name: Option<String>,
    /// The chat's title, or the run's name.
    pub title: String,
    /// Who wrote, asked or reported.
    pub from: String,
    pub name: String,
    pub at: String,
    /// What matched stands between « and ».
    pub snippet: String,
}
