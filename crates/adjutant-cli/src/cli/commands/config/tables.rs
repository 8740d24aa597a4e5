//! How `adj config show` shows the tables of the configuration, by their names in the file.

use crate::config::{Config, RepositoryWorkspaces, Template, Window, Workspaces};
use adjutant_core::chat::Budget;
use adjutant_core::pressure::{PressureLimits, Share};
use adjutant_core::rate_limit::RetryPolicy;
use adjutant_core::tree::TreeLimits;
use adjutant_core::units::duration;
use adjutant_core::{AgentName, Isolation, WorkspaceSpec};
use serde_json::{Value, json};

pub(super) fn delegation(config: &Config) -> Value {
    let TreeLimits {
        depth_max,
        children_max,
        live_max,
        total_max,
    } = config.tree;
    json!({"depth_max": depth_max, "children_max": children_max, "live_max": live_max, "total_max": total_max})
}

pub(super) fn rate_limits(config: &Config) -> Value {
    let RetryPolicy {
        times_max,
        pause_ms,
        pause_ms_max,
    } = config.rate_limits;
    json!({"times_max": times_max, "pause": duration::exact(pause_ms), "pause_max": duration::exact(pause_ms_max)})
}

pub(super) fn pressure(config: &Config) -> Value {
    let PressureLimits { memory, cpu, pause } = config.pressure;
    let percent = |limit: Option<Share>| limit.map_or(0, Share::as_percent);
    json!({"memory": percent(memory), "cpu": percent(cpu), "pause": percent(pause)})
}

pub(super) fn chats(config: &Config) -> Value {
    let chats = &config.chats;
    json!({
        "window": match chats.window {
            Budget::Chars(chars) => json!({"chars": chars}),
            Budget::Tokens(tokens) => json!({"tokens": tokens}),
        },
        "summarise_left_out": chats.summarise_left_out,
        "turns_max": chats.turns_max,
        "default_responder": chats.default_responder.as_ref().map(AgentName::as_str),
        "summariser": chats.summariser.as_ref().map(AgentName::as_str),
        "summarise_on_archive": chats.summarise_on_archive,
    })
}

pub(super) fn template(template: &Template) -> Value {
    let Template {
        participants,
        instructions,
        private,
        window,
        turns_max,
    } = template;
    let window = window.map(|window| match window {
        Window::Chars(chars) => json!({"chars": chars}),
        Window::Tokens(tokens) => json!({"tokens": tokens}),
    });
    json!({"participants": participants, "instructions": instructions, "private": private, "window": window, "turns_max": turns_max})
}

pub(super) fn workspaces(config: &Config) -> Value {
    let Workspaces {
        isolation,
        general,
        repositories,
    } = &config.workspaces;
    let mut all = workspace_settings(*isolation, general);
    all["repositories"] = repositories.iter().map(repository).collect();
    all
}

pub(super) fn repository(entry: &RepositoryWorkspaces) -> Value {
    let RepositoryWorkspaces {
        path,
        isolation,
        spec,
    } = entry;
    let mut all = workspace_settings(*isolation, spec);
    all["path"] = json!(path);
    all
}

pub(super) fn workspace_settings(isolation: Isolation, spec: &WorkspaceSpec) -> Value {
    let WorkspaceSpec {
        setup,
        setup_timeout_ms,
        copy,
        caches,
        ports,
    } = spec;
    json!({
        "isolation": isolation.word(),
        "setup": setup,
        "setup_timeout": duration::exact(*setup_timeout_ms),
        "copy": copy,
        "caches": caches,
        "ports": ports,
    })
}
