//! The launch of a claimed run: checks its place, collects its environment and composes the order
//! to its supervisor.

use crate::config::{AgentEntry, Config, Home, Webhook, is_credential};
use crate::ops::attempt_id::AttemptId;
use crate::ops::attempts::Launch;
use crate::ops::attempts::claim::{AttemptPlace, ClaimedRun, Ports, Prompts};
use crate::ops::attempts::gate::{self, GateProblem};
use crate::ops::attempts::unstarted::{not_spawned, ports_missing};
use crate::ops::repository_policies::store_repository_policies;
use crate::ops::settings::Settings;
use crate::ops::trust::{TrustDecision, decide_trust};
use crate::ops::workspaces::{Workspaces, runner_of, source_of};
use crate::ops::{OpError, programs};
use crate::ports;
use crate::preset::Preset;
use crate::protocol::{FenceOrder, GateOrder, Order, WorkspaceOrder};
use crate::store::{Connection, FenceState, Run, RunInput, Store, StoreError, run_by_id};
use adjutant_core::agent::AgentOverrides;
use adjutant_core::lease::Lease;
use adjutant_core::pool::build_jobs_of_run;
use adjutant_core::{AgentSpec, Fence, PoolName, PortRange, RunId};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How often other ports are tried if one of them is in use.
const PORT_TRIES_MAX: u32 = 200;

/// Why a claimed run is not launched.
#[derive(Debug, thiserror::Error)]
enum NotLaunched {
    #[error(transparent)]
    Place(#[from] PlaceProblem),
    /// There are not enough free ports.
    #[error("no {0} consecutive ports are free")]
    Ports(u16),
    #[error("the values of its variables ({names}) cannot be read: {source}")]
    Variables { names: String, source: StoreError },
    #[error(transparent)]
    Gate(#[from] GateProblem),
    /// A failure that says nothing of the run.
    #[error(transparent)]
    Failed(#[from] OpError),
}

/// Why an attempt cannot work in its directory where it was claimed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum PlaceProblem {
    #[error(
        "it would work in {} itself, which is not on the runner: use isolation clone", .0.display()
    )]
    RepositoryOfHub(PathBuf),
    #[error(
        "it would work in the workspace of {owner}, which is on the runner {runner}: start a run of its own"
    )]
    WorkspaceOnRunner { owner: String, runner: String },
    #[error(
        "it would work in the workspace of {owner}, which is not on a runner: use another pool"
    )]
    WorkspaceOnHub { owner: String },
}

impl PlaceProblem {
    /// Checks the place of an attempt that works in the workspace of another run. `runner`: where
    /// that workspace is. `None`: on the hub's own machine.
    fn of_shared(owner: &str, runner: Option<String>, is_on_runner: bool) -> Option<Self> {
        let owner = owner.to_owned();
        match (runner, is_on_runner) {
            (Some(runner), _) => Some(Self::WorkspaceOnRunner { owner, runner }),
            (None, true) => Some(Self::WorkspaceOnHub { owner }),
            (None, false) => None,
        }
    }
}

/// A claimed run whose attempt can be launched.
struct LaunchPlan {
    run: Run,
    input: RunInput,
    preset: Option<Preset>,
    prompts: Prompts,
    workspace: Option<WorkspaceOrder>,
    command: CommandLine,
    env: BTreeMap<String, String>,
    gate: Option<GateOrder>,
    trust_repo: bool,
    /// The lease of an attempt on a runner.
    lease_ms: Option<u64>,
}

/// The program of an agent and its arguments. Without a preset, all of them are in `argv`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommandLine {
    argv: Vec<String>,
    args: Vec<String>,
    model: Option<String>,
    last_args: Vec<String>,
}

/// What an attempt gets of its machine and its pool.
struct Assigned {
    caches: BTreeMap<String, PathBuf>,
    ports: Option<PortRange>,
    /// The slots of its pool.
    slots: u64,
}

/// Prepares the launches of claimed runs.
#[derive(Debug, Clone)]
pub(super) struct LaunchPlanner {
    store: Store,
    home: Arc<Home>,
    settings: Settings,
    workspaces: Workspaces,
}

impl LaunchPlanner {
    pub(super) fn new(
        store: Store,
        home: Arc<Home>,
        settings: Settings,
        workspaces: Workspaces,
    ) -> Self {
        Self {
            store,
            home,
            settings,
            workspaces,
        }
    }

    /// Prepares the order to launch a claimed run. `None`: it cannot be launched, which is
    /// recorded.
    pub(super) async fn prepare(
        &self,
        id: AttemptId,
        claimed: ClaimedRun,
        config: &Config,
        token: String,
        lease_ms: Option<u64>,
    ) -> Result<Option<Launch>, OpError> {
        match self.plan(id, claimed, config, lease_ms).await {
            Ok(plan) => Ok(Some(Launch {
                id,
                dir: id.dir(&self.home),
                order: plan.order(&self.home, config, token),
            })),
            Err(NotLaunched::Failed(error)) => Err(error),
            Err(NotLaunched::Ports(count)) => {
                ports_missing(&self.store, &self.settings, id, count).await?;
                Ok(None)
            }
            Err(problem) => {
                not_spawned(&self.store, &self.settings, id, problem.to_string()).await?;
                Ok(None)
            }
        }
    }

    /// Checks the place of a claimed run, and collects what its attempt needs.
    async fn plan(
        &self,
        id: AttemptId,
        claimed: ClaimedRun,
        config: &Config,
        lease_ms: Option<u64>,
    ) -> Result<LaunchPlan, NotLaunched> {
        let ClaimedRun {
            run,
            input,
            preset,
            prompts,
            place,
        } = claimed;
        let AttemptPlace {
            mut workspace,
            ports,
            caches,
            slots,
        } = place;
        let is_on_runner = lease_ms.is_some();
        self.check_place(&run, workspace.as_ref(), is_on_runner)?;
        if let Some(workspace) = workspace
            .as_mut()
            .filter(|workspace| workspace.run_id == id.run.to_string())
        {
            self.workspaces.settle_base(id.run, workspace).await?;
        }
        let assigned = Assigned {
            caches,
            ports: self.free_ports(id, ports).await?,
            slots,
        };
        let mut stored = self.stored_env(id, &input).await;
        set_machine_variables(&mut stored, is_on_runner);
        let mut env = attempt_env(config, &run, &input, &stored, assigned);
        // Those that the dispatcher set for this run come last.
        env.extend(self.variables_of(&input).await?);
        let mut command = CommandLine::of(&input.agent, preset.is_some());
        if !is_on_runner {
            command.resolve_program(id, config, &input.agent, &env);
        }
        let settings = config.gate_of(&input.agent.name);
        let gate = gate::prepare(settings, &input.agent, preset.as_ref(), &stored, &mut env)?;
        drop(stored);
        let trust_repo = self
            .settle_trust(id, &run, &input, preset.as_ref(), workspace.as_ref())
            .await?;
        Ok(LaunchPlan {
            run,
            input,
            preset,
            prompts,
            workspace,
            command,
            env,
            gate,
            trust_repo,
            lease_ms,
        })
    }

    /// Refuses an attempt that cannot work in its directory on this machine or on a runner.
    fn check_place(
        &self,
        run: &Run,
        workspace: Option<&WorkspaceOrder>,
        is_on_runner: bool,
    ) -> Result<(), NotLaunched> {
        let id = run.id.to_string();
        let Some(shared) = workspace.filter(|workspace| workspace.run_id != id) else {
            let repository = Path::new(&run.cwd)
                .ancestors()
                .find(|dir| dir.join(".git").exists());
            let repository = repository.filter(|_| is_on_runner && workspace.is_none());
            return match repository {
                Some(dir) => Err(PlaceProblem::RepositoryOfHub(dir.to_owned()).into()),
                None => Ok(()),
            };
        };
        let owner = self
            .store
            .read(|connection| lookup_shared(connection, &shared.run_id))
            .map_err(OpError::from)?;
        let runner = owner
            .map(|owner| runner_of(&self.store, &owner))
            .transpose()
            .map_err(OpError::from)?
            .flatten();
        match PlaceProblem::of_shared(&shared.run_name, runner, is_on_runner) {
            Some(problem) => Err(problem.into()),
            None => Ok(()),
        }
    }

    /// Finds ports for an attempt that wants some: free on this machine, and not assigned to
    /// another live run.
    async fn free_ports(
        &self,
        id: AttemptId,
        mut ports: Ports,
    ) -> Result<Option<PortRange>, NotLaunched> {
        for _ in 0..PORT_TRIES_MAX {
            let range = match ports {
                Ports::NotWanted => return Ok(None),
                Ports::Missing(count) => return Err(NotLaunched::Ports(count)),
                Ports::Allocated(range) => range,
            };
            let Some(taken) = ports::first_taken(range) else {
                return Ok(Some(range));
            };
            let (run, count) = (id.run, range.count);
            let next = self
                .store
                .write(move |tx| tx.allocate_ports(run, count, taken.saturating_add(1)))
                .await
                .map_err(OpError::from)?;
            ports = next.map_or(Ports::Missing(count), Ports::Allocated);
        }
        match ports {
            Ports::NotWanted => Ok(None),
            Ports::Missing(count) => Err(NotLaunched::Ports(count)),
            Ports::Allocated(range) => Err(NotLaunched::Ports(range.count)),
        }
    }

    /// Reads the values of the variables that the dispatcher set for a run.
    async fn variables_of(
        &self,
        input: &RunInput,
    ) -> Result<BTreeMap<String, String>, NotLaunched> {
        let variables = self.store.variables(input.variables.as_deref()).await;
        variables.map_err(|source| NotLaunched::Variables {
            names: input.agent.overrides.env.join(", "),
            source,
        })
    }

    /// Reads the stored environment of a run. The variables of all alternative agents are stored,
    /// also for a retry.
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

    /// Decides whether an attempt loads the agent configuration of its directory, and records the
    /// policies and the note about it.
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
            store_repository_policies(&self.store, id.run, &source).await?;
        }
        let TrustDecision { trust, note } = match preset {
            Some(preset) => {
                decide_trust(&self.store, &source, preset, input.agent.trust_repo).await
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
}

impl LaunchPlan {
    /// Composes the order to the attempt's supervisor.
    fn order(self, home: &Home, config: &Config, token: String) -> Order {
        let Self {
            run,
            input,
            preset,
            prompts,
            workspace,
            command,
            env,
            gate,
            trust_repo,
            lease_ms,
        } = self;
        let agent = input.agent;
        Order {
            home: home.dir.clone(),
            run_id: run.id.to_string(),
            run_name: run.name,
            attempt: run.attempt.0,
            agent: run.agent,
            harness: agent.harness.word().to_owned(),
            preset,
            permissions: agent.permissions.word().to_owned(),
            trust_repo,
            session: prompts.session,
            has_tools: agent.has_identity,
            new_session_prompt: prompts.new_session_prompt,
            argv: command.argv,
            args: command.args,
            model: command.model,
            last_args: command.last_args,
            prompt_via: agent.prompt.word().to_owned(),
            prompt: prompts.prompt,
            cwd: PathBuf::from(run.cwd),
            workspace,
            env,
            timeout_ms: agent.timeout_ms,
            active_ms_before: run.active_ms,
            patience_ms: agent.patience_ms,
            stall_ms: agent.stall_ms,
            memory_bytes_max: agent.memory_bytes_max,
            grace_ms: lease_ms.map_or(agent.grace_ms, |ms| agent.grace_ms.min(grace_within(ms))),
            report_grace_ms: agent.report_grace_ms,
            ends_after_report: agent.ends_after_report,
            accept: input.accept,
            answer_bytes_max: prompts.answer_bytes_max,
            log_bytes_max: config.log_bytes_max,
            token,
            containment: config.containment.word().to_owned(),
            fence: fence_order(&agent, run.fence.as_ref(), home, config),
            lease_ms,
            gate,
        }
    }
}

impl CommandLine {
    fn of(agent: &AgentSpec, has_preset: bool) -> Self {
        let AgentOverrides {
            model,
            args: last_args,
            env: _,
        } = agent.overrides.clone();
        let (argv, args) = (agent.command.clone(), agent.args.clone());
        if has_preset {
            return Self {
                argv,
                args,
                model,
                last_args,
            };
        }
        Self {
            argv: [argv, args, last_args].concat(),
            args: Vec::new(),
            model,
            last_args: Vec::new(),
        }
    }

    /// Replaces the program of a configured agent by its path on this machine.
    fn resolve_program(
        &mut self,
        id: AttemptId,
        config: &Config,
        agent: &AgentSpec,
        env: &BTreeMap<String, String>,
    ) {
        let (Some(entry), Some(first)) = (config.agents.get(&agent.name), self.argv.first_mut())
        else {
            return;
        };
        let entry = AgentEntry {
            spec: agent.clone(),
            ..entry.clone()
        };
        match programs::program(&entry, env.get("PATH").map_or("", String::as_str)) {
            Ok(Some(found)) => *first = found.display().to_string(),
            // The supervisor resolves the program again and reports the problem.
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(attempt = %id, ?error, "the agent's program cannot be resolved")
            }
        }
    }
}

/// Adds the variables of this machine that every agent gets. A runner has its own programs and
/// directories.
fn set_machine_variables(stored: &mut BTreeMap<String, String>, is_on_runner: bool) {
    if is_on_runner {
        stored.retain(|name, _| !crate::config::is_agent_variable(name));
        return;
    }
    for (name, value) in crate::config::base_env() {
        stored.entry(name).or_insert(value);
    }
}

/// Finds the run that a workspace is of.
fn lookup_shared(connection: &Connection, run_id: &str) -> Result<Option<Run>, StoreError> {
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
    // Settings outside the home can contain secrets, and so can files beside them in a directory of
    // Adjutant.
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

/// Returns the environment of an attempt's agent, without the variables that the dispatcher set for
/// the run.
fn attempt_env(
    config: &Config,
    run: &Run,
    input: &RunInput,
    stored: &BTreeMap<String, String>,
    assigned: Assigned,
) -> BTreeMap<String, String> {
    let Assigned {
        caches,
        ports,
        slots,
    } = assigned;
    let mut env = programs::own_env(&input.agent, stored.clone());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::fixture::new_run;
    use adjutant_core::Principal;

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| (*text).to_owned()).collect()
    }

    fn agent() -> AgentSpec {
        AgentSpec {
            command: texts(&["tool"]),
            args: texts(&["--mine"]),
            overrides: AgentOverrides {
                args: texts(&["--last"]),
                ..AgentOverrides::default()
            },
            ..new_run(&Principal::Person, None).input.agent
        }
    }

    #[test]
    fn preset_places_the_arguments_of_an_agent() {
        let command = CommandLine::of(&agent(), true);
        assert_eq!(command.argv, texts(&["tool"]));
        assert_eq!(command.args, texts(&["--mine"]));
        assert_eq!(command.last_args, texts(&["--last"]));
    }

    #[test]
    fn without_a_preset_arguments_follow_the_program() {
        let command = CommandLine::of(&agent(), false);
        assert_eq!(command.argv, texts(&["tool", "--mine", "--last"]));
        assert!(command.args.is_empty() && command.last_args.is_empty());
    }

    #[test]
    fn shared_workspace_must_be_where_the_attempt_is() {
        assert_eq!(PlaceProblem::of_shared("amy", None, false), None);
        let of_hub = PlaceProblem::of_shared("amy", None, true).expect("a problem");
        assert_eq!(
            of_hub.to_string(),
            "it would work in the workspace of amy, which is not on a runner: use another pool"
        );
        for is_on_runner in [true, false] {
            let elsewhere = PlaceProblem::of_shared("amy", Some("rack".to_owned()), is_on_runner);
            assert_eq!(
                elsewhere.expect("a problem").to_string(),
                "it would work in the workspace of amy, which is on the runner rack: start a run of its own"
            );
        }
    }

    #[test]
    fn runner_gets_no_variables_of_this_machine() {
        let mut stored: BTreeMap<String, String> = [("PATH", "/here"), ("API_KEY", "secret")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        set_machine_variables(&mut stored, true);
        assert_eq!(stored.into_keys().collect::<Vec<_>>(), ["API_KEY"]);
    }
}
