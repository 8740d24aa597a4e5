//! Queueing new runs.

use crate::store::budgets::{open_budgets, plan_budget};
use crate::store::db::params;
use crate::store::events::first_line;
use crate::store::queue::start_after;
use crate::store::runs::{tree_size, write_spec};
use crate::store::workspaces::add_workspace;
use crate::store::{FenceState, NewWorkspace, Run, RunInput, StoreError, Topic, Tx, append_event};
use adjutant_core::budget::Unmetered;
use adjutant_core::pool::{AfterEnd, AfterFailed};
use adjutant_core::tree::{Rank, TreeLimits, has_room};
use adjutant_core::{Budget, Denied, EventKind, PoolName, Principal, RunId, RunName};

/// How many names a dispatch tries before it gives up.
const NAME_DRAWS_MAX: u32 = 50;

/// The data of a new run.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub id: RunId,
    /// Chosen by the dispatcher. Otherwise generated from `name_seed`.
    pub name: Option<RunName>,
    pub name_seed: [u8; 4],
    /// The directory that it works in, or from which its workspace is made.
    pub cwd: String,
    /// Whether the run has its own workspace.
    pub workspace: Option<NewWorkspace>,
    /// The top of what a fence leaves writable, if the run works in the user's own files.
    pub fence_workspace: Option<String>,
    pub owner: Principal,
    pub retry_of: Option<RunId>,
    /// The parent run, and the limits of the tree. `None` for a root.
    pub under: Option<(RunId, TreeLimits)>,
    pub rank: Rank,
    pub pool: PoolName,
    /// The runs that it starts after, and what happens if one of them fails.
    pub after: Vec<(RunId, AfterEnd)>,
    pub after_failed: AfterFailed,
    /// Why it has its agent, if the agent was chosen from several.
    pub agent_why: Option<String>,
    /// The expected active time.
    pub estimate_ms: Option<i64>,
    /// The budget of the run and the runs below it. For a kind without an amount, the run draws on
    /// the budget above it.
    pub budget: Budget,
    /// What its agent does not state about its usage.
    pub unmetered: Vec<Unmetered>,
    /// The one-line task by which the run is listed.
    pub task: String,
    pub by: Principal,
    pub input: RunInput,
}

impl Tx<'_> {
    /// Queues a new run.
    ///
    /// # Errors
    /// The name is taken, or the tree has reached a limit.
    pub fn dispatch(&mut self, new: &NewRun) -> Result<Run, StoreError> {
        let name = self.name_for(new)?;
        let (parent, root) = self.place_in_tree(new)?;
        let planned = plan_budget(
            self,
            parent,
            &new.budget,
            new.input.agent.name.as_str(),
            &new.unmetered,
        )?;
        self.insert_run(new, &name, parent, root)?;
        self.insert_input(new)?;
        open_budgets(self, new.id, &planned)?;
        if let Some(workspace) = &new.workspace {
            add_workspace(self, new.id, &name, workspace)?;
        }
        if let Some(fence) =
            FenceState::asked(new.input.agent.fence, new.fence_workspace.as_deref())
        {
            self.set_fence(new.id, &fence)?;
        }
        let seq = append_event(
            self,
            EventKind::RunQueued,
            new.id,
            &new.owner.to_string(),
            None,
            &new.by.to_string(),
            &first_line(&new.task),
        )?;
        self.touch(new.id, seq)?;
        self.notify(Topic::Queue);
        let run = self.run(new.id)?;
        self.note_queued(&run, run.state, 1);
        if new.after.is_empty() {
            Ok(run)
        } else {
            start_after(self, &run, &new.after, new.after_failed)
        }
    }

    /// Returns the name of a new run: the wanted one, if it is free, or a drawn one.
    fn name_for(&self, new: &NewRun) -> Result<RunName, StoreError> {
        let is_taken = |name: &RunName| -> Result<bool, StoreError> {
            Ok(self
                .prepare("SELECT EXISTS (SELECT 1 FROM runs WHERE name = ?1)")?
                .read_row([name.as_str()])?)
        };
        if let Some(name) = &new.name {
            return if is_taken(name)? {
                Err(Denied::invalid("name", format!("{name} is taken")).into())
            } else {
                Ok(name.clone())
            };
        }
        let [a, b, c, d] = new.name_seed;
        for round in 0..NAME_DRAWS_MAX {
            let step = u8::try_from(round % 251).unwrap_or(0);
            let seed = [
                a.wrapping_add(step.wrapping_mul(7)),
                b.wrapping_add(step),
                c.wrapping_add(step),
                d,
            ];
            let name = RunName::draw(seed, round);
            if !is_taken(&name)? {
                return Ok(name);
            }
        }
        Err(Denied::Limit {
            what: "drawing a free name",
            limit: u64::from(NAME_DRAWS_MAX),
        }
        .into())
    }

    /// Returns the parent of a new run, if there is room below it, and the root of their tree.
    fn place_in_tree(&self, new: &NewRun) -> Result<(Option<RunId>, RunId), StoreError> {
        let Some((parent, limits)) = new.under else {
            return Ok((None, new.id));
        };
        let parent = self.run(parent)?;
        has_room(tree_size(self.connection(), &parent)?, limits)?;
        Ok((Some(parent.id), parent.root))
    }

    fn insert_run(
        &self,
        new: &NewRun,
        name: &RunName,
        parent: Option<RunId>,
        root: RunId,
    ) -> Result<(), StoreError> {
        self.prepare(
            "INSERT INTO runs (id, name, agent, task, cwd, owner, root, retry_of, state, created_at, updated_at, patience_ms, prompt_via, parent, rank, estimate_ms,
             pool, agent_why)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?11, ?7, 'queued', ?8, ?8, ?9, ?10, ?12, ?13, ?14, ?15, ?16)",
        )?
        .run(params![
            new.id.to_string(),
            name.as_str(),
            new.input.agent.name.as_str(),
            first_line(&new.task),
            new.cwd,
            new.owner.to_string(),
            new.retry_of.map(|run| run.to_string()),
            self.now().0,
            new.input.agent.patience_ms,
            new.input.agent.prompt.word(),
            root.to_string(),
            parent.map(|run| run.to_string()),
            new.rank.number(),
            new.estimate_ms,
            new.pool.as_str(),
            new.agent_why
        ])?;
        Ok(())
    }

    fn insert_input(&self, new: &NewRun) -> Result<(), StoreError> {
        let input = &new.input;
        let spec = write_spec(input)?;
        let accept = if input.accept.is_empty() {
            None
        } else {
            Some(
                serde_json::to_string(&input.accept)
                    .map_err(|error| StoreError::Corrupt(error.to_string()))?,
            )
        };
        self.prepare("INSERT INTO run_inputs (run, prompt, spec, criteria, accept, variables) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?.run(params![
            new.id.to_string(),
            input.prompt,
            spec,
            input.criteria,
            accept,
            input.variables
        ])?;
        Ok(())
    }
}
