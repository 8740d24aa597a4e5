//! The content of each kind of signal.

use crate::budget::Budget;
use crate::checkpoint::Checkpoint;
use crate::report::{Claim, Report};
use crate::words;

/// One question of a clarification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The run's own id of the question, for instance `Q1`.
    pub id: Option<String>,
    pub text: String,
    pub context: Option<String>,
    pub options: Vec<String>,
    /// The run's assumption until it gets an answer. It becomes the answer at the deadline.
    pub assumption: Option<String>,
    pub blocking: bool,
}

/// The context of a run's questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clarification {
    /// Why the run asks.
    pub reason: Option<String>,
    /// The task, step or file where the run stopped.
    pub blocked_at: Option<String>,
    /// What the run needs to continue.
    pub resume_with: Option<String>,
    /// What the run had done so far.
    pub state: Option<String>,
}

impl Clarification {
    /// Returns whether all fields are missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a run stops itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    Blocker,
    Error,
    Completion,
}

words!(StopCause { Blocker = "blocker", Error = "error", Completion = "completion" });

/// How a delegated task relates to the work of the requesting run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Independence {
    /// Both continue.
    Parallel,
    /// The requester waits for the child.
    Blocks,
    /// The task can be done when a slot is free.
    Optional,
}

words!(Independence { Parallel = "can_proceed_parallel", Blocks = "blocks_current_work", Optional = "optional" });

/// The priority of a task; P0 is the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    P0,
    #[default]
    P1,
    P2,
}

words!(Priority { P0 = "P0", P1 = "P1", P2 = "P2" });

/// A task for another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    pub task: String,
    /// The agent for the task. Default: the requester's own agent.
    pub agent: Option<String>,
    /// The directory for the task. Default: the requester's own directory.
    pub directory: Option<String>,
    pub reason: Option<String>,
    pub independence: Independence,
    pub priority: Priority,
    pub context_required: Option<String>,
    pub coordination: Option<String>,
    pub estimate: Option<String>,
    /// The budget of the new run. Empty: it draws on the budget of its requester.
    pub budget: Budget,
}

/// A valid signal of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    Clarification {
        clarification: Clarification,
        questions: Vec<Question>,
    },
    Stop {
        cause: StopCause,
        checkpoint: Checkpoint,
    },
    Delegation(Delegation),
    Completion {
        /// The run's own word for its end.
        claim: Claim,
        report: Report,
    },
    Progress {
        percent: Option<u8>,
        note: Option<String>,
        eta: Option<String>,
    },
    Approval {
        action: String,
        reason: Option<String>,
        preview: Option<String>,
        risk: Option<String>,
        options: Vec<String>,
        /// The requested decision at the deadline. Only a denial is honoured.
        default: Option<String>,
    },
}
