//! Starting attempts.

use crate::config::{Config, Home, Webhook, is_credential};
use crate::link::{FenceOrder, Order, WorkspaceOrder};
use crate::ops::attempts::claim::{Claim, ClaimedRun, Place, Ports, claim_run};
use crate::ops::attempts::fallback::fall_back;
use crate::ops::attempts::gate;
use crate::ops::attempts::{AttemptId, FRUITLESS_ATTEMPTS_MAX, Launch, hash};
use crate::ops::policy_changes::PolicyFile;
use crate::ops::trust::TrustDecision;
use crate::ops::workspaces::source_of;
use crate::ops::{OpError, Ops};
use crate::ports;
use crate::preset::Preset;
use crate::store::{
    FenceState, RUNNER_UNWRITABLE, Run, RunInput, StartPlace, StoreError, Tx, failed_starts,
    run_by_id,
};
use adjutant_core::agent::AgentOverrides;
use adjutant_core::lease::Lease;
use adjutant_core::pool::build_jobs_of_run;
use adjutant_core::port::PORTS_FIRST;
use adjutant_core::run::Retention;
use adjutant_core::{AgentSpec, Cause, Fence, PoolName, PortRange, RunEvent, RunId, RunState};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The delay before retrying to record that an attempt was not started.
const RECORD_AGAIN: Duration = Duration::from_secs(5);
/// How often other ports are tried if one of them is in use.
const PORT_TRIES_MAX: u32 = 200;

impl Ops {
    /// Claims the queued run that starts next in a place, if its pool has a free slot. Recorded when it returns.
    ///
    /// # Errors
    /// A failure of the store or of the configuration.
    pub async fn claim_next(&self, start_place: &StartPlace) -> Result<Option<Launch>, OpError> {
        loop {
            match self
                .claim_each(std::slice::from_ref(start_place))
                .await?
                .pop()
            {
                None => return Ok(None),
                Some((_, Ok(None))) => {}
                Some((_, launch)) => return launch,
            }
        }
    }

    /// Claims one run for each of several places, as far as there are any, in one transaction. A place may be named several times. Returns
    /// for each claimed run the number of its place and its launch. `None`: it could not be started, which is recorded; another one may.
    ///
    /// # Errors
    /// A failure of the store. The error of one launch is recorded, too.
    pub async fn claim_each(
        &self,
        places: &[StartPlace],
    ) -> Result<Vec<(usize, Result<Option<Launch>, OpError>)>, OpError> {
        let config = self.config_or_builtin();
        let (retention, settings, home) = (
            self.retention(),
            self.pool_settings(&config),
            self.home.clone(),
        );
        let (of_agents, policies) = (Arc::clone(&config), PolicyFile::of(self));
        // Most wake-ups find nothing that could start. They need no transaction.
        if !self
            .store
            .read(|connection| settings.has_queued_for(connection, places))?
        {
            return Ok(Vec::new());
        }
        let wanted: Vec<(StartPlace, String)> = places
            .iter()
            .map(|place| (place.clone(), crate::client::random_hex::<32>()))
            .collect();
        let claimed = self
            .store
            .write(move |tx| {
                policies.observe(tx)?;
                let is_here = wanted.iter().any(|(place, _)| *place == StartPlace::Here);
                let (pools, mut used) = settings.for_starts(tx.connection(), is_here)?;
                let (mut claimed, mut without) = (Vec::new(), Vec::new());
                let mut wanted = wanted.into_iter().enumerate().peekable();
                while let Some((number, (start_place, token))) = wanted.next() {
                    if without.contains(&start_place) {
                        continue;
                    }
                    let next_place = wanted.peek().map(|(_, (place, _))| place);
                    let claim = Claim {
                        config: &of_agents,
                        home: &home,
                        retention,
                        token_hash: &hash(&token),
                        start_place: &start_place,
                        next_place,
                    };
                    match claim_run(tx, &pools, &mut used, &claim)? {
                        Some(run) => claimed.push((
                            number,
                            run,
                            token,
                            start_place
                                .host()
                                .and_then(|host| u64::try_from(host.lease_ms).ok()),
                        )),
                        None => without.push(start_place),
                    }
                }
                if !claimed.is_empty() {
                    policies.observe(tx)?;
                }
                Ok(claimed)
            })
            .await?;
        let launches = claimed.into_iter().map(|(number, run, token, lease_ms)| {
            let config = Arc::clone(&config);
            async move { (number, self.launch_of(run, &config, token, lease_ms).await) }
        });
        Ok(futures::future::join_all(launches).await)
    }

    /// Returns the launch of a claimed run. `None`: it cannot be launched, which is recorded.
    async fn launch_of(
        &self,
        claimed: ClaimedRun,
        config: &Config,
        token: String,
        lease_ms: Option<u64>,
    ) -> Result<Option<Launch>, OpError> {
        let id = AttemptId {
            run: claimed.run.id,
            n: claimed.run.attempt,
        };
        let launch = self
            .prepare_launch(id, claimed, config, token, lease_ms)
            .await;
        if let Err(error) = &launch {
            self.record_not_started(id, error).await;
        }
        launch
    }

    /// Records that a claimed run was not started, with as many tries as it takes: the run holds a slot, and nothing watches it yet.
    pub(in crate::ops) async fn record_not_started(&self, id: AttemptId, error: &OpError) {
        while let Err(again) = self.not_started(id, error).await {
            tracing::error!(attempt = %id, error = %again, "cannot record yet that an attempt was not started");
            tokio::time::sleep(RECORD_AGAIN).await;
        }
    }

    /// Prepares the order to launch a claimed run. `None`: it cannot be launched, which is recorded.
    async fn prepare_launch(
        &self,
        id: AttemptId,
        claimed: ClaimedRun,
        config: &Config,
        token: String,
        lease_ms: Option<u64>,
    ) -> Result<Option<Launch>, OpError> {
        let ClaimedRun {
            run,
            input,
            preset,
            session,
            prompt,
            new_session_prompt,
            answer_bytes_max,
            place,
        } = claimed;
        let Place {
            mut workspace,
            ports,
            caches,
            slots,
        } = place;
        if let Some(problem) = self.place_problem(&run, workspace.as_ref(), lease_ms.is_some())? {
            self.not_spawned(id, problem).await?;
            return Ok(None);
        }
        if let Some(workspace) = workspace
            .as_mut()
            .filter(|workspace| workspace.run_id == id.run.to_string())
        {
            self.settle_base(id.run, workspace).await?;
        }
        let ports = match self.free_ports(id, ports).await? {
            Ports::Missing(count) => {
                self.ports_missing(id, count).await?;
                return Ok(None);
            }
            Ports::NotWanted => None,
            Ports::Allocated(range) => Some(range),
        };
        let mut argv = input.agent.command.clone();
        let mut args = input.agent.args.clone();
        let AgentOverrides {
            model,
            args: mut last_args,
            env: _,
        } = input.agent.overrides.clone();
        if preset.is_none() {
            argv.append(&mut args);
            argv.append(&mut last_args);
        }
        let mut stored = self.stored_env(id, &input).await;
        // The machine of a runner has its own programs and directories.
        if lease_ms.is_some() {
            stored.retain(|name, _| !crate::config::is_agent_variable(name));
        } else {
            for (name, value) in crate::config::base_env() {
                stored.entry(name).or_insert(value);
            }
        }
        let mut env = attempt_env(config, &run, &input, &stored, caches, ports, slots);
        // Those that the dispatcher set for this run come last.
        match self.store.variables(input.variables.as_deref()).await {
            Ok(variables) => env.extend(variables),
            Err(error) => {
                let names = input.agent.overrides.env.join(", ");
                self.not_spawned(
                    id,
                    format!("the values of its variables ({names}) cannot be read: {error}"),
                )
                .await?;
                return Ok(None);
            }
        }
        if let (Some(entry), Some(first), None) = (
            config.agents.get(&input.agent.name),
            argv.first_mut(),
            lease_ms,
        ) {
            let entry = crate::config::AgentEntry {
                spec: input.agent.clone(),
                ..entry.clone()
            };
            match crate::ops::programs::program(&entry, env.get("PATH").map_or("", String::as_str))
            {
                Ok(Some(found)) => *first = found.display().to_string(),
                // The supervisor resolves the program again and reports the problem.
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(attempt = %id, ?error, "the agent's program cannot be resolved")
                }
            }
        }
        let gate = match gate::prepare(
            config.gate_of(&input.agent.name),
            &input.agent,
            preset.as_ref(),
            &stored,
            &mut env,
        ) {
            Ok(gate) => gate,
            Err(problem) => {
                self.not_spawned(id, problem).await?;
                return Ok(None);
            }
        };
        drop(stored);
        let trust_repo = self
            .settle_trust(id, &run, &input, preset.as_ref(), workspace.as_ref())
            .await?;
        let order = Order {
            home: self.home.dir.clone(),
            run_id: run.id.to_string(),
            run_name: run.name.clone(),
            attempt: run.attempt.0,
            agent: run.agent.clone(),
            harness: input.agent.harness.word().to_owned(),
            preset,
            permissions: input.agent.permissions.word().to_owned(),
            trust_repo,
            session,
            has_tools: input.agent.has_identity,
            new_session_prompt,
            argv,
            args,
            model,
            last_args,
            prompt_via: input.agent.prompt.word().to_owned(),
            prompt,
            cwd: PathBuf::from(&run.cwd),
            workspace,
            env,
            timeout_ms: input.agent.timeout_ms,
            active_ms_before: run.active_ms,
            patience_ms: input.agent.patience_ms,
            stall_ms: input.agent.stall_ms,
            memory_bytes_max: input.agent.memory_bytes_max,
            grace_ms: lease_ms.map_or(input.agent.grace_ms, |ms| {
                input.agent.grace_ms.min(grace_within(ms))
            }),
            report_grace_ms: input.agent.report_grace_ms,
            ends_after_report: input.agent.ends_after_report,
            accept: input.accept.clone(),
            answer_bytes_max,
            log_bytes_max: config.log_bytes_max,
            token,
            containment: config.containment.word().to_owned(),
            fence: fence_order(&input.agent, run.fence.as_ref(), &self.home, config),
            lease_ms,
            gate,
        };
        Ok(Some(Launch {
            id,
            dir: self.attempt_dir(id),
            order,
        }))
    }

    /// Returns why an attempt cannot work in its directory on this machine or on a runner.
    fn place_problem(
        &self,
        run: &Run,
        workspace: Option<&WorkspaceOrder>,
        is_on_runner: bool,
    ) -> Result<Option<String>, OpError> {
        let id = run.id.to_string();
        let Some(shared) = workspace.filter(|workspace| workspace.run_id != id) else {
            let repository = Path::new(&run.cwd)
                .ancestors()
                .find(|dir| dir.join(".git").exists());
            let repository = repository.filter(|_| is_on_runner && workspace.is_none());
            return Ok(repository.map(|dir| {
                format!(
                    "it would work in {} itself, which is not on the runner: use isolation clone",
                    dir.display()
                )
            }));
        };
        let owner = self
            .store
            .read(|connection| lookup_shared(connection, &shared.run_id))?;
        let elsewhere = owner
            .map(|owner| self.runner_of(&owner))
            .transpose()?
            .flatten();
        Ok(match (elsewhere, is_on_runner) {
            (Some(runner), _) => Some(format!(
                "it would work in the workspace of {}, which is on the runner {runner}: start a run of its own",
                shared.run_name
            )),
            (None, true) => Some(format!(
                "it would work in the workspace of {}, which is not on a runner: use another pool",
                shared.run_name
            )),
            (None, false) => None,
        })
    }

    /// Reads the stored environment of a run. The variables of all alternative agents are stored, also for a retry.
    async fn stored_env(&self, id: AttemptId, input: &RunInput) -> BTreeMap<String, String> {
        let mut stored = input.env.variables().clone();
        match self.store.credentials(&input.env).await {
            // Chat turns store the credentials of all vendors.
            Ok(credentials) => stored.extend(credentials),
            Err(error) => {
                tracing::warn!(attempt = %id, %error, "an attempt starts without the dispatcher's credentials")
            }
        }
        stored
    }

    /// Decides whether an attempt loads the agent configuration of its directory, and records the policies and the note about it.
    async fn settle_trust(
        &self,
        id: AttemptId,
        run: &Run,
        input: &RunInput,
        preset: Option<&Preset>,
        workspace: Option<&WorkspaceOrder>,
    ) -> Result<bool, OpError> {
        let source = source_of(&run.cwd, workspace);
        // An attempt whose agent did not start has changed nothing there.
        if run.started_at.is_none() {
            self.store_repository_policies(id.run, &source).await?;
        }
        let TrustDecision { trust, note } = match preset {
            Some(preset) => {
                self.decide_trust(&source, preset, input.agent.trust_repo)
                    .await
            }
            None => TrustDecision {
                trust: false,
                note: None,
            },
        };
        if note != run.note {
            self.store
                .write(move |tx| tx.set_note(id.run, note.as_deref()))
                .await?;
        }
        Ok(trust)
    }

    /// Records that an attempt was claimed and not started: the run is queued again, a few times.
    pub(in crate::ops) async fn not_started(
        &self,
        id: AttemptId,
        why: &OpError,
    ) -> Result<(), OpError> {
        let (retention, why) = (self.retention(), why.to_string());
        self.current(id, move |tx, run| {
            tx.mark_unstarted(run.id, id.n)?;
            let event = if failed_starts(tx.connection(), run.id)? >= FRUITLESS_ATTEMPTS_MAX {
                tx.set_detail(run.id, &why)?;
                RunEvent::SpawnFailed
            } else {
                RunEvent::NotStarted
            };
            tx.advance(run, event, retention, "hub", &why).map(|_| ())
        })
        .await
    }

    /// Finds ports that are free on this machine and not assigned to another live run.
    async fn free_ports(&self, id: AttemptId, mut ports: Ports) -> Result<Ports, OpError> {
        for _ in 0..PORT_TRIES_MAX {
            let Ports::Allocated(range) = ports else {
                return Ok(ports);
            };
            let Some(taken) = ports::first_taken(range) else {
                return Ok(ports);
            };
            let (run, count) = (id.run, range.count);
            let next = self
                .store
                .write(move |tx| tx.allocate_ports(run, count, taken.saturating_add(1)))
                .await?;
            ports = next.map_or(Ports::Missing(count), Ports::Allocated);
        }
        Ok(match ports {
            Ports::Allocated(range) => Ports::Missing(range.count),
            ports => ports,
        })
    }

    /// Queues a claimed run again until a run with ports ends. If no other run has ports, other programs use them, so the
    /// run ends.
    async fn ports_missing(&self, id: AttemptId, count: u16) -> Result<(), OpError> {
        let retention = self.retention();
        let message = format!(
            "no {count} consecutive ports are free from {PORTS_FIRST} on: set a smaller workspaces.ports"
        );
        self.current(id, move |tx, run| {
            if !tx.has_port_holder(run)? {
                tx.set_detail(run.id, &message)?;
                return tx
                    .advance(run, RunEvent::SpawnFailed, retention, "hub", &message)
                    .map(|_| ());
            }
            tx.mark_unstarted(run.id, id.n)?;
            let run = tx.advance(run, RunEvent::NotStarted, retention, "hub", "")?;
            if run.state == RunState::Queued {
                tx.wait_for_ports(&run, count)?;
            }
            Ok(())
        })
        .await
    }

    /// Records that an attempt's guard could not be started.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn not_spawned(&self, id: AttemptId, message: String) -> Result<(), OpError> {
        let retention = self.retention();
        self.current(id, move |tx, run| {
            tx.set_detail(run.id, &message)?;
            tx.advance(run, RunEvent::SpawnFailed, retention, "hub", &message)
                .map(|_| ())
        })
        .await
    }

    /// Records that an attempt's agent was not started because its runner cannot write to its home: the run is queued again.
    ///
    /// # Errors
    /// A failure of the store.
    pub(in crate::ops) async fn not_placed(
        &self,
        id: AttemptId,
        message: String,
    ) -> Result<(), OpError> {
        let retention = self.retention();
        self.current(id, move |tx, run| {
            return_to_queue(tx, run, id, &message, retention).map(drop)
        })
        .await
    }

    /// Records that an attempt's agent was not started because its program is too old.
    ///
    /// # Errors
    /// A failure of the store.
    pub async fn refused_as_too_old(&self, id: AttemptId, message: String) -> Result<(), OpError> {
        let retention = self.retention();
        self.current(id, move |tx, run| {
            if fall_back(tx, run, id, &message, retention)? {
                return Ok(());
            }
            tx.set_detail(run.id, &message)?;
            tx.mark_unstarted(run.id, id.n)?;
            tx.advance(run, RunEvent::Refused(Cause::TooOld), retention, "hub", "")
                .map(|_| ())
        })
        .await
    }
}

/// Queues a run again whose runner cannot write to its home. Such an attempt does not count as a failed start.
pub(super) fn return_to_queue(
    tx: &mut Tx<'_>,
    run: &Run,
    id: AttemptId,
    problem: &str,
    retention: Retention,
) -> Result<Run, StoreError> {
    tx.mark_unstarted(run.id, id.n)?;
    tx.advance(
        run,
        RunEvent::NotStarted,
        retention,
        "hub",
        &format!("{RUNNER_UNWRITABLE}: {problem}"),
    )
}

/// Finds the run that a workspace is of.
fn lookup_shared(
    connection: &crate::store::Connection,
    run_id: &str,
) -> Result<Option<Run>, crate::store::StoreError> {
    RunId::parse(run_id).map_or(Ok(None), |id| run_by_id(connection, id))
}

/// Returns the longest grace period of an attempt with this lease.
fn grace_within(lease_ms: u64) -> i64 {
    i64::try_from(Lease::from_ms(lease_ms).grace_max().as_millis()).unwrap_or(i64::MAX)
}

/// Returns the fence of an agent's run.
fn fence_order(
    agent: &AgentSpec,
    known: Option<&FenceState>,
    home: &Home,
    config: &Config,
) -> Option<FenceOrder> {
    if agent.fence == Fence::None {
        return None;
    }
    // Settings outside the home can contain secrets, and so can files beside them in a directory of Adjutant.
    let is_outside = |path: &Path| !path.starts_with(&home.dir);
    let own_dir = config
        .path
        .parent()
        .filter(|dir| dir.file_name().is_some_and(|name| name == "adjutant"));
    let secrets = config.webhooks.iter().flat_map(Webhook::secret_files);
    let hidden = own_dir
        .map(Path::to_owned)
        .into_iter()
        .chain([config.path.clone()])
        .chain(secrets)
        .chain(config.key_files());
    Some(FenceOrder {
        wanted: agent.fence.word().to_owned(),
        workspace: known
            .and_then(|known| known.workspace.as_ref())
            .map(PathBuf::from),
        writable: agent.fence_write.iter().map(PathBuf::from).collect(),
        hidden: hidden.filter(|path| is_outside(path)).collect(),
    })
}

/// Returns the environment of an attempt's agent, without the variables that the dispatcher set for the run.
fn attempt_env(
    config: &Config,
    run: &Run,
    input: &RunInput,
    stored: &BTreeMap<String, String>,
    caches: BTreeMap<String, PathBuf>,
    ports: Option<PortRange>,
    slots: u64,
) -> BTreeMap<String, String> {
    let mut env = crate::ops::programs::own_env(&input.agent, stored.clone());
    env.extend(
        caches
            .into_iter()
            .map(|(variable, dir)| (variable, dir.display().to_string())),
    );
    env.extend(input.agent.env.clone());
    if let Some(PortRange { base, count }) = ports {
        env.insert("ADJ_PORT_BASE".to_owned(), base.to_string());
        env.insert("ADJ_PORT_COUNT".to_owned(), count.to_string());
    }
    let pool = PoolName::parse(&run.pool)
        .ok()
        .and_then(|name| config.pools.get(&name));
    for (name, value) in pool
        .and_then(|pool| pool.build_jobs)
        .map_or_else(BTreeMap::new, |jobs| {
            build_env(build_jobs_of_run(jobs, slots))
        })
    {
        env.entry(name).or_insert(value);
    }
    if let Some(entry) = config.agents.get(&input.agent.name) {
        env.extend(
            entry
                .spec
                .env
                .clone()
                .into_iter()
                .filter(|(name, _)| is_credential(name)),
        );
    }
    env
}

/// Returns the variables from which build tools read how many jobs they may have at a time.
fn build_env(jobs: u64) -> BTreeMap<String, String> {
    let jobs = [
        ("CARGO_BUILD_JOBS", format!("{jobs}")),
        ("CMAKE_BUILD_PARALLEL_LEVEL", format!("{jobs}")),
        ("MAKEFLAGS", format!("-j{jobs}")),
    ];
    jobs.map(|(name, value)| (name.to_owned(), value)).into()
}
