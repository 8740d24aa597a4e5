//! Statistics of runs, read in one pass. Queued runs that have never started are only counted.

use super::{StoreError, workspace_around};
use crate::store::db::{self, Connection, OptionalExtension, Row, params};
use adjutant_core::request::AnsweredBy;
use adjutant_core::stats::{RequestTimes, RunFacts, Stats, StatsBy, Tokens, TreeTotals};
use adjutant_core::{OutcomeKind, Principal, RunId, RunStateKind, Time};
use std::collections::{HashMap, HashSet};

/// Which runs count, and how.
#[derive(Debug, Clone)]
pub struct StatsQuery<'a> {
    /// Runs of this owner. `None`: of all.
    pub owner: Option<&'a Principal>,
    /// Runs that were dispatched from then on.
    pub since: Option<Time>,
    pub by: Option<StatsBy>,
    /// The directory of workspaces, in which a child works whose parent has one.
    pub workspaces: &'a str,
    pub now: Time,
}

/// Statistics, and when the oldest run was dispatched that is still kept.
#[derive(Debug, Clone)]
pub struct RunStats {
    pub stats: Stats,
    pub kept_since: Option<Time>,
}

/// The part of a run that is read.
struct StatsRow {
    id: String,
    state: RunStateKind,
    outcome: Option<OutcomeKind>,
    of: Belongs,
    created_at: Time,
    started_at: Option<Time>,
    active_ms: i64,
    cost_micros: Option<i64>,
    tokens: Option<Tokens>,
    has_waited_for_runs: bool,
    is_merged: bool,
    is_verified: bool,
    has_used_chat: bool,
    has_requests: bool,
}

/// What decides about the group of a run.
#[derive(Default)]
struct Belongs {
    agent: String,
    pool: String,
    cwd: String,
    owner: String,
    parent: Option<String>,
    repository: Option<String>,
}

const COLUMNS: &str =
    "SELECT r.id, r.state, r.outcome, r.agent, r.pool, r.cwd, r.owner, r.parent, w.repository, r.created_at, r.started_at, r.active_ms,
  r.cost_micros, r.input_tokens, r.output_tokens,
  EXISTS (SELECT 1 FROM run_after a WHERE a.run = r.id),
  w.state = 'merged' OR EXISTS (SELECT 1 FROM merges m WHERE m.run_id = r.id AND m.is_done = 1 AND m.mode <> 'branch'),
  r.outcome = 'succeeded' AND r.shortfall IS NULL AND EXISTS (
    SELECT 1 FROM reports p WHERE p.run = r.id AND is_valid_json(p.saw) AND CAST(json_text_at(p.saw, '$.acceptance.exit_code') AS BIGINT) = 0),
  EXISTS (SELECT 1 FROM chat_members c WHERE c.who = 'run:' || r.id AND c.said > 0) OR EXISTS (SELECT 1 FROM chat_turns t WHERE t.run = r.id),
  EXISTS (SELECT 1 FROM requests q WHERE q.run = r.id)
  FROM runs r LEFT JOIN workspaces w ON w.run_id = r.id";

impl StatsRow {
    fn read(row: &Row<'_>) -> db::Result<Result<Self, StoreError>> {
        let id: String = row.get(0)?;
        let (state, outcome) = (row.get::<String>(1)?, row.get::<Option<String>>(2)?);
        let tokens = |n| {
            row.get::<Option<i64>>(n)
                .map(|number| number.and_then(|number| u64::try_from(number).ok()))
        };
        let tokens = tokens(13)?
            .zip(tokens(14)?)
            .map(|(input, output)| Tokens { input, output });
        let Some(state) = RunStateKind::from_word(&state) else {
            return Ok(Err(StoreError::Corrupt(format!("the state of run {id}"))));
        };
        let outcome = match outcome.map(|word| OutcomeKind::from_word(&word)) {
            Some(None) => return Ok(Err(StoreError::Corrupt(format!("the outcome of run {id}")))),
            known => known.flatten(),
        };
        Ok(Ok(Self {
            state,
            outcome,
            of: Belongs {
                agent: row.get(3)?,
                pool: row.get(4)?,
                cwd: row.get(5)?,
                owner: row.get(6)?,
                parent: row.get(7)?,
                repository: row.get(8)?,
            },
            created_at: Time(row.get(9)?),
            started_at: row.get::<Option<i64>>(10)?.map(Time),
            active_ms: row.get(11)?,
            cost_micros: row.get(12)?,
            tokens,
            has_waited_for_runs: row.get(15)?,
            is_merged: row
                .get::<Option<bool>>(16)?
                .is_some_and(|is_merged| is_merged),
            is_verified: row
                .get::<Option<bool>>(17)?
                .is_some_and(|is_verified| is_verified),
            has_used_chat: row.get(18)?,
            has_requests: row.get(19)?,
            id,
        }))
    }
}

/// `?1`: the first time of a dispatch, `?2`: the owner, or none.
const IS_WANTED: &str = "r.created_at >= ?1 AND (CAST(?2 AS TEXT) IS NULL OR r.owner = ?2)";

/// Reads the statistics of runs, one run at a time.
///
/// # Errors
/// A failure of the store.
pub fn run_stats(connection: &Connection, query: &StatsQuery<'_>) -> Result<RunStats, StoreError> {
    let owner = query.owner.map(ToString::to_string);
    let since = query.since.map_or(i64::MIN, |since| since.0);
    let kept_since: Option<i64> = connection
        .prepare_cached("SELECT created_at FROM runs WHERE CAST(?1 AS TEXT) IS NULL OR owner = ?1 ORDER BY no LIMIT 1")?
        .query_row([&owner], |row| row.get(0))
        .optional()?;
    let retried = retried_runs(connection)?;
    let mut stats = Stats::default();
    let mut groups = Groups {
        connection,
        query,
        last_call_only: HashMap::new(),
    };
    let mut statement = connection
        .prepare_cached(&format!("{COLUMNS} WHERE (r.state <> 'queued' OR r.started_at IS NOT NULL) AND {IS_WANTED} ORDER BY r.no DESC"))?;
    let mut rows = statement.query(params![since, owner])?;
    while let Some(row) = rows.next()? {
        let run = StatsRow::read(&row)??;
        // Most runs, such as queued ones, have none: no statement for each of them.
        let requests = if run.has_requests {
            requests_of_run(connection, &run.id, query.now)?
        } else {
            Vec::new()
        };
        let tokens = if groups.has_tokens_of_last_call(&run)? {
            None
        } else {
            run.tokens
        };
        let facts = RunFacts {
            state: run.state,
            outcome: run.outcome,
            has_started: run.started_at.is_some(),
            is_retried: retried.contains(&run.id),
            is_merged: run.is_merged,
            is_verified: run.is_verified,
            has_used_chat: run.has_used_chat,
            queue_ms: run
                .started_at
                .filter(|_| !run.has_waited_for_runs)
                .map(|started| started.ms_since(run.created_at)),
            active_ms: run.active_ms,
            cost_micros: run
                .cost_micros
                .and_then(|micros| u64::try_from(micros).ok()),
            tokens,
            requests: &requests,
        };
        stats.add(groups.group_of(&run.of)?.as_deref(), &facts);
    }
    groups.count_queued(&mut stats, since, owner.as_deref())?;
    Ok(RunStats {
        stats,
        kept_since: kept_since.map(Time),
    })
}

/// Reads the ids of runs whose task another run has repeated. A follow-up on comments, which works in the workspace of the
/// earlier run, is another task.
fn retried_runs(connection: &Connection) -> Result<HashSet<String>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT retry_of FROM runs r WHERE retry_of IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workspaces w
         WHERE w.run_id <> r.id AND (r.cwd = w.path OR substr(r.cwd, 1, length(w.path) + 1) = w.path || '/'))",
    )?;
    Ok(statement
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?)
}

fn requests_of_run(
    connection: &Connection,
    run: &str,
    now: Time,
) -> Result<Vec<RequestTimes>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT asked_at, coalesce(answered_at, ended_at), answered_by, blocking FROM requests WHERE run = ?1 ORDER BY no")?;
    let times = |row: &Row<'_>| {
        let by: Option<String> = row.get(2)?;
        Ok(RequestTimes {
            asked_at_ms: row.get(0)?,
            until_ms: row.get::<Option<i64>>(1)?.unwrap_or(now.0),
            answered_by: by
                .and_then(|by| AnsweredBy::parse(&by))
                .as_ref()
                .map(Into::into),
            is_blocking: row.get(3)?,
        })
    };
    Ok(statement
        .query_map([run], times)?
        .collect::<Result<_, _>>()?)
}

/// Finds the groups of runs.
struct Groups<'a> {
    connection: &'a Connection,
    query: &'a StatsQuery<'a>,
    /// By agent: its CLI states only the tokens of its last model call.
    last_call_only: HashMap<String, bool>,
}

impl Groups<'_> {
    /// Counts the queued runs that have never started.
    fn count_queued(
        &self,
        stats: &mut Stats,
        since: i64,
        owner: Option<&str>,
    ) -> Result<(), StoreError> {
        let (columns, join) = match self.query.by {
            None => ("", ""),
            Some(StatsBy::Agent) => (", r.agent", ""),
            Some(StatsBy::Pool) => (", r.pool", ""),
            Some(StatsBy::Project) => (
                ", r.cwd, w.repository",
                " LEFT JOIN workspaces w ON w.run_id = r.id",
            ),
            Some(StatsBy::Parent) => (", r.owner, r.parent", ""),
        };
        let group = columns.trim_start_matches(", ");
        let group = if group.is_empty() {
            String::new()
        } else {
            format!(" GROUP BY {group}")
        };
        let sql = format!(
            "SELECT count(*){columns} FROM runs r INDEXED BY runs_queue{join} WHERE r.state = 'queued' AND r.started_at IS NULL AND {IS_WANTED}{group}"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![since, owner])?;
        while let Some(row) = rows.next()? {
            let of = match self.query.by {
                None => Belongs::default(),
                Some(StatsBy::Agent) => Belongs {
                    agent: row.get(1)?,
                    ..Belongs::default()
                },
                Some(StatsBy::Pool) => Belongs {
                    pool: row.get(1)?,
                    ..Belongs::default()
                },
                Some(StatsBy::Project) => Belongs {
                    cwd: row.get(1)?,
                    repository: row.get(2)?,
                    ..Belongs::default()
                },
                Some(StatsBy::Parent) => Belongs {
                    owner: row.get(1)?,
                    parent: row.get(2)?,
                    ..Belongs::default()
                },
            };
            let runs = u64::try_from(row.get::<i64>(0)?).unwrap_or(0);
            if runs > 0 {
                stats.add_queued(self.group_of(&of)?.as_deref(), runs);
            }
        }
        Ok(())
    }

    fn group_of(&self, run: &Belongs) -> Result<Option<String>, StoreError> {
        Ok(match self.query.by {
            None => None,
            Some(StatsBy::Agent) => Some(run.agent.clone()),
            Some(StatsBy::Pool) => Some(run.pool.clone()),
            Some(StatsBy::Project) => Some(self.project_of(run)?),
            Some(StatsBy::Parent) => Some(match &run.parent {
                None => run.owner.clone(),
                Some(parent) => {
                    let mut statement = self
                        .connection
                        .prepare_cached("SELECT name FROM runs WHERE id = ?1")?;
                    statement
                        .query_row([parent], |row| row.get(0))
                        .optional()?
                        .unwrap_or_else(|| parent.clone())
                }
            }),
        })
    }

    fn project_of(&self, run: &Belongs) -> Result<String, StoreError> {
        if let Some(repository) = &run.repository {
            return Ok(repository.clone());
        }
        let around = if run.cwd.starts_with(self.query.workspaces) {
            workspace_around(self.connection, &run.cwd)?.map(|found| found.repository)
        } else {
            None
        };
        Ok(around.unwrap_or_else(|| run.cwd.clone()))
    }

    /// Returns whether the tokens of a run are those of its last model call, as the newest run of its agent was configured.
    fn has_tokens_of_last_call(&mut self, run: &StatsRow) -> Result<bool, StoreError> {
        if let Some(known) = self.last_call_only.get(&run.of.agent) {
            return Ok(*known);
        }
        let id = RunId::parse(&run.id)
            .map_err(|_| StoreError::Corrupt(format!("the id of run {}", run.id)))?;
        let found = super::runs::is_usage_of_last_call(self.connection, id)?;
        self.last_call_only.insert(run.of.agent.clone(), found);
        Ok(found)
    }
}

/// Sums up the runs of a tree.
///
/// # Errors
/// A failure of the store.
pub fn tree_totals(connection: &Connection, root: RunId) -> Result<TreeTotals, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT state <> 'finished', started_at, ended_at, active_ms, cost_micros FROM runs WHERE root = ?1")?;
    let mut rows = statement.query([root.to_string()])?;
    let mut totals = TreeTotals::default();
    while let Some(row) = rows.next()? {
        let (started, ended): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
        totals.runs += 1;
        totals.unfinished += u64::from(row.get::<bool>(0)?);
        totals.started_at_ms = totals.started_at_ms.into_iter().chain(started).min();
        totals.ended_at_ms = totals.ended_at_ms.max(ended);
        totals.active_ms = totals.active_ms.saturating_add(row.get(3)?);
        if started.is_some() {
            totals.cost_micros.add(
                row.get::<Option<i64>>(4)?
                    .and_then(|micros| u64::try_from(micros).ok()),
            );
        }
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Home;
    use crate::store::Store;
    use adjutant_core::stats::AnswerSource;
    use std::time::{Duration, Instant};

    /// Stores finished runs: the cost of every third one is unknown.
    const FILL: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
      INSERT INTO runs (id, name, agent, task, cwd, owner, root, state, outcome, created_at, started_at, ended_at, updated_at, patience_ms, prompt_via,
        result, active_ms, input_tokens, output_tokens, cost_micros)
      SELECT '019aa000-0000-7000-8000-' || printf('%012x', i), 'run-' || i, 'agent-' || (i % 8), printf('%.2000c', 't'), '/repo', 'person', 'id-' || i,
        'finished', 'succeeded', 1000, 1000 + i % 1000, 9000, 9000, 1, 'stdin', printf('%.8000c', 'r'), i % 3000, 10, 3, iif(i % 3, 1000, NULL) FROM n;
      INSERT INTO requests (id, run, kind, question, blocking, patience_ms, status, answer, answered_by, asked_at, expires_at, answered_at)
      SELECT 'q-' || id, id, 'question', 'q', 1, 1, 'answered', 'a', 'person', 2000, 90000, 2040 FROM runs";

    #[tokio::test]
    async fn stats_of_ten_thousand_runs_are_fast() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(&dir.path().join("home")).expect("a home");
        home.ensure().expect("a home");
        let store = Store::open(&home).expect("a store");
        store
            .write(|tx| Ok(tx.connection().execute_batch(FILL)?))
            .await
            .expect("filled");
        let query = StatsQuery {
            owner: None,
            since: None,
            by: Some(StatsBy::Agent),
            workspaces: "/home",
            now: Time(9_000),
        };
        let read = || {
            store
                .read(|connection| run_stats(connection, &query))
                .expect("read")
        };
        let RunStats { stats, kept_since } = read();
        let total = &stats.total;
        assert_eq!(
            (
                total.runs,
                total.cost_micros.known(),
                total.cost_micros.unknown
            ),
            (10_000, Some(6_667_000), 3_333)
        );
        assert_eq!(
            (
                total
                    .answers
                    .get(&AnswerSource::Person)
                    .map(|times| times.count()),
                stats.groups().0.len()
            ),
            (Some(10_000), 8)
        );
        assert_eq!(
            (total.waiting_ms.quantile_ms(95), kept_since),
            (Some(40), Some(Time(1_000)))
        );
        let later = StatsQuery {
            since: Some(Time(1_001)),
            ..query.clone()
        };
        assert_eq!(
            store
                .read(|connection| run_stats(connection, &later))
                .expect("read")
                .stats
                .total
                .runs,
            0
        );
        let began = Instant::now();
        read();
        let took = began.elapsed();
        println!("statistics of 10,000 runs: {took:?}");
        // The promise of 200 ms is for a release build on an idle machine. A scan for each run would take minutes.
        assert!(took < Duration::from_secs(30), "{took:?}");
        store.close();
    }
}
