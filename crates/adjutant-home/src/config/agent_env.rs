//! Which variables of the dispatcher's environment are passed to agents, and which of them are
//! credentials.

use super::environment::variables;
use super::{Config, Home, env_pass};
use crate::preset::{self, Preset};
use adjutant_core::AgentSpec;
use std::collections::BTreeMap;

/// Variables of the dispatcher that are passed to every agent.
const AGENT_VARIABLES: [&str; 10] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM",
];

/// Returns the part of this process' environment that agents may get, including the variables of
/// all vendors and all declared agents. The hub passes each agent only its own.
#[must_use]
pub fn dispatch_env() -> BTreeMap<String, String> {
    let declared = Home::from_env()
        .map(|home| env_pass::declared_patterns(&Config::path(&home)))
        .unwrap_or_default();
    env_where(|name| {
        is_agent_variable(name)
            || preset::is_vendors_variable(name)
            || preset::passes(&declared, name)
    })
}

/// Words in the names of variables that contain credentials.
const CREDENTIAL_WORDS: [&str; 8] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
];

/// Returns whether a variable may contain a credential, by its vendor or its name. Credentials are
/// stored apart from the rest of a run, and no longer than the run needs them.
#[must_use]
pub fn is_credential(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    CREDENTIAL_WORDS.iter().any(|word| upper.contains(word)) || preset::is_vendors_variable(name)
}

/// Returns whether a variable is stored like a credential: all except those that every agent gets.
#[must_use]
pub fn is_stored_as_credential(name: &str) -> bool {
    is_credential(name) || !is_agent_variable(name)
}

/// Returns the part of this process' environment for an agent with these patterns and without a
/// preset.
#[must_use]
pub fn env_for(patterns: &[String]) -> BTreeMap<String, String> {
    env_where(|name| is_agent_variable(name) || preset::passes(patterns, name))
}

/// Returns whether a variable is passed to an agent: because every agent gets it, or because the
/// agent or its preset names it.
#[must_use]
pub fn is_for_agent(name: &str, agent: &AgentSpec, preset: Option<&Preset>) -> bool {
    is_agent_variable(name)
        || preset.is_some_and(|preset| preset.passes(name))
        || preset::passes(&agent.env_pass, name)
}

/// Returns the part of this process' environment that every agent gets.
#[must_use]
pub fn base_env() -> BTreeMap<String, String> {
    env_where(is_agent_variable)
}

/// Returns whether every agent gets this variable, which depends on the machine.
#[must_use]
pub fn is_agent_variable(name: &str) -> bool {
    AGENT_VARIABLES.contains(&name) || name.starts_with("LC_")
}

fn env_where(is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    variables()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_wanted(name))
        .collect()
}
