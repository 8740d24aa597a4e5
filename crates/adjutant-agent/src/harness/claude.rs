//! Claude Code's stream-json input: user messages, and control requests in both directions.

use super::operation::{self, ShellDirectories};
use super::own_tools::OwnTools;
use super::step::{Decision, Permission, Step, line, named_within};
use crate::view::MessageView;
use adjutant_core::policy::Operation;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub struct Claude {
    /// Ids of messages that were sent and not read yet.
    unread: BTreeSet<String>,
    /// Permission requests without a decision: the input to continue with, by request id.
    pending: BTreeMap<String, Value>,
    /// Claude Code's own sub-agents work in the background.
    has_subagents: bool,
    own_tools: OwnTools,
    cwd: PathBuf,
    /// Claude Code keeps the directory of its shell from one command to the next.
    shell: ShellDirectories,
}

impl Claude {
    pub(super) fn new(own_tools: OwnTools, cwd: PathBuf) -> Self {
        Self {
            own_tools,
            cwd,
            ..Self::default()
        }
    }

    pub(super) fn opening(&mut self, prompt: &str) -> Vec<u8> {
        user(prompt, None)
    }

    pub(super) fn receive(&mut self, incoming: &Value) -> Vec<Step> {
        match incoming["type"].as_str() {
            Some("control_request") => self.handle_request(incoming),
            // Commands that need no permission change the directory too.
            Some("assistant") => {
                let parts = incoming["message"]["content"]
                    .as_array()
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                for part in parts
                    .iter()
                    .filter(|part| part["type"] == "tool_use" && part["name"] == "Bash")
                {
                    self.record_command(part["id"].as_str(), &part["input"]);
                }
                Vec::new()
            }
            // Claude Code repeats a message when it has read it.
            Some("user") => match incoming["uuid"].as_str() {
                Some(id) if self.unread.remove(id) => vec![Step::Delivered(id.to_owned())],
                _ => Vec::new(),
            },
            // Claude Code would retry for minutes, but a rejected key stays rejected.
            Some("system") if matches!(incoming["error_status"].as_u64(), Some(401 | 403)) => {
                vec![Step::Failed(format!(
                    "{} (HTTP status {})",
                    incoming["error"].as_str().unwrap_or("refused"),
                    incoming["error_status"]
                ))]
            }
            Some("system") if incoming["subtype"] == "background_tasks_changed" => {
                let tasks = incoming["tasks"]
                    .as_array()
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                self.has_subagents = tasks.iter().any(|task| task["task_type"] == "local_agent");
                Vec::new()
            }
            // An unread message leads to another turn and another result, and so does the end of a
            // background sub-agent.
            Some("result") if self.unread.is_empty() && !self.has_subagents => vec![Step::Close],
            Some("result") => vec![Step::TurnEnded],
            _ => Vec::new(),
        }
    }

    fn handle_request(&mut self, incoming: &Value) -> Vec<Step> {
        let Some(id) = incoming["request_id"].as_str() else {
            return Vec::new();
        };
        let request = &incoming["request"];
        if request["subtype"] != "can_use_tool" {
            let response =
                json!({ "subtype": "error", "request_id": id, "error": "not supported" });
            return vec![Step::Write(line(
                &json!({ "type": "control_response", "response": response }),
            ))];
        }
        let (tool, input) = (
            request["tool_name"].as_str().unwrap_or("a tool").to_owned(),
            request["input"].clone(),
        );
        let permission = Permission {
            id: id.to_owned(),
            is_own_tool: self.own_tools.has(&tool),
            edits: self.edits(&tool, &input),
            operation: Box::new(self.operation(&tool, &input, request["tool_use_id"].as_str())),
            tool,
            input: input.to_string(),
        };
        if permission.tool == "Bash" {
            self.record_command(request["tool_use_id"].as_str(), &input);
        }
        self.pending.insert(id.to_owned(), input);
        vec![Step::Permission(permission)]
    }

    /// Returns the file that an editing tool changes, if by its name it is below the run's
    /// directory.
    fn edits(&self, tool: &str, input: &Value) -> Vec<PathBuf> {
        let field = match tool {
            "Edit" | "MultiEdit" | "Write" => "file_path",
            "NotebookEdit" => "notebook_path",
            _ => return Vec::new(),
        };
        input[field]
            .as_str()
            .and_then(|file| named_within(&self.cwd, Path::new(file)))
            .into_iter()
            .collect()
    }

    fn record_command(&mut self, call: Option<&str>, input: &Value) {
        if let Some(command) = input["command"].as_str() {
            self.shell
                .record(call.unwrap_or_default(), command, &self.cwd);
        }
    }

    fn operation(&self, tool: &str, input: &Value, call: Option<&str>) -> Operation {
        let cwd = &self.cwd;
        let field = match tool {
            "Bash" => {
                return self.shell.applied(
                    call,
                    operation::shell(tool, input, cwd, &["run_in_background"]),
                );
            }
            "WebFetch" => return operation::fetch(tool, input),
            "Edit" | "MultiEdit" | "Write" | "Read" => "file_path",
            "NotebookEdit" => "notebook_path",
            "Glob" | "Grep" | "LS" => "path",
            _ => return operation::opaque(tool, input),
        };
        let file = input[field].as_str();
        // Relative paths start at the directory of the shell.
        let possible_directories = if file.is_some_and(|file| file.starts_with('/')) {
            Vec::new()
        } else {
            self.shell.possible(call)
        };
        let elsewhere: Vec<String> = possible_directories
            .iter()
            .zip(std::iter::repeat(file))
            .filter_map(|(directory, file)| Some(format!("{directory}/{}", file?)))
            .collect();
        // The pattern of a search can name files of its own.
        let is_complete = !matches!(tool, "Glob" | "Grep")
            && operation::states_only_files(input, |name| name == field);
        let files = file.into_iter().chain(elsewhere.iter().map(String::as_str));
        Operation {
            possible_directories,
            ..operation::on_files(tool, input, cwd, files, is_complete)
        }
    }

    pub(super) fn message(&mut self, message: &MessageView) -> Vec<u8> {
        self.unread.insert(message.message_id.clone());
        // The text before it keeps it from being read as a command.
        user(
            &format!("A message from {}:\n{}", message.from, message.text),
            Some(&message.message_id),
        )
    }

    pub(super) fn cancel(&mut self) -> Vec<u8> {
        self.unread.clear();
        line(
            &json!({ "type": "control_request", "request_id": "stop", "request": { "subtype": "interrupt" } }),
        )
    }

    pub(super) fn decide(&mut self, id: &str, decision: &Decision) -> Option<Vec<u8>> {
        let input = self.pending.remove(id)?;
        let decided = match decision {
            Decision::Allow => json!({ "behavior": "allow", "updatedInput": input }),
            Decision::Deny(why) => json!({ "behavior": "deny", "message": why }),
        };
        Some(line(
            &json!({ "type": "control_response", "response": { "subtype": "success", "request_id": id, "response": decided } }),
        ))
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
    fn permission_request_is_decided_once() {
        let mut claude = Claude::default();
        let asked = json!({"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -rf /"}}});
        let steps = claude.receive(&asked);
        let expected = Permission {
            id: "r1".to_owned(),
            tool: "Bash".to_owned(),
            input: "{\"command\":\"rm -rf /\"}".to_owned(),
            is_own_tool: false,
            edits: Vec::new(),
            operation: Box::new(operation::shell(
                "Bash",
                &json!({"command": "rm -rf /"}),
                Path::new(""),
                &[],
            )),
        };
        assert_eq!(steps, [Step::Permission(expected)]);
        let answer = text(
            &claude
                .decide("r1", &Decision::Deny("no".to_owned()))
                .expect("the request is pending"),
        );
        assert_eq!(
            answer["response"]["response"],
            json!({"behavior": "deny", "message": "no"})
        );
        assert_eq!(claude.decide("r1", &Decision::Allow), None);
    }

    #[test]
    fn edit_names_a_file_in_the_directory() {
        let claude = Claude::new(OwnTools::default(), PathBuf::from("/w"));
        let edits = |tool: &str, input: Value| claude.edits(tool, &input);
        assert_eq!(
            edits("Write", json!({"file_path": "/w/a.txt", "content": "x"})),
            [PathBuf::from("/w/a.txt")]
        );
        assert_eq!(
            edits("NotebookEdit", json!({"notebook_path": "/w/n.ipynb"})),
            [PathBuf::from("/w/n.ipynb")]
        );
        for (tool, file) in [
            ("Write", "/etc/passwd"),
            ("Edit", "/w/../etc/passwd"),
            ("Bash", "/w/a.txt"),
            ("mcp__x__Write", "/w/a.txt"),
        ] {
            assert!(
                edits(tool, json!({"file_path": file})).is_empty(),
                "{tool} {file}"
            );
        }
    }

    #[test]
    fn operation_matches_the_tools_input() {
        let claude = Claude::new(OwnTools::default(), PathBuf::from("/w"));
        let operation = |tool: &str, input: Value| claude.operation(tool, &input, None);
        assert!(operation("Write", json!({"file_path": "a", "content": "x"})).is_complete);
        assert!(
            !operation(
                "Write",
                json!({"file_path": "a", "content": "x", "owner": "root"})
            )
            .is_complete,
            "an unknown field"
        );
        let bash = operation(
            "Bash",
            json!({"command": "git status", "description": "look", "run_in_background": true}),
        );
        assert!(bash.is_complete && bash.command.as_deref() == Some("git status"));
        assert!(
            !operation(
                "Bash",
                json!({"command": "ls", "dangerouslyDisableSandbox": true})
            )
            .is_complete
        );
        assert_eq!(
            operation("Write", json!({"file_path": "a/b", "content": "x"})).paths[0].stated,
            "/w/a/b"
        );
        assert_eq!(
            operation("WebFetch", json!({"url": "https://x.org/", "prompt": "?"})).urls,
            ["https://x.org/"]
        );
        let other = operation(
            "mcp__x__y",
            json!({"command": "ls", "url": "https://x.org"}),
        );
        assert!(
            !other.is_complete
                && other.command.is_none()
                && other.urls.is_empty()
                && other.digest.is_some()
        );
    }

    #[test]
    fn directory_is_uncertain_after_a_change_of_it() {
        let mut claude = Claude::new(OwnTools::default(), PathBuf::from("/w"));
        let uses = |id: &str, command: &str| json!({"type": "assistant", "message": {"content": [{"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}]}});
        claude.receive(&uses("t1", "cd /w && make"));
        let bash = json!({"command": "make"});
        assert!(
            claude
                .operation("Bash", &bash, Some("t2"))
                .possible_directories
                .is_empty()
        );
        // Claude Code asks no permission for this command.
        claude.receive(&uses("t3", "cd secrets"));
        assert!(
            claude
                .operation("Bash", &json!({"command": "cd secrets"}), Some("t3"))
                .possible_directories
                .is_empty()
        );
        assert_eq!(
            claude
                .operation("Bash", &bash, Some("t4"))
                .possible_directories,
            ["/w", "/w/secrets"]
        );
        let read = claude.operation("Read", &json!({"file_path": "key"}), Some("t5"));
        let paths: Vec<&str> = read.paths.iter().map(|path| path.stated.as_str()).collect();
        assert!(
            !read.possible_directories.is_empty() && paths == ["/w/key", "/w/secrets/key"],
            "{read:?}"
        );
        assert!(
            claude
                .operation("Read", &json!({"file_path": "/w/key"}), Some("t6"))
                .possible_directories
                .is_empty()
        );
    }

    #[test]
    fn result_closes_the_input_unless_a_message_is_unread() {
        let mut claude = Claude::default();
        let message = MessageView {
            message_id: "m1".to_owned(),
            from: "person".to_owned(),
            text: "/exit".to_owned(),
            ..MessageView::default()
        };
        let given = text(&claude.message(&message));
        assert_eq!(
            given["message"]["content"][0]["text"],
            "A message from person:\n/exit"
        );
        let result = json!({"type": "result", "subtype": "success"});
        assert_eq!(claude.receive(&result), [Step::TurnEnded]);
        assert_eq!(
            claude.receive(&json!({"type": "user", "isReplay": true, "uuid": "m1"})),
            [Step::Delivered("m1".to_owned())]
        );
        assert_eq!(claude.receive(&result), [Step::Close]);
    }

    #[test]
    fn input_stays_open_while_sub_agents_work() {
        let mut claude = Claude::default();
        let tasks = |kinds: &[&str]| {
            let tasks: Vec<Value> = kinds
                .iter()
                .map(|kind| json!({"task_id": "t", "task_type": kind}))
                .collect();
            json!({"type": "system", "subtype": "background_tasks_changed", "tasks": tasks})
        };
        let result = json!({"type": "result", "subtype": "success"});
        assert_eq!(claude.receive(&tasks(&["local_agent", "local_bash"])), []);
        assert_eq!(claude.receive(&result), [Step::TurnEnded]);
        assert_eq!(claude.receive(&tasks(&["local_bash"])), []);
        assert_eq!(claude.receive(&result), [Step::Close]);
    }

    #[test]
    fn rejected_key_fails_without_retries() {
        let retry = json!({"type": "system", "subtype": "api_retry", "error_status": 401, "error": "authentication_failed"});
        assert!(
            matches!(Claude::default().receive(&retry).as_slice(), [Step::Failed(why)] if why.contains("401"))
        );
        let retry = json!({"type": "system", "subtype": "api_retry", "error_status": 529, "error": "overloaded"});
        assert_eq!(Claude::default().receive(&retry), []);
    }
}
