//! Whether an agent's permission profile is enforced. A profile is a promise: a profile that a CLI
//! cannot enforce is refused. An agent without enforcement has the permissions its configuration
//! states, and cannot be restricted further.

use super::OpError;
use crate::config::Config;
use crate::preset::Preset;
use adjutant_core::{AgentSpec, HarnessKind, Permissions};

/// Returns whether a profile is enforced for an agent.
pub(super) fn is_enforced(
    agent: &AgentSpec,
    preset: Option<&Preset>,
    profile: Permissions,
) -> bool {
    match agent.harness {
        HarnessKind::Echo => true,
        HarnessKind::Plain => profile == Permissions::Full,
        HarnessKind::Vendor => preset.is_none_or(|preset| preset.enforces(profile)),
    }
}

/// Returns why an agent configured with `stated` does not support a profile. `None`: it does.
pub(super) fn problem(
    agent: &AgentSpec,
    preset: Option<&Preset>,
    stated: Permissions,
    profile: Permissions,
) -> Option<String> {
    if let Some(why) =
        preset.and_then(|preset| preset.permissions.of(profile.word()).unsupported.clone())
    {
        return Some(why);
    }
    let less = profile < stated && !is_enforced(agent, preset, profile);
    less.then(|| {
        format!(
            "permissions are not enforced for this agent, which is configured with {}",
            stated.word()
        )
    })
}

/// Checks that an agent configured with `stated` supports the profile of a run.
///
/// # Errors
/// The profile is not supported.
pub(super) fn check(agent: &AgentSpec, stated: Permissions) -> Result<(), OpError> {
    let preset = Preset::from_text(&agent.preset);
    let problem = |profile| problem(agent, preset.as_ref(), stated, profile);
    let Some(why) = problem(agent.permissions) else {
        return Ok(());
    };
    let supported = Permissions::ALL
        .into_iter()
        .filter(|profile| problem(*profile).is_none());
    Err(OpError::UnsupportedProfile {
        agent: agent.name.to_string(),
        profile: agent.permissions.word(),
        why,
        supported: supported.map(Permissions::word).collect(),
    })
}

/// Checks that the agent of an earlier dispatch still supports its profile, both as it was then
/// and as configured now.
///
/// # Errors
/// The profile is not supported.
pub(super) fn check_again(config: &Config, agent: &AgentSpec) -> Result<(), OpError> {
    check(agent, agent.permissions)?;
    match config.agents.get(&agent.name) {
        Some(entry) if entry.spec.preset != agent.preset => check(
            &AgentSpec {
                permissions: agent.permissions,
                ..entry.spec.clone()
            },
            agent.permissions,
        ),
        _ => Ok(()),
    }
}
