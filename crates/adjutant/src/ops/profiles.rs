//! Whether an agent is held to a profile of permissions. A profile is a promise: what a CLI cannot hold
//! is refused. An agent that somebody declares, and that nothing enforces permissions for, may do what its
//! declaration states, and cannot be held to less.

use super::{OpError, Ops};
use crate::preset::Preset;
use adjutant_core::{AgentSpec, HarnessKind, Permissions};

/// Tells whether anything holds an agent to a profile.
pub(super) fn is_enforced(agent: &AgentSpec, preset: Option<&Preset>, profile: Permissions) -> bool {
    match agent.harness {
        HarnessKind::Echo => true,
        HarnessKind::Plain => profile == Permissions::Full,
        HarnessKind::Vendor => preset.is_none_or(|preset| preset.enforces(profile)),
    }
}

/// Says why an agent, which its configuration gives `stated`, cannot be run with a profile. `None`: it can.
pub(super) fn problem(agent: &AgentSpec, preset: Option<&Preset>, stated: Permissions, profile: Permissions) -> Option<String> {
    if let Some(why) = preset.and_then(|preset| preset.permissions.of(profile.word()).unsupported.clone()) {
        return Some(why);
    }
    let less = profile < stated && !is_enforced(agent, preset, profile);
    less.then(|| format!("permissions are not enforced for this agent, which is configured with {}", stated.word()))
}

/// Checks that an agent, which was given the profile `stated`, can be held to the one that a run is to have.
///
/// # Errors
/// It cannot.
pub(super) fn check(agent: &AgentSpec, stated: Permissions) -> Result<(), OpError> {
    let preset = Preset::from_text(&agent.preset);
    let problem = |profile| problem(agent, preset.as_ref(), stated, profile);
    let Some(why) = problem(agent.permissions) else { return Ok(()) };
    let supported = Permissions::ALL.into_iter().filter(|profile| problem(*profile).is_none());
    Err(OpError::UnsupportedProfile {
        agent: agent.name.to_string(),
        profile: agent.permissions.word(),
        why,
        supported: supported.map(Permissions::word).collect(),
    })
}

impl Ops {
    /// Checks that the agent of a run that was dispatched before can still be held to its profile, as the agent
    /// was then and as it is now.
    ///
    /// # Errors
    /// It cannot.
    pub(super) fn check_again(&self, agent: &AgentSpec) -> Result<(), OpError> {
        check(agent, agent.permissions)?;
        match self.config_or_builtin().agents.get(&agent.name) {
            Some(entry) if entry.spec.preset != agent.preset => {
                check(&AgentSpec { permissions: agent.permissions, ..entry.spec.clone() }, agent.permissions)
            }
            _ => Ok(()),
        }
    }
}
