//! How `adj config show` and `adj agents` show agents.

use crate::config::{AgentEntry, Config};
use crate::preset::Preset;
use adjutant_core::units::{duration, size};
use adjutant_core::{AgentName, AgentSpec, HarnessKind, PromptVia};
use serde_json::{Value, json};

/// Returns an agent's settings in the syntax of the file, with defaults. Values of variables may be
/// secrets and are omitted. An empty value means not set.
pub(crate) fn settings(entry: &AgentEntry) -> Vec<(&'static str, String)> {
    let spec = &entry.spec;
    let quoted = |text: &str| Value::from(text).to_string();
    let mut fields = vec![("harness", quoted(&harness(spec)))];
    if !spec.command.is_empty() {
        fields.push(("command", json!(spec.command).to_string()));
    }
    fields.push(("args", json!(spec.args).to_string()));
    if spec.preset.is_empty() {
        fields.push(("prompt", quoted(prompt(spec.prompt))));
    }
    let names: Vec<String> = spec
        .env
        .keys()
        .map(|name| format!("{} = \"…\"", quoted(name)))
        .collect();
    fields.push((
        "env",
        if names.is_empty() {
            "{}".to_owned()
        } else {
            format!("{{ {} }}", names.join(", "))
        },
    ));
    if !spec.env_pass.is_empty() {
        fields.push(("env_pass", json!(spec.env_pass).to_string()));
    }
    fields.push(("description", quoted(&spec.description)));
    fields.push(("permissions", quoted(spec.permissions.word())));
    fields.push(("trust_repo", spec.trust_repo.to_string()));
    fields.push(("isolation", quoted(spec.isolation.word())));
    fields.push((
        "timeout",
        spec.timeout_ms
            .map_or_else(String::new, |ms| quoted(&duration::exact(ms))),
    ));
    fields.push(("patience", quoted(&duration::exact(spec.patience_ms))));
    fields.push((
        "memory",
        spec.memory_bytes_max
            .map_or_else(String::new, |bytes| quoted(&size::exact(bytes))),
    ));
    fields.push((
        "stall",
        quoted(
            &spec
                .stall_ms
                .map_or_else(|| "never".to_owned(), duration::exact),
        ),
    ));
    fields.push(("grace", quoted(&duration::exact(spec.grace_ms))));
    fields.push((
        "report_grace",
        quoted(
            &spec
                .report_grace_ms
                .map_or_else(|| "never".to_owned(), duration::exact),
        ),
    ));
    fields.push(("end_after_report", spec.ends_after_report.to_string()));
    fields.push(("auto_resume", spec.auto_resume.to_string()));
    fields.push(("fence", quoted(spec.fence.word())));
    if !spec.fence_write.is_empty() {
        fields.push(("fence_write", json!(spec.fence_write).to_string()));
    }
    fields
}

/// Returns an agent as `--json` shows it.
pub(super) fn agent(name: &AgentName, entry: &AgentEntry, config: &Config) -> Value {
    let spec = &entry.spec;
    json!({
        "name": name.as_str(),
        "harness": harness(spec),
        "command": spec.command,
        "args": spec.args,
        "prompt": prompt(spec.prompt),
        "env_names": spec.env.keys().collect::<Vec<_>>(),
        "description": spec.description,
        "permissions": spec.permissions.word(),
        "trust_repo": spec.trust_repo,
        "isolation": spec.isolation.word(),
        "timeout_ms": spec.timeout_ms,
        "patience_ms": spec.patience_ms,
        "stall_ms": spec.stall_ms,
        "memory_bytes_max": spec.memory_bytes_max,
        "grace_ms": spec.grace_ms,
        "report_grace_ms": spec.report_grace_ms,
        "end_after_report": spec.ends_after_report,
        "auto_resume": spec.auto_resume,
        "fence": spec.fence.word(),
        "fence_write": spec.fence_write,
        "pool": config.pool_of(name).as_str(),
        "source": entry.source,
    })
}

fn prompt(via: PromptVia) -> &'static str {
    match via {
        PromptVia::Stdin => "stdin",
        PromptVia::Arg => "arg",
        PromptVia::Stream => "stream",
    }
}

fn harness(spec: &AgentSpec) -> String {
    match spec.harness {
        HarnessKind::Echo => "echo".to_owned(),
        HarnessKind::Plain => "plain".to_owned(),
        HarnessKind::Vendor => {
            Preset::from_text(&spec.preset).map_or_else(String::new, |preset| preset.name)
        }
    }
}
