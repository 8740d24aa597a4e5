//! What a run was given, as it is written down.

use crate::store::StoreError;
use adjutant_core::signal::Checkpoint;
use adjutant_core::{AgentName, AgentSpec, HarnessKind, PromptVia, RunId};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a run was given.
#[derive(Debug, Clone)]
pub struct RunInput {
    pub prompt: String,
    pub agent: AgentSpec,
    /// Of the dispatcher, see `config::dispatch_env`.
    pub env: BTreeMap<String, String>,
}

/// Reads what a run was given.
///
/// # Errors
/// A failure of the store.
pub fn run_input(connection: &Connection, run: RunId) -> Result<RunInput, StoreError> {
    let (prompt, spec): (String, String) = connection
        .prepare_cached("SELECT prompt, spec FROM run_inputs WHERE run = ?1")?
        .query_row([run.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let spec: SpecRow = serde_json::from_str(&spec).map_err(|error| StoreError::Corrupt(format!("run {run}: {error}")))?;
    let (agent, env) = spec.decode().ok_or_else(|| StoreError::Corrupt(format!("run {run}: its agent")))?;
    Ok(RunInput { prompt, agent, env })
}

/// How a checkpoint is written down.
#[derive(Serialize, Deserialize)]
pub(super) struct CheckpointRow {
    blocker_type: Option<String>,
    details: String,
    completed_work: Option<String>,
    blocked_work: Option<String>,
    state: Option<String>,
    requirements: Option<String>,
    recovery: Option<String>,
}

impl CheckpointRow {
    pub(super) fn of(checkpoint: &Checkpoint) -> Self {
        let Checkpoint { blocker_type, details, completed_work, blocked_work, state, requirements, recovery } = checkpoint.clone();
        Self { blocker_type, details, completed_work, blocked_work, state, requirements, recovery }
    }

    pub(super) fn decode(self) -> Checkpoint {
        let Self { blocker_type, details, completed_work, blocked_work, state, requirements, recovery } = self;
        Checkpoint { blocker_type, details, completed_work, blocked_work, state, requirements, recovery }
    }
}

/// How an agent is written down.
#[derive(Serialize, Deserialize)]
pub(super) struct SpecRow {
    name: String,
    harness: String,
    command: Vec<String>,
    args: Vec<String>,
    prompt: String,
    agent_env: BTreeMap<String, String>,
    description: String,
    timeout_ms: Option<i64>,
    patience_ms: i64,
    grace_ms: i64,
    dispatch_env: BTreeMap<String, String>,
}

/// Returns the stable word of a harness.
#[must_use]
pub fn harness_word(harness: HarnessKind) -> &'static str {
    match harness {
        HarnessKind::Echo => "echo",
        HarnessKind::Plain => "plain",
    }
}

/// Returns the stable word of the way a prompt goes.
#[must_use]
pub fn prompt_word(prompt: PromptVia) -> &'static str {
    match prompt {
        PromptVia::Stdin => "stdin",
        PromptVia::Arg => "arg",
        PromptVia::Stream => "stream",
    }
}

pub(super) fn prompt_from_word(word: &str) -> Option<PromptVia> {
    match word {
        "stdin" => Some(PromptVia::Stdin),
        "arg" => Some(PromptVia::Arg),
        "stream" => Some(PromptVia::Stream),
        _ => None,
    }
}

impl SpecRow {
    pub(super) fn of(input: &RunInput) -> Self {
        let AgentSpec { name, harness, command, args, prompt, env, description, timeout_ms, patience_ms, grace_ms } = &input.agent;
        Self {
            name: name.to_string(),
            harness: harness_word(*harness).to_owned(),
            command: command.clone(),
            args: args.clone(),
            prompt: prompt_word(*prompt).to_owned(),
            agent_env: env.clone(),
            description: description.clone(),
            timeout_ms: *timeout_ms,
            patience_ms: *patience_ms,
            grace_ms: *grace_ms,
            dispatch_env: input.env.clone(),
        }
    }

    pub(super) fn decode(self) -> Option<(AgentSpec, BTreeMap<String, String>)> {
        let Self { name, harness, command, args, prompt, agent_env, description, timeout_ms, patience_ms, grace_ms, dispatch_env } = self;
        let harness = match harness.as_str() {
            "echo" => HarnessKind::Echo,
            "plain" => HarnessKind::Plain,
            _ => return None,
        };
        let prompt = prompt_from_word(&prompt)?;
        let name = AgentName::parse(&name).ok()?;
        Some((AgentSpec { name, harness, command, args, prompt, env: agent_env, description, timeout_ms, patience_ms, grace_ms }, dispatch_env))
    }
}
