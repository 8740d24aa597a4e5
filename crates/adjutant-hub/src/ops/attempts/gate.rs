//! The gate of an attempt: reads its key from the configured place, and keeps it from the agent.

use crate::config::{GateSettings, KeySource};
use crate::files;
use crate::link::{GateOrder, Secret};
use crate::preset::{self, Preset};
use adjutant_core::AgentSpec;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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

/// Prepares an attempt's gate, and removes from the agent's environment the key and every other way to its vendor. An
/// agent that was dispatched with a gate never starts without one. `stored` is the dispatcher's environment with the key.
///
/// # Errors
/// Why there can be none, for people. It does not contain the key.
pub(super) fn prepare(
    settings: Option<&GateSettings>,
    agent: &AgentSpec,
    preset: Option<&Preset>,
    stored: &BTreeMap<String, String>,
    env: &mut BTreeMap<String, String>,
) -> Result<Option<GateOrder>, String> {
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
            Some(_) => Err(format!(
                "its agent was to call its model through the gate, and the configuration has no gate for {0} now: correct it (adj config show) and \
                 retry, or dispatch the task again to an agent without a gate",
                agent.name
            )),
        };
    };
    let Some(form) = preset.and_then(|preset| preset.gate.as_ref()) else {
        return Err(
            "its agent has gate = true, but its preset did not support a gate when the run was dispatched: dispatch the task again".to_owned()
        );
    };
    let key = match &settings.key {
        KeySource::File(file) => key_of_file(file)?,
        KeySource::Env(name) => {
            env.remove(name);
            let key = stored
                .get(name)
                .map(|key| key.trim().to_owned())
                .filter(|key| !key.is_empty());
            key.ok_or_else(|| format!("the key of its model's API is missing: the variable {name} was not set when the run was dispatched"))?
        }
    };
    env.retain(|name, value| !preset::passes(&form.unset, name) && !value.contains(&key));
    if let Some(name) = form
        .needs
        .iter()
        .find(|name| env.get(*name).is_none_or(|value| value.trim().is_empty()))
    {
        return Err(format!(
            "its agent has gate = true, and {name} is not set: {}",
            form.about.replace('`', "")
        ));
    }
    if PROXIES.iter().any(|name| env.contains_key(*name)) {
        for name in NO_PROXY {
            let hosts = env.get(name).filter(|hosts| !hosts.is_empty()).map_or_else(
                || LOOPBACK.to_owned(),
                |hosts| format!("{hosts},{LOOPBACK}"),
            );
            env.insert(name.to_owned(), hosts);
        }
    }
    Ok(Some(GateOrder {
        base_url: settings.base_url.to_string(),
        key: Secret(key),
    }))
}

fn key_of_file(file: &Path) -> Result<String, String> {
    let failed =
        |error: std::io::Error| format!("the key of its model's API cannot be read: {error}");
    let opened = files::open_named(file).map_err(failed)?;
    let meta = opened.metadata().map_err(failed)?;
    if meta.permissions().mode() & 0o077 != 0 {
        return Err(format!(
            "{}, which contains the key of its model's API, is accessible to other users: chmod 600",
            file.display()
        ));
    }
    let mut text = String::new();
    opened
        .take(KEY_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    let key = text.trim();
    if key.is_empty()
        || text.len() as u64 > KEY_BYTES_MAX
        || !key.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return Err(format!(
            "{} must contain the key of the model's API and nothing else",
            file.display()
        ));
    }
    Ok(key.to_owned())
}
