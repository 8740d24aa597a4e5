//! Reads the environment and the configuration file. No other module does.
//!
//! A home is a directory with all state: store, socket, locks, runs, logs. The configuration is one
//! TOML file, read for each dispatch, so that a change needs no restart.

mod agent_env;
mod agents;
mod builtin;
mod chats;
mod declared;
mod edit;
mod env_pass;
mod environment;
mod error;
mod escalation;
mod fence;
mod file;
mod gate;
mod home;
mod http;
mod launcher;
mod log_store;
mod notify;
mod policies;
mod policy_set;
mod pools;
mod pressure;
mod prices;
mod problems;
mod programs;
mod schema;
mod stamp;
mod store;
mod times;
mod values;
mod webhooks;
mod workspaces;

pub use crate::files::FileSystem;
use adjutant_core::words;
pub use agent_env::{
    base_env, dispatch_env, env_for, is_agent_variable, is_credential, is_for_agent,
    is_stored_as_credential,
};
pub use agents::{AgentEntry, BUILT_IN};
pub use chats::{Chats, Template, Window};
pub use edit::{AddError, NewAgent, with_agent};
pub use env_pass::{EnvPassProblem, check as check_env_pass};
pub use environment::{
    git_env, guard_env, hub_env, launcher_env, mail_env, notify_env, text_variable, whole_env,
};
pub use error::ConfigError;
pub use gate::{GateSettings, KeySource};
pub use home::{Home, HomeError, request_ephemeral, requested_memory_dir};
pub use http::{HttpConfig, HttpProblem, HttpSettings, TlsFiles, listen_address};
pub use launcher::{LaunchInputError, LaunchValues, Launcher};
pub use log_store::{Bucket, CredentialsError, InvalidAssignment, LogStoreAddress, Provider};
pub use notify::NotifySettings;
pub use policies::{RepositoryPolicies, policies_of_repository};
pub use policy_set::{PolicySet, PolicySetError};
pub use pools::PoolEntry;
pub use prices::Prices;
pub use programs::find_program;
pub use schema::{Setting, documented_default, json_schema};
pub use stamp::Stamp;
pub use store::{Password, PasswordError, PostgresAddress, PrivateFileError, StoreProblem};
pub use webhooks::{
    Address, Notices, Service, Target, Webhook, WebhookProblem, topic_of, webhook_address,
};
pub use workspaces::{RepositoryWorkspaces, Workspaces};

use crate::files;
use adjutant_core::escalation::EscalationStep;
use adjutant_core::pressure::PressureLimits;
use adjutant_core::rate_limit::RetryPolicy;
use adjutant_core::tree::TreeLimits;
use adjutant_core::{AgentName, Budget, PoolName};
use environment::variable;
use file::FileConfig;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use times::Times;
use values::UnusableValues;

/// The configuration file, with defaults for missing values.
#[derive(Debug, Clone)]
pub struct Config {
    /// The path of the file, which may not exist.
    pub path: PathBuf,
    pub exists: bool,
    pub live_runs_max: u64,
    /// The address for callers over HTTP. `None`: the hub does not listen.
    pub listen: Option<SocketAddr>,
    /// The settings of every address for callers over HTTP.
    pub http: HttpConfig,
    /// The database of the store. `None`: a file in the home.
    pub store: Option<PostgresAddress>,
    /// Other hubs use the same store: one of them is the leader, and all pools are pools for
    /// runners.
    pub store_shared: bool,
    /// Where the hub puts the logs of ended attempts. `None`: they stay in its home.
    pub log_store: Option<LogStoreAddress>,
    pub times: Times,
    pub log_bytes_max: u64,
    /// `auto`, `pid_namespace` or `subreaper`.
    pub containment: Containment,
    /// Refuse a second live run in the same directory.
    pub refuse_shared_directory: bool,
    /// Limits of a tree of delegated runs.
    pub tree: TreeLimits,
    /// The limits for the load of the machine.
    pub pressure: PressureLimits,
    /// How runs wait for vendors' usage limits to reset.
    pub rate_limits: RetryPolicy,
    pub default_agent: Option<String>,
    pub agents: BTreeMap<AgentName, AgentEntry>,
    /// The pools, with the default one.
    pub pools: BTreeMap<PoolName, PoolEntry>,
    pub chats: Chats,
    /// The configured webhooks, and the receivers of `[notify]`.
    pub webhooks: Vec<Webhook>,
    /// How commands on a terminal notify the person.
    pub notify: NotifySettings,
    /// The rules that answer requests for approval.
    pub policies: PolicySet,
    /// The people to whom open requests are escalated, in order.
    pub escalation: Vec<EscalationStep>,
    /// The settings of workspaces.
    pub workspaces: Workspaces,
    /// The prices of models.
    pub prices: Arc<Prices>,
    /// The general budget of dispatched runs.
    budget: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Containment {
    #[default]
    Auto,
    PidNamespace,
    Subreaper,
}

words!(Containment { Auto = "auto", PidNamespace = "pid_namespace", Subreaper = "subreaper" });

/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

impl Config {
    /// Returns the path of the configuration file: `ADJ_CONFIG`, otherwise `config.toml` in
    /// `ADJ_HOME` if set, otherwise `adjutant/config.toml` in the user's configuration directory.
    #[must_use]
    pub fn path(home: &Home) -> PathBuf {
        if let Some(path) = variable("ADJ_CONFIG").map(PathBuf::from) {
            // The hub receives the path and has another working directory.
            return std::path::absolute(&path).unwrap_or(path);
        }
        if let Some(dir) = variable("ADJ_HOME") {
            return Home::at(Path::new(&dir))
                .map_or_else(|_| home.dir.clone(), |home| home.dir)
                .join("config.toml");
        }
        let absolute = |name| {
            variable(name)
                .map(PathBuf::from)
                .filter(|dir| dir.is_absolute())
        };
        let base = absolute("XDG_CONFIG_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".config")))
            .unwrap_or_else(|| home.dir.clone());
        base.join("adjutant").join("config.toml")
    }

    /// Reads the configuration. A missing file counts as empty.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, or has an invalid value. Nothing of it is used then.
    pub fn load(home: &Home) -> Result<Self, ConfigError> {
        let path = Self::path(home);
        match files::read_named(&path, FILE_BYTES_MAX) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Self::parse(path, &text, true),
                Err(error) => {
                    let message = format!("not UTF-8 (byte {})", error.utf8_error().valid_up_to());
                    Err(ConfigError::Syntax { path, message })
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::parse(path, "", false),
            // These errors already contain the path.
            Err(error) if files::is_shortage(&error) => Err(ConfigError::Shortage {
                path,
                source: Arc::new(error),
            }),
            Err(error) => Err(ConfigError::Io {
                message: error.to_string(),
            }),
        }
    }

    /// Reads where the store is. If the configuration is invalid, the store is in the home unless
    /// the file names another place.
    ///
    /// # Errors
    /// The file is invalid and has the setting `store`, or may have it: the hub must not open
    /// another store instead.
    pub fn store_of(home: &Home) -> Result<Option<PostgresAddress>, ConfigError> {
        match Self::load(home) {
            Ok(config) => Ok(config.store),
            // Without a database of its own, the home may have one on a server.
            Err(error)
                if Self::may_have(home, "store").unwrap_or_else(|| !home.database().exists()) =>
            {
                Err(error)
            }
            Err(_) => Ok(None),
        }
    }

    /// Reads where the logs of ended attempts are put.
    ///
    /// # Errors
    /// The file is invalid and has the setting, or may have it: logs that are there would count as
    /// missing.
    pub fn log_store_of(home: &Home) -> Result<Option<LogStoreAddress>, ConfigError> {
        match Self::load(home) {
            Ok(config) => Ok(config.log_store),
            Err(error) if Self::may_have(home, "log_store").unwrap_or(false) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Returns whether an invalid file has a setting. `None`: it cannot be read.
    fn may_have(home: &Home, setting: &str) -> Option<bool> {
        let text = files::read_named(&Self::path(home), FILE_BYTES_MAX).ok()?;
        let text = String::from_utf8_lossy(&text);
        let (table, _) = toml::de::DeTable::parse_recoverable(&text);
        Some(table.get_ref().contains_key(setting))
    }

    /// Returns whether an invalid file may have the setting `listen`.
    #[must_use]
    pub fn may_listen(home: &Home) -> bool {
        Self::may_have(home, "listen").unwrap_or(true)
    }

    /// Returns the configuration without a file.
    #[must_use]
    pub fn builtin(home: &Home) -> Self {
        Self::parse(Self::path(home), "", false).expect("an empty configuration is valid")
    }

    /// Returns the pool of an agent's runs.
    #[must_use]
    pub fn pool_of(&self, agent: &AgentName) -> PoolName {
        let entry = self.agents.get(agent);
        entry
            .and_then(|entry| entry.pool.clone())
            .unwrap_or_default()
    }

    /// Returns the files with the keys of gates.
    pub fn key_files(&self) -> impl Iterator<Item = PathBuf> {
        let gates = self.agents.values().filter_map(|entry| entry.gate.as_ref());
        gates.filter_map(|gate| match &gate.key {
            KeySource::File(file) => Some(file.clone()),
            KeySource::Env(_) => None,
        })
    }

    /// Returns the gate of an agent. `None`: it has none.
    #[must_use]
    pub fn gate_of(&self, agent: &AgentName) -> Option<&GateSettings> {
        self.agents.get(agent)?.gate.as_ref()
    }

    /// Returns what a dispatched run of an agent in a pool may use: by the pool, else the agent,
    /// else in general.
    #[must_use]
    pub fn budget_of(&self, agent: &AgentName, pool: &PoolName) -> Budget {
        let of_agent = self
            .agents
            .get(agent)
            .map_or_else(Budget::default, |entry| entry.budget);
        self.pools
            .get(pool)
            .map_or_else(Budget::default, |pool| pool.budget)
            .or(of_agent)
            .or(self.budget)
    }

    /// Checks the text of a configuration file.
    ///
    /// # Errors
    /// All problems of the text, each with its line.
    pub fn check(path: &Path, text: &str) -> Result<(), ConfigError> {
        Self::parse(path.to_owned(), text, true).map(drop)
    }

    fn parse(path: PathBuf, text: &str, exists: bool) -> Result<Self, ConfigError> {
        let mut structure = problems::read::<FileConfig>(text);
        let file = error::take_file(&mut structure, &path)?;
        let mut unusable = UnusableValues::default();
        let config = Self::from_file(path, file, text, exists, &mut unusable);
        unusable
            .into_error(&config.path, text, &structure)
            .map_or(Ok(config), Err)
    }

    /// Reads each part of a file. Invalid values are reported, and replaced.
    fn from_file(
        path: PathBuf,
        file: FileConfig,
        text: &str,
        exists: bool,
        unusable: &mut UnusableValues,
    ) -> Self {
        let mut agents = agents::read(&file, text, &path, unusable);
        let named = |name: &str| agents.named(name);
        let live_runs_max = file.live_runs_max(unusable);
        let log_bytes_max = file.log_bytes_max(unusable);
        let times = times::read(&file, unusable);
        let rate_limits = file.rate_limits.policy(unusable);
        let store = store::read(file.store.as_deref(), file.store_shared, unusable);
        // A relative path starts at the directory of the file.
        let dir = path.parent().unwrap_or(&path);
        let log_store = log_store::read(
            file.log_store.as_deref(),
            file.log_store_credentials.as_deref(),
            dir,
            unusable,
        );
        let mut pools = pools::pools(&file.pools, live_runs_max.max(1), dir, &named, unusable);
        pools::place(&mut pools, file.store_shared, unusable);
        let pool_keys = agents::values(&file.agents, |agent| agent.pool.as_ref());
        let agent_pools = pools::pools_of_agents(pool_keys, &pools, unusable);
        let priced_as = agents::values(&file.agents, |agent| agent.priced_as.as_ref());
        let agent_budgets = agents::budgets(&file.agents, unusable);
        let listening = http::FileHttp {
            listen: file.listen.as_deref(),
            public_url: file.public_url.as_deref(),
            without_tls: file.listen_without_tls,
            tls: file.tls,
        };
        let (listen, http) = http::read(listening, &path, unusable);
        let (notify, receivers) = notify::read(file.notify, unusable);
        let mut webhooks = webhooks::read(file.webhooks, &path, unusable);
        webhooks.extend(receivers);
        let chats = Chats::of(file.chats, &named, unusable);
        agents.set_terms(agent_pools, agent_budgets);
        Self {
            budget: unusable.budget("budget", file.budget.as_deref()),
            prices: Arc::new(prices::read(file.prices, priced_as, unusable)),
            pools,
            chats,
            webhooks,
            notify,
            policies: PolicySet::of(file.policies, unusable),
            escalation: escalation::read(file.escalation, unusable),
            workspaces: workspaces::read(file.workspaces, unusable),
            exists,
            live_runs_max,
            listen,
            http,
            store,
            store_shared: file.store_shared,
            log_store,
            times,
            log_bytes_max,
            containment: file.containment,
            refuse_shared_directory: file.refuse_shared_directory,
            tree: file.delegation.limits(),
            pressure: pressure::read(file.pressure, unusable),
            rate_limits,
            default_agent: file.default_agent,
            agents: agents.entries,
            path,
        }
    }
}

/// Parses the policies in the text of a configuration, or returns its problem.
///
/// # Errors
/// The text is not a valid configuration.
pub fn policies_of(file: &str, text: &str) -> Result<PolicySet, ConfigError> {
    Config::parse(PathBuf::from(file), text, true).map(|config| config.policies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_types_do_not_hide_invalid_values() {
        let text = "live_runs_max = \"many\"\nexpiry = \"soon\"\nbudget = 5\ndefault_agent = \"a\"\n[pools.p]\nslots = -1\nagents = [\"nobody\"]\n\
                    [pools.q]\nslots = 2.5\nbuild_jobs = 0\n[agents.a]\nharness = 1\npermissions = \"all\"\nmemory = 5\n[agents.b]\nharness = \"plain\"\n\
                    command = [\"x\"]\npool = \"r\"\n[prices]\ndate = \"2026-11-23\"\n[prices.models.m]\ninput = \"a\"\noutput = 1\n";
        let all = Config::parse(PathBuf::from("c.toml"), text, true)
            .map(|_| ())
            .expect_err("refused")
            .to_string();
        for expected in [
            "c.toml: 12 problems: line 1: live_runs_max: use a whole number that is not negative instead of the text \"many\"; ",
            "line 2: expiry: ",
            "line 3: budget: use a text in quotes instead of 5; ",
            "line 6: pools.p.slots: use a whole number that is not negative instead of -1; ",
            "line 7: pools.p.agents: ",
            "line 9: pools.q.slots: use a whole number that is not negative instead of 2.5; ",
            "line 10: pools.q.build_jobs: use 1 to ",
            "line 12: agents.a.harness: use a text in quotes instead of 1; ",
            "line 13: agents.a.permissions: unknown profile ",
            "line 14: agents.a.memory: use a text in quotes instead of 5; ",
            "line 18: agents.b.pool: ",
            "line 22: prices.models.m.input: use a number instead of the text \"a\"",
        ] {
            assert!(all.contains(expected), "{expected:?} is not in {all}");
        }
        let without_the_table = Config::parse(
            PathBuf::from("c.toml"),
            "agents = 1\ndefault_agent = \"a\"\n",
            true,
        )
        .map(|_| ())
        .expect_err("refused");
        assert_eq!(
            without_the_table.to_string(),
            "c.toml: line 1: agents: use a table instead of 1"
        );
    }

    #[test]
    fn invalid_value_names_its_field() {
        let parse = |text| {
            Config::parse(PathBuf::from("c.toml"), text, true)
                .map(|_| ())
                .expect_err("refused")
                .to_string()
        };
        assert!(parse("[agents.x]\nharness = \"plain\"").contains("agents.x.command"));
        assert!(
            parse("\n[agents.x]\ntimeout = \"5m\"")
                .contains("line 2: agents.x.harness: missing: no preset is called x")
        );
        for text in [
            "[agents.plain]\ntimeout = \"5m\"",
            "[agents.acp]\ntimeout = \"5m\"",
            "[agents.claud]\ntimeout = \"5m\"",
        ] {
            assert!(parse(text).contains(".harness: missing"), "{text}");
        }
        assert!(parse("[agents.x]\nharness = \"magic\"").contains("magic"));
        assert!(parse("live_runs_max = 0").contains("live_runs_max"));
        assert!(parse("colour = 1").contains("colour"));
        let text = "default_agent = \"none\"\nlive_runs_max = 0\nexpiry = \"soon\"\n[rate_limits]\npause = \"1y\"\n[chats]\nturns_max = 0\n\
                    default_responder = \"nobody\"\n[chats.templates.x]\nturns_max = 0\n[[webhooks]]\nurl = \"https://example.org/\"\n\
                    secret_file = \"s\"\n[[webhooks]]\nsecret_file = \"s\"\nurl = \"x\"\nevents = [\"y\"]\n[agents.a]\nharness = \"magic\"\n";
        let all = parse(text);
        for expected in [
            "10 problems: ",
            "line 1: default_agent: no agent",
            "line 2: live_runs_max: ",
            "line 3: expiry: ",
            "line 5: rate_limits.pause: ",
            "line 7: chats.turns_max: ",
            "line 8: chats.default_responder: no agent",
            "line 10: chats.templates.x.turns_max: ",
            "line 16: webhooks[1].url: ",
            "line 17: webhooks[1].events: ",
            "line 19: agents.a.harness: ",
        ] {
            assert!(all.contains(expected), "{expected:?} is not in {all}");
        }
        let text = "[agents.a]\nharness = \"magic\"\ncommand = [\"x\"]\ntimeout = \"soon\"\n[agents.b]\nharness = \"plain\"\n\n[agents.c]\nharness = \"echo\"\nenv_pass = [\"*\"]\ngrace = \"1y\"\n";
        let all = parse(text);
        for expected in [
            "5 problems: ",
            "line 2: agents.a.harness: unknown harness",
            "line 4: agents.a.timeout: ",
            "line 5: agents.b.command: ",
            "line 10: agents.c.env_pass: ",
            "line 11: agents.c.grace: ",
        ] {
            assert!(all.contains(expected), "{expected:?} is not in {all}");
        }
    }
}
