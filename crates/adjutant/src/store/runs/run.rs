//! One run, and what a dispatch makes.

use super::spec::RunInput;
use crate::store::workspaces::NewWorkspace;
use adjutant_core::attention::{self, Facts, Need, RunPhase, Shortfall};
use adjutant_core::checkpoint::{Checkpoint, Choice};
use adjutant_core::report::Claim;
use adjutant_core::result::ResultGap;
use adjutant_core::run::OpenRequests;
use adjutant_core::tree::{Rank, TreeLimits};
use adjutant_core::{AttemptNo, Cause, EventSeq, Exit, Principal, PromptVia, RunId, RunName, RunState, SteadyTime, Time};

/// One run as the store has it, without its prompt.
#[derive(Debug, Clone)]
pub struct Run {
    pub id: RunId,
    pub name: String,
    pub agent: String,
    pub task: String,
    pub cwd: String,
    /// How long one wait for an answer may go on.
    pub patience_ms: i64,
    pub prompt_via: PromptVia,
    pub owner: Principal,
    pub parent: Option<RunId>,
    pub root: RunId,
    pub retry_of: Option<RunId>,
    pub state: RunState,
    pub exit: Option<Exit>,
    /// Why it could not be started, or was cancelled, for people.
    pub detail: Option<String>,
    pub attempt: AttemptNo,
    pub created_at: Time,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    pub updated_at: Time,
    pub summary: Option<String>,
    /// What the run said about its own end.
    pub claim: Option<Claim>,
    /// The end of the agent's last message.
    pub result: Option<String>,
    /// Length of the whole message. `None`: an older version has not stored it.
    pub result_bytes: Option<u64>,
    /// Why the message is no result, and the result put together in its place.
    pub result_gap: Option<ResultGap>,
    pub reconstructed: Option<String>,
    pub percent: Option<u8>,
    pub progress: Option<String>,
    /// When it thinks that it will be done, in its own words.
    pub eta: Option<String>,
    pub annotation: Option<String>,
    /// Signals without effect: how many, and why the last one had none.
    pub ignored: i64,
    pub ignored_why: Option<String>,
    /// Since when its agent is silent, and the event that said so.
    pub stalled_at: Option<Time>,
    pub stall_seq: Option<EventSeq>,
    /// That its CLI repeats what keeps failing, and the event that said so.
    pub retrying: Option<RetryingSince>,
    pub retrying_seq: Option<EventSeq>,
    /// What is known of the sub-agents that its CLI has started by itself, in JSON.
    pub subagents: Option<String>,
    /// What the user should know about how its newest attempt was started.
    pub note: Option<String>,
    /// What the run left behind when it stopped, and the attempt that did.
    pub checkpoint: Option<Checkpoint>,
    pub checkpoint_attempt: Option<AttemptNo>,
    /// How its parent resolved what it stopped for, and what it is to do next.
    pub resolution: Option<String>,
    pub next_step: Option<String>,
    /// What its parent chose after an error.
    pub choice: Option<Choice>,
    pub containment: Option<String>,
    pub swept: Option<u32>,
    pub output_left_open: bool,
    /// Its active time, without what is counted since then while it works.
    pub active_ms: i64,
    pub active_since: Option<SteadyTime>,
    /// The active time at which it was to be done; when it was past that, and the event that says so.
    pub estimate_ms: Option<i64>,
    pub overdue_at: Option<Time>,
    pub overdue_seq: Option<EventSeq>,
    /// The vendor's session: a later attempt can go on in it.
    pub session: Option<String>,
    /// What all attempts used up together.
    pub usage: Option<Usage>,
    pub pending: i64,
    pub blocking_pending: i64,
    pub unread: i64,
    /// Delegations that it waits for.
    pub holding: i64,
    pub rank: Rank,
    pub last_seq: EventSeq,
    /// The event by which it stopped or finished. Nothing where it awaits its requests.
    pub end_seq: Option<EventSeq>,
    /// How it fell short of what its dispatcher wanted, although it succeeded.
    pub shortfall: Option<Shortfall>,
    /// Its owner was notified of its newest stop or end.
    pub is_owner_notified: bool,
}

impl Run {
    /// Tells whether it waits for a decision, or for a run that it has delegated to.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.blocking_pending > 0 || self.holding > 0
    }

    /// Tells since when it is silent although it is its turn.
    #[must_use]
    pub fn silent_since(&self) -> Option<Time> {
        self.stalled_at.filter(|_| self.state == RunState::Running && !self.is_waiting())
    }

    /// Tells that its CLI repeats what keeps failing.
    #[must_use]
    pub fn is_retrying(&self) -> Option<&RetryingSince> {
        self.retrying.as_ref().filter(|_| self.state == RunState::Running)
    }

    /// Returns its active time so far, waiting excluded.
    #[must_use]
    pub fn active_ms_at(&self, now: SteadyTime) -> i64 {
        self.active_ms + self.active_since.map_or(0, |since| now.ms_since(since))
    }

    /// Tells since when it works longer than was estimated.
    #[must_use]
    pub fn overdue_since(&self) -> Option<Time> {
        self.overdue_at.filter(|_| self.state.is_live())
    }

    /// Returns the newest event that says something unusual about a live run: that it is silent, retrying or overdue.
    #[must_use]
    pub fn noticed_seq(&self) -> Option<EventSeq> {
        let silent = self.stall_seq.filter(|_| self.silent_since().is_some());
        let retrying = self.retrying_seq.filter(|_| self.is_retrying().is_some());
        silent.max(retrying).max(self.overdue_seq.filter(|_| self.overdue_since().is_some()))
    }

    /// Tells whether it is stopped until its requests are settled, and resumes by itself then.
    fn awaits_requests(&self) -> bool {
        matches!(self.state, RunState::Stopped { .. }) && self.end_seq.is_none()
    }

    /// Returns its phase, as its waiters see it.
    #[must_use]
    pub fn phase(&self) -> RunPhase {
        attention::run_phase(self.state, self.awaits_requests())
    }

    /// Returns what it needs a person or a client to do.
    #[must_use]
    pub fn need(&self) -> Option<Need> {
        attention::need(&Facts {
            state: self.state,
            awaits_requests: self.awaits_requests(),
            shortfall: self.shortfall,
            is_owner_notified: self.is_owner_notified,
        })
    }

    /// Returns what its open requests say about its status word.
    #[must_use]
    pub fn open_requests(&self) -> OpenRequests {
        OpenRequests { blocking_pending: self.blocking_pending > 0, answered_unread: self.unread > 0 }
    }
}

/// That a run's CLI repeats what keeps failing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryingSince {
    pub cause: Cause,
    pub since: Time,
    /// Failed tries, as of the newest statement.
    pub tries: u32,
    /// The CLI's own words: one line.
    pub words: String,
}

/// What was used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    pub cached_tokens: u64,
    pub output_tokens: u64,
    /// In millionths of a dollar.
    pub cost_micros: Option<u64>,
    /// The tokens are the whole session's, earlier attempts included.
    pub of_session: bool,
    /// The cost is.
    pub cost_of_session: bool,
}

/// What a dispatch makes.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub id: RunId,
    /// Chosen by the dispatcher, else drawn from these random bytes.
    pub name: Option<RunName>,
    pub name_seed: [u8; 4],
    /// The directory that it works in, or from which its workspace is made.
    pub cwd: String,
    /// It works in a workspace of its own.
    pub workspace: Option<NewWorkspace>,
    pub owner: Principal,
    pub retry_of: Option<RunId>,
    /// The run that it was delegated by, and how large the tree may become; a root without.
    pub under: Option<(RunId, TreeLimits)>,
    pub rank: Rank,
    /// How long it is expected to work.
    pub estimate_ms: Option<i64>,
    /// The line that it is known by.
    pub task: String,
    pub by: Principal,
    pub input: RunInput,
}
