//! Dispatching runs, and retrying them.

use crate::clock;
use crate::config::Config;
use crate::ops::budgets::{budget_again, budget_for, stated_budget, unmetered};
use crate::ops::checks;
use crate::ops::checks::{checked_cwd, checked_env, checked_measure, checked_prompt};
use crate::ops::pools::known_pool;
use crate::ops::runs::choice::{NamedAgents, choose_agent, named_agents};
use crate::ops::runs::overrides::check_overrides;
use crate::ops::{Caller, OpError, Ops, lookup, programs, random, render};
use crate::preset::Preset;
use crate::store::{
    Connection, KeptCredentials, NewRun, NewWorkspace, RunInput, StoreError, Tx, after_for_retry,
    newest_follower, run_input, runs_using_directory, workspace_of,
};
use crate::view::{Dispatch, FollowUp, Retry, RunView};
use adjutant_core::merge::continued_task;
use adjutant_core::pool::{AfterEnd, AfterFailed};
use adjutant_core::signal::Independence;
use adjutant_core::tree::Rank;
use adjutant_core::{
    Action, AgentSpec, Denied, Fence, Isolation, PoolName, Principal, RunEvent, RunId, RunName,
    RunState,
};
use std::collections::BTreeMap;
use std::path::Path;

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

/// Returns where a run works if its dispatcher does not say: as its pool, its agent or its repository is configured.
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

/// Returns where a run on a runner works: in a clone of the repository around its directory, otherwise in an empty directory. `stated`: as the
/// dispatcher says.
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

impl Ops {
    /// Queues a run. Durable when it returns; the hub starts it as soon as a slot is free.
    ///
    /// # Errors
    /// The agent, its program, the directory, the name or the prompt is unusable.
    pub async fn dispatch(&self, caller: Caller, call: Dispatch) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Dispatch)?;
        let config = self.config()?;
        checked_env(&call.env)?;
        check_overrides(&caller.who, &call)?;
        if self.store.is_shared() && !call.set_env.is_empty() {
            let problem = "hubs that share a store keep no variables of a run: set them in the environment of the runner";
            return Err(Denied::invalid("set_env", problem).into());
        }
        // A caller over HTTP may be on another machine, so the hub's own environment (such as PATH) is used.
        let call = if call.env.is_empty() {
            Dispatch {
                env: crate::config::base_env(),
                ..call
            }
        } else {
            call
        };
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
        if caller.who != Principal::Person {
            check_client_fence(&config, &usable)?;
        }
        let cwd = checked_cwd(&call.cwd)?;
        let name = call
            .name
            .as_deref()
            .map(|name| RunName::parse(name).map_err(|error| checks::unusable_name(name, &error)))
            .transpose()?;
        let mut found = Vec::new();
        for agent in usable.iter().filter(|agent| agent.trust_repo) {
            let Some(preset) = Preset::from_text(&agent.preset) else {
                continue;
            };
            found.extend(self.collect_configuration(&cwd, &preset).await?);
        }
        // The flag of this run counts as a review; a setting in the configuration needs earlier trust.
        for found in found.iter().filter(|_| !call.trust_repo) {
            self.check_trusted(&cwd, found)?;
        }
        let mut env = BTreeMap::new();
        for agent in &usable {
            env.extend(programs::stored_env(agent, call.env.clone()));
        }
        checked_measure(call.criteria.as_deref(), &call.accept)?;
        let of_agent = |agent: AgentSpec| {
            let pool = pool.clone().unwrap_or_else(|| config.pool_of(&agent.name));
            (agent, pool)
        };
        let mut agents: Vec<(AgentSpec, PoolName)> = usable.into_iter().map(of_agent).collect();
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
        let stated = call.isolation.as_ref().map(|word| {
            word.known()
                .ok_or_else(|| Denied::invalid("isolation", "use none, clone or worktree"))
        });
        let stated = stated.transpose()?;
        let is_on_runners = agents
            .iter()
            .any(|(_, pool)| config.pools.get(pool).is_some_and(|pool| pool.on_runners));
        let isolation = match stated {
            _ if is_on_runners => isolation_on_runner(stated, Path::new(&cwd))?,
            Some(isolation) => isolation,
            None => configured_isolation(&config, &agents[0].0, &agents[0].1, Path::new(&cwd)),
        };
        let mut fence_workspace = None;
        let env_in_effect = env
            .iter()
            .chain(&call.set_env)
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for (agent, _) in &mut agents {
            fence_workspace = self
                .check_fence(&config, agent, Path::new(&cwd), isolation, &env_in_effect)?
                .or(fence_workspace);
            agent.isolation = isolation;
        }
        let workspace = self
            .plan_workspace(&cwd, isolation, call.with_changes)
            .await
            .map_err(|error| match error {
                OpError::Git(error) if call.isolation.is_none() => {
                    OpError::NoWorkspace { isolation, error }
                }
                error => error,
            })?;
        let planned = workspace.clone();
        let stated = stated_budget("budget", call.budget.as_deref())?;
        for (agent, pool) in &agents {
            budget_for(&config, &caller.who, agent, pool, &stated)?;
        }
        let (refuse_shared, settings) =
            (config.refuse_shared_directory, self.pool_settings(&config));
        let kept = self.store.save_credentials(env).await?;
        let kept_variables = self.store.save_variables(call.set_env).await?;
        let (env, variables) = (kept.env.clone(), kept_variables.id().map(ToOwned::to_owned));
        let (id, name_seed) = (RunId::new(clock::now(), random()), random());
        let home = self.home.clone();
        let dispatch = move |tx: &mut Tx<'_>, who: &Principal| {
            if refuse_shared && workspace.is_none() {
                refuse_shared_directory(tx.connection(), &cwd, id)?;
            }
            for found in &found {
                tx.trust(&cwd, &found.hash, who)?;
            }
            let pools = settings.in_effect(tx.connection())?;
            let (chosen, agent_why) = choose_agent(tx.connection(), &pools, &agents, &unusable)?;
            let (agent, pool) = agents[chosen].clone();
            let budget = budget_for(&config, who, &agent, &pool, &stated)?;
            let new = NewRun {
                id,
                name,
                name_seed,
                cwd,
                workspace,
                fence_workspace,
                owner: owner_of(who),
                retry_of: None,
                under: None,
                rank,
                pool,
                after: after
                    .iter()
                    .map(|(given, on)| {
                        Ok((
                            lookup::run(tx.connection(), who, Action::See, given)?.id,
                            *on,
                        ))
                    })
                    .collect::<Result<_, StoreError>>()?,
                after_failed,
                agent_why,
                estimate_ms: None,
                budget,
                unmetered: unmetered(&config, &agent),
                task: call.prompt.clone(),
                by: who.clone(),
                input: RunInput {
                    prompt: call.prompt,
                    agent,
                    env,
                    criteria: call.criteria,
                    accept: call.accept,
                    variables,
                },
            };
            let run = tx.dispatch(&new)?;
            if agents.len() > 1 {
                tx.add_alternatives(&run, &new.input, &agents, after_failure)?;
            }
            let mut views = render::RunViews::new(tx.connection(), &home);
            let mut view = views.run(&run)?;
            views.starts_at_once(&pools, &run, &mut view)?;
            for (kind, why) in &new.unmetered {
                if let Some(shown) = view.budgets.iter_mut().find(|shown| shown.kind == *kind) {
                    shown.unknown = Some((*why).to_owned());
                }
            }
            Ok(view)
        };
        let dispatched = self.write(caller, dispatch).await;
        self.resolve_credentials(kept).await;
        self.resolve_credentials(kept_variables).await;
        self.pin_dispatched(id, planned, dispatched).await
    }

    /// Pins the base of a dispatched run. A repeated call has dispatched none.
    async fn pin_dispatched(
        &self,
        id: RunId,
        planned: Option<NewWorkspace>,
        dispatched: Result<RunView, OpError>,
    ) -> Result<RunView, OpError> {
        let view = dispatched?;
        if let Some(planned) = planned.filter(|_| view.run_id == id.to_string()) {
            self.pin_base(id, &planned).await;
        }
        Ok(view)
    }

    /// Dispatches a finished or stopped run again as a new run, in a new workspace if it had one. This finishes a stopped run.
    ///
    /// # Errors
    /// Unknown, foreign, or still live.
    pub async fn retry(&self, caller: Caller, call: Retry) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Retry)?;
        let workspace = self.plan_workspace_of_retry(&caller.who, &call.run).await?;
        self.retry_in(caller, call, workspace, None).await
    }

    /// Starts a run that follows an ended one, in its directory and in its session.
    ///
    /// # Errors
    /// Unknown, foreign, or still live; its directory is gone.
    pub async fn follow_up(&self, caller: Caller, call: FollowUp) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Retry)?;
        let run = self.store.read(|connection| {
            newest_follower(
                connection,
                lookup::run(connection, &caller.who, Action::Retry, &call.run)?,
            )
        })?;
        if let Some(runner) = self.runner_of(&run)? {
            return Err(Denied::conflict(
                "run",
                format!(
                    "the directory of {} is on the runner {runner}: start another run",
                    run.name
                ),
            )
            .into());
        }
        if !Path::new(&run.cwd).is_dir() {
            return Err(Denied::conflict(
                "run",
                format!(
                    "the directory of {} is removed: start another run",
                    run.name
                ),
            )
            .into());
        }
        let new_session_prompt =
            continued_task(&run.name, &run.task, run.result.as_deref(), &call.prompt);
        let retry = Retry {
            run: run.id.to_string(),
            prompt: Some(call.prompt),
            env: call.env,
        };
        self.retry_in(caller, retry, None, Some(new_session_prompt))
            .await
    }

    /// The same as [`Self::retry`] in this workspace. `None`: in the directory of the earlier run, also where that is its workspace.
    /// `new_session_prompt`: the run continues the earlier run's session, and this is its prompt if that session is gone.
    pub(in crate::ops) async fn retry_in(
        &self,
        caller: Caller,
        call: Retry,
        workspace: Option<NewWorkspace>,
        new_session_prompt: Option<String>,
    ) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Retry)?;
        let (id, name_seed) = (RunId::new(clock::now(), random()), random());
        let (home, retention, config) = (
            self.home.clone(),
            self.retention(),
            self.config_or_builtin(),
        );
        let (tree, refuse_shared, settings) = (
            config.tree,
            config.refuse_shared_directory,
            self.pool_settings(&config),
        );
        let planned = workspace.clone();
        let kept = self
            .credentials_for(&caller.who, Action::Retry, &call.run, call.env)
            .await?;
        let credentials = kept.id().map(ToOwned::to_owned);
        let retry = move |tx: &mut Tx<'_>, who: &Principal| {
            let run = lookup::run(tx.connection(), who, Action::Retry, &call.run)?;
            tx.wait_for_retry(&run, id)?;
            let old = match run.state {
                RunState::Finished(_) => run,
                RunState::Stopped { .. } => tx.advance(
                    &run,
                    RunEvent::Retired,
                    retention,
                    &who.to_string(),
                    "retried",
                )?,
                RunState::Queued
                | RunState::Starting
                | RunState::Running
                | RunState::Stopping(_) => {
                    return Err(Denied::WrongState {
                        run: run.name.clone(),
                        state: run.state.word(),
                        wanted: "retried; cancel it first",
                    }
                    .into());
                }
            };
            if old.owner == *who {
                // An owner who retries a run knows how it ended.
                tx.set_notified(who, &[(old.id, old.last_seq)])?;
            }
            if refuse_shared && workspace.is_none() {
                refuse_shared_directory(tx.connection(), &old.cwd, old.id)?;
            }
            let mut input = run_input(tx.connection(), old.id)?;
            if let Some(prompt) = &call.prompt {
                checked_prompt(prompt, input.agent.prompt)?;
                input.prompt = new_session_prompt.clone().unwrap_or_else(|| prompt.clone());
            }
            let task = call.prompt.unwrap_or_else(|| old.task.clone());
            let budget = budget_again(tx, &config, who, &old)?;
            let new = NewRun {
                id,
                name: None,
                name_seed,
                cwd: old.cwd.clone(),
                workspace,
                fence_workspace: old.fence.as_ref().and_then(|fence| fence.workspace.clone()),
                owner: old.owner.clone(),
                retry_of: Some(old.id),
                under: old.parent.map(|parent| (parent, tree)),
                rank: old.rank,
                pool: PoolName::parse(&old.pool).map_err(|error| {
                    StoreError::Corrupt(format!("the pool of {}: {error}", old.id))
                })?,
                after: after_for_retry(tx.connection(), old.id)?,
                after_failed: old.after_failed,
                agent_why: None,
                estimate_ms: None,
                budget,
                unmetered: unmetered(&config, &input.agent),
                task,
                by: who.clone(),
                input,
            };
            let run = tx.dispatch(&new)?;
            tx.copy_alternatives(old.id, &run)?;
            if new_session_prompt.is_some() {
                tx.continue_session(run.id, &old)?;
            }
            tx.set_credentials(run.id, credentials.as_deref())?;
            let mut views = render::RunViews::new(tx.connection(), &home);
            let mut view = views.run(&run)?;
            views.starts_at_once(&settings.in_effect(tx.connection())?, &run, &mut view)?;
            Ok(view)
        };
        let retried = self.write(caller, retry).await;
        self.resolve_credentials(kept).await;
        self.pin_dispatched(id, planned, retried).await
    }

    /// Resolves the base of the workspace of a run that is dispatched again. `None`: the run was not isolated, or is
    /// unknown; an unknown one is refused later.
    async fn plan_workspace_of_retry(
        &self,
        who: &Principal,
        run: &str,
    ) -> Result<Option<NewWorkspace>, OpError> {
        let old = self.store.read(|connection| {
            match lookup::run(connection, who, Action::Retry, run) {
                Ok(run) => {
                    Ok(workspace_of(connection, run.id)?.map(|workspace| (workspace, run.cwd)))
                }
                Err(StoreError::Denied(_)) => Ok(None),
                Err(error) => Err(error),
            }
        })?;
        let Some((old, cwd)) = old else {
            return Ok(None);
        };
        let below = Path::new(&cwd)
            .strip_prefix(&old.path)
            .unwrap_or("".as_ref());
        let new = self
            .plan_workspace(&old.repository, old.isolation, old.changes.is_some())
            .await?;
        Ok(new.map(|new| NewWorkspace {
            below: below.to_owned(),
            ..new
        }))
    }

    /// Stores the credentials for a run's next attempt, after checking that its agent still supports the run's
    /// profile. An unknown run has none; it is refused later.
    pub(super) async fn credentials_for(
        &self,
        who: &Principal,
        action: Action,
        run: &str,
        env: BTreeMap<String, String>,
    ) -> Result<KeptCredentials, OpError> {
        checked_env(&env)?;
        let agent =
            self.store.read(
                |connection| match lookup::run(connection, who, action, run) {
                    Ok(run) => Ok(Some(run_input(connection, run.id)?.agent)),
                    Err(StoreError::Denied(_)) => Ok(None),
                    Err(error) => Err(error),
                },
            )?;
        if let Some(agent) = &agent {
            self.check_again(agent)?;
        }
        let own = agent.map_or_else(BTreeMap::new, |agent| programs::stored_env(&agent, env));
        Ok(self.store.save_credentials(own).await?)
    }

    /// Releases stored credentials that nothing refers to. The next sweep repeats what fails.
    pub(in crate::ops) async fn resolve_credentials(&self, kept: KeptCredentials) {
        if let Err(error) = self.store.resolve_credentials(kept).await {
            tracing::warn!(%error, "stored credentials cannot be released yet");
        }
    }
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

/// Returns the owner of the runs that a principal dispatches.
fn owner_of(who: &Principal) -> Principal {
    who.clone()
}

/// Refuses a directory that another queued or live run uses.
fn refuse_shared_directory(
    connection: &Connection,
    cwd: &str,
    except: RunId,
) -> Result<(), StoreError> {
    match runs_using_directory(connection, cwd, except)?.first() {
        None => Ok(()),
        Some(other) => Err(Denied::DirectoryInUse { run: other.clone() }.into()),
    }
}
