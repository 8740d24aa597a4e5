//! What needs attention, and what owners of runs were notified of.

use super::{Call, MentionView, RequestView, RunView, Waited, Word};
use adjutant_core::attention::Need;
use adjutant_core::words;
use serde::{Deserialize, Serialize};

/// Lists what needs the caller: open requests, stopped runs that nothing resumes by itself, bad ends of its
/// own runs that it was not notified of, unread messages for it. The person also sees what needs clients.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListAttention {
    /// Only of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Only requests after this one (`Q12`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Most of each kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
call!(ListAttention = "attention", writes false -> AttentionList);

/// What needs the caller. Reading it counts as no notification.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AttentionList {
    /// Open requests, oldest first.
    pub requests: Vec<RequestView>,
    /// How many more there are, after those.
    #[serde(default)]
    pub requests_more: u64,
    /// Stopped runs, the longest stopped first, then runs with a bad end, the oldest first.
    pub runs: Vec<RunView>,
    #[serde(default)]
    pub runs_more: u64,
    /// Chats with something unread for the caller.
    pub mentions: Vec<MentionView>,
    #[serde(default)]
    pub mentions_more: bool,
}

impl AttentionList {
    /// Counts all that needs the caller; of more mentions than are listed, those that are.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.len() as u64 + self.requests_more + self.runs.len() as u64 + self.runs_more + self.mentions.len() as u64
    }
}

/// What kind of attention a run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKind {
    /// It has to be resumed or cancelled.
    Stopped,
    /// Its owner has to know how it ended.
    Ended,
}

words!(AttentionKind { Stopped = "stopped", Ended = "ended" });

/// Why a run needs attention.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionView {
    pub kind: Word<AttentionKind>,
    /// The reason of the stop, or how the end was bad.
    pub why: Word<Need>,
    /// What happened, in the run's own words where it left some.
    pub details: String,
    /// What it needs to go on, in the same words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// Its owner was not notified of it yet.
    #[serde(default)]
    pub is_new: bool,
}

impl AttentionView {
    /// Tells whether the run is stopped and has to be resumed or cancelled.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        self.kind == AttentionKind::Stopped
    }
}

/// Confirms that the caller was notified of how runs of its own stopped or ended. A later wait without
/// names does not report these again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfirmNotified {
    #[serde(default)]
    pub runs: Vec<NotifiedRun>,
    /// All stops and ends up to this position: the cursor of a wait without names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}
call!(ConfirmNotified = "notified", writes true -> Notified);

/// A run as it was shown to its owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifiedRun {
    pub run_id: String,
    /// The run's `cursor` when it was shown.
    pub cursor: i64,
}

impl From<&RunView> for NotifiedRun {
    fn from(run: &RunView) -> Self {
        Self { run_id: run.run_id.clone(), cursor: run.cursor }
    }
}

impl Waited {
    /// Returns what confirms that its caller has this result; empty where it says nothing new.
    #[must_use]
    pub fn confirmation(&self, is_named: bool) -> ConfirmNotified {
        if is_named {
            return ConfirmNotified { runs: self.ended.iter().chain(&self.stopped).map(NotifiedRun::from).collect(), until: None };
        }
        let is_new = |run: &RunView| run.attention.as_ref().is_some_and(|attention| attention.is_new);
        let has_news = !self.ended.is_empty() || self.stopped_more > 0 || self.stopped.iter().any(is_new);
        ConfirmNotified { runs: Vec::new(), until: has_news.then_some(self.cursor) }
    }
}

impl ConfirmNotified {
    /// Tells whether it confirms nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.until.is_none()
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Notified {
    /// Stops and ends that the caller is notified of with this call.
    pub runs: u64,
}
