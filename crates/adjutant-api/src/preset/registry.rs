//! Agents of the public ACP registry, of which only the name and command are known.

use serde::Deserialize;
use std::sync::LazyLock;

/// The snapshot of the registry.
const ACP_REGISTRY: &str = include_str!("builtin/acp.registry.toml");

/// Agents of the public registry that have no preset here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// The date of the snapshot.
    pub date: String,
    pub agents: Vec<RegisteredAgent>,
}

/// An agent of the registry.
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
    static REGISTRY: LazyLock<Registry> =
        LazyLock::new(|| toml::from_str(ACP_REGISTRY).expect("the snapshot is valid"));
    &REGISTRY
}
