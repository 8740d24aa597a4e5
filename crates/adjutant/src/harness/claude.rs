//! Claude Code's stream-json, the way in: messages of the user, the control requests that it sends
//! and those that are sent to it.

use super::own_tools::OwnTools;
use super::step::{Decision, Permission, Step, line, named_within};
use crate::view::MessageView;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub struct Claude {
    /// Messages that it was given and has not read.
    unread: BTreeSet<String>,
    /// What it waits for a decision about: the input that it continues with.
    pending: BTreeMap<String, Value>,
    /// Sub-agents of its own work in the background.
    has_subagents: bool,
    own_tools: OwnTools,
    cwd: PathBuf,
}

impl Claude {
    pub(super) fn new(own_tools: OwnTools, cwd: PathBuf) -> Self {
        Self { own_tools, cwd, ..Self::default() }
    }

    pub(super) fn opening(&mut self, prompt: &str) -> Vec<u8> {
        user(prompt, None)
    }

    pub(super) fn receive(&mut self, incoming: &Value) -> Vec<Step> {
        match incoming["type"].as_str() {
            Some("control_request") => self.handle_request(incoming),
            // It says a message again when it has read it.
            Some("user") => match incoming["uuid"].as_str() {
                Some(id) if self.unread.remove(id) => vec![Step::Delivered(id.to_owned())],
                _ => Vec::new(),
            },
            // It would try for minutes; a key does not become good by that.
            Some("system") if matches!(incoming["error_status"].as_u64(), Some(401 | 403)) => {
                vec![Step::Failed(format!("{} (HTTP status {})", incoming["error"].as_str().unwrap_or("refused"), incoming["error_status"]))]
            }
            Some("system") if incoming["subtype"] == "background_tasks_changed" => {
                let tasks = incoming["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.has_subagents = tasks.iter().any(|task| task["task_type"] == "local_agent");
                Vec::new()
            }
            // With a message under way there is another turn, and another result. So there is when a sub-agent
            // that works behind it has ended.
            Some("result") if self.unread.is_empty() && !self.has_subagents => vec![Step::Close],
            _ => Vec::new(),
        }
    }

    fn handle_request(&mut self, incoming: &Value) -> Vec<Step> {
        let Some(id) = incoming["request_id"].as_str() else { return Vec::new() };
        let request = &incoming["request"];
        if request["subtype"] != "can_use_tool" {
            let response = json!({ "subtype": "error", "request_id": id, "error": "not supported" });
            return vec![Step::Write(line(&json!({ "type": "control_response", "response": response })))];
        }
        let (tool, input) = (request["tool_name"].as_str().unwrap_or("a tool").to_owned(), request["input"].clone());
        let permission = Permission {
            id: id.to_owned(),
            is_own_tool: self.own_tools.has(&tool),
            edits: self.edits(&tool, &input),
            tool,
            input: input.to_string(),
        };
        self.pending.insert(id.to_owned(), input);
        vec![Step::Permission(permission)]
    }

    /// The file that one of its editing tools changes, where that lies in the run's directory by its name.
    fn edits(&self, tool: &str, input: &Value) -> Vec<PathBuf> {
        let field = match tool {
            "Edit" | "MultiEdit" | "Write" => "file_path",
            "NotebookEdit" => "notebook_path",
            _ => return Vec::new(),
        };
        input[field].as_str().and_then(|file| named_within(&self.cwd, Path::new(file))).into_iter().collect()
    }

    pub(super) fn message(&mut self, message: &MessageView) -> Vec<u8> {
        self.unread.insert(message.message_id.clone());
        // Words before it, so that it is a message and never a command.
        user(&format!("A message from {}:\n{}", message.from, message.text), Some(&message.message_id))
    }

    pub(super) fn cancel(&mut self) -> Vec<u8> {
        self.unread.clear();
        line(&json!({ "type": "control_request", "request_id": "stop", "request": { "subtype": "interrupt" } }))
    }

    pub(super) fn decide(&mut self, id: &str, decision: &Decision) -> Option<Vec<u8>> {
        let input = self.pending.remove(id)?;
        let decided = match decision {
            Decision::Allow => json!({ "behavior": "allow", "updatedInput": input }),
            Decision::Deny(why) => json!({ "behavior": "deny", "message": why }),
        };
        Some(line(&json!({ "type": "control_response", "response": { "subtype": "success", "request_id": id, "response": decided } })))
    }
}

fn user(text: &str, id: Option<&str>) -> Vec<u8> {
    let mut message = json!({
        "type": "user",
        "message": { "role": "user", "content": [{ "type": "text", "text": text }] },
        "parent_tool_use_id": null,
        "session_id": "",
    });
    if let Some(id) = id {
        message["uuid"] = id.into();
    }
    line(&message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).expect("one JSON object")
    }

    #[test]
    fn a_permission_is_asked_for_and_decided_once() {
        let mut claude = Claude::default();
        let asked = json!({"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -rf /"}}});
        let steps = claude.receive(&asked);
        let expected = Permission {
            id: "r1".to_owned(),
            tool: "Bash".to_owned(),
            input: "{\"command\":\"rm -rf /\"}".to_owned(),
            is_own_tool: false,
            edits: Vec::new(),
        };
        assert_eq!(steps, [Step::Permission(expected)]);
        let answer = text(&claude.decide("r1", &Decision::Deny("no".to_owned())).expect("it was asked"));
        assert_eq!(answer["response"]["response"], json!({"behavior": "deny", "message": "no"}));
        assert_eq!(claude.decide("r1", &Decision::Allow), None);
    }

    #[test]
    fn edit_is_of_a_file_in_the_directory() {
        let claude = Claude::new(OwnTools::default(), PathBuf::from("/w"));
        let edits = |tool: &str, input: Value| claude.edits(tool, &input);
        assert_eq!(edits("Write", json!({"file_path": "/w/a.txt", "content": "x"})), [PathBuf::from("/w/a.txt")]);
        assert_eq!(edits("NotebookEdit", json!({"notebook_path": "/w/n.ipynb"})), [PathBuf::from("/w/n.ipynb")]);
        for (tool, file) in [("Write", "/etc/passwd"), ("Edit", "/w/../etc/passwd"), ("Bash", "/w/a.txt"), ("mcp__x__Write", "/w/a.txt")] {
            assert!(edits(tool, json!({"file_path": file})).is_empty(), "{tool} {file}");
        }
    }

    #[test]
    fn its_input_ends_with_its_result_unless_a_message_is_under_way() {
        let mut claude = Claude::default();
        let message = MessageView { message_id: "m1".to_owned(), from: "person".to_owned(), text: "/exit".to_owned(), ..MessageView::default() };
        let given = text(&claude.message(&message));
        assert_eq!(given["message"]["content"][0]["text"], "A message from person:\n/exit");
        let result = json!({"type": "result", "subtype": "success"});
        assert_eq!(claude.receive(&result), []);
        assert_eq!(claude.receive(&json!({"type": "user", "isReplay": true, "uuid": "m1"})), [Step::Delivered("m1".to_owned())]);
        assert_eq!(claude.receive(&result), [Step::Close]);
    }

    #[test]
    fn its_input_stays_open_while_its_sub_agents_work() {
        let mut claude = Claude::default();
        let tasks = |kinds: &[&str]| {
            let tasks: Vec<Value> = kinds.iter().map(|kind| json!({"task_id": "t", "task_type": kind})).collect();
            json!({"type": "system", "subtype": "background_tasks_changed", "tasks": tasks})
        };
        let result = json!({"type": "result", "subtype": "success"});
        assert_eq!(claude.receive(&tasks(&["local_agent", "local_bash"])), []);
        assert_eq!(claude.receive(&result), []);
        assert_eq!(claude.receive(&tasks(&["local_bash"])), []);
        assert_eq!(claude.receive(&result), [Step::Close]);
    }

    #[test]
    fn a_key_that_is_refused_is_not_tried_again() {
        let retry = json!({"type": "system", "subtype": "api_retry", "error_status": 401, "error": "authentication_failed"});
        assert!(matches!(Claude::default().receive(&retry).as_slice(), [Step::Failed(why)] if why.contains("401")));
        let retry = json!({"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"});
        assert_eq!(Claude::default().receive(&retry), []);
    }
}
