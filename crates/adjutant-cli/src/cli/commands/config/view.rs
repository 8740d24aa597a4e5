//! The configuration as `adj config show --json` prints it.

use super::agents::agent;
use super::pools;
use super::tables::{chats, delegation, pressure, rate_limits, template, workspaces};
use super::webhooks::{notify, webhook};
use crate::config::Config;
use serde_json::{Map, Value, json};

/// Returns the whole configuration with its defaults.
pub(super) fn view(config: &Config) -> Value {
    let pools: Map<_, _> = config
        .pools
        .iter()
        .map(|(name, pool)| (name.to_string(), pools::settings(pool)))
        .collect();
    let templates: Map<_, _> = config
        .chats
        .templates()
        .map(|(name, settings)| (name.to_owned(), template(settings)))
        .collect();
    let agents: Vec<Value> = config
        .agents
        .iter()
        .map(|(name, entry)| agent(name, entry, config))
        .collect();
    let webhooks: Vec<Value> = config.webhooks.iter().filter_map(webhook).collect();
    json!({
        "path": config.path,
        "exists": config.exists,
        "live_runs_max": config.live_runs_max,
        "idle_exit_ms": config.times.idle_exit_ms,
        "listen": config.listen.map(|address| address.to_string()),
        "listen_without_tls": config.http.without_tls,
        "public_url": config.http.public_url.as_ref().map(ToString::to_string),
        "tls": config.http.tls.as_ref().map(|tls| json!({"cert": tls.cert, "key": tls.key})),
        "store": config.store.as_ref().map(ToString::to_string),
        "store_shared": config.store_shared,
        "log_store": config.log_store.as_ref().map(ToString::to_string),
        "runner_lease_ms": config.times.runner_lease_ms,
        "expiry_ms": config.times.expiry_ms,
        "stopped_retention_ms": config.times.stopped_retention_ms,
        "finished_retention_ms": config.times.finished_retention_ms,
        "log_bytes_max": config.log_bytes_max,
        "containment": config.containment.word(),
        "refuse_shared_directory": config.refuse_shared_directory,
        "default_agent": config.default_agent,
        "delegation": delegation(config),
        "rate_limits": rate_limits(config),
        "pressure": pressure(config),
        "pools": pools,
        "chats": chats(config),
        "chat_templates": templates,
        "workspaces": workspaces(config),
        "agents": agents,
        "webhooks": webhooks,
        "notify": notify(config),
    })
}
