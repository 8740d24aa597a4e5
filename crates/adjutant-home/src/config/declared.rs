//! Agents and presets that a configuration file declares.

use super::builtin::{self, ECHO, prompt_of};
use super::duration::positive_duration_ms;
use super::env_pass;
use super::fence;
use super::file::FileAgent;
use super::memory::memory_bytes;
use super::values::UnusableValues;
use crate::preset::{self, Preset};
use adjutant_core::agent::AgentOverrides;
use adjutant_core::limits;
use adjutant_core::{AgentName, AgentSpec, HarnessKind, Isolation, Permissions, PromptVia};
use std::collections::BTreeMap;

/// Completes the declared presets with the defaults of their drivers. `text` is the file.
pub(super) fn presets(
    declared: &BTreeMap<String, Preset>,
    text: &str,
    unusable: &mut UnusableValues,
) -> BTreeMap<String, Preset> {
    let table = unusable
        .check(
            "presets",
            text.parse::<toml::Table>()
                .map_err(|error| error.to_string()),
        )
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

/// Reads a declared agent. `None`: it is invalid, which is reported.
pub(super) fn agent(
    name: &str,
    agent: &FileAgent,
    presets: &BTreeMap<String, Preset>,
    unusable: &mut UnusableValues,
) -> Option<AgentSpec> {
    let field = |key: &str| format!("agents.{name}.{key}");
    unusable.check(&field("env_pass"), env_pass::check(&agent.env_pass));
    let timeout_ms = agent
        .timeout
        .as_deref()
        .and_then(|text| unusable.check(&field("timeout"), positive_duration_ms(text)));
    let patience_ms = unusable.duration(
        &field("patience"),
        agent.patience.as_deref(),
        limits::PATIENCE_MS_DEFAULT,
    );
    let memory_bytes_max = agent
        .memory
        .as_deref()
        .and_then(|text| unusable.check(&field("memory"), memory_bytes(text)));
    let stall_ms = unusable.optional_duration(
        &field("stall"),
        agent.stall.as_deref(),
        limits::STALL_MS_DEFAULT,
    );
    let grace_ms = unusable.duration_or_zero(
        &field("grace"),
        agent.grace.as_deref(),
        limits::GRACE_MS_DEFAULT,
    );
    let report_grace_ms = unusable.optional_duration(
        &field("report_grace"),
        agent.report_grace.as_deref(),
        limits::REPORT_GRACE_MS_DEFAULT,
    );
    let permissions = agent.permissions.as_deref().map(|word| {
        let profile = Permissions::from_word(word)
            .ok_or_else(|| format!("unknown profile {word:?}: use read, edit or full"));
        unusable
            .check(&field("permissions"), profile)
            .unwrap_or_default()
    });
    let fence = fence::fence(&field("fence"), agent.fence.as_deref(), unusable).unwrap_or_default();
    fence::check_dirs(&field("fence_write"), &agent.fence_write, unusable);
    let isolation = agent.isolation.as_deref().and_then(|word| {
        let kind = Isolation::from_word(word)
            .ok_or_else(|| format!("unknown isolation {word:?}: use none, clone or worktree"));
        unusable.check(&field("isolation"), kind)
    });
    let parsed = unusable.check(
        &format!("agents.{name}"),
        AgentName::parse(name).map_err(|error| error.to_string()),
    );
    let harness_name = unusable.check(&field("harness"), harness_name(name, agent, presets))?;
    let preset = preset_of(harness_name, presets);
    let harness = unusable.check(&field("harness"), harness_of(harness_name, preset.as_ref()))?;
    let has_identity = unusable
        .check(
            &field("identity"),
            has_identity(agent.identity.as_deref(), harness),
        )
        .unwrap_or(true);
    let has_no_program = agent.command.is_empty()
        && preset
            .as_ref()
            .is_none_or(|preset| preset.command.is_empty());
    if harness != HarnessKind::Echo && has_no_program {
        unusable.report(
            field("command"),
            "this agent needs its program, as command = [\"program\"]",
        );
    }
    let prompt = unusable.check(
        &field("prompt"),
        prompt_via(agent, harness_name, preset.as_ref(), harness),
    )?;
    let command = match &preset {
        Some(preset) if agent.command.is_empty() => preset.command.clone(),
        _ => agent.command.clone(),
    };
    Some(AgentSpec {
        name: parsed?,
        harness,
        preset: preset.as_ref().map_or_else(String::new, Preset::to_text),
        permissions: permissions.unwrap_or_default(),
        trust_repo: agent.trust_repo,
        isolation: isolation.unwrap_or_default(),
        command,
        args: agent.args.clone(),
        prompt,
        env: agent.env.clone(),
        env_pass: agent.env_pass.clone(),
        gate: None,
        description: match (&preset, agent.description.as_str()) {
            (Some(preset), "") if preset.name != preset::ACP => preset.title.clone(),
            (None, "") if agent.harness.is_none() => builtin::ECHO_ABOUT.to_owned(),
            (_, description) => description.to_owned(),
        },
        timeout_ms,
        patience_ms,
        stall_ms,
        memory_bytes_max,
        grace_ms,
        report_grace_ms,
        ends_after_report: agent.end_after_report,
        auto_resume: agent.auto_resume.unwrap_or(true),
        fence,
        fence_write: agent.fence_write.clone(),
        has_identity,
        overrides: AgentOverrides::default(),
    })
}

/// Returns the harness of a declared agent. An entry with the name of a built-in agent, or of a preset, inherits it.
pub(super) fn harness_name<'a>(
    name: &'a str,
    agent: &'a FileAgent,
    presets: &BTreeMap<String, Preset>,
) -> Result<&'a str, String> {
    match &agent.harness {
        Some(harness) => Ok(harness),
        None if name == ECHO || presets.contains_key(name) || preset::builtin(name).is_some() => {
            Ok(name)
        }
        None => Err(format!(
            "missing: no preset is called {name}; use acp, plain, echo or the name of a preset"
        )),
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

fn harness_of(harness: &str, preset: Option<&Preset>) -> Result<HarnessKind, String> {
    match (harness, preset) {
        (_, Some(_)) => Ok(HarnessKind::Vendor),
        ("plain", None) => Ok(HarnessKind::Plain),
        (ECHO, None) => Ok(HarnessKind::Echo),
        (other, None) => {
            let known = preset::names().collect::<Vec<_>>().join(", ");
            Err(format!(
                "unknown harness {other:?}: use acp, plain, echo, {known}, or a name under [presets]"
            ))
        }
    }
}

/// Only a plain program works without the identity statement: the others are agents, which need to know how to reach their parent.
fn has_identity(word: Option<&str>, harness: HarnessKind) -> Result<bool, String> {
    match word {
        None | Some("statement") => Ok(true),
        Some("none") if harness == HarnessKind::Plain => Ok(false),
        Some("none") => Err("only an agent with harness = \"plain\" can do without".to_owned()),
        Some(other) => Err(format!(
            "unknown identity {other:?}: use \"statement\" or \"none\""
        )),
    }
}

fn prompt_via(
    agent: &FileAgent,
    harness_name: &str,
    preset: Option<&Preset>,
    harness: HarnessKind,
) -> Result<PromptVia, String> {
    match (agent.prompt.as_deref(), preset) {
        (None, Some(preset)) => Ok(prompt_of(preset)),
        (Some(_), Some(_)) => Err(format!("the preset {harness_name} defines it")),
        (None | Some("stdin"), None) => Ok(PromptVia::Stdin),
        (Some("arg"), None) => Ok(PromptVia::Arg),
        (Some("stream"), None) if harness == HarnessKind::Echo => Ok(PromptVia::Stream),
        (Some(other), None) => Err(format!("unknown way {other:?}: use \"stdin\" or \"arg\"")),
    }
}
