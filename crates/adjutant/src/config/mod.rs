//! The only reader of environment and configuration files.
//!
//! A home is one directory that holds everything: store, socket, locks, runs, logs. The
//! configuration is one TOML file, read anew for each dispatch, so that a change needs no restart.

mod agent_env;
mod builtin;
mod chats;
mod duration;
mod edit;
mod env_pass;
mod environment;
mod error;
mod file;
mod home;
mod problems;
mod stamp;
mod webhooks;

use adjutant_core::words;
pub use agent_env::{base_env, dispatch_env, env_for, is_credential, is_for_agent, is_kept_apart};
pub use chats::{Chats, Template, Window};
pub use duration::{duration_ms, duration_text};
pub use edit::{AddError, NewAgent, add_agent};
pub use env_pass::check as check_env_pass;
pub use environment::{guard_env, hub_env, text_variable, whole_env};
pub use error::ConfigError;
pub use home::{Home, HomeError, memory_wanted, want_ephemeral};
pub use stamp::Stamp;
pub use webhooks::Webhook;

use crate::files;
use crate::preset::{self, Preset};
use adjutant_core::limits;
use adjutant_core::rate_limit::RetryPolicy;
use adjutant_core::tree::TreeLimits;
use adjutant_core::{AgentName, AgentSpec, HarnessKind, Permissions, PromptVia};
use builtin::{builtin_echo, of_preset, prompt_of};
use environment::variable;
use file::{FileAgent, FileConfig};
use problems::Problem;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the configuration file says, with the built-in values where it says nothing.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file, whether it is there or not.
    pub path: PathBuf,
    pub exists: bool,
    pub live_runs_max: u64,
    /// The hub ends after this long without anything to do. `None`: never.
    pub idle_exit_ms: Option<i64>,
    pub expiry_ms: i64,
    pub stopped_retention_ms: i64,
    /// Finished runs are removed after this long. `None`: never.
    pub finished_retention_ms: Option<i64>,
    pub log_bytes_max: u64,
    /// `auto`, `pid_namespace` or `subreaper`.
    pub containment: Containment,
    /// A second live run in one directory is refused.
    pub refuse_shared_directory: bool,
    /// How large a tree of delegated runs may become.
    pub tree: TreeLimits,
    /// How runs wait for their vendors' limits to end.
    pub patience: RetryPolicy,
    pub default_agent: Option<String>,
    pub agents: BTreeMap<AgentName, AgentEntry>,
    pub chats: Chats,
    /// Who is told what happens.
    pub webhooks: Vec<Webhook>,
}

/// The source of an agent that nobody declared.
pub const BUILT_IN: &str = "built-in";

/// An agent and where it is declared.
#[derive(Debug, Clone)]
pub struct AgentEntry {
    pub spec: AgentSpec,
    /// `built-in`, or the file.
    pub source: String,
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

const LIVE_RUNS_MAX_DEFAULT: u64 = 16;
const LOG_BYTES_MAX_DEFAULT: u64 = 64 * 1024 * 1024;
const LOG_BYTES_MIN: u64 = 64 * 1024;
/// Largest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const IDLE_EXIT_MS_DEFAULT: i64 = 30 * 60 * 1000;
const FINISHED_RETENTION_MS_DEFAULT: i64 = 30 * 24 * 60 * 60 * 1000;

impl Config {
    /// Names the configuration file: `ADJ_CONFIG`, else `config.toml` in `ADJ_HOME` when that is
    /// set, else `adjutant/config.toml` in the user's configuration directory.
    #[must_use]
    pub fn path(home: &Home) -> PathBuf {
        if let Some(path) = variable("ADJ_CONFIG").map(PathBuf::from) {
            // The hub, which is given it, works in another directory.
            return std::path::absolute(&path).unwrap_or(path);
        }
        if let Some(dir) = variable("ADJ_HOME") {
            return Home::at(Path::new(&dir)).map_or_else(|_| home.dir.clone(), |home| home.dir).join("config.toml");
        }
        let absolute = |name| variable(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config"))).unwrap_or_else(|| home.dir.clone());
        base.join("adjutant").join("config.toml")
    }

    /// Reads the configuration; a missing file is an empty one.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, or a value is not usable: nothing of it is used then.
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
            // These name the file themselves.
            Err(error) if files::is_shortage(&error) => Err(ConfigError::Shortage { path, source: Arc::new(error) }),
            Err(error) => Err(ConfigError::Io { message: error.to_string() }),
        }
    }

    /// Returns what holds without a file.
    #[must_use]
    pub fn builtin(home: &Home) -> Self {
        Self::parse(Self::path(home), "", false).expect("an empty configuration is a good one")
    }

    fn parse(path: PathBuf, text: &str, exists: bool) -> Result<Self, ConfigError> {
        let file: FileConfig = problems::read(text).map_err(|problems| ConfigError::all(&path, &problems))?;
        let value = |field: &str, problem: String| ConfigError::Value { path: path.clone(), field: field.to_owned(), problem };
        let mut wrong: Vec<ConfigError> = Vec::new();
        let duration = |field: &str, text: Option<&str>, default: i64| match text {
            Some(text) => duration_ms(text).map_err(|problem| value(field, problem)),
            None => Ok(default),
        };
        let optional = |field: &str, text: Option<&str>, default: i64| match text {
            Some("never") => Ok(None),
            other => duration(field, other, default).map(Some),
        };
        let mut agents = BTreeMap::new();
        let echo = builtin_echo();
        agents.insert(echo.name.clone(), AgentEntry { spec: echo, source: BUILT_IN.to_owned() });
        for preset in preset::all() {
            let spec = of_preset(AgentName::parse(&preset.name).expect("a valid name"), preset);
            agents.insert(spec.name.clone(), AgentEntry { spec, source: BUILT_IN.to_owned() });
        }
        let table: toml::Table = text.parse().unwrap_or_default();
        let mut presets = BTreeMap::new();
        for (name, preset) in &file.presets {
            let field = format!("presets.{name}");
            wrong.extend(env_pass::check(&preset.env_pass).err().map(|problem| value(&format!("{field}.env_pass"), problem)));
            let said = table.get("presets").and_then(|presets| presets.get(name)?.as_table());
            let is_said = |key: &str| said.is_some_and(|said| said.contains_key(key));
            presets.insert(name.clone(), preset.clone().with_defaults(&is_said).complete(name));
        }
        let read_agent = |name: &str, agent: &FileAgent| -> Result<(AgentName, AgentEntry), ConfigError> {
            let field = format!("agents.{name}");
            env_pass::check(&agent.env_pass).map_err(|problem| value(&format!("{field}.env_pass"), problem))?;
            let name = AgentName::parse(name).map_err(|error| value(&field, error.to_string()))?;
            let declared = presets.get(&agent.harness).cloned();
            let any_acp = || (agent.harness == preset::ACP).then(|| preset::acp().clone());
            let preset = declared.or_else(|| preset::builtin(&agent.harness)).or_else(any_acp);
            let harness = match (agent.harness.as_str(), &preset) {
                (_, Some(_)) => HarnessKind::Vendor,
                ("plain", None) => HarnessKind::Plain,
                ("echo", None) => HarnessKind::Echo,
                (other, None) => {
                    let known = preset::names().collect::<Vec<_>>().join(", ");
                    return Err(value(
                        &format!("{field}.harness"),
                        format!("no harness {other:?}: use acp, plain, echo, {known}, or a name under [presets]"),
                    ));
                }
            };
            let has_no_program = agent.command.is_empty() && preset.as_ref().is_none_or(|preset| preset.command.is_empty());
            if harness != HarnessKind::Echo && has_no_program {
                return Err(value(&format!("{field}.command"), "this agent needs its program, as command = [\"program\"]".to_owned()));
            }
            let prompt = match (agent.prompt.as_deref(), &preset) {
                (None, Some(preset)) => prompt_of(preset),
                (Some(_), Some(_)) => return Err(value(&format!("{field}.prompt"), format!("the preset {} says how", agent.harness))),
                (None | Some("stdin"), None) => PromptVia::Stdin,
                (Some("arg"), None) => PromptVia::Arg,
                (Some("stream"), None) if harness == HarnessKind::Echo => PromptVia::Stream,
                (Some(other), None) => return Err(value(&format!("{field}.prompt"), format!("no way {other:?}: use \"stdin\" or \"arg\""))),
            };
            let permissions = match agent.permissions.as_deref() {
                None => Permissions::default(),
                Some(word) => Permissions::from_word(word)
                    .ok_or_else(|| value(&format!("{field}.permissions"), format!("no profile {word:?}: use read, edit or full")))?,
            };
            let command = match &preset {
                Some(preset) if agent.command.is_empty() => preset.command.clone(),
                _ => agent.command.clone(),
            };
            let spec = AgentSpec {
                name: name.clone(),
                harness,
                preset: preset.as_ref().map_or_else(String::new, Preset::to_text),
                permissions,
                trust_repo: agent.trust_repo,
                command,
                args: agent.args.clone(),
                prompt,
                env: agent.env.clone(),
                env_pass: agent.env_pass.clone(),
                description: match (&preset, agent.description.as_str()) {
                    (Some(preset), "") if preset.name != preset::ACP => preset.title.clone(),
                    (_, description) => description.to_owned(),
                },
                timeout_ms: agent.timeout.as_deref().map(duration_ms).transpose().map_err(|problem| value(&format!("{field}.timeout"), problem))?,
                patience_ms: duration(&format!("{field}.patience"), agent.patience.as_deref(), limits::PATIENCE_MS_DEFAULT)?,
                stall_ms: optional(&format!("{field}.stall"), agent.stall.as_deref(), limits::STALL_MS_DEFAULT)?,
                grace_ms: duration(&format!("{field}.grace"), agent.grace.as_deref(), limits::GRACE_MS_DEFAULT)?,
            };
            Ok((name, AgentEntry { spec, source: path.display().to_string() }))
        };
        for (name, agent) in &file.agents {
            match read_agent(name, agent) {
                Ok((name, entry)) => drop(agents.insert(name, entry)),
                Err(error) => wrong.push(error),
            }
            // Several of its values can be wrong.
            let durations = [("timeout", &agent.timeout), ("patience", &agent.patience), ("stall", &agent.stall), ("grace", &agent.grace)];
            for (key, text) in durations {
                let Some(text) = text.as_deref().filter(|text| key != "stall" || *text != "never") else { continue };
                wrong.extend(duration_ms(text).err().map(|problem| value(&format!("agents.{name}.{key}"), problem)));
            }
        }
        if !wrong.is_empty() {
            let mut problems: Vec<Problem> = wrong.iter().filter_map(|error| error.to_problem(text)).collect();
            problems.sort_by_key(|problem| problem.line);
            problems.dedup();
            return Err(ConfigError::all(&path, &problems));
        }
        if let Some(default) = &file.default_agent
            && !agents.keys().any(|name| name.as_str() == default)
        {
            return Err(value("default_agent", format!("no agent {default:?} is declared")));
        }
        let live_runs_max = file.live_runs_max.unwrap_or(LIVE_RUNS_MAX_DEFAULT);
        if live_runs_max == 0 {
            return Err(value("live_runs_max", "at least 1".to_owned()));
        }
        let log_bytes_max = file.log_bytes_max.unwrap_or(LOG_BYTES_MAX_DEFAULT);
        if log_bytes_max < LOG_BYTES_MIN {
            return Err(value("log_bytes_max", format!("at least {LOG_BYTES_MIN}")));
        }
        let built_in = RetryPolicy::default();
        let patience = RetryPolicy {
            times_max: file.rate_limits.times_max.unwrap_or(built_in.times_max),
            pause_ms: duration("rate_limits.pause", file.rate_limits.pause.as_deref(), built_in.pause_ms)?,
            pause_ms_max: duration("rate_limits.pause_max", file.rate_limits.pause_max.as_deref(), built_in.pause_ms_max)?,
        };
        let declared = |name: &str| agents.keys().find(|agent| agent.as_str() == name).cloned();
        let chats = Chats::of(file.chats, &declared).map_err(|(field, problem)| value(&field, problem))?;
        let webhooks = webhooks::read(file.webhooks, &path).map_err(|(field, problem)| value(&field, problem))?;
        Ok(Self {
            chats,
            webhooks,
            exists,
            live_runs_max,
            idle_exit_ms: optional("idle_exit", file.idle_exit.as_deref(), IDLE_EXIT_MS_DEFAULT)?,
            expiry_ms: duration("expiry", file.expiry.as_deref(), limits::EXPIRY_MS_DEFAULT)?,
            stopped_retention_ms: duration("stopped_retention", file.stopped_retention.as_deref(), limits::STOPPED_RETENTION_MS_DEFAULT)?,
            finished_retention_ms: optional("finished_retention", file.finished_retention.as_deref(), FINISHED_RETENTION_MS_DEFAULT)?,
            log_bytes_max,
            containment: file.containment,
            refuse_shared_directory: file.refuse_shared_directory,
            tree: file.delegation.limits(),
            patience,
            default_agent: file.default_agent,
            agents,
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_names_its_field() {
        let parse = |text| Config::parse(PathBuf::from("c.toml"), text, true).map(|_| ()).expect_err("refused").to_string();
        assert!(parse("[agents.x]\nharness = \"plain\"").contains("agents.x.command"));
        assert!(parse("[agents.x]\nharness = \"magic\"").contains("magic"));
        assert!(parse("live_runs_max = 0").contains("live_runs_max"));
        assert!(parse("colour = 1").contains("colour"));
        let text = "[agents.a]\nharness = \"magic\"\ncommand = [\"x\"]\ntimeout = \"soon\"\n[agents.b]\nharness = \"plain\"\n\n[agents.c]\nharness = \"echo\"\nenv_pass = [\"*\"]\ngrace = \"1y\"\n";
        let all = parse(text);
        for expected in [
            "5 problems: ",
            "line 2: agents.a.harness: no harness",
            "line 4: agents.a.timeout: ",
            "line 5: agents.b.command: ",
            "line 10: agents.c.env_pass: ",
            "line 11: agents.c.grace: ",
        ] {
            assert!(all.contains(expected), "{expected:?} is not in {all}");
        }
    }
}
