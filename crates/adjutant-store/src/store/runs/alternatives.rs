//! The agents that may do a run, in the order of their preference.

use super::fence::FenceState;
use super::run::Run;
use super::spec::{RunInput, SpecRow};
use crate::store::db::{Connection, params};
use crate::store::{StoreError, Tx};
use adjutant_core::{AgentSpec, PoolName, RunId};
use std::collections::BTreeMap;

/// Maximum number of ended runs whose costs are averaged.
const ENDED_RUNS_MAX: u32 = 400;
/// Minimum number of runs for a mean cost.
const MEASURED_MIN: i64 = 3;

/// An agent that may take over a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlternativeAgent {
    pub agent: String,
    pub pool: String,
    /// It may also take over after the run's agent has failed, not only while that one waits for its quota.
    pub after_failure: bool,
}

/// Reads the agents that a run has not tried, the preferred one first.
///
/// # Errors
/// A failure of the store.
pub fn untried_agents(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<AlternativeAgent>, StoreError> {
    let sql = "SELECT agent, pool, after_failure FROM run_agents WHERE run = ?1 AND is_tried = 0 ORDER BY n";
    let agents = connection
        .prepare_cached(sql)?
        .query_map([run.to_string()], |row| {
            Ok(AlternativeAgent {
                agent: row.get(0)?,
                pool: row.get(1)?,
                after_failure: row.get(2)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(agents)
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
    let ids: Vec<String> = connection
        .prepare_cached(sql)?
        .query_map(params![agent, limit], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    ids.iter().map(|id| crate::store::ids::run_id(id)).collect()
}

/// Reads the mean cost of the newest ended runs of each agent that reports costs, in millionths of a dollar.
///
/// # Errors
/// A failure of the store.
pub fn mean_costs(connection: &Connection) -> Result<BTreeMap<String, u64>, StoreError> {
    let sql = "SELECT agent, avg(cost_micros), count(*) FROM (SELECT agent, cost_micros FROM runs INDEXED BY runs_finished WHERE state = 'finished'
         ORDER BY ended_at DESC LIMIT ?1) AS ended WHERE cost_micros IS NOT NULL GROUP BY agent HAVING count(*) >= ?2";
    let mut costs = BTreeMap::new();
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![ENDED_RUNS_MAX, MEASURED_MIN])?;
    while let Some(row) = rows.next()? {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of costs is not negative, and a fraction of it is nothing"
        )]
        costs.insert(row.get(0)?, row.get::<f64>(1)?.max(0.0) as u64);
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
            let spec = SpecRow::of(&RunInput {
                agent: agent.clone(),
                ..input.clone()
            });
            let spec = serde_json::to_string(&spec)
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
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

    /// Assigns another of its agents to a queued run. A later attempt begins with the task.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn switch_agent(
        &mut self,
        run: &Run,
        to: &str,
        why: &str,
        by: &str,
    ) -> Result<Run, StoreError> {
        let id = run.id.to_string();
        self.prepare("UPDATE run_agents SET is_tried = 1 WHERE run = ?1 AND agent = ?2")?
            .run([&id, to])?;
        // The environment of the run stays, with its current credentials.
        self.prepare(
            "UPDATE run_inputs SET spec = json_with_part((SELECT spec FROM run_agents WHERE run = ?1 AND agent = ?2), '$.dispatch_env', json_part_at(spec, '$.dispatch_env'))
             WHERE run = ?1",
        )?
        .run([&id, to])?;
        let agent = super::spec::run_input(self.connection(), run.id)?.agent;
        self.note_queued(run, run.state, -1);
        self.prepare(
            "UPDATE runs SET agent = ?2, pool = (SELECT pool FROM run_agents WHERE run = ?1 AND agent = ?2), patience_ms = ?3, prompt_via = ?4,
             agent_why = ?5, session = NULL, fence = NULL WHERE id = ?1",
        )?
        .run(params![id, to, agent.patience_ms, agent.prompt.word(), why])?;
        // The workspace stays as it was recorded at the dispatch.
        let workspace = run
            .fence
            .as_ref()
            .and_then(|fence| fence.workspace.as_deref());
        if let Some(fence) = FenceState::asked(agent.fence, workspace) {
            self.set_fence(run.id, &fence)?;
        }
        let run = self.run(run.id)?;
        self.note_queued(&run, run.state, 1);
        self.note_queue_change(&run, by, why)?;
        self.run(run.id)
    }
}
