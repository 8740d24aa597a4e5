//! Requests of runs: creating, answering and reading them.

use super::{MessageView, OperationView, RunView, Word, field_names};
use adjutant_core::request::MessageStatus;
use adjutant_core::signal::{Independence, Priority};
use adjutant_core::{DecisionKind, RequestKind, RequestStateKind};
use serde::{Deserialize, Serialize};

/// Asks the owner of the calling run a question. Durable when the call returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ask {
    pub question: String,
    /// The run's own name for the question, for instance `Q1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The answer if none arrives before the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether the run needs the answer to continue.
    #[serde(default = "yes")]
    pub blocking: bool,
    /// Deadline, in seconds from now. Default: 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarification: Option<ClarificationView>,
}

/// Asks like [`Ask`], then waits up to this long for the answer. The question stays open if the
/// wait times out or fails. A repeated call with the same key may have another wait.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AskAndWait {
    pub ask: Ask,
    pub wait_ms: u64,
}

/// Asks several questions as one group. Either all are asked or none. Durable when the call
/// returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AskTogether {
    /// The questions, none with its own clarification.
    pub questions: Vec<Ask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarification: Option<ClarificationView>,
}

/// The fields that a run states with a group of questions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClarificationView {
    /// Why the run asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The task, step or file where the run stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_at: Option<String>,
    /// What the run needs to continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can_resume_with: Option<String>,
    /// The work done so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_state: Option<String>,
}

fn yes() -> bool {
    true
}

/// Asks for approval of an action. Durable when the call returns; [`ReadRequest`] waits for the
/// decision. An approval covers exactly what this call describes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RequestApproval {
    /// The action, in one line.
    pub action: String,
    /// The exact content: a text, a command or a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// Why the action is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Options to choose from. The chosen one is returned as the decision's `reason`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// The decision at the deadline: `deny`, also if absent. `approve` is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DecisionWord>,
    /// Whether the run needs the decision to continue.
    #[serde(default = "yes")]
    pub blocking: bool,
    /// Deadline, in seconds from now, at least 60. Default: 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    /// The action as policies and grants see it. Default: the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationView>,
}

/// Asks to delegate a task to another agent. Durable when the call returns; [`ReadRequest`] waits
/// for the decision and, if the task blocks the run, for the end of the task.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Delegate {
    /// The task, complete in itself: the other agent sees nothing else.
    pub task: String,
    /// Default: the caller's own agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The working directory, absolute or relative to the caller's. Default: the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `can_proceed_parallel` (the default), `blocks_current_work` or `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub independence: Option<Word<Independence>>,
    /// `P0`, `P1` (the default) or `P2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Word<Priority>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the other agent must know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_required: Option<String>,
    /// How the two runs avoid conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_duration: Option<String>,
    /// The budget of the new run, from the budget above it. Absent: the run draws on the budget
    /// above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Deadline of the decision, in seconds from now. Default: 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}

/// A delegation without its task, and the changes it was approved with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DelegationView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    pub independence: Word<Independence>,
    pub priority: Word<Priority>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_required: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_duration: Option<String>,
    /// The budget of the new run, from the budget above it. Absent: the run draws on the budget
    /// above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesView>,
    /// The usage of the limits that apply, while the delegation is undecided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomView>,
}

/// The current usage of each limit that applies to a delegated run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RoomView {
    /// Live runs of all owners that occupy a slot.
    pub live: u64,
    pub live_max: u64,
    pub queued: u64,
    /// The depth of the new run in its tree. A root run has depth 1.
    pub depth: u64,
    pub depth_max: u64,
    /// Delegations of the asking run.
    pub children: u64,
    pub children_max: u64,
    /// Queued and live runs in the tree, then all runs in the tree.
    pub tree_live: u64,
    pub tree_live_max: u64,
    pub tree_total: u64,
    pub tree_total_max: u64,
}

impl std::fmt::Display for RoomView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            live,
            live_max,
            queued,
            depth,
            depth_max,
            children,
            children_max,
            tree_live,
            tree_live_max,
            tree_total,
            tree_total_max,
        } = self;
        write!(
            f,
            "{live} of {live_max} places for live runs, {queued} queued; it would be at depth {depth} of {depth_max}; its run has {children} of \
             {children_max} delegations, its tree {tree_live} of {tree_live_max} live runs and {tree_total} of {tree_total_max} runs"
        )
    }
}

/// A decision about an approval or a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DecisionWord {
    Approve,
    Deny,
}

/// Reads one request. When the asking run reads an answered request, the request is marked as
/// retrieved; the answer stays readable. With `wait_ms`, waits up to this long for the request to
/// be settled.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {
    /// A request's id or short number (`Q12`).
    pub message_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}

/// Withdraws an open request of the calling run, which can then no longer be answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WithdrawRequest {
    pub message_id: String,
}

/// Reads a group of questions of the calling run. With `wait_ms`, waits up to this long until no
/// blocking question of the group is open. No answer counts as read before the call returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadTogether {
    /// The id of any question in the group.
    pub message_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}

/// Lists open requests that the caller may answer, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ListRequests {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Also lists settled requests.
    #[serde(default)]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestList {
    pub requests: Vec<RequestView>,
    #[serde(default)]
    pub more: u64,
}

/// Answers one or more requests, each given by `message_id`, or by `run` if that run has exactly
/// one open request. Either all are answered or none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AnswerRequests {
    pub answers: Vec<AnswerOne>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AnswerOne {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The answer to a question.
    #[serde(default)]
    pub answer: String,
    /// The decision on an approval or a delegation. Denying an approval that was granted but not
    /// yet used revokes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionWord>,
    /// The reason, required to deny. With an approval: a note, for instance the chosen option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Changes to a delegation that is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesView>,
    /// The expected `content_hash` of the request. The answer is rejected if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
    /// With an approval: also approve the same operation of all runs of the tree from now on (a
    /// grant).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same: bool,
    /// How long the grant answers, in seconds. Default: as long as the tree exists. Implies `same`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_s: Option<u64>,
    /// How often the grant answers. Default: any number. Implies `same`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u64>,
}

/// Changes to a delegated task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangesView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Word<Priority>>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Answered {
    pub requests: Vec<RequestView>,
    /// The current state of the runs whose requests were answered.
    pub runs: Vec<RunView>,
}

/// A question, an approval or a delegation of a run, with its answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestView {
    pub message_id: String,
    /// `Q12`.
    pub number: String,
    pub run_id: String,
    pub run_name: String,
    pub kind: Word<RequestKind>,
    #[serde(flatten)]
    pub content: RequestContentView,
    #[serde(flatten)]
    pub delegated: DelegatedView,
    #[serde(flatten)]
    pub reply: RequestReplyView,
    #[serde(flatten)]
    pub times: RequestTimesView,
    pub blocking: bool,
    pub status: Word<RequestStateKind>,
    /// The status in the original protocol's terms.
    pub message_status: Word<MessageStatus>,
    /// Present if the question belongs to a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
    /// The people to whom the open request was escalated, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalated: Vec<EscalatedView>,
    /// Messages to the asking run, delivered with this read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageView>,
}

/// What a request asks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestContentView {
    /// The question, the action to approve, or the task to delegate.
    pub question: String,
    /// The run's own name for a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The fields that the run stated with a group of questions. In a list, only with the first of
    /// the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarification: Option<ClarificationView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// For an approval: the exact content of the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// For an approval: the action as policies and grants see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationView>,
    /// A hash of everything that a decision covers, see [`AnswerOne::content_hash`].
    #[serde(default)]
    pub content_hash: String,
}

/// The task that a request delegates, and the run that does it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DelegatedView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<DelegationView>,
    /// The run that the approved delegation started, then its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_name: Option<String>,
    /// How the child run ended, with the last text of its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_result: Option<String>,
    /// Whether the asking run is held until the child run ends.
    #[serde(default)]
    pub held: bool,
}

/// How a request was answered or decided.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestReplyView {
    /// Present once decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Word<DecisionKind>>,
    /// The reason for a denial, or the note with an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The answer, or the decision with its reason, as one text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// `person`, `link <name>`, `client:<name>`, `default`, `policy <name>` or `grant <number>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
}

/// When a request was asked, answered and read, and how long it waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RequestTimesView {
    pub asked_at: String,
    pub expires_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieved_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// The reply timeout: how long one wait of the asker for this answer may last, in milliseconds.
    pub patience_ms: u64,
}

/// One person to whom a request was escalated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EscalatedView {
    pub to: String,
    pub at: String,
}

impl RequestView {
    /// Returns the names of the fields of all parts.
    #[must_use]
    pub fn field_names() -> Vec<&'static str> {
        [
            &[
                "message_id",
                "number",
                "run_id",
                "run_name",
                "kind",
                "blocking",
                "status",
                "message_status",
                "group",
                "escalated",
                "messages",
            ],
            field_names::<RequestContentView>(),
            field_names::<DelegatedView>(),
            field_names::<RequestReplyView>(),
            field_names::<RequestTimesView>(),
        ]
        .concat()
    }

    /// Returns the kind. A kind of a later version is shown like a question.
    #[must_use]
    pub fn shown_kind(&self) -> RequestKind {
        self.kind.known().unwrap_or(RequestKind::Question)
    }

    /// Returns the number, from 1, of the option that the answer, or the note of an approval,
    /// equals.
    #[must_use]
    pub fn option_chosen(&self) -> Option<usize> {
        let chosen = if self.kind == RequestKind::Question {
            self.reply.answer.as_ref()
        } else {
            self.reply.reason.as_ref()
        }?;
        self.content
            .options
            .iter()
            .position(|option| option == chosen)
            .map(|at| at + 1)
    }
}

/// The position of a question in its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct GroupView {
    /// The number of the first question, which identifies the group.
    pub first: String,
    /// From 1.
    pub place: u32,
    pub size: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_of_fields_are_those_of_the_schema() -> Result<(), serde_json::Error> {
        let schema = serde_json::to_value(schemars::schema_for!(RequestView))?;
        let of_schema: Option<BTreeSet<&str>> = schema["properties"]
            .as_object()
            .map(|properties| properties.keys().map(String::as_str).collect());
        let names = RequestView::field_names();
        assert_eq!(of_schema, Some(names.iter().copied().collect()));
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        Ok(())
    }
}
