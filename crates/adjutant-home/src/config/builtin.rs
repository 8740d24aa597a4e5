//! Built-in agents, which need no declaration.

use crate::preset::{self, Driver, Preset};
use adjutant_core::agent::AgentOverrides;
use adjutant_core::{
    AgentName, AgentSpec, Fence, HarnessKind, Isolation, Permissions, PromptVia, limits,
};
use std::collections::BTreeMap;

/// The name and the harness of the scripted agent.
pub(super) const ECHO: &str = "echo";
pub(super) const ECHO_ABOUT: &str =
    "Built-in scripted agent: its prompt is a script (say, ask, wait, write, fail)";

/// Returns the built-in agents.
pub(super) fn all() -> impl Iterator<Item = AgentSpec> {
    let of_presets = preset::all().iter().map(|preset| {
        of_preset(
            AgentName::parse(&preset.name).expect("a valid name"),
            preset,
        )
    });
    std::iter::once(builtin_echo()).chain(of_presets)
}

fn builtin_echo() -> AgentSpec {
    AgentSpec {
        name: AgentName::parse(ECHO).expect("a valid name"),
        harness: HarnessKind::Echo,
        preset: String::new(),
        permissions: Permissions::default(),
        trust_repo: false,
        isolation: Isolation::None,
        command: Vec::new(),
        args: Vec::new(),
        prompt: PromptVia::Stdin,
        env: BTreeMap::new(),
        env_pass: Vec::new(),
        gate: None,
        description: ECHO_ABOUT.to_owned(),
        timeout_ms: None,
        patience_ms: limits::PATIENCE_MS_DEFAULT,
        stall_ms: Some(limits::STALL_MS_DEFAULT),
        memory_bytes_max: None,
        grace_ms: limits::GRACE_MS_DEFAULT,
        report_grace_ms: Some(limits::REPORT_GRACE_MS_DEFAULT),
        ends_after_report: false,
        auto_resume: true,
        fence: Fence::None,
        fence_write: Vec::new(),
        has_identity: true,
        overrides: AgentOverrides::default(),
    }
}

/// Returns the agent of a preset.
fn of_preset(name: AgentName, preset: &Preset) -> AgentSpec {
    AgentSpec {
        name,
        harness: HarnessKind::Vendor,
        preset: preset.to_text(),
        command: preset.command.clone(),
        prompt: prompt_of(preset),
        description: preset.title.clone(),
        ..builtin_echo()
    }
}

/// Returns how a run receives its prompt, which also determines whether it accepts messages while
/// it works.
pub(super) fn prompt_of(preset: &Preset) -> PromptVia {
    match (preset.driver, preset.prompt) {
        (Driver::Claude | Driver::Codex | Driver::Pi, _) => PromptVia::Stream,
        (Driver::Jsonl | Driver::Plain, preset::PromptForm::Arg) => PromptVia::Arg,
        (Driver::Acp, _) | (Driver::Jsonl | Driver::Plain, preset::PromptForm::Stdin) => {
            PromptVia::Stdin
        }
    }
}
