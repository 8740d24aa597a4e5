//! The lists of tools as clients receive them.

use super::chats::{LIST_CHATS, SEND_MESSAGE, SHOW_CHAT, START_CHAT};
use super::compat::{ALIASES, RUN_PREFIX, UNLISTED};
use super::parent::PARENT;
use super::row::ToolRow;
use super::worker::WORKER;
use crate::mcp::session::Role;
use rmcp::model::Tool;

/// Returns the tools of a role.
#[must_use]
pub fn tools(role: Role) -> &'static [ToolRow] {
    match role {
        Role::Parent => &PARENT,
        Role::Worker => &WORKER,
    }
}

/// Returns whether a tool belongs to chats.
#[must_use]
pub(crate) fn is_of_chats(row: &ToolRow) -> bool {
    [START_CHAT, LIST_CHATS, SHOW_CHAT, SEND_MESSAGE]
        .iter()
        .any(|tool| tool.name == row.name)
}

/// Finds a tool by its name or an alias.
#[must_use]
pub fn find(role: Role, name: &str) -> Option<&'static ToolRow> {
    let own = |name: &str| tools(role).iter().find(|row| row.name == name);
    let alias = || {
        ALIASES
            .iter()
            .find(|(alias, _)| *alias == name)
            .and_then(|(_, name)| own(name))
    };
    let by_agent = || {
        name.strip_prefix(RUN_PREFIX)
            .filter(|agent| !agent.is_empty())
            .and_then(|_| own("run_subagent"))
    };
    own(name).or_else(alias).or_else(by_agent)
}

/// Returns the list of tools of a role. Under `compat`, arguments have the original names, and
/// aliases are added, including those of the given agents.
#[must_use]
pub fn list(role: Role, compat: bool, agents: &[(String, String)]) -> Vec<Tool> {
    let mut list: Vec<Tool> = tools(role)
        .iter()
        .filter(|row| compat || !UNLISTED.contains(&(role, row.name)))
        .map(|row| row.listed(role, row.name, row.about, compat))
        .collect();
    if !compat {
        return list;
    }
    for (alias, name) in ALIASES {
        if let Some(row) = tools(role).iter().find(|row| row.name == name) {
            list.push(row.listed(role, alias, &format!("Another name of {name}."), compat));
        }
    }
    if let Some(row) = tools(role).iter().find(|row| row.name == "run_subagent") {
        for (agent, description) in agents {
            let description = crate::mcp::text::line(description, 150);
            let description = if description.is_empty() {
                String::new()
            } else {
                format!(": {description}")
            };
            let about = format!(
                "Starts the agent {agent} in the background{description}. Then call wait_for_subagents."
            );
            list.push(row.listed_for_agent(agent, &about));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::args::{Args, Kind, Param};
    use crate::mcp::caps;
    use adjutant_core::principal::{Verdict, may};
    use adjutant_core::{ClientName, Principal, Relation, RunId, Time};
    use rmcp::model::JsonObject;
    use serde_json::{Value, json};

    const ROLES: [(Role, usize, usize); 2] = [(Role::Parent, 1_800, 15), (Role::Worker, 1_200, 10)];

    /// Counts the lists as a plain client sends them. `tests/it/vendors/offered.rs` counts what
    /// real clients send.
    #[test]
    fn tool_lists_are_within_their_budgets() {
        let bpe = tiktoken_rs::o200k_base().expect("the encoding is part of the crate");
        for (role, tokens_max, tools_max) in ROLES {
            let list = list(role, false, &[]);
            assert!(list.len() <= tools_max);
            let sent: Vec<Value> = list
                .iter()
                .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema_as_json_value()}))
                .collect();
            let visible = json!(sent).to_string();
            let tokens = bpe.encode_ordinary(&visible).len();
            println!(
                "{role:?}: {} tools, {tokens} of {tokens_max} tokens",
                list.len()
            );
            assert!(tokens <= tokens_max, "{role:?}: {tokens} tokens");
        }
    }

    #[test]
    fn every_tool_is_described_and_hinted_in_plain_terms() {
        for (role, ..) in ROLES {
            for tool in list(role, true, &[("echo".into(), "A scripted agent".into())]) {
                let about = tool.description.as_deref().unwrap_or_default();
                assert!(
                    (20..=300).contains(&about.chars().count()),
                    "{}: {} characters",
                    tool.name,
                    about.chars().count()
                );
                assert!(
                    tool.name.len() <= 64
                        && tool
                            .name
                            .bytes()
                            .all(|b| b.is_ascii_lowercase() || b == b'_' || b == b'-'),
                    "{}",
                    tool.name
                );
                let hints = tool.annotations.clone().expect("annotated");
                let all = [
                    hints.read_only_hint,
                    hints.destructive_hint,
                    hints.idempotent_hint,
                    hints.open_world_hint,
                ];
                assert!(
                    all.iter().all(Option::is_some)
                        && tool.title.is_some()
                        && tool.output_schema.is_some(),
                    "{}",
                    tool.name
                );
                let schema = tool.schema_as_json_value().to_string();
                for word in ["anyOf", "oneOf", "$ref", "null", "\"format\"", "$schema"] {
                    assert!(!schema.contains(word), "{}: {word}", tool.name);
                }
            }
        }
    }

    #[test]
    fn tool_list_is_stable_and_only_has_tools_of_its_role() {
        let who = [
            (
                Role::Parent,
                Principal::Client(ClientName::parse("/work/a").expect("a name")),
                Relation::Owner,
            ),
            (
                Role::Worker,
                Principal::Run(RunId::new(Time(1), [1; 10])),
                Relation::Itself,
            ),
        ];
        for (role, principal, relation) in who {
            assert_eq!(list(role, false, &[]), list(role, false, &[]));
            for row in tools(role) {
                assert!(!row.actions.is_empty(), "{} has no rule", row.name);
                for action in row.actions {
                    assert_eq!(
                        may(&principal, *action, relation),
                        Verdict::Yes,
                        "{}: {action:?}",
                        row.name
                    );
                }
            }
        }
    }

    #[test]
    fn tools_of_the_first_steps_are_always_loaded() {
        let loaded = |role| -> Vec<String> {
            let is_loaded = |tool: &Tool| {
                tool.meta
                    .as_ref()
                    .is_some_and(|meta| meta.get("anthropic/alwaysLoad") == Some(&json!(true)))
            };
            list(role, false, &[])
                .into_iter()
                .filter(is_loaded)
                .map(|tool| tool.name.into_owned())
                .collect()
        };
        assert_eq!(
            loaded(Role::Parent),
            [
                "run_subagent",
                "wait_for_subagents",
                "reply_subagent",
                "list_coding_agents"
            ]
        );
        assert!(loaded(Role::Worker).contains(&"ask_parent".to_owned()));
    }

    #[test]
    fn aliases_name_the_same_tools() {
        for (role, old, new) in [
            (Role::Parent, "list_agents", "list_coding_agents"),
            (Role::Parent, "send_message", "send_chat_message"),
            (Role::Worker, "send_message", "send_chat_message"),
        ] {
            assert_eq!(find(role, old).map(|row| row.name), Some(new));
            assert!(
                list(role, false, &[]).iter().all(|tool| tool.name != old),
                "{old} is listed"
            );
        }
        assert_eq!(
            find(Role::Worker, "check_message_status").map(|row| row.name),
            Some("check_answer")
        );
        assert_eq!(
            find(Role::Parent, "run_subagent_constructor").map(|row| row.name),
            Some("run_subagent")
        );
        assert_eq!(
            find(Role::Parent, "run_subagent_").map(|row| row.name),
            None
        );
        assert_eq!(
            find(Role::Worker, "run_subagent_echo").map(|row| row.name),
            None
        );
        assert_eq!(
            find(Role::Worker, "reply_subagent").map(|row| row.name),
            None
        );
        let names: Vec<_> = list(Role::Parent, true, &[("echo".into(), String::new())])
            .into_iter()
            .map(|tool| tool.name.into_owned())
            .collect();
        for name in [
            "check_status",
            "get_logs",
            "update_status",
            "run_subagent_echo",
        ] {
            assert!(names.iter().any(|listed| listed == name), "{name}");
        }
        assert!(caps::UNKNOWN < caps::OWN_WORKER);
    }

    /// The arguments of the original tools, and those that their protocol requires.
    const ORIGINAL: [(Role, &str, &[&str], &[&str]); 21] = [
        (Role::Parent, "run_subagent_claude", &["input"], &["input"]),
        (Role::Parent, "check_subagent_status", &["runId"], &[]),
        (Role::Parent, "check_status", &["runId"], &["runId"]),
        (Role::Parent, "get_subagent_logs", &["runId"], &["runId"]),
        (Role::Parent, "get_logs", &["runId"], &["runId"]),
        (
            Role::Parent,
            "update_subagent_status",
            &["runId", "status", "summary"],
            &["runId", "status"],
        ),
        (
            Role::Parent,
            "update_status",
            &["runId", "status", "summary"],
            &["runId", "status"],
        ),
        (
            Role::Parent,
            "reply_subagent",
            &["runId", "messageId", "answer"],
            &[],
        ),
        (Role::Parent, "get_pending_questions", &["run_id"], &[]),
        (Role::Parent, "start-chat", &["title"], &["title"]),
        (Role::Parent, "list-chats", &[], &[]),
        (Role::Parent, "show-chat", &["chatId"], &["chatId"]),
        (
            Role::Parent,
            "send-message",
            &["chatId", "agentName", "message"],
            &["chatId", "agentName", "message"],
        ),
        (
            Role::Parent,
            "ask_gemini",
            &["chatId", "agentName", "prompt"],
            &["prompt"],
        ),
        (
            Role::Worker,
            "ask_parent",
            &["runId", "question"],
            &["question"],
        ),
        (
            Role::Worker,
            "check_message_status",
            &["runId", "messageId"],
            &["runId", "messageId"],
        ),
        (
            Role::Worker,
            "check_answer",
            &["message_id"],
            &["message_id"],
        ),
        (
            Role::Worker,
            "send-message",
            &["chatId", "agentName", "message"],
            &["chatId", "agentName", "message"],
        ),
        (
            Role::Worker,
            "update_subagent_status",
            &[
                "status",
                "summary",
                "deliverables",
                "metrics_achieved",
                "issues_encountered",
                "recommendations",
                "total_duration",
            ],
            &["status"],
        ),
        (
            Role::Worker,
            "stop_work",
            &[
                "stop_reason",
                "details",
                "blocker_type",
                "completed_work",
                "blocked_work",
                "state_snapshot",
                "resume_requirements",
                "error_recovery",
            ],
            &["stop_reason", "details"],
        ),
        (
            Role::Worker,
            "delegate_work",
            &[
                "new_task_description",
                "delegation_reason",
                "independence",
                "context_required",
                "estimated_duration",
                "priority",
                "coordination",
            ],
            &["new_task_description"],
        ),
    ];

    #[test]
    fn compat_lists_the_original_names_and_required_arguments() {
        for (role, name, args, required) in ORIGINAL {
            let list = list(role, true, &[("claude".into(), String::new())]);
            let tool = list
                .iter()
                .find(|tool| tool.name == name)
                .unwrap_or_else(|| panic!("{role:?}: no {name}"));
            let schema = tool.schema_as_json_value();
            let listed: Vec<&String> = schema["properties"]
                .as_object()
                .expect("properties")
                .keys()
                .collect();
            for arg in args {
                assert!(
                    listed.iter().any(|listed| listed == arg),
                    "{role:?} {name}: no {arg} in {listed:?}"
                );
            }
            let needed: Vec<&str> = schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            for arg in required {
                assert!(
                    needed.contains(arg),
                    "{role:?} {name}: {arg} is not required, only {needed:?}"
                );
            }
            // A call with the listed arguments is accepted.
            let row = find(role, name).expect("a tool");
            let given = schema["properties"]
                .as_object()
                .expect("properties")
                .iter()
                .map(|(name, schema)| {
                    let value = match schema["type"].as_str() {
                        Some("integer") => json!(1),
                        Some("boolean") => json!(true),
                        Some("array") => json!([]),
                        Some("object") => json!({}),
                        _ => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("x")),
                    };
                    (name.clone(), value)
                });
            let mut given: JsonObject = given.collect();
            given.insert("agent".to_owned(), json!("claude"));
            let given = given
                .into_iter()
                .filter(|(name, _)| {
                    name != "agent" || row.params.iter().any(|param| param.name == "agent")
                })
                .collect();
            assert!(
                Args::read(row.params, Some(given)).is_ok(),
                "{role:?} {name}"
            );
        }
    }

    #[test]
    fn arguments_of_each_tool_equal_its_schema() {
        for (role, ..) in ROLES {
            for row in tools(role) {
                let mut listed: Vec<&str> = row.params.iter().map(|param| param.name).collect();
                let mut fields = (row.handler.fields)().to_vec();
                listed.sort_unstable();
                fields.sort_unstable();
                assert_eq!(fields, listed, "{role:?} {}", row.name);
                let all = || {
                    row.params
                        .iter()
                        .map(|param| (param.name.to_owned(), example(param)))
                };
                let decode = |object: JsonObject| (row.handler.decode)(Args::unchecked(object));
                assert_eq!(decode(all().collect()), Ok(()), "{role:?} {}", row.name);
                for param in row.params {
                    let without = decode(all().filter(|(name, _)| name != param.name).collect());
                    assert_eq!(
                        without.is_err(),
                        param.required,
                        "{role:?} {}: {} left out: {without:?}",
                        row.name,
                        param.name
                    );
                    let Kind::Word(words) = param.kind else {
                        continue;
                    };
                    for word in words {
                        let with = all()
                            .filter(|(name, _)| name != param.name)
                            .chain([(param.name.to_owned(), json!(word))]);
                        assert_eq!(
                            decode(with.collect()),
                            Ok(()),
                            "{role:?} {}: {} {word}",
                            row.name,
                            param.name
                        );
                    }
                }
            }
        }
    }

    fn example(param: &Param) -> Value {
        match param.kind {
            Kind::Text | Kind::Names => json!("x"),
            Kind::Integer => json!(-1),
            Kind::Count => json!(1),
            Kind::Bool => json!(true),
            Kind::Word(words) => json!(words[0]),
            Kind::Texts => json!(["x"]),
            Kind::Answers => json!([{"message_id": "Q1", "answer": "x"}]),
            Kind::Questions => json!([{"question": "x"}]),
            Kind::Changes => json!({"agent": "echo"}),
        }
    }

    #[test]
    fn identity_statement_is_within_its_budget() {
        use adjutant_core::identity::{Acceptance, ParentChannel, with_statement};
        let bpe = tiktoken_rs::o200k_base().expect("the encoding is part of the crate");
        let run = adjutant_core::RunId::new(adjutant_core::Time(1_763_686_923_004), *b"0123456789");
        for voice in [
            ParentChannel::Tools,
            ParentChannel::Blocks,
            ParentChannel::Chat,
        ] {
            let statement = with_statement(
                run,
                "brave-otter",
                &["calm-newt".to_owned()],
                voice,
                &Acceptance::default(),
                "",
            );
            let tokens = bpe.encode_ordinary(&statement).len();
            assert!(tokens < 350, "{voice:?}: {tokens}");
        }
    }
}
