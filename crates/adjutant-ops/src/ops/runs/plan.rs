//! The plan of a dispatch: all checks, without writes, and the run that the transaction queues.

use crate::config::{Config, Home};
use crate::ops::budgets::{budget_for, stated_budget, unmetered};
use crate::ops::checks::{self, checked_cwd, checked_env, checked_measure};
use crate::ops::pools::{HubPools, PoolSettings, known_pool};
use crate::ops::runs::choice::{NamedAgents, choose_agent, named_agents};
use crate::ops::runs::fence::check_fence;
use crate::ops::runs::overrides::check_overrides;
use crate::ops::trust::{Found, check_trusted, collect_configuration};
use crate::ops::workspaces::Workspaces;
use crate::ops::{OpError, lookup, programs, render};
use crate::preset::Preset;
use crate::store::{
    Connection, DispatchEnv, NewRun, NewWorkspace, Pools, RunInput, Store, StoreError, Tx,
    runs_using_directory,
};
use crate::view::{Dispatch, RunView};
use adjutant_core::pool::{AfterEnd, AfterFailed};
use adjutant_core::signal::Independence;
use adjutant_core::tree::Rank;
use adjutant_core::{
    Action, AgentSpec, Budget, Denied, Fence, Isolation, PoolName, Principal, RunId, RunName,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A checked dispatch.
pub(super) struct DispatchPlan {
    call: Dispatch,
    config: Arc<Config>,
    name: Option<RunName>,
    cwd: String,
    /// The agents that can be used, each with its pool, the preferred one first. Never empty.
    agents: Vec<(AgentSpec, PoolName)>,
    /// Why others cannot be used.
    unusable: Vec<String>,
    /// Whether another agent may take over after a failure.
    after_failure: bool,
    /// The configuration of agents in the directory that the run trusts.
    trusted: Vec<Found>,
    options: QueueOptions,
    /// What is stored of the dispatcher's environment.
    env: BTreeMap<String, String>,
    workspace: Option<NewWorkspace>,
    /// The files that the fence of a run without a workspace permits.
    fence_workspace: Option<String>,
    budget: Budget,
    settings: PoolSettings,
}

/// The identity of a new run, and its stored environment.
pub(super) struct NewIds {
    pub(super) id: RunId,
    pub(super) name_seed: [u8; 4],
    pub(super) env: DispatchEnv,
    /// The name of the file with the variables that were set for the run.
    pub(super) variables: Option<String>,
}

/// How a run is queued, as its dispatcher says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QueueOptions {
    rank: Rank,
    /// The runs whose ends it waits for.
    after: Vec<(String, AfterEnd)>,
    after_failed: AfterFailed,
    isolation: Option<Isolation>,
}

impl QueueOptions {
    fn parse(call: &Dispatch) -> Result<Self, Denied> {
        let rank = match &call.priority {
            Some(word) => Rank::of(
                word.known()
                    .ok_or_else(|| Denied::invalid("priority", "use P0, P1 or P2"))?,
                Independence::Parallel,
            ),
            None => Rank::default(),
        };
        let after = checked_after(&call.after)?;
        let after_failed = match &call.after_failed {
            Some(word) => word
                .known()
                .ok_or_else(|| Denied::invalid("after_failed", "use cancel or hold"))?,
            None => AfterFailed::default(),
        };
        let isolation = call.isolation.as_ref().map(|word| {
            word.known()
                .ok_or_else(|| Denied::invalid("isolation", "use none, clone or worktree"))
        });
        Ok(Self {
            rank,
            after,
            after_failed,
            isolation: isolation.transpose()?,
        })
    }
}

/// Plans dispatches.
#[derive(Debug, Clone)]
pub(super) struct DispatchPlanner {
    store: Store,
    home: Arc<Home>,
    workspaces: Workspaces,
    pools: HubPools,
}

impl DispatchPlanner {
    pub(super) fn new(
        store: Store,
        home: Arc<Home>,
        workspaces: Workspaces,
        pools: HubPools,
    ) -> Self {
        Self {
            store,
            home,
            workspaces,
            pools,
        }
    }

    /// Checks a dispatch, and resolves what it names. Writes nothing to the store.
    pub(super) async fn plan(
        &self,
        who: &Principal,
        call: Dispatch,
        config: Arc<Config>,
    ) -> Result<DispatchPlan, OpError> {
        let call = self.checked_call(who, call)?;
        let pool = call
            .pool
            .as_deref()
            .map(|name| known_pool(&config, name))
            .transpose()?;
        let NamedAgents {
            usable,
            unusable,
            after_failure,
        } = named_agents(&config, &call, pool.as_ref())?;
        if *who != Principal::Person {
            check_client_fence(&config, &usable)?;
        }
        let cwd = checked_cwd(&call.cwd)?;
        let name = call
            .name
            .as_deref()
            .map(|name| RunName::parse(name).map_err(|error| checks::unusable_name(name, &error)))
            .transpose()?;
        let trusted = self
            .configuration_to_trust(&cwd, &usable, call.trust_repo)
            .await?;
        checked_measure(call.criteria.as_deref(), &call.accept)?;
        let options = QueueOptions::parse(&call)?;
        let env = stored_env_of(&usable, &call.env);
        let mut agents = with_pools(&config, pool.as_ref(), usable);
        let isolation = isolation_for(&config, &agents, options.isolation, Path::new(&cwd))?;
        let env_in_effect = env
            .clone()
            .into_iter()
            .chain(call.set_env.clone())
            .collect();
        let mut fence_workspace = None;
        for (agent, _) in &mut agents {
            fence_workspace = check_fence(
                &self.home,
                &config,
                agent,
                Path::new(&cwd),
                isolation,
                &env_in_effect,
            )?
            .or(fence_workspace);
            agent.isolation = isolation;
        }
        let workspace = self.plan_workspace(&cwd, isolation, &call).await?;
        let budget = stated_budget("budget", call.budget.as_deref())?;
        for (agent, pool) in &agents {
            budget_for(&config, who, agent, pool, &budget)?;
        }
        Ok(DispatchPlan {
            settings: self.pools.configured(&config),
            call,
            config,
            name,
            cwd,
            agents,
            unusable,
            after_failure,
            trusted,
            options,
            env,
            workspace,
            fence_workspace,
            budget,
        })
    }

    /// Checks the environment and the overrides of a call, and completes its environment.
    fn checked_call(&self, who: &Principal, call: Dispatch) -> Result<Dispatch, OpError> {
        checked_env(&call.env)?;
        check_overrides(who, &call)?;
        if self.store.is_shared() && !call.set_env.is_empty() {
            let problem = "hubs that share a store keep no variables of a run: set them in the environment of the runner";
            return Err(Denied::invalid("set_env", problem).into());
        }
        if !call.env.is_empty() {
            return Ok(call);
        }
        // A caller over HTTP may be on another machine, so the hub's own environment (such as PATH)
        // is used.
        Ok(Dispatch {
            env: crate::config::base_env(),
            ..call
        })
    }

    /// Returns the configuration in the directory that agents load. `is_reviewed`: the flag of this
    /// run counts as a review; a setting in the configuration needs earlier trust.
    async fn configuration_to_trust(
        &self,
        cwd: &str,
        agents: &[AgentSpec],
        is_reviewed: bool,
    ) -> Result<Vec<Found>, OpError> {
        let mut all = Vec::new();
        for agent in agents.iter().filter(|agent| agent.trust_repo) {
            let Some(preset) = Preset::from_text(&agent.preset) else {
                continue;
            };
            all.extend(collect_configuration(cwd, &preset).await?);
        }
        for found in all.iter().filter(|_| !is_reviewed) {
            check_trusted(&self.store, cwd, found)?;
        }
        Ok(all)
    }

    /// Resolves the base of the workspace of a new run.
    async fn plan_workspace(
        &self,
        cwd: &str,
        isolation: Isolation,
        call: &Dispatch,
    ) -> Result<Option<NewWorkspace>, OpError> {
        let planned = self
            .workspaces
            .plan(cwd, isolation, call.with_changes)
            .await;
        planned.map_err(|error| match error {
            OpError::Git(error) if call.isolation.is_none() => {
                OpError::NoWorkspace { isolation, error }
            }
            error => error,
        })
    }
}

impl DispatchPlan {
    /// Takes what is stored of the dispatcher's environment.
    pub(super) fn take_env(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.env)
    }

    /// Takes the variables that are set for the run.
    pub(super) fn take_variables(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.call.set_env)
    }

    /// Returns the workspace to prepare.
    pub(super) fn workspace(&self) -> Option<NewWorkspace> {
        self.workspace.clone()
    }

    /// Queues the run.
    pub(super) fn commit(
        self,
        tx: &mut Tx<'_>,
        who: &Principal,
        ids: NewIds,
        home: &Home,
    ) -> Result<RunView, StoreError> {
        if self.config.refuse_shared_directory && self.workspace.is_none() {
            refuse_shared_directory(tx.connection(), &self.cwd, ids.id)?;
        }
        for found in &self.trusted {
            tx.trust(&self.cwd, &found.hash, who)?;
        }
        let pools = self.settings.in_effect(tx.connection())?;
        let (agents, after_failure) = (self.agents.clone(), self.after_failure);
        let new = self.new_run(tx, who, ids, &pools)?;
        let run = tx.dispatch(&new)?;
        if agents.len() > 1 {
            tx.add_alternatives(&run, &new.input, &agents, after_failure)?;
        }
        let mut views = render::RunViews::new(tx.connection(), home);
        let mut view = views.run(&run)?;
        views.starts_at_once(&pools, &run, &mut view)?;
        for (kind, why) in &new.unmetered {
            if let Some(shown) = view
                .cost
                .budgets
                .iter_mut()
                .find(|shown| shown.kind == *kind)
            {
                shown.unknown = Some((*why).to_owned());
            }
        }
        Ok(view)
    }

    /// Returns the run to queue, with the agent that is chosen now.
    fn new_run(
        self,
        tx: &Tx<'_>,
        who: &Principal,
        ids: NewIds,
        pools: &Pools,
    ) -> Result<NewRun, StoreError> {
        let (chosen, agent_why) =
            choose_agent(tx.connection(), pools, &self.agents, &self.unusable)?;
        let (agent, pool) = self.agents[chosen].clone();
        let budget = budget_for(&self.config, who, &agent, &pool, &self.budget)?;
        let after = self.options.after.iter().map(|(given, on)| {
            let run = lookup::run(tx.connection(), who, Action::See, given)?;
            Ok((run.id, *on))
        });
        Ok(NewRun {
            id: ids.id,
            name: self.name,
            name_seed: ids.name_seed,
            cwd: self.cwd,
            workspace: self.workspace,
            fence_workspace: self.fence_workspace,
            owner: who.clone(),
            retry_of: None,
            under: None,
            rank: self.options.rank,
            pool,
            after: after.collect::<Result<_, StoreError>>()?,
            after_failed: self.options.after_failed,
            agent_why,
            estimate_ms: None,
            budget,
            unmetered: unmetered(&self.config, &agent),
            task: self.call.prompt.clone(),
            by: who.clone(),
            input: RunInput {
                prompt: self.call.prompt,
                agent,
                env: ids.env,
                criteria: self.call.criteria,
                accept: self.call.accept,
                variables: ids.variables,
            },
        })
    }
}

/// Checks that a client requests no weaker fence than the user has configured for an agent.
fn check_client_fence(config: &Config, agents: &[AgentSpec]) -> Result<(), Denied> {
    for agent in agents {
        let required = config
            .agents
            .get(&agent.name)
            .map_or(Fence::None, |entry| entry.spec.fence);
        if required.stricter(agent.fence) != agent.fence {
            let problem = format!(
                "the user's configuration requires {}; a client can only request a stricter fence",
                required.word()
            );
            return Err(Denied::invalid("fence", problem));
        }
    }
    Ok(())
}

/// Returns where a run works if its dispatcher does not say: as its pool, its agent or its
/// repository is configured.
fn configured_isolation(
    config: &Config,
    agent: &AgentSpec,
    pool: &PoolName,
    cwd: &Path,
) -> Isolation {
    match config.pools.get(pool).and_then(|pool| pool.isolation) {
        Some(isolation) => isolation,
        None if config
            .agents
            .get(&agent.name)
            .is_some_and(|entry| entry.has_isolation) =>
        {
            agent.isolation
        }
        None => config.workspaces.isolation_in(cwd),
    }
}

/// Returns where a run on a runner works: in a clone of the repository around its directory,
/// otherwise in an empty directory. `stated`: as the dispatcher says.
fn isolation_on_runner(stated: Option<Isolation>, cwd: &Path) -> Result<Isolation, Denied> {
    let is_in_repository = cwd.ancestors().any(|dir| dir.join(".git").exists());
    let problem = match (stated, is_in_repository) {
        (Some(Isolation::Worktree), _) => {
            "runs on runners work in a clone of the repository: use isolation clone"
        }
        (Some(Isolation::None), true) => {
            "runs on runners work in a clone of the repository, not in its files: use isolation clone, or dispatch from a directory outside (-C DIR)"
        }
        (Some(Isolation::Clone), _) | (None, true) => return Ok(Isolation::Clone),
        (None | Some(Isolation::None), false) => return Ok(Isolation::None),
    };
    Err(Denied::invalid("isolation", problem))
}

/// Returns where a new run works. `stated`: as its dispatcher says.
fn isolation_for(
    config: &Config,
    agents: &[(AgentSpec, PoolName)],
    stated: Option<Isolation>,
    cwd: &Path,
) -> Result<Isolation, Denied> {
    let is_on_runners = agents
        .iter()
        .any(|(_, pool)| config.pools.get(pool).is_some_and(|pool| pool.on_runners));
    if is_on_runners {
        return isolation_on_runner(stated, cwd);
    }
    let (agent, pool) = &agents[0];
    Ok(stated.unwrap_or_else(|| configured_isolation(config, agent, pool, cwd)))
}

/// Returns each agent with its pool. `pool`: the one that the dispatcher names.
fn with_pools(
    config: &Config,
    pool: Option<&PoolName>,
    agents: Vec<AgentSpec>,
) -> Vec<(AgentSpec, PoolName)> {
    let with_pool = |agent: AgentSpec| {
        let pool = pool.cloned().unwrap_or_else(|| config.pool_of(&agent.name));
        (agent, pool)
    };
    agents.into_iter().map(with_pool).collect()
}

/// Returns what is stored of the dispatcher's environment for these agents.
fn stored_env_of(agents: &[AgentSpec], env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    agents
        .iter()
        .flat_map(|agent| programs::stored_env(agent, env.clone()))
        .collect()
}

/// Splits dependencies into runs and required ends: `RUN`, `RUN:success` or `RUN:any`.
fn checked_after(given: &[String]) -> Result<Vec<(String, AfterEnd)>, Denied> {
    let split = |given: &String| match given.rsplit_once(':') {
        None => Ok((given.clone(), AfterEnd::default())),
        Some((run, word)) => {
            let end = AfterEnd::from_word(word)
                .filter(|end| *end != AfterEnd::Ports)
                .ok_or_else(|| Denied::invalid("after", "use RUN, or RUN:any for any end"))?;
            Ok((run.to_owned(), end))
        }
    };
    let after: Vec<(String, AfterEnd)> = given.iter().map(split).collect::<Result<_, _>>()?;
    match after.iter().any(|(run, _)| run.is_empty()) {
        true => Err(Denied::invalid("after", "name a run")),
        false => Ok(after),
    }
}

/// Refuses a directory that another queued or live run uses.
pub(super) fn refuse_shared_directory(
    connection: &Connection,
    cwd: &str,
    except: RunId,
) -> Result<(), StoreError> {
    match runs_using_directory(connection, cwd, except)?.first() {
        None => Ok(()),
        Some(other) => Err(Denied::DirectoryInUse { run: other.clone() }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Word;

    fn after(all: &[&str]) -> Result<Vec<(String, AfterEnd)>, Denied> {
        let all: Vec<String> = all.iter().map(|text| (*text).to_owned()).collect();
        checked_after(&all)
    }

    #[test]
    fn dependency_names_a_run_and_its_end() {
        let named = after(&["amy", "bob:any", "a:b:success"]).expect("runs");
        assert_eq!(
            named,
            [
                ("amy".to_owned(), AfterEnd::default()),
                ("bob".to_owned(), AfterEnd::Any),
                ("a:b".to_owned(), AfterEnd::Success),
            ]
        );
    }

    #[test]
    fn dependency_without_a_run_or_with_an_unknown_end_is_refused() {
        for text in ["", ":any", "amy:later", "amy:", "amy:ports"] {
            assert!(after(&[text]).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_words_of_a_dispatch_are_refused() {
        let call = Dispatch::default();
        let options = QueueOptions::parse(&call).expect("the defaults");
        assert_eq!(options.rank, Rank::default());
        assert_eq!(options.isolation, None);
        let refused = |call: Dispatch| QueueOptions::parse(&call).expect_err("refused").to_string();
        let priority = Some(Word::Unknown("P9".to_owned()));
        let problem = refused(Dispatch {
            priority,
            ..Dispatch::default()
        });
        assert!(problem.contains("use P0, P1 or P2"), "{problem}");
        let isolation = Some(Word::Unknown("vm".to_owned()));
        let problem = refused(Dispatch {
            isolation,
            ..Dispatch::default()
        });
        assert!(problem.contains("use none, clone or worktree"), "{problem}");
    }

    #[test]
    fn run_on_a_runner_works_in_a_clone_of_its_repository() {
        let dir = tempfile::tempdir().expect("a directory");
        let outside = dir.path();
        let repository = outside.join("repository");
        std::fs::create_dir_all(repository.join(".git")).expect("a repository");
        let inside = repository.join("src");
        assert_eq!(isolation_on_runner(None, &inside), Ok(Isolation::Clone));
        assert_eq!(isolation_on_runner(None, outside), Ok(Isolation::None));
        assert!(isolation_on_runner(Some(Isolation::Worktree), outside).is_err());
        assert!(isolation_on_runner(Some(Isolation::None), &inside).is_err());
        assert_eq!(
            isolation_on_runner(Some(Isolation::None), outside),
            Ok(Isolation::None)
        );
    }
}
