//! Items that need attention, and the notifications that the owners of runs have received.

use super::{
    MentionView, PolicyChangeView, RequestView, RunView, SetBackView, WaitOutcome, Waited, Word,
};
use adjutant_core::attention::Need;
use adjutant_core::words;
use serde::{Deserialize, Serialize};

/// Lists what needs the caller's attention: open requests, stopped runs that do not resume by
/// themselves, its own runs that ended badly and were not yet reported to it, and unread messages
/// addressed to it. The person also sees what needs the attention of clients.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListAttention {
    /// Only what concerns this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Only requests after this one (`Q12`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The maximum number of items of each kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// The items that need the caller's attention. Reading them does not count as a notification.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AttentionList {
    /// Open requests, oldest first.
    pub requests: Vec<RequestView>,
    /// The number of further open requests.
    #[serde(default)]
    pub requests_more: u64,
    /// Stopped runs, longest stopped first, then runs that stay alive in silence after their
    /// reports, then runs that ended badly, oldest first, then, for a person, runs with an
    /// interrupted undo.
    pub runs: Vec<RunView>,
    #[serde(default)]
    pub runs_more: u64,
    /// Chats with unread messages for the caller.
    pub mentions: Vec<MentionView>,
    #[serde(default)]
    pub mentions_more: bool,
    /// A change of the policies that waits for the person's trust. Only for the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_change: Option<PolicyChangeView>,
    /// The database of the hub was set back within the last day. Only for the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_back: Option<SetBackView>,
}

impl AttentionList {
    /// Returns the number of items that need attention. Mentions beyond those listed are not
    /// counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.len() as u64
            + self.requests_more
            + self.runs.len() as u64
            + self.runs_more
            + self.mentions.len() as u64
    }
}

/// The kind of attention that a run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionKind {
    /// The run must be resumed or cancelled.
    Stopped,
    /// The run ended badly, and its owner must learn of it.
    Ended,
    /// The run has reported its result, and its process lives on in silence. It may have to be
    /// cancelled.
    Alive,
}

words!(AttentionKind { Stopped = "stopped", Ended = "ended", Alive = "alive" });

/// Why a run needs attention.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AttentionView {
    pub kind: Word<AttentionKind>,
    /// Why the run stopped, or how it ended.
    pub why: Word<Need>,
    /// The cause, in the run's own words if it gave any.
    pub details: String,
    /// What the run needs to continue, from the same source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// The owner has not been notified of it yet.
    #[serde(default)]
    pub is_new: bool,
}

impl AttentionView {
    /// Returns whether the run is stopped and must be resumed or cancelled.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        self.kind == AttentionKind::Stopped
    }
}

/// Confirms that the caller was notified of stops, ends and reports of its own runs. A later wait
/// that names no runs does not report them again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConfirmNotified {
    #[serde(default)]
    pub runs: Vec<NotifiedRun>,
    /// Confirms all stops and ends up to this position: the cursor of a wait that named no runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// The state of a run that its owner was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NotifiedRun {
    pub run_id: String,
    /// The run's `cursor` when it was shown.
    pub cursor: i64,
}

impl From<&RunView> for NotifiedRun {
    fn from(run: &RunView) -> Self {
        Self {
            run_id: run.identity.run_id.clone(),
            cursor: run.cursor,
        }
    }
}

impl Waited {
    /// Returns whether nothing has happened but that runs have reported, which still work.
    #[must_use]
    pub fn has_only_reports(&self) -> bool {
        let is_quiet = self.needs.is_empty() && self.stopped.is_empty() && self.ended.is_empty();
        let is_noticed = |run: &RunView| {
            run.has_condition()
                || !run.changes.conflicts.is_empty()
                || !run.changes.overlaps.is_empty()
        };
        let is_of_report = self
            .working
            .iter()
            .any(|run| run.condition.reported.is_some())
            && !self.working.iter().any(is_noticed);
        self.outcome == WaitOutcome::Event && is_quiet && is_of_report
    }

    /// Returns the call that confirms this result; it is empty if the result has nothing new.
    /// `is_named`: the wait named its runs.
    #[must_use]
    pub fn confirmation(&self, is_named: bool) -> ConfirmNotified {
        let reported = self.working.iter().filter(|run| {
            run.condition
                .reported
                .as_ref()
                .is_some_and(|reported| reported.is_new)
        });
        if is_named {
            return ConfirmNotified {
                runs: self
                    .ended
                    .iter()
                    .chain(&self.stopped)
                    .chain(reported)
                    .map(NotifiedRun::from)
                    .collect(),
                until: None,
            };
        }
        let is_new = |run: &RunView| {
            run.condition
                .attention
                .as_ref()
                .is_some_and(|attention| attention.is_new)
        };
        let has_new =
            !self.ended.is_empty() || self.stopped_more > 0 || self.stopped.iter().any(is_new);
        ConfirmNotified {
            runs: reported.map(NotifiedRun::from).collect(),
            until: has_new.then_some(self.cursor),
        }
    }
}

impl ConfirmNotified {
    /// Returns whether the call confirms nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.until.is_none()
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Notified {
    /// The number of stops and ends that this call confirmed.
    pub runs: u64,
}
