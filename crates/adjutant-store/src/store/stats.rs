//! Statistics of runs, read in one pass. Queued runs that have never started are only counted.

use super::{StoreError, workspace_around};
use crate::store::db::{self, Connection, Record, Row, params, row};
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

row! {
    /// The part of a run that is read.
    struct StatsRow as r {
        id: String,
        state: String,
        outcome: Option<String>,
        of: Belongs [Belongs],
        created_at: Time,
        started_at: Option<Time>,
        active_ms: i64,
        cost_micros: Option<i64>,
        input_tokens: Option<i64>,
        output_tokens: Option<i64>,
        has_waited_for_runs: bool = "EXISTS (SELECT 1 FROM run_after a WHERE a.run = r.id)",
        is_merged: Option<bool> =
            "w.state = 'merged' OR EXISTS (SELECT 1 FROM merges m WHERE m.run_id = r.id AND m.is_done = 1 AND m.mode <> 'branch')",
        is_verified: Option<bool> =
            "r.outcome = 'succeeded' AND r.shortfall IS NULL AND EXISTS (
               SELECT 1 FROM reports p WHERE p.run = r.id AND is_valid_json(p.saw) AND CAST(json_text_at(p.saw, '$.acceptance.exit_code') AS BIGINT) = 0)",
        has_used_chat: bool =
            "EXISTS (SELECT 1 FROM chat_members c WHERE c.who = 'run:' || r.id AND c.said > 0) OR EXISTS (SELECT 1 FROM chat_turns t WHERE t.run = r.id)",
        has_requests: bool = "EXISTS (SELECT 1 FROM requests q WHERE q.run = r.id)",
    }
}

row! {
    /// What decides about the group of a run.
    #[derive(Default)]
    struct Belongs as r {
        agent: String,
        pool: String,
        cwd: String,
        owner: String,
        parent: Option<String>,
        repository: Option<String> = "w.repository",
    }
}

impl StatsRow {
    fn facts<'a>(
        &self,
        is_retried: bool,
        tokens: Option<Tokens>,
        requests: &'a [RequestTimes],
    ) -> Result<RunFacts<'a>, StoreError> {
        let id = &self.id;
        let state = RunStateKind::from_word(&self.state)
            .ok_or_else(|| StoreError::Corrupt(format!("the state of run {id}")))?;
        let outcome = match self.outcome.as_deref().map(OutcomeKind::from_word) {
            Some(None) => return Err(StoreError::Corrupt(format!("the outcome of run {id}"))),
            known => known.flatten(),
        };
        let unsigned = |number: i64| u64::try_from(number).ok();
        Ok(RunFacts {
            state,
            outcome,
            has_started: self.started_at.is_some(),
            is_retried,
            is_merged: self.is_merged == Some(true),
            is_verified: self.is_verified == Some(true),
            has_used_chat: self.has_used_chat,
            queue_ms: self
                .started_at
                .filter(|_| !self.has_waited_for_runs)
                .map(|started| started.ms_since(self.created_at)),
            active_ms: self.active_ms,
            cost_micros: self.cost_micros.and_then(unsigned),
            tokens,
            requests,
        })
    }

    fn tokens(&self) -> Option<Tokens> {
        let unsigned = |number: i64| u64::try_from(number).ok();
        let input = self.input_tokens.and_then(unsigned)?;
        let output = self.output_tokens.and_then(unsigned)?;
        Some(Tokens { input, output })
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
        .find_row([&owner])?;
    let retried = retried_runs(connection)?;
    let mut stats = Stats::default();
    let mut groups = Groups {
        connection,
        query,
        last_call_only: HashMap::new(),
    };
    let mut statement = connection
        .prepare_cached(&StatsRow::select(&format!("FROM runs r LEFT JOIN workspaces w ON w.run_id = r.id WHERE (r.state <> 'queued' OR r.started_at IS NOT NULL) AND {IS_WANTED} ORDER BY r.no DESC")))?;
    let mut rows = statement.query(params![since, owner])?;
    while let Some(row) = rows.next()? {
        let run: StatsRow = row.read()?;
        // Most runs, such as queued ones, have none: no statement for each of them.
        let requests = if run.has_requests {
            requests_of_run(connection, &run.id, query.now)?
        } else {
            Vec::new()
        };
        let tokens = if groups.has_tokens_of_last_call(&run)? {
            None
        } else {
            run.tokens()
        };
        let facts = run.facts(retried.contains(&run.id), tokens, &requests)?;
        stats.add(groups.group_of(&run.of)?.as_deref(), &facts);
    }
    groups.count_queued(&mut stats, since, owner.as_deref())?;
    Ok(RunStats {
        stats,
        kept_since: kept_since.map(Time),
    })
}

/// Reads the ids of runs whose task another run has repeated. A follow-up on comments, which works
/// in the workspace of the earlier run, is another task.
fn retried_runs(connection: &Connection) -> Result<HashSet<String>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT retry_of FROM runs r WHERE retry_of IS NOT NULL AND NOT EXISTS (SELECT 1 FROM workspaces w
         WHERE w.run_id <> r.id AND (r.cwd = w.path OR substr(r.cwd, 1, length(w.path) + 1) = w.path || '/'))",
    )?;
    Ok(statement.read_rows([])?)
}

fn requests_of_run(
    connection: &Connection,
    run: &str,
    now: Time,
) -> Result<Vec<RequestTimes>, StoreError> {
    let rows: Vec<(i64, Option<i64>, Option<String>, bool)> = connection
        .prepare_cached("SELECT asked_at, coalesce(answered_at, ended_at), answered_by, blocking FROM requests WHERE run = ?1 ORDER BY no")?
        .read_rows([run])?;
    let times = rows
        .into_iter()
        .map(|(asked_at_ms, until_ms, by, is_blocking)| RequestTimes {
            asked_at_ms,
            until_ms: until_ms.unwrap_or(now.0),
            answered_by: by
                .and_then(|by| AnsweredBy::parse(&by))
                .as_ref()
                .map(Into::into),
            is_blocking,
        });
    Ok(times.collect())
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
            let (runs, of) = self.queued_group(&row)?;
            let runs = u64::try_from(runs).unwrap_or(0);
            if runs > 0 {
                stats.add_queued(self.group_of(&of)?.as_deref(), runs);
            }
        }
        Ok(())
    }

    /// Reads how many queued runs a group has, and what decides about it.
    fn queued_group(&self, row: &Row<'_>) -> db::Result<(i64, Belongs)> {
        Ok(match self.query.by {
            None => (row.read()?, Belongs::default()),
            Some(StatsBy::Agent) => {
                let (runs, agent) = row.read()?;
                (
                    runs,
                    Belongs {
                        agent,
                        ..Belongs::default()
                    },
                )
            }
            Some(StatsBy::Pool) => {
                let (runs, pool) = row.read()?;
                (
                    runs,
                    Belongs {
                        pool,
                        ..Belongs::default()
                    },
                )
            }
            Some(StatsBy::Project) => {
                let (runs, cwd, repository) = row.read()?;
                (
                    runs,
                    Belongs {
                        cwd,
                        repository,
                        ..Belongs::default()
                    },
                )
            }
            Some(StatsBy::Parent) => {
                let (runs, owner, parent) = row.read()?;
                (
                    runs,
                    Belongs {
                        owner,
                        parent,
                        ..Belongs::default()
                    },
                )
            }
        })
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
                        .find_row([parent])?
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

    /// Returns whether the tokens of a run are those of its last model call, as the newest run of
    /// its agent was configured.
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
        let (is_unfinished, started, ended, active_ms, cost_micros): (
            bool,
            Option<i64>,
            Option<i64>,
            i64,
            Option<i64>,
        ) = row.read()?;
        totals.runs += 1;
        totals.unfinished += u64::from(is_unfinished);
        totals.started_at_ms = totals.started_at_ms.into_iter().chain(started).min();
        totals.ended_at_ms = totals.ended_at_ms.max(ended);
        totals.active_ms = totals.active_ms.saturating_add(active_ms);
        if started.is_some() {
            totals
                .cost_micros
                .add(cost_micros.and_then(|micros| u64::try_from(micros).ok()));
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
      INSERT INTO requests (id, run, kind, question, blocking, patience_ms, status, answer, answered_by, asked_at, waits_since, expires_at, answered_at)
      SELECT 'q-' || id, id, 'question', 'q', 1, 1, 'answered', 'a', 'person', 2000, 2000, 90000, 2040 FROM runs";

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
        // The promise of 200 ms is for a release build on an idle machine. A scan for each run
        // would take minutes.
        assert!(took < Duration::from_secs(30), "{took:?}");
        store.close();
    }
}
