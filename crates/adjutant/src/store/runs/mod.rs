//! Runs and their attempts.

mod attempts;
mod conditions;
mod reports;
mod spec;
mod write;

pub use attempts::{AttemptRow, EndRow, attempt_row, fruitless_attempts, is_attempt_between, times_limited};
use conditions::RetryingRow;
pub use reports::report_of;
use spec::CheckpointRow;
pub use spec::{RunInput, acceptance_of, permissions_of, run_input};

use super::StoreError;
use adjutant_core::attention::{self, Facts, Need, RunPhase, Shortfall};
use adjutant_core::checkpoint::{Checkpoint, Choice};
use adjutant_core::report::Claim;
use adjutant_core::run::OpenRequests;
use adjutant_core::tree::{Rank, TreeLimits};
use adjutant_core::{
    AttemptNo, Cause, Denied, EventSeq, Exit, Failure, Outcome, Principal, PromptVia, RunId, RunName, RunState, SteadyTime, StopReason, Time,
};
use rusqlite::{Connection, Row, params};

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
    pub result: Option<String>,
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

    /// Returns what it needs of somebody.
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
    pub cwd: String,
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

/// A page of runs and how many more there are.
#[derive(Debug, Clone)]
pub struct Page {
    pub runs: Vec<Run>,
    pub more: u64,
}

/// How many runs there are of what kind.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    pub live: u64,
    /// Live runs that wait for one that they have delegated to: it has their place meanwhile.
    pub lent: u64,
    pub queued: u64,
    pub pending_requests: u64,
}

/// Most finished runs that are listed at once.
pub const FINISHED_PAGE: u32 = 50;

const COLUMNS: &str = "SELECT id, name, agent, task, cwd, owner, parent, root, retry_of, state, stop_reason, until_at, outcome, failure, exit_code,
  exit_signal, detail, attempt, created_at, started_at, ended_at, updated_at, summary, claim, result, percent, progress, annotation, containment, swept,
  output_left_open, active_ms, pending, blocking_pending, unread, last_seq, end_seq, patience_ms, prompt_via, checkpoint, resolution, next_step,
  choice, eta, session, input_tokens, cached_tokens, output_tokens, cost_micros, holding, rank, ignored, ignored_why, stalled_at, stall_seq, note,
  active_since, estimate_ms, overdue_at, overdue_seq, shortfall, end_seq IS NULL OR end_seq <= notified_seq,
  retrying, retrying_seq, subagents FROM runs";

/// The words that a run's state is stored as.
struct StateRow {
    state: String,
    stop_reason: Option<String>,
    until_at: Option<i64>,
    outcome: Option<String>,
    failure: Option<String>,
}

impl StateRow {
    fn of(state: RunState) -> Self {
        let mut row = Self { state: state.word().to_owned(), stop_reason: None, until_at: None, outcome: None, failure: None };
        match state {
            RunState::Queued | RunState::Starting | RunState::Running => {}
            RunState::Stopping(reason) => row.stop_reason = Some(reason.word().to_owned()),
            RunState::Stopped { reason, until } => {
                row.stop_reason = Some(reason.word().to_owned());
                row.until_at = Some(until.0);
            }
            RunState::Finished(outcome) => {
                row.outcome = Some(outcome.word().to_owned());
                if let Outcome::Failed(failure) = outcome {
                    row.failure = Some(match failure {
                        Failure::Exit(Exit::Code(code)) => format!("exit {code}"),
                        Failure::Exit(Exit::Signal(signal)) => format!("signal {signal}"),
                        Failure::Unanswered => "unanswered".to_owned(),
                        Failure::Reported => "reported".to_owned(),
                        Failure::Agent(cause) => format!("agent {}", cause.word()),
                        Failure::NotResumed(reason) => format!("not_resumed {}", reason.word()),
                    });
                }
            }
        }
        row
    }

    fn state(&self) -> Option<RunState> {
        let reason = || StopReason::from_word(self.stop_reason.as_deref()?);
        Some(match self.state.as_str() {
            "queued" => RunState::Queued,
            "starting" => RunState::Starting,
            "running" => RunState::Running,
            "stopping" => RunState::Stopping(reason()?),
            "stopped" => RunState::Stopped { reason: reason()?, until: SteadyTime(self.until_at?) },
            "finished" => RunState::Finished(match self.outcome.as_deref()? {
                "succeeded" => Outcome::Succeeded,
                "cancelled" => Outcome::Cancelled,
                "spawn_failed" => Outcome::SpawnFailed,
                "lost" => Outcome::Lost,
                "failed" => Outcome::Failed(match self.failure.as_deref()?.split_once(' ') {
                    Some(("exit", code)) => Failure::Exit(Exit::Code(code.parse().ok()?)),
                    Some(("signal", signal)) => Failure::Exit(Exit::Signal(signal.parse().ok()?)),
                    Some(("agent", word)) => Failure::Agent(Cause::from_word(word)?),
                    Some(("not_resumed", word)) => Failure::NotResumed(StopReason::from_word(word)?),
                    None if self.failure.as_deref() == Some("unanswered") => Failure::Unanswered,
                    None if self.failure.as_deref() == Some("reported") => Failure::Reported,
                    _ => return None,
                }),
                _ => return None,
            }),
            _ => return None,
        })
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Result<Run, StoreError>> {
    let (id, owner, root): (String, String, String) = (row.get(0)?, row.get(5)?, row.get(7)?);
    let (parent, retry_of): (Option<String>, Option<String>) = (row.get(6)?, row.get(8)?);
    let state = StateRow { state: row.get(9)?, stop_reason: row.get(10)?, until_at: row.get(11)?, outcome: row.get(12)?, failure: row.get(13)? };
    let exit = match (row.get::<_, Option<i32>>(14)?, row.get::<_, Option<i32>>(15)?) {
        (Some(code), _) => Some(Exit::Code(code)),
        (None, Some(signal)) => Some(Exit::Signal(signal)),
        (None, None) => None,
    };
    let time = |index| row.get::<_, Option<i64>>(index).map(|ms| ms.map(Time));
    let checkpoint = row.get::<_, Option<String>>(39)?.and_then(|text| serde_json::from_str::<CheckpointRow>(&text).ok()).map(CheckpointRow::decode);
    let (checkpoint, checkpoint_attempt) = checkpoint.unzip();
    let count = |index| row.get::<_, Option<i64>>(index).map(|count| count.map(|count| u64::try_from(count).unwrap_or(0)));
    let usage = match (count(45)?, count(46)?, count(47)?) {
        (None, None, None) => None,
        (input, cached, output) => Some(Usage {
            input_tokens: input.unwrap_or(0),
            cached_tokens: cached.unwrap_or(0),
            output_tokens: output.unwrap_or(0),
            cost_micros: count(48)?,
            of_session: true,
            cost_of_session: true,
        }),
    };
    let run_id = |text: &str| RunId::parse(text).ok();
    let (Some(run), Some(owner), Some(root), Some(state), Some(prompt_via), Some(rank)) = (
        run_id(&id),
        Principal::parse(&owner),
        run_id(&root),
        state.state(),
        PromptVia::from_word(&row.get::<_, String>(38)?),
        Rank::from_number(row.get(50)?),
    ) else {
        return Ok(Err(StoreError::Corrupt(format!("run {id}"))));
    };
    Ok(Ok(Run {
        id: run,
        name: row.get(1)?,
        agent: row.get(2)?,
        task: row.get(3)?,
        cwd: row.get(4)?,
        patience_ms: row.get(37)?,
        prompt_via,
        owner,
        parent: parent.as_deref().and_then(run_id),
        root,
        retry_of: retry_of.as_deref().and_then(run_id),
        state,
        exit,
        detail: row.get(16)?,
        attempt: AttemptNo(row.get(17)?),
        created_at: Time(row.get(18)?),
        started_at: time(19)?,
        ended_at: time(20)?,
        updated_at: Time(row.get(21)?),
        summary: row.get(22)?,
        claim: row.get::<_, Option<String>>(23)?.as_deref().and_then(Claim::from_word),
        result: row.get(24)?,
        percent: row.get(25)?,
        progress: row.get(26)?,
        annotation: row.get(27)?,
        ignored: row.get(51)?,
        ignored_why: row.get(52)?,
        stalled_at: time(53)?,
        stall_seq: row.get::<_, Option<i64>>(54)?.map(EventSeq),
        note: row.get(55)?,
        checkpoint,
        checkpoint_attempt,
        resolution: row.get(40)?,
        next_step: row.get(41)?,
        choice: row.get::<_, Option<String>>(42)?.as_deref().and_then(Choice::from_word),
        eta: row.get(43)?,
        containment: row.get(28)?,
        swept: row.get(29)?,
        output_left_open: row.get(30)?,
        active_ms: row.get(31)?,
        active_since: row.get::<_, Option<i64>>(56)?.map(SteadyTime),
        estimate_ms: row.get(57)?,
        overdue_at: time(58)?,
        overdue_seq: row.get::<_, Option<i64>>(59)?.map(EventSeq),
        session: row.get(44)?,
        usage,
        pending: row.get(32)?,
        blocking_pending: row.get(33)?,
        unread: row.get(34)?,
        holding: row.get(49)?,
        rank,
        last_seq: EventSeq(row.get(35)?),
        end_seq: row.get::<_, Option<i64>>(36)?.map(EventSeq),
        shortfall: row.get::<_, Option<String>>(60)?.as_deref().and_then(Shortfall::from_word),
        is_owner_notified: row.get(61)?,
        retrying: row.get::<_, Option<String>>(62)?.and_then(|text| serde_json::from_str::<RetryingRow>(&text).ok()).map(RetryingRow::decode),
        retrying_seq: row.get::<_, Option<i64>>(63)?.map(EventSeq),
        subagents: row.get(64)?,
    }))
}

pub(in crate::store) fn list(connection: &Connection, rest: &str, values: impl rusqlite::Params) -> Result<Vec<Run>, StoreError> {
    connection.prepare_cached(&format!("{COLUMNS} {rest}"))?.query_map(values, read)?.collect::<Result<Vec<_>, _>>()?.into_iter().collect()
}

/// Reads one run.
///
/// # Errors
/// A failure of the store.
pub fn run_by_id(connection: &Connection, id: RunId) -> Result<Option<Run>, StoreError> {
    Ok(list(connection, "WHERE id = ?1", [id.to_string()])?.pop())
}

/// Finds the run that a user means, among those whose owner is `owner` (all of them for `None`):
/// by id, name, unique prefix of either, or `@last`.
///
/// # Errors
/// `NotFound`, or `Ambiguous` with the candidates.
pub fn run_by_ref(connection: &Connection, given: &str, owner: Option<&Principal>) -> Result<Run, StoreError> {
    let visible = |run: &Run| owner.is_none_or(|owner| run.owner == *owner);
    let not_found = || StoreError::from(Denied::not_found("run", given));
    if let Ok(id) = RunId::parse(given) {
        return run_by_id(connection, id)?.filter(visible).ok_or_else(not_found);
    }
    if given == "@last" {
        let newest = match owner {
            Some(owner) => list(connection, "WHERE owner = ?1 ORDER BY no DESC LIMIT 1", [owner.to_string()])?,
            None => list(connection, "ORDER BY no DESC LIMIT 1", [])?,
        };
        return newest.into_iter().next().ok_or_else(not_found);
    }
    let plausible = !given.is_empty() && given.len() <= 64 && given.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !plausible {
        return Err(not_found());
    }
    if let Some(run) = list(connection, "WHERE name = ?1", [given])?.pop().filter(visible) {
        return Ok(run);
    }
    // `{` is the character after `z`: a range over the index instead of a scan.
    let upper = format!("{given}{{");
    let mut found = match owner {
        Some(owner) => list(
            connection,
            "WHERE owner = ?3 AND ((name >= ?1 AND name < ?2) OR (id >= ?1 AND id < ?2)) LIMIT 6",
            params![given, upper, owner.to_string()],
        )?,
        None => list(connection, "WHERE (name >= ?1 AND name < ?2) OR (id >= ?1 AND id < ?2) LIMIT 6", params![given, upper])?,
    };
    match found.len() {
        0 => Err(not_found()),
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<_> = found.iter().map(|run| run.name.as_str()).collect();
            Err(Denied::Ambiguous { given: given.to_owned(), candidates: names.join(", ") }.into())
        }
    }
}

/// Reads up to `limit` runs that `owner` (everybody's for `None`) has, newest first; unfinished
/// ones only unless `all`.
///
/// # Errors
/// A failure of the store.
pub fn runs_newest(connection: &Connection, owner: Option<&Principal>, all: bool, limit: u32) -> Result<Page, StoreError> {
    let state = if all { "1" } else { "state <> 'finished'" };
    let owner = owner.map(ToString::to_string);
    let (condition, owner) = match &owner {
        Some(owner) => (format!("{state} AND owner = ?1"), owner.as_str()),
        None => (format!("{state} AND ?1 = ''"), ""),
    };
    let runs = list(connection, &format!("WHERE {condition} ORDER BY no DESC LIMIT ?2"), params![owner, limit])?;
    let more = if runs.len() < limit as usize {
        0
    } else {
        let total: i64 = connection.prepare_cached(&format!("SELECT count(*) FROM runs WHERE {condition}"))?.query_row([owner], |row| row.get(0))?;
        u64::try_from(total).unwrap_or(0).saturating_sub(runs.len() as u64)
    };
    Ok(Page { runs, more })
}

/// Reads every run that may have a live attempt.
///
/// # Errors
/// A failure of the store.
pub fn live_runs(connection: &Connection) -> Result<Vec<Run>, StoreError> {
    list(connection, "WHERE state IN ('starting', 'running', 'stopping') ORDER BY no", [])
}

/// Reads the names of other live runs in a directory.
///
/// # Errors
/// A failure of the store.
pub fn live_in_dir(connection: &Connection, cwd: &str, except: RunId) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT name FROM runs WHERE cwd = ?1 AND id <> ?2 AND state IN ('starting', 'running', 'stopping') ORDER BY no LIMIT 20")?
        .query_map(params![cwd, except.to_string()], |row| row.get(0))?
        .collect::<Result<_, _>>()?)
}

/// Reads the names of other runs that are at work in a directory or queued to be. A run that waits for its
/// child does nothing there meanwhile.
///
/// # Errors
/// A failure of the store.
pub fn taken_by(connection: &Connection, cwd: &str, except: RunId) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT name FROM runs WHERE cwd = ?1 AND id <> ?2 AND holding = 0 AND state IN ('queued', 'starting', 'running', 'stopping')
             ORDER BY no LIMIT 20",
        )?
        .query_map(params![cwd, except.to_string()], |row| row.get(0))?
        .collect::<Result<_, _>>()?)
}

/// Reads the names of runs that had an attempt in or around a run's directory while it had one.
///
/// # Errors
/// A failure of the store.
pub fn beside(connection: &Connection, run: &Run) -> Result<Vec<String>, StoreError> {
    Ok(connection
        .prepare_cached(
            "SELECT r.name FROM runs r WHERE r.id <> ?1
             AND (r.cwd = ?2 OR substr(r.cwd, 1, length(?2) + 1) = ?2 || '/' OR substr(?2, 1, length(r.cwd) + 1) = r.cwd || '/')
             AND EXISTS (SELECT 1 FROM attempts a, attempts m WHERE a.run = r.id AND m.run = ?1 AND a.started_at IS NOT NULL AND m.started_at IS NOT NULL
                         AND (m.ended_at IS NULL OR a.started_at <= m.ended_at) AND (a.ended_at IS NULL OR a.ended_at >= m.started_at))
             ORDER BY r.no LIMIT 20",
        )?
        .query_map(params![run.id.to_string(), run.cwd], |row| row.get(0))?
        .collect::<Result<_, _>>()?)
}

/// Reads the ids and names of other runs that are at work in a directory, or will be to answer in a chat. A
/// run that waits for its child does nothing there meanwhile.
///
/// # Errors
/// A failure of the store.
pub fn at_work_in(connection: &Connection, cwd: &str, except: RunId) -> Result<Vec<(RunId, String)>, StoreError> {
    let found: Vec<(String, String)> = connection
        .prepare_cached(
            "SELECT id, name FROM runs r WHERE cwd = ?1 AND id <> ?2 AND holding = 0 AND state IN ('queued', 'starting', 'running', 'stopping')
             AND (state <> 'queued' OR EXISTS (SELECT 1 FROM chat_turns t WHERE t.run = r.id)) ORDER BY no LIMIT 20",
        )?
        .query_map(params![cwd, except.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    found.into_iter().map(|(id, name)| Ok((RunId::parse(&id).map_err(|_| StoreError::Corrupt(format!("run {id}")))?, name))).collect()
}

/// Reads the queued run that is next.
///
/// # Errors
/// A failure of the store.
pub fn next_queued(connection: &Connection) -> Result<Option<Run>, StoreError> {
    Ok(list(connection, "WHERE state = 'queued' ORDER BY rank, no LIMIT 1", [])?.pop())
}

/// Returns a queued run's place, from 1.
///
/// # Errors
/// A failure of the store.
pub fn queue_place(connection: &Connection, run: &Run) -> Result<u64, StoreError> {
    let before: i64 = connection
        .prepare_cached("SELECT count(*) FROM runs WHERE state = 'queued' AND (rank, no) < (?2, (SELECT no FROM runs WHERE id = ?1))")?
        .query_row(params![run.id.to_string(), run.rank.number()], |row| row.get(0))?;
    Ok(u64::try_from(before).unwrap_or(0) + 1)
}

/// Counts runs and open requests.
///
/// # Errors
/// A failure of the store.
pub fn counts(connection: &Connection) -> Result<Counts, StoreError> {
    let count = |sql: &str| -> Result<u64, StoreError> {
        let count: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    Ok(Counts {
        live: count("SELECT count(*) FROM runs WHERE state IN ('starting', 'running', 'stopping')")?,
        lent: count("SELECT count(*) FROM runs WHERE holding > 0 AND state IN ('starting', 'running', 'stopping')")?,
        queued: count("SELECT count(*) FROM runs WHERE state = 'queued'")?,
        pending_requests: count("SELECT count(*) FROM requests WHERE status = 'pending'")?,
    })
}

/// Tells whether there is anything that goes on without being called for: a run that is live, queued,
/// or stopped until a limit of its vendor ends, or a request that will expire.
///
/// # Errors
/// A failure of the store.
pub fn is_work_ahead(connection: &Connection) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE state IN ('starting', 'running', 'stopping'))
        OR EXISTS (SELECT 1 FROM runs WHERE state = 'queued')
        OR EXISTS (SELECT 1 FROM runs WHERE state = 'stopped' AND stop_reason = ?1)
        OR EXISTS (SELECT 1 FROM requests WHERE status = 'pending')";
    Ok(connection.prepare_cached(sql)?.query_row([StopReason::RateLimited.word()], |row| row.get(0))?)
}

/// Returns the next instant at which something is due by itself.
///
/// # Errors
/// A failure of the store.
pub fn next_until(connection: &Connection) -> Result<Option<SteadyTime>, StoreError> {
    let due: Option<i64> = connection
        .prepare_cached(
            "SELECT min(at) FROM (SELECT min(expires_at) AS at FROM requests INDEXED BY requests_inbox WHERE status = 'pending'
             UNION ALL SELECT min(until_at) FROM runs WHERE state = 'stopped'
             UNION ALL SELECT min(active_since + estimate_ms - active_ms) FROM runs
               WHERE state = 'running' AND active_since IS NOT NULL AND estimate_ms IS NOT NULL AND overdue_seq IS NULL)",
        )?
        .query_row([], |row| row.get(0))?;
    Ok(due.map(SteadyTime))
}

/// Reads stopped runs whose retention is over.
///
/// # Errors
/// A failure of the store.
pub fn due_stopped(connection: &Connection, now: SteadyTime) -> Result<Vec<Run>, StoreError> {
    list(connection, "WHERE state = 'stopped' AND until_at <= ?1 LIMIT 500", [now.0])
}

/// Reads runs that work longer than was estimated, and nobody has said so.
///
/// # Errors
/// A failure of the store.
pub fn due_estimates(connection: &Connection, now: SteadyTime) -> Result<Vec<Run>, StoreError> {
    let rest = "WHERE state = 'running' AND active_since IS NOT NULL AND estimate_ms IS NOT NULL AND overdue_seq IS NULL
        AND active_since + estimate_ms - active_ms <= ?1 LIMIT 500";
    list(connection, rest, [now.0])
}

/// Reads runs that have been finished since before `before`, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn old_finished(connection: &Connection, before: SteadyTime, limit: u32) -> Result<Vec<Run>, StoreError> {
    list(connection, "WHERE state = 'finished' AND settled_at < ?1 ORDER BY settled_at LIMIT ?2", params![before.0, limit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_round_trips() {
        let mut states = vec![RunState::Queued, RunState::Starting, RunState::Running];
        for reason in StopReason::ALL {
            states.push(RunState::Stopping(reason));
            states.push(RunState::Stopped { reason, until: SteadyTime(5) });
            states.push(RunState::Finished(Outcome::Failed(Failure::NotResumed(reason))));
        }
        for outcome in [Outcome::Succeeded, Outcome::Cancelled, Outcome::SpawnFailed, Outcome::Lost] {
            states.push(RunState::Finished(outcome));
        }
        let of_agents = Cause::ALL.into_iter().map(Failure::Agent);
        for failure in
            [Failure::Exit(Exit::Code(3)), Failure::Exit(Exit::Signal(9)), Failure::Unanswered, Failure::Reported].into_iter().chain(of_agents)
        {
            states.push(RunState::Finished(Outcome::Failed(failure)));
        }
        for state in states {
            assert_eq!(StateRow::of(state).state(), Some(state));
        }
    }
}
