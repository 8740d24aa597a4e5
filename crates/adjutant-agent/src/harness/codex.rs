//! A client of Codex's app server: one thread, one turn, and another turn for each message that
//! arrived too late for the one before.
//!
//! ```text
//!  initialize ─ thread/start or thread/resume ─ turn/start ─ (turn/steer)* ─ turn/completed ─ close
//! ```

use super::operation;
use super::step::{Decision, Permission, Step, line};
use crate::view::MessageView;
use adjutant_core::policy::Operation;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The parameters of a thread.
#[derive(Debug, Clone)]
pub struct SessionStart {
    pub cwd: PathBuf,
    /// The thread to resume.
    pub thread: Option<String>,
    /// The prompt for a new thread, if `thread` is missing.
    pub new_session_prompt: Option<String>,
    /// The sandbox of its commands: `read-only`, `workspace-write` or `danger-full-access`.
    pub sandbox: String,
}

/// Fields of a request about a command that do not extend the request.
const KNOWN_OF_COMMAND: [&str; 15] = [
    "kind",
    "threadId",
    "turnId",
    "itemId",
    "approvalId",
    "startedAtMs",
    "environmentId",
    "command",
    "cwd",
    "reason",
    "commandActions",
    "networkApprovalContext",
    "proposedExecpolicyAmendment",
    "proposedNetworkPolicyAmendments",
    "availableDecisions",
];

/// Fields of a request about a patch that do not extend the request, besides `grantRoot`.
const KNOWN_OF_PATCH: [&str; 5] = ["threadId", "turnId", "itemId", "startedAtMs", "reason"];

const INITIALIZE: u64 = 1;
const THREAD: u64 = 2;
const TURN: u64 = 3;
const INTERRUPT: u64 = 4;
/// The requests that send messages have ids above this one.
const STEER: u64 = 5;

#[derive(Debug)]
pub struct Codex {
    start: SessionStart,
    prompt: String,
    thread: String,
    /// The current turn.
    turn: Option<String>,
    /// Messages that were sent and not read yet, by their ids.
    unread: BTreeMap<String, String>,
    steered: u64,
    /// Announced file changes, which approval requests refer to.
    changes: BTreeMap<String, Value>,
    /// Approval requests without a decision: the id as received.
    pending: BTreeMap<String, Value>,
}

impl Codex {
    #[must_use]
    pub fn new(start: SessionStart) -> Self {
        let (unread, changes, pending) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            start,
            prompt: String::new(),
            thread: String::new(),
            turn: None,
            unread,
            steered: 0,
            changes,
            pending,
        }
    }

    pub(super) fn opening(&mut self, prompt: &str) -> Vec<u8> {
        prompt.clone_into(&mut self.prompt);
        let client = json!({ "name": "adjutant", "version": env!("CARGO_PKG_VERSION") });
        request(INITIALIZE, "initialize", &json!({ "clientInfo": client }))
    }

    pub(super) fn receive(&mut self, incoming: &Value) -> Vec<Step> {
        let params = &incoming["params"];
        match incoming["method"].as_str() {
            Some(method) if !incoming["id"].is_null() => {
                self.handle_request(method, &incoming["id"], params)
            }
            // Sub-agents have their own threads.
            Some("turn/completed")
                if params["threadId"]
                    .as_str()
                    .is_none_or(|thread| thread == self.thread) =>
            {
                self.finish_turn()
            }
            Some("item/started") if params["item"]["type"] == "fileChange" => {
                self.changes.insert(
                    text(&params["item"]["id"]),
                    params["item"]["changes"].clone(),
                );
                Vec::new()
            }
            // Codex repeats a message when it has read it.
            Some("item/completed") => {
                self.changes
                    .remove(params["item"]["id"].as_str().unwrap_or_default());
                let read = params["item"]["clientId"]
                    .as_str()
                    .filter(|_| params["item"]["type"] == "userMessage");
                read.filter(|id| self.unread.remove(*id).is_some())
                    .map(|id| Step::Delivered(id.to_owned()))
                    .into_iter()
                    .collect()
            }
            Some(_) => Vec::new(),
            None => self.handle_reply(incoming),
        }
    }

    fn handle_reply(&mut self, incoming: &Value) -> Vec<Step> {
        let (id, result) = (incoming["id"].as_u64(), &incoming["result"]);
        if let Some(error) = incoming.get("error").filter(|error| !error.is_null()) {
            return match id {
                Some(THREAD)
                    if self.start.thread.take().is_some()
                        && self.start.new_session_prompt.is_some() =>
                {
                    self.prompt = self.start.new_session_prompt.take().unwrap_or_default();
                    vec![Step::Write(self.start_thread())]
                }
                Some(INITIALIZE | THREAD | TURN) => {
                    vec![Step::Failed(text(&error["message"])), Step::Close]
                }
                // A message that arrived too late is sent in the next turn.
                _ => Vec::new(),
            };
        }
        match id {
            Some(INITIALIZE) => {
                let mut bytes = line(&json!({ "method": "initialized" }));
                bytes.extend(self.start_thread());
                vec![Step::Write(bytes)]
            }
            Some(THREAD) => {
                self.thread = text(&result["thread"]["id"]);
                let prompt = std::mem::take(&mut self.prompt);
                vec![Step::Write(self.start_turn(&prompt, None))]
            }
            Some(TURN) => {
                self.turn = Some(text(&result["turn"]["id"]));
                let waiting: Vec<(String, String)> = self
                    .unread
                    .iter()
                    .map(|(id, text)| (id.clone(), text.clone()))
                    .collect();
                waiting
                    .into_iter()
                    .map(|(id, text)| Step::Write(self.steer(&id, &text)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    fn start_thread(&self) -> Vec<u8> {
        let SessionStart {
            cwd,
            thread,
            sandbox,
            ..
        } = &self.start;
        let approvals = if sandbox == "danger-full-access" {
            "never"
        } else {
            "on-request"
        };
        let mut params = json!({ "cwd": cwd, "sandbox": sandbox, "approvalPolicy": approvals });
        match thread {
            Some(thread) => {
                params["threadId"] = thread.as_str().into();
                params["excludeTurns"] = true.into();
                request(THREAD, "thread/resume", &params)
            }
            None => request(THREAD, "thread/start", &params),
        }
    }

    fn start_turn(&self, text: &str, message_id: Option<&str>) -> Vec<u8> {
        let input = json!([{ "type": "text", "text": text }]);
        request(
            TURN,
            "turn/start",
            &json!({ "threadId": self.thread, "input": input, "clientUserMessageId": message_id }),
        )
    }

    /// Starts another turn for an unread message, or closes the input.
    fn finish_turn(&mut self) -> Vec<Step> {
        let ended = self.turn.take();
        match self.unread.first_key_value().filter(|_| ended.is_some()) {
            Some((id, text)) => vec![
                Step::TurnEnded,
                Step::Write(self.start_turn(text, Some(id))),
            ],
            None => vec![Step::Close],
        }
    }

    pub(super) fn message(&mut self, message: &MessageView) -> Vec<u8> {
        let text = format!("A message from {}:\n{}", message.from, message.text);
        let bytes = if self.turn.is_some() {
            self.steer(&message.message_id, &text)
        } else {
            Vec::new()
        };
        self.unread.insert(message.message_id.clone(), text);
        bytes
    }

    fn steer(&mut self, id: &str, text: &str) -> Vec<u8> {
        let input = json!([{ "type": "text", "text": text }]);
        let params = json!({ "threadId": self.thread, "expectedTurnId": self.turn, "input": input, "clientUserMessageId": id });
        self.steered += 1;
        request(STEER + self.steered, "turn/steer", &params)
    }

    fn handle_request(&mut self, method: &str, id: &Value, params: &Value) -> Vec<Step> {
        let (tool, input, operation) = match method {
            "item/commandExecution/requestApproval" => (
                "a command",
                select_fields(
                    params,
                    &["command", "cwd", "reason", "networkApprovalContext"],
                ),
                self.command(params),
            ),
            "item/fileChange/requestApproval" => {
                let mut input = select_fields(params, &["reason", "grantRoot"]);
                input["changes"] = self
                    .changes
                    .get(&text(&params["itemId"]))
                    .cloned()
                    .unwrap_or_default();
                let is_known = |(name, value): (&String, &Value)| {
                    value.is_null()
                        || name == "grantRoot"
                        || KNOWN_OF_PATCH.contains(&name.as_str())
                };
                let operation = self.patch(
                    &input,
                    params
                        .as_object()
                        .is_some_and(|fields| fields.iter().all(is_known)),
                );
                ("apply_patch", input, operation)
            }
            "mcpServer/elicitation/request" => {
                return vec![Step::Write(reply(id, &json!({ "action": "decline" })))];
            }
            _ => {
                let error = json!({ "code": -32601, "message": "not supported by this client" });
                return vec![Step::Write(line(&json!({ "id": id, "error": error })))];
            }
        };
        self.pending.insert(id.to_string(), id.clone());
        vec![Step::Permission(Permission {
            id: id.to_string(),
            tool: tool.to_owned(),
            input: input.to_string(),
            is_own_tool: false,
            edits: Vec::new(),
            operation: Box::new(operation),
        })]
    }

    /// Returns the operation of a command, or of a connection that a command makes.
    fn command(&self, params: &Value) -> Operation {
        let context = &params["networkApprovalContext"];
        let mut input = select_fields(params, &["command", "cwd"]);
        if let Some(command) = params["command"].as_str() {
            input["command"] = operation::unwrapped(command).into();
        }
        let of_command = operation::shell("command", &input, &self.start.cwd, &[]);
        let is_known = |(name, value): (&String, &Value)| {
            value.is_null() || KNOWN_OF_COMMAND.contains(&name.as_str())
        };
        let is_of_known_kind =
            !context.is_null() || matches!(params["kind"].as_str(), None | Some("command"));
        let is_known = is_of_known_kind
            && params
                .as_object()
                .is_some_and(|fields| fields.iter().all(is_known));
        let url = match (context["protocol"].as_str(), context["host"].as_str()) {
            _ if context.is_null() => None,
            // The port is not stated, so it can be any.
            (Some(scheme @ ("http" | "https")), Some(host)) => {
                Some(format!("{scheme}://{host}:*/"))
            }
            // Not an address, so it matches nothing with certainty.
            (_, host) => Some(host.unwrap_or_default().to_owned()),
        };
        let is_complete =
            is_known && (of_command.is_complete || input.get("command").is_none() && url.is_some());
        let whole = select_fields(
            params,
            &[
                "command",
                "cwd",
                "environmentId",
                "networkApprovalContext",
                "additionalPermissions",
            ],
        );
        let digest = is_known.then(|| operation::digest("command", &whole, &[]));
        Operation {
            urls: url.into_iter().collect(),
            is_complete,
            digest,
            ..of_command
        }
    }

    /// Returns the operation of a patch. `is_known`: nothing else is asked for.
    fn patch(&self, input: &Value, is_known: bool) -> Operation {
        let changes = input["changes"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let renamed = changes
            .iter()
            .map(|change| &change["kind"]["move_path"])
            .filter(|path| !path.is_null());
        let files: Vec<Option<&str>> = changes
            .iter()
            .map(|change| &change["path"])
            .chain(renamed)
            .map(Value::as_str)
            .collect();
        let kinds = changes
            .iter()
            .map(|change| &change["kind"])
            .filter(|kind| !kind.is_null());
        let is_known = is_known
            && operation::have_only(changes.iter(), &["path", "kind", "diff"])
            && operation::have_only(kinds, &["type", "move_path"]);
        let is_complete =
            is_known && input["grantRoot"].is_null() && files.iter().all(Option::is_some);
        let patch = operation::on_files(
            "apply_patch",
            input,
            &self.start.cwd,
            files.into_iter().flatten(),
            is_complete,
        );
        Operation {
            digest: patch.digest.filter(|_| is_known),
            ..patch
        }
    }

    pub(super) fn cancel(&mut self) -> Option<Vec<u8>> {
        self.unread.clear();
        let turn = self.turn.as_ref()?;
        Some(request(
            INTERRUPT,
            "turn/interrupt",
            &json!({ "threadId": self.thread, "turnId": turn }),
        ))
    }

    /// A denial has no text. The reason is sent as a message before it, so that both are read
    /// together.
    pub(super) fn decide(&mut self, id: &str, decision: &Decision) -> Option<Vec<u8>> {
        let id = self.pending.remove(id)?;
        let word = if *decision == Decision::Allow {
            "accept"
        } else {
            "decline"
        };
        let mut bytes = match decision {
            Decision::Deny(why) if self.turn.is_some() => self.steer(
                &format!("denied-{id}"),
                &format!("What you asked for was denied: {why}"),
            ),
            Decision::Allow | Decision::Deny(_) => Vec::new(),
        };
        bytes.extend(reply(&id, &json!({ "decision": word })));
        Some(bytes)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the fields with these names that are not null.
fn select_fields(from: &Value, names: &[&str]) -> Value {
    names
        .iter()
        .filter(|name| !from[**name].is_null())
        .map(|name| ((*name).to_owned(), from[*name].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn request(id: u64, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "id": id, "method": method, "params": params }))
}

fn reply(id: &Value, result: &Value) -> Vec<u8> {
    line(&json!({ "id": id, "result": result }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codex(thread: Option<&str>, new_session_prompt: Option<&str>) -> Codex {
        Codex::new(SessionStart {
            cwd: PathBuf::from("/w"),
            thread: thread.map(str::to_owned),
            new_session_prompt: new_session_prompt.map(str::to_owned),
            sandbox: "workspace-write".to_owned(),
        })
    }

    /// Returns the requests that the steps write.
    fn written(steps: &[Step]) -> Vec<Value> {
        let bytes = steps.iter().map(|step| {
            if let Step::Write(bytes) = step {
                bytes.as_slice()
            } else {
                panic!("{steps:?}")
            }
        });
        let text = bytes
            .map(|bytes| std::str::from_utf8(bytes).expect("text"))
            .collect::<String>();
        text.lines()
            .map(|line| serde_json::from_str(line).expect("one JSON object"))
            .collect()
    }

    /// Returns a client with a running turn.
    fn working() -> Codex {
        let mut codex = codex(None, None);
        codex.opening("/quit @/etc/passwd");
        let begun = written(&codex.receive(&json!({"id": 1, "result": {}})));
        assert_eq!(
            (&begun[0]["method"], &begun[1]["method"]),
            (&json!("initialized"), &json!("thread/start"))
        );
        assert_eq!(
            (
                &begun[1]["params"]["sandbox"],
                &begun[1]["params"]["approvalPolicy"]
            ),
            (&json!("workspace-write"), &json!("on-request"))
        );
        let turn = written(&codex.receive(&json!({"id": 2, "result": {"thread": {"id": "t"}}})));
        assert_eq!(
            turn[0]["params"]["input"],
            json!([{"type": "text", "text": "/quit @/etc/passwd"}])
        );
        assert_eq!(
            codex.receive(&json!({"id": 3, "result": {"turn": {"id": "u"}}})),
            []
        );
        codex
    }

    #[test]
    fn turn_is_started_steered_and_ended() {
        let mut codex = working();
        let message = MessageView {
            message_id: "m1".to_owned(),
            from: "person".to_owned(),
            text: "/exit".to_owned(),
            ..MessageView::default()
        };
        let steer: Value = serde_json::from_slice(&codex.message(&message)).expect("one request");
        assert_eq!(
            (&steer["method"], &steer["params"]["expectedTurnId"]),
            (&json!("turn/steer"), &json!("u"))
        );
        assert_eq!(
            steer["params"]["input"][0]["text"],
            "A message from person:\n/exit"
        );
        let read = json!({"method": "item/completed", "params": {"item": {"type": "userMessage", "clientId": "m1"}}});
        assert_eq!(codex.receive(&read), [Step::Delivered("m1".to_owned())]);
        assert_eq!(
            codex.receive(
                &json!({"method": "turn/completed", "params": {"threadId": "of a sub-agent"}})
            ),
            []
        );
        assert_eq!(
            codex.receive(&json!({"method": "turn/completed", "params": {"threadId": "t"}})),
            [Step::Close]
        );
    }

    #[test]
    fn unread_message_starts_the_next_turn() {
        let mut codex = working();
        let message = MessageView {
            message_id: "m1".to_owned(),
            text: "wait".to_owned(),
            ..MessageView::default()
        };
        codex.message(&message);
        let steps = codex.receive(&json!({"method": "turn/completed", "params": {}}));
        assert_eq!(steps[0], Step::TurnEnded);
        let next = written(&steps[1..]);
        assert_eq!(
            (
                &next[0]["method"],
                &next[0]["params"]["clientUserMessageId"]
            ),
            (&json!("turn/start"), &json!("m1"))
        );
        assert_eq!(
            codex.receive(&json!({"id": 6, "error": {"message": "no active turn"}})),
            []
        );
    }

    #[test]
    fn approval_shows_the_whole_request_and_is_decided_once() {
        let mut codex = working();
        let ask = json!({"id": 0, "method": "item/commandExecution/requestApproval", "params": {"command": "rm -rf /", "cwd": "/w", "reason": "why not"}});
        let [Step::Permission(asked)] = &codex.receive(&ask)[..] else {
            panic!("a permission request")
        };
        assert!(
            asked.input.contains("rm -rf /")
                && asked.input.contains("why not")
                && !asked.is_own_tool
                && asked.edits.is_empty()
        );
        assert!(
            asked.operation.is_complete && asked.operation.command.as_deref() == Some("rm -rf /"),
            "{:?}",
            asked.operation
        );
        let answer = written(&[Step::Write(
            codex
                .decide("0", &Decision::Deny("no".to_owned()))
                .expect("the request is pending"),
        )]);
        assert_eq!(
            answer[1],
            json!({"id": 0, "result": {"decision": "decline"}})
        );
        assert!(
            answer[0]["params"]["input"][0]["text"]
                .as_str()
                .is_some_and(|text| text.ends_with("no"))
        );
        assert_eq!(codex.decide("0", &Decision::Allow), None);
        codex
            .receive(&json!({"method": "item/started", "params": {"item": {"type": "fileChange", "id": "c", "changes": [{"path": "/etc/passwd"}]}}}));
        let ask = json!({"id": 1, "method": "item/fileChange/requestApproval", "params": {"itemId": "c"}});
        assert!(
            matches!(&codex.receive(&ask)[..], [Step::Permission(asked)] if asked.input.contains("/etc/passwd"))
        );
        let other =
            written(&codex.receive(&json!({"id": 2, "method": "item/tool/call", "params": {}})));
        assert_eq!(other[0]["error"]["code"], -32601);
    }

    #[test]
    fn operation_matches_the_request() {
        let codex = working();
        let wrapped =
            codex.command(&json!({"command": "/bin/bash -lc 'git status'", "cwd": "/w/sub", "kind": "command", "itemId": "i", "commandActions": []}));
        assert!(
            wrapped.is_complete && wrapped.command.as_deref() == Some("git status"),
            "{wrapped:?}"
        );
        assert!(
            wrapped
                .directory
                .is_some_and(|directory| directory.stated == "/w/sub")
        );
        assert!(
            !codex
                .command(&json!({"command": "ls", "kind": "of tomorrow"}))
                .is_complete
        );
        let more =
            codex.command(&json!({"command": "ls", "additionalPermissions": {"network": true}}));
        assert!(!more.is_complete && more.digest.is_none());
        let host = codex
            .command(&json!({"networkApprovalContext": {"host": "x.org", "protocol": "https"}}));
        assert!(
            host.is_complete && host.urls == ["https://x.org:*/"],
            "{host:?}"
        );
        let digest = |environment: &str| {
            codex
                .command(&json!({"command": "ls", "environmentId": environment}))
                .digest
        };
        assert!(
            digest("local").is_some() && digest("local") != digest("remote"),
            "another environment is another call"
        );
        let patch = codex.patch(&json!({"changes": [{"path": "a", "kind": {"type": "update", "move_path": "/w/b"}, "diff": ""}]}), true);
        let paths: Vec<&str> = patch
            .paths
            .iter()
            .map(|path| path.stated.as_str())
            .collect();
        assert!(patch.is_complete && paths == ["/w/a", "/w/b"], "{patch:?}");
        assert!(
            !codex
                .patch(&json!({"changes": [], "grantRoot": null}), true)
                .is_complete
        );
        assert!(
            !codex
                .patch(
                    &json!({"changes": [{"path": "/w/a"}], "grantRoot": "/"}),
                    true
                )
                .is_complete
        );
        for (change, is_known) in [
            (json!({"path": "/w/a"}), false),
            (json!({"path": "/w/a", "mode": "0777"}), true),
            (
                json!({"path": "/w/a", "kind": {"type": "update", "copy_path": "/etc/x"}}),
                true,
            ),
        ] {
            let unknown = codex.patch(&json!({"changes": [change]}), is_known);
            assert!(!unknown.is_complete && unknown.digest.is_none(), "{change}");
        }
    }

    #[test]
    fn lost_thread_restarts_with_the_whole_task() {
        let mut codex = codex(Some("old"), Some("the whole task"));
        codex.opening("go on");
        let begun = written(&codex.receive(&json!({"id": 1, "result": {}})));
        assert_eq!(
            (&begun[1]["method"], &begun[1]["params"]["threadId"]),
            (&json!("thread/resume"), &json!("old"))
        );
        let missing = json!({"id": 2, "error": {"code": -32600, "message": "no rollout found for thread id old"}});
        assert_eq!(
            written(&codex.receive(&missing))[0]["method"],
            "thread/start"
        );
        let turn = written(&codex.receive(&json!({"id": 2, "result": {"thread": {"id": "new"}}})));
        assert_eq!(turn[0]["params"]["input"][0]["text"], "the whole task");
        assert!(
            matches!(&codex.receive(&json!({"id": 3, "error": {"message": "broken"}}))[..], [Step::Failed(why), Step::Close] if why == "broken")
        );
    }
}
