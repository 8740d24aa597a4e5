//! The input of a run, and its serialized form.

use crate::config::is_credential;
use crate::store::db::Connection;
use crate::store::{DispatchEnv, StoreError, Tx};
use adjutant_core::agent::{AgentGate, AgentOverrides};
use adjutant_core::{
    AgentName, AgentSpec, Fence, HarnessKind, Isolation, Permissions, PromptVia, RunId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The input of a run.
#[derive(Debug, Clone)]
pub struct RunInput {
    pub prompt: String,
    pub agent: AgentSpec,
    /// The dispatcher's environment, see `config::dispatch_env`.
    pub env: DispatchEnv,
    /// The success criteria as text.
    pub criteria: Option<String>,
    /// The acceptance command: a program and its arguments. Empty: none.
    pub accept: Vec<String>,
    /// The file with the variables that the dispatcher set, if any.
    pub variables: Option<String>,
}

/// Reads the input of a run.
///
/// # Errors
/// A failure of the store.
pub fn run_input(connection: &Connection, run: RunId) -> Result<RunInput, StoreError> {
    type Row = (
        String,
        String,
        Option<String>,
        Option<String>,
        Option<String>,
    );
    let (prompt, spec, criteria, accept, variables): Row = connection
        .prepare_cached(
            "SELECT prompt, spec, criteria, accept, variables FROM run_inputs WHERE run = ?1",
        )?
        .read_row([run.to_string()])?;
    let spec: SpecRow = serde_json::from_slice(spec.as_bytes())
        .map_err(|error| StoreError::Corrupt(format!("run {run}: {error}")))?;
    let (agent, env) = spec
        .decode()
        .ok_or_else(|| StoreError::Corrupt(format!("run {run}: its agent")))?;
    Ok(RunInput {
        prompt,
        agent,
        env,
        criteria,
        accept: accept_of(run, accept)?,
        variables,
    })
}

impl Tx<'_> {
    /// Replaces the credentials for a run's next attempts, if new ones are given.
    ///
    /// # Errors
    /// A failure of the store.
    pub fn set_credentials(&mut self, run: RunId, kept: Option<&str>) -> Result<(), StoreError> {
        if let Some(id) = kept {
            self.prepare("UPDATE run_inputs SET spec = json_with_text(spec, '$.dispatch_env.ADJ_CREDENTIALS', ?2) WHERE run = ?1")?
                .run([&run.to_string(), id])?;
        }
        Ok(())
    }
}

/// Reads a run's permissions, and whether its agent is a program without a preset.
///
/// # Errors
/// A failure of the store.
pub fn permissions_of(
    connection: &Connection,
    run: RunId,
) -> Result<Option<(Permissions, bool)>, StoreError> {
    let sql = "SELECT json_text_at(spec, '$.permissions'), json_text_at(spec, '$.harness') FROM run_inputs WHERE run = ?1";
    let (word, harness): (Option<String>, Option<String>) = connection
        .prepare_cached(sql)?
        .read_row([run.to_string()])?;
    Ok(permissions(word.as_deref(), harness.as_deref()))
}

/// The terms of a run that its view shows.
#[derive(Debug)]
pub struct RunTerms {
    /// Its permissions, and whether its agent is a program without a preset.
    pub permissions: Option<(Permissions, bool)>,
    pub criteria: Option<String>,
    pub accept: Vec<String>,
    pub overrides: AgentOverrides,
}

/// Reads the terms of a run, as [`permissions_of`] and [`acceptance_of`] do, with one statement.
///
/// # Errors
/// A failure of the store.
pub fn run_terms(connection: &Connection, run: RunId) -> Result<RunTerms, StoreError> {
    let sql = "SELECT json_text_at(spec, '$.permissions'), json_text_at(spec, '$.harness'), criteria, accept, json_part_at(spec, '$.overrides') FROM run_inputs WHERE run = ?1";
    type Terms = (
        Option<String>,
        Option<String>,
        Option<String>,
        Option<String>,
        Option<String>,
    );
    let (word, harness, criteria, accept, overrides): Terms = connection
        .prepare_cached(sql)?
        .read_row([run.to_string()])?;
    let overrides = overrides
        .map(|text| serde_json::from_slice::<OverridesRow>(text.as_bytes()))
        .transpose();
    let overrides = overrides
        .map_err(|error| StoreError::Corrupt(format!("run {run}: its agent: {error}")))?
        .unwrap_or_default()
        .decode();
    Ok(RunTerms {
        permissions: permissions(word.as_deref(), harness.as_deref()),
        criteria,
        accept: accept_of(run, accept)?,
        overrides,
    })
}

fn permissions(word: Option<&str>, harness: Option<&str>) -> Option<(Permissions, bool)> {
    let is_plain = harness == Some(HarnessKind::Plain.word());
    word.and_then(Permissions::from_word)
        .map(|permissions| (permissions, is_plain))
}

/// Returns whether a run's agent reports only the tokens of its last model call.
///
/// # Errors
/// A failure of the store.
pub fn is_usage_of_last_call(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    let sql = "SELECT json_text_at(preset, '$.stream.usage_of_last_call') = 'true' FROM
               (SELECT json_text_at(spec, '$.preset') AS preset FROM run_inputs WHERE run = ?1) AS input WHERE is_valid_json(preset)";
    let found: Option<Option<bool>> = connection
        .prepare_cached(sql)?
        .find_row([run.to_string()])?;
    Ok(found.flatten().unwrap_or_default())
}

/// Reads a run's success criteria and acceptance command.
///
/// # Errors
/// A failure of the store.
pub fn acceptance_of(
    connection: &Connection,
    run: RunId,
) -> Result<(Option<String>, Vec<String>), StoreError> {
    let (criteria, accept): (Option<String>, Option<String>) = connection
        .prepare_cached("SELECT criteria, accept FROM run_inputs WHERE run = ?1")?
        .read_row([run.to_string()])?;
    Ok((criteria, accept_of(run, accept)?))
}

fn accept_of(run: RunId, text: Option<String>) -> Result<Vec<String>, StoreError> {
    let Some(text) = text else {
        return Ok(Vec::new());
    };
    serde_json::from_slice(text.as_bytes())
        .map_err(|error| StoreError::Corrupt(format!("run {run}: its acceptance command: {error}")))
}

/// A serialized gate of an agent.
#[derive(Serialize, Deserialize)]
struct GateRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_variable: Option<String>,
}

/// Serialized overrides of an agent.
#[derive(Default, Serialize, Deserialize)]
struct OverridesRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    args: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
}

impl OverridesRow {
    fn of(overrides: &AgentOverrides) -> Self {
        let AgentOverrides { model, args, env } = overrides.clone();
        Self { model, args, env }
    }

    fn decode(self) -> AgentOverrides {
        let Self { model, args, env } = self;
        AgentOverrides { model, args, env }
    }
}

/// Writes how a run is to be started.
pub(in crate::store) fn write_spec(input: &RunInput) -> Result<String, StoreError> {
    serde_json::to_string(&SpecRow::of(input))
        .map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// A serialized agent.
#[derive(Serialize, Deserialize)]
struct SpecRow {
    name: String,
    harness: String,
    preset: String,
    permissions: String,
    trust_repo: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    isolation: Option<String>,
    command: Vec<String>,
    args: Vec<String>,
    prompt: String,
    agent_env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    env_pass: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gate: Option<GateRow>,
    description: String,
    timeout_ms: Option<i64>,
    patience_ms: i64,
    stall_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_bytes_max: Option<u64>,
    grace_ms: i64,
    /// `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report_grace_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ends_after_report: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_auto_resume: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fence_write: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_identity: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overrides: Option<OverridesRow>,
    dispatch_env: DispatchEnv,
}

impl SpecRow {
    pub(super) fn of(input: &RunInput) -> Self {
        let AgentSpec {
            name,
            harness,
            preset,
            permissions,
            trust_repo,
            isolation,
            command,
            args,
            prompt,
            env,
            env_pass,
            gate,
            description,
            timeout_ms,
            patience_ms,
            stall_ms,
            memory_bytes_max,
            grace_ms,
            report_grace_ms,
            ends_after_report,
            auto_resume,
            fence,
            fence_write,
            has_identity,
            overrides,
        } = &input.agent;
        Self {
            name: name.to_string(),
            harness: harness.word().to_owned(),
            preset: preset.clone(),
            permissions: permissions.word().to_owned(),
            trust_repo: *trust_repo,
            isolation: (*isolation != Isolation::None).then(|| isolation.word().to_owned()),
            command: command.clone(),
            args: args.clone(),
            prompt: prompt.word().to_owned(),
            // Without credentials: each attempt reads them from the configuration.
            agent_env: env
                .iter()
                .filter(|(name, _)| !is_credential(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            env_pass: env_pass.clone(),
            gate: gate.as_ref().map(|AgentGate { key_variable }| GateRow {
                key_variable: key_variable.clone(),
            }),
            description: description.clone(),
            timeout_ms: *timeout_ms,
            patience_ms: *patience_ms,
            stall_ms: *stall_ms,
            memory_bytes_max: *memory_bytes_max,
            grace_ms: *grace_ms,
            report_grace_ms: *report_grace_ms,
            ends_after_report: *ends_after_report,
            no_auto_resume: !*auto_resume,
            fence: (*fence != Fence::None).then(|| fence.word().to_owned()),
            fence_write: fence_write.clone(),
            no_identity: !*has_identity,
            overrides: (*overrides != AgentOverrides::default())
                .then(|| OverridesRow::of(overrides)),
            dispatch_env: input.env.clone(),
        }
    }

    pub(super) fn decode(self) -> Option<(AgentSpec, DispatchEnv)> {
        let Self {
            name,
            harness,
            preset,
            permissions,
            trust_repo,
            isolation,
            command,
            args,
            prompt,
            agent_env,
            env_pass,
            gate,
            description,
            timeout_ms,
            patience_ms,
            stall_ms,
            memory_bytes_max,
            grace_ms,
            report_grace_ms,
            ends_after_report,
            no_auto_resume,
            fence,
            fence_write,
            no_identity,
            overrides,
            dispatch_env,
        } = self;
        let fence = match fence {
            Some(word) => Fence::from_word(&word)?,
            None => Fence::None,
        };
        let harness = HarnessKind::from_word(&harness)?;
        let spec = AgentSpec {
            name: AgentName::parse(&name).ok()?,
            harness,
            preset,
            permissions: Permissions::from_word(&permissions)?,
            trust_repo,
            isolation: isolation
                .map_or(Some(Isolation::None), |word| Isolation::from_word(&word))?,
            command,
            args,
            prompt: PromptVia::from_word(&prompt)?,
            env: agent_env,
            env_pass,
            gate: gate.map(|GateRow { key_variable }| AgentGate { key_variable }),
            description,
            timeout_ms,
            patience_ms,
            stall_ms,
            memory_bytes_max,
            grace_ms,
            report_grace_ms,
            ends_after_report,
            auto_resume: !no_auto_resume,
            fence,
            fence_write,
            has_identity: !no_identity,
            overrides: overrides.unwrap_or_default().decode(),
        };
        Some((spec, dispatch_env))
    }
}
