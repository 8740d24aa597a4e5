//! Claiming runs for attempts, and their agents and sessions.

use crate::store::budgets::continue_usage;
use crate::store::db::params;
use crate::store::queue::note_queue_change;
use crate::store::runs::run_input;
use crate::store::{FenceState, HostLease, Run, StoreError, Tx, runner_name};
use adjutant_core::run::Retention;
use adjutant_core::{AttemptNo, RunEvent, RunId};

impl Tx<'_> {
    /// Claims the next attempt of a queued run, for a runner or the hub's own machine. From here
    /// on, the attempt with this number starts at most once.
    ///
    /// # Errors
    /// The core rejects the event.
    pub fn claim(
        &mut self,
        run: &Run,
        token_hash: &[u8],
        host: Option<HostLease<'_>>,
        retention: Retention,
    ) -> Result<Run, StoreError> {
        let n = AttemptNo(run.attempt.0 + 1);
        self.prepare("INSERT INTO attempts (run, n, token_hash, claimed_at, host, lease_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.run(params![
            run.id.to_string(),
            n.0,
            token_hash,
            self.now().0,
            host.map(|host| host.host),
            host.map(|host| host.lease_ms)
        ])?;
        let place = host.map_or_else(String::new, |host| {
            format!(" on {}", runner_name(host.host))
        });
        self.advance(
            run,
            RunEvent::Claimed,
            retention,
            "hub",
            &format!("attempt {n}{place}"),
        )
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
        let agent = run_input(self.connection(), run.id)?.agent;
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
        note_queue_change(self, &run, by, why)?;
        self.run(run.id)
    }

    /// Continues the session of an ended run in a new one. The usage that the CLI states for the
    /// whole session continues, too.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn continue_session(&mut self, run: RunId, of: &Run) -> Result<(), StoreError> {
        let Some(session) = &of.session else {
            return Ok(());
        };
        self.set_session(run, session)?;
        continue_usage(self, run, of.id)
    }
}
