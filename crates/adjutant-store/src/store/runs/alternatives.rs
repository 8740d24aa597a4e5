//! The agents that may do a run, in the order of their preference.

use super::spec::{RunInput, write_spec};
use crate::store::db::{Connection, params, row, select};
use crate::store::records::run::Run;
use crate::store::{StoreError, Tx};
use adjutant_core::{AgentSpec, PoolName, RunId};
use std::collections::BTreeMap;

/// Maximum number of ended runs whose costs are averaged.
const ENDED_RUNS_MAX: u32 = 400;
/// Minimum number of runs for a mean cost.
const MEASURED_MIN: i64 = 3;

row! {
    /// An agent that may take over a run.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AlternativeAgent {
        pub agent: String,
        pub pool: String,
        /// It may also take over after the run's agent has failed, not only while that one waits for
        /// its quota.
        pub after_failure: bool,
    }
}

/// Reads the agents that a run has not tried, the preferred one first.
///
/// # Errors
/// A failure of the store.
pub fn untried_agents(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<AlternativeAgent>, StoreError> {
    Ok(connection
        .prepare_cached(select!(
            AlternativeAgent,
            "FROM run_agents WHERE run = ?1 AND is_tried = 0 ORDER BY n"
        ))?
        .read_rows([run.to_string()])?)
}

/// Reads the ids of queued runs of an agent that have an alternative agent.
///
/// # Errors
/// A failure of the store.
pub fn queued_with_alternatives(
    connection: &Connection,
    agent: &str,
    limit: u32,
) -> Result<Vec<RunId>, StoreError> {
    // Another agent would repeat what this one has done.
    let sql = "SELECT DISTINCT a.run FROM run_agents a JOIN runs r ON r.id = a.run WHERE a.is_tried = 0 AND r.state = 'queued' AND r.agent = ?1
         AND r.session IS NULL AND r.started_at IS NULL LIMIT ?2";
    Ok(connection
        .prepare_cached(sql)?
        .read_rows(params![agent, limit])?)
}

/// Reads the mean cost of the newest ended runs of each agent that reports costs, in millionths of
/// a dollar.
///
/// # Errors
/// A failure of the store.
pub fn mean_costs(connection: &Connection) -> Result<BTreeMap<String, u64>, StoreError> {
    let sql = "SELECT agent, avg(cost_micros) FROM (SELECT agent, cost_micros FROM runs INDEXED BY runs_finished WHERE state = 'finished'
         ORDER BY ended_at DESC LIMIT ?1) AS ended WHERE cost_micros IS NOT NULL GROUP BY agent HAVING count(*) >= ?2";
    let mut costs = BTreeMap::new();
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![ENDED_RUNS_MAX, MEASURED_MIN])?;
    while let Some(row) = rows.next()? {
        let (agent, cost_micros): (String, f64) = row.read()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of costs is not negative, and a fraction of it is nothing"
        )]
        costs.insert(agent, cost_micros.max(0.0) as u64);
    }
    Ok(costs)
}

impl Tx<'_> {
    /// Records the agents that may do a new run. Its own one counts as tried.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn add_alternatives(
        &mut self,
        run: &Run,
        input: &RunInput,
        all: &[(AgentSpec, PoolName)],
        after_failure: bool,
    ) -> Result<(), StoreError> {
        for (n, (agent, pool)) in (1_i64..).zip(all) {
            let spec = write_spec(&RunInput {
                agent: agent.clone(),
                ..input.clone()
            })?;
            self.prepare("INSERT INTO run_agents (run, n, agent, pool, spec, after_failure, is_tried) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                .run(params![run.id.to_string(), n, agent.name.as_str(), pool.as_str(), spec, after_failure, agent.name.as_str() == run.agent])?;
        }
        Ok(())
    }

    /// Copies the alternatives of a run to its retry.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn copy_alternatives(&mut self, of: RunId, retry: &Run) -> Result<(), StoreError> {
        self.prepare(
            "INSERT INTO run_agents (run, n, agent, pool, spec, after_failure, is_tried)
             SELECT ?2, n, agent, pool, spec, after_failure, CASE WHEN agent = ?3 THEN 1 ELSE 0 END FROM run_agents WHERE run = ?1",
        )?
        .run(params![of.to_string(), retry.id.to_string(), retry.agent])?;
        Ok(())
    }
}
