//! Adjutant's tools as the real CLIs offer them to their models: as parents connected by the
//! README's command, and as agents of runs. Checks their cost in tokens, including the JSON that
//! each CLI adds, and that no CLI has its own tool with one of the names.

use super::Cli;
use super::case::Case;
use super::connect::{Connected, UNKNOWN_MODEL};
use super::user::CODEX_MODEL;
use crate::model::{Seen, Turn};
use crate::support::tokens;
use adjutant_mcp::mcp::{Role, catalog};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// In o200k tokens, including the JSON around each tool.
const PARENT_TOKENS_MAX: u64 = 1_800;
const WORKER_TOKENS_MAX: u64 = 1_200;

/// An argument that Gemini CLI adds to every tool, with a description of 40 tokens.
const OF_GEMINI: &str = "wait_for_previous";

fn ours(role: Role) -> Vec<String> {
    catalog::list(role, false, &[])
        .into_iter()
        .map(|tool| tool.name.into_owned())
        .collect()
}

/// Returns Adjutant's name of a tool, without the CLI's prefix.
fn our_name<'a>(name: &str, ours: &'a [String]) -> Option<&'a String> {
    ours.iter().find(|own| {
        name.strip_suffix(own.as_str())
            .is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(['_', '-', '.', '/']))
    })
}

/// Finds the descriptions of Adjutant's tools anywhere in a request. What surrounds several of them
/// (a namespace with the server's instructions) is kept by its name, without the tools.
fn collect(value: &Value, ours: &[String], found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            if let Some(tools) = fields.get("tools").and_then(Value::as_array)
                && fields.get("type").is_some_and(|kind| kind == "namespace")
                && tools.iter().any(|tool| {
                    tool["name"]
                        .as_str()
                        .and_then(|name| our_name(name, ours))
                        .is_some()
                })
            {
                let around: Map<String, Value> = fields
                    .iter()
                    .filter(|(name, _)| *name != "tools")
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                found.insert(
                    format!("namespace {}", fields["name"]),
                    Value::Object(around),
                );
            }
            let inner = fields.get("function").unwrap_or(value);
            if let (Some(name), true) = (inner["name"].as_str(), inner["description"].is_string())
                && let Some(own) = our_name(name, ours)
            {
                found.insert(own.clone(), value.clone());
                return;
            }
            fields
                .values()
                .for_each(|value| collect(value, ours, found));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, ours, found)),
        _ => {}
    }
}

/// Removes what a CLI adds to the schema of every tool.
fn without_additions(mut tool: Value) -> Value {
    if let Some(properties) = tool
        .pointer_mut("/parametersJsonSchema/properties")
        .and_then(Value::as_object_mut)
    {
        properties.shift_remove(OF_GEMINI);
    }
    tool
}

fn tokens_of(tools: &[Value]) -> u64 {
    let written = serde_json::to_string(tools).expect("JSON");
    tokens(&written)
}

/// Checks the offered tools against their budget.
fn keeps_to_its_budget(cli: Cli, role: Role, seen: &[Seen], tokens_max: u64) {
    let ours = ours(role);
    let mut found = BTreeMap::new();
    for request in seen {
        collect(&request.body, &ours, &mut found);
    }
    let named: Vec<&String> = ours
        .iter()
        .filter(|name| found.contains_key(*name))
        .collect();
    let sent: Vec<Value> = found.values().cloned().collect();
    let own: Vec<Value> = sent.iter().cloned().map(without_additions).collect();
    let (whole, tokens) = (tokens_of(&sent), tokens_of(&own));
    eprintln!(
        "{cli:?} {role:?}: {} of {} tools, {tokens} of {tokens_max} tokens ({whole} with what it adds to every tool)",
        named.len(),
        ours.len()
    );
    assert!(
        named.len() == ours.len(),
        "{cli:?} offers {named:?} of {ours:?}"
    );
    assert!(tokens <= tokens_max, "{cli:?} {role:?}: {tokens} tokens");
    for request in seen {
        for tool in &request.tools {
            let bare = tool.rsplit('/').next().unwrap_or(tool);
            let is_theirs = bare == tool && ours.iter().any(|own| own == bare);
            // pi's extension passes Adjutant's tools on under their own names.
            assert!(
                !is_theirs || matches!(cli, Cli::Goose | Cli::Pi),
                "{cli:?} has a tool of its own that is called {tool}"
            );
        }
    }
}

fn of_a_parent(cli: Cli) {
    let Some(connected) = Connected::by_the_readme(cli) else {
        return;
    };
    // `adj mcp` itself refuses this call, so no hub is started for the home that the CLI passes.
    let seen = connected.plays([
        Turn::call(
            "wait_for_subagents",
            serde_json::json!({ "cursor": "soon" }),
        ),
        Turn::say("done"),
    ]);
    assert!(
        seen.last()
            .is_some_and(|seen| seen.last_result().contains("is not a cursor")),
        "Adjutant's tool answered: {}",
        connected.told()
    );
    keeps_to_its_budget(cli, Role::Parent, &seen, PARENT_TOKENS_MAX);
}

/// Claude Code defers tools until the model searches for them, except for those of the first steps.
#[test]
fn claude_loads_the_tools_of_the_first_steps() {
    let Some(connected) = Connected::by_the_readme(Cli::Claude) else {
        return;
    };
    let seen = connected.types(
        "claude -p --allowedTools mcp__adjutant",
        "do it",
        [Turn::say("done")],
    );
    let ours = ours(Role::Parent);
    let loaded: Vec<&String> = seen[0]
        .tools
        .iter()
        .filter_map(|name| our_name(name, &ours))
        .collect();
    for name in [
        "run_subagent",
        "wait_for_subagents",
        "reply_subagent",
        "list_coding_agents",
    ] {
        assert!(
            loaded.iter().any(|loaded| *loaded == name),
            "{name}: {loaded:?}"
        );
    }
}

fn of_a_worker(cli: Cli) {
    let Some(case) = Case::new(cli, [Turn::say("done"), Turn::say("done")]) else {
        return;
    };
    if cli == Cli::Codex {
        let config = case
            .home
            .home
            .dir
            .with_file_name(".codex")
            .join("config.toml");
        let text = std::fs::read_to_string(&config).expect("its configuration");
        std::fs::write(&config, text.replace(CODEX_MODEL, UNKNOWN_MODEL))
            .expect("its configuration");
    }
    case.starts("edit");
    case.ends();
    keeps_to_its_budget(cli, Role::Worker, &case.model.seen(), WORKER_TOKENS_MAX);
}

/// Those that come first have an MCP client.
macro_rules! for_each_cli {
    ($($name:ident: $cli:ident),*; only as a worker: $worker:ident: $worker_cli:ident) => {
        mod parent {
            $(#[test] fn $name() { super::of_a_parent(super::Cli::$cli); })*
        }
        mod worker {
            $(#[test] fn $name() { super::of_a_worker(super::Cli::$cli); })*
            #[test] fn $worker() { super::of_a_worker(super::Cli::$worker_cli); }
        }
    };
}

for_each_cli!(claude: Claude, codex: Codex, gemini: Gemini, goose: Goose, opencode: Opencode, qwen: Qwen, copilot: Copilot, kimi: Kimi; only as a worker: pi: Pi);

#[test]
fn own_tool_name_is_found_behind_any_prefix() {
    let ours = ours(Role::Parent);
    for name in [
        "run_subagent",
        "mcp__adjutant__run_subagent",
        "adjutant-run_subagent",
        "mcp_adjutant_run_subagent",
        "adj__run_subagent",
    ] {
        assert_eq!(
            our_name(name, &ours).map(String::as_str),
            Some("run_subagent"),
            "{name}"
        );
    }
    for name in ["list_agents", "send_message", "wait", "prerun_subagent"] {
        assert_eq!(our_name(name, &ours), None, "{name}");
    }
}
