//! Starting the runs that answer.

use crate::clock;
use crate::config::Config;
use crate::ops::budgets::unmetered;
use crate::ops::chats::turns::post::{TurnResult, post, set_aside};
use crate::ops::chats::turns::window::{TurnPrompt, turn_prompt};
use crate::ops::fence::fence_workspace;
use crate::ops::settings::Settings;
use crate::ops::{OpError, profiles, programs};
use crate::store::{
    Chat, FenceState, NewRun, NewTurn, RunInput, Store, StoreError, Turn, Tx, asked_by, next_turns,
    run_input, tree_size, turns_to_answer, working_in,
};
use adjutant_core::pool::AfterFailed;
use adjutant_core::run::Retention;
use adjutant_core::tree::{Rank, TreeLimits, has_room};
use adjutant_core::{AgentName, AgentSpec, Budget, Outcome, RunId, RunState, StopReason};
use std::path::Path;
use std::sync::Arc;

/// Starts the next turns. Returns whether a turn was started or ended.
pub(super) async fn begin_turns(store: &Store, settings: &Settings) -> Result<bool, OpError> {
    let next = store.read(next_turns)?;
    let (mut begun, mut failed) = (false, None);
    for turn in next {
        let turn_id = turn.id;
        let start = TurnStart::new(settings.config_or_builtin(), turn, settings.retention());
        match store.write(move |tx| start.begin(tx)).await {
            Ok(is_settled) => begun |= is_settled,
            Err(error) => failed = set_aside(store, settings, failed, turn_id, error.into()).await,
        }
    }
    failed.map_or(Ok(begun), Err)
}

/// A turn that is to start, checked outside the transaction.
struct TurnStart {
    config: Arc<Config>,
    turn: Turn,
    /// The agent, or why it cannot answer.
    agent: Result<AgentSpec, CannotAnswer>,
    /// That of the run that answers.
    id: RunId,
    name_seed: [u8; 4],
    retention: Retention,
}

/// Why an agent cannot answer.
#[derive(Debug, thiserror::Error)]
enum CannotAnswer {
    #[error("no agent \"{0}\"")]
    NoAgent(AgentName),
    #[error("{0} is not a directory")]
    NoDirectory(String),
    #[error(transparent)]
    Program(OpError),
}

/// Returns the agent of a turn.
fn answering_agent(config: &Config, turn: &Turn) -> Result<AgentSpec, CannotAnswer> {
    let entry = config
        .agents
        .get(&turn.agent)
        .ok_or_else(|| CannotAnswer::NoAgent(turn.agent.clone()))?;
    match programs::program(entry, turn.env.path()) {
        Ok(_) => {}
        // The hub's own PATH is searched too when the run starts.
        Err(OpError::ProgramNotFound { .. }) if turn.env.variables().is_empty() => {}
        Err(error) => return Err(CannotAnswer::Program(error)),
    }
    if !Path::new(&turn.cwd).is_dir() {
        return Err(CannotAnswer::NoDirectory(turn.cwd.clone()));
    }
    Ok(entry.spec.clone())
}

impl TurnStart {
    fn new(config: Arc<Config>, turn: Turn, retention: Retention) -> Self {
        Self {
            agent: answering_agent(&config, &turn),
            id: RunId::new(clock::now(), crate::ops::random()),
            name_seed: crate::ops::random(),
            config,
            turn,
            retention,
        }
    }

    /// Starts the run that answers, or posts why it cannot. Returns whether the turn was started or
    /// ended.
    fn begin(self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let Self {
            config,
            turn,
            agent,
            id,
            name_seed,
            retention,
        } = self;
        let chat = tx.chat(turn.chat)?;
        let decision = match agent {
            Ok(agent) => decide_start(tx, &config, &turn, agent, id)?,
            Err(why) => StartDecision::Refuse(why.to_string()),
        };
        let (agent, under) = match decision {
            StartDecision::Start(agent, under) => (*agent, under),
            // Retried when a run ends.
            StartDecision::Later => return Ok(false),
            StartDecision::Refuse(why) => {
                let result = TurnResult::Failure(why);
                post(tx, &config, &turn, None, result, retention)?;
                return Ok(true);
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
        let answering = AnsweringRun {
            id,
            name_seed,
            prompt,
            agent,
            under,
        };
        let new = answering.describe(tx, &config, &chat, &turn)?;
        tx.dispatch(&new)?;
        // The chat gets the answer or the failure, so the owner needs no notice.
        tx.notify_elsewhere(id)?;
        if under.is_none() {
            tx.place_in_root(id, chat.scope.root)?;
        }
        Ok(true)
    }
}

/// The run that answers.
struct AnsweringRun {
    id: RunId,
    name_seed: [u8; 4],
    prompt: String,
    agent: AgentSpec,
    under: Option<(RunId, TreeLimits)>,
}

impl AnsweringRun {
    fn describe(
        self,
        tx: &Tx<'_>,
        config: &Config,
        chat: &Chat,
        turn: &Turn,
    ) -> Result<NewRun, StoreError> {
        let Self {
            id,
            name_seed,
            prompt,
            agent,
            under,
        } = self;
        let owner = chat.scope.owner.clone();
        let pool = config.pool_of(&agent.name);
        // A run below another one uses the budget of its tree.
        let budget = if under.is_none() {
            config.budget_of(&agent.name, &pool)
        } else {
            Budget::default()
        };
        let fence = asking_fence(tx, turn)?;
        Ok(NewRun {
            id,
            name: None,
            name_seed,
            cwd: turn.cwd.clone(),
            workspace: None,
            fence_workspace: fence_workspace(agent.fence, Path::new(&turn.cwd), fence.as_ref()),
            owner: owner.clone(),
            retry_of: None,
            under,
            rank: Rank::default(),
            pool,
            after: Vec::new(),
            after_failed: AfterFailed::default(),
            agent_why: None,
            estimate_ms: None,
            budget,
            unmetered: unmetered(config, &agent),
            task: task(tx, chat, turn)?,
            by: owner,
            input: RunInput {
                prompt,
                agent,
                env: turn.env.clone(),
                accept: Vec::new(),
                criteria: None,
                variables: None,
            },
        })
    }
}

/// Whether a turn can start now.
enum StartDecision {
    /// The agent with its effective permissions; and the parent run that it counts under, with the
    /// limits of that tree.
    Start(Box<AgentSpec>, Option<(RunId, TreeLimits)>),
    /// Another run is working in its directory.
    Later,
    Refuse(String),
}

/// Decides whether a turn can start now. A turn requested by a run counts as its delegation: within
/// the limits of its tree, with no more permissions than its own, and behind its fence.
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
