//! Agents and presets that a configuration file declares.

use super::builtin::{self, ECHO, prompt_of};
use super::file::FileAgent;
use super::values::UnusableValues;
use super::{env_pass, fence};
use crate::preset::{self, Preset};
use adjutant_core::agent::AgentOverrides;
use adjutant_core::units::{duration, size};
use adjutant_core::{
    AgentName, AgentSpec, Fence, HarnessKind, Isolation, Permissions, PromptVia, limits,
};
use std::collections::BTreeMap;

/// Completes the declared presets with the defaults of their drivers. `text` is the file.
pub(super) fn presets(
    declared: &BTreeMap<String, Preset>,
    text: &str,
    unusable: &mut UnusableValues,
) -> BTreeMap<String, Preset> {
    let table = unusable
        .check("presets", text.parse::<toml::Table>())
        .unwrap_or_default();
    let complete = |(name, preset): (&String, &Preset)| {
        unusable.check(
            &format!("presets.{name}.env_pass"),
            env_pass::check(&preset.env_pass),
        );
        unusable.check(
            &format!("presets.{name}.log_files"),
            preset.check_log_files(),
        );
        let declared = table
            .get("presets")
            .and_then(|presets| presets.get(name)?.as_table());
        let is_declared = |key: &str| declared.is_some_and(|declared| declared.contains_key(key));
        (
            name.clone(),
            preset.clone().with_defaults(&is_declared).complete(name),
        )
    };
    declared.iter().map(complete).collect()
}

/// Why an agent's entry cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AgentProblem {
    #[error("missing: no preset is called {0}; use acp, plain, echo or the name of a preset")]
    NoHarness(String),
    #[error(
        "unknown harness {0:?}: use acp, plain, echo, {known}, or a name under [presets]",
        known = preset::names().collect::<Vec<_>>().join(", ")
    )]
    UnknownHarness(String),
    #[error("only an agent with harness = \"plain\" can do without")]
    NeedsIdentity,
    #[error("unknown identity {0:?}: use \"statement\" or \"none\"")]
    UnknownIdentity(String),
    #[error("the preset {0} defines it")]
    PromptOfPreset(String),
    #[error("unknown way {0:?}: use \"stdin\" or \"arg\"")]
    UnknownPrompt(String),
}

/// The limits of an agent.
struct Limits {
    timeout_ms: Option<i64>,
    patience_ms: i64,
    memory_bytes_max: Option<u64>,
    stall_ms: Option<i64>,
    grace_ms: i64,
    report_grace_ms: Option<i64>,
}

/// What an agent may change, and where it works.
struct Access {
    permissions: Permissions,
    fence: Fence,
    isolation: Isolation,
}

/// The program of an agent, and how it is driven.
struct Program {
    preset: Option<Preset>,
    harness: HarnessKind,
    has_identity: bool,
    command: Vec<String>,
    prompt: PromptVia,
}

/// Reads a declared agent. `None`: it is invalid, which is reported.
pub(super) fn agent(
    name: &str,
    agent: &FileAgent,
    presets: &BTreeMap<String, Preset>,
    unusable: &mut UnusableValues,
) -> Option<AgentSpec> {
    let entry = AgentEntry { name, agent };
    unusable.check(&entry.field("env_pass"), env_pass::check(&agent.env_pass));
    let limits = entry.limits(unusable);
    let access = entry.access(unusable);
    let parsed = unusable.check(
        &format!("agents.{name}"),
        AgentName::parse(name).map_err(|error| error.to_string()),
    );
    let program = entry.program(presets, unusable)?;
    Some(AgentSpec {
        name: parsed?,
        harness: program.harness,
        preset: program
            .preset
            .as_ref()
            .map_or_else(String::new, Preset::to_text),
        permissions: access.permissions,
        trust_repo: agent.trust_repo,
        isolation: access.isolation,
        description: description(agent, program.preset.as_ref()),
        command: program.command,
        args: agent.args.clone(),
        prompt: program.prompt,
        env: agent.env.clone(),
        env_pass: agent.env_pass.clone(),
        gate: None,
        timeout_ms: limits.timeout_ms,
        patience_ms: limits.patience_ms,
        stall_ms: limits.stall_ms,
        memory_bytes_max: limits.memory_bytes_max,
        grace_ms: limits.grace_ms,
        report_grace_ms: limits.report_grace_ms,
        ends_after_report: agent.end_after_report,
        auto_resume: agent.auto_resume.unwrap_or(true),
        fence: access.fence,
        fence_write: agent.fence_write.clone(),
        has_identity: program.has_identity,
        overrides: AgentOverrides::default(),
    })
}

/// An agent of the file with its name.
struct AgentEntry<'a> {
    name: &'a str,
    agent: &'a FileAgent,
}

impl AgentEntry<'_> {
    fn field(&self, key: &str) -> String {
        format!("agents.{}.{key}", self.name)
    }

    fn limits(&self, unusable: &mut UnusableValues) -> Limits {
        let agent = self.agent;
        Limits {
            timeout_ms: agent.timeout.as_deref().and_then(|text| {
                unusable.check(&self.field("timeout"), duration::parse_positive(text))
            }),
            patience_ms: unusable.duration(
                &self.field("patience"),
                agent.patience.as_deref(),
                limits::PATIENCE_MS_DEFAULT,
            ),
            memory_bytes_max: agent
                .memory
                .as_deref()
                .and_then(|text| unusable.check(&self.field("memory"), size::parse(text))),
            stall_ms: unusable.optional_duration(
                &self.field("stall"),
                agent.stall.as_deref(),
                limits::STALL_MS_DEFAULT,
            ),
            grace_ms: unusable.duration_or_zero(
                &self.field("grace"),
                agent.grace.as_deref(),
                limits::GRACE_MS_DEFAULT,
            ),
            report_grace_ms: unusable.optional_duration(
                &self.field("report_grace"),
                agent.report_grace.as_deref(),
                limits::REPORT_GRACE_MS_DEFAULT,
            ),
        }
    }

    fn access(&self, unusable: &mut UnusableValues) -> Access {
        let agent = self.agent;
        let permissions = agent.permissions.as_deref().and_then(|word| {
            let profile = Permissions::from_word(word)
                .ok_or_else(|| format!("unknown profile {word:?}: use read, edit or full"));
            unusable.check(&self.field("permissions"), profile)
        });
        let fence = fence::fence(&self.field("fence"), agent.fence.as_deref(), unusable);
        fence::check_dirs(&self.field("fence_write"), &agent.fence_write, unusable);
        let isolation = agent.isolation.as_deref().and_then(|word| {
            let kind = Isolation::from_word(word)
                .ok_or_else(|| format!("unknown isolation {word:?}: use none, clone or worktree"));
            unusable.check(&self.field("isolation"), kind)
        });
        Access {
            permissions: permissions.unwrap_or_default(),
            fence: fence.unwrap_or_default(),
            isolation: isolation.unwrap_or_default(),
        }
    }

    /// Reads the harness, and what depends on it. `None`: it is invalid, which is reported.
    fn program(
        &self,
        presets: &BTreeMap<String, Preset>,
        unusable: &mut UnusableValues,
    ) -> Option<Program> {
        let agent = self.agent;
        let field = self.field("harness");
        let harness_name = unusable.check(&field, harness_name(self.name, agent, presets))?;
        let preset = preset_of(harness_name, presets);
        let harness = unusable.check(&field, harness_of(harness_name, preset.as_ref()))?;
        let has_identity = unusable.check(
            &self.field("identity"),
            has_identity(agent.identity.as_deref(), harness),
        );
        let command = match &preset {
            Some(preset) if agent.command.is_empty() => preset.command.clone(),
            _ => agent.command.clone(),
        };
        if harness != HarnessKind::Echo && command.is_empty() {
            unusable.report(
                self.field("command"),
                "this agent needs its program, as command = [\"program\"]",
            );
        }
        let prompt = unusable.check(
            &self.field("prompt"),
            prompt_via(agent, harness_name, preset.as_ref(), harness),
        )?;
        Some(Program {
            preset,
            harness,
            has_identity: has_identity.unwrap_or(true),
            command,
            prompt,
        })
    }
}

/// Returns the description of an agent: its own, else that of what it inherits.
fn description(agent: &FileAgent, preset: Option<&Preset>) -> String {
    match (preset, agent.description.as_str()) {
        (Some(preset), "") if preset.name != preset::ACP => preset.title.clone(),
        (None, "") if agent.harness.is_none() => builtin::ECHO_ABOUT.to_owned(),
        (_, description) => description.to_owned(),
    }
}

/// Returns the harness of a declared agent. An entry with the name of a built-in agent, or of a
/// preset, inherits it.
pub(super) fn harness_name<'a>(
    name: &'a str,
    agent: &'a FileAgent,
    presets: &BTreeMap<String, Preset>,
) -> Result<&'a str, AgentProblem> {
    match &agent.harness {
        Some(harness) => Ok(harness),
        None if name == ECHO || presets.contains_key(name) || preset::builtin(name).is_some() => {
            Ok(name)
        }
        None => Err(AgentProblem::NoHarness(name.to_owned())),
    }
}

fn preset_of(harness: &str, presets: &BTreeMap<String, Preset>) -> Option<Preset> {
    let any_acp = || (harness == preset::ACP).then(|| preset::acp().clone());
    presets
        .get(harness)
        .cloned()
        .or_else(|| preset::builtin(harness))
        .or_else(any_acp)
}

fn harness_of(harness: &str, preset: Option<&Preset>) -> Result<HarnessKind, AgentProblem> {
    match (harness, preset) {
        (_, Some(_)) => Ok(HarnessKind::Vendor),
        ("plain", None) => Ok(HarnessKind::Plain),
        (ECHO, None) => Ok(HarnessKind::Echo),
        (other, None) => Err(AgentProblem::UnknownHarness(other.to_owned())),
    }
}

/// Only a plain program works without the identity statement: the others are agents, which need to
/// know how to reach their parent.
fn has_identity(word: Option<&str>, harness: HarnessKind) -> Result<bool, AgentProblem> {
    match word {
        None | Some("statement") => Ok(true),
        Some("none") if harness == HarnessKind::Plain => Ok(false),
        Some("none") => Err(AgentProblem::NeedsIdentity),
        Some(other) => Err(AgentProblem::UnknownIdentity(other.to_owned())),
    }
}

fn prompt_via(
    agent: &FileAgent,
    harness_name: &str,
    preset: Option<&Preset>,
    harness: HarnessKind,
) -> Result<PromptVia, AgentProblem> {
    match (agent.prompt.as_deref(), preset) {
        (None, Some(preset)) => Ok(prompt_of(preset)),
        (Some(_), Some(_)) => Err(AgentProblem::PromptOfPreset(harness_name.to_owned())),
        (None | Some("stdin"), None) => Ok(PromptVia::Stdin),
        (Some("arg"), None) => Ok(PromptVia::Arg),
        (Some("stream"), None) if harness == HarnessKind::Echo => Ok(PromptVia::Stream),
        (Some(other), None) => Err(AgentProblem::UnknownPrompt(other.to_owned())),
    }
}
