//! Runs and their attempts.

use super::{StoreError, Topic, Tx, append_event};
use adjutant_core::run::{OpenRequests, Retention, apply};
use adjutant_core::signal::Checkpoint;
use adjutant_core::{
    AgentName, AgentSpec, AttemptNo, Denied, EventKind, EventSeq, Exit, Failure, HarnessKind, Outcome, Principal, PromptVia, RunEvent, RunId,
    RunName, RunState, StopReason, Time,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    /// What the run said about itself: `success`, `completed` or `error`.
    pub claim: Option<String>,
    pub result: Option<String>,
    pub percent: Option<u8>,
    pub progress: Option<String>,
    pub annotation: Option<String>,
    /// What the run left behind when it stopped.
    pub checkpoint: Option<Checkpoint>,
    /// How its parent resolved what it stopped for, and what it is to do next.
    pub resolution: Option<String>,
    pub next_step: Option<String>,
    pub containment: Option<String>,
    pub swept: Option<u32>,
    pub output_left_open: bool,
    pub active_ms: i64,
    pub pending: i64,
    pub blocking_pending: i64,
    pub unread: i64,
    pub last_seq: EventSeq,
    /// The event by which it stopped or finished.
    pub end_seq: Option<EventSeq>,
}

impl Run {
    /// Returns what its open requests say about its status word.
    #[must_use]
    pub fn open_requests(&self) -> OpenRequests {
        OpenRequests { blocking_pending: self.blocking_pending > 0, answered_unread: self.unread > 0 }
    }
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
    pub by: Principal,
    pub input: RunInput,
}

/// What a run was given.
#[derive(Debug, Clone)]
pub struct RunInput {
    pub prompt: String,
    pub agent: AgentSpec,
    /// Of the dispatcher, see `config::dispatch_env`.
    pub env: BTreeMap<String, String>,
}

/// One attempt.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub run: RunId,
    pub n: AttemptNo,
    pub token_hash: Vec<u8>,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    /// The number of the last fact that was taken in.
    pub fact: u64,
}

/// How an attempt's process ended and what it left behind.
#[derive(Debug, Clone)]
pub struct EndRow {
    pub exit: Exit,
    pub swept: u32,
    pub output_left_open: bool,
    pub active_ms: i64,
    pub result: String,
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
    pub queued: u64,
    pub pending_requests: u64,
}

/// Most finished runs that are listed at once.
pub const FINISHED_PAGE: u32 = 50;
/// Most names that are drawn before a dispatch gives up.
const NAME_DRAWS_MAX: u32 = 50;
/// Longest first line that is kept as a run's task, in characters.
const TASK_CHARS_MAX: usize = 200;

const COLUMNS: &str = "SELECT id, name, agent, task, cwd, owner, parent, root, retry_of, state, stop_reason, until_at, outcome, failure, exit_code,
  exit_signal, detail, attempt, created_at, started_at, ended_at, updated_at, summary, claim, result, percent, progress, annotation, containment, swept,
  output_left_open, active_ms, pending, blocking_pending, unread, last_seq, end_seq, patience_ms, prompt_via, checkpoint, resolution, next_step FROM runs";

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
            "stopped" => RunState::Stopped { reason: reason()?, until: Time(self.until_at?) },
            "finished" => RunState::Finished(match self.outcome.as_deref()? {
                "succeeded" => Outcome::Succeeded,
                "cancelled" => Outcome::Cancelled,
                "spawn_failed" => Outcome::SpawnFailed,
                "lost" => Outcome::Lost,
                "failed" => Outcome::Failed(match self.failure.as_deref()?.split_once(' ') {
                    Some(("exit", code)) => Failure::Exit(Exit::Code(code.parse().ok()?)),
                    Some(("signal", signal)) => Failure::Exit(Exit::Signal(signal.parse().ok()?)),
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
    let run_id = |text: &str| RunId::parse(text).ok();
    let (Some(run), Some(owner), Some(root), Some(state), Some(prompt_via)) =
        (run_id(&id), Principal::parse(&owner), run_id(&root), state.state(), prompt_from_word(&row.get::<_, String>(38)?))
    else {
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
        claim: row.get(23)?,
        result: row.get(24)?,
        percent: row.get(25)?,
        progress: row.get(26)?,
        annotation: row.get(27)?,
        checkpoint,
        resolution: row.get(40)?,
        next_step: row.get(41)?,
        containment: row.get(28)?,
        swept: row.get(29)?,
        output_left_open: row.get(30)?,
        active_ms: row.get(31)?,
        pending: row.get(32)?,
        blocking_pending: row.get(33)?,
        unread: row.get(34)?,
        last_seq: EventSeq(row.get(35)?),
        end_seq: row.get::<_, Option<i64>>(36)?.map(EventSeq),
    }))
}

fn list(connection: &Connection, rest: &str, values: impl rusqlite::Params) -> Result<Vec<Run>, StoreError> {
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

/// Reads up to `limit` runs that stopped or finished after `after`, oldest end first.
///
/// # Errors
/// A failure of the store.
pub fn ended_after(connection: &Connection, owner: Option<&Principal>, after: EventSeq, limit: u32) -> Result<Vec<Run>, StoreError> {
    match owner {
        Some(owner) => list(connection, "WHERE end_seq > ?1 AND owner = ?2 ORDER BY end_seq LIMIT ?3", params![after.0, owner.to_string(), limit]),
        None => list(connection, "WHERE end_seq > ?1 ORDER BY end_seq LIMIT ?2", params![after.0, limit]),
    }
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
        .prepare_cached(
            "SELECT name FROM runs WHERE cwd = ?1 AND id <> ?2 AND state IN ('starting', 'running', 'stopping') ORDER BY no LIMIT 20",
        )?
        .query_map(params![cwd, except.to_string()], |row| row.get(0))?
        .collect::<Result<_, _>>()?)
}

/// Reads the queued run that is next.
///
/// # Errors
/// A failure of the store.
pub fn next_queued(connection: &Connection) -> Result<Option<Run>, StoreError> {
    Ok(list(connection, "WHERE state = 'queued' ORDER BY no LIMIT 1", [])?.pop())
}

/// Returns a queued run's place, from 1.
///
/// # Errors
/// A failure of the store.
pub fn queue_place(connection: &Connection, run: &Run) -> Result<u64, StoreError> {
    let before: i64 = connection
        .prepare_cached("SELECT count(*) FROM runs WHERE state = 'queued' AND no < (SELECT no FROM runs WHERE id = ?1)")?
        .query_row([run.id.to_string()], |row| row.get(0))?;
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
        queued: count("SELECT count(*) FROM runs WHERE state = 'queued'")?,
        pending_requests: count("SELECT count(*) FROM requests WHERE status = 'pending'")?,
    })
}

/// Returns the next instant at which something is due by itself.
///
/// # Errors
/// A failure of the store.
pub fn next_until(connection: &Connection) -> Result<Option<Time>, StoreError> {
    let due: Option<i64> = connection
        .prepare_cached(
            "SELECT min(at) FROM (SELECT min(expires_at) AS at FROM requests WHERE status = 'pending'
             UNION ALL SELECT min(until_at) FROM runs WHERE state = 'stopped')",
        )?
        .query_row([], |row| row.get(0))?;
    Ok(due.map(Time))
}

/// Reads stopped runs whose retention is over.
///
/// # Errors
/// A failure of the store.
pub fn due_stopped(connection: &Connection, now: Time) -> Result<Vec<Run>, StoreError> {
    list(connection, "WHERE state = 'stopped' AND until_at <= ?1 LIMIT 500", [now.0])
}

/// Reads finished runs that ended before `before`, oldest first.
///
/// # Errors
/// A failure of the store.
pub fn old_finished(connection: &Connection, before: Time, limit: u32) -> Result<Vec<Run>, StoreError> {
    list(connection, "WHERE state = 'finished' AND ended_at < ?1 ORDER BY ended_at LIMIT ?2", params![before.0, limit])
}

/// Reads what a run was given.
///
/// # Errors
/// A failure of the store.
pub fn run_input(connection: &Connection, run: RunId) -> Result<RunInput, StoreError> {
    let (prompt, spec): (String, String) = connection
        .prepare_cached("SELECT prompt, spec FROM run_inputs WHERE run = ?1")?
        .query_row([run.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let spec: SpecRow = serde_json::from_str(&spec).map_err(|error| StoreError::Corrupt(format!("run {run}: {error}")))?;
    let (agent, env) = spec.decode().ok_or_else(|| StoreError::Corrupt(format!("run {run}: its agent")))?;
    Ok(RunInput { prompt, agent, env })
}

/// Reads one attempt.
///
/// # Errors
/// A failure of the store.
pub fn attempt_row(connection: &Connection, run: RunId, n: AttemptNo) -> Result<Option<AttemptRow>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT token_hash, started_at, ended_at, fact FROM attempts WHERE run = ?1 AND n = ?2")?
        .query_row(params![run.to_string(), n.0], |row| {
            Ok(AttemptRow {
                run,
                n,
                token_hash: row.get(0)?,
                started_at: row.get::<_, Option<i64>>(1)?.map(Time),
                ended_at: row.get::<_, Option<i64>>(2)?.map(Time),
                fact: u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
            })
        })
        .optional()?)
}

/// How a checkpoint is written down.
#[derive(Serialize, Deserialize)]
struct CheckpointRow {
    blocker_type: Option<String>,
    details: String,
    completed_work: Option<String>,
    blocked_work: Option<String>,
    state: Option<String>,
    requirements: Option<String>,
    recovery: Option<String>,
}

impl CheckpointRow {
    fn of(checkpoint: &Checkpoint) -> Self {
        let Checkpoint { blocker_type, details, completed_work, blocked_work, state, requirements, recovery } = checkpoint.clone();
        Self { blocker_type, details, completed_work, blocked_work, state, requirements, recovery }
    }

    fn decode(self) -> Checkpoint {
        let Self { blocker_type, details, completed_work, blocked_work, state, requirements, recovery } = self;
        Checkpoint { blocker_type, details, completed_work, blocked_work, state, requirements, recovery }
    }
}

/// How an agent is written down.
#[derive(Serialize, Deserialize)]
struct SpecRow {
    name: String,
    harness: String,
    command: Vec<String>,
    args: Vec<String>,
    prompt: String,
    agent_env: BTreeMap<String, String>,
    description: String,
    timeout_ms: Option<i64>,
    patience_ms: i64,
    grace_ms: i64,
    dispatch_env: BTreeMap<String, String>,
}

/// Returns the stable word of a harness.
#[must_use]
pub fn harness_word(harness: HarnessKind) -> &'static str {
    match harness {
        HarnessKind::Echo => "echo",
        HarnessKind::Plain => "plain",
    }
}

/// Returns the stable word of the way a prompt goes.
#[must_use]
pub fn prompt_word(prompt: PromptVia) -> &'static str {
    match prompt {
        PromptVia::Stdin => "stdin",
        PromptVia::Arg => "arg",
        PromptVia::Stream => "stream",
    }
}

fn prompt_from_word(word: &str) -> Option<PromptVia> {
    match word {
        "stdin" => Some(PromptVia::Stdin),
        "arg" => Some(PromptVia::Arg),
        "stream" => Some(PromptVia::Stream),
        _ => None,
    }
}

impl SpecRow {
    fn of(input: &RunInput) -> Self {
        let AgentSpec { name, harness, command, args, prompt, env, description, timeout_ms, patience_ms, grace_ms } = &input.agent;
        Self {
            name: name.to_string(),
            harness: harness_word(*harness).to_owned(),
            command: command.clone(),
            args: args.clone(),
            prompt: prompt_word(*prompt).to_owned(),
            agent_env: env.clone(),
            description: description.clone(),
            timeout_ms: *timeout_ms,
            patience_ms: *patience_ms,
            grace_ms: *grace_ms,
            dispatch_env: input.env.clone(),
        }
    }

    fn decode(self) -> Option<(AgentSpec, BTreeMap<String, String>)> {
        let Self { name, harness, command, args, prompt, agent_env, description, timeout_ms, patience_ms, grace_ms, dispatch_env } = self;
        let harness = match harness.as_str() {
            "echo" => HarnessKind::Echo,
            "plain" => HarnessKind::Plain,
            _ => return None,
        };
        let prompt = prompt_from_word(&prompt)?;
        let name = AgentName::parse(&name).ok()?;
        Some((AgentSpec { name, harness, command, args, prompt, env: agent_env, description, timeout_ms, patience_ms, grace_ms }, dispatch_env))
    }
}

/// Returns the first line of a text with something in it, shortened, without control characters.
pub(super) fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    let mut out: String = line.chars().filter(|c| !c.is_control()).take(TASK_CHARS_MAX).collect();
    if line.chars().nth(TASK_CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

impl Tx<'_> {
    /// Queues a new run.
    ///
    /// # Errors
    /// The wanted name is taken.
    pub fn dispatch(&mut self, new: &NewRun) -> Result<Run, StoreError> {
        let id = new.id.to_string();
        let taken = |tx: &Self, name: &RunName| -> Result<bool, StoreError> {
            Ok(tx.prepare("SELECT EXISTS (SELECT 1 FROM runs WHERE name = ?1)")?.query_row([name.as_str()], |row| row.get(0))?)
        };
        let name = match &new.name {
            Some(name) if taken(self, name)? => return Err(Denied::invalid("name", format!("{name} is taken")).into()),
            Some(name) => name.clone(),
            None => {
                let mut found = None;
                for round in 0..NAME_DRAWS_MAX {
                    let [a, b, c, d] = new.name_seed;
                    let step = u8::try_from(round % 251).unwrap_or(0);
                    let name = RunName::draw([a.wrapping_add(step.wrapping_mul(7)), b.wrapping_add(step), c.wrapping_add(step), d], round);
                    if !taken(self, &name)? {
                        found = Some(name);
                        break;
                    }
                }
                found.ok_or(Denied::Limit { what: "drawing a free name", limit: u64::from(NAME_DRAWS_MAX) })?
            }
        };
        let now = self.now().0;
        self.prepare(
            "INSERT INTO runs (id, name, agent, task, cwd, owner, root, retry_of, state, created_at, updated_at, patience_ms, prompt_via)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?1, ?7, 'queued', ?8, ?8, ?9, ?10)",
        )?
        .execute(params![
            id,
            name.as_str(),
            new.input.agent.name.as_str(),
            first_line(&new.input.prompt),
            new.cwd,
            new.owner.to_string(),
            new.retry_of.map(|run| run.to_string()),
            now,
            new.input.agent.patience_ms,
            prompt_word(new.input.agent.prompt)
        ])?;
        let spec = serde_json::to_string(&SpecRow::of(&new.input)).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("INSERT INTO run_inputs (run, prompt, spec) VALUES (?1, ?2, ?3)")?.execute(params![id, new.input.prompt, spec])?;
        let seq =
            append_event(self, EventKind::RunQueued, new.id, &new.owner.to_string(), None, &new.by.to_string(), &first_line(&new.input.prompt))?;
        self.touch(new.id, seq)?;
        self.ring(Topic::Queue);
        self.run(new.id)
    }

    /// Reads a run that must be there.
    ///
    /// # Errors
    /// It is not, or a failure of the store.
    pub fn run(&self, id: RunId) -> Result<Run, StoreError> {
        run_by_id(self.connection(), id)?.ok_or_else(|| Denied::not_found("run", &id.to_string()).into())
    }

    /// Moves a run's cursor to an event about it.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn touch(&self, run: RunId, seq: EventSeq) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET last_seq = ?2, updated_at = ?3 WHERE id = ?1")?.execute(params![run.to_string(), seq.0, self.now().0])?;
        Ok(())
    }

    /// Lets something happen to a run and records it. A run that has ended takes its open requests
    /// with it. Returns the run as it is then.
    ///
    /// # Errors
    /// What the rules refuse.
    pub fn advance(&mut self, run: &Run, event: RunEvent, retention: Retention, by: &str, text: &str) -> Result<Run, StoreError> {
        let next = apply(run.state, event, self.now(), retention)?;
        if next == run.state {
            return Ok(run.clone());
        }
        let kind = match next {
            RunState::Queued if event == RunEvent::NotStarted => EventKind::RunRequeued,
            RunState::Queued => EventKind::RunQueued,
            RunState::Starting => EventKind::RunStarting,
            RunState::Running => EventKind::RunStarted,
            RunState::Stopping(_) => EventKind::RunStopping,
            RunState::Stopped { .. } => EventKind::RunStopped,
            RunState::Finished(_) => EventKind::RunFinished,
        };
        let described = match next {
            RunState::Stopping(reason) | RunState::Stopped { reason, .. } if text.is_empty() => reason.word().to_owned(),
            RunState::Finished(outcome) if text.is_empty() => outcome.to_string(),
            _ => text.to_owned(),
        };
        let seq = append_event(self, kind, run.id, &run.owner.to_string(), None, by, &described)?;
        let row = StateRow::of(next);
        let ended_at = next.is_finished().then_some(self.now().0);
        // A parked run has not ended: it goes on by itself with the answer.
        let ends = next.is_finished() || matches!(next, RunState::Stopped { reason, .. } if reason != StopReason::Parked);
        let started_at = (next == RunState::Running && run.started_at.is_none()).then_some(self.now().0);
        let changed = self
            .prepare(
                "UPDATE runs SET state = ?2, stop_reason = ?3, until_at = ?4, outcome = ?5, failure = ?6, ended_at = ?7, started_at = coalesce(started_at, ?8),
                 updated_at = ?9, last_seq = ?10, end_seq = ?11 WHERE id = ?1 AND state = ?12",
            )?
            .execute(params![
                run.id.to_string(),
                row.state,
                row.stop_reason,
                row.until_at,
                row.outcome,
                row.failure,
                ended_at,
                started_at,
                self.now().0,
                seq.0,
                ends.then_some(seq.0),
                run.state.word()
            ])?;
        if changed != 1 {
            return Err(StoreError::Corrupt(format!("run {} changed within its transaction", run.id)));
        }
        if next.is_finished() {
            self.withdraw_requests(run.id)?;
        }
        if matches!(next, RunState::Stopped { reason: StopReason::Parked, .. }) {
            self.wake_parked(run.id)?;
        }
        if run.state.is_live() && !next.is_live() || next == RunState::Queued {
            self.ring(Topic::Queue);
        }
        if matches!(next, RunState::Stopped { .. }) {
            self.ring(Topic::Deadline);
        }
        self.run(run.id)
    }

    /// Begins the next attempt of a queued run: from here on it is started at most once under its
    /// number.
    ///
    /// # Errors
    /// What the rules refuse.
    pub fn claim(&mut self, run: &Run, token_hash: &[u8], retention: Retention) -> Result<Run, StoreError> {
        let n = AttemptNo(run.attempt.0 + 1);
        self.prepare("UPDATE runs SET attempt = ?2, exit_code = NULL, exit_signal = NULL, detail = NULL WHERE id = ?1")?
            .execute(params![run.id.to_string(), n.0])?;
        self.prepare("INSERT INTO attempts (run, n, token_hash, claimed_at) VALUES (?1, ?2, ?3, ?4)")?.execute(params![
            run.id.to_string(),
            n.0,
            token_hash,
            self.now().0
        ])?;
        self.advance(run, RunEvent::Claimed, retention, "hub", &format!("attempt {n}"))
    }

    /// Keeps what a run left behind.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_checkpoint(&mut self, run: RunId, checkpoint: &Checkpoint) -> Result<(), StoreError> {
        let text = serde_json::to_string(&CheckpointRow::of(checkpoint)).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        self.prepare("UPDATE runs SET checkpoint = ?2 WHERE id = ?1")?.execute(params![run.to_string(), text])?;
        Ok(())
    }

    /// Keeps what a resumed run is told.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_resolution(&mut self, run: RunId, resolution: Option<&str>, next_step: Option<&str>) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET resolution = ?2, next_step = ?3 WHERE id = ?1")?.execute(params![run.to_string(), resolution, next_step])?;
        Ok(())
    }

    /// Lets a run's limit of active time begin anew.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn forget_active_time(&mut self, run: RunId) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET active_ms = 0 WHERE id = ?1")?.execute([run.to_string()])?;
        Ok(())
    }

    /// Records a signal that does not count, for the parent to see.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn malformed_signal(&mut self, run: &Run, why: &str) -> Result<(), StoreError> {
        let seq = append_event(
            self,
            EventKind::SignalMalformed,
            run.id,
            &run.owner.to_string(),
            None,
            &Principal::Run(run.id).to_string(),
            &first_line(why),
        )?;
        self.touch(run.id, seq)
    }

    /// Notes why a run could not be started or was cancelled, for people.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_detail(&mut self, run: RunId, detail: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET detail = ?2 WHERE id = ?1")?.execute(params![run.to_string(), detail])?;
        Ok(())
    }

    /// Notes what holds an attempt's processes together.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_containment(&mut self, run: RunId, n: AttemptNo, level: &str) -> Result<(), StoreError> {
        self.prepare("UPDATE runs SET containment = ?2 WHERE id = ?1")?.execute(params![run.to_string(), level])?;
        self.prepare("UPDATE attempts SET started_at = ?3 WHERE run = ?1 AND n = ?2")?.execute(params![run.to_string(), n.0, self.now().0])?;
        Ok(())
    }

    /// Notes how an attempt's process ended and what it left behind.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_end(&mut self, run: RunId, n: AttemptNo, end: &EndRow) -> Result<(), StoreError> {
        let EndRow { exit, swept, output_left_open, active_ms, result } = end;
        let (code, signal) = match exit {
            Exit::Code(code) => (Some(*code), None),
            Exit::Signal(signal) => (None, Some(*signal)),
        };
        self.prepare(
            "UPDATE runs SET exit_code = ?2, exit_signal = ?3, swept = ?4, output_left_open = ?5, active_ms = ?6, result = ?7 WHERE id = ?1",
        )?
        .execute(params![run.to_string(), code, signal, swept, output_left_open, active_ms, result])?;
        self.prepare("UPDATE attempts SET ended_at = ?3 WHERE run = ?1 AND n = ?2")?.execute(params![run.to_string(), n.0, self.now().0])?;
        Ok(())
    }

    /// Moves an attempt's fact cursor. The facts' effects are in the same transaction.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_fact(&mut self, run: RunId, n: AttemptNo, fact: u64) -> Result<(), StoreError> {
        let fact = i64::try_from(fact).unwrap_or(i64::MAX);
        self.prepare("UPDATE attempts SET fact = ?3 WHERE run = ?1 AND n = ?2 AND fact < ?3")?.execute(params![run.to_string(), n.0, fact])?;
        Ok(())
    }

    /// Records progress that a live run reports.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn progress(&mut self, run: &Run, percent: Option<u8>, note: Option<&str>) -> Result<Run, StoreError> {
        let text = match (percent, note) {
            (Some(percent), Some(note)) => format!("{percent} % {}", first_line(note)),
            (Some(percent), None) => format!("{percent} %"),
            (None, note) => first_line(note.unwrap_or("")),
        };
        let seq = append_event(self, EventKind::RunProgress, run.id, &run.owner.to_string(), None, &Principal::Run(run.id).to_string(), &text)?;
        self.prepare("UPDATE runs SET percent = coalesce(?2, percent), progress = coalesce(?3, progress) WHERE id = ?1")?.execute(params![
            run.id.to_string(),
            percent,
            note
        ])?;
        self.touch(run.id, seq)?;
        self.run(run.id)
    }

    /// Records a run's claim about its own end. The newest counts.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn report(&mut self, run: &Run, claim: &str, summary: Option<&str>) -> Result<Run, StoreError> {
        let text = format!("{claim}: {}", first_line(summary.unwrap_or("")));
        let seq =
            append_event(self, EventKind::RunReported, run.id, &run.owner.to_string(), None, &Principal::Run(run.id).to_string(), text.trim_end())?;
        self.prepare("UPDATE runs SET claim = ?2, summary = coalesce(?3, summary) WHERE id = ?1")?.execute(params![
            run.id.to_string(),
            claim,
            summary
        ])?;
        self.touch(run.id, seq)?;
        self.run(run.id)
    }

    /// Records a parent's remark about a run, finished or not.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn annotate(&mut self, run: &Run, by: &Principal, text: &str) -> Result<Run, StoreError> {
        let seq = append_event(self, EventKind::RunAnnotated, run.id, &run.owner.to_string(), None, &by.to_string(), &first_line(text))?;
        self.prepare("UPDATE runs SET annotation = ?2 WHERE id = ?1")?.execute(params![run.id.to_string(), text])?;
        self.touch(run.id, seq)?;
        self.run(run.id)
    }

    /// Gives a whole tree of runs to another owner.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn adopt(&mut self, root: &Run, owner: &Principal, by: &Principal) -> Result<Run, StoreError> {
        let text = format!("from {} to {owner}", root.owner);
        self.prepare("UPDATE runs SET owner = ?2 WHERE root = ?1")?.execute(params![root.root.to_string(), owner.to_string()])?;
        let seq = append_event(self, EventKind::RunAdopted, root.id, &owner.to_string(), None, &by.to_string(), &text)?;
        self.ring(Topic::Owner(root.owner.to_string()));
        self.touch(root.id, seq)?;
        self.run(root.id)
    }

    /// Removes a finished run and everything about it.
    ///
    /// # Errors
    /// It has not finished.
    pub fn remove(&mut self, run: &Run) -> Result<(), StoreError> {
        if !run.state.is_finished() {
            return Err(Denied::WrongState { state: run.state.word(), wanted: "removed" }.into());
        }
        self.prepare("DELETE FROM runs WHERE id = ?1")?.execute([run.id.to_string()])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_survives_being_stored() {
        let mut states = vec![RunState::Queued, RunState::Starting, RunState::Running];
        for reason in StopReason::ALL {
            states.push(RunState::Stopping(reason));
            states.push(RunState::Stopped { reason, until: Time(5) });
            states.push(RunState::Finished(Outcome::Failed(Failure::NotResumed(reason))));
        }
        for outcome in [Outcome::Succeeded, Outcome::Cancelled, Outcome::SpawnFailed, Outcome::Lost] {
            states.push(RunState::Finished(outcome));
        }
        for failure in [Failure::Exit(Exit::Code(3)), Failure::Exit(Exit::Signal(9)), Failure::Unanswered, Failure::Reported] {
            states.push(RunState::Finished(Outcome::Failed(failure)));
        }
        for state in states {
            assert_eq!(StateRow::of(state).state(), Some(state));
        }
    }
}
