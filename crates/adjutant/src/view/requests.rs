//! Requests of runs: asking, answering, reading.

use super::{Call, MessageView, RunView, Word};
use adjutant_core::request::MessageStatus;
use adjutant_core::signal::{Independence, Priority};
use adjutant_core::{DecisionKind, RequestKind, RequestStateKind};
use serde::{Deserialize, Serialize};

/// Asks the owner of the calling run a question. Committed before it returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    pub question: String,
    /// What the run itself calls it, for instance `Q1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Becomes the answer at the deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The run cannot continue without the answer.
    #[serde(default = "yes")]
    pub blocking: bool,
    /// Deadline, in seconds from now. 24 hours when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarification: Option<ClarificationView>,
}
call!(Ask = "ask", writes true -> RequestView);

/// Asks several questions as one group: all of them or none. Committed before it returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskTogether {
    /// Each without a clarification of its own.
    pub questions: Vec<Ask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarification: Option<ClarificationView>,
}
call!(AskTogether = "ask-together", writes true -> RequestList);

/// What a run says along with the questions that it asks together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClarificationView {
    /// Why it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The task, step or file where it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_at: Option<String>,
    /// What would let it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can_resume_with: Option<String>,
    /// What it had done by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_state: Option<String>,
}

fn yes() -> bool {
    true
}

/// Asks for approval of an action. Committed before it returns; [`ReadRequest`] waits for the decision.
/// An approval covers exactly what is shown here.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestApproval {
    /// One line that says what would be done.
    pub action: String,
    /// What exactly: a text, a command, a diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// Why it is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Options of an approval; the chosen one is returned as the decision's `reason`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// `deny` is the default anyway; `approve` is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<DecisionWord>,
    /// The run cannot continue without the decision.
    #[serde(default = "yes")]
    pub blocking: bool,
    /// Deadline, in seconds from now, at least 60. 24 hours when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}
call!(RequestApproval = "request-approval", writes true -> RequestView);

/// Asks to delegate a task to another agent. Committed before it returns; [`ReadRequest`] waits for the
/// decision and, if the run waits for the task, for its end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegate {
    /// The task, for an agent that sees nothing else.
    pub task: String,
    /// The caller's own agent when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Below the caller's own directory unless absolute; that directory when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// `can_proceed_parallel` (when left out), `blocks_current_work` or `optional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub independence: Option<Word<Independence>>,
    /// `P0`, `P1` (when left out) or `P2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Word<Priority>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the other agent has to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_required: Option<String>,
    /// How the two runs avoid conflicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordination: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_duration: Option<String>,
    /// Deadline of the decision, in seconds from now. 24 hours when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
}
call!(Delegate = "delegate", writes true -> RequestView);

/// A delegation's fields besides its task, and the changes it was approved with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesView>,
    /// What is in use, while it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomView>,
}

/// What is in use of what a delegated run would take, each with its limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomView {
    /// Live runs that occupy a slot, of all owners.
    pub live: u64,
    pub live_max: u64,
    pub queued: u64,
    /// Where in its tree the new run would be; a root is at 1.
    pub depth: u64,
    pub depth_max: u64,
    /// Delegations of the run that asks.
    pub children: u64,
    pub children_max: u64,
    /// Queued and live runs of its tree, and all runs of it.
    pub tree_live: u64,
    pub tree_live_max: u64,
    pub tree_total: u64,
    pub tree_total_max: u64,
}

impl std::fmt::Display for RoomView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { live, live_max, queued, depth, depth_max, children, children_max, tree_live, tree_live_max, tree_total, tree_total_max } = self;
        write!(
            f,
            "{live} of {live_max} places for live runs, {queued} queued; it would be at depth {depth} of {depth_max}; its run has {children} of \
             {children_max} delegations, its tree {tree_live} of {tree_live_max} live runs and {tree_total} of {tree_total_max} runs"
        )
    }
}

/// A decision about an approval or a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionWord {
    Approve,
    Deny,
}

/// Reads one request. The asker's own read of an answered one marks it retrieved; the answer stays
/// readable. With `wait_ms` the call returns as soon as the request is settled.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {
    /// A request's id or short number (`Q12`).
    pub message_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}
call!(ReadRequest = "request", writes true -> RequestView);

/// Withdraws an open request of the calling run. It can no longer be answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithdrawRequest {
    pub message_id: String,
}
call!(WithdrawRequest = "withdraw-request", writes true -> RequestView);

/// Reads the calling run's own group of questions. With `wait_ms` the call returns as soon as no
/// blocking one of them is open; no answer counts as read before it returns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTogether {
    /// Any of them.
    pub message_id: String,
    #[serde(default)]
    pub wait_ms: u64,
}
call!(ReadTogether = "request-together", writes true -> RequestList);

/// Lists open requests that the caller may answer, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRequests {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Settled ones too.
    #[serde(default)]
    pub all: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
call!(ListRequests = "requests", writes false -> RequestList);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RequestList {
    pub requests: Vec<RequestView>,
    #[serde(default)]
    pub more: u64,
}

/// Answers one or several requests, each by `message_id`, or by `run` when that run has exactly one
/// open: a question in words, an approval or a delegation by a decision. All are answered or none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRequests {
    pub answers: Vec<AnswerOne>,
}
call!(AnswerRequests = "answer", writes true -> Answered);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerOne {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// To a question.
    #[serde(default)]
    pub answer: String,
    /// About an approval or a delegation. A no to an approval that was approved and has not been
    /// used yet takes the yes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionWord>,
    /// Why not; needed for a no. With a yes: a note, for instance which of the options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Changes that a delegation is approved with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesView>,
    /// The `content_hash` of the request that was decided about: any other is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
}

/// Changes to a delegated task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct Answered {
    pub requests: Vec<RequestView>,
    /// The runs concerned, as they are now.
    pub runs: Vec<RunView>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestView {
    pub message_id: String,
    /// `Q12`.
    pub number: String,
    pub run_id: String,
    pub run_name: String,
    pub kind: Word<RequestKind>,
    /// The question, the action to approve, or the task to delegate.
    pub question: String,
    /// What the run itself calls a question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// What the run said along with its questions; in a list with the first of those asked together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clarification: Option<ClarificationView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    pub blocking: bool,
    pub status: Word<RequestStateKind>,
    /// In the original protocol's words.
    pub message_status: Word<MessageStatus>,
    /// Where several were asked together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupView>,
    /// Of an approval: what exactly would be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegation: Option<DelegationView>,
    /// The run that an approved delegation has started, and its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_name: Option<String>,
    /// How that run ended, with its last words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_result: Option<String>,
    /// The asker waits until that run has ended.
    #[serde(default)]
    pub held: bool,
    /// Stands for everything that is decided about, see [`AnswerOne::content_hash`].
    #[serde(default)]
    pub content_hash: String,
    /// Once decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Word<DecisionKind>>,
    /// Why not, or what was said along with a yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The answer, or the decision with its reason, as one text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// `person`, `client:<name>`, `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    pub asked_at: String,
    pub expires_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrieved_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// How long one wait of the asker for this answer may go on, in milliseconds.
    pub patience_ms: u64,
    /// Messages for the asker that came along with this read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageView>,
}

impl RequestView {
    /// Returns the number, from 1, of the option that the answer (or what was said along with an approval)
    /// is.
    #[must_use]
    pub fn option_chosen(&self) -> Option<usize> {
        let said = if self.kind == RequestKind::Question { self.answer.as_ref() } else { self.reason.as_ref() }?;
        self.options.iter().position(|option| option == said).map(|at| at + 1)
    }
}

/// The place of a request among those that were asked together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupView {
    /// The number of the first of them, which stands for all.
    pub first: String,
    /// From 1.
    pub place: u32,
    pub size: u32,
}
