//! The gate of an attempt: reads its key from the configured place, and keeps it from the agent.

use crate::config::{GateSettings, KeySource};
use crate::files;
use crate::preset::{self, Preset};
use crate::protocol::{GateOrder, Secret};
use adjutant_core::{AgentName, AgentSpec};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Largest file of a key, in bytes.
const KEY_BYTES_MAX: u64 = 16 * 1024;
/// Variables by which programs find a proxy, and those that name hosts reached without one.
const PROXIES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];
const NO_PROXY: [&str; 2] = ["NO_PROXY", "no_proxy"];
const LOOPBACK: &str = "127.0.0.1,localhost";

/// Why an attempt that needs a gate has none. The text is for people, and never contains the key.
#[derive(Debug, thiserror::Error)]
pub(super) enum GateProblem {
    #[error(
        "its agent was to call its model through the gate, and the configuration has no gate for {0} now: correct it (adj config show) and \
         retry, or dispatch the task again to an agent without a gate"
    )]
    NotConfigured(AgentName),
    #[error(
        "its agent has gate = true, but its preset did not support a gate when the run was dispatched: dispatch the task again"
    )]
    Unsupported,
    #[error(
        "the key of its model's API is missing: the variable {0} was not set when the run was dispatched"
    )]
    KeyMissing(String),
    #[error("the key of its model's API cannot be read: {0}")]
    KeyUnreadable(#[source] io::Error),
    #[error(
        "{}, which contains the key of its model's API, is accessible to other users: chmod 600", .0.display()
    )]
    KeyExposed(PathBuf),
    #[error("{} must contain the key of the model's API and nothing else", .0.display())]
    NotAKey(PathBuf),
    #[error("its agent has gate = true, and {name} is not set: {about}")]
    VariableMissing { name: String, about: String },
}

/// Prepares an attempt's gate, and removes from the agent's environment the key and every other way
/// to its vendor. An agent that was dispatched with a gate never starts without one. `stored` is
/// the dispatcher's environment with the key.
///
/// # Errors
/// Why there can be none.
pub(super) fn prepare(
    settings: Option<&GateSettings>,
    agent: &AgentSpec,
    preset: Option<&Preset>,
    stored: &BTreeMap<String, String>,
    env: &mut BTreeMap<String, String>,
) -> Result<Option<GateOrder>, GateProblem> {
    if let Some(name) = agent
        .gate
        .as_ref()
        .and_then(|gate| gate.key_variable.as_ref())
    {
        env.remove(name);
    }
    let Some(settings) = settings else {
        return match &agent.gate {
            None => Ok(None),
            Some(_) => Err(GateProblem::NotConfigured(agent.name.clone())),
        };
    };
    let Some(form) = preset.and_then(|preset| preset.gate.as_ref()) else {
        return Err(GateProblem::Unsupported);
    };
    let key = match &settings.key {
        KeySource::File(file) => key_of_file(file)?,
        KeySource::Env(name) => {
            env.remove(name);
            let key = stored
                .get(name)
                .map(|key| key.trim().to_owned())
                .filter(|key| !key.is_empty());
            key.ok_or_else(|| GateProblem::KeyMissing(name.clone()))?
        }
    };
    env.retain(|name, value| !preset::passes(&form.unset, name) && !value.contains(&key));
    if let Some(name) = form
        .needs
        .iter()
        .find(|name| env.get(*name).is_none_or(|value| value.trim().is_empty()))
    {
        return Err(GateProblem::VariableMissing {
            name: name.clone(),
            about: form.about.replace('`', ""),
        });
    }
    bypass_proxies(env);
    Ok(Some(GateOrder {
        base_url: settings.base_url.to_string(),
        key: Secret(key),
    }))
}

/// Lets programs reach the gate without a proxy, if they use one.
fn bypass_proxies(env: &mut BTreeMap<String, String>) {
    if !PROXIES.iter().any(|name| env.contains_key(*name)) {
        return;
    }
    for name in NO_PROXY {
        let hosts = env.get(name).filter(|hosts| !hosts.is_empty()).map_or_else(
            || LOOPBACK.to_owned(),
            |hosts| format!("{hosts},{LOOPBACK}"),
        );
        env.insert(name.to_owned(), hosts);
    }
}

fn key_of_file(file: &Path) -> Result<String, GateProblem> {
    let opened = files::open_named(file).map_err(GateProblem::KeyUnreadable)?;
    let meta = opened.metadata().map_err(GateProblem::KeyUnreadable)?;
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(GateProblem::KeyExposed(file.to_owned()));
    }
    let mut text = String::new();
    opened
        .take(KEY_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(GateProblem::KeyUnreadable)?;
    let key = text.trim();
    if key.is_empty()
        || text.len() as u64 > KEY_BYTES_MAX
        || !key.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(GateProblem::NotAKey(file.to_owned()));
    }
    Ok(key.to_owned())
}
