//! Full-text search.

use super::Word;
use adjutant_core::RequestKind;
use adjutant_core::chat::EntryKind;
use adjutant_core::words::Words;
use serde::{Deserialize, Serialize};

/// Searches what the caller may see: chat messages, requests with their answers, and completion
/// reports. A hit contains all words of the query.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Search {
    pub query: String,
    /// `chats`, `questions`, `reports`. Empty: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// Only in this chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    /// The author, asker, answerer or reporter: an agent, a run, `person` or `client:<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Only questions and messages that contain a question mark.
    #[serde(default)]
    pub has_question: bool,
    /// Sorts by relevance (among the newest 20,000 matches) instead of by time.
    #[serde(default)]
    pub best: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SearchHits {
    pub hits: Vec<SearchHit>,
    /// The search reached its deadline, so hits may be missing.
    #[serde(default)]
    pub incomplete: bool,
}

/// The kind of a hit. The words of the variants are distinct.
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
        EntryKind::from_word(word)
            .map(Self::Entry)
            .or_else(request)
            .or_else(|| (word == "report").then_some(Self::Report))
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SearchHit {
    pub kind: Word<HitKind>,
    /// For a chat message `3.17`, for a request its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// For a request: `Q12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<i64>,
    /// For a request or a report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_name: Option<String>,
    /// The chat's title, or the run's name.
    pub title: String,
    /// The author, asker or reporter.
    pub from: String,
    pub name: String,
    pub at: String,
    /// An excerpt in which « and » enclose the matches.
    pub snippet: String,
}
