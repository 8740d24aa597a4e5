//! Chooses the agent of a run that names several, or a pool instead.

use crate::config::{AgentEntry, Config};
use crate::ops::checks::checked_prompt;
use crate::ops::runs::overrides::overrides_for;
use crate::ops::{OpError, profiles, programs};
use crate::store::{Connection, Pools, StoreError, mean_costs, queued_up_to, slots_used};
use crate::view::Dispatch;
use adjutant_core::balance::{ALTERNATIVES_MAX, Alternative, ChoiceReason, choose};
use adjutant_core::{AgentName, AgentSpec, Denied, PoolName};

/// The agents that a dispatch names.
#[derive(Debug)]
pub(super) struct NamedAgents {
    /// Those that can be used, the preferred one first. Never empty.
    pub usable: Vec<AgentSpec>,
    /// Why the others cannot be used.
    pub unusable: Vec<String>,
    /// Whether another one may take over after a failure.
    pub after_failure: bool,
}

/// Resolves the agents of a dispatch: those that it names, else those of its pool, else the default
/// one.
pub(super) fn named_agents(
    config: &Config,
    call: &Dispatch,
    pool: Option<&PoolName>,
) -> Result<NamedAgents, OpError> {
    let path = call
        .set_env
        .get("PATH")
        .or(call.env.get("PATH"))
        .map_or("", String::as_str);
    let (named, after_failure) = names_of(config, call, pool);
    if named.is_empty() {
        return Err(OpError::NoAgentGiven {
            installed: programs::installed_agents(config, path),
        });
    }
    check_names(&named, !call.args.is_empty())?;
    let (mut usable, mut unusable, mut first_problem) = (Vec::new(), Vec::new(), None);
    for (at, name) in named.iter().enumerate() {
        if named[..at].contains(name) {
            return Err(Denied::invalid("agent", format!("{name} is named twice")).into());
        }
        let Some(entry) = AgentName::parse(name)
            .ok()
            .and_then(|name| config.agents.get(&name))
        else {
            return Err(programs::unknown_agent(config, name, path));
        };
        let pool = pool
            .cloned()
            .unwrap_or_else(|| config.pool_of(&entry.spec.name));
        // A runner has its own programs.
        let is_on_runners = config.pools.get(&pool).is_some_and(|pool| pool.on_runners);
        match agent_for(entry, call, path, is_on_runners) {
            Ok(agent) => usable.push(agent),
            Err(problem) => {
                unusable.push(problem.to_string());
                first_problem.get_or_insert(problem);
            }
        }
    }
    match first_problem {
        Some(problem) if usable.is_empty() => Err(problem),
        _ => Ok(NamedAgents {
            usable,
            unusable,
            after_failure,
        }),
    }
}

/// Returns the names of the agents of a dispatch, and whether another one may take over after a
/// failure. A caller that names several agents accepts each of them.
fn names_of(config: &Config, call: &Dispatch, pool: Option<&PoolName>) -> (Vec<String>, bool) {
    let named: Vec<String> = call
        .agent
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(ToOwned::to_owned)
        .collect();
    if !named.is_empty() {
        return (named, true);
    }
    let of_pool = pool
        .and_then(|pool| config.pools.get(pool))
        .filter(|pool| !pool.agents.is_empty());
    match of_pool {
        Some(pool) => (
            pool.agents.iter().map(ToString::to_string).collect(),
            pool.fallback,
        ),
        None => (config.default_agent.iter().cloned().collect(), true),
    }
}

/// Refuses too many agents, and arguments for several.
fn check_names(named: &[String], has_args: bool) -> Result<(), Denied> {
    if named.len() > 1 && has_args {
        return Err(Denied::invalid(
            "args",
            "are arguments of one CLI: name one agent",
        ));
    }
    if named.len() > ALTERNATIVES_MAX {
        return Err(Denied::Limit {
            what: "agents of one run",
            limit: ALTERNATIVES_MAX as u64,
        });
    }
    Ok(())
}

/// Returns an agent with the settings of a dispatch.
fn agent_for(
    entry: &AgentEntry,
    call: &Dispatch,
    path: &str,
    is_on_runners: bool,
) -> Result<AgentSpec, OpError> {
    checked_prompt(&call.prompt, entry.spec.prompt)?;
    if !is_on_runners {
        programs::program(entry, path)?;
    }
    let mut agent = entry.spec.clone();
    agent.receive_expected_messages(&call.prompt);
    if let Some(permissions) = &call.permissions {
        agent.permissions = permissions
            .known()
            .ok_or_else(|| Denied::invalid("permissions", "use read, edit or full"))?;
    }
    profiles::check(&agent, entry.spec.permissions)?;
    agent.overrides = overrides_for(&agent, call)?;
    agent.trust_repo |= call.trust_repo;
    agent.auto_resume &= !call.no_auto_resume;
    if let Some(fence) = &call.fence {
        agent.fence = fence
            .known()
            .ok_or_else(|| Denied::invalid("fence", "use none, workspace or best-effort"))?;
    }
    match call.timeout_s {
        Some(0) => return Err(Denied::invalid("timeout_s", "at least 1").into()),
        Some(seconds) => {
            agent.timeout_ms = Some(
                i64::try_from(seconds)
                    .unwrap_or(i64::MAX / 1000)
                    .saturating_mul(1000),
            )
        }
        None => {}
    }
    Ok(agent)
}

/// Chooses one of several agents. Returns its index and the reason as text. A single one needs no
/// reason.
pub(super) fn choose_agent(
    connection: &Connection,
    pools: &Pools,
    all: &[(AgentSpec, PoolName)],
    unusable: &[String],
) -> Result<(usize, Option<String>), StoreError> {
    if all.len() == 1 && unusable.is_empty() {
        return Ok((0, None));
    }
    let (used, costs) = (slots_used(connection, pools)?, mean_costs(connection)?);
    let alternative = |(agent, pool): &(AgentSpec, PoolName)| {
        let limits = pools
            .by_name
            .get(pool.as_str())
            .filter(|limits| !limits.is_paused);
        let free = limits.map_or(0, |limits| {
            limits
                .slots
                .saturating_sub(used.in_pool(pool.as_str()).used())
        });
        Ok(Alternative {
            has_slot: queued_up_to(connection, pool.as_str(), free)? < free,
            is_limited: pools.limited.contains_key(agent.name.as_str()),
            cost_micros: costs.get(agent.name.as_str()).copied(),
        })
    };
    let alternatives: Vec<Alternative> = all
        .iter()
        .map(alternative)
        .collect::<Result<_, StoreError>>()?;
    let Some((at, reason)) = choose(&alternatives) else {
        return Ok((0, None));
    };
    let others: Vec<&str> = all
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != at)
        .map(|(_, (agent, _))| agent.name.as_str())
        .collect();
    let others = others.join(", ");
    let reason = match reason {
        ChoiceReason::Only => "the only one that can be used".to_owned(),
        ChoiceReason::FreeSlot => format!("it has a free slot, before {others}"),
        ChoiceReason::Quota => format!("others have reached their usage limit, before {others}"),
        ChoiceReason::Price => format!("its runs cost less, before {others}"),
        ChoiceReason::Order => format!("named first, before {others}"),
    };
    let skipped = if unusable.is_empty() {
        String::new()
    } else {
        format!(" ({})", unusable.join("; "))
    };
    Ok((at, Some(format!("{}: {reason}{skipped}", all[at].0.name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_belong_to_one_agent() {
        let one = ["claude".to_owned()];
        let two = ["claude".to_owned(), "codex".to_owned()];
        assert!(check_names(&one, true).is_ok());
        assert!(check_names(&two, false).is_ok());
        assert!(check_names(&two, true).is_err());
    }

    #[test]
    fn number_of_agents_of_a_run_is_limited() {
        let most = vec!["a".to_owned(); ALTERNATIVES_MAX];
        assert!(check_names(&most, false).is_ok());
        let more = vec!["a".to_owned(); ALTERNATIVES_MAX + 1];
        assert!(matches!(
            check_names(&more, false),
            Err(Denied::Limit { .. })
        ));
    }
}
