//! Starting the runs that answer.

use crate::clock;
use crate::config::Config;
use crate::ops::budgets::unmetered;
use crate::ops::chats::turns::post::{TurnResult, post};
use crate::ops::chats::turns::window::{TurnPrompt, turn_prompt};
use crate::ops::fence::fence_workspace;
use crate::ops::{OpError, Ops, profiles, programs};
use crate::store::{
    Chat, FenceState, NewRun, NewTurn, RunInput, StoreError, Turn, Tx, asked_by, next_turns,
    run_input, tree_size, turns_to_answer, working_in,
};
use adjutant_core::pool::AfterFailed;
use adjutant_core::tree::{Rank, TreeLimits, has_room};
use adjutant_core::{AgentSpec, Budget, Outcome, RunId, RunState, StopReason};
use std::path::Path;

impl Ops {
    /// Starts the next turns. Returns whether a turn was started or ended.
    pub(super) async fn begin_turns(&self) -> Result<bool, OpError> {
        let next = self.store.read(next_turns)?;
        let (mut begun, mut failed) = (false, None);
        for turn in next {
            let config = self.config_or_builtin();
            let spec = match config.agents.get(&turn.agent) {
                None => Err(format!("no agent \"{}\"", turn.agent)),
                Some(entry) => match programs::program(entry, turn.env.path()) {
                    Ok(_) => Ok(entry.spec.clone()),
                    // The hub's own PATH is searched too when the run starts.
                    Err(OpError::ProgramNotFound { .. }) if turn.env.variables().is_empty() => {
                        Ok(entry.spec.clone())
                    }
                    Err(error) => Err(error.to_string()),
                },
            };
            let spec = match spec {
                Ok(_) if !Path::new(&turn.cwd).is_dir() => {
                    Err(format!("{} is not a directory", turn.cwd))
                }
                spec => spec,
            };
            let (id, name_seed) = (
                RunId::new(clock::now(), crate::ops::random()),
                crate::ops::random(),
            );
            let retention = self.retention();
            let turn_id = turn.id;
            let begin = self
                .store
                .write(move |tx| {
                    let chat = tx.chat(turn.chat)?;
                    let decide_start = match spec {
                        Ok(agent) => decide_start(tx, &config, &turn, agent, id)?,
                        Err(why) => StartDecision::Refuse(why),
                    };
                    let (agent, under) = match decide_start {
                        StartDecision::Start(agent, under) => (*agent, under),
                        // Retried when a run ends.
                        StartDecision::Later => return Ok(false),
                        StartDecision::Refuse(why) => {
                            return post(
                                tx,
                                &config,
                                &turn,
                                None,
                                TurnResult::Failure(why),
                                retention,
                            )
                            .map(|()| true);
                        }
                    };
                    let TurnPrompt {
                        prompt,
                        wants_summary,
                    } = turn_prompt(tx.connection(), &chat, &turn)?;
                    if !tx.begin_turn(turn.id, id)? {
                        return Ok(true);
                    }
                    if wants_summary && config.chats.summarise_left_out {
                        want_summary(tx, &config, &turn)?;
                    }
                    let owner = chat.scope.owner.clone();
                    let pool = config.pool_of(&agent.name);
                    let budget = config.budget_of(&agent.name, &pool);
                    let fence_workspace = fence_workspace(
                        agent.fence,
                        Path::new(&turn.cwd),
                        asking_fence(tx, &turn)?.as_ref(),
                    );
                    let unmetered = unmetered(&config, &agent);
                    let input = RunInput {
                        prompt,
                        agent,
                        env: turn.env.clone(),
                        accept: Vec::new(),
                        criteria: None,
                        variables: None,
                    };
                    let task = task(tx, &chat, &turn)?;
                    let new = NewRun {
                        id,
                        name: None,
                        name_seed,
                        cwd: turn.cwd.clone(),
                        workspace: None,
                        fence_workspace,
                        owner: owner.clone(),
                        retry_of: None,
                        under,
                        rank: Rank::default(),
                        pool,
                        after: Vec::new(),
                        after_failed: AfterFailed::default(),
                        agent_why: None,
                        estimate_ms: None,
                        budget: if under.is_none() {
                            budget
                        } else {
                            Budget::default()
                        },
                        unmetered,
                        task,
                        by: owner,
                        input,
                    };
                    tx.dispatch(&new)?;
                    // The chat gets the answer or the failure, so the owner needs no notice.
                    tx.notify_elsewhere(id)?;
                    if under.is_none() {
                        tx.place_in_root(id, chat.scope.root)?;
                    }
                    Ok(true)
                })
                .await;
            match begin {
                Ok(is_settled) => begun |= is_settled,
                Err(error) => failed = self.set_aside(failed, turn_id, error.into()).await,
            }
        }
        failed.map_or(Ok(begun), Err)
    }
}

/// Whether a turn can start now.
enum StartDecision {
    /// The agent with its effective permissions; and the parent run that it counts under, with the limits of that
    /// tree.
    Start(Box<AgentSpec>, Option<(RunId, TreeLimits)>),
    /// Another run is working in its directory.
    Later,
    Refuse(String),
}

/// Decides whether a turn can start now. A turn requested by a run counts as its delegation: within the limits of its
/// tree, with no more permissions than its own, and behind its fence.
fn decide_start(
    tx: &Tx<'_>,
    config: &Config,
    turn: &Turn,
    mut agent: AgentSpec,
    id: RunId,
) -> Result<StartDecision, StoreError> {
    let connection = tx.connection();
    let asked = asked_by(connection, turn)?;
    if config.refuse_shared_directory {
        let others = working_in(connection, &turn.cwd, id)?;
        // The asking run may be waiting for the answer.
        if let Some((_, name)) = others
            .iter()
            .find(|(other, _)| asked.is_some_and(|(asking, _)| asking == *other))
        {
            return Ok(StartDecision::Refuse(format!(
                "{name} asked and is working in {} itself (refuse_shared_directory = true)",
                turn.cwd
            )));
        }
        if !others.is_empty() {
            return Ok(StartDecision::Later);
        }
    }
    let stated = agent.permissions;
    if let Some((asking, _)) = asked {
        let asking = run_input(connection, asking)?.agent;
        agent.permissions = agent.permissions.min(asking.permissions);
        agent.fence = agent.fence.stricter(asking.fence);
    }
    if let Err(refusal) = profiles::check(&agent, stated) {
        return Ok(StartDecision::Refuse(refusal.to_string()));
    }
    let Some((_, counts_under)) = asked else {
        return Ok(StartDecision::Start(Box::new(agent), None));
    };
    let Some(parent) = counts_under else {
        return Ok(StartDecision::Start(Box::new(agent), None));
    };
    let mut above = Some(parent);
    while let Some(run) = above {
        let run = tx.run(run)?;
        if matches!(
            run.state,
            RunState::Stopping(StopReason::Cancelled) | RunState::Finished(Outcome::Cancelled)
        ) {
            return Ok(StartDecision::Refuse(format!(
                "{} asked for this and was cancelled",
                run.name
            )));
        }
        above = run.parent;
    }
    let size = tree_size(connection, &tx.run(parent)?)?;
    Ok(match has_room(size, config.tree) {
        Ok(()) => StartDecision::Start(Box::new(agent), Some((parent, config.tree))),
        Err(denied) => StartDecision::Refuse(denied.to_string()),
    })
}

/// Returns the fence of the run that requested a turn.
fn asking_fence(tx: &Tx<'_>, turn: &Turn) -> Result<Option<FenceState>, StoreError> {
    match asked_by(tx.connection(), turn)? {
        Some((asking, _)) => Ok(tx.run(asking)?.fence),
        None => Ok(None),
    }
}

/// Requests a summary of what the window leaves out, for later turns.
fn want_summary(tx: &mut Tx<'_>, config: &Config, turn: &Turn) -> Result<(), StoreError> {
    let Some(agent) = config.chats.summariser.clone() else {
        return Ok(());
    };
    if turns_to_answer(tx.connection(), turn.chat, 0)?
        .iter()
        .any(|turn| turn.is_summary)
    {
        return Ok(());
    }
    let (cwd, env) = (turn.cwd.clone(), turn.env.clone());
    tx.queue_turn(&NewTurn {
        chat: turn.chat,
        agent,
        is_summary: true,
        message: 0,
        hops: 0,
        cwd,
        env,
    })
    .map(drop)
    .map(|_| ())
}

/// Returns a one-line task for an answering run.
fn task(tx: &Tx<'_>, chat: &Chat, turn: &Turn) -> Result<String, StoreError> {
    if turn.is_summary {
        return Ok(format!("chat {}: summary", chat.id));
    }
    match crate::store::entry_by_seq(tx.connection(), chat.id, turn.message)? {
        Some(entry) => Ok(format!("chat {}.{}: {}", chat.id, turn.message, entry.text)),
        None => Err(StoreError::Corrupt(format!(
            "turn {}: there is no message {}.{}",
            turn.id, chat.id, turn.message
        ))),
    }
}
