//! What each kind of signal says.

use crate::checkpoint::Checkpoint;
use crate::report::Report;
use crate::words;

/// One question of a clarification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// As the run calls it, for instance `Q1`.
    pub id: Option<String>,
    pub text: String,
    pub context: Option<String>,
    pub options: Vec<String>,
    /// What the run assumes meanwhile; it becomes the answer at the deadline.
    pub assumption: Option<String>,
    pub blocking: bool,
}

/// What a run says along with its questions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clarification {
    /// Why it asks.
    pub reason: Option<String>,
    /// The task, step or file where it stopped.
    pub blocked_at: Option<String>,
    /// What would let it go on.
    pub resume_with: Option<String>,
    /// What it had done by then.
    pub state: Option<String>,
}

impl Clarification {
    /// Tells whether it says nothing.
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

/// How a delegated task stands to the work of the run that asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Independence {
    /// Both go on.
    Parallel,
    /// The requester waits for the child.
    Blocks,
    /// To be done when there is room.
    Optional,
}

words!(Independence { Parallel = "can_proceed_parallel", Blocks = "blocks_current_work", Optional = "optional" });

/// How soon something is wanted; P0 first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    P0,
    #[default]
    P1,
    P2,
}

words!(Priority { P0 = "P0", P1 = "P1", P2 = "P2" });

/// A task that a run wants another agent to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    pub task: String,
    /// Who is to do it; the requester's own agent when left out.
    pub agent: Option<String>,
    /// Where; the requester's own directory when left out.
    pub directory: Option<String>,
    pub reason: Option<String>,
    pub independence: Independence,
    pub priority: Priority,
    pub context_required: Option<String>,
    pub coordination: Option<String>,
    pub estimate: Option<String>,
}

/// A well-formed signal of the run itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signal {
    Clarification {
        said: Clarification,
        questions: Vec<Question>,
    },
    Stop {
        cause: StopCause,
        checkpoint: Checkpoint,
    },
    Delegation(Delegation),
    Completion(Report),
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
        /// The decision that the block wants to count when nobody decides. Only a denial does.
        default: Option<String>,
    },
}
