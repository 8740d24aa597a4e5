//! Dispatching runs, and retrying them.

use crate::clock;
use crate::ops::checks;
use crate::ops::checks::{checked_cwd, checked_env, checked_measure, checked_prompt};
use crate::ops::{Caller, OpError, Ops, lookup, profiles, programs, random, render};
use crate::preset::Preset;
use crate::store::{Connection, KeptCredentials, NewRun, NewWorkspace, RunInput, StoreError, Tx, run_input, taken_by, workspace_of};
use crate::view::{Dispatch, Retry, RunView};
use adjutant_core::tree::Rank;
use adjutant_core::{Action, AgentName, Denied, Principal, RunEvent, RunId, RunName, RunState};
use std::collections::BTreeMap;
use std::path::Path;

impl Ops {
    /// Queues a run. Durable when it returns; the hub starts it as soon as a slot is free.
    ///
    /// # Errors
    /// The agent, its program, the directory, the name or the prompt is unusable.
    pub async fn dispatch(&self, caller: Caller, call: Dispatch) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Dispatch)?;
        let config = self.config()?;
        let path = call.env.get("PATH").map_or("", String::as_str);
        let wanted = match (call.agent.as_str(), &config.default_agent) {
            ("", Some(default)) => default.clone(),
            ("", None) => return Err(OpError::NoAgentGiven { installed: programs::installed(&config, path) }),
            (name, _) => name.to_owned(),
        };
        let Some(entry) = AgentName::parse(&wanted).ok().and_then(|name| config.agents.get(&name)) else {
            return Err(programs::unknown_agent(&config, &wanted, path));
        };
        checked_prompt(&call.prompt, entry.spec.prompt)?;
        let cwd = checked_cwd(&call.cwd)?;
        let name = call.name.as_deref().map(|name| RunName::parse(name).map_err(|error| checks::unusable_name(name, &error))).transpose()?;
        checked_env(&call.env)?;
        programs::program(entry, path)?;
        let mut agent = entry.spec.clone();
        if let Some(permissions) = &call.permissions {
            agent.permissions = permissions.known().ok_or_else(|| Denied::invalid("permissions", "use read, edit or full"))?;
        }
        profiles::check(&agent, entry.spec.permissions)?;
        agent.trust_repo |= call.trust_repo;
        if let Some(fence) = &call.fence {
            agent.fence = fence.known().ok_or_else(|| Denied::invalid("fence", "use none, workspace or best-effort"))?;
        }
        let preset = Preset::from_text(&agent.preset);
        let found = match preset.filter(|_| agent.trust_repo) {
            Some(preset) => self.look_at_directory(&cwd, &preset).await?,
            None => None,
        };
        // The flag of this run counts as a review; the configuration alone needs earlier trust.
        if let Some(found) = found.as_ref().filter(|_| !call.trust_repo) {
            self.check_trusted(&cwd, found)?;
        }
        let env = programs::own_env(&agent, call.env);
        match call.timeout_s {
            Some(0) => return Err(Denied::invalid("timeout_s", "at least 1").into()),
            Some(seconds) => agent.timeout_ms = Some(i64::try_from(seconds).unwrap_or(i64::MAX / 1000).saturating_mul(1000)),
            None => {}
        }
        checked_measure(call.criteria.as_deref(), &call.accept)?;
        let isolation = match &call.isolation {
            Some(isolation) => isolation.known().ok_or_else(|| Denied::invalid("isolation", "use none, clone or worktree"))?,
            None => agent.isolation,
        };
        self.check_fence(&config, &agent, Path::new(&cwd), isolation, &env)?;
        agent.isolation = isolation;
        let workspace = self.plan_workspace(&cwd, isolation, call.with_changes).await?;
        let planned = workspace.clone();
        let (refuse_shared, live_runs_max) = (config.refuse_shared_directory, self.live_runs_max(&config));
        let kept = self.store.keep_credentials(env).await?;
        let env = kept.env.clone();
        let (id, name_seed) = (RunId::new(clock::now(), random()), random());
        let home = self.home.clone();
        let dispatch = move |tx: &mut Tx<'_>, who: &Principal| {
            if refuse_shared && workspace.is_none() {
                refuse_shared_directory(tx.connection(), &cwd, id)?;
            }
            if let Some(found) = &found {
                tx.trust(&cwd, &found.hash, who)?;
            }
            let new = NewRun {
                id,
                name,
                name_seed,
                cwd,
                workspace,
                owner: owner_of(who),
                retry_of: None,
                under: None,
                rank: Rank::default(),
                estimate_ms: None,
                task: call.prompt.clone(),
                by: who.clone(),
                input: RunInput { prompt: call.prompt, agent, env, criteria: call.criteria, accept: call.accept },
            };
            let run = tx.dispatch(&new)?;
            let mut view = render::run(tx.connection(), &home, &run)?;
            render::starts_at_once(tx.connection(), live_runs_max, &mut view)?;
            Ok(view)
        };
        let dispatched = self.write(caller, dispatch).await;
        self.settle_credentials(kept).await;
        self.pin_dispatched(id, planned, dispatched).await
    }

    /// Keeps the base of a run that was dispatched. A call that was repeated has dispatched none.
    async fn pin_dispatched(&self, id: RunId, planned: Option<NewWorkspace>, dispatched: Result<RunView, OpError>) -> Result<RunView, OpError> {
        let view = dispatched?;
        if let Some(planned) = planned.filter(|_| view.run_id == id.to_string()) {
            self.pin_base(id, &planned).await;
        }
        Ok(view)
    }

    /// Dispatches a finished or stopped run again as a new run, in a new workspace if it had one. A stopped one is finished by this.
    ///
    /// # Errors
    /// Unknown, foreign, or still live.
    pub async fn retry(&self, caller: Caller, call: Retry) -> Result<RunView, OpError> {
        Self::check(&caller.who, Action::Retry)?;
        let (id, name_seed) = (RunId::new(clock::now(), random()), random());
        let (home, retention, config) = (self.home.clone(), self.retention(), self.config_or_builtin());
        let (tree, refuse_shared, live_runs_max) = (config.tree, config.refuse_shared_directory, self.live_runs_max(&config));
        let workspace = self.plan_workspace_again(&caller.who, &call.run).await?;
        let planned = workspace.clone();
        let kept = self.credentials_for(&caller.who, Action::Retry, &call.run, call.env).await?;
        let credentials = kept.id().map(ToOwned::to_owned);
        let retry = move |tx: &mut Tx<'_>, who: &Principal| {
            let run = lookup::run(tx.connection(), who, Action::Retry, &call.run)?;
            let old = match run.state {
                RunState::Finished(_) => run,
                RunState::Stopped { .. } => tx.advance(&run, RunEvent::Retired, retention, &who.to_string(), "retried")?,
                RunState::Queued | RunState::Starting | RunState::Running | RunState::Stopping(_) => {
                    return Err(Denied::WrongState { state: run.state.word(), wanted: "retried; cancel it first" }.into());
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
                input.prompt.clone_from(prompt);
            }
            let task = call.prompt.unwrap_or_else(|| old.task.clone());
            let new = NewRun {
                id,
                name: None,
                name_seed,
                cwd: old.cwd.clone(),
                workspace,
                owner: old.owner.clone(),
                retry_of: Some(old.id),
                under: old.parent.map(|parent| (parent, tree)),
                rank: old.rank,
                estimate_ms: None,
                task,
                by: who.clone(),
                input,
            };
            let run = tx.dispatch(&new)?;
            tx.set_credentials(run.id, credentials.as_deref())?;
            let mut view = render::run(tx.connection(), &home, &run)?;
            render::starts_at_once(tx.connection(), live_runs_max, &mut view)?;
            Ok(view)
        };
        let retried = self.write(caller, retry).await;
        self.settle_credentials(kept).await;
        self.pin_dispatched(id, planned, retried).await
    }

    /// Resolves what the workspace of a run is made from that is dispatched again. `None`: the run was not isolated, or is
    /// unknown; an unknown one is refused later.
    async fn plan_workspace_again(&self, who: &Principal, run: &str) -> Result<Option<NewWorkspace>, OpError> {
        let old = self.store.read(|connection| match lookup::run(connection, who, Action::Retry, run) {
            Ok(run) => Ok(workspace_of(connection, run.id)?.map(|workspace| (workspace, run.cwd))),
            Err(StoreError::Denied(_)) => Ok(None),
            Err(error) => Err(error),
        })?;
        let Some((old, cwd)) = old else { return Ok(None) };
        let below = Path::new(&cwd).strip_prefix(&old.path).unwrap_or("".as_ref());
        let new = self.plan_workspace(&old.repository, old.isolation, old.changes.is_some()).await?;
        Ok(new.map(|new| NewWorkspace { below: below.to_owned(), ..new }))
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
        let agent = self.store.read(|connection| match lookup::run(connection, who, action, run) {
            Ok(run) => Ok(Some(run_input(connection, run.id)?.agent)),
            Err(StoreError::Denied(_)) => Ok(None),
            Err(error) => Err(error),
        })?;
        if let Some(agent) = &agent {
            self.check_again(agent)?;
        }
        let own = agent.map_or_else(BTreeMap::new, |agent| programs::own_env(&agent, env));
        Ok(self.store.keep_credentials(own).await?)
    }

    /// Releases stored credentials that nothing refers to. The next sweep repeats what fails.
    pub(in crate::ops) async fn settle_credentials(&self, kept: KeptCredentials) {
        if let Err(error) = self.store.settle_credentials(kept).await {
            tracing::warn!(%error, "stored credentials cannot be released yet");
        }
    }
}

/// Returns the owner of the runs that a principal dispatches.
fn owner_of(who: &Principal) -> Principal {
    who.clone()
}

/// Refuses a directory that another queued or live run uses.
fn refuse_shared_directory(connection: &Connection, cwd: &str, except: RunId) -> Result<(), StoreError> {
    match taken_by(connection, cwd, except)?.first() {
        None => Ok(()),
        Some(other) => {
            let problem = format!("{other} is working in this directory (refuse_shared_directory = true): wait for it, or name another directory");
            Err(Denied::conflict("cwd", problem).into())
        }
    }
}
