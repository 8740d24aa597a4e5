//! Agents of the public ACP registry that are known by name only.

use serde::Deserialize;
use std::sync::LazyLock;

/// Agents that speak ACP and are known by name only.
const ACP_REGISTRY: &str = include_str!("builtin/acp.registry.toml");

/// Agents of the public registry that have no preset here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// When the registry was like that.
    pub date: String,
    pub agents: Vec<RegisteredAgent>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisteredAgent {
    pub name: String,
    pub title: String,
    pub command: Vec<String>,
}

/// Returns the snapshot of the registry.
#[must_use]
pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| toml::from_str(ACP_REGISTRY).expect("the snapshot is a good one"));
    &REGISTRY
}
