//! Agents with the versions of their programs.

use super::Shared;
use crate::ops::{OpError, configured_agents};
use crate::view::{AgentList, ListAgents};
use adjutant_core::Principal;

/// Asks programs for their versions whenever a list has found some without.
pub(super) async fn ask_unknown(hub: Shared) {
    hub.versions.ask_queued().await;
}

/// Lists the agents with the versions that are known.
pub(super) async fn list_agents(
    hub: &Shared,
    who: &Principal,
    call: &ListAgents,
) -> Result<AgentList, OpError> {
    let (mut list, asking) = configured_agents(hub.ops.store(), &hub.ops.settings, who, call)?;
    if asking.is_empty() {
        return Ok(list);
    }
    let awaited = call.await_version_of.as_ref().and_then(|name| {
        list.agents
            .iter()
            .find(|agent| agent.name == *name)?
            .program
            .clone()
    });
    let (awaited, others): (Vec<_>, Vec<_>) = asking
        .into_iter()
        .partition(|asking| asking.program.to_str() == awaited.as_deref());
    let mut said = hub.versions.known_or_queued(others);
    said.extend(
        hub.versions
            .of(awaited)
            .await
            .into_iter()
            .map(|(program, said)| (program, Some(said))),
    );
    crate::ops::add_versions(&mut list, &said);
    Ok(list)
}
