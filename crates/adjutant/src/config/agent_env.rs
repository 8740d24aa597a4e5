//! What agents get of their dispatcher's environment, and what of it is a credential.

use super::environment::variables;
use super::{Config, Home, env_pass};
use crate::preset::{self, Preset};
use adjutant_core::AgentSpec;
use std::collections::BTreeMap;

/// Variables of the dispatcher that an agent gets; everything else stays behind.
const AGENT_VARIABLES: [&str; 10] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM"];

/// Returns what an agent dispatched from here is to get of this process' environment, the variables
/// of all vendors and of all declared agents included: the hub gives each agent those of its own.
#[must_use]
pub fn dispatch_env() -> BTreeMap<String, String> {
    let declared = Home::from_env().map(|home| env_pass::declared(&Config::path(&home))).unwrap_or_default();
    env_where(|name| is_agent_variable(name) || preset::is_vendors_variable(name) || preset::passes(&declared, name))
}

/// What the name of a variable that holds a credential is made of.
const CREDENTIAL_WORDS: [&str; 8] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH", "COOKIE"];

/// Tells whether a variable may hold a credential: a vendor's, or one whose name says so. It is kept apart from
/// everything else that is known of a run, and no longer than the run needs it.
#[must_use]
pub fn is_credential(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    CREDENTIAL_WORDS.iter().any(|word| upper.contains(word)) || preset::is_vendors_variable(name)
}

/// Tells whether a variable of a dispatcher is kept as a credential is: all but those that every agent gets.
#[must_use]
pub fn is_stored_as_credential(name: &str) -> bool {
    is_credential(name) || !is_agent_variable(name)
}

/// Returns what an agent with these patterns, and without a preset, gets of this process' environment.
#[must_use]
pub fn env_for(patterns: &[String]) -> BTreeMap<String, String> {
    env_where(|name| is_agent_variable(name) || preset::passes(patterns, name))
}

/// Tells whether an agent gets a variable of its dispatcher: everybody's, and those that it or its preset names.
#[must_use]
pub fn is_for_agent(name: &str, agent: &AgentSpec, preset: Option<&Preset>) -> bool {
    is_agent_variable(name) || preset.is_some_and(|preset| preset.passes(name)) || preset::passes(&agent.env_pass, name)
}

/// Returns what every agent needs of this process' environment.
#[must_use]
pub fn base_env() -> BTreeMap<String, String> {
    env_where(is_agent_variable)
}

fn is_agent_variable(name: &str) -> bool {
    AGENT_VARIABLES.contains(&name) || name.starts_with("LC_")
}

fn env_where(is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    variables().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).filter(|(name, _)| is_wanted(name)).collect()
}
