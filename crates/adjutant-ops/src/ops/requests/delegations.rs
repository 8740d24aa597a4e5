//! Delegations: requesting them, and starting the child run.

use crate::clock;
use crate::config::Config;
use crate::ops::budgets::{stated_budget, unmetered};
use crate::ops::checks::{check_size, checked_cwd, checked_expiry, checked_prompt};
use crate::ops::fence::fence_workspace;
use crate::ops::requests::messages::messages_for;
use crate::ops::settings::Settings;
use crate::ops::workspaces::Workspaces;
use crate::ops::{Caller, OpError, lookup, profiles, programs, random, render};
use crate::store::{
    Connection, NewRequest, NewRun, NewWorkspace, Request, Run, RunInput, Store, StoreError, Tx,
    run_by_id, run_input, runs_using_directory, workspace_around,
};
use crate::view::{AnswerOne, Delegate, RequestView};
use adjutant_core::agent::AgentOverrides;
use adjutant_core::pool::AfterFailed;
use adjutant_core::signal::{Delegation, Independence, Priority, SignalKind, Source};
use adjutant_core::tree::{Rank, delegation_prompt, with_changes};
use adjutant_core::{
    Action, AgentName, AgentSpec, Decision, Denied, Fence, PoolName, Principal, RequestEvent,
    RequestId, RunId, RunState, StopReason, Subject, estimate, limits,
};
use std::path::{Component, Path, PathBuf};

/// The child run to start, prepared before the deciding transaction.
#[derive(Debug)]
pub(super) struct Child {
    /// The delegation it belongs to.
    request: RequestId,
    new: NewRun,
    waits: bool,
    refuse_shared: bool,
}

fn read(call: Delegate) -> Result<Delegation, Denied> {
    let Delegate {
        task,
        agent,
        cwd,
        independence,
        priority,
        reason,
        context_required,
        coordination,
        estimated_duration,
        budget,
        expires_s: _,
    } = call;
    if task.trim().is_empty() {
        return Err(Denied::invalid(
            "new_task_description",
            "is empty: describe the task",
        ));
    }
    check_size("new_task_description", &task, limits::TEXT_BYTES_MAX)?;
    for (field, text) in [
        ("reason", &reason),
        ("context_required", &context_required),
        ("coordination", &coordination),
        ("cwd", &cwd),
    ] {
        check_size(field, text.as_deref().unwrap_or(""), limits::TEXT_BYTES_MAX)?;
    }
    let independence = match independence {
        None => Independence::Parallel,
        Some(word) => word.spoken().ok_or_else(|| {
            Denied::invalid(
                "independence",
                "use blocks_current_work, can_proceed_parallel or optional",
            )
        })?,
    };
    let priority = match priority {
        None => Priority::default(),
        Some(word) => word
            .spoken()
            .ok_or_else(|| Denied::invalid("priority", "use P0, P1 or P2"))?,
    };
    let budget = stated_budget("budget", budget.as_deref())?;
    Ok(Delegation {
        task,
        agent,
        directory: cwd,
        reason,
        independence,
        priority,
        context_required,
        coordination,
        estimate: estimated_duration,
        budget,
    })
}

/// Decides a delegation; an approved one starts its run in the same transaction.
pub(super) fn decide(
    tx: &mut Tx<'_>,
    request: &Request,
    decision: &Decision,
    event: RequestEvent,
    child: Option<Child>,
) -> Result<Request, StoreError> {
    if !matches!(decision, Decision::Approved { .. }) || request.state.is_settled() {
        return tx.advance_request(request, event);
    }
    let Some(Child {
        new,
        waits,
        refuse_shared,
        ..
    }) = child.filter(|child| child.request == request.id)
    else {
        return Err(Denied::NotAsShown.into());
    };
    let requester = tx.run(request.run)?;
    if requester.state == RunState::Stopping(StopReason::Cancelled) {
        return Err(Denied::WrongState {
            run: requester.name,
            state: "being cancelled",
            wanted: "given a child",
        }
        .into());
    }
    if refuse_shared && new.workspace.is_none() {
        refuse_shared_directory(tx, &new, &requester.name, waits)?;
    }
    let held = waits && !requester.state.is_finished();
    if held {
        tx.hold(requester.id)?;
    }
    let request = tx.advance_request(request, event)?;
    tx.start_delegated(&request, &new, held)
}

/// Refuses a directory that another run uses. A requester that waits for its child does not count.
fn refuse_shared_directory(
    tx: &Tx<'_>,
    new: &NewRun,
    requester: &str,
    waits: bool,
) -> Result<(), StoreError> {
    let others = runs_using_directory(tx.connection(), &new.cwd, new.id)?;
    match others.iter().find(|other| !(waits && *other == requester)) {
        None => Ok(()),
        Some(other) => Err(Denied::DirectoryInUse { run: other.clone() }.into()),
    }
}

/// Refuses the directory of a fenced child run if a link leads to it: the requester can change
/// links between the request and its approval.
fn refuse_link(named: &Path, cwd: &str) -> Result<(), Denied> {
    let mut path = PathBuf::new();
    for part in named.components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    if path == Path::new(cwd) {
        return Ok(());
    }
    Err(Denied::invalid(
        "cwd",
        format!(
            "{} is behind a link to {cwd}: approve the delegation with that directory",
            path.display()
        ),
    ))
}

/// Opens a delegation of the calling run. Durable when it returns.
///
/// # Errors
/// The caller is not a run, the run is not live, or a field is unusable.
pub async fn delegate(
    store: &Store,
    settings: &Settings,
    caller: Caller,
    call: Delegate,
) -> Result<RequestView, OpError> {
    lookup::check(&caller.who, Action::Ask)?;
    checked_expiry(call.expires_s, settings.decision_expiry_s_min())?;
    let expiry_ms = settings.expiry_ms(call.expires_s);
    let delegation = read(call)?;
    let id = RequestId::new(clock::now(), random());
    let Caller { who, key } = caller.clone();
    let mut view = caller
        .write(store, move |tx, who| {
            let run = lookup::run(tx.connection(), who, Action::Ask, "")?;
            let new = NewRequest {
                id,
                question: delegation.task.clone(),
                context: None,
                options: Vec::new(),
                default: None,
                blocking: delegation.independence == Independence::Blocks,
                subject: Subject::Delegation(delegation),
                by_block: false,
                own_id: None,
                clarification: None,
                patience_ms: run.patience_ms,
                expires_at: tx.steady().plus_ms(expiry_ms),
            };
            Ok(render::request(&tx.as_signal(
                Some(SignalKind::Delegation),
                Source::Tool,
                |tx| tx.ask(&run, &new),
            )?))
        })
        .await?;
    view.messages = messages_for(store, &who, key.as_ref()).await?;
    Ok(view)
}

/// Prepares the child run of an approved delegation. A request never changes, so this can be
/// done before the deciding transaction. `None`: nothing is delegated, or there is no such
/// request, which the transaction refuses.
pub(super) async fn child_of(
    store: &Store,
    settings: &Settings,
    workspaces: &Workspaces,
    who: &Principal,
    one: &AnswerOne,
    decision: &Decision,
) -> Result<Option<Child>, OpError> {
    let Decision::Approved { changes, .. } = decision else {
        return Ok(None);
    };
    let found = store.read(|connection| asked_delegation(connection, who, one))?;
    let Some(AskedDelegation {
        request,
        asked,
        requester,
        input: own,
    }) = found
    else {
        return Ok(None);
    };
    let wanted = with_changes(&asked, changes);
    let config = settings.config_or_builtin();
    let mut agent = child_agent(&config, &own, wanted.agent.as_deref())?;
    let cwd = child_directory(&requester, &wanted, agent.fence)?;
    let (workspace, fence_workspace) =
        child_workspace(store, workspaces, &requester, &agent, &cwd).await?;
    let prompt = delegation_prompt(&requester.name, &wanted);
    agent.receive_expected_messages(&prompt);
    checked_prompt(&prompt, agent.prompt)?;
    let new = NewRun {
        id: RunId::new(clock::now(), random()),
        name: None,
        name_seed: random(),
        cwd,
        workspace,
        fence_workspace,
        owner: requester.owner.clone(),
        retry_of: None,
        under: Some((requester.id, config.tree)),
        rank: Rank::of(wanted.priority, wanted.independence),
        pool: child_pool(&config, &agent.name, &requester.pool),
        after: Vec::new(),
        after_failed: AfterFailed::default(),
        agent_why: None,
        estimate_ms: wanted.estimate.as_deref().and_then(estimate::duration_ms),
        budget: wanted.budget,
        unmetered: unmetered(&config, &agent),
        task: wanted.task.clone(),
        by: who.clone(),
        input: RunInput {
            prompt,
            agent,
            env: own.env,
            criteria: None,
            accept: Vec::new(),
            variables: None,
        },
    };
    Ok(Some(Child {
        request: request.id,
        new,
        waits: wanted.independence == Independence::Blocks,
        refuse_shared: config.refuse_shared_directory,
    }))
}

/// Plans where a child works: its own workspace, if it needs one, and the directory behind its
/// fence. A run in a workspace shares it with its children.
async fn child_workspace(
    store: &Store,
    workspaces: &Workspaces,
    requester: &Run,
    agent: &AgentSpec,
    cwd: &str,
) -> Result<(Option<NewWorkspace>, Option<String>), OpError> {
    let is_in_workspace = store
        .read(|connection| workspace_around(connection, cwd))?
        .is_some();
    if is_in_workspace {
        return Ok((None, None));
    }
    let workspace = workspaces.plan(cwd, agent.isolation, false).await?;
    let works_in_users_files = workspace.is_none();
    let fence_workspace = works_in_users_files
        .then(|| fence_workspace(agent.fence, Path::new(cwd), requester.fence.as_ref()))
        .flatten();
    Ok((workspace, fence_workspace))
}

/// A delegation that is about to be decided.
struct AskedDelegation {
    request: Request,
    asked: Delegation,
    requester: Run,
    /// That of the requester.
    input: RunInput,
}

/// Finds the delegation that an answer names. `None`: it names none, or another request.
fn asked_delegation(
    connection: &Connection,
    who: &Principal,
    one: &AnswerOne,
) -> Result<Option<AskedDelegation>, StoreError> {
    let request = match (&one.message_id, &one.run) {
        (Some(id), _) => lookup::request(connection, who, Action::Answer, id),
        (None, Some(run)) => lookup::run(connection, who, Action::Answer, run)
            .and_then(|run| lookup::only_request(connection, &run)),
        (None, None) => return Ok(None),
    };
    let request = match request {
        Ok(request) => request,
        Err(StoreError::Denied(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(requester) = run_by_id(connection, request.run)? else {
        return Ok(None);
    };
    let input = run_input(connection, requester.id)?;
    let Subject::Delegation(asked) = &request.subject else {
        return Ok(None);
    };
    Ok(Some(AskedDelegation {
        asked: asked.clone(),
        request,
        requester,
        input,
    }))
}

/// Returns the agent of a child. `own`: the input of its requester.
fn child_agent(
    config: &Config,
    own: &RunInput,
    wanted: Option<&str>,
) -> Result<AgentSpec, OpError> {
    let mut agent = match wanted {
        None => own.agent.clone(),
        Some(name) if name == own.agent.name.as_str() => own.agent.clone(),
        Some(name) => {
            let Some(entry) = AgentName::parse(name)
                .ok()
                .and_then(|name| config.agents.get(&name))
            else {
                return Err(programs::unknown_agent(config, name, own.env.path()));
            };
            programs::program(entry, own.env.path())?;
            entry.spec.clone()
        }
    };
    // Arguments and variables that a person set are for that run only; they can override its
    // profile.
    agent.overrides = AgentOverrides {
        model: agent.overrides.model,
        ..AgentOverrides::default()
    };
    // A child never gets more permissions than its requester, and works behind the same fence.
    agent.fence = agent.fence.stricter(own.agent.fence);
    let stated = agent.permissions;
    agent.permissions = stated.min(own.agent.permissions);
    profiles::check(&agent, stated)?;
    Ok(agent)
}

fn child_directory(requester: &Run, wanted: &Delegation, fence: Fence) -> Result<String, OpError> {
    let directory = Path::new(&requester.cwd).join(wanted.directory.as_deref().unwrap_or(""));
    let cwd = checked_cwd(directory.to_str().expect("joined UTF-8 paths are UTF-8"))?;
    if fence != Fence::None {
        refuse_link(&directory, &cwd)?;
    }
    Ok(cwd)
}

/// Returns the pool of a child. Without a pool of its agent, it uses the slot of its parent.
fn child_pool(config: &Config, agent: &AgentName, of_parent: &str) -> PoolName {
    let of_parent = PoolName::parse(of_parent)
        .ok()
        .filter(|pool| config.pools.contains_key(pool));
    let of_agent = config.agents.get(agent);
    of_agent
        .and_then(|entry| entry.pool.clone())
        .or(of_parent)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_behind_a_link_is_refused() {
        assert_eq!(refuse_link(Path::new("/w/a/../b/./c"), "/w/b/c"), Ok(()));
        let refused = refuse_link(Path::new("/w/link"), "/etc").expect_err("a link");
        assert_eq!(
            refused.to_string(),
            "cwd: /w/link is behind a link to /etc: approve the delegation with that directory"
        );
    }
}
