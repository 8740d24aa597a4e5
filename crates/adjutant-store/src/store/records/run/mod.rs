//! One run, with the columns that it is read from.

mod checkpoint;
mod columns;
mod fence;
mod stated;

pub(in crate::store) use checkpoint::CheckpointRow;
pub(in crate::store) use columns::StateRow;
pub(in crate::store) use fence::DeniedWritesRow;
pub use fence::FenceState;
pub(in crate::store) use stated::RetryingRow;
pub use stated::{RetryingSince, Usage};

use crate::store::StoreError;
use crate::store::db::{self, Connection, Record, row};
use crate::store::ids::{unsigned, unsigned_if_any};
use adjutant_core::attention::{self, Facts, Need, RunPhase, Shortfall};
use adjutant_core::checkpoint::{Checkpoint, Choice};
use adjutant_core::pool::AfterFailed;
use adjutant_core::report::Claim;
use adjutant_core::result::ResultGap;
use adjutant_core::run::OpenRequests;
use adjutant_core::tree::Rank;
use adjutant_core::{
    AttemptNo, EventSeq, Exit, Principal, PromptVia, RunId, RunState, SteadyTime, Time,
};
use columns::{ExitRow, json, retrying, word, word_or_default};
use stated::{Reported, ReportedRow, UsageRow};

row! {
    /// One stored run, without its prompt.
    #[derive(Debug, Clone)]
    pub struct Run, named "run {}" {
        pub id: RunId,
        /// The number of the run in the order of dispatch.
        pub no: i64,
        pub name: String,
        pub agent: String,
        /// Why it has this agent, if the agent was chosen from several.
        pub agent_why: Option<String>,
        /// The pool whose slot it needs.
        pub pool: String,
        /// The number of runs that it waits for to start, and what happens if one of them fails.
        pub after_open: u64 as unsigned,
        pub after_failed: AfterFailed as word_or_default,
        pub task: String,
        pub cwd: String,
        /// The reply timeout: how long one wait for an answer may last.
        pub patience_ms: i64,
        pub prompt_via: PromptVia,
        pub owner: Principal,
        pub parent: Option<RunId>,
        pub root: RunId,
        pub retry_of: Option<RunId>,
        pub state: RunState [StateRow] as StateRow::state,
        pub exit: Option<Exit> [ExitRow] as ExitRow::exit,
        /// Why the run could not be started or was cancelled, as text for people.
        pub detail: Option<String>,
        pub attempt: AttemptNo,
        pub created_at: Time,
        pub started_at: Option<Time>,
        pub ended_at: Option<Time>,
        pub updated_at: Time,
        pub summary: Option<String>,
        /// The result that the run claims.
        pub claim: Option<Claim> as word,
        /// The report of the newest attempt, unless the run has made a statement since.
        pub reported: Option<Reported> [ReportedRow] as ReportedRow::reported,
        /// The end of the agent's last message.
        pub result: Option<String>,
        /// Length of the whole message.
        pub result_bytes: Option<u64> as unsigned_if_any,
        /// Why the last message is not a result, and the reconstructed result.
        pub result_gap: Option<ResultGap> as word,
        pub reconstructed: Option<String>,
        pub percent: Option<u8>,
        pub progress: Option<String>,
        /// When the run expects to finish, in its own words.
        pub eta: Option<String>,
        pub annotation: Option<String>,
        /// The number of ignored signals, and why the last one was ignored.
        pub ignored: i64,
        pub ignored_why: Option<String>,
        /// When the agent fell silent, and the event that recorded it.
        pub stalled_at: Option<Time>,
        pub stall_seq: Option<EventSeq>,
        /// The retry condition of the CLI, and the event that recorded it.
        pub retrying: Option<RetryingSince> as retrying,
        pub retrying_seq: Option<EventSeq>,
        /// Why a snapshot of its tree could not be taken, and the event that said so.
        pub snapshot_problem: Option<String>,
        pub snapshot_seq: Option<EventSeq>,
        /// The newest event that says that its changes conflict with those of another run.
        pub conflict_seq: Option<EventSeq>,
        /// The newest event that says that its announcements overlap with those of another run.
        pub overlap_seq: Option<EventSeq>,
        /// The known sub-agents that the CLI started by itself, as JSON.
        pub subagents: Option<String>,
        /// What its processes use of the machine, as JSON.
        pub resources: Option<String>,
        /// A note for the user on how the newest attempt was started.
        pub note: Option<String>,
        /// The checkpoint of the stopped run, and the attempt that saved it.
        pub checkpoint: Option<Checkpoint> as columns::checkpoint {
            pub checkpoint_attempt: Option<AttemptNo>,
        },
        /// How the parent resolved the blocker, and the next step that it gave.
        pub resolution: Option<String>,
        pub next_step: Option<String>,
        /// The parent's choice after an error.
        pub choice: Option<Choice> as word,
        pub containment: Option<String>,
        /// `None`: it asks for no fence.
        pub fence: Option<FenceState> as json,
        pub swept: Option<u32>,
        pub output_left_open: bool,
        /// The active time, not counting the time since `active_since`.
        pub active_ms: i64,
        pub active_since: Option<SteadyTime>,
        /// The active time at which the run should finish; when it exceeded that, and the event that
        /// recorded it.
        pub estimate_ms: Option<i64>,
        pub overdue_at: Option<Time>,
        pub overdue_seq: Option<EventSeq>,
        /// The id of the vendor's session, in which a later attempt can continue.
        pub session: Option<String>,
        /// What all attempts used up together.
        pub usage: Option<Usage> [UsageRow] as UsageRow::usage,
        /// Tokens whose cost is not known, and whether a part of the cost was computed from configured
        /// prices.
        pub unpriced_tokens: i64,
        pub is_priced: bool,
        /// The newest event about a budget of the run.
        pub budget_seq: Option<EventSeq>,
        pub pending: i64,
        pub blocking_pending: i64,
        pub unread: i64,
        /// The number of delegations that hold the run.
        pub holding: i64,
        pub rank: Rank,
        pub last_seq: EventSeq,
        /// The event of the stop or end, or since which a queued run is held. `None` while the run
        /// awaits its requests.
        pub end_seq: Option<EventSeq>,
        /// How a successful run fell short of its dispatcher's requirements.
        pub shortfall: Option<Shortfall> as word,
        /// Whether the owner was notified of the newest stop or end.
        pub is_owner_notified: bool = "end_seq IS NULL OR end_seq <= notified_seq",
    }
}

impl Run {
    /// Returns whether the run waits for a decision or is held by a child.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.blocking_pending > 0 || self.holding > 0
    }

    /// Returns since when the run has been silent although it is not waiting.
    #[must_use]
    pub fn silent_since(&self) -> Option<Time> {
        self.stalled_at
            .filter(|_| self.state == RunState::Running && !self.is_waiting())
    }

    /// Returns the report of a running run, whose process has not ended yet.
    #[must_use]
    pub fn standing_report(&self) -> Option<&Reported> {
        self.reported
            .as_ref()
            .filter(|_| self.state == RunState::Running)
    }

    /// Returns the retry condition of a running run's CLI.
    #[must_use]
    pub fn is_retrying(&self) -> Option<&RetryingSince> {
        self.retrying
            .as_ref()
            .filter(|_| self.state == RunState::Running)
    }

    /// Returns the active time so far, excluding time spent waiting.
    #[must_use]
    pub fn active_ms_at(&self, now: SteadyTime) -> i64 {
        self.active_ms + self.active_since.map_or(0, |since| now.ms_since(since))
    }

    /// Returns since when a live run exceeds its estimate.
    #[must_use]
    pub fn overdue_since(&self) -> Option<Time> {
        self.overdue_at.filter(|_| self.state.is_live())
    }

    /// Returns the newest event about an unusual condition of a live run: silent, retrying,
    /// overdue, without a snapshot, in conflict with another run's changes or announcements, near
    /// the end of its budget, or denied to write by its fence.
    #[must_use]
    pub fn noticed_seq(&self) -> Option<EventSeq> {
        let silent = self.stall_seq.filter(|_| self.silent_since().is_some());
        let retrying = self.retrying_seq.filter(|_| self.is_retrying().is_some());
        let of_tree = self
            .snapshot_seq
            .max(self.conflict_seq)
            .max(self.overlap_seq)
            .filter(|_| self.state.is_live());
        let denied = self
            .fence
            .as_ref()
            .and_then(|fence| fence.denied.as_ref())
            .map(|denied| EventSeq(denied.notified_seq));
        let of_tree = of_tree.max(denied.filter(|seq| seq.0 > 0 && self.state.is_live()));
        let of_tree = of_tree.max(self.budget_seq.filter(|_| !self.state.is_finished()));
        silent
            .max(retrying)
            .max(self.overdue_seq.filter(|_| self.overdue_since().is_some()))
            .max(of_tree)
    }

    /// Returns whether the run is stopped until its requests are settled, and then resumes by
    /// itself.
    fn awaits_requests(&self) -> bool {
        matches!(self.state, RunState::Stopped { .. }) && self.end_seq.is_none()
    }

    /// Returns whether the run is queued, and held because a run that it starts after has failed.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state == RunState::Queued && self.end_seq.is_some()
    }

    /// Returns the run's phase as its waiters see it.
    #[must_use]
    pub fn phase(&self) -> RunPhase {
        attention::run_phase(self.state, self.awaits_requests(), self.is_held())
    }

    /// Returns what the run needs from a person or a client.
    #[must_use]
    pub fn need(&self) -> Option<Need> {
        attention::need(&Facts {
            state: self.state,
            awaits_requests: self.awaits_requests(),
            is_held: self.is_held(),
            is_silent_after_report: self.standing_report().is_some()
                && self.silent_since().is_some(),
            shortfall: self.shortfall,
            is_owner_notified: self.is_owner_notified,
        })
    }

    /// Returns the open requests as far as they affect the status word.
    #[must_use]
    pub fn open_requests(&self) -> OpenRequests {
        OpenRequests {
            blocking_pending: self.blocking_pending > 0,
            answered_unread: self.unread > 0,
        }
    }
}

/// Returns the statement of [`list`].
pub(in crate::store) fn list_statement(rest: &str) -> String {
    Run::select(&format!("FROM runs {rest}"))
}

/// Reads runs. `rest` follows `FROM runs`.
pub(in crate::store) fn list(
    connection: &Connection,
    rest: &str,
    values: impl db::Params,
) -> Result<Vec<Run>, StoreError> {
    Ok(connection
        .prepare_cached(&list_statement(rest))?
        .read_rows(values)?)
}
