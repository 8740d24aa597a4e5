//! The built-in presets.

use super::Preset;
use std::sync::LazyLock;

/// The sources of the built-in presets, by name.
const SOURCES: &[(&str, &str)] = &[
    ("claude", include_str!("builtin/claude.toml")),
    ("codex", include_str!("builtin/codex.toml")),
    ("gemini", include_str!("builtin/gemini.toml")),
    ("goose", include_str!("builtin/goose.toml")),
    ("qwen", include_str!("builtin/qwen.toml")),
    ("opencode", include_str!("builtin/opencode.toml")),
    ("kilo", include_str!("builtin/kilo.toml")),
    ("cline", include_str!("builtin/cline.toml")),
    ("copilot", include_str!("builtin/copilot.toml")),
    ("kimi", include_str!("builtin/kimi.toml")),
    ("q", include_str!("builtin/q.toml")),
    ("cursor-agent", include_str!("builtin/cursor-agent.toml")),
    ("kiro", include_str!("builtin/kiro.toml")),
    ("aider", include_str!("builtin/aider.toml")),
    ("pi", include_str!("builtin/pi.toml")),
    ("amp", include_str!("builtin/amp.toml")),
    ("crush", include_str!("builtin/crush.toml")),
    ("droid", include_str!("builtin/droid.toml")),
];

/// Stream rules that all ACP agents share.
pub(super) const ACP_STREAM: &str = include_str!("builtin/acp.stream.toml");
/// The harness for any agent that speaks ACP.
pub const ACP: &str = "acp";
/// Preset of ACP agents that have none of their own.
const ACP_DEFAULTS: &str = include_str!("builtin/acp.toml");

/// Returns the names of the built-in presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(|(name, _)| *name)
}

/// Returns the preset for any agent that speaks ACP. It names no program.
#[must_use]
pub fn acp() -> &'static Preset {
    static DEFAULTS: LazyLock<Preset> = LazyLock::new(|| {
        toml::from_str::<Preset>(ACP_DEFAULTS)
            .expect("the built-in ACP defaults are valid")
            .complete(ACP)
    });
    &DEFAULTS
}

/// Returns a built-in preset.
#[must_use]
pub fn builtin(name: &str) -> Option<Preset> {
    all().iter().find(|preset| preset.name == name).cloned()
}

/// Returns the built-in presets.
#[must_use]
pub fn all() -> &'static [Preset] {
    static ALL: LazyLock<Vec<Preset>> = LazyLock::new(|| {
        let read = |(name, text): &(&str, &str)| {
            toml::from_str::<Preset>(text)
                .expect("a built-in preset is valid")
                .complete(name)
        };
        SOURCES.iter().map(read).collect()
    });
    &ALL
}

/// Returns whether a variable belongs to a vendor. Such a variable is passed only to that vendor's
/// CLI.
#[must_use]
pub fn is_vendors_variable(name: &str) -> bool {
    static PATTERNS: LazyLock<Vec<&str>> = LazyLock::new(|| {
        SOURCES
            .iter()
            .flat_map(|(_, text)| env_pass_of(text))
            .collect()
    });
    super::passes(&PATTERNS, name)
}

/// Returns `env_pass` of a preset's source. Each `adj mcp` needs it for its first call, and parsing
/// all presets would take longer than the call.
fn env_pass_of(text: &str) -> impl Iterator<Item = &str> {
    let list = text
        .split_once("\nenv_pass = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_variables_are_found_without_parsing() {
        for (name, text) in SOURCES {
            let preset = builtin(name).expect("a preset");
            assert!(!preset.env_pass.is_empty(), "{name}");
            assert_eq!(
                env_pass_of(text).collect::<Vec<_>>(),
                preset.env_pass,
                "{name}"
            );
        }
        assert!(is_vendors_variable("ANTHROPIC_API_KEY") && !is_vendors_variable("PATH"));
    }
}
